//! Arrays, groups and attributes of an HDF5 file or a zarr store, behind one door.

mod filters;
mod hdf5;
mod heap;
mod lzf;
mod zarr;
mod zip;

use std::path::Path;
use std::sync::Arc;

use cellsilo::{Error, Result};
use serde_json::Value;

pub use hdf5::Hdf5Store;
pub use zarr::ZarrStore;

use crate::values::Dtype;

/// Most bytes one read may yield; readers ask for far less.
pub(crate) const MAX_READ_BYTES: u64 = 4 << 30;
/// Largest chunk that is decoded. One that large is read once, so this bounds memory.
pub(crate) const MAX_CHUNK_BYTES: u64 = 4 << 30;
/// Most strings of one column.
pub(crate) const MAX_STRINGS: u64 = 1 << 31;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A group (folder).
    Group,
    /// An array (dataset).
    Array,
}

/// An opened file of arrays. Paths are like `raw/var/gene_ids`, without a leading slash; the root is "".
pub trait Store: Send + Sync {
    /// The file or folder.
    fn path(&self) -> &Path;
    /// What stands at `path`, or `None`.
    fn node(&self, path: &str) -> Option<Node>;
    /// Names in the group at `path`, sorted.
    fn children(&self, path: &str) -> Vec<String>;
    /// An attribute: strings, numbers and lists of them.
    fn attribute(&self, path: &str, name: &str) -> Option<Value>;
    /// A numeric array.
    fn array(&self, path: &str) -> Result<Arc<dyn Array>>;
    /// A one-dimensional array as text: strings of any kind, or numbers.
    fn strings(&self, path: &str) -> Result<Vec<String>>;
    /// Names of the fields, if the array at `path` is a table of records (a NumPy structured type).
    fn fields(&self, path: &str) -> Option<Vec<String>>;
    /// One field of a table of records as text.
    fn field_strings(&self, path: &str, field: &str) -> Result<Vec<String>>;

    /// The attribute as a string.
    fn attribute_text(&self, path: &str, name: &str) -> Option<String> {
        self.attribute(path, name)?.as_str().map(str::to_owned)
    }

    /// A fault in this file.
    fn fault(&self, what: String) -> Error {
        Error::invalid(what).in_file(self.path())
    }
}

/// A numeric array of any rank.
pub trait Array: Send + Sync {
    /// Extent of each dimension.
    fn shape(&self) -> &[u64];
    /// Element type.
    fn dtype(&self) -> Dtype;
    /// Extent of a chunk: reads that keep chunks whole decode each once. 1 in each dimension if there are none.
    fn chunk_shape(&self) -> &[u64];
    /// Reads the box of `count` elements from `start`, in row-major order, little-endian.
    fn read(&self, start: &[u64], count: &[u64]) -> Result<Vec<u8>>;

    /// Number of elements.
    fn len(&self) -> u64 {
        self.shape().iter().product()
    }

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads all of a one-dimensional array.
    fn read_all(&self) -> Result<Vec<u8>> {
        self.read(&vec![0; self.shape().len()], self.shape())
    }
}

/// Checks a box against an array's shape and the limit on reads; returns its size in bytes.
pub(crate) fn check_box(shape: &[u64], start: &[u64], count: &[u64], element: usize) -> Result<usize> {
    let inside = start.len() == shape.len()
        && count.len() == shape.len()
        && shape.iter().zip(start).zip(count).all(|((&n, &a), &len)| a.checked_add(len).is_some_and(|end| end <= n));
    if !inside {
        return Err(Error::invalid(format!("elements {start:?} + {count:?} are not inside an array of shape {shape:?}")));
    }
    let bytes = count.iter().try_fold(element as u64, |size, &n| size.checked_mul(n));
    match bytes {
        Some(bytes) if bytes <= MAX_READ_BYTES => Ok(bytes as usize),
        _ => Err(Error::invalid(format!("a read of {count:?} elements is larger than {MAX_READ_BYTES} bytes"))),
    }
}

/// Reads a one-dimensional array from front to back, each chunk once: what is left of the last chunk is kept
/// for the next read.
pub(crate) struct Cursor {
    array: Arc<dyn Array>,
    start: u64,
    held: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(array: Arc<dyn Array>) -> Self {
        Self { array, start: 0, held: Vec::new() }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.array.dtype()
    }

    /// Reads the elements `start..end`; `start` must not go back behind the last read's.
    pub(crate) fn read(&mut self, start: u64, end: u64) -> Result<&[u8]> {
        let size = self.array.dtype().size();
        check_box(self.array.shape(), &[start], &[end - start], size)?;
        let held_end = self.start + (self.held.len() / size) as u64;
        if start >= held_end || start < self.start {
            self.held.clear();
            self.start = start;
        } else {
            self.held.drain(..(start - self.start) as usize * size);
            self.start = start;
        }
        let have = self.start + (self.held.len() / size) as u64;
        if have < end {
            let chunk = self.array.chunk_shape()[0].max(1);
            let stop = end.div_ceil(chunk).saturating_mul(chunk).min(self.array.len());
            let more = self.array.read(&[have], &[stop - have])?;
            if self.held.is_empty() { self.held = more } else { self.held.extend_from_slice(&more) }
        }
        Ok(&self.held[..(end - start) as usize * size])
    }
}

/// Opens an HDF5 file or a zarr folder or zip by its content.
///
/// # Errors
/// [`Error::Invalid`] if it is neither; [`Error::Io`].
pub fn open(path: &Path) -> Result<Box<dyn Store>> {
    let meta = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if meta.is_dir() || is_zip(path)? {
        return Ok(Box::new(ZarrStore::open(path)?));
    }
    Ok(Box::new(Hdf5Store::open(path)?))
}

pub(crate) fn is_zip(path: &Path) -> Result<bool> {
    Ok(starts_with(path, 4)? == *b"PK\x03\x04")
}

/// The first bytes of a file; fewer if it is shorter.
pub(crate) fn starts_with(path: &Path, n: usize) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
    file.take(n as u64).read_to_end(&mut head).map_err(|e| Error::io(path, e))?;
    Ok(head)
}
