//! One or more inputs into a dataset, in two passes: a scan that checks every value and sums up the genes, and
//! one that writes the cells with their genes in order.

mod scan;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cellsilo::dataset::{DatasetWriter, WriteOptions};
use cellsilo::format::{Manifest, gene_order, var_names};
use cellsilo::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::genes::{GeneOptions, Join};
use crate::rows::canonical;
use crate::source::{Block, SourceOptions};
use scan::Scan;
use target::Target;

/// In which order the genes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GeneOrder {
    /// By decreasing total count, ties by source position: the smallest files.
    #[default]
    Counts,
    /// As in the source.
    Source,
}

/// How to convert.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// What to read of each input.
    pub source: SourceOptions,
    /// How the output's genes are chosen.
    pub genes: GeneOptions,
    /// In which order they are stored.
    pub gene_order: GeneOrder,
    /// Writes cells in a random order, over all inputs, for this seed.
    pub shuffle: Option<u64>,
    /// Tile size and encoder.
    pub write: WriteOptions,
    /// Goes on with an interrupted conversion.
    pub resume: bool,
    /// Replaces a dataset; the old one stays until the new one is whole.
    pub overwrite: bool,
    /// Set by somebody else to stop: the folder can be resumed.
    pub interrupt: Arc<AtomicBool>,
}

/// Told how far the work is.
pub trait Progress: Sync {
    /// A pass over `cells` cells begins.
    fn begin(&self, pass: &str, cells: u64);
    /// So many more cells are done.
    fn advance(&self, cells: u64);
    /// The pass is over.
    fn end(&self);
}

/// Nobody is told.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _pass: &str, _cells: u64) {}
    fn advance(&self, _cells: u64) {}
    fn end(&self) {}
}

/// Bytes of a file, or of all files in a folder.
pub(crate) fn size_of(path: &Path) -> Result<u64> {
    Ok(target::size_and_time(path)?.0)
}

/// What an input was.
#[derive(Debug, Clone, Serialize)]
pub struct SourceReport {
    /// File or folder.
    pub path: PathBuf,
    /// What it is, in words.
    pub kind: String,
    /// The matrix that was read.
    pub matrix: String,
    /// Its cells.
    pub cells: u64,
    /// Its genes (features that were kept).
    pub genes: u64,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct ConvertReport {
    /// The dataset.
    pub output: PathBuf,
    /// The inputs.
    pub sources: Vec<SourceReport>,
    /// Cells written.
    pub n_cells: u64,
    /// Genes.
    pub n_genes: u64,
    /// Stored nonzeros.
    pub nnz: u64,
    /// Tiles.
    pub n_tiles: u64,
    /// Bytes of all tiles.
    pub output_bytes: u64,
    /// Bytes of all inputs.
    pub input_bytes: u64,
    /// Cells that stood already there (`resume`).
    pub resumed_cells: u64,
    /// Seconds of the first pass.
    pub scan_seconds: f64,
    /// Seconds of the second pass.
    pub write_seconds: f64,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Converts `inputs` into a dataset at `output`.
///
/// # Errors
/// [`Error::NotCounts`] if a matrix holds something else than counts, [`Error::Usage`] if a choice is needed,
/// [`Error::Refused`] if the output is in the way or the data do not fit the format, faults of the inputs, and
/// [`Error::Interrupted`]. After an error that another try could mend (interruption, I/O) the folder is left for
/// `resume`; after any other nothing is left.
pub fn convert(inputs: &[PathBuf], output: &Path, options: &ConvertOptions, progress: &dyn Progress) -> Result<ConvertReport> {
    if inputs.is_empty() {
        return Err(Error::Usage("no input is named".into()));
    }
    let state = state(inputs, options)?;
    let target = match Target::choose(output, &state, options.resume, options.overwrite)? {
        target::Choice::Write(target) => target,
        target::Choice::Done(manifest) => return Ok(already_done(output, &manifest)),
    };
    let started = Instant::now();
    let parent = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scan = scan::run(inputs, parent, options, progress)?;
    let scan_seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut report = scan.report(output, inputs, scan_seconds);
    match write(scan, &target, &state, options, progress, &mut report) {
        Ok(manifest) => {
            target.finish()?;
            report.write_seconds = started.elapsed().as_secs_f64();
            fill(&mut report, &manifest);
            Ok(report)
        }
        Err(error) => {
            // Tiles of an earlier run are never thrown away unasked.
            if !target.resumes() && !matches!(error, Error::Interrupted | Error::Io { .. }) {
                target.discard();
            }
            Err(error)
        }
    }
}

fn fill(report: &mut ConvertReport, manifest: &Manifest) {
    report.n_cells = manifest.n_cells;
    report.n_genes = manifest.n_genes;
    report.nnz = manifest.nnz();
    report.n_tiles = manifest.tile_cells.len() as u64;
    report.output_bytes = manifest.bytes();
}

fn already_done(output: &Path, manifest: &Manifest) -> ConvertReport {
    let mut report = ConvertReport {
        output: output.to_owned(),
        sources: Vec::new(),
        n_cells: 0,
        n_genes: 0,
        nnz: 0,
        n_tiles: 0,
        output_bytes: 0,
        input_bytes: 0,
        resumed_cells: manifest.n_cells,
        scan_seconds: 0.0,
        write_seconds: 0.0,
        notices: vec![format!("{}: this conversion had already finished; nothing was left to do", output.display())],
    };
    fill(&mut report, manifest);
    report
}

/// All that decides the bytes of the output: an interrupted conversion goes on only with the same.
fn state(inputs: &[PathBuf], options: &ConvertOptions) -> Result<Value> {
    let mut files = Vec::new();
    for path in inputs {
        let (bytes, modified) = target::size_and_time(path)?;
        files.push(json!({"path": path.to_string_lossy(), "bytes": bytes, "modified": modified}));
    }
    let source = &options.source;
    let mut reference = None;
    if let Some(genes) = &options.genes.reference {
        reference = Some(format!("{:08x} ({} genes)", crc32fast::hash(genes.join("\n").as_bytes()), genes.len()));
    }
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "sources": files,
        "options": {
            "matrix": if source.matrix.is_empty() { "auto" } else { &source.matrix },
            "genome": source.genome,
            "feature_type": source.feature_type,
            "prefix": source.prefix,
            "gene_column": source.gene_column,
            "join": if options.genes.join == Join::Inner { "inner" } else { "outer" },
            "genes": reference,
            "make_unique": options.genes.make_unique,
            "gene_order": if options.gene_order == GeneOrder::Counts { "counts" } else { "source" },
            "shuffle": options.shuffle,
            "tile_size": options.write.tile_size,
            "chunks": options.write.encode.n_chunks,
            "preset": options.write.encode.preset.name(),
        },
    }))
}

/// Order of the genes: `order[j]` is the joined gene of output column `j`.
fn order_genes(totals: &[u64], order: GeneOrder) -> Vec<i32> {
    let mut genes: Vec<i32> = (0..totals.len() as i32).collect();
    if order == GeneOrder::Counts {
        genes.sort_by_key(|&g| std::cmp::Reverse(totals[g as usize]));
    }
    genes
}

fn write(
    scan: Scan,
    target: &Target,
    state: &Value,
    options: &ConvertOptions,
    progress: &dyn Progress,
    report: &mut ConvertReport,
) -> Result<Manifest> {
    let order = order_genes(&scan.totals, options.gene_order);
    let mut rank = vec![0u32; order.len()];
    order.iter().enumerate().for_each(|(column, &gene)| rank[gene as usize] = column as u32);
    let n_genes = order.len() as u32;
    let folder = target.folder();
    let (mut writer, done) = if target.resumes() {
        DatasetWriter::resume(folder, n_genes, options.write.clone())?
    } else {
        (DatasetWriter::create(folder, n_genes, options.write.clone())?, 0)
    };
    target.write_state(state, &gene_order::to_bytes(&order))?;
    report.resumed_cells = done;
    let names = order.iter().map(|&g| &scan.names[g as usize]);
    let cleaned = names.clone().filter(|n| n.contains(var_names::breaks_line)).count();
    if cleaned > 0 {
        report.notices.push(format!("{cleaned} gene names held line breaks, which var_names.txt cannot store; they became spaces"));
    }
    writer.set_var_names(names.map(|n| var_names::clean(n).into_owned()).collect());
    writer.set_gene_order(order.clone());
    writer.set_metadata("cellsilo", state.clone());
    progress.begin("writing", scan.n_cells);
    progress.advance(done);
    let mut sink = Sink { writer, rank: &rank, done, summed: 0, options, progress };
    scan.replay(done, &mut sink)?;
    if sink.summed > 0 {
        report.notices.push(format!("warning: {} entries stood more than once for the same cell and gene and were summed", sink.summed));
    }
    let manifest = sink.writer.finish()?;
    progress.end();
    Ok(manifest)
}

/// Takes rows in the output's order of cells.
struct Sink<'a> {
    writer: DatasetWriter,
    /// Output column of each joined gene.
    rank: &'a [u32],
    /// Cells that are there already.
    done: u64,
    summed: u64,
    options: &'a ConvertOptions,
    progress: &'a dyn Progress,
}

impl Sink<'_> {
    /// Writes rows from cell `first` of the output on; those that are there already are passed over. `map` gives
    /// the output column of each gene.
    fn push(&mut self, first: u64, indptr: &[usize], genes: &[u32], counts: &[u32], map: &[u32], place: &str) -> Result<()> {
        let n = indptr.len() - 1;
        let mut row = self.done.saturating_sub(first).min(n as u64) as usize;
        // No more than a tile at once, so that an interruption is noticed between tiles.
        let step = usize::try_from(self.options.write.tile_size).unwrap_or(usize::MAX);
        while row < n {
            if self.options.interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let end = row.saturating_add(step).min(n);
            let rows = canonical(&indptr[row..=end], genes, counts, map, &|r| format!("{place}: cell {}", first + (row + r) as u64))?;
            self.writer.push_rows(&rows.indptr, &rows.genes, &rows.counts)?;
            self.summed += rows.summed;
            self.progress.advance((end - row) as u64);
            row = end;
        }
        Ok(())
    }
}

/// The joined gene of each feature of a source to the output column.
fn compose(map: &[u32], rank: &[u32]) -> Vec<u32> {
    map.iter().map(|&g| rank.get(g as usize).copied().unwrap_or(crate::genes::LEFT_OUT)).collect()
}

impl Scan {
    /// The second pass: all cells in the output's order.
    fn replay(self, done: u64, sink: &mut Sink<'_>) -> Result<()> {
        if let Some(spill) = self.shuffled {
            let rank = sink.rank;
            return spill
                .drain(&mut |first, (indptr, genes, counts)| sink.push(first, &indptr, &genes, &counts, rank, "the shuffled cells"));
        }
        let mut offset = 0;
        for input in self.inputs {
            let source = &input.source;
            let end = offset + source.n_cells;
            if end <= done {
                offset = end;
                continue;
            }
            let place = source.path.display().to_string();
            if let Some(spill) = input.spill {
                let rank = sink.rank;
                spill.drain(&mut |first, (indptr, genes, counts)| sink.push(offset + first, &indptr, &genes, &counts, rank, &place))?;
            } else {
                let map = compose(&input.map, sink.rank);
                source.matrix.stream(done.saturating_sub(offset), &mut |block| match block {
                    Block::Rows { first_cell, indptr, genes, counts } => {
                        sink.push(offset + first_cell, &indptr, &genes, &counts, &map, &place)
                    }
                    Block::Entries { .. } => Err(Error::Refused(format!("{place}: the file changed while it was read"))),
                })?;
            }
            offset = end;
        }
        Ok(())
    }
}
