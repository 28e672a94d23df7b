//! 10x Genomics' HDF5 files: one group per genome (Cell Ranger 1 and 2), or a matrix with features (3 and
//! later). Both store the features of each barcode, so cells are the major axis.

use std::sync::Arc;

use cellsilo::{Error, Result};

use super::sparse::Sparse;
use super::{GeneKey, Label, Source, SourceOptions, check_shape, filter_features};
use crate::store::{Node, Store};
use crate::values::indices;

/// Whether there is a `matrix` group with features.
pub(super) fn is_version_3(store: &dyn Store) -> bool {
    store.node("matrix/features") == Some(Node::Group) && store.node("matrix/indptr") == Some(Node::Array)
}

/// Groups with a matrix of Cell Ranger 1 and 2.
pub(super) fn genomes(store: &dyn Store) -> Vec<String> {
    let is_matrix =
        |g: &String| ["indptr", "indices", "data", "genes"].iter().all(|name| store.node(&format!("{g}/{name}")) == Some(Node::Array));
    store.children("").into_iter().filter(is_matrix).collect()
}

fn shape(store: &dyn Store, group: &str) -> Result<(u64, u64)> {
    let array = store.array(&format!("{group}/shape"))?;
    let shape = if array.len() == 2 { indices(&array.read_all()?, array.dtype()) } else { None };
    match shape.as_deref() {
        Some(&[n_features, n_cells]) => Ok((n_features, n_cells)),
        _ => Err(store.fault(format!("{group}/shape does not hold the numbers of features and barcodes"))),
    }
}

/// Names or ids of all features: scanpy's index is the names.
fn keys(store: &dyn Store, column: Option<&str>, names: &str, ids: &str, others: &str) -> Result<Vec<String>> {
    match GeneKey::parse(column) {
        GeneKey::Names => store.strings(names),
        GeneKey::Ids => store.strings(ids),
        GeneKey::Other(name) if !others.is_empty() && store.node(&format!("{others}/{name}")) == Some(Node::Array) => {
            store.strings(&format!("{others}/{name}"))
        }
        GeneKey::Other(name) => Err(GeneKey::unknown(store.path(), name)),
    }
}

/// Opens a file of Cell Ranger 3 and later.
pub(super) fn open_version_3(store: Box<dyn Store>, options: &SourceOptions) -> Result<Source> {
    check_matrix_option(&*store, options)?;
    let optional = |name: &str| {
        (store.node(&format!("matrix/features/{name}")) == Some(Node::Array))
            .then(|| store.strings(&format!("matrix/features/{name}")))
            .transpose()
    };
    let names = keys(&*store, options.gene_column.as_deref(), "matrix/features/name", "matrix/features/id", "matrix/features")?;
    let (types, genomes) = (optional("feature_type")?, optional("genome")?);
    let mut notices = Vec::new();
    for (column, values) in [("feature_type", &types), ("genome", &genomes)] {
        if values.as_ref().is_some_and(|v| v.len() != names.len()) {
            return Err(store.fault(format!("matrix/features/{column} does not have a value for each of the {} features", names.len())));
        }
    }
    if let Some(genome) = &options.genome {
        let mut known: Vec<&String> = genomes.iter().flatten().filter(|g| !g.is_empty()).collect();
        known.sort();
        known.dedup();
        if !known.contains(&genome) {
            return Err(Error::Usage(format!("{}: no genome {genome:?}; there is {known:?}", store.path().display())));
        }
    }
    let in_genome = |i: usize| options.genome.as_ref().is_none_or(|g| genomes.as_ref().is_none_or(|all| &all[i] == g));
    let features = filter_features(store.path(), types.as_deref(), options.feature_type.as_deref(), &mut notices, &in_genome, names.len())?;
    build(&*store, "matrix", "10x h5 (Cell Ranger 3 or later)", names, features, notices)
}

/// Opens a file of Cell Ranger 1 or 2.
pub(super) fn open_version_2(store: Box<dyn Store>, options: &SourceOptions) -> Result<Source> {
    check_matrix_option(&*store, options)?;
    let genomes = genomes(&*store);
    let genome = match (&options.genome, genomes.as_slice()) {
        (Some(wanted), known) if known.contains(wanted) => wanted.clone(),
        (Some(wanted), known) => {
            return Err(Error::Usage(format!("{}: no genome {wanted:?}; there are {}", store.path().display(), known.join(", "))));
        }
        (None, [one]) => one.clone(),
        (None, several) => {
            return Err(Error::Usage(format!(
                "{}: several genomes: choose one with --genome; there are {}",
                store.path().display(),
                several.join(", ")
            )));
        }
    };
    let names = keys(&*store, options.gene_column.as_deref(), &format!("{genome}/gene_names"), &format!("{genome}/genes"), "")?;
    let features = super::all_features(names.len());
    build(&*store, &genome, "10x h5 (Cell Ranger 1 or 2)", names, features, Vec::new())
}

fn check_matrix_option(store: &dyn Store, options: &SourceOptions) -> Result<()> {
    match options.matrix.as_str() {
        "" | "auto" | "X" => Ok(()),
        other => Err(Error::Refused(format!("{}: no matrix {other}: a 10x file has one matrix only", store.path().display()))),
    }
}

fn build(store: &dyn Store, group: &str, kind: &str, names: Vec<String>, features: Vec<u32>, notices: Vec<String>) -> Result<Source> {
    let (n_features, n_cells) = shape(store, group)?;
    check_shape(store.path(), n_cells, n_features, names.len())?;
    let label = Label { path: store.path().to_owned(), matrix: group.to_owned(), features: Arc::new(names.clone()) };
    let matrix = Sparse::open(store, group, n_cells, n_features, true, label)?;
    let genes = features.iter().map(|&f| names[f as usize].clone()).collect();
    Ok(Source {
        path: store.path().to_owned(),
        kind: kind.into(),
        matrix_name: group.into(),
        n_cells,
        n_features,
        genes,
        features,
        notices,
        matrix: Box::new(matrix),
    })
}
