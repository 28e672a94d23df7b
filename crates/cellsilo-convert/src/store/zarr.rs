//! Zarr stores, version 2 and 3, in a folder or a zip file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellsilo::{Error, Result};
use serde_json::Value;
use zarrs::array::{Array as ZarrsArray, ArrayBytes, ArrayMetadata, ArraySubset};
use zarrs::filesystem::FilesystemStore;
use zarrs::storage::{ReadableListableStorage, StoreKey, StorePrefix};

use super::hdf5::padded_text;
use super::zip::ZipStore;
use super::{Array, MAX_CHUNK_BYTES, MAX_STRINGS, Node, Store, check_box, is_zip};
use crate::values::{Dtype, texts};

type Opened = ZarrsArray<dyn zarrs::storage::ReadableListableStorageTraits>;

/// A field of a record type: name, type string, place in the record.
type Field = (String, String, usize);

/// A zarr store.
pub struct ZarrStore {
    path: PathBuf,
    storage: ReadableListableStorage,
}

impl ZarrStore {
    /// Opens a folder or a zip file.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it holds no zarr hierarchy.
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("it cannot be read as zarr: {e}")).in_file(path);
        let storage: ReadableListableStorage = if path.is_dir() {
            Arc::new(FilesystemStore::new(path).map_err(|e| bad(&e))?)
        } else if is_zip(path)? {
            Arc::new(ZipStore::open(path).map_err(|e| bad(&e))?)
        } else {
            return Err(bad(&"it is neither a folder nor a zip file"));
        };
        let store = Self { path: path.to_owned(), storage };
        if store.node("") != Some(Node::Group) {
            return Err(bad(&"it has no zarr group at its root"));
        }
        Ok(store)
    }

    fn json(&self, path: &str, name: &str) -> Option<Value> {
        let key = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let bytes = self.storage.get(&StoreKey::new(key).ok()?).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// The record type of a version 2 array, and the record's size.
    fn records(&self, path: &str) -> Option<(Vec<Field>, usize)> {
        let metadata = self.json(path, ".zarray")?;
        let (mut fields, mut place) = (Vec::new(), 0usize);
        for field in metadata["dtype"].as_array()? {
            let (name, kind) = (field.get(0)?.as_str()?, field.get(1)?.as_str()?);
            let size: usize = kind.get(2..)?.parse().ok()?;
            let size = if kind[1..].starts_with('U') { 4 * size } else { size };
            fields.push((name.to_owned(), kind.to_owned(), place));
            place = place.checked_add(size)?;
        }
        Some((fields, place))
    }

    fn open_array(&self, path: &str) -> Result<Opened> {
        let bad = |e: &dyn std::fmt::Display| self.fault(format!("{path} cannot be read: {e}"));
        let at = format!("/{path}");
        let array = match self.opaque_metadata(path) {
            Some(metadata) => {
                let metadata: ArrayMetadata = serde_json::from_value(metadata).map_err(|e| bad(&e))?;
                Opened::new_with_metadata(self.storage.clone(), &at, metadata).map_err(|e| bad(&e))?
            }
            None => Opened::open(self.storage.clone(), &at).map_err(|e| bad(&e))?,
        };
        let chunk = array.chunk_shape(&vec![0; array.dimensionality()]).map_err(|e| bad(&e))?;
        let elements = chunk.iter().try_fold(16u64, |n, c| n.checked_mul(c.get()));
        if elements.is_none_or(|n| n > 4 * MAX_CHUNK_BYTES) {
            return Err(bad(&format!("its chunks of {chunk:?} elements are too large")));
        }
        Ok(array)
    }

    /// For arrays of records and of fixed-length strings, which zarrs has no types for: metadata that take an
    /// element as so many bytes, as one more dimension.
    fn opaque_metadata(&self, path: &str) -> Option<Value> {
        let mut metadata = self.json(path, ".zarray")?;
        let size = match self.records(path) {
            Some((_, size)) => size,
            None => fixed_string(metadata["dtype"].as_str()?)?.1,
        };
        metadata["dtype"] = "|u1".into();
        metadata["fill_value"] = 0.into();
        metadata["order"] = "C".into();
        metadata["shape"].as_array_mut()?.push(size.into());
        metadata["chunks"].as_array_mut()?.push(size.into());
        // With one more dimension the default separator would change the names of the chunks.
        metadata["dimension_separator"] = "/".into();
        Some(metadata)
    }

    /// All elements of a one-dimensional array of records or fixed-length strings. Its chunks keep their names,
    /// so they are decoded one by one.
    fn opaque_bytes(&self, path: &str, size: usize) -> Result<Vec<u8>> {
        let bad = |e: &dyn std::fmt::Display| self.fault(format!("{path} cannot be read: {e}"));
        let metadata = self.json(path, ".zarray").ok_or_else(|| bad(&"its .zarray is gone"))?;
        let (shape, chunks) = (number_list(&metadata["shape"]), number_list(&metadata["chunks"]));
        let ([n], [chunk]) = (shape.as_slice(), chunks.as_slice()) else { return Err(bad(&"it does not have one dimension")) };
        let chunk_bytes =
            chunk.checked_mul(size as u64).filter(|&b| b > 0 && b <= MAX_CHUNK_BYTES).ok_or_else(|| bad(&"its chunks are too large"))?;
        if *n > MAX_STRINGS {
            return Err(bad(&format!("it has {n} elements, at most {MAX_STRINGS} are read")));
        }
        let array = self.open_array(path)?;
        let codecs = array.codecs();
        let mut out = Vec::new();
        for k in 0..n.div_ceil(*chunk) {
            let key = StoreKey::new(format!("{path}/{k}")).map_err(|e| bad(&e))?;
            let stored = self.storage.get(&key).map_err(|e| bad(&e))?.ok_or_else(|| bad(&format!("chunk {k} is missing")))?;
            let shape =
                [std::num::NonZeroU64::new(*chunk).expect("checked above"), std::num::NonZeroU64::new(size as u64).expect("checked above")];
            let decoded = zarrs::array::codec::api::ArrayToBytesCodecTraits::decode(
                codecs.as_ref(),
                stored.to_vec().into(),
                &shape,
                array.data_type(),
                array.fill_value(),
                &Default::default(),
            )
            .map_err(|e| bad(&e))?;
            let bytes = decoded.into_fixed().map_err(|e| bad(&e))?;
            if bytes.len() as u64 != chunk_bytes {
                return Err(bad(&format!("chunk {k} has {} bytes, expected {chunk_bytes}", bytes.len())));
            }
            out.extend_from_slice(&bytes);
        }
        out.truncate(*n as usize * size);
        Ok(out)
    }
}

/// The version 3 name of the element type; zarrs shows the version 2 name behind a slash.
fn type_name(array: &Opened) -> String {
    array.data_type().to_string().split([' ', '/']).next().unwrap_or_default().to_owned()
}

fn number_list(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Kind and size in bytes of a fixed-length string type of version 2.
fn fixed_string(dtype: &str) -> Option<(char, usize)> {
    let kind = dtype.chars().nth(1).filter(|k| matches!(k, 'S' | 'U'))?;
    let size: usize = dtype.get(2..)?.parse().ok()?;
    Some((kind, if kind == 'U' { 4 * size } else { size }))
}

/// Text of an element of a version 2 type string.
fn element_text(bytes: &[u8], kind: &str) -> Option<String> {
    match (kind.get(..1)?, kind.get(1..2)?) {
        (_, "S") => Some(padded_text(bytes)),
        (order, "U") => {
            let unit = |b: &[u8]| {
                if order == ">" {
                    u32::from_be_bytes(b.try_into().expect("four bytes"))
                } else {
                    u32::from_le_bytes(b.try_into().expect("four bytes"))
                }
            };
            Some(
                bytes
                    .chunks_exact(4)
                    .map(unit)
                    .take_while(|&c| c != 0)
                    .map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect(),
            )
        }
        (order, letter) => {
            let dtype = Dtype::from_kind(letter.chars().next()?, bytes.len())?;
            let mut bytes = bytes.to_vec();
            if order == ">" {
                bytes.reverse();
            }
            texts(&bytes, dtype).pop()
        }
    }
}

impl Store for ZarrStore {
    fn path(&self) -> &Path {
        &self.path
    }

    fn node(&self, path: &str) -> Option<Node> {
        if let Some(metadata) = self.json(path, "zarr.json") {
            return match metadata["node_type"].as_str()? {
                "group" => Some(Node::Group),
                "array" => Some(Node::Array),
                _ => None,
            };
        }
        if self.json(path, ".zarray").is_some() {
            return Some(Node::Array);
        }
        self.json(path, ".zgroup").map(|_| Node::Group)
    }

    fn children(&self, path: &str) -> Vec<String> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let Ok(prefix) = StorePrefix::new(prefix) else { return Vec::new() };
        let Ok(listed) = self.storage.list_dir(&prefix) else { return Vec::new() };
        let mut names: Vec<String> =
            listed.prefixes().iter().filter_map(|p| p.as_str().trim_end_matches('/').rsplit('/').next()).map(str::to_owned).collect();
        names.sort();
        names
    }

    fn attribute(&self, path: &str, name: &str) -> Option<Value> {
        let attributes = match self.json(path, "zarr.json") {
            Some(metadata) => metadata.get("attributes")?.clone(),
            None => self.json(path, ".zattrs")?,
        };
        attributes.get(name).cloned()
    }

    fn array(&self, path: &str) -> Result<Arc<dyn Array>> {
        let array = self.open_array(path)?;
        let name = type_name(&array);
        let (kind, bits) = name.split_at(name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len()));
        let kind = match kind {
            "bool" => Some(('b', 1)),
            "int" => bits.parse().ok().map(|b: usize| ('i', b / 8)),
            "uint" => bits.parse().ok().map(|b: usize| ('u', b / 8)),
            "float" => bits.parse().ok().map(|b: usize| ('f', b / 8)),
            _ => None,
        };
        let dtype = kind
            .and_then(|(kind, size)| Dtype::from_kind(kind, size))
            .ok_or_else(|| self.fault(format!("{path} holds {name} values, not numbers")))?;
        let chunk_shape = array.chunk_shape(&vec![0; array.dimensionality()]).map_err(|e| self.fault(format!("{path}: {e}")))?;
        let chunk_shape = chunk_shape.iter().map(|c| c.get()).collect();
        Ok(Arc::new(ZarrArray { store: self.path.clone(), name: path.into(), array, dtype, chunk_shape }))
    }

    fn strings(&self, path: &str) -> Result<Vec<String>> {
        let bad = |e: &dyn std::fmt::Display| self.fault(format!("{path} cannot be read: {e}"));
        let dtype = self.json(path, ".zarray").and_then(|m| m["dtype"].as_str().map(str::to_owned));
        if let Some((dtype, (_, size))) = dtype.and_then(|d| fixed_string(&d).map(|f| (d, f))) {
            return Ok(self.opaque_bytes(path, size)?.chunks_exact(size.max(1)).filter_map(|b| element_text(b, &dtype)).collect());
        }
        let array = self.open_array(path)?;
        if array.shape().len() != 1 || array.shape()[0] > MAX_STRINGS {
            return Err(bad(&format!("its shape is {:?}, expected up to {MAX_STRINGS} strings in one dimension", array.shape())));
        }
        if type_name(&array) == "string" {
            return array.retrieve_array_subset::<Vec<String>>(&array.subset_all()).map_err(|e| bad(&e));
        }
        let numbers = self.array(path)?;
        Ok(texts(&numbers.read_all()?, numbers.dtype()))
    }

    fn fields(&self, path: &str) -> Option<Vec<String>> {
        Some(self.records(path)?.0.into_iter().map(|f| f.0).collect())
    }

    fn field_strings(&self, path: &str, field: &str) -> Result<Vec<String>> {
        let bad = |what: &str| self.fault(format!("the field {field:?} of {path} {what}"));
        let (fields, size) = self.records(path).ok_or_else(|| bad("is not in a table of records"))?;
        let place = fields.iter().position(|f| f.0 == field).ok_or_else(|| bad("does not exist"))?;
        let (_, kind, start) = &fields[place];
        let end = fields.get(place + 1).map_or(size, |next| next.2);
        let bytes = self.opaque_bytes(path, size)?;
        bytes
            .chunks_exact(size.max(1))
            .map(|r| element_text(&r[*start..end], kind).ok_or_else(|| bad("holds neither strings nor numbers")))
            .collect()
    }
}

struct ZarrArray {
    store: PathBuf,
    name: String,
    array: Opened,
    dtype: Dtype,
    chunk_shape: Vec<u64>,
}

impl Array for ZarrArray {
    fn shape(&self) -> &[u64] {
        self.array.shape()
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    fn read(&self, start: &[u64], count: &[u64]) -> Result<Vec<u8>> {
        let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("{}: {e}", self.name)).in_file(&self.store);
        let size = check_box(self.shape(), start, count, self.dtype.size()).map_err(|e| bad(&e))?;
        if size == 0 {
            return Ok(Vec::new());
        }
        let subset = ArraySubset::new_with_start_shape(start.to_vec(), count.to_vec()).map_err(|e| bad(&e))?;
        let bytes: ArrayBytes<'_> = self.array.retrieve_array_subset(&subset).map_err(|e| bad(&e))?;
        let bytes = bytes.into_fixed().map_err(|e| bad(&e))?.into_owned();
        if bytes.len() != size {
            return Err(bad(&format!("a read gave {} bytes, expected {size}", bytes.len())));
        }
        Ok(bytes)
    }
}
