//! `cellsilo convert`.

use std::fmt::Write as _;
use std::path::PathBuf;

use cellsilo::dataset::WriteOptions;
use cellsilo::tile::{EncodeOptions, Preset};
use cellsilo::{Error, Result};
use cellsilo_convert::genes::{GeneOptions, Join, read_reference};
use cellsilo_convert::source::SourceOptions;
use cellsilo_convert::{ConvertOptions, ConvertReport, GeneOrder, convert};

use crate::human::{bytes, count, print, print_json, seconds, three_digits};
use crate::progress::{Bar, Unit};
use crate::{Context, Outcome};

/// Convert single-cell files into a dataset: h5ad, 10x h5, 10x mtx folders, AnnData zarr, loom
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cellsilo convert pbmc.h5ad -o pbmc.silo
  cellsilo convert pbmc.h5ad -o pbmc.silo --matrix raw/X --preset small
  cellsilo convert filtered_feature_bc_matrix.h5 -o pbmc.silo --feature-type all
  cellsilo convert GSE12345/ -o gse.silo --prefix all --gene-column gene_ids
  cellsilo convert a.h5ad b.h5ad c.zarr -o atlas.silo --join inner --shuffle 1
  cellsilo convert big.h5ad -o big.silo --resume      # after an interruption")]
pub(crate) struct Args {
    /// Files and folders to read; several make one dataset
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Folder to write
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// auto, X, raw/X or layers/NAME; auto takes the first of layers/counts, raw/X and X that holds counts
    #[arg(long, default_value = "auto", help_heading = "What to read")]
    matrix: String,
    /// Genome of a 10x file with several
    #[arg(long, help_heading = "What to read")]
    genome: Option<String>,
    /// Feature type of a 10x file, or all [default: "Gene Expression" where there is a choice]
    #[arg(long, value_name = "NAME", help_heading = "What to read")]
    feature_type: Option<String>,
    /// Sample of a 10x mtx folder with several (GSM1 for GSM1_matrix.mtx.gz), or all
    #[arg(long, help_heading = "What to read")]
    prefix: Option<String>,
    /// Column of the gene table to name genes by (gene_ids, ...) [default: its index; symbols for 10x]
    #[arg(long, value_name = "NAME", help_heading = "Genes")]
    gene_column: Option<String>,
    /// Which genes several inputs share
    #[arg(long, value_enum, default_value_t = JoinArg::Outer, help_heading = "Genes")]
    join: JoinArg,
    /// File with the genes to keep, one a line; those an input lacks become empty columns
    #[arg(long, value_name = "FILE", help_heading = "Genes")]
    genes: Option<PathBuf>,
    /// Give repeated gene names suffixes, as anndata does
    #[arg(long, help_heading = "Genes")]
    make_unique: bool,
    /// Order of the stored genes: by decreasing total counts (smallest), or the source's
    #[arg(long, value_enum, default_value_t = OrderArg::Counts, help_heading = "Genes")]
    gene_order: OrderArg,
    /// Write the cells of all inputs in a random order
    #[arg(long, value_name = "SEED", help_heading = "How to write")]
    shuffle: Option<u64>,
    /// Cells in a tile
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), help_heading = "How to write")]
    tile_size: u64,
    /// Chunks in a tile: the unit of parallel decoding and of reading a few cells
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "How to write")]
    chunks: u32,
    /// How hard to compress
    #[arg(long, value_enum, default_value_t = PresetArg::Balanced, help_heading = "How to write")]
    preset: PresetArg,
    /// One of zstd's own levels instead of a preset
    #[arg(long, value_name = "LEVEL", conflicts_with = "preset", value_parser = clap::value_parser!(i32).range(1..=22), help_heading = "How to write")]
    zstd_level: Option<i32>,
    /// Go on with an interrupted conversion
    #[arg(long, help_heading = "How to write")]
    resume: bool,
    /// Replace a dataset; the old one stays until the new one is complete
    #[arg(long, help_heading = "How to write")]
    overwrite: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum JoinArg {
    Outer,
    Inner,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OrderArg {
    Counts,
    Source,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PresetArg {
    Fast,
    Balanced,
    Small,
}

impl Args {
    fn options(&self, context: &Context) -> Result<ConvertOptions> {
        let preset = match (self.zstd_level, self.preset) {
            (Some(level), _) => Preset::Level(level),
            (None, PresetArg::Fast) => Preset::Fast,
            (None, PresetArg::Balanced) => Preset::Balanced,
            (None, PresetArg::Small) => Preset::Small,
        };
        Ok(ConvertOptions {
            source: SourceOptions {
                matrix: self.matrix.clone(),
                genome: self.genome.clone(),
                feature_type: self.feature_type.clone(),
                prefix: self.prefix.clone(),
                gene_column: self.gene_column.clone(),
            },
            genes: GeneOptions {
                join: if matches!(self.join, JoinArg::Inner) { Join::Inner } else { Join::Outer },
                reference: self.genes.as_deref().map(read_reference).transpose()?,
                make_unique: self.make_unique,
            },
            gene_order: if matches!(self.gene_order, OrderArg::Source) { GeneOrder::Source } else { GeneOrder::Counts },
            shuffle: self.shuffle,
            write: WriteOptions {
                tile_size: self.tile_size,
                encode: EncodeOptions { n_chunks: self.chunks, preset, ..Default::default() },
            },
            resume: self.resume,
            overwrite: self.overwrite,
            interrupt: context.interrupt.clone(),
        })
    }
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Outcome> {
    let options = args.options(context)?;
    let bar = Bar::new(Unit::Cells, context.quiet);
    let result = convert(&args.inputs, &args.output, &options, &bar);
    drop(bar);
    match result {
        Ok(report) if context.json => print_json(&report)?,
        Ok(report) => print(&text(&report))?,
        Err(Error::Interrupted) => {
            eprintln!("cellsilo: {}: go on with the same command and --resume", args.output.display());
            return Err(Error::Interrupted);
        }
        Err(error) => return Err(error),
    }
    Ok(Outcome::Good)
}

/// The closing report.
pub(crate) fn text(report: &ConvertReport) -> String {
    let mut out = String::new();
    for source in &report.sources {
        let _ = writeln!(
            out,
            "read     {} ({}, {}): {} cells, {} genes",
            source.path.display(),
            source.kind,
            source.matrix,
            count(source.cells),
            count(source.genes)
        );
    }
    let per = |n: u64| if n == 0 { 0.0 } else { report.output_bytes as f64 / n as f64 };
    let _ = writeln!(
        out,
        "wrote    {}: {} cells, {} genes, {} nonzeros in {} {}",
        report.output.display(),
        count(report.n_cells),
        count(report.n_genes),
        count(report.nnz),
        count(report.n_tiles),
        if report.n_tiles == 1 { "tile" } else { "tiles" }
    );
    let _ = writeln!(
        out,
        "size     {}: {} a cell, {} bytes a nonzero",
        bytes(report.output_bytes),
        bytes(per(report.n_cells) as u64),
        three_digits(per(report.nnz))
    );
    if report.input_bytes > 0 && report.output_bytes > 0 {
        let _ = writeln!(
            out,
            "ratio    the source, with all else it may hold, is {} times as large ({})",
            three_digits(report.input_bytes as f64 / report.output_bytes as f64),
            bytes(report.input_bytes)
        );
    }
    let total = report.scan_seconds + report.write_seconds;
    if total > 0.0 {
        let rate = (report.n_cells - report.resumed_cells) as f64 / total;
        let _ = writeln!(
            out,
            "time     {} ({} scanning, {} writing): {} cells/s",
            seconds(total),
            seconds(report.scan_seconds),
            seconds(report.write_seconds),
            count(rate as u64)
        );
    }
    if report.resumed_cells > 0 {
        let _ = writeln!(out, "resumed  {} cells stood there already and were checked", count(report.resumed_cells));
    }
    for notice in &report.notices {
        let _ = writeln!(out, "notice   {notice}");
    }
    out
}
