//! CSR and CSC matrices: three arrays, streamed in blocks.

use std::sync::Arc;

use cellsilo::{Error, Result};

use super::{Block, Label, Matrix};
use crate::store::{Array, Cursor, Store};
use crate::values::{indices, indices_u32};

/// Entries in a block: about 32 MB of indices and counts.
const BLOCK_ENTRIES: u64 = 2 << 20;
/// Limits of the major axis read at a time.
const BLOCK_MAJOR: u64 = 1 << 16;

/// A sparse matrix. The major axis is the one that `indptr` runs over.
pub(super) struct Sparse {
    label: Label,
    indptr: Arc<dyn Array>,
    indices: Arc<dyn Array>,
    data: Arc<dyn Array>,
    n_major: u64,
    n_minor: u64,
    cells_are_major: bool,
}

impl Sparse {
    /// Opens `path/indptr`, `path/indices` and `path/data` and checks that their lengths agree.
    pub(super) fn open(store: &dyn Store, path: &str, n_major: u64, n_minor: u64, cells_are_major: bool, label: Label) -> Result<Self> {
        let array = |name: &str| store.array(&if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") });
        let (indptr, indices, data) = (array("indptr")?, array("indices")?, array("data")?);
        for (name, array) in [("indptr", &indptr), ("indices", &indices), ("data", &data)] {
            if array.shape().len() != 1 {
                return Err(label.fault(format!("{name} has the shape {:?}, expected one dimension", array.shape())));
            }
        }
        if indptr.len() != n_major + 1 {
            return Err(label.fault(format!(
                "indptr has {} values, expected {} for the shape {n_major} x {n_minor}",
                indptr.len(),
                n_major + 1
            )));
        }
        if indices.len() != data.len() {
            return Err(label.fault(format!("{} indices and {} values", indices.len(), data.len())));
        }
        Ok(Self { label, indptr, indices, data, n_major, n_minor, cells_are_major })
    }

    /// Cell and feature of an entry.
    fn place(&self, limits: &[u64], first_major: u64, minor: u64, position: u64) -> (u64, u64) {
        let major = first_major + limits.partition_point(|&p| p <= position) as u64 - 1;
        if self.cells_are_major { (major, minor) } else { (minor, major) }
    }

    fn limits(&self, cursor: &mut Cursor, from: u64, to: u64) -> Result<Vec<u64>> {
        let dtype = cursor.dtype();
        let limits =
            indices(cursor.read(from, to)?, dtype).ok_or_else(|| self.label.fault("indptr holds values that are not limits".into()))?;
        if !limits.is_sorted() {
            return Err(self.label.fault(format!("indptr decreases between row {from} and {to}")));
        }
        if from == 0 && limits[0] != 0 {
            return Err(self.label.fault(format!("indptr starts at {}, not 0", limits[0])));
        }
        let last = limits[limits.len() - 1];
        if last > self.indices.len() || (to == self.n_major + 1 && last != self.indices.len()) {
            return Err(self.label.fault(format!("indptr ends at {last}, there are {} entries", self.indices.len())));
        }
        Ok(limits)
    }

    /// Reads and yields the entries between two of the limits.
    fn block(
        &self,
        cursors: &mut [Cursor; 2],
        first_major: u64,
        limits: &[u64],
        visit: &mut dyn FnMut(Block) -> Result<()>,
    ) -> Result<u64> {
        let (start, end) = (limits[0], limits[limits.len() - 1]);
        let [index_cursor, data_cursor] = cursors;
        let dtype = index_cursor.dtype();
        let minor = indices_u32(index_cursor.read(start, end)?, dtype)
            .ok_or_else(|| self.label.fault("an index is negative, a fraction or above 2^32".into()))?;
        if let Some(bad) = minor.iter().find(|&&i| u64::from(i) >= self.n_minor) {
            return Err(self.label.fault(format!("an index is {bad}, the axis has {} entries", self.n_minor)));
        }
        let dtype = data_cursor.dtype();
        let place = |i: usize| self.place(limits, first_major, u64::from(minor[i]), start + i as u64);
        let (counts, noisy) = self.label.counts(data_cursor.read(start, end)?, dtype, place)?;
        if self.cells_are_major {
            let indptr = limits.iter().map(|p| (p - start) as usize).collect();
            visit(Block::Rows { first_cell: first_major, indptr, genes: minor, counts })?;
        } else {
            let mut genes = vec![0; minor.len()];
            for (k, pair) in limits.windows(2).enumerate() {
                genes[(pair[0] - start) as usize..(pair[1] - start) as usize].fill((first_major + k as u64) as u32);
            }
            visit(Block::Entries { cells: minor, genes, counts })?;
        }
        Ok(noisy)
    }
}

impl Matrix for Sparse {
    fn is_cell_major(&self) -> bool {
        self.cells_are_major
    }

    fn n_entries(&self) -> u64 {
        self.indices.len()
    }

    fn stream(&self, from_cell: u64, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<u64> {
        let mut indptr = Cursor::new(self.indptr.clone());
        let mut cursors = [Cursor::new(self.indices.clone()), Cursor::new(self.data.clone())];
        let mut noisy = 0;
        let mut major = if self.cells_are_major { from_cell } else { 0 };
        while major < self.n_major {
            let end = (major + BLOCK_MAJOR).min(self.n_major);
            let limits = self.limits(&mut indptr, major, end + 1)?;
            let mut k = 0;
            while k + 1 < limits.len() {
                // As many whole rows as fit, and at least one.
                let fit = limits.partition_point(|&p| p <= limits[k] + BLOCK_ENTRIES) - 1;
                let stop = fit.clamp(k + 1, limits.len() - 1);
                self.check_row(major + k as u64, &limits[k..=stop])?;
                noisy += self.block(&mut cursors, major + k as u64, &limits[k..=stop], visit)?;
                k = stop;
            }
            major = end;
        }
        Ok(noisy)
    }
}

impl Sparse {
    /// A row of many times its axis' length cannot be honest and would not fit in memory.
    fn check_row(&self, major: u64, limits: &[u64]) -> Result<()> {
        match limits.windows(2).find(|w| w[1] - w[0] > self.n_minor.saturating_mul(16).max(BLOCK_ENTRIES)) {
            Some(w) => Err(Error::invalid(format!(
                "{}: row {major} or later has {} entries, the axis {}",
                self.label.matrix,
                w[1] - w[0],
                self.n_minor
            ))
            .in_file(&self.label.path)),
            None => Ok(()),
        }
    }
}
