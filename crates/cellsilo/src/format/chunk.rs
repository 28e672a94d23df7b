//! An entry of the chunk table: 96 bytes (specification, "Chunk table entry").

use std::ops::Range;

use super::u64_at;
use crate::error::{Error, Result};
use crate::format::TileHeader;

/// Where the cells, nonzeros and frames of one chunk are.
///
/// ```text
/// offset 0        8        16      24      32        40        48        56        64        72        80        88        96
///        | cell_lo| cell_hi| nnz_lo| nnz_hi| gaps_off| gaps_len| vals_off| vals_len| vexc_off| vexc_len| gexc_off| gexc_len|
/// ```
///
/// ```
/// use cellsilo::format::ChunkEntry;
/// let entry = ChunkEntry { cells: 0..3, nnz: 0..10, gaps: 200..220, vals: 224..230, vexc: 0..0, gexc: 0..0 };
/// assert_eq!(ChunkEntry::parse(&entry.to_bytes(), 0, 300)?, entry);
/// # Ok::<(), cellsilo::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Cells of the tile in this chunk.
    pub cells: Range<u64>,
    /// Nonzeros of the tile in this chunk.
    pub nnz: Range<u64>,
    /// Bytes of the frame with the gaps.
    pub gaps: Range<u64>,
    /// Bytes of the frame with the counts.
    pub vals: Range<u64>,
    /// Bytes of the frame with the counts above 65535; empty if there are none.
    pub vexc: Range<u64>,
    /// Bytes of the frame with the gaps above 65535; empty if there are none.
    pub gexc: Range<u64>,
}

/// Names of the four byte ranges of an entry, in the order of the table.
pub const FRAME_NAMES: [&str; 4] = ["gaps", "vals", "vexc", "gexc"];

impl ChunkEntry {
    /// Size in bytes: twelve 64-bit numbers.
    pub const LEN: usize = 12 * 8;

    /// Reads entry `chunk_index` of the table and checks what can be checked alone: that ranges do not run
    /// backwards and that every frame lies between the header and the end of the tile.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the offset of the field in the tile.
    ///
    /// # Panics
    /// If `bytes` has fewer than [`ChunkEntry::LEN`] bytes.
    pub fn parse(bytes: &[u8], chunk_index: usize, total_size: u64) -> Result<Self> {
        let place = (TileHeader::LEN + chunk_index * Self::LEN) as u64;
        let field = |i: usize| u64_at(bytes, i * 8);
        let range = |i: usize, name: &str| {
            if field(i + 1) < field(i) {
                return Err(Error::invalid_at(
                    place + i as u64 * 8,
                    format!("chunk {chunk_index}: {name}_hi {} is below {name}_lo {}", field(i + 1), field(i)),
                ));
            }
            Ok(field(i)..field(i + 1))
        };
        let frame = |k: usize| {
            let (i, name) = (4 + 2 * k, FRAME_NAMES[k]);
            let (offset, len) = (field(i), field(i + 1));
            let at = |what: String| Err(Error::invalid_at(place + i as u64 * 8, format!("chunk {chunk_index}: {what}")));
            if len == 0 {
                return if k < 2 { at(format!("{name}_len is 0, every chunk has this stream")) } else { Ok(0..0) };
            }
            match offset.checked_add(len) {
                Some(end) if end <= total_size && offset >= TileHeader::LEN as u64 => Ok(offset..end),
                _ => {
                    at(format!("the {name} frame of {len} bytes at {offset} is not inside the tile ({} to {total_size})", TileHeader::LEN))
                }
            }
        };
        Ok(Self { cells: range(0, "cell")?, nnz: range(2, "nnz")?, gaps: frame(0)?, vals: frame(1)?, vexc: frame(2)?, gexc: frame(3)? })
    }

    /// The frames with their names, in the order of the table.
    pub fn frames(&self) -> [(&'static str, &Range<u64>); 4] {
        [("gaps", &self.gaps), ("vals", &self.vals), ("vexc", &self.vexc), ("gexc", &self.gexc)]
    }

    /// Nonzeros in the chunk.
    pub fn len(&self) -> u64 {
        self.nnz.end - self.nnz.start
    }

    /// Whether the chunk has no nonzeros.
    pub fn is_empty(&self) -> bool {
        self.nnz.is_empty()
    }

    /// The 96 bytes of the entry.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let ends = [&self.cells, &self.nnz].into_iter().flat_map(|r| [r.start, r.end]);
        let spans = self.frames().into_iter().flat_map(|(_, r)| [r.start, r.end - r.start]);
        for (slot, value) in bytes.chunks_exact_mut(8).zip(ends.chain(spans)) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}
