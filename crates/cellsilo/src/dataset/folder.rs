//! Files in a dataset's folder: each appears whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{GENE_ORDER, MANIFEST, VAR_NAMES};
use crate::error::{Error, Result};
use crate::format::Manifest;

/// Writes a file under a temporary name and renames it into place.
///
/// # Errors
/// [`Error::Io`]; the temporary file is removed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temporary);
        Error::io(path, e)
    })
}

/// What stands at a path where a dataset is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialDataset {
    /// Nothing, or an empty folder.
    Absent,
    /// Tiles without a manifest: a conversion that was interrupted.
    Unfinished,
    /// A whole dataset.
    Complete,
    /// Something else, which must not be touched.
    Foreign,
}

impl PartialDataset {
    /// Looks at `path`; `state_file` is the name of the file that a converter leaves in an unfinished folder.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read.
    pub fn at(path: &Path, state_file: &str) -> Result<Self> {
        match fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Absent),
            Err(e) => return Err(Error::io(path, e)),
            Ok(meta) if !meta.is_dir() => return Ok(Self::Foreign),
            Ok(_) => {}
        }
        if fs::read_dir(path).map_err(|e| Error::io(path, e))?.next().is_none() {
            return Ok(Self::Absent);
        }
        if let Ok(text) = fs::read(path.join(MANIFEST)) {
            return Ok(if Manifest::parse(&text).is_ok() { Self::Complete } else { Self::Foreign });
        }
        Ok(if path.join(state_file).is_file() { Self::Unfinished } else { Self::Foreign })
    }
}

/// Removes the files of a dataset (the manifest first, so that no half of one is ever taken for whole), and
/// the folder if nothing else is in it.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_dataset(path: &Path, state_file: &str) -> Result<()> {
    let remove = |file: PathBuf| match fs::remove_file(&file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(file, e)),
        _ => Ok(()),
    };
    for name in [MANIFEST, GENE_ORDER, VAR_NAMES, "var.parquet", state_file] {
        remove(path.join(name))?;
    }
    for folder in ["tiles", "obs", "obsm"] {
        match fs::remove_dir_all(path.join(folder)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(path.join(folder), e)),
            _ => {}
        }
    }
    // Somebody's own files beside the dataset stay, and so does the folder then.
    let _ = fs::remove_dir(path);
    Ok(())
}
