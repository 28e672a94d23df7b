//! Loom files: genes by cells, dense, with attributes of rows and columns (loompy's file format, version 3).

use std::sync::Arc;

use cellsilo::{Error, Result};

use super::dense::Dense;
use super::{Label, Source, SourceOptions, all_features, check_shape};
use crate::store::{Node, Store};

/// Whether there is a matrix with row and column attributes.
pub(super) fn is_loom(store: &dyn Store) -> bool {
    store.node("matrix") == Some(Node::Array)
        && store.node("row_attrs") == Some(Node::Group)
        && store.node("col_attrs") == Some(Node::Group)
}

/// Opens the main matrix or a layer; `auto` takes the layer "counts" if there is one, then the main matrix.
pub(super) fn open(store: Box<dyn Store>, options: &SourceOptions, skip: usize) -> Result<Source> {
    let candidates = match options.matrix.as_str() {
        "" | "auto" => ["layers/counts", "matrix"].into_iter().filter(|p| store.node(p) == Some(Node::Array)).map(str::to_owned).collect(),
        "X" | "matrix" => vec!["matrix".to_owned()],
        name => vec![name.to_owned()],
    };
    let path = candidates.into_iter().nth(skip).ok_or_else(|| {
        Error::Refused(format!("{}: no matrix of counts is left; its layers are {:?}", store.path().display(), store.children("layers")))
    })?;
    if store.node(&path) != Some(Node::Array) {
        return Err(Error::Refused(format!(
            "{}: no matrix {path}; it has matrix and the layers {:?}",
            store.path().display(),
            store.children("layers")
        )));
    }
    let names = gene_names(&*store, options.gene_column.as_deref())?;
    let label = Label { path: store.path().to_owned(), matrix: path.clone(), features: Arc::new(names.clone()) };
    let array = store.array(&path)?;
    let &[n_genes, n_cells] = array.shape() else {
        return Err(label.fault(format!("its shape is {:?}, expected genes and cells", array.shape())));
    };
    check_shape(store.path(), n_cells, n_genes, names.len())?;
    let features = all_features(names.len());
    let matrix = Dense::new(array, 1, label)?;
    Ok(Source {
        path: store.path().to_owned(),
        kind: "loom".into(),
        matrix_name: path,
        n_cells,
        n_features: n_genes,
        genes: names,
        features,
        notices: Vec::new(),
        matrix: Box::new(matrix),
    })
}

/// The row attribute "Gene", as scanpy's `read_loom`, unless another is asked for.
fn gene_names(store: &dyn Store, column: Option<&str>) -> Result<Vec<String>> {
    let known = store.children("row_attrs");
    let is_known = |name: &&str| known.iter().any(|k| k == name);
    let name = match column {
        Some("gene_ids") if !is_known(&"gene_ids") && is_known(&"Accession") => "Accession",
        Some(name) => name,
        None => ["Gene", "var_names", "gene_names", "Accession"].into_iter().find(is_known).unwrap_or("Gene"),
    };
    if !is_known(&name) {
        return Err(Error::Usage(format!(
            "{}: no row attribute {name:?} with gene names (--gene-column); there are {}",
            store.path().display(),
            known.join(", ")
        )));
    }
    store.strings(&format!("row_attrs/{name}"))
}
