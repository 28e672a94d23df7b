//! What can go wrong, sorted by who can act on it.

use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// The text of each is one line that says what was found, what was allowed, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes of a file break the format: somebody else must write a better file.
    #[error("{0}")]
    Invalid(Fault),
    /// The call is wrong: the caller must ask for something else.
    #[error("{0}")]
    Usage(String),
    /// The data cannot be stored in this format (for example too many counts above 65535).
    #[error("{0}")]
    Refused(String),
    /// A matrix holds something else than counts: another matrix of the same file may.
    #[error("{0}")]
    NotCounts(String),
    /// The system failed to read or write.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder at hand.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The user asked to stop; what is complete stays and the work can be resumed.
    #[error("interrupted")]
    Interrupted,
}

/// A violation of the format, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, if known; the codec of a tile never sees one.
    pub file: Option<PathBuf>,
    /// What is wrong: what was found and what was allowed.
    pub what: String,
    /// Byte offset in the file, if the fault has one.
    pub offset: Option<u64>,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        f.write_str(&self.what)?;
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// A fault without a place in the file.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(Fault { file: None, what: what.into(), offset: None })
    }

    /// A fault at a byte offset.
    pub fn invalid_at(offset: u64, what: impl Into<String>) -> Self {
        Self::Invalid(Fault { file: None, what: what.into(), offset: Some(offset) })
    }

    /// An I/O error with the path it happened at.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// The same error, now naming the file it was found in (unless it names one already).
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Invalid(mut fault) => {
                fault.file.get_or_insert_with(|| path.to_owned());
                Self::Invalid(fault)
            }
            Self::Refused(what) => Self::Refused(format!("{}: {what}", path.display())),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_file_cause_and_offset() {
        let error = Error::invalid_at(32, "n_genes is 0, allowed are 1 to 2147483648").in_file(Path::new("tile_000001.dct"));
        assert_eq!(error.to_string(), "tile_000001.dct: n_genes is 0, allowed are 1 to 2147483648 (at byte 32)");
        let kept = error.in_file(Path::new("other"));
        assert!(kept.to_string().starts_with("tile_000001.dct"));
    }
}
