//! Rows to the bytes of a tile (specification, "Tile layout", "Streams", "Exceptions").

use std::ops::Range;

use rayon::prelude::*;

use super::frame::compress;
use super::preset::{Preset, ZstdParameters};
use super::{CsrBlock, Int32};
use crate::error::{Error, Result};
use crate::format::{ChunkEntry, TileHeader};
use crate::limits::{EXCEPTION_MARK, MAX_COUNT, MAX_GENES};

/// Exception positions are `uint32`: a chunk has fewer nonzeros than this (specification, "Limits").
const MAX_CHUNK_NNZ: u64 = u32::MAX as u64;
/// Exceptions are small and rare; nothing is gained by tuning them.
const EXCEPTION_PARAMETERS: ZstdParameters = ZstdParameters::Level(19);

/// How to encode a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Chunks to aim at; small tiles get fewer.
    pub n_chunks: u32,
    /// Fewest nonzeros of a chunk on average: smaller ones cost more in frames than parallel decoding gains.
    pub min_chunk_nnz: u64,
    /// How hard zstd tries.
    pub preset: Preset,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { n_chunks: 8, min_chunk_nnz: 16_384, preset: Preset::default() }
    }
}

/// Encodes the rows of `block` as one tile, its chunks in parallel on rayon's current pool. The bytes do not
/// depend on the number of threads.
///
/// # Errors
/// [`Error::Usage`] if the block is not canonical (see [`CsrBlock`]); [`Error::Refused`] if it has more than
/// `max(1024, nnz / 200)` counts, or gaps between genes, above 65535 (specification, "Exceptions").
pub fn encode_tile<T: Int32>(block: &CsrBlock<'_, T>, options: &EncodeOptions) -> Result<Vec<u8>> {
    check_shape(block)?;
    let bounds = chunk_bounds(block.indptr, options.n_chunks, options.min_chunk_nnz);
    let chunks = bounds.into_par_iter().map(|cells| encode_chunk(block, cells, options.preset)).collect::<Result<Vec<_>>>()?;
    check_exceptions(block, &chunks)?;
    Ok(assemble(block, chunks))
}

fn check_shape<T: Int32>(block: &CsrBlock<'_, T>) -> Result<()> {
    let usage = |what: String| Err(Error::Usage(what));
    let nnz = block.indices.len();
    if block.n_genes == 0 || u64::from(block.n_genes) > MAX_GENES {
        return usage(format!("{} genes, allowed are 1 to {MAX_GENES}", block.n_genes));
    }
    if block.data.len() != nnz {
        return usage(format!("{nnz} gene indices and {} counts", block.data.len()));
    }
    if block.indptr.first() != Some(&0) || block.indptr.last() != Some(&(nnz as i64)) {
        return usage(format!("indptr runs from {:?} to {:?}, expected 0 to {nnz}", block.indptr.first(), block.indptr.last()));
    }
    match block.indptr.windows(2).position(|w| w[1] < w[0]) {
        Some(cell) => usage(format!("indptr decreases after cell {cell}")),
        None => Ok(()),
    }
}

/// Cells of each chunk, with about equal numbers of nonzeros.
fn chunk_bounds(indptr: &[i64], wanted: u32, min_chunk_nnz: u64) -> Vec<Range<usize>> {
    let (n_cells, nnz) = (indptr.len() - 1, indptr[indptr.len() - 1] as u64);
    if n_cells == 0 {
        return Vec::new();
    }
    let fewest = nnz / MAX_CHUNK_NNZ + 1;
    let chunks = u64::from(wanted).min(nnz / min_chunk_nnz.max(1)).max(fewest).min(n_cells as u64);
    let mut bounds = Vec::with_capacity(chunks as usize);
    let mut start = 0;
    for k in 1..=chunks {
        let target = (u128::from(nnz) * u128::from(k) / u128::from(chunks)) as i64;
        // At least one cell for this chunk, and one for each that follows.
        let end = indptr.partition_point(|&p| p < target).clamp(start + 1, n_cells - (chunks - k) as usize);
        let end = if k == chunks { n_cells } else { end };
        bounds.push(start..end);
        start = end;
    }
    bounds
}

/// A compressed chunk. The exception frames are empty where there are no exceptions.
struct EncodedChunk {
    cells: Range<usize>,
    frames: [Vec<u8>; 4],
    wide_counts: usize,
    wide_gaps: usize,
}

fn encode_chunk<T: Int32>(block: &CsrBlock<'_, T>, cells: Range<usize>, preset: Preset) -> Result<EncodedChunk> {
    let mut vexc = Exceptions::default();
    let mut gexc = Exceptions::default();
    let gaps = gap_planes(block, &cells, &mut gexc)?;
    let vals = count_planes(block, &cells, &mut vexc)?;
    let smallest = |stream: &[u8]| {
        let frames = preset.candidates().into_par_iter().map(|parameters| compress(stream, &parameters));
        // The first of equals, whatever the order they are done in: the bytes must not depend on threads.
        frames.collect::<Vec<_>>().into_iter().min_by_key(Vec::len).expect("a preset has candidates")
    };
    let (gaps, vals) = rayon::join(|| smallest(&gaps), || smallest(&vals));
    let (wide_counts, wide_gaps) = (vexc.positions.len(), gexc.positions.len());
    Ok(EncodedChunk { cells, frames: [gaps, vals, vexc.frame(), gexc.frame()], wide_counts, wide_gaps })
}

/// The gaps of the chunk as byte planes: all low bytes, then all high bytes.
fn gap_planes<T: Int32>(block: &CsrBlock<'_, T>, cells: &Range<usize>, exceptions: &mut Exceptions) -> Result<Vec<u8>> {
    let base = block.indptr[cells.start] as usize;
    let n = block.indptr[cells.end] as usize - base;
    let mut planes = vec![0; 2 * n];
    let (low, high) = planes.split_at_mut(n);
    for cell in cells.clone() {
        let range = block.indptr[cell] as usize..block.indptr[cell + 1] as usize;
        let mut previous = 0;
        for i in range.clone() {
            let gene = block.indices[i].bits();
            if gene >= block.n_genes || (i > range.start && gene <= previous) {
                return Err(Error::Usage(format!(
                    "cell {cell}: gene {gene} after gene {previous}: genes must increase strictly and stay below {}",
                    block.n_genes
                )));
            }
            let gap = narrow(gene - previous, (i - base) as u32, gene - previous, EXCEPTION_MARK.into(), exceptions);
            [low[i - base], high[i - base]] = gap.to_le_bytes();
            previous = gene;
        }
    }
    Ok(planes)
}

/// The counts of the chunk as byte planes.
fn count_planes<T: Int32>(block: &CsrBlock<'_, T>, cells: &Range<usize>, exceptions: &mut Exceptions) -> Result<Vec<u8>> {
    let range = block.indptr[cells.start] as usize..block.indptr[cells.end] as usize;
    let counts = &block.data[range.clone()];
    let mut planes = vec![0; 2 * counts.len()];
    let (low, high) = planes.split_at_mut(counts.len());
    for (i, count) in counts.iter().enumerate() {
        let count = count.bits();
        if count == 0 || count > MAX_COUNT {
            let cell = block.indptr.partition_point(|&p| p <= (range.start + i) as i64) - 1;
            return Err(Error::Usage(format!("cell {cell}: the count {} is outside 1 to {MAX_COUNT}", count as i32)));
        }
        [low[i], high[i]] = narrow(count, i as u32, count, 0, exceptions).to_le_bytes();
    }
    Ok(planes)
}

/// The 16 bits that stand in a stream for `value`; a value above 65535 becomes the mark and an exception
/// with the payload `payload - less`.
fn narrow(value: u32, position: u32, payload: u32, less: u32, exceptions: &mut Exceptions) -> u16 {
    u16::try_from(value).unwrap_or_else(|_| {
        exceptions.positions.push(position);
        exceptions.payloads.push(payload - less);
        EXCEPTION_MARK
    })
}

#[derive(Default)]
struct Exceptions {
    positions: Vec<u32>,
    payloads: Vec<u32>,
}

impl Exceptions {
    /// All positions, then all payloads (specification, "Exceptions"); nothing where there are none.
    fn frame(&self) -> Vec<u8> {
        if self.positions.is_empty() {
            return Vec::new();
        }
        let content: Vec<u8> = self.positions.iter().chain(&self.payloads).flat_map(|v| v.to_le_bytes()).collect();
        compress(&content, &EXCEPTION_PARAMETERS)
    }
}

fn check_exceptions<T: Int32>(block: &CsrBlock<'_, T>, chunks: &[EncodedChunk]) -> Result<()> {
    let nnz = block.indices.len();
    let most = (nnz / 200).max(1024);
    let counts: usize = chunks.iter().map(|c| c.wide_counts).sum();
    if counts > most {
        return Err(Error::Refused(format!(
            "{counts} of {nnz} counts in a tile are above 65535, at most {most} may be: this is not raw counts (is it another matrix, or scaled?)"
        )));
    }
    let gaps: usize = chunks.iter().map(|c| c.wide_gaps).sum();
    if gaps > most {
        return Err(Error::Refused(format!(
            "{gaps} of {nnz} gaps between genes in a tile are above 65535, at most {most} may be: order the {} genes by their total counts (--gene-order counts), or keep fewer genes",
            block.n_genes
        )));
    }
    Ok(())
}

fn assemble<T: Int32>(block: &CsrBlock<'_, T>, chunks: Vec<EncodedChunk>) -> Vec<u8> {
    let indptr_off = TileHeader::LEN + chunks.len() * ChunkEntry::LEN;
    let mut bytes = vec![0; indptr_off];
    bytes.reserve(block.indptr.len() * 8 + chunks.iter().flat_map(|c| &c.frames).map(|f| f.len() + 8).sum::<usize>());
    bytes.extend(block.indptr.iter().flat_map(|p| p.to_le_bytes()));
    for (k, chunk) in chunks.iter().enumerate() {
        let [gaps, vals, vexc, gexc] = [0, 1, 2, 3].map(|i| place(&mut bytes, &chunk.frames[i]));
        let limit = |cell: usize| block.indptr[cell] as u64;
        let entry = ChunkEntry {
            cells: chunk.cells.start as u64..chunk.cells.end as u64,
            nnz: limit(chunk.cells.start)..limit(chunk.cells.end),
            gaps,
            vals,
            vexc,
            gexc,
        };
        let at = TileHeader::LEN + k * ChunkEntry::LEN;
        bytes[at..at + ChunkEntry::LEN].copy_from_slice(&entry.to_bytes());
    }
    let header = TileHeader {
        n_cells: block.indptr.len() as u64 - 1,
        nnz: block.indices.len() as u64,
        n_genes: block.n_genes,
        n_chunks: chunks.len() as u32,
        indptr_off: indptr_off as u64,
        total_size: bytes.len() as u64,
        crc32: crc32fast::hash(&bytes[TileHeader::LEN..]),
    };
    bytes[..TileHeader::LEN].copy_from_slice(&header.to_bytes());
    bytes
}

/// Appends a frame on an 8-byte boundary and says where it is; an empty one takes no place.
fn place(bytes: &mut Vec<u8>, frame: &[u8]) -> Range<u64> {
    if frame.is_empty() {
        return 0..0;
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let start = bytes.len() as u64;
    bytes.extend_from_slice(frame);
    start..bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_cells_with_about_equal_nonzeros() {
        let indptr: Vec<i64> = (0..=1000).map(|c| c * 200).collect();
        let bounds = chunk_bounds(&indptr, 8, 16_384);
        assert_eq!(bounds.len(), 8);
        assert_eq!((bounds[0].start, bounds[7].end), (0, 1000));
        assert!(bounds.windows(2).all(|w| w[0].end == w[1].start));
        assert!(bounds.iter().all(|b| b.len() == 125));
        assert_eq!(chunk_bounds(&[0, 5, 9], 8, 16_384), vec![(0..2)]);
        assert_eq!(chunk_bounds(&[0], 8, 16_384), []);
        // One cell has everything: the others still get a chunk's place in order.
        let mut skewed = vec![0; 5];
        skewed.extend([900_000; 4]);
        let bounds = chunk_bounds(&skewed, 8, 1);
        assert!(bounds.iter().all(|b| !b.is_empty()));
        assert_eq!(bounds.iter().map(ExactSizeIterator::len).sum::<usize>(), 8);
    }
}
