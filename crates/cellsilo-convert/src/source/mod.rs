//! Where the counts of a file are: a matrix that streams its cells, and its genes.

mod anndata;
mod dense;
mod loom;
mod mtx;
mod sparse;
mod tenx;

use std::path::{Path, PathBuf};

use cellsilo::{Error, Result};

use crate::store::{self, Node, Store};
use crate::values::{Dtype, NotACount, counts};

/// What to read of an input.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// `auto` (or empty), `X`, `raw/X`, `layers/NAME`.
    pub matrix: String,
    /// Genome of a 10x file with several.
    pub genome: Option<String>,
    /// Feature type of a 10x file, or `all`; by default "Gene Expression" where there is a choice.
    pub feature_type: Option<String>,
    /// Prefix of a 10x mtx folder with several samples, or `all`.
    pub prefix: Option<String>,
    /// The var column with the gene keys, instead of the index (symbols for 10x).
    pub gene_column: Option<String>,
}

/// Some cells of a matrix. Genes may be unsorted and repeated, and counts may be 0.
#[derive(Debug)]
pub enum Block {
    /// Whole cells, in order: cell `first_cell + r` is the entries `indptr[r]..indptr[r + 1]`.
    Rows {
        /// Index of the first cell.
        first_cell: u64,
        /// Row limits from 0.
        indptr: Vec<usize>,
        /// Feature of each entry.
        genes: Vec<u32>,
        /// Count of each entry.
        counts: Vec<u32>,
    },
    /// Single entries in any order.
    Entries {
        /// Cell of each entry.
        cells: Vec<u32>,
        /// Feature of each entry.
        genes: Vec<u32>,
        /// Count of each entry.
        counts: Vec<u32>,
    },
}

/// A matrix of counts, streamed in blocks of bounded size.
pub trait Matrix: Send {
    /// Whether it yields [`Block::Rows`], from the first cell to the last.
    fn is_cell_major(&self) -> bool;
    /// About how many entries there are, zeros of sparse matrices included.
    fn n_entries(&self) -> u64;
    /// Yields all cells from `from_cell` on (all of them if it is not cell-major) and returns how many counts
    /// were not integers to the last bit.
    ///
    /// # Errors
    /// [`Error::NotCounts`] for a value that is not a count; what `visit` gives; faults of the file.
    fn stream(&self, from_cell: u64, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<u64>;
}

/// An opened input.
pub struct Source {
    /// File or folder.
    pub path: PathBuf,
    /// What it is, in words: "h5ad", "10x h5 (Cell Ranger 3)", ...
    pub kind: String,
    /// The matrix that is read.
    pub matrix_name: String,
    /// Number of cells.
    pub n_cells: u64,
    /// Number of features in the file; the blocks' genes are below this.
    pub n_features: u64,
    /// Keys of the genes that are kept, in the source's order.
    pub genes: Vec<String>,
    /// Feature of each gene.
    pub features: Vec<u32>,
    /// What the user should know.
    pub notices: Vec<String>,
    /// The counts.
    pub matrix: Box<dyn Matrix>,
}

impl Source {
    /// Says which options for 10x inputs do nothing here; they may be meant for another input.
    fn with_unused(mut self, options: &SourceOptions) -> Self {
        for (flag, value) in [("--genome", &options.genome), ("--feature-type", &options.feature_type), ("--prefix", &options.prefix)] {
            if value.is_some() {
                self.notices.push(format!("{}: {flag} is for 10x inputs and does nothing here", self.path.display()));
            }
        }
        self
    }
}

/// Opens `path` by its content. `skip` is the number of matrices that `auto` passes over, because they turned
/// out not to hold counts. A 10x mtx folder with several samples gives several sources.
///
/// # Errors
/// [`Error::Refused`] if there is no such matrix; [`Error::Usage`] if a choice is needed; faults of the file.
pub fn open(path: &Path, options: &SourceOptions, skip: usize) -> Result<Vec<Source>> {
    // Files with one matrix have no other to try.
    let only = |path: &Path| if skip == 0 { Ok(()) } else { Err(Error::Refused(format!("{}: it has no other matrix", path.display()))) };
    if let Some(files) = mtx::find(path, options)? {
        only(path)?;
        return files.into_iter().map(|files| mtx::open(&files, options)).collect();
    }
    if path.is_file() && path.extension().is_none_or(|e| e != "zip") && store::starts_with(path, 4)?.is_empty() {
        return Err(Error::invalid("the file is empty").in_file(path));
    }
    let store: Box<dyn Store> = store::open(path)?;
    let one = |source: Result<Source>| source.map(|s| vec![s]);
    let not_10x = |source: Result<Source>| source.map(|s| vec![s.with_unused(options)]);
    if tenx::is_version_3(&*store) {
        only(path)?;
        one(tenx::open_version_3(store, options))
    } else if loom::is_loom(&*store) {
        not_10x(loom::open(store, options, skip))
    } else if anndata::is_anndata(&*store) {
        not_10x(anndata::open(store, options, skip))
    } else if !tenx::genomes(&*store).is_empty() {
        only(path)?;
        one(tenx::open_version_2(store, options))
    } else {
        let found = store.children("").join(", ");
        Err(store
            .fault(format!("neither AnnData, 10x nor loom: at its root are {}", if found.is_empty() { "no groups".into() } else { found })))
    }
}

/// The error for a value that is not a count.
pub(crate) fn not_counts(path: &Path, matrix: &str, cell: u64, gene: &str, bad: NotACount) -> Error {
    let other = if matrix == "raw/X" { "layers/counts" } else { "raw/X" };
    Error::NotCounts(format!(
        "{}: {matrix} does not hold counts: cell {cell}, gene {gene} has {}, which {} (try --matrix {other}, if the file has it)",
        path.display(),
        bad.value,
        bad.why()
    ))
}

/// What a matrix says of itself in messages.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) path: PathBuf,
    pub(crate) matrix: String,
    /// Names of all features.
    pub(crate) features: std::sync::Arc<Vec<String>>,
}

impl Label {
    pub(crate) fn not_counts(&self, cell: u64, feature: u64, bad: NotACount) -> Error {
        let name = usize::try_from(feature).ok().and_then(|f| self.features.get(f));
        not_counts(&self.path, &self.matrix, cell, &name.map_or_else(|| feature.to_string(), Clone::clone), bad)
    }

    pub(crate) fn fault(&self, what: String) -> Error {
        Error::invalid(format!("{}: {what}", self.matrix)).in_file(&self.path)
    }

    /// Counts out of raw elements; `place` tells cell and feature of a position, for the message.
    pub(crate) fn counts(&self, bytes: &[u8], dtype: Dtype, place: impl FnOnce(usize) -> (u64, u64)) -> Result<(Vec<u32>, u64)> {
        match counts(bytes, dtype) {
            Ok(counts) => Ok((counts.values, counts.noisy)),
            Err(bad) => {
                let (cell, feature) = place(bad.position);
                Err(self.not_counts(cell, feature, bad))
            }
        }
    }
}

/// Text of a column of a table at `path`: strings of any kind, categories by their labels, numbers.
pub(crate) fn column_texts(store: &dyn Store, path: &str) -> Result<Vec<String>> {
    if store.node(path) == Some(Node::Array) {
        return match legacy_categories(store, path) {
            Some(categories) => labels(store, path, &categories),
            None => store.strings(path),
        };
    }
    match store.attribute_text(path, "encoding-type").as_deref() {
        Some("categorical") => labels(store, &format!("{path}/codes"), &format!("{path}/categories")),
        Some("nullable-string-array" | "nullable-integer" | "nullable-boolean") => masked(store, path),
        found => Err(store.fault(format!("{path} is a column of type {found:?}, which cannot be used as gene names"))),
    }
}

/// Before anndata 0.8, the categories of column C stood in `__categories/C` beside it.
fn legacy_categories(store: &dyn Store, path: &str) -> Option<String> {
    let (table, name) = path.rsplit_once('/')?;
    let categories = format!("{table}/__categories/{name}");
    (store.node(&categories) == Some(Node::Array) && store.array(path).is_ok()).then_some(categories)
}

fn labels(store: &dyn Store, codes: &str, categories: &str) -> Result<Vec<String>> {
    let labels = column_texts(store, categories)?;
    let codes = store.strings(codes)?;
    // Code -1 is a missing value.
    Ok(codes.iter().map(|code| code.parse().ok().and_then(|i: usize| labels.get(i)).cloned().unwrap_or_default()).collect())
}

fn masked(store: &dyn Store, path: &str) -> Result<Vec<String>> {
    let mut values = column_texts(store, &format!("{path}/values"))?;
    let mask = store.array(&format!("{path}/mask"))?.read_all()?;
    values.iter_mut().zip(mask).filter(|(_, missing)| *missing != 0).for_each(|(value, _)| value.clear());
    Ok(values)
}

/// Which names of the features a 10x input is keyed by. scanpy's index is the names (symbols).
pub(crate) enum GeneKey<'a> {
    Names,
    Ids,
    Other(&'a str),
}

impl<'a> GeneKey<'a> {
    /// `--gene-column` in the words of scanpy, Cell Ranger and Seurat.
    pub(crate) fn parse(column: Option<&'a str>) -> Self {
        match column {
            None | Some("gene_names" | "gene_name" | "name" | "names" | "gene_symbols") => Self::Names,
            Some("gene_ids" | "gene_id" | "id" | "ids") => Self::Ids,
            Some(other) => Self::Other(other),
        }
    }

    pub(crate) fn unknown(path: &Path, name: &str) -> Error {
        Error::Usage(format!("{}: no gene column {name:?} (--gene-column); 10x inputs have gene_ids and gene_names", path.display()))
    }
}

/// All genes, none left out.
pub(crate) fn all_features(n: usize) -> Vec<u32> {
    (0..n as u32).collect()
}

/// Keeps the features of the wanted type; by default "Gene Expression" where there are several types. What is
/// left out is counted by type in a notice.
pub(crate) fn filter_features(
    path: &Path,
    types: Option<&[String]>,
    wanted: Option<&str>,
    notices: &mut Vec<String>,
    keep: &dyn Fn(usize) -> bool,
    n: usize,
) -> Result<Vec<u32>> {
    const DEFAULT: &str = "Gene Expression";
    let Some(types) = types else {
        return Ok((0..n).filter(|&i| keep(i)).map(|i| i as u32).collect());
    };
    let mut by_type = std::collections::BTreeMap::<&str, usize>::new();
    (0..n).filter(|&i| keep(i)).for_each(|i| *by_type.entry(&types[i]).or_default() += 1);
    let list =
        |skip: &str| by_type.iter().filter(|(t, _)| **t != skip).map(|(t, n)| format!("{n} of type {t:?}")).collect::<Vec<_>>().join(", ");
    let wanted = match wanted {
        Some("all") => None,
        Some(name) if by_type.contains_key(name) => Some(name),
        Some(name) => return Err(Error::Usage(format!("{}: no features of type {name:?}; there are {}", path.display(), list("")))),
        None if by_type.len() > 1 && by_type.contains_key(DEFAULT) => Some(DEFAULT),
        None if by_type.len() > 1 => {
            return Err(Error::Usage(format!(
                "{}: several feature types, none of them {DEFAULT:?}: choose one with --feature-type NAME or all; there are {}",
                path.display(),
                list("")
            )));
        }
        None => None,
    };
    if let Some(wanted) = wanted.filter(|_| by_type.len() > 1) {
        notices.push(format!(
            "{}: kept the {} features of type {wanted:?}, left out {} (--feature-type all keeps them)",
            path.display(),
            by_type[wanted],
            list(wanted)
        ));
    }
    Ok((0..n).filter(|&i| keep(i) && wanted.is_none_or(|w| types[i] == w)).map(|i| i as u32).collect())
}

/// Checks shapes that come from a file.
pub(crate) fn check_shape(path: &Path, n_cells: u64, n_features: u64, n_names: usize) -> Result<()> {
    let bad = |what: String| Err(Error::invalid(what).in_file(path));
    if n_features != n_names as u64 {
        return bad(format!("the matrix has {n_features} genes, but {n_names} gene names"));
    }
    if n_features == 0 || n_features > cellsilo::limits::MAX_GENES {
        return bad(format!("the matrix has {n_features} genes, allowed are 1 to {}", cellsilo::limits::MAX_GENES));
    }
    if n_cells > u64::from(u32::MAX) {
        return bad(format!("the matrix has {n_cells} cells, at most {} are read from one input", u32::MAX));
    }
    Ok(())
}
