//! `cellsilo export`.

use std::ops::Range;
use std::path::PathBuf;

use cellsilo::{Error, Result};
use cellsilo_convert::export::Format;
use cellsilo_convert::{ExportOptions, GeneOrder, export};

use crate::human::{bytes, count, print, print_json};
use crate::progress::{Bar, Unit};
use crate::{Context, Outcome};

/// Write a dataset, or some of its cells, as h5ad, AnnData zarr, or a 10x mtx folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cellsilo export pbmc.silo -o pbmc.h5ad
  cellsilo export pbmc.silo -o pbmc.zarr --cells 1000:2000
  cellsilo export pbmc.silo -o filtered_feature_bc_matrix      # a 10x mtx folder")]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// What to write: NAME.h5ad, NAME.zarr, or a folder
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Kind of output [default: by its name]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Cells A up to B, without B; either may be left out
    #[arg(long, value_name = "A:B", value_parser = parse_cells)]
    cells: Option<(Option<u64>, Option<u64>)>,
    /// Order of the genes: the source's, or as they are stored
    #[arg(long, value_enum, default_value_t = OrderArg::Source)]
    gene_order: OrderArg,
    /// Write arrays without compression
    #[arg(long)]
    no_compression: bool,
    /// Replace the output
    #[arg(long)]
    overwrite: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatArg {
    H5ad,
    Zarr,
    Mtx,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OrderArg {
    Source,
    Stored,
}

/// "A:B", "A:", ":B".
fn parse_cells(text: &str) -> std::result::Result<(Option<u64>, Option<u64>), String> {
    let (start, end) = text.split_once(':').ok_or("expected A:B, such as 0:1000")?;
    let number =
        |t: &str| if t.is_empty() { Ok(None) } else { t.parse().map(Some).map_err(|_| format!("{t:?} is not a number of a cell")) };
    Ok((number(start)?, number(end)?))
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Outcome> {
    let format = match args.format {
        Some(FormatArg::H5ad) => Format::H5ad,
        Some(FormatArg::Zarr) => Format::Zarr,
        Some(FormatArg::Mtx) => Format::Mtx,
        None => Format::of(&args.output),
    };
    let options = ExportOptions {
        format,
        cells: cells(&args)?,
        gene_order: if matches!(args.gene_order, OrderArg::Source) { GeneOrder::Source } else { GeneOrder::Counts },
        compress: !args.no_compression,
        overwrite: args.overwrite,
        interrupt: context.interrupt.clone(),
    };
    let bar = Bar::new(Unit::Cells, context.quiet);
    let report = export(&args.dataset, &args.output, &options, &bar)?;
    drop(bar);
    if context.json {
        print_json(&report)?;
    } else {
        print(&format!(
            "{}: {} cells, {} genes, {} nonzeros, {}\n",
            report.output.display(),
            count(report.n_cells),
            count(report.n_genes),
            count(report.nnz),
            bytes(report.bytes)
        ))?;
    }
    Ok(Outcome::Good)
}

fn cells(args: &Args) -> Result<Option<Range<u64>>> {
    let Some((start, end)) = args.cells else { return Ok(None) };
    let end = match end {
        Some(end) => end,
        None => cellsilo::dataset::Dataset::open(&args.dataset)?.n_cells(),
    };
    let start = start.unwrap_or(0);
    if start > end {
        return Err(Error::Usage(format!("--cells {start}:{end}: the first cell is behind the last")));
    }
    Ok(Some(start..end))
}
