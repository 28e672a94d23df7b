//! Single-cell count matrices as *tiles*: the deltacells format, version 2.
//!
//! A dataset is a folder of tiles, each a self-contained block of consecutive cells in CSR form, and a
//! `manifest.json` that is written last. [`dataset::DatasetWriter`] makes one out of rows,
//! [`dataset::Dataset`] reads any cells of one, [`tile`] is the codec of a single tile, and [`format`](mod@format)
//! holds what the specification says about bytes and nothing more.
//!
//! ```
//! use cellsilo::dataset::{Dataset, DatasetWriter, WriteOptions};
//!
//! # fn main() -> cellsilo::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("cellsilo-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&folder);
//! // Two cells over four genes: cell 0 has counts in genes 0 and 3, cell 1 in gene 2.
//! let mut writer = DatasetWriter::create(&folder, 4, WriteOptions::default())?;
//! writer.push_rows(&[0, 2, 3], &[0, 3, 2], &[5, 1, 7])?;
//! writer.finish()?;
//!
//! let dataset = Dataset::open(&folder)?;
//! let rows = dataset.read_range::<i32>(1..2)?;
//! assert_eq!((rows.indices.as_slice(), rows.data.as_slice()), (&[2][..], &[7][..]));
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```

#[cfg(target_endian = "big")]
compile_error!("deltacells files are little-endian and their readers must refuse big-endian hosts");

pub mod error;
pub mod limits;

pub mod format;
pub mod tile;

pub mod dataset;

pub use error::{Error, Result};
