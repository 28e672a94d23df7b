//! `cellsilo info`.

use std::fmt::Write as _;
use std::path::PathBuf;

use cellsilo::Result;
use cellsilo::dataset::Dataset;
use serde_json::json;

use crate::human::{bytes, count, print, print_json, three_digits};
use crate::{Context, Outcome};

/// Show what a dataset is: shape, sizes, genes, where it comes from
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cellsilo info pbmc.silo\n  cellsilo info pbmc.silo --json")]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Outcome> {
    let dataset = Dataset::open(&args.dataset)?;
    let genes = dataset.var_names()?.unwrap_or_default();
    let ordered = dataset.gene_order()?.is_some();
    let m = dataset.manifest();
    let per = |n: u64| if n == 0 { 0.0 } else { m.bytes() as f64 / n as f64 };
    if context.json {
        print_json(&json!({
            "path": args.dataset,
            "n_cells": m.n_cells,
            "n_genes": m.n_genes,
            "nnz": m.nnz(),
            "n_tiles": dataset.n_tiles(),
            "tile_size": m.tile_size,
            "n_chunks": m.n_chunks,
            "zstd_level": m.zstd_level,
            "tile_bytes": m.bytes(),
            "bytes_per_cell": per(m.n_cells),
            "bytes_per_nonzero": per(m.nnz()),
            "has_gene_order": m.has_gene_order,
            "has_var_names": m.has_var_names,
            "has_var_table": m.has_var_table,
            "has_obs": m.has_obs,
            "metadata": m.metadata,
        }))?;
        return Ok(Outcome::Good);
    }
    let mut out = String::new();
    let density = m.nnz() as f64 / (m.n_cells as f64 * m.n_genes as f64).max(1.0);
    let _ = writeln!(out, "{}", args.dataset.display());
    let _ = writeln!(out, "  cells      {}", count(m.n_cells));
    let _ = writeln!(
        out,
        "  genes      {}{}",
        count(m.n_genes),
        if ordered { ", stored in an order of their own (gene_order.npy)" } else { "" }
    );
    let _ = writeln!(
        out,
        "  nonzeros   {} ({} a cell, {}% of all entries)",
        count(m.nnz()),
        count(m.nnz() / m.n_cells.max(1)),
        three_digits(100.0 * density)
    );
    let _ = writeln!(
        out,
        "  size       {}: {} a cell, {} bytes a nonzero",
        bytes(m.bytes()),
        bytes(per(m.n_cells) as u64),
        three_digits(per(m.nnz()))
    );
    let _ = writeln!(out, "  tiles      {} of {} cells, {} chunks each", count(dataset.n_tiles() as u64), count(m.tile_size), m.n_chunks);
    if !genes.is_empty() {
        let first: Vec<&str> = genes.iter().take(6).map(String::as_str).collect();
        let _ = writeln!(out, "  gene names {}{}", first.join(", "), if genes.len() > 6 { ", ..." } else { "" });
    }
    let _ = writeln!(out, "  obs        {}", if m.has_obs { "yes" } else { "none" });
    if let Some(ours) = m.metadata.get("cellsilo") {
        let _ = writeln!(out, "  written by cellsilo {}", ours["version"].as_str().unwrap_or("?"));
        for source in ours["sources"].as_array().into_iter().flatten() {
            let _ =
                writeln!(out, "  source     {} ({})", source["path"].as_str().unwrap_or("?"), bytes(source["bytes"].as_u64().unwrap_or(0)));
        }
    }
    print(&out)?;
    Ok(Outcome::Good)
}
