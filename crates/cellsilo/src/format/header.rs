//! The tile header: 64 bytes at offset 0 (specification, "Header").

use super::{u32_at, u64_at};
use crate::error::{Error, Result};
use crate::format::ChunkEntry;
use crate::limits::MAX_GENES;

/// The first eight bytes of a tile.
pub const MAGIC: [u8; 8] = *b"DELTACEL";
/// The version this crate reads and writes.
pub const VERSION: u32 = 2;

/// The header of a tile.
///
/// ```text
/// offset  0        8        12      16        24     32       36        40          48          56     60        64
///         | magic  | version| flags | n_cells | nnz  | n_genes| n_chunks| indptr_off| total_size| crc32| reserved|
/// ```
///
/// ```
/// use cellsilo::format::TileHeader;
/// let header = TileHeader { n_cells: 0, nnz: 0, n_genes: 7, n_chunks: 0, indptr_off: 64, total_size: 72, crc32: 9 };
/// let bytes = header.to_bytes();
/// assert_eq!(TileHeader::parse(&bytes, 72)?, header);
/// assert!(TileHeader::parse(&bytes, 73).is_err());
/// # Ok::<(), cellsilo::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileHeader {
    /// Cells (rows) in the tile.
    pub n_cells: u64,
    /// Stored nonzeros in the tile.
    pub nnz: u64,
    /// Genes (columns), 1 to 2^31.
    pub n_genes: u32,
    /// Entries of the chunk table.
    pub n_chunks: u32,
    /// Byte offset of the indptr: a multiple of 8, at or after the end of the chunk table.
    pub indptr_off: u64,
    /// Size of the whole tile in bytes.
    pub total_size: u64,
    /// CRC-32 (IEEE) of bytes 64 to `total_size`.
    pub crc32: u32,
}

impl TileHeader {
    /// Size in bytes: magic, version, flags, two sizes, two numbers, two offsets, checksum, reserved.
    pub const LEN: usize = 8 + 4 + 4 + 2 * 8 + 2 * 4 + 2 * 8 + 4 + 4;

    /// Reads and checks the header of an object of `object_size` bytes.
    ///
    /// Checks magic, version, flags, the ranges of all fields, and that the chunk table and the indptr lie
    /// inside the object; the checksum is for [`crate::tile::TileView`], which has all bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the offset of the first field that breaks a rule.
    pub fn parse(bytes: &[u8], object_size: u64) -> Result<Self> {
        let Some(bytes) = bytes.get(..Self::LEN) else {
            return Err(Error::invalid(format!("the object has {} bytes, a tile header alone has {}", bytes.len(), Self::LEN)));
        };
        check_preamble(bytes)?;
        let header = Self {
            n_cells: u64_at(bytes, 16),
            nnz: u64_at(bytes, 24),
            n_genes: u32_at(bytes, 32),
            n_chunks: u32_at(bytes, 36),
            indptr_off: u64_at(bytes, 40),
            total_size: u64_at(bytes, 48),
            crc32: u32_at(bytes, 56),
        };
        let reserved = u32_at(bytes, 60);
        if reserved != 0 {
            return Err(Error::invalid_at(60, format!("reserved is {reserved}, must be 0")));
        }
        header.check(object_size)?;
        Ok(header)
    }

    fn check(&self, object_size: u64) -> Result<()> {
        if self.n_genes == 0 || u64::from(self.n_genes) > MAX_GENES {
            return Err(Error::invalid_at(32, format!("n_genes is {}, allowed are 1 to {MAX_GENES}", self.n_genes)));
        }
        if self.total_size != object_size {
            return Err(Error::invalid_at(48, format!("total_size is {}, the object has {object_size} bytes", self.total_size)));
        }
        let table_end = Self::LEN as u64 + u64::from(self.n_chunks) * ChunkEntry::LEN as u64;
        if table_end > object_size {
            return Err(Error::invalid_at(
                36,
                format!("the chunk table of {} chunks ends at byte {table_end}, past the end of the object ({object_size})", self.n_chunks),
            ));
        }
        if !self.indptr_off.is_multiple_of(8) {
            return Err(Error::invalid_at(40, format!("indptr_off is {}, not a multiple of 8", self.indptr_off)));
        }
        if self.indptr_off < table_end {
            return Err(Error::invalid_at(
                40,
                format!("indptr_off is {}, inside the chunk table, which ends at {table_end}", self.indptr_off),
            ));
        }
        match self.indptr_end() {
            Some(end) if end <= object_size => {}
            _ => {
                return Err(Error::invalid_at(
                    16,
                    format!(
                        "the indptr of {} cells from byte {} runs past the end of the object ({object_size})",
                        self.n_cells, self.indptr_off
                    ),
                ));
            }
        }
        if (self.n_chunks == 0) != (self.n_cells == 0) {
            return Err(Error::invalid_at(
                36,
                format!("{} chunks for {} cells: a tile has chunks exactly when it has cells", self.n_chunks, self.n_cells),
            ));
        }
        Ok(())
    }

    /// Byte offset of the end of the indptr, or `None` if it overflows.
    pub fn indptr_end(&self) -> Option<u64> {
        self.n_cells.checked_add(1)?.checked_mul(8)?.checked_add(self.indptr_off)
    }

    /// The 64 bytes of the header.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.n_cells.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.nnz.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.n_genes.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.n_chunks.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.indptr_off.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.total_size.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.crc32.to_le_bytes());
        bytes
    }
}

fn check_preamble(bytes: &[u8]) -> Result<()> {
    if bytes[..8] != MAGIC {
        return Err(Error::invalid_at(
            0,
            format!("the magic is {:?}, a tile starts with {:?}", String::from_utf8_lossy(&bytes[..8]), String::from_utf8_lossy(&MAGIC)),
        ));
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(Error::invalid_at(8, format!("version is {version}, only version {VERSION} can be read")));
    }
    let flags = u32_at(bytes, 12);
    if flags != 0 {
        return Err(Error::invalid_at(12, format!("flags are {flags:#x}, none are known")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_64_bytes() {
        assert_eq!(TileHeader::LEN, 64);
    }
}
