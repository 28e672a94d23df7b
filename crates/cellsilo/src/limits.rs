//! A cap on every size that a file can state.
//!
//! Nothing is allocated by a number out of a file before it passed one of these, or a bound that follows
//! from the size of the object itself (see [`crate::tile`]).

/// Largest number of genes (specification, "Limits (version 2)").
pub const MAX_GENES: u64 = 1 << 31;

/// Largest count that can be stored (specification, "Limits (version 2)").
pub const MAX_COUNT: u32 = i32::MAX as u32;

/// Stored in a stream where an exception frame has the true value (specification, "Streams").
pub const EXCEPTION_MARK: u16 = u16::MAX;

/// Largest `manifest.json` read. A million tiles take about 30 MB.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// Largest `var_names.txt` read.
pub const MAX_VAR_NAMES_BYTES: u64 = 4 << 30;

/// Most tiles a dataset may have: the names `tile_%06d.dct` are unambiguous below this.
pub const MAX_TILES: usize = 1_000_000_000;

/// Largest content of one zstd block in bytes (RFC 8878, section 3.1.1.2.4).
pub const MAX_ZSTD_BLOCK_BYTES: u64 = 128 << 10;

/// Smallest size of one zstd block in bytes: its header.
pub const MIN_ZSTD_BLOCK_BYTES: u64 = 3;
