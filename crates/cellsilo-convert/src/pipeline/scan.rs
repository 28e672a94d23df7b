//! The first pass: opens the inputs, joins their genes, checks every value, sums up each gene, and spills what
//! cannot be read in the order it is wanted.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use cellsilo::{Error, Result};

use super::{ConvertOptions, ConvertReport, Progress, SourceReport, target};
use crate::genes::{self, LEFT_OUT};
use crate::shuffle::Permutation;
use crate::source::{self, Block, Source};
use crate::spill::Spill;

/// An input with what the scan learned of it.
pub(super) struct Input {
    pub(super) source: Source,
    /// Joined gene of each feature, or [`LEFT_OUT`].
    pub(super) map: Vec<u32>,
    /// Its cells, with joined genes, if the file does not have them in order.
    pub(super) spill: Option<Spill>,
}

/// What the first pass found.
pub(super) struct Scan {
    pub(super) inputs: Vec<Input>,
    /// All cells in their shuffled places, with joined genes.
    pub(super) shuffled: Option<Spill>,
    /// Keys of the joined genes.
    pub(super) names: Vec<String>,
    /// Sum of the counts of each joined gene.
    pub(super) totals: Vec<u64>,
    pub(super) n_cells: u64,
    notices: Vec<String>,
}

/// Opens and scans the inputs. With `--matrix auto`, an input whose matrix turns out not to hold counts is tried
/// again with its next matrix.
pub(super) fn run(inputs: &[PathBuf], spill_parent: &Path, options: &ConvertOptions, progress: &dyn Progress) -> Result<Scan> {
    let auto = matches!(options.source.matrix.as_str(), "" | "auto");
    let mut skips = vec![0; inputs.len()];
    let mut reasons: Vec<String> = Vec::new();
    loop {
        let (sources, owners) = match open_all(inputs, &skips, options) {
            Ok(opened) => opened,
            Err(Error::Refused(what)) if !reasons.is_empty() => {
                // The only matrix there is needs no list.
                let text = if reasons.len() == 1 { reasons.remove(0) } else { format!("{what} ({})", reasons.join("; ")) };
                return Err(Error::NotCounts(text));
            }
            Err(error) => return Err(error),
        };
        let mut scan = Scan::plan(sources, options)?;
        scan.notices.extend(reasons.iter().map(|r| format!("passed over: {r}")));
        match scan.pass(spill_parent, options, progress) {
            Ok(()) => return Ok(scan),
            Err((at, Error::NotCounts(reason))) if auto => {
                skips[owners[at]] += 1;
                reasons.push(reason);
            }
            Err((_, error)) => return Err(error),
        }
    }
}

/// All sources, and the input that each comes from.
fn open_all(inputs: &[PathBuf], skips: &[usize], options: &ConvertOptions) -> Result<(Vec<Source>, Vec<usize>)> {
    let (mut sources, mut owners) = (Vec::new(), Vec::new());
    for (i, path) in inputs.iter().enumerate() {
        for source in source::open(path, &options.source, skips[i])? {
            sources.push(source);
            owners.push(i);
        }
    }
    Ok((sources, owners))
}

impl Scan {
    fn plan(sources: Vec<Source>, options: &ConvertOptions) -> Result<Self> {
        let keys: Vec<(String, Vec<String>)> = sources.iter().map(|s| (s.path.display().to_string(), s.genes.clone())).collect();
        let plan = genes::join(&keys, &options.genes)?;
        let n_cells = sources.iter().map(|s| s.n_cells).sum();
        let mut notices: Vec<String> = sources.iter().flat_map(|s| s.notices.clone()).collect();
        notices.extend(plan.notices);
        let inputs = sources.into_iter().zip(plan.maps).map(|(source, of_gene)| {
            let mut map = vec![LEFT_OUT; source.n_features as usize];
            source.features.iter().zip(of_gene).for_each(|(&feature, gene)| map[feature as usize] = gene);
            Input { source, map, spill: None }
        });
        Ok(Self { inputs: inputs.collect(), shuffled: None, totals: vec![0; plan.names.len()], names: plan.names, n_cells, notices })
    }

    /// Reads everything once. An error comes with the index of its source.
    fn pass(&mut self, spill_parent: &Path, options: &ConvertOptions, progress: &dyn Progress) -> std::result::Result<(), (usize, Error)> {
        let told = self.notices.len();
        // A source may turn out, on the way, not to have its cells in order; then all starts over, and that source
        // gives single entries. Each turn finds at least one such source, so this ends.
        while !self.try_pass(spill_parent, options, progress)? {
            self.notices.truncate(told);
        }
        Ok(())
    }

    /// Whether the pass came to its end.
    fn try_pass(
        &mut self,
        spill_parent: &Path,
        options: &ConvertOptions,
        progress: &dyn Progress,
    ) -> std::result::Result<bool, (usize, Error)> {
        self.totals.fill(0);
        let n_entries = self.inputs.iter().map(|i| i.source.matrix.n_entries()).fold(0, u64::saturating_add);
        let mut shuffle = match options.shuffle {
            Some(seed) => {
                let spill = Spill::create(spill_parent, self.n_cells, n_entries).map_err(|e| (0, e))?;
                Some((Permutation::new(self.n_cells, seed), spill))
            }
            None => None,
        };
        progress.begin("scanning", self.n_cells);
        let mut offset = 0;
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let in_order = input.source.matrix.is_cell_major();
            match input.scan(&mut self.totals, offset, shuffle.as_mut(), spill_parent, options, progress) {
                Ok(0) => {}
                Ok(noisy) => self.notices.push(format!(
                    "{}: {noisy} values were counts but for rounding noise (within {:e}) and were rounded",
                    input.source.path.display(),
                    crate::values::COUNT_TOLERANCE
                )),
                Err(_) if in_order && !input.source.matrix.is_cell_major() => return Ok(false),
                Err(error) => return Err((i, error)),
            }
            offset += input.source.n_cells;
        }
        progress.end();
        self.shuffled = shuffle.map(|(_, spill)| spill);
        Ok(true)
    }

    /// The report so far.
    pub(super) fn report(&self, output: &Path, inputs: &[PathBuf], scan_seconds: f64) -> ConvertReport {
        let sources = self.inputs.iter().map(|i| &i.source);
        let sources = sources.map(|s| SourceReport {
            path: s.path.clone(),
            kind: s.kind.clone(),
            matrix: s.matrix_name.clone(),
            cells: s.n_cells,
            genes: s.genes.len() as u64,
        });
        ConvertReport {
            output: output.to_owned(),
            sources: sources.collect(),
            n_cells: self.n_cells,
            n_genes: self.names.len() as u64,
            nnz: 0,
            n_tiles: 0,
            output_bytes: 0,
            input_bytes: inputs.iter().filter_map(|p| target::size_and_time(p).ok()).map(|s| s.0).sum(),
            resumed_cells: 0,
            scan_seconds,
            write_seconds: 0.0,
            notices: self.notices.clone(),
        }
    }
}

impl Input {
    /// Reads one input; its first cell is cell `offset` of all.
    fn scan(
        &mut self,
        totals: &mut [u64],
        offset: u64,
        mut shuffle: Option<&mut (Permutation, Spill)>,
        spill_parent: &Path,
        options: &ConvertOptions,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let matrix = &self.source.matrix;
        let mut own = None;
        if shuffle.is_none() && !matrix.is_cell_major() {
            own = Some(Spill::create(spill_parent, self.source.n_cells, matrix.n_entries())?);
        }
        let map = &self.map;
        let (mut row_genes, mut row_counts) = (Vec::new(), Vec::new());
        let (mut entries, n_entries, n_cells) = (0u64, matrix.n_entries().max(1), self.source.n_cells);
        let noisy = matrix.stream(0, &mut |block| {
            if options.interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            match block {
                Block::Rows { first_cell, indptr, genes, counts } => {
                    let joined = |g: u32| map[g as usize];
                    genes
                        .iter()
                        .zip(&counts)
                        .map(|(&g, &c)| (joined(g), c))
                        .filter(|e| e.0 != LEFT_OUT)
                        .for_each(|(g, c)| totals[g as usize] += u64::from(c));
                    if let Some((permutation, spill)) = shuffle.as_deref_mut() {
                        for row in 0..indptr.len() - 1 {
                            row_genes.clear();
                            row_counts.clear();
                            let range = indptr[row]..indptr[row + 1];
                            for (&g, &c) in
                                genes[range.clone()].iter().zip(&counts[range]).filter(|(g, c)| joined(**g) != LEFT_OUT && **c != 0)
                            {
                                row_genes.push(joined(g));
                                row_counts.push(c);
                            }
                            spill.push_row(permutation.apply(offset + first_cell + row as u64), &row_genes, &row_counts)?;
                        }
                    }
                    progress.advance(indptr.len() as u64 - 1);
                }
                Block::Entries { cells, genes, counts } => {
                    for ((&cell, &g), &c) in cells.iter().zip(&genes).zip(&counts) {
                        let gene = map[g as usize];
                        if gene == LEFT_OUT || c == 0 {
                            continue;
                        }
                        totals[gene as usize] += u64::from(c);
                        match (shuffle.as_deref_mut(), own.as_mut()) {
                            (Some((permutation, spill)), _) => spill.push(permutation.apply(offset + u64::from(cell)), gene, c)?,
                            (None, Some(spill)) => spill.push(u64::from(cell), gene, c)?,
                            (None, None) => return Err(Error::Refused("single entries came from a matrix that has whole cells".into())),
                        }
                    }
                    // Cells are spread over the entries: progress is by entries.
                    let done = |entries: u64| (u128::from(entries) * u128::from(n_cells) / u128::from(n_entries)) as u64;
                    progress.advance(done(entries + cells.len() as u64) - done(entries));
                    entries += cells.len() as u64;
                }
            }
            Ok(())
        })?;
        self.spill = own;
        Ok(noisy)
    }
}
