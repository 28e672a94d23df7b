//! Datasets out again: h5ad and zarr that anndata reads, a 10x mtx folder that scanpy reads.

mod h5ad;
mod mtx;
mod zarr;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cellsilo::dataset::Dataset;
use cellsilo::tile::Csr;
use cellsilo::{Error, Result};
use serde::Serialize;

use crate::pipeline::{GeneOrder, Progress};
use crate::rows::canonical;

/// A kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// AnnData in HDF5.
    H5ad,
    /// AnnData in a zarr folder (version 2, which all readers know).
    Zarr,
    /// A 10x mtx folder, gzipped, as Cell Ranger 3 writes it.
    Mtx,
}

impl Format {
    /// The format that a name asks for: `.h5ad`, `.zarr`, or a folder for mtx.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("h5ad" | "h5") => Self::H5ad,
            Some("zarr") => Self::Zarr,
            _ => Self::Mtx,
        }
    }
}

/// How to export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The kind of output.
    pub format: Format,
    /// Cells to take; `None` for all.
    pub cells: Option<Range<u64>>,
    /// Order of the genes: as stored, or as they were in the source.
    pub gene_order: GeneOrder,
    /// Whether arrays are compressed.
    pub compress: bool,
    /// Replaces the output.
    pub overwrite: bool,
    /// Set by somebody else to stop.
    pub interrupt: Arc<AtomicBool>,
}

/// What was exported.
#[derive(Debug, Serialize)]
pub struct ExportReport {
    /// The file or folder.
    pub output: PathBuf,
    /// Its kind.
    pub format: Format,
    /// Cells.
    pub n_cells: u64,
    /// Genes.
    pub n_genes: u64,
    /// Stored nonzeros.
    pub nnz: u64,
    /// Size of the output in bytes.
    pub bytes: u64,
}

/// What an exporter is told before the rows come.
struct Shape<'a> {
    cells: Range<u64>,
    nnz: u64,
    genes: &'a [String],
    compress: bool,
}

/// Takes the rows of an export, tile by tile.
trait Sink {
    fn push(&mut self, rows: &Csr<i32>) -> Result<()>;
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Exports the dataset in `folder` to `output`, which appears whole or not at all.
///
/// # Errors
/// [`Error::Refused`] if the output exists, [`Error::Usage`] for cells that are not there, faults of the
/// dataset, [`Error::Io`].
pub fn export(folder: &Path, output: &Path, options: &ExportOptions, progress: &dyn Progress) -> Result<ExportReport> {
    let dataset = Dataset::open(folder)?;
    let cells = options.cells.clone().unwrap_or(0..dataset.n_cells());
    if cells.start > cells.end || cells.end > dataset.n_cells() {
        return Err(Error::Usage(format!("cells {}:{} are not inside the dataset's 0:{}", cells.start, cells.end, dataset.n_cells())));
    }
    if output.exists() && !options.overwrite {
        return Err(Error::Refused(format!("{}: it exists already (--overwrite replaces it)", output.display())));
    }
    let order = if options.gene_order == GeneOrder::Source { dataset.gene_order()? } else { None };
    let names = gene_names(&dataset, order.as_deref())?;
    let nnz = count_nnz(&dataset, &cells)?;
    let temporary = output.with_file_name(format!(".{}.cellsilo-part", output.file_name().unwrap_or_default().to_string_lossy()));
    remove(&temporary)?;
    let shape = Shape { cells: cells.clone(), nnz, genes: &names, compress: options.compress };
    let done =
        write(&dataset, &temporary, &shape, order.as_deref(), options, progress).and_then(|()| put(&temporary, output, options.format));
    if let Err(error) = done {
        let _ = remove(&temporary);
        return Err(error);
    }
    let bytes = crate::pipeline::size_of(output)?;
    Ok(ExportReport {
        output: output.to_owned(),
        format: options.format,
        n_cells: cells.end - cells.start,
        n_genes: dataset.n_genes(),
        nnz,
        bytes,
    })
}

fn write(
    dataset: &Dataset,
    temporary: &Path,
    shape: &Shape<'_>,
    order: Option<&[i32]>,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let mut sink: Box<dyn Sink> = match options.format {
        Format::H5ad => Box::new(h5ad::H5adSink::create(temporary, shape)?),
        Format::Zarr => Box::new(zarr::ZarrSink::create(temporary, shape)?),
        Format::Mtx => Box::new(mtx::MtxSink::create(temporary, shape)?),
    };
    progress.begin("exporting", shape.cells.end - shape.cells.start);
    for tile in tiles_of(dataset, &shape.cells) {
        if options.interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let rows = dataset.read_range::<i32>(tile.clone())?;
        let rows = match order {
            Some(order) => reorder(&rows, order)?,
            None => rows,
        };
        sink.push(&rows)?;
        progress.advance(tile.end - tile.start);
    }
    sink.finish()?;
    progress.end();
    Ok(())
}

/// The wanted cells of each tile.
fn tiles_of(dataset: &Dataset, cells: &Range<u64>) -> Vec<Range<u64>> {
    let parts = (0..dataset.n_tiles()).map(|t| dataset.tile_range(t)).map(|t| t.start.max(cells.start)..t.end.min(cells.end));
    parts.filter(|p| p.start < p.end).collect()
}

/// Genes back to their places in the source; each row is sorted again.
fn reorder(rows: &Csr<i32>, order: &[i32]) -> Result<Csr<i32>> {
    let map: Vec<u32> = order.iter().map(|&g| g as u32).collect();
    let indptr: Vec<usize> = rows.indptr.iter().map(|&p| p as usize).collect();
    let genes: Vec<u32> = rows.indices.iter().map(|&g| g as u32).collect();
    let counts: Vec<u32> = rows.data.iter().map(|&c| c as u32).collect();
    let sorted = canonical(&indptr, &genes, &counts, &map, &|row| format!("cell {row}"))?;
    let signed = |v: Vec<u32>| v.into_iter().map(|x| x as i32).collect();
    Ok(Csr { n_genes: rows.n_genes, indptr: sorted.indptr, indices: signed(sorted.genes), data: signed(sorted.counts) })
}

/// The names in the output's order; genes without names are numbered.
fn gene_names(dataset: &Dataset, order: Option<&[i32]>) -> Result<Vec<String>> {
    let stored = dataset.var_names()?.unwrap_or_else(|| (0..dataset.n_genes()).map(|g| format!("gene_{g}")).collect());
    let Some(order) = order else { return Ok(stored) };
    let mut names = vec![String::new(); stored.len()];
    stored.into_iter().zip(order).for_each(|(name, &gene)| names[gene as usize] = name);
    Ok(names)
}

/// Nonzeros of the cells: whole tiles by the manifest, parts of tiles by their indptr.
fn count_nnz(dataset: &Dataset, cells: &Range<u64>) -> Result<u64> {
    let mut sum = 0;
    for tile_index in 0..dataset.n_tiles() {
        let tile = dataset.tile_range(tile_index);
        let part = tile.start.max(cells.start)..tile.end.min(cells.end);
        if part.start >= part.end {
            continue;
        }
        if part == tile {
            sum += dataset.manifest().tile_nnz[tile_index];
            continue;
        }
        let bytes = dataset.read_tile_bytes(tile_index)?;
        let view = dataset.parse_tile(tile_index, &bytes)?;
        let limit = |cell: u64| view.indptr()[(cell - tile.start) as usize] as u64;
        sum += limit(part.end) - limit(part.start);
    }
    Ok(sum)
}

/// Moves what was written into place. What stood there is removed only now, and only if it is of the same kind.
fn put(temporary: &Path, output: &Path, format: Format) -> Result<()> {
    if output.is_dir() {
        let known = match format {
            Format::H5ad => false,
            Format::Zarr => [".zgroup", "zarr.json"].iter().any(|n| output.join(n).exists()),
            Format::Mtx => output.join("matrix.mtx.gz").exists(),
        };
        let empty = fs::read_dir(output).map_err(|e| Error::io(output, e))?.next().is_none();
        if !known && !empty {
            return Err(Error::Refused(format!("{}: the folder is not an earlier export, and it is not touched", output.display())));
        }
        fs::remove_dir_all(output).map_err(|e| Error::io(output, e))?;
    }
    fs::rename(temporary, output).map_err(|e| Error::io(output, e))
}

fn remove(path: &Path) -> Result<()> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// Names of the exported cells: their numbers in the dataset.
fn cell_names(cells: &Range<u64>) -> Vec<String> {
    cells.clone().map(|c| c.to_string()).collect()
}
