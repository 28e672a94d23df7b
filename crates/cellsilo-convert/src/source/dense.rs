//! Dense matrices, cells by genes or (loom) genes by cells, streamed in slabs of whole cells.

use std::sync::Arc;

use cellsilo::Result;
use rayon::prelude::*;

use super::{Block, Label, Matrix};
use crate::store::Array;

/// Bytes of a slab, if chunks are not larger.
const SLAB_BYTES: u64 = 48 << 20;
/// Bytes of a slab that keeps chunks whole; beyond it, chunks are decoded more than once.
const MAX_SLAB_BYTES: u64 = 192 << 20;

/// A dense matrix.
pub(super) struct Dense {
    label: Label,
    array: Arc<dyn Array>,
    /// Dimension of the cells: 0 for AnnData, 1 for loom.
    cell_axis: usize,
}

impl Dense {
    pub(super) fn new(array: Arc<dyn Array>, cell_axis: usize, label: Label) -> Result<Self> {
        if array.shape().len() != 2 {
            return Err(label.fault(format!("its shape is {:?}, expected two dimensions", array.shape())));
        }
        Ok(Self { label, array, cell_axis })
    }

    fn n_cells(&self) -> u64 {
        self.array.shape()[self.cell_axis]
    }

    fn n_genes(&self) -> u64 {
        self.array.shape()[1 - self.cell_axis]
    }

    /// Cells of a slab: whole chunks where that fits.
    fn slab_cells(&self) -> u64 {
        let cell_bytes = (self.n_genes() * self.array.dtype().size() as u64).max(1);
        let chunk = self.array.chunk_shape()[self.cell_axis].clamp(1, self.n_cells().max(1));
        let wanted = (SLAB_BYTES / cell_bytes).max(1);
        if chunk.saturating_mul(cell_bytes) <= MAX_SLAB_BYTES { wanted.div_ceil(chunk).max(1) * chunk } else { wanted }
    }

    fn slab(&self, first: u64, n: u64) -> Result<(Block, u64)> {
        let (mut start, mut count) = ([0, 0], [self.n_genes(); 2]);
        (start[self.cell_axis], count[self.cell_axis]) = (first, n);
        let bytes = self.array.read(&start, &count)?;
        let (n, n_genes) = (n as usize, self.n_genes() as usize);
        let index = |cell: usize, gene: usize| if self.cell_axis == 0 { cell * n_genes + gene } else { gene * n + cell };
        let place = |i: usize| {
            let (cell, gene) = if self.cell_axis == 0 { (i / n_genes, i % n_genes) } else { (i % n, i / n) };
            (first + cell as u64, gene as u64)
        };
        let (values, noisy) = self.label.counts(&bytes, self.array.dtype(), place)?;
        drop(bytes);
        let rows: Vec<(Vec<u32>, Vec<u32>)> = (0..n)
            .into_par_iter()
            .map(|cell| (0..n_genes).map(|gene| (gene as u32, values[index(cell, gene)])).filter(|e| e.1 != 0).unzip())
            .collect();
        let mut indptr = vec![0];
        indptr.extend(rows.iter().scan(0, |sum, row| {
            *sum += row.0.len();
            Some(*sum)
        }));
        let genes = rows.iter().flat_map(|r| &r.0).copied().collect();
        let counts = rows.iter().flat_map(|r| &r.1).copied().collect();
        Ok((Block::Rows { first_cell: first, indptr, genes, counts }, noisy))
    }
}

impl Matrix for Dense {
    fn is_cell_major(&self) -> bool {
        true
    }

    fn n_entries(&self) -> u64 {
        // A guess: most entries of a dense count matrix are zeros.
        self.n_cells().saturating_mul(self.n_genes()) / 8
    }

    fn stream(&self, from_cell: u64, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<u64> {
        let (mut cell, slab, mut noisy) = (from_cell, self.slab_cells(), 0);
        while cell < self.n_cells() {
            // Ends at a multiple of the slab, so that a resumed stream meets whole chunks again.
            let end = ((cell / slab + 1) * slab).min(self.n_cells());
            let (block, n) = self.slab(cell, end - cell)?;
            visit(block)?;
            noisy += n;
            cell = end;
        }
        Ok(noisy)
    }
}
