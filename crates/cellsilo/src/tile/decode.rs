//! The bytes of a tile to rows, with every check before its use (specification, "Decoding a chunk").

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::frame::Frame;
use super::{Count, Csr};
use crate::error::{Error, Result};
use crate::format::{ChunkEntry, TileHeader, u32_at, u64_at};
use crate::limits::{EXCEPTION_MARK, MAX_COUNT};

/// The prefix sum of so many 16-bit gaps cannot leave 31 bits.
const NO_OVERFLOW_NNZ: usize = 1 << 15;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Decompressed streams of a chunk, kept by each thread for the next one.
#[derive(Default)]
struct Scratch {
    gaps: Vec<u8>,
    vals: Vec<u8>,
    exceptions: Vec<u8>,
}

/// A checked tile that is ready to decode.
///
/// [`parse`](Self::parse) checks the header, the checksum, the chunk table, the indptr and the sizes of all
/// frames; the content of a frame is checked while it is decoded.
#[derive(Debug, Clone)]
pub struct TileView<'a> {
    bytes: &'a [u8],
    header: TileHeader,
    chunks: Vec<ChunkEntry>,
    indptr: Vec<i64>,
}

impl<'a> TileView<'a> {
    /// Reads and checks the frame of a tile. `bytes` is the whole object.
    ///
    /// Allocates for the chunk table and the indptr, which both lie inside `bytes`.
    ///
    /// # Errors
    /// [`Error::Invalid`] that says what is wrong and at which byte.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let header = TileHeader::parse(bytes, bytes.len() as u64)?;
        let crc32 = crc32fast::hash(&bytes[TileHeader::LEN..]);
        if crc32 != header.crc32 {
            return Err(Error::invalid_at(56, format!("crc32 is {:08x}, the bytes have {crc32:08x}: the tile is damaged", header.crc32)));
        }
        let indptr = parse_indptr(bytes, &header)?;
        let chunks = parse_table(bytes, &header, &indptr)?;
        let view = Self { bytes, header, chunks, indptr };
        for k in 0..view.chunks.len() {
            view.check_frames(k)?;
        }
        Ok(view)
    }

    /// The header.
    pub fn header(&self) -> &TileHeader {
        &self.header
    }

    /// The chunk table.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.chunks
    }

    /// Row limits, `n_cells + 1` values from 0 to nnz.
    pub fn indptr(&self) -> &[i64] {
        &self.indptr
    }

    /// Number of cells.
    pub fn n_cells(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Decodes all cells into `out`, replacing what it holds and using its memory; chunks in parallel on
    /// rayon's current pool.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the chunk and the cell.
    pub fn decode_into<T: Count>(&self, out: &mut Csr<T>) -> Result<()> {
        self.decode_cells_into(0..self.n_cells(), out)
    }

    /// Decodes the cells of chunk `chunk_index` into `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`decode_into`](Self::decode_into); [`Error::Usage`] if there is no such chunk.
    pub fn decode_chunk_into<T: Count>(&self, chunk_index: usize, out: &mut Csr<T>) -> Result<()> {
        match self.chunks.get(chunk_index) {
            Some(chunk) => self.decode_cells_into(chunk.cells.start as usize..chunk.cells.end as usize, out),
            None => Err(Error::Usage(format!("there is no chunk {chunk_index}, the tile has {}", self.chunks.len()))),
        }
    }

    /// Decodes a range of the tile's cells into `out`. Only the chunks that hold them are decompressed.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`decode_into`](Self::decode_into); [`Error::Usage`] if the range is not inside
    /// the tile.
    pub fn decode_cells_into<T: Count>(&self, cells: Range<usize>, out: &mut Csr<T>) -> Result<()> {
        if cells.start > cells.end || cells.end > self.n_cells() {
            return Err(Error::Usage(format!("cells {cells:?} are not inside the tile's 0..{}", self.n_cells())));
        }
        let base = self.indptr[cells.start];
        let nnz = (self.indptr[cells.end] - base) as usize;
        out.n_genes = u64::from(self.header.n_genes);
        out.indptr.clear();
        out.indptr.extend(self.indptr[cells.start..=cells.end].iter().map(|p| p - base));
        out.indices.resize(nnz, 0);
        out.data.resize(nnz, T::default());
        self.split_tasks(&cells, &mut out.indices, &mut out.data)
            .into_par_iter()
            .try_for_each(|task| SCRATCH.with_borrow_mut(|scratch| self.decode_task(task, scratch)))
    }

    /// Cuts the output where the chunks meet.
    fn split_tasks<'o, T>(&self, cells: &Range<usize>, mut indices: &'o mut [i32], mut data: &'o mut [T]) -> Vec<Task<'o, T>> {
        let mut tasks = Vec::new();
        for (chunk_index, chunk) in self.chunks.iter().enumerate() {
            let part = cells.start.max(chunk.cells.start as usize)..cells.end.min(chunk.cells.end as usize);
            // A chunk of empty cells still has two frames to check; nothing but an empty part is skipped.
            if part.is_empty() {
                continue;
            }
            let n = (self.indptr[part.end] - self.indptr[part.start]) as usize;
            let (head, tail) = indices.split_at_mut(n);
            let (data_head, data_tail) = data.split_at_mut(n);
            tasks.push(Task { chunk_index, cells: part, indices: head, data: data_head });
            (indices, data) = (tail, data_tail);
        }
        tasks
    }

    fn frame(&self, chunk_index: usize, name: &'static str) -> Option<Frame<'a>> {
        let (_, range) = self.chunks[chunk_index].frames().into_iter().find(|(n, _)| *n == name)?;
        (!range.is_empty()).then(|| Frame {
            bytes: &self.bytes[range.start as usize..range.end as usize],
            offset: range.start,
            chunk_index,
            name,
        })
    }

    /// Checks that each stream holds exactly two bytes a nonzero and each exception frame 1 to n entries.
    fn check_frames(&self, chunk_index: usize) -> Result<()> {
        let n = self.chunks[chunk_index].len();
        for name in ["gaps", "vals"] {
            let frame = self.frame(chunk_index, name).expect("parse refuses an empty stream");
            frame.expect_size(2 * n, format_args!("{n} nonzeros"))?;
        }
        for frame in ["vexc", "gexc"].into_iter().filter_map(|name| self.frame(chunk_index, name)) {
            let size = frame.content_size()?;
            if size == 0 || !size.is_multiple_of(8) || size as u64 / 8 > n {
                return Err(frame.fault(format!("holds {size} bytes, expected 8 for each of 1 to {n} exceptions")));
            }
        }
        Ok(())
    }

    fn decode_task<T: Count>(&self, task: Task<'_, T>, scratch: &mut Scratch) -> Result<()> {
        let n = self.chunks[task.chunk_index].len() as usize;
        for (name, stream) in [("gaps", &mut scratch.gaps), ("vals", &mut scratch.vals)] {
            stream.resize(2 * n, 0);
            self.frame(task.chunk_index, name).expect("parse refuses an empty stream").decompress(stream)?;
        }
        let mut part = Part { tile: self, nnz_lo: self.chunks[task.chunk_index].nnz.start as usize, n, task };
        part.widen_gaps(Planes::new(&scratch.gaps))?;
        part.widen_counts(Planes::new(&scratch.vals))?;
        part.apply_count_exceptions(Planes::new(&scratch.vals), &mut scratch.exceptions)?;
        part.apply_gap_exceptions(Planes::new(&scratch.gaps), &mut scratch.exceptions)
    }
}

/// The cells of one chunk that are wanted, and where they go.
struct Task<'o, T> {
    chunk_index: usize,
    /// Cells of the tile.
    cells: Range<usize>,
    indices: &'o mut [i32],
    data: &'o mut [T],
}

/// The two byte planes of a decompressed stream.
#[derive(Clone, Copy)]
struct Planes<'s> {
    low: &'s [u8],
    high: &'s [u8],
}

impl<'s> Planes<'s> {
    fn new(stream: &'s [u8]) -> Self {
        let (low, high) = stream.split_at(stream.len() / 2);
        Self { low, high }
    }

    fn slice(self, range: Range<usize>) -> Self {
        Self { low: &self.low[range.clone()], high: &self.high[range] }
    }

    fn get(self, i: usize) -> u16 {
        u16::from_le_bytes([self.low[i], self.high[i]])
    }

    fn iter(self) -> impl Iterator<Item = u16> + 's {
        self.low.iter().zip(self.high).map(|(&low, &high)| u16::from_le_bytes([low, high]))
    }
}

/// A task at work. "Position" is the index of a nonzero within the chunk, as in the exception frames.
struct Part<'v, 'a, 'o, T> {
    tile: &'v TileView<'a>,
    nnz_lo: usize,
    n: usize,
    task: Task<'o, T>,
}

impl<T: Count> Part<'_, '_, '_, T> {
    /// Positions of the nonzeros of `cell`.
    fn positions(&self, cell: usize) -> Range<usize> {
        self.tile.indptr[cell] as usize - self.nnz_lo..self.tile.indptr[cell + 1] as usize - self.nnz_lo
    }

    /// Position of the first nonzero that is wanted.
    fn first(&self) -> usize {
        self.tile.indptr[self.task.cells.start] as usize - self.nnz_lo
    }

    fn fault(&self, name: &str, what: String) -> Error {
        let chunk = &self.tile.chunks[self.task.chunk_index];
        let offset = chunk.frames().into_iter().find(|(n, _)| *n == name).map_or(0, |(_, range)| range.start);
        Error::invalid_at(offset, format!("chunk {}, {name}: {what}", self.task.chunk_index))
    }

    /// Prefix sums of the gaps, cell by cell; each gap but the first of a cell is at least 1, and no gene
    /// reaches `n_genes`.
    fn widen_gaps(&mut self, gaps: Planes<'_>) -> Result<()> {
        let n_genes = self.tile.header.n_genes;
        let first = self.first();
        for cell in self.task.cells.clone() {
            let positions = self.positions(cell);
            if positions.is_empty() {
                continue;
            }
            let out = &mut self.task.indices[positions.start - first..positions.end - first];
            let row = gaps.slice(positions.clone());
            let good = if positions.len() <= NO_OVERFLOW_NNZ { widen_row(row, out, n_genes) } else { widen_long_row(row, out, n_genes) };
            if !good {
                return Err(self.explain_gaps(cell, row));
            }
        }
        Ok(())
    }

    /// Finds the first bad gap of a cell again, for the message.
    fn explain_gaps(&self, cell: usize, row: Planes<'_>) -> Error {
        let (mut gene, n_genes) = (0u64, self.tile.header.n_genes);
        for (i, gap) in row.iter().enumerate() {
            if i > 0 && gap == 0 {
                return self.fault("gaps", format!("cell {cell} has gene {gene} twice (a gap of 0)"));
            }
            gene += u64::from(gap);
            if gene >= u64::from(n_genes) {
                break;
            }
        }
        self.fault("gaps", format!("cell {cell} has gene {gene}, the tile has {n_genes} genes"))
    }

    fn widen_counts(&mut self, vals: Planes<'_>) -> Result<()> {
        let first = self.first();
        let row = vals.slice(first..first + self.task.data.len());
        let mut zero = false;
        for (out, value) in self.task.data.iter_mut().zip(row.iter()) {
            zero |= value == 0;
            *out = T::from_u16(value);
        }
        if zero {
            let position = first + row.iter().position(|v| v == 0).unwrap_or(0);
            let cell = self.tile.indptr.partition_point(|&p| p <= (position + self.nnz_lo) as i64) - 1;
            return Err(self.fault("vals", format!("cell {cell} stores a count of 0; zeros are never stored")));
        }
        Ok(())
    }

    /// Reads an exception frame and checks its positions: strictly increasing, inside the chunk, and only
    /// where the stream holds 65535.
    fn exceptions<'s>(&self, name: &'static str, marks: Planes<'_>, content: &'s mut Vec<u8>) -> Result<Option<Exceptions<'s>>> {
        let Some(frame) = self.tile.frame(self.task.chunk_index, name) else { return Ok(None) };
        content.resize(frame.content_size()?, 0);
        frame.decompress(content)?;
        let (positions, payloads) = content.split_at(content.len() / 2);
        let exceptions = Exceptions { positions, payloads };
        let mut next = 0;
        for (position, _) in exceptions.iter() {
            if position >= self.n {
                return Err(frame.fault(format!("has position {position}, the chunk has {} nonzeros", self.n)));
            }
            if position < next {
                return Err(frame.fault(format!("has position {position} after {}, positions increase strictly", next - 1)));
            }
            if marks.get(position) != EXCEPTION_MARK {
                return Err(
                    frame.fault(format!("has position {position}, where the stream holds {}, not {EXCEPTION_MARK}", marks.get(position)))
                );
            }
            next = position + 1;
        }
        Ok(Some(exceptions))
    }

    fn apply_count_exceptions(&mut self, vals: Planes<'_>, content: &mut Vec<u8>) -> Result<()> {
        let Some(exceptions) = self.exceptions("vexc", vals, content)? else { return Ok(()) };
        let first = self.first();
        for (position, count) in exceptions.iter() {
            if count <= EXCEPTION_MARK.into() || count > MAX_COUNT {
                return Err(self.fault("vexc", format!("position {position} has the count {count}, allowed are 65536 to {MAX_COUNT}")));
            }
            if let Some(out) = position.checked_sub(first).and_then(|i| self.task.data.get_mut(i)) {
                *out = T::from_u32(count);
            }
        }
        Ok(())
    }

    /// Adds each payload to its gene and to every later one of the same cell.
    fn apply_gap_exceptions(&mut self, gaps: Planes<'_>, content: &mut Vec<u8>) -> Result<()> {
        let Some(exceptions) = self.exceptions("gexc", gaps, content)? else { return Ok(()) };
        let n_genes = self.tile.header.n_genes;
        let mut pending = exceptions.iter().peekable();
        while let Some(&(position, _)) = pending.peek() {
            let cell = self.tile.indptr.partition_point(|&p| p <= (position + self.nnz_lo) as i64) - 1;
            let positions = self.positions(cell);
            let mut added = 0u64;
            let mut from = position;
            while let Some((position, payload)) = pending.next_if(|(position, _)| *position < positions.end) {
                if payload == 0 || payload >= n_genes {
                    return Err(
                        self.fault("gexc", format!("position {position} has the payload {payload}, allowed are 1 to {}", n_genes - 1))
                    );
                }
                self.shift_genes(cell, from..position, added)?;
                added += u64::from(payload);
                from = position;
            }
            self.shift_genes(cell, from..positions.end, added)?;
        }
        Ok(())
    }

    /// Adds `added` to the genes at `positions`, all of `cell`, if they are wanted.
    fn shift_genes(&mut self, cell: usize, positions: Range<usize>, added: u64) -> Result<()> {
        if !self.task.cells.contains(&cell) {
            return Ok(());
        }
        let (first, n_genes) = (self.first(), u64::from(self.tile.header.n_genes));
        for i in positions.start - first..positions.end - first {
            let gene = self.task.indices[i] as u64 + added;
            if gene >= n_genes {
                return Err(self.fault("gexc", format!("cell {cell} has gene {gene}, the tile has {n_genes} genes")));
            }
            self.task.indices[i] = gene as i32;
        }
        Ok(())
    }
}

/// Positions and payloads of a decompressed exception frame.
#[derive(Clone, Copy)]
struct Exceptions<'s> {
    positions: &'s [u8],
    payloads: &'s [u8],
}

impl<'s> Exceptions<'s> {
    fn iter(self) -> impl Iterator<Item = (usize, u32)> + 's {
        let (positions, payloads) = (self.positions.chunks_exact(4), self.payloads.chunks_exact(4));
        positions.zip(payloads).map(|(p, v)| (u32_at(p, 0) as usize, u32_at(v, 0)))
    }
}

/// Whether all is well with the row. The sum cannot overflow: see [`NO_OVERFLOW_NNZ`].
fn widen_row(row: Planes<'_>, out: &mut [i32], n_genes: u32) -> bool {
    let mut gene = u32::from(row.get(0));
    out[0] = gene as i32;
    let mut repeated = false;
    for (out, gap) in out[1..].iter_mut().zip(row.slice(1..row.low.len()).iter()) {
        repeated |= gap == 0;
        gene += u32::from(gap);
        *out = gene as i32;
    }
    !repeated && gene < n_genes
}

fn widen_long_row(row: Planes<'_>, out: &mut [i32], n_genes: u32) -> bool {
    let mut gene = 0u64;
    for (i, (out, gap)) in out.iter_mut().zip(row.iter()).enumerate() {
        gene += u64::from(gap);
        if (gap == 0 && i > 0) || gene >= u64::from(n_genes) {
            return false;
        }
        *out = gene as i32;
    }
    true
}

fn parse_indptr(bytes: &[u8], header: &TileHeader) -> Result<Vec<i64>> {
    let start = header.indptr_off as usize;
    let end = header.indptr_end().expect("parse has checked that the indptr is inside the tile") as usize;
    let indptr: Vec<i64> = bytes[start..end].chunks_exact(8).map(|b| u64_at(b, 0) as i64).collect();
    let at = |cell: usize| (start + cell * 8) as u64;
    if indptr[0] != 0 {
        return Err(Error::invalid_at(at(0), format!("indptr[0] is {}, must be 0", indptr[0])));
    }
    for (cell, pair) in indptr.windows(2).enumerate() {
        if pair[1] < pair[0] {
            return Err(Error::invalid_at(
                at(cell + 1),
                format!("indptr[{}] is {}, below indptr[{cell}] = {}", cell + 1, pair[1], pair[0]),
            ));
        }
        if pair[1] - pair[0] > i64::from(header.n_genes) {
            return Err(Error::invalid_at(
                at(cell + 1),
                format!("cell {cell} has {} nonzeros, the tile has {} genes", pair[1] - pair[0], header.n_genes),
            ));
        }
    }
    let last = indptr[indptr.len() - 1];
    if last as u64 != header.nnz {
        return Err(Error::invalid_at(24, format!("nnz is {}, the indptr ends at {last}", header.nnz)));
    }
    Ok(indptr)
}

fn parse_table(bytes: &[u8], header: &TileHeader, indptr: &[i64]) -> Result<Vec<ChunkEntry>> {
    let table = &bytes[TileHeader::LEN..TileHeader::LEN + header.n_chunks as usize * ChunkEntry::LEN];
    let entries = table.chunks_exact(ChunkEntry::LEN).enumerate();
    let chunks = entries.map(|(k, entry)| ChunkEntry::parse(entry, k, header.total_size)).collect::<Result<Vec<_>>>()?;
    chunks.iter().enumerate().try_for_each(|(k, chunk)| check_places(header, k, chunk))?;
    let (mut cell, mut nnz) = (0, 0);
    for (k, chunk) in chunks.iter().enumerate() {
        let fault = |field: usize, what: String| {
            Err(Error::invalid_at((TileHeader::LEN + k * ChunkEntry::LEN + field * 8) as u64, format!("chunk {k} {what}")))
        };
        if chunk.cells.start != cell || chunk.nnz.start != nnz {
            let what =
                format!("starts at cell {} and nonzero {}, the last one ended at {cell} and {nnz}", chunk.cells.start, chunk.nnz.start);
            return fault(0, what);
        }
        (cell, nnz) = (chunk.cells.end, chunk.nnz.end);
        let Some(&limit) = usize::try_from(cell).ok().and_then(|cell| indptr.get(cell)) else {
            return fault(1, format!("ends at cell {cell}, the tile has {}", header.n_cells));
        };
        if k + 1 == chunks.len() && (cell != header.n_cells || nnz != header.nnz) {
            return fault(
                1,
                format!("is the last and ends at cell {cell} and nonzero {nnz}, the tile at {} and {}", header.n_cells, header.nnz),
            );
        }
        if limit as u64 != nnz {
            return fault(3, format!("ends at nonzero {nnz}, the indptr of its last cell at {limit}"));
        }
        if chunk.len() >= 1 << 32 {
            return fault(3, format!("has {} nonzeros, a chunk has fewer than 2^32", chunk.len()));
        }
    }
    Ok(chunks)
}

/// Frames lie behind the chunk table and outside the indptr, and the streams start on 8-byte boundaries (specification,
/// "Tile layout").
fn check_places(header: &TileHeader, chunk_index: usize, chunk: &ChunkEntry) -> Result<()> {
    let table_end = (TileHeader::LEN + header.n_chunks as usize * ChunkEntry::LEN) as u64;
    let indptr = header.indptr_off..header.indptr_end().unwrap_or(u64::MAX);
    for (name, range) in chunk.frames().into_iter().filter(|(_, range)| !range.is_empty()) {
        let fault = |what: String| Err(Error::invalid_at(range.start, format!("chunk {chunk_index}: the {name} frame {what}")));
        if range.start < table_end {
            return fault(format!("starts inside the chunk table, which ends at {table_end}"));
        }
        if range.start < indptr.end && indptr.start < range.end {
            return fault(format!("overlaps the indptr, which lies at {} to {}", indptr.start, indptr.end));
        }
        if matches!(name, "gaps" | "vals") && !range.start.is_multiple_of(8) {
            return fault("does not start at a multiple of 8".into());
        }
    }
    Ok(())
}
