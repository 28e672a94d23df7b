//! Foreign single-cell files into and out of cellsilo datasets.
//!
//! [`convert`](fn@convert) reads h5ad, 10x h5, 10x mtx, AnnData zarr and loom; [`export`](fn@export) writes
//! h5ad, zarr and 10x mtx. In reading order: [`store`] reads arrays and attributes out of HDF5 files and zarr
//! stores, [`source`] finds the count matrix and the genes in them, [`values`] decides what is a count,
//! [`genes`] joins the genes of several inputs, [`spill`] reorders what does not fit in memory, and
//! [`pipeline`](mod@pipeline) puts them together.

pub mod export;
pub mod genes;
pub mod pipeline;
pub mod rows;
pub mod shuffle;
pub mod source;
pub mod spill;
pub mod store;
pub mod values;

pub use cellsilo::{Error, Result};
pub use export::{ExportOptions, export};
pub use pipeline::{ConvertOptions, ConvertReport, GeneOrder, Progress, Silent, convert};
