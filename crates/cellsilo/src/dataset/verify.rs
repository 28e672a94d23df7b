//! Every check of everything, and all faults rather than the first.

use std::fs;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use super::{Dataset, GENE_ORDER, VAR_NAMES};
use crate::error::{Error, Result};
use crate::tile::{Csr, TileView};

/// What a tile is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TileFacts {
    /// Genes (columns).
    pub n_genes: u32,
    /// Cells (rows).
    pub cells: u64,
    /// Stored nonzeros.
    pub nnz: u64,
    /// Size of the tile in bytes.
    pub bytes: u64,
}

/// Decodes a whole tile with every check and says what it is.
///
/// # Errors
/// [`Error::Invalid`] for the first fault.
pub fn check_tile(bytes: &[u8]) -> Result<TileFacts> {
    let view = TileView::parse(bytes)?;
    decode_chunks(&view)?;
    let header = view.header();
    Ok(TileFacts { n_genes: header.n_genes, cells: header.n_cells, nnz: header.nnz, bytes: bytes.len() as u64 })
}

/// Decodes chunk after chunk, so that memory stays at one chunk.
fn decode_chunks(view: &TileView<'_>) -> Result<()> {
    let mut rows = Csr::<i32>::default();
    (0..view.chunks().len()).try_for_each(|k| view.decode_chunk_into(k, &mut rows))
}

/// What [`verify`] found.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Tiles checked.
    pub tiles: usize,
    /// Cells in them.
    pub cells: u64,
    /// Nonzeros in them.
    pub nnz: u64,
    /// Bytes read.
    pub bytes: u64,
    /// One line a fault; empty if all is well.
    pub faults: Vec<String>,
}

/// Checks a dataset: the manifest, every check of every tile, gene order, gene names, and files that do not
/// belong there. `progress` is called with the bytes of each tile that is done, from several threads.
///
/// # Errors
/// Only if the manifest cannot be read at all; every other fault is in the report.
pub fn verify(folder: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<VerifyReport> {
    let dataset = Dataset::open_unchecked(folder)?;
    let mut report = VerifyReport::default();
    let results: Vec<Result<TileFacts>> = (0..dataset.n_tiles())
        .into_par_iter()
        .map(|t| {
            let result = verify_tile(&dataset, t);
            progress(dataset.manifest().tile_bytes[t]);
            result
        })
        .collect();
    for result in results {
        match result {
            Ok(facts) => {
                report.tiles += 1;
                report.cells += facts.cells;
                report.nnz += facts.nnz;
                report.bytes += facts.bytes;
            }
            Err(error) => report.faults.push(error.to_string()),
        }
    }
    report.faults.extend(dataset.gene_order().err().map(|e| e.to_string()));
    report.faults.extend(dataset.var_names().err().map(|e| e.to_string()));
    report.faults.extend(stray_files(&dataset)?);
    Ok(report)
}

fn verify_tile(dataset: &Dataset, tile_index: usize) -> Result<TileFacts> {
    let bytes = dataset.read_tile_bytes(tile_index)?;
    let view = dataset.parse_tile(tile_index, &bytes)?;
    decode_chunks(&view).map_err(|e| e.in_file(&dataset.tile_path(tile_index)))?;
    Ok(TileFacts { n_genes: view.header().n_genes, cells: view.header().n_cells, nnz: view.header().nnz, bytes: bytes.len() as u64 })
}

/// Tiles past the last, and optional files that the manifest denies: signs of a mixed-up folder.
fn stray_files(dataset: &Dataset) -> Result<Vec<String>> {
    let mut strays = Vec::new();
    let manifest = dataset.manifest();
    for (has, name) in [
        (manifest.has_gene_order, GENE_ORDER),
        (manifest.has_var_names, VAR_NAMES),
        (manifest.has_var_table, "var.parquet"),
        (manifest.has_obs, "obs/schema.json"),
    ] {
        let path = dataset.folder().join(name);
        if path.exists() != has {
            strays.push(format!(
                "{}: the file {}, the manifest says it {}",
                path.display(),
                if has { "is missing" } else { "exists" },
                if has { "exists" } else { "does not" }
            ));
        }
    }
    let tiles = dataset.folder().join("tiles");
    if !tiles.is_dir() {
        return Ok(strays);
    }
    let known: std::collections::HashSet<_> = (0..dataset.n_tiles()).map(|t| dataset.tile_path(t)).collect();
    for entry in fs::read_dir(&tiles).map_err(|e| Error::io(&tiles, e))? {
        let path = entry.map_err(|e| Error::io(&tiles, e))?.path();
        if !known.contains(&path) {
            strays.push(format!("{}: no tile of this dataset has this name", path.display()));
        }
    }
    strays.sort();
    Ok(strays)
}
