//! The codec of one tile: a block of consecutive cells in CSR form (specification, "Tile layout").
//!
//! [`encode_tile`] turns rows into the bytes of a tile; [`TileView`] checks such bytes and decodes all of
//! them, a chunk, or a range of cells, into a [`Csr`] that the caller can use again. [`preset`] has the
//! tunable part, which may change without a change of the format.
//!
//! ```
//! use cellsilo::tile::{Csr, CsrBlock, EncodeOptions, TileView, encode_tile};
//!
//! let block = CsrBlock { n_genes: 4, indptr: &[0, 2, 3], indices: &[0u32, 3, 2], data: &[5u32, 1, 70_000] };
//! let bytes = encode_tile(&block, &EncodeOptions::default())?;
//!
//! let mut rows = Csr::<f32>::default();
//! TileView::parse(&bytes)?.decode_into(&mut rows)?;
//! assert_eq!(rows.indptr, [0, 2, 3]);
//! assert_eq!(rows.indices, [0, 3, 2]);
//! assert_eq!(rows.data, [5.0, 1.0, 70_000.0]);
//! # Ok::<(), cellsilo::Error>(())
//! ```

mod csr;
mod decode;
mod encode;
mod frame;
pub mod preset;

pub use csr::{Count, Csr, CsrBlock, Int32};
pub use decode::TileView;
pub use encode::{EncodeOptions, encode_tile};
pub use preset::Preset;
