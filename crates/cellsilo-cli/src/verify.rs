//! `cellsilo verify`.

use std::path::PathBuf;

use cellsilo::Result;
use cellsilo::dataset::{Dataset, VerifyReport, verify};
use cellsilo_convert::Progress as _;

use crate::human::{bytes, count, print, print_json};
use crate::progress::{Bar, Unit};
use crate::{Context, Outcome};

/// Check everything in a dataset: manifest, every check of every tile, totals; report all faults
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 if all is well, 1 if there are faults.\n\nExample:\n  cellsilo verify pbmc.silo")]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Outcome> {
    let bar = Bar::new(Unit::Bytes, context.quiet);
    // A dataset that cannot be opened whole may still be checked tile by tile; the bar needs its size only.
    bar.begin("checking", Dataset::open(&args.dataset).map_or(0, |d| d.manifest().bytes()));
    let report = verify(&args.dataset, &|n| bar.advance(n))?;
    drop(bar);
    if context.json {
        print_json(&report)?;
    } else {
        print(&text(args, &report))?;
    }
    Ok(if report.faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

fn text(args: &Args, report: &VerifyReport) -> String {
    let sizes = format!(
        "{} tiles, {} cells, {} nonzeros, {}",
        count(report.tiles as u64),
        count(report.cells),
        count(report.nnz),
        bytes(report.bytes)
    );
    if report.faults.is_empty() {
        return format!("{}: all is well: {sizes}\n", args.dataset.display());
    }
    let mut out: String = report.faults.iter().map(|fault| format!("{fault}\n")).collect();
    out.push_str(&format!("{}: {} faults; without fault: {sizes}\n", args.dataset.display(), report.faults.len()));
    out
}
