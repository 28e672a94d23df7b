//! HDF5 files: hdf5-pure reads the structure, the raw data are fetched and decoded here.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellsilo::{Error, Result};
use hdf5_pure::{AttrValue, Datatype, DatatypeByteOrder, Filter, Layout, VlenStringReadOptions};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::heap::GlobalHeap;
use super::{Array, MAX_CHUNK_BYTES, MAX_STRINGS, Node, Store, check_box, filters};
use crate::values::{Dtype, texts};

/// Most bytes of all strings of one column.
const MAX_STRING_BYTES: usize = 4 << 30;

/// An HDF5 file.
pub struct Hdf5Store {
    path: PathBuf,
    file: hdf5_pure::File,
    raw: Arc<File>,
}

impl Hdf5Store {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not an HDF5 file; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let raw = File::open(path).map_err(|e| Error::io(path, e))?;
        let file =
            hdf5_pure::File::open_streaming(path).map_err(|e| Error::invalid(format!("it cannot be read as HDF5: {e}")).in_file(path))?;
        Ok(Self { path: path.to_owned(), file, raw: Arc::new(raw) })
    }

    fn dataset(&self, path: &str) -> Result<hdf5_pure::Dataset> {
        self.file.dataset(path).map_err(|e| self.fault(format!("{path} cannot be read: {e}")))
    }

    fn group(&self, path: &str) -> Option<hdf5_pure::Group> {
        if path.is_empty() { Some(self.file.root()) } else { self.file.group(path).ok() }
    }

    /// Opens an array whatever its elements are.
    fn raw_array(&self, path: &str) -> Result<(Hdf5Array, Datatype)> {
        let dataset = self.dataset(path)?;
        let bad = |e: hdf5_pure::Error| self.fault(format!("{path} cannot be read: {e}"));
        let datatype = dataset.datatype().map_err(bad)?;
        let shape = dataset.shape().map_err(bad)?;
        let array = Hdf5Array::new(self, path, &dataset, shape, datatype.type_size() as usize)
            .map_err(|what| self.fault(format!("{path} cannot be read: {what}")))?;
        Ok((array, datatype))
    }

    /// Members of a compound type: name, place in the record, type.
    fn members(datatype: &Datatype) -> Option<Vec<(String, usize, Datatype)>> {
        let Datatype::Compound { members, .. } = datatype else { return None };
        Some(members.iter().map(|m| (m.name.clone(), m.byte_offset as usize, m.datatype.clone())).collect())
    }

    /// Strings of variable length at `offset` of each record.
    fn heap_texts(&self, array: &Hdf5Array, records: &[u8], offset: usize, size: usize) -> Result<Vec<String>> {
        if offset + size > array.element {
            return Err(array.fault("a field runs past the end of its record"));
        }
        let read = |address: u64, out: &mut [u8]| array.pread(address, out);
        let mut heap = GlobalHeap::new(self.file.superblock().base_address.get(), &read);
        let mut texts = Vec::new();
        for record in records.chunks_exact(array.element) {
            let text = heap.text(&record[offset..offset + size])?;
            texts.push(text.ok_or_else(|| array.fault(format!("the string of record {} is damaged", texts.len())))?);
        }
        Ok(texts)
    }

    fn check_strings(&self, path: &str, n: u64) -> Result<()> {
        if n > MAX_STRINGS {
            return Err(self.fault(format!("{path} has {n} strings, at most {MAX_STRINGS} are read")));
        }
        Ok(())
    }
}

impl Store for Hdf5Store {
    fn path(&self) -> &Path {
        &self.path
    }

    fn node(&self, path: &str) -> Option<Node> {
        if self.group(path).is_some() { Some(Node::Group) } else { self.file.dataset(path).ok().map(|_| Node::Array) }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let Some(group) = self.group(path) else { return Vec::new() };
        let mut names: Vec<String> = group.groups().into_iter().chain(group.datasets()).flatten().collect();
        names.sort();
        names
    }

    fn attribute(&self, path: &str, name: &str) -> Option<Value> {
        let attributes = match self.group(path) {
            Some(group) => group.attrs().ok()?,
            None => self.file.dataset(path).ok()?.attrs().ok()?,
        };
        attributes.get(name).map(attribute_value)
    }

    fn array(&self, path: &str) -> Result<Arc<dyn Array>> {
        let (mut array, datatype) = self.raw_array(path)?;
        let (dtype, big_endian) = numeric(&datatype).ok_or_else(|| self.fault(format!("{path} does not hold numbers")))?;
        (array.dtype, array.big_endian) = (dtype, big_endian);
        Ok(Arc::new(array))
    }

    fn strings(&self, path: &str) -> Result<Vec<String>> {
        let dataset = self.dataset(path)?;
        let bad = |e: hdf5_pure::Error| self.fault(format!("{path} cannot be read: {e}"));
        let datatype = dataset.datatype().map_err(bad)?;
        match &datatype {
            Datatype::VariableLength { is_string: true, .. } => {
                let options = VlenStringReadOptions::new().with_max_elements(MAX_STRINGS as usize).with_max_payload_bytes(MAX_STRING_BYTES);
                dataset.read_vlen_strings(options).map_err(bad)
            }
            _ => {
                let (array, datatype) = self.raw_array(path)?;
                self.check_strings(path, array.len())?;
                let bytes = array.read_all()?;
                element_texts(&bytes, array.element, 0, &datatype)
                    .ok_or_else(|| self.fault(format!("{path} holds neither strings nor numbers")))
            }
        }
    }

    fn fields(&self, path: &str) -> Option<Vec<String>> {
        let datatype = self.file.dataset(path).ok()?.datatype().ok()?;
        Some(Self::members(&datatype)?.into_iter().map(|m| m.0).collect())
    }

    fn field_strings(&self, path: &str, field: &str) -> Result<Vec<String>> {
        let (array, datatype) = self.raw_array(path)?;
        self.check_strings(path, array.len())?;
        let member = Self::members(&datatype).and_then(|members| members.into_iter().find(|m| m.0 == field));
        let Some((_, offset, datatype)) = member else { return Err(self.fault(format!("the table {path} has no field {field:?}"))) };
        let bytes = array.read_all()?;
        if let Datatype::VariableLength { is_string: true, .. } = datatype {
            return self.heap_texts(&array, &bytes, offset, datatype.type_size() as usize);
        }
        element_texts(&bytes, array.element, offset, &datatype)
            .ok_or_else(|| self.fault(format!("the field {field:?} of {path} holds neither strings nor numbers")))
    }
}

/// Fixed-length strings or numbers at `offset` of each record, as text.
fn element_texts(bytes: &[u8], record: usize, offset: usize, datatype: &Datatype) -> Option<Vec<String>> {
    let size = datatype.type_size() as usize;
    if offset + size > record {
        return None;
    }
    let elements = bytes.chunks_exact(record).map(|r| &r[offset..offset + size]);
    if let Datatype::String { .. } = datatype {
        return Some(elements.map(padded_text).collect());
    }
    let (dtype, big_endian) = numeric(datatype)?;
    let mut packed: Vec<u8> = elements.flatten().copied().collect();
    if big_endian {
        packed.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Some(texts(&packed, dtype))
}

/// A fixed-length string ends at its first zero byte, or has none. Bytes that are not UTF-8 are replaced.
pub(super) fn padded_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn numeric(datatype: &Datatype) -> Option<(Dtype, bool)> {
    let plain =
        |kind, size: u32, order: &DatatypeByteOrder| Some((Dtype::from_kind(kind, size as usize)?, *order == DatatypeByteOrder::BigEndian));
    match datatype {
        Datatype::FixedPoint { size, byte_order, layout } => plain(if layout.signed { 'i' } else { 'u' }, *size, byte_order),
        Datatype::FloatingPoint { size, byte_order, .. } => plain('f', *size, byte_order),
        Datatype::BitField { size, byte_order, .. } => plain('u', *size, byte_order),
        // h5py stores booleans as an enumeration over int8.
        Datatype::Enumeration { base_type, .. } => numeric(base_type),
        _ => None,
    }
}

fn attribute_value(value: &AttrValue) -> Value {
    use AttrValue as A;
    match value {
        A::F32(v) => json!(v),
        A::F64(v) => json!(v),
        A::I8(v) => json!(v),
        A::I16(v) => json!(v),
        A::I32(v) => json!(v),
        A::I64(v) => json!(v),
        A::U8(v) => json!(v),
        A::U16(v) => json!(v),
        A::U32(v) => json!(v),
        A::U64(v) => json!(v),
        A::F32Array(v) => json!(v),
        A::F64Array(v) => json!(v),
        A::I8Array(v) => json!(v),
        A::I16Array(v) => json!(v),
        A::I32Array(v) => json!(v),
        A::I64Array(v) => json!(v),
        A::U8Array(v) => json!(v),
        A::U16Array(v) => json!(v),
        A::U32Array(v) => json!(v),
        A::U64Array(v) => json!(v),
        A::String(v) | A::AsciiString(v) | A::VarLenString(v) | A::VarLenAsciiString(v) => json!(v),
        A::StringSized { value, .. } | A::AsciiStringSized { value, .. } => json!(value),
        A::StringArray(v)
        | A::AsciiStringArray(v)
        | A::VarLenAsciiCharArray(v)
        | A::VarLenStringArray(v)
        | A::VarLenAsciiStringArray(v) => json!(v),
        A::StringArraySized { values, .. } | A::AsciiStringArraySized { values, .. } => json!(values),
        _ => Value::Null,
    }
}

/// A chunk as it stands in the file.
struct Stored {
    address: u64,
    size: u64,
    /// A bit for each filter that was skipped.
    mask: u32,
}

/// By chunk coordinates. A chunk that is not there holds zeros.
type Chunks = HashMap<Vec<u64>, Stored>;

/// Where the elements are.
enum Place {
    Inline(Vec<u8>),
    Contiguous(u64),
    Chunked {
        chunks: Chunks,
        pipeline: Vec<Filter>,
    },
    /// Nothing was ever written.
    Unwritten,
}

struct Hdf5Array {
    file: Arc<File>,
    path: PathBuf,
    name: String,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    element: usize,
    dtype: Dtype,
    big_endian: bool,
    place: Place,
}

impl Hdf5Array {
    fn new(
        store: &Hdf5Store,
        name: &str,
        dataset: &hdf5_pure::Dataset,
        shape: Vec<u64>,
        element: usize,
    ) -> std::result::Result<Self, String> {
        let text = |e: hdf5_pure::Error| e.to_string();
        // What is not chunked can be read from any element on.
        let mut chunk_shape = vec![1; shape.len()];
        let place = match dataset.layout().map_err(text)? {
            Layout::Compact { .. } => Place::Inline(dataset.read_raw().map_err(text)?),
            Layout::Contiguous { size: 0, .. } => Place::Unwritten,
            Layout::Contiguous { address, size } => {
                let needed = shape.iter().try_fold(element as u64, |n, &d| n.checked_mul(d));
                if needed.is_none_or(|needed| needed > size) {
                    return Err(format!("its shape {shape:?} needs more than the {size} bytes it has"));
                }
                address.map_or(Place::Unwritten, Place::Contiguous)
            }
            Layout::Chunked { chunk_shape: chunks, .. } => {
                chunk_shape = chunks;
                Self::chunked(dataset, &shape, &chunk_shape, element)?
            }
            _ => return Err("it is a virtual dataset, made of other files; copy it into a file of its own first (h5repack)".into()),
        };
        Ok(Self {
            file: store.raw.clone(),
            path: store.path.clone(),
            name: name.into(),
            shape,
            chunk_shape,
            element,
            dtype: Dtype::U8,
            big_endian: false,
            place,
        })
    }

    fn chunked(dataset: &hdf5_pure::Dataset, shape: &[u64], chunk_shape: &[u64], element: usize) -> std::result::Result<Place, String> {
        let bytes = chunk_shape.iter().try_fold(element as u64, |n, &d| n.checked_mul(d)).unwrap_or(u64::MAX);
        if chunk_shape.len() != shape.len() || bytes == 0 || bytes > MAX_CHUNK_BYTES {
            return Err(format!("its chunks of {chunk_shape:?} elements have {bytes} bytes, allowed are 1 to {MAX_CHUNK_BYTES}"));
        }
        let pipeline = dataset.filter_pipeline();
        if let Some(what) = filters::unsupported(&pipeline) {
            return Err(what);
        }
        let mut chunks = HashMap::new();
        for chunk in dataset.chunks().map_err(|e| e.to_string())? {
            let coordinates: Vec<u64> = chunk.offset.iter().zip(chunk_shape).map(|(o, c)| o / c).collect();
            chunks.insert(coordinates, Stored { address: chunk.address, size: chunk.storage_size, mask: chunk.filter_mask });
        }
        Ok(Place::Chunked { chunks, pipeline })
    }

    fn fault(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}: {what}", self.name)).in_file(&self.path)
    }

    fn pread(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, bytes, offset).map_err(|e| {
            if e.kind() == std::io::ErrorKind::UnexpectedEof {
                self.fault(format!("{} bytes at {offset} run past the end of the file: it is cut short", bytes.len()))
            } else {
                Error::io(&self.path, e)
            }
        })
    }

    /// Fetches and decodes one chunk.
    fn chunk(&self, at: &[u64], &Stored { address, size: stored, mask }: &Stored, pipeline: &[Filter]) -> Result<Vec<u8>> {
        let size = self.chunk_shape.iter().product::<u64>() as usize * self.element;
        let file_size = self.file.metadata().map_err(|e| Error::io(&self.path, e))?.len();
        let bad = |what: String| self.fault(format!("chunk {at:?} at byte {address}: {what}"));
        if address.checked_add(stored).is_none_or(|end| end > file_size) {
            return Err(bad(format!("its {stored} bytes run past the end of the file ({file_size})")));
        }
        let mut bytes = vec![0; stored as usize];
        self.pread(address, &mut bytes)?;
        filters::decode(bytes, pipeline, mask, size, self.element).map_err(bad)
    }

    fn read_chunks(&self, start: &[u64], count: &[u64], chunks: &Chunks, pipeline: &[Filter], out: &mut [u8]) -> Result<()> {
        let wanted: Vec<(Vec<u64>, &Stored)> =
            grid(start, count, &self.chunk_shape).filter_map(|at| chunks.get(&at).map(|entry| (at, entry))).collect();
        // A few chunks a thread at a time, so that memory stays near the size of the read.
        for group in wanted.chunks(4 * rayon::current_num_threads()) {
            let decoded = group.par_iter().map(|(at, entry)| self.chunk(at, entry, pipeline)).collect::<Result<Vec<_>>>()?;
            for ((at, _), bytes) in group.iter().zip(decoded) {
                self.paste(at, &bytes, start, count, out);
            }
        }
        Ok(())
    }

    /// Copies what a chunk shares with the box, row by row (a row runs along the last dimension).
    fn paste(&self, at: &[u64], chunk: &[u8], start: &[u64], count: &[u64], out: &mut [u8]) {
        let rank = at.len();
        let low: Vec<u64> = (0..rank).map(|d| start[d].max(at[d] * self.chunk_shape[d])).collect();
        let high: Vec<u64> = (0..rank).map(|d| (start[d] + count[d]).min((at[d] + 1) * self.chunk_shape[d])).collect();
        if (0..rank).any(|d| low[d] >= high[d]) {
            return;
        }
        let row = (high[rank - 1] - low[rank - 1]) as usize * self.element;
        let mut position = low.clone();
        loop {
            let index = |extent: &[u64], origin: &dyn Fn(usize) -> u64| {
                (0..rank).fold(0, |i, d| i * extent[d] + position[d] - origin(d)) as usize * self.element
            };
            let from = index(&self.chunk_shape, &|d| at[d] * self.chunk_shape[d]);
            let to = index(count, &|d| start[d]);
            out[to..to + row].copy_from_slice(&chunk[from..from + row]);
            // The next row: count up all dimensions but the last.
            let Some(d) = (0..rank - 1).rev().find(|&d| position[d] + 1 < high[d]) else { return };
            position[d] += 1;
            position[d + 1..].copy_from_slice(&low[d + 1..]);
        }
    }

    /// Copies the box out of elements that lie in order; `fetch` reads bytes at an offset.
    fn read_plain(&self, start: &[u64], count: &[u64], out: &mut [u8], fetch: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
        // The innermost dimensions that are read whole make one run.
        let rank = start.len();
        let whole = (0..rank).rev().take_while(|&d| start[d] == 0 && count[d] == self.shape[d]).count();
        let split = rank.saturating_sub(whole + 1);
        let run = count[split..].iter().product::<u64>() as usize * self.element;
        let mut position = start.to_vec();
        for out in out.chunks_exact_mut(run.max(1)) {
            let offset = (0..rank).fold(0, |i, d| i * self.shape[d] + position[d]) * self.element as u64;
            fetch(offset, out)?;
            let Some(d) = (0..split).rev().find(|&d| position[d] + 1 < start[d] + count[d]) else { break };
            position[d] += 1;
            position[d + 1..split].copy_from_slice(&start[d + 1..split]);
        }
        Ok(())
    }
}

/// Reads some bytes at a place; none at the end of the file.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

/// Reads some bytes at a place; none at the end of the file.
#[cfg(windows)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match read_at(file, bytes, offset) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (bytes, offset) = (&mut bytes[n..], offset + n as u64),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Coordinates of the chunks that a box touches.
fn grid(start: &[u64], count: &[u64], chunk: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let low: Vec<u64> = start.iter().zip(chunk).map(|(s, c)| s / c).collect();
    let high: Vec<u64> = start.iter().zip(count).zip(chunk).map(|((s, n), c)| (s + n).div_ceil(*c)).collect();
    let mut next = (0..low.len()).all(|d| low[d] < high[d]).then(|| low.clone());
    std::iter::from_fn(move || {
        let here = next.take()?;
        if let Some(d) = (0..here.len()).rev().find(|&d| here[d] + 1 < high[d]) {
            let mut after = here.clone();
            after[d] += 1;
            after[d + 1..].copy_from_slice(&low[d + 1..]);
            next = Some(after);
        }
        Some(here)
    })
}

impl Array for Hdf5Array {
    fn shape(&self) -> &[u64] {
        &self.shape
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    fn read(&self, start: &[u64], count: &[u64]) -> Result<Vec<u8>> {
        let size = check_box(&self.shape, start, count, self.element).map_err(|e| self.fault(e))?;
        let mut out = vec![0; size];
        if size == 0 {
            return Ok(out);
        }
        match &self.place {
            Place::Unwritten => {}
            Place::Inline(data) => self.read_plain(start, count, &mut out, |offset, out| {
                let source = data.get(offset as usize..offset as usize + out.len()).ok_or_else(|| self.fault("its data are cut short"))?;
                out.copy_from_slice(source);
                Ok(())
            })?,
            Place::Contiguous(address) => self.read_plain(start, count, &mut out, |offset, out| self.pread(address + offset, out))?,
            Place::Chunked { chunks, pipeline } => self.read_chunks(start, count, chunks, pipeline, &mut out)?,
        }
        if self.big_endian {
            out.chunks_exact_mut(self.element).for_each(<[u8]>::reverse);
        }
        Ok(out)
    }
}
