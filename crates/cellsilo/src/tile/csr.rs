//! Rows in compressed sparse form, as the codec takes and gives them.

/// Numbers that counts are decoded to.
///
/// `i32` holds every count; `f32` is exact up to 2^24 (specification, "Limits (version 2)").
pub trait Count: sealed::Sealed + Copy + Default + Send + Sync + std::fmt::Debug + PartialEq + 'static {
    /// A count that stood in a stream.
    fn from_u16(value: u16) -> Self;
    /// A count from an exception frame, at most 2^31 - 1.
    fn from_u32(value: u32) -> Self;
}

impl Count for i32 {
    fn from_u16(value: u16) -> Self {
        Self::from(value)
    }
    fn from_u32(value: u32) -> Self {
        value as Self
    }
}

impl Count for f32 {
    fn from_u16(value: u16) -> Self {
        Self::from(value)
    }
    fn from_u32(value: u32) -> Self {
        value as Self
    }
}

/// Numbers that gene indices and counts are encoded from: `u32` or `i32`.
pub trait Int32: sealed::Sealed + Copy + Send + Sync {
    /// The value as `u32`; a negative one becomes more than [`crate::limits::MAX_COUNT`], which every check refuses.
    fn bits(self) -> u32;
}

impl Int32 for u32 {
    fn bits(self) -> u32 {
        self
    }
}

impl Int32 for i32 {
    fn bits(self) -> u32 {
        self as u32
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
}

/// Rows to encode: a *canonical* CSR block.
///
/// Row `r` is the entries `indptr[r]..indptr[r + 1]`; in each, genes increase strictly and stay below
/// `n_genes`, and counts are 1 to 2^31 - 1.
#[derive(Debug, Clone, Copy)]
pub struct CsrBlock<'a, T> {
    /// Genes (columns), 1 to 2^31.
    pub n_genes: u32,
    /// Row limits, `n_cells + 1` values from 0 to the number of entries.
    pub indptr: &'a [i64],
    /// Gene index of every entry.
    pub indices: &'a [T],
    /// Count of every entry.
    pub data: &'a [T],
}

/// Decoded rows. Shape: `indptr.len() - 1` cells by `n_genes` genes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Csr<T> {
    /// Genes (columns).
    pub n_genes: u64,
    /// Row limits, one more than there are rows, starting at 0.
    pub indptr: Vec<i64>,
    /// Gene index of every nonzero, strictly increasing in a row.
    pub indices: Vec<i32>,
    /// Count of every nonzero.
    pub data: Vec<T>,
}

impl<T> Csr<T> {
    /// An empty matrix (no rows) over `n_genes` genes.
    pub fn empty(n_genes: u64) -> Self {
        Self { n_genes, indptr: vec![0], indices: Vec::new(), data: Vec::new() }
    }

    /// Number of rows.
    pub fn n_cells(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Stored nonzeros.
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// Genes and counts of row `cell`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, cell: usize) -> (&[i32], &[T]) {
        let range = self.indptr[cell] as usize..self.indptr[cell + 1] as usize;
        (&self.indices[range.clone()], &self.data[range])
    }
}

impl<T: Copy> Csr<T> {
    /// Appends row `cell` of `other`.
    pub fn push_row_of(&mut self, other: &Self, cell: usize) {
        let (indices, data) = other.row(cell);
        self.indices.extend_from_slice(indices);
        self.data.extend_from_slice(data);
        self.indptr.push(self.indices.len() as i64);
    }

    /// Appends all rows of `other`.
    pub fn append(&mut self, other: &Self) {
        let base = self.indices.len() as i64;
        self.indices.extend_from_slice(&other.indices);
        self.data.extend_from_slice(&other.data);
        self.indptr.extend(other.indptr.iter().skip(1).map(|p| p + base));
    }
}
