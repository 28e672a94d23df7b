//! What the specification says about bytes, and nothing more.
//!
//! In the order of the specification: the [manifest], the [gene order](gene_order) and the [gene
//! names](var_names), then the tile's [header] and [chunk table](chunk). No I/O, no compression, and no
//! allocation by a number that was read.

pub mod chunk;
pub mod gene_order;
pub mod header;
pub mod manifest;
pub mod var_names;

pub use chunk::ChunkEntry;
pub use header::TileHeader;
pub use manifest::Manifest;

/// File name of tile `tile_index` inside a dataset (specification, "Dataset layout").
pub fn tile_name(tile_index: usize) -> String {
    format!("tiles/tile_{tile_index:06}.dct")
}

/// Reads a little-endian `u32` at `offset`; the caller has checked that it is inside.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Reads a little-endian `u64` at `offset`; the caller has checked that it is inside.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}
