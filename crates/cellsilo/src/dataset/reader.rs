//! Opening a dataset and reading cells of it.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::format::{Manifest, gene_order, tile_name, var_names};
use crate::limits::{MAX_MANIFEST_BYTES, MAX_VAR_NAMES_BYTES};
use crate::tile::{Count, Csr, TileView};

/// File name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// File name of the gene order.
pub const GENE_ORDER: &str = "gene_order.npy";
/// File name of the gene names.
pub const VAR_NAMES: &str = "var_names.txt";

/// A dataset on disk, opened by its manifest.
#[derive(Debug, Clone)]
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
    limits: Vec<u64>,
}

impl Dataset {
    /// Opens the dataset in `folder`: reads and checks the manifest, and that every tile and every file it
    /// names exists in the size it states. Reads no tile.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the file; [`Error::Io`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let dataset = Self::open_unchecked(folder)?;
        (0..dataset.n_tiles()).into_par_iter().try_for_each(|t| dataset.check_tile_size(t))?;
        for (has, name) in [(dataset.manifest.has_gene_order, GENE_ORDER), (dataset.manifest.has_var_names, VAR_NAMES)] {
            if has && !dataset.folder.join(name).is_file() {
                return Err(Error::invalid("the manifest names this file, but it is missing").in_file(&dataset.folder.join(name)));
            }
        }
        Ok(dataset)
    }

    /// As [`open`](Self::open), without a look at the files beside the manifest; `verify` reports their faults
    /// one by one.
    pub(super) fn open_unchecked(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        let path = folder.join(MANIFEST);
        if !path.exists() && folder.is_dir() {
            return Err(Error::invalid("the folder has no manifest.json: it is not a dataset, or one whose conversion has not finished")
                .in_file(&folder));
        }
        let manifest = Manifest::parse(&read_capped(&path, MAX_MANIFEST_BYTES)?).map_err(|e| e.in_file(&path))?;
        let limits = manifest.limits();
        Ok(Self { folder, manifest, limits })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Number of cells.
    pub fn n_cells(&self) -> u64 {
        self.manifest.n_cells
    }

    /// Number of genes.
    pub fn n_genes(&self) -> u64 {
        self.manifest.n_genes
    }

    /// Number of tiles.
    pub fn n_tiles(&self) -> usize {
        self.limits.len()
    }

    /// Cells of tile `tile_index`.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn tile_range(&self, tile_index: usize) -> Range<u64> {
        tile_index.checked_sub(1).map_or(0, |t| self.limits[t])..self.limits[tile_index]
    }

    /// Tile and row in it of cell `cell` (specification, "Dataset layout"), or `None` past the end.
    pub fn locate(&self, cell: u64) -> Option<(usize, usize)> {
        let tile_index = self.limits.partition_point(|&limit| limit <= cell);
        (tile_index < self.limits.len()).then(|| (tile_index, (cell - self.tile_range(tile_index).start) as usize))
    }

    /// Path of tile `tile_index`.
    pub fn tile_path(&self, tile_index: usize) -> PathBuf {
        self.folder.join(tile_name(tile_index))
    }

    fn check_tile_size(&self, tile_index: usize) -> Result<()> {
        let path = self.tile_path(tile_index);
        let stated = self.manifest.tile_bytes[tile_index];
        match fs::metadata(&path) {
            Ok(meta) if meta.len() == stated => Ok(()),
            Ok(meta) => Err(Error::invalid(format!("the file has {} bytes, the manifest states {stated}", meta.len())).in_file(&path)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::invalid("the tile is missing").in_file(&path)),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// Reads the bytes of tile `tile_index`, of exactly the size that the manifest states.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another size; [`Error::Io`].
    pub fn read_tile_bytes(&self, tile_index: usize) -> Result<Vec<u8>> {
        self.check_tile_size(tile_index)?;
        let path = self.tile_path(tile_index);
        fs::read(&path).map_err(|e| Error::io(path, e))
    }

    /// Checks a tile's bytes and that its shape is the one in the manifest.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the tile's file.
    pub fn parse_tile<'a>(&self, tile_index: usize, bytes: &'a [u8]) -> Result<TileView<'a>> {
        let check = || {
            let view = TileView::parse(bytes)?;
            let (header, manifest) = (view.header(), &self.manifest);
            let found = (header.n_cells, header.nnz, u64::from(header.n_genes));
            let stated = (manifest.tile_cells[tile_index], manifest.tile_nnz[tile_index], manifest.n_genes);
            if found != stated {
                return Err(Error::invalid_at(
                    16,
                    format!(
                        "the tile has {} cells, {} nonzeros and {} genes, the manifest states {}, {} and {}",
                        found.0, found.1, found.2, stated.0, stated.1, stated.2
                    ),
                ));
            }
            Ok(view)
        };
        check().map_err(|e| e.in_file(&self.tile_path(tile_index)))
    }

    /// Reads rows `rows` of tile `tile_index` into `out`.
    fn read_rows_of_tile<T: Count>(&self, tile_index: usize, rows: Range<usize>, out: &mut Csr<T>) -> Result<()> {
        let bytes = self.read_tile_bytes(tile_index)?;
        self.parse_tile(tile_index, &bytes)?.decode_cells_into(rows, out).map_err(|e| e.in_file(&self.tile_path(tile_index)))
    }

    /// Reads all of tile `tile_index` into `out`, using its memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the tile's file; [`Error::Io`].
    pub fn read_tile_into<T: Count>(&self, tile_index: usize, out: &mut Csr<T>) -> Result<()> {
        self.read_rows_of_tile(tile_index, 0..self.manifest.tile_cells[tile_index] as usize, out)
    }

    /// Reads a range of cells. Shape: `cells.len()` by `n_genes`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the range is not inside the dataset, or what reading a tile gives.
    pub fn read_range<T: Count>(&self, cells: Range<u64>) -> Result<Csr<T>> {
        if cells.start > cells.end || cells.end > self.n_cells() {
            return Err(Error::Usage(format!("cells {}..{} are not inside the dataset's 0..{}", cells.start, cells.end, self.n_cells())));
        }
        let mut out = Csr::empty(self.n_genes());
        let mut part = Csr::default();
        let Some((first, _)) = self.locate(cells.start).filter(|_| !cells.is_empty()) else { return Ok(out) };
        for tile_index in first.. {
            let tile = self.tile_range(tile_index);
            let rows = (cells.start.max(tile.start) - tile.start) as usize..(cells.end.min(tile.end) - tile.start) as usize;
            self.read_rows_of_tile(tile_index, rows, &mut part)?;
            out.append(&part);
            if cells.end <= tile.end {
                break;
            }
        }
        Ok(out)
    }

    /// Reads a list of cells, in the order asked, each as often as asked. Shape: `cells.len()` by `n_genes`.
    ///
    /// Each tile that holds some is read once, and only the chunks that hold them are decoded.
    ///
    /// # Errors
    /// [`Error::Usage`] if a cell is past the end, or what reading a tile gives.
    pub fn read_cells<T: Count>(&self, cells: &[u64]) -> Result<Csr<T>> {
        let mut wanted = Vec::with_capacity(cells.len());
        for (slot, &cell) in cells.iter().enumerate() {
            let (tile_index, row) =
                self.locate(cell).ok_or_else(|| Error::Usage(format!("there is no cell {cell}, the dataset has {}", self.n_cells())))?;
            wanted.push((tile_index, row, slot));
        }
        wanted.sort_unstable();
        let mut sorted = Csr::empty(self.n_genes());
        for group in wanted.chunk_by(|a, b| a.0 == b.0) {
            self.gather_from_tile(group, &mut sorted)?;
        }
        // `sorted` has the rows by tile and row; put them where they were asked for.
        let mut position = vec![0; cells.len()];
        wanted.iter().enumerate().for_each(|(i, &(_, _, slot))| position[slot] = i);
        let mut out = Csr::empty(self.n_genes());
        position.into_iter().for_each(|i| out.push_row_of(&sorted, i));
        Ok(out)
    }

    fn gather_from_tile<T: Count>(&self, group: &[(usize, usize, usize)], out: &mut Csr<T>) -> Result<()> {
        let tile_index = group[0].0;
        let bytes = self.read_tile_bytes(tile_index)?;
        let view = self.parse_tile(tile_index, &bytes)?;
        let mut part = Csr::default();
        let mut rest = group;
        for chunk in view.chunks() {
            let (here, later) = rest.split_at(rest.partition_point(|&(_, row, _)| (row as u64) < chunk.cells.end));
            rest = later;
            let (Some(first), Some(last)) = (here.first(), here.last()) else { continue };
            view.decode_cells_into(first.1..last.1 + 1, &mut part).map_err(|e| e.in_file(&self.tile_path(tile_index)))?;
            here.iter().for_each(|&(_, row, _)| out.push_row_of(&part, row - first.1));
        }
        Ok(())
    }

    /// Output column `j` was column `gene_order[j]` of the source; `None` if the dataset does not say.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file is not a permutation; [`Error::Io`].
    pub fn gene_order(&self) -> Result<Option<Vec<i32>>> {
        if !self.manifest.has_gene_order {
            return Ok(None);
        }
        let path = self.folder.join(GENE_ORDER);
        let bytes = read_capped(&path, self.n_genes() * 8 + (1 << 16))?;
        gene_order::parse(&bytes, self.n_genes()).map(Some).map_err(|e| e.in_file(&path))
    }

    /// Gene names in output column order; `None` if the dataset has none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more or fewer than genes; [`Error::Io`].
    pub fn var_names(&self) -> Result<Option<Vec<String>>> {
        if !self.manifest.has_var_names {
            return Ok(None);
        }
        let path = self.folder.join(VAR_NAMES);
        let text = String::from_utf8(read_capped(&path, MAX_VAR_NAMES_BYTES)?)
            .map_err(|_| Error::invalid("the file is not UTF-8").in_file(&path))?;
        var_names::parse(&text, self.n_genes()).map(Some).map_err(|e| e.in_file(&path))
    }
}

/// Reads a file of at most `most` bytes.
fn read_capped(path: &Path, most: u64) -> Result<Vec<u8>> {
    let meta = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(Error::invalid("this is not a file").in_file(path));
    }
    if meta.len() > most {
        return Err(Error::invalid(format!("the file has {} bytes, at most {most} are read", meta.len())).in_file(path));
    }
    fs::read(path).map_err(|e| Error::io(path, e))
}
