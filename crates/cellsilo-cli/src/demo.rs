//! `cellsilo demo`: the main job on a sample that the project ships, in seconds.

use std::path::PathBuf;
use std::time::Instant;

use cellsilo::dataset::{Dataset, verify};
use cellsilo::tile::Csr;
use cellsilo::{Error, Result};
use cellsilo_convert::shuffle::Permutation;
use cellsilo_convert::{ConvertOptions, Silent, convert};
use serde_json::json;

use crate::convert::text;
use crate::human::{bytes, count, print, print_json, three_digits};
use crate::{Context, Outcome};

/// Real cells; testdata/README.md says where they come from.
const SAMPLE: &[u8] = include_bytes!("../../../testdata/demo.h5");
/// Cells of a batch of the shuffled pass.
const BATCH: u64 = 64;

/// Convert a real sample, verify it, compare its size, and stream its cells in random order
#[derive(clap::Args)]
#[command(after_help = "Example:\n  cellsilo demo --keep demo.silo    # and look around in it")]
pub(crate) struct Args {
    /// Keep the dataset in this folder
    #[arg(long, value_name = "OUT")]
    keep: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Outcome> {
    let folder = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), e))?;
    let source = folder.path().join("demo.h5");
    std::fs::write(&source, SAMPLE).map_err(|e| Error::io(&source, e))?;
    let output = args.keep.clone().unwrap_or_else(|| folder.path().join("demo.silo"));
    let report = convert(std::slice::from_ref(&source), &output, &ConvertOptions::default(), &Silent)?;
    let check = verify(&output, &|_| ())?;
    let (cells, counts, seconds) = shuffled_pass(&Dataset::open(&output)?)?;
    let good = check.faults.is_empty() && cells == report.n_cells;
    if context.json {
        print_json(
            &json!({"convert": report, "verify": check, "shuffled_pass": {"cells": cells, "total_counts": counts, "seconds": seconds}}),
        )?;
    } else {
        let mut out = String::from("1. convert a real file (80 human cells of the sample of the celltypist package)\n");
        text(&report).lines().for_each(|line| out.push_str(&format!("   {line}\n")));
        out.push_str(&format!("2. verify: {}\n", if check.faults.is_empty() { "all is well".into() } else { check.faults.join("; ") }));
        out.push_str(&format!(
            "3. size: {} as gzipped 10x h5, {} in tiles ({}%)\n",
            bytes(report.input_bytes),
            bytes(report.output_bytes),
            three_digits(100.0 * report.output_bytes as f64 / report.input_bytes as f64)
        ));
        out.push_str(&format!(
            "4. one pass in random order: {} cells, {} counts in batches of {BATCH}, {} cells/s\n",
            count(cells),
            count(counts),
            count((cells as f64 / seconds) as u64)
        ));
        out.push_str("Next: cellsilo convert YOUR.h5ad -o YOUR.silo\n");
        print(&out)?;
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Reads the tiles in a random order, and the cells of each in a random order, in batches. Returns cells, the
/// sum of all counts, and seconds.
fn shuffled_pass(dataset: &Dataset) -> Result<(u64, u64, f64)> {
    let started = Instant::now();
    let (mut tile, mut batch) = (Csr::<f32>::default(), Csr::<f32>::empty(dataset.n_genes()));
    let (mut cells, mut total) = (0, 0.0);
    let tiles = Permutation::new(dataset.n_tiles() as u64, 1);
    for t in 0..dataset.n_tiles() as u64 {
        dataset.read_tile_into(tiles.apply(t) as usize, &mut tile)?;
        let order = Permutation::new(tile.n_cells() as u64, t + 2);
        for first in (0..tile.n_cells() as u64).step_by(BATCH as usize) {
            batch.indptr.truncate(1);
            batch.indices.clear();
            batch.data.clear();
            (first..(first + BATCH).min(tile.n_cells() as u64)).for_each(|i| batch.push_row_of(&tile, order.apply(i) as usize));
            cells += batch.n_cells() as u64;
            total += batch.data.iter().map(|&c| f64::from(c)).sum::<f64>();
        }
    }
    Ok((cells, total as u64, started.elapsed().as_secs_f64()))
}
