//! A zip file as the storage of a zarr store, read only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use zarrs::storage::byte_range::ByteRangeIterator;
use zarrs::storage::{
    Bytes, ListableStorageTraits, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey, StoreKeys, StoreKeysPrefixes,
    StorePrefix,
};
use zip::ZipArchive;

use super::hdf5::read_at;

/// Largest file inside the zip that is read: a chunk or a metadata document.
const MAX_ENTRY_BYTES: u64 = super::MAX_CHUNK_BYTES;

/// A file and a place in it, so that threads can read on their own.
#[derive(Clone)]
struct Positioned {
    file: Arc<File>,
    at: u64,
    len: u64,
}

impl Read for Positioned {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = read_at(&self.file, out, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Positioned {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = place.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The files of a zip, by key.
pub(super) struct ZipStore {
    archive: ZipArchive<Positioned>,
    /// Number in the archive and size of each file.
    entries: BTreeMap<String, (usize, u64)>,
}

impl ZipStore {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let len = file.metadata().map_err(|e| e.to_string())?.len();
        let mut archive = ZipArchive::new(Positioned { file: Arc::new(file), at: 0, len }).map_err(|e| e.to_string())?;
        let mut entries = BTreeMap::new();
        for i in 0..archive.len() {
            let entry = archive.by_index_raw(i).map_err(|e| e.to_string())?;
            if entry.is_file() {
                let name = entry.name().map_err(|e| e.to_string())?.into_owned();
                entries.insert(name, (i, entry.size()));
            }
        }
        Ok(Self { archive, entries })
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(&(i, size)) = self.entries.get(key) else { return Ok(None) };
        if size > MAX_ENTRY_BYTES {
            return Err(format!("{key} has {size} bytes, at most {MAX_ENTRY_BYTES} are read"));
        }
        // The clone shares the directory and has a place of its own in the file.
        let mut archive = self.archive.clone();
        let entry = archive.by_index(i).map_err(|e| format!("{key}: {e}"))?;
        let mut bytes = Vec::new();
        // The size is a claim: the buffer grows with what really comes.
        entry.take(size + 1).read_to_end(&mut bytes).map_err(|e| format!("{key}: {e}"))?;
        if bytes.len() as u64 != size {
            return Err(format!("{key} has {} bytes, its entry states {size}", bytes.len()));
        }
        Ok(Some(bytes))
    }

    fn keys(&self, prefix: &StorePrefix) -> impl Iterator<Item = (&str, u64)> {
        let prefix = prefix.as_str().to_owned();
        self.entries.iter().filter(move |(key, _)| key.starts_with(&prefix)).map(|(key, entry)| (key.as_str(), entry.1))
    }
}

fn other(what: impl std::fmt::Display) -> StorageError {
    StorageError::Other(what.to_string())
}

impl ReadableStorageTraits for ZipStore {
    fn get_partial_many<'a>(&'a self, key: &StoreKey, byte_ranges: ByteRangeIterator<'a>) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some(bytes) = self.read(key.as_str()).map_err(other)? else { return Ok(None) };
        let bytes = Bytes::from(bytes);
        let name = key.as_str().to_owned();
        let parts = byte_ranges.map(move |range| {
            let (start, end) = (range.start(bytes.len() as u64), range.end(bytes.len() as u64));
            if start > end || end > bytes.len() as u64 {
                return Err(other(format!("{name} has {} bytes, {range} was asked for", bytes.len())));
            }
            Ok(bytes.slice(start as usize..end as usize))
        });
        Ok(Some(Box::new(parts)))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        Ok(self.entries.get(key.as_str()).map(|entry| entry.1))
    }

    fn supports_get_partial(&self) -> bool {
        false
    }
}

impl ListableStorageTraits for ZipStore {
    fn list(&self) -> Result<StoreKeys, StorageError> {
        self.list_prefix(&StorePrefix::root())
    }

    fn list_prefix(&self, prefix: &StorePrefix) -> Result<StoreKeys, StorageError> {
        self.keys(prefix).map(|(key, _)| StoreKey::new(key).map_err(other)).collect()
    }

    fn list_dir(&self, prefix: &StorePrefix) -> Result<StoreKeysPrefixes, StorageError> {
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        for (key, _) in self.keys(prefix) {
            match key[prefix.as_str().len()..].split_once('/') {
                None => keys.push(StoreKey::new(key).map_err(other)?),
                Some((child, _)) => prefixes.push(StorePrefix::new(format!("{}{child}/", prefix.as_str())).map_err(other)?),
            }
        }
        // Keys are sorted, so the files of a folder follow each other.
        prefixes.dedup();
        Ok(StoreKeysPrefixes::new(keys, prefixes))
    }

    fn size_prefix(&self, prefix: &StorePrefix) -> Result<u64, StorageError> {
        Ok(self.keys(prefix).fold(0, |sum, (_, size)| sum.saturating_add(size)))
    }
}
