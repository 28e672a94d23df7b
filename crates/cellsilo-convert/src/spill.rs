//! Entries in any order to rows in order, through files of a temporary folder.
//!
//! Cells are cut into buckets of equal numbers. An entry goes to its cell's bucket; when all have come, each
//! bucket is read, sorted by cell, and yielded. Memory: the buffers of all buckets, or one bucket.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use cellsilo::{Error, Result};
use tempfile::TempDir;

/// Entries of a bucket to aim at: about 100 MB when it is read.
const BUCKET_ENTRIES: u64 = 8 << 20;
/// Most buckets.
const MAX_BUCKETS: u64 = 4096;
/// Entries in all buffers together.
const BUFFERED: usize = 6 << 20;
/// Bytes of an entry: cell within the bucket, gene, count.
const ENTRY: usize = 12;

/// Rows to come back: limits, genes and counts of consecutive cells.
pub type SpilledRows = (Vec<usize>, Vec<u32>, Vec<u32>);

/// A spill under way.
pub struct Spill {
    folder: TempDir,
    n_cells: u64,
    bucket_cells: u64,
    buffers: Vec<Vec<u32>>,
    buffer_entries: usize,
}

impl Spill {
    /// Starts a spill of about `n_entries` entries of `n_cells` cells, in a new folder inside `parent`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(parent: &Path, n_cells: u64, n_entries: u64) -> Result<Self> {
        std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
        let folder = tempfile::Builder::new().prefix(".cellsilo-spill-").tempdir_in(parent).map_err(|e| Error::io(parent, e))?;
        let buckets = n_entries.div_ceil(BUCKET_ENTRIES).clamp(1, MAX_BUCKETS).min(n_cells.max(1));
        let bucket_cells = n_cells.div_ceil(buckets).max(1);
        let buckets = n_cells.div_ceil(bucket_cells) as usize;
        Ok(Self {
            folder,
            n_cells,
            bucket_cells,
            buffers: vec![Vec::new(); buckets],
            buffer_entries: (BUFFERED / buckets.max(1)).clamp(512, 1 << 17),
        })
    }

    /// Adds entries of one cell.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push_row(&mut self, cell: u64, genes: &[u32], counts: &[u32]) -> Result<()> {
        let (bucket, row) = ((cell / self.bucket_cells) as usize, (cell % self.bucket_cells) as u32);
        self.buffers[bucket].extend(genes.iter().zip(counts).flat_map(|(&gene, &count)| [row, gene, count]));
        self.flush_if_full(bucket)
    }

    /// Adds one entry.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push(&mut self, cell: u64, gene: u32, count: u32) -> Result<()> {
        self.push_row(cell, &[gene], &[count])
    }

    fn flush_if_full(&mut self, bucket: usize) -> Result<()> {
        if self.buffers[bucket].len() >= 3 * self.buffer_entries { self.flush(bucket) } else { Ok(()) }
    }

    fn path(&self, bucket: usize) -> PathBuf {
        self.folder.path().join(format!("{bucket:04}"))
    }

    /// Appends a buffer to its bucket's file: the columns one after the other, as one zstd frame with its
    /// sizes before it.
    fn flush(&mut self, bucket: usize) -> Result<()> {
        let entries = std::mem::take(&mut self.buffers[bucket]);
        let column = |k: usize| entries.iter().skip(k).step_by(3).flat_map(|v| v.to_le_bytes());
        let bytes: Vec<u8> = column(0).chain(column(1)).chain(column(2)).collect();
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut packed, &bytes, 1).map_err(|code| Error::Refused(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        let path = self.path(bucket);
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(&(bytes.len() as u64).to_le_bytes())?;
            file.write_all(&(packed.len() as u64).to_le_bytes())?;
            file.write_all(&packed)
        };
        write().map_err(|e| Error::io(&path, e))?;
        self.buffers[bucket] = {
            let mut empty = entries;
            empty.clear();
            empty
        };
        Ok(())
    }

    /// Yields all cells in order, bucket by bucket: the first cell and its rows, each with its entries in the
    /// order they came.
    ///
    /// # Errors
    /// [`Error::Io`]; what `visit` gives.
    pub fn drain(mut self, visit: &mut dyn FnMut(u64, SpilledRows) -> Result<()>) -> Result<()> {
        for bucket in 0..self.buffers.len() {
            self.flush(bucket)?;
        }
        self.buffers.clear();
        for first in (0..self.n_cells).step_by(self.bucket_cells as usize) {
            let bucket = (first / self.bucket_cells) as usize;
            let n_cells = self.bucket_cells.min(self.n_cells - first) as usize;
            let rows = self.read_bucket(bucket, n_cells)?;
            let _ = std::fs::remove_file(self.path(bucket));
            visit(first, rows)?;
        }
        Ok(())
    }

    /// Reads a bucket twice: to count each cell's entries, then to put them in place.
    fn read_bucket(&self, bucket: usize, n_cells: usize) -> Result<SpilledRows> {
        let mut indptr = vec![0; n_cells + 1];
        self.each_frame(bucket, &mut |cells, _, _| cells.for_each(|cell| indptr[cell as usize + 1] += 1))?;
        for i in 1..indptr.len() {
            indptr[i] += indptr[i - 1];
        }
        let (mut genes, mut counts, mut next) = (vec![0; indptr[n_cells]], vec![0; indptr[n_cells]], indptr.clone());
        self.each_frame(bucket, &mut |cells, frame_genes, frame_counts| {
            for ((cell, gene), count) in cells.zip(frame_genes).zip(frame_counts) {
                let slot = &mut next[cell as usize];
                (genes[*slot], counts[*slot]) = (gene, count);
                *slot += 1;
            }
        })?;
        Ok((indptr, genes, counts))
    }

    fn each_frame(&self, bucket: usize, visit: &mut dyn FnMut(Column<'_>, Column<'_>, Column<'_>)) -> Result<()> {
        let path = self.path(bucket);
        let mut file = BufReader::with_capacity(1 << 18, File::open(&path).map_err(|e| Error::io(&path, e))?);
        let (mut packed, mut bytes, mut sizes) = (Vec::new(), Vec::new(), [0; 16]);
        while file.read_exact(&mut sizes).is_ok() {
            let size = |k: usize| u64::from_le_bytes(sizes[8 * k..8 * k + 8].try_into().expect("eight bytes")) as usize;
            bytes.resize(size(0), 0);
            packed.resize(size(1), 0);
            file.read_exact(&mut packed).map_err(|e| Error::io(&path, e))?;
            zstd_safe::decompress(&mut bytes[..], &packed)
                .map_err(|code| Error::Refused(format!("{}: {}", path.display(), zstd_safe::get_error_name(code))))?;
            let third = bytes.len() / ENTRY * 4;
            let column = |k: usize| Column(bytes[k * third..(k + 1) * third].chunks_exact(4));
            visit(column(0), column(1), column(2));
        }
        Ok(())
    }
}

/// One column of a frame.
struct Column<'a>(std::slice::ChunksExact<'a, u8>);

impl Iterator for Column<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0.next().map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_rows() {
        let parent = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(parent.path(), 1000, 3 * BUCKET_ENTRIES).unwrap();
        for gene in 0..50 {
            (0..1000).filter(|c| c % 7 != 3 && (c + u64::from(gene)) % 5 == 0).for_each(|c| spill.push(c, gene, c as u32 + gene).unwrap());
        }
        let mut next = 0;
        spill
            .drain(&mut |first, (indptr, genes, counts)| {
                assert_eq!(first, next);
                next += indptr.len() as u64 - 1;
                for row in 0..indptr.len() - 1 {
                    let cell = first + row as u64;
                    let expected: Vec<u32> = (0..50).filter(|g| cell % 7 != 3 && (cell + u64::from(*g)).is_multiple_of(5)).collect();
                    assert_eq!(genes[indptr[row]..indptr[row + 1]], expected);
                    assert!(counts[indptr[row]..indptr[row + 1]].iter().zip(&expected).all(|(c, g)| *c == cell as u32 + g));
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(next, 1000);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "the folder is removed");
    }
}
