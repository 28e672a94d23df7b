//! AnnData in HDF5 (h5ad) and zarr, in every layout that anndata has written since 0.5.

use std::sync::Arc;

use cellsilo::{Error, Result};
use serde_json::Value;

use super::dense::Dense;
use super::sparse::Sparse;
use super::{Label, Matrix, Source, SourceOptions, all_features, check_shape, column_texts};
use crate::store::{Node, Store};

/// Whether the root looks like an AnnData object.
pub(super) fn is_anndata(store: &dyn Store) -> bool {
    store.attribute_text("", "encoding-type").as_deref() == Some("anndata")
        || (store.node("obs").is_some() && store.node("var").is_some())
        || (store.node("X").is_some() && store.node("var").is_some())
}

/// How a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Csr,
    Csc,
    Dense,
}

/// The layout of the matrix at `path`, or `None` if there is no matrix.
fn layout(store: &dyn Store, path: &str) -> Result<Option<Layout>> {
    match store.node(path) {
        None => Ok(None),
        Some(Node::Array) => {
            let empty = store.attribute_text(path, "encoding-type").as_deref() == Some("null");
            Ok((!empty).then_some(Layout::Dense))
        }
        Some(Node::Group) => {
            let encoding = store.attribute_text(path, "encoding-type").or_else(|| store.attribute_text(path, "h5sparse_format"));
            match encoding.as_deref() {
                Some("csr_matrix" | "csr") => Ok(Some(Layout::Csr)),
                Some("csc_matrix" | "csc") => Ok(Some(Layout::Csc)),
                Some("null") => Ok(None),
                other => {
                    Err(store.fault(format!("{path} is a matrix of type {other:?}, expected csr_matrix, csc_matrix or a dense array")))
                }
            }
        }
    }
}

/// A matrix by the name that users know and where it is.
struct Candidate {
    name: String,
    path: String,
    var: String,
}

/// The place of a matrix; `raw/X` was `raw.X` before anndata 0.7.
fn candidate(store: &dyn Store, name: &str) -> Candidate {
    let raw = matches!(name, "raw/X" | "raw.X");
    let old = raw && store.node("raw/X").is_none() && store.node("raw.X").is_some();
    let (name, path, var) = match (raw, old) {
        (true, true) => ("raw/X", "raw.X", "raw.var"),
        (true, false) => ("raw/X", "raw/X", "raw/var"),
        _ => (name, name, "var"),
    };
    Candidate { name: name.into(), path: path.into(), var: var.into() }
}

fn names_of_matrices(store: &dyn Store) -> Vec<String> {
    let layers = store.children("layers").into_iter().map(|name| format!("layers/{name}"));
    let fixed = ["X", "raw/X"].into_iter().map(str::to_owned);
    fixed.chain(layers).filter(|name| matches!(layout(store, &candidate(store, name).path), Ok(Some(_)))).collect()
}

/// Opens the chosen matrix; `auto` takes the first of layers/counts, raw/X and X that exists, after `skip`.
pub(super) fn open(store: Box<dyn Store>, options: &SourceOptions, skip: usize) -> Result<Source> {
    let store: Arc<dyn Store> = store.into();
    let auto = matches!(options.matrix.as_str(), "" | "auto");
    let there = || {
        let names = names_of_matrices(&*store);
        if names.is_empty() { "it has no matrix at all".to_owned() } else { format!("it has {}", names.join(", ")) }
    };
    let chosen = if auto {
        let mut existing = Vec::new();
        for name in ["layers/counts", "raw/X", "X"] {
            let candidate = candidate(&*store, name);
            if layout(&*store, &candidate.path)?.is_some() {
                existing.push(candidate);
            }
        }
        let n = existing.len();
        existing.into_iter().nth(skip).ok_or_else(|| {
            let tried = if n == 0 {
                "no matrix: none of layers/counts, raw/X and X exists"
            } else {
                "no matrix of counts is left among layers/counts, raw/X and X"
            };
            Error::Refused(format!("{}: {tried}; {}", store.path().display(), there()))
        })?
    } else {
        let candidate = candidate(&*store, &options.matrix);
        if !matches!(candidate.name.as_str(), "X" | "raw/X") && !candidate.name.starts_with("layers/") {
            return Err(Error::Usage(format!("--matrix {}: expected auto, X, raw/X or layers/NAME", options.matrix)));
        }
        candidate
    };
    let Some(layout) = layout(&*store, &chosen.path)? else {
        return Err(Error::Refused(format!("{}: no matrix {}; {}", store.path().display(), chosen.name, there())));
    };
    let mut notices = Vec::new();
    if auto && (skip > 0 || chosen.name != "X") {
        notices.push(format!("{}: read {} (chosen by --matrix auto)", store.path().display(), chosen.name));
    }
    build(store, &chosen, layout, options, notices)
}

fn build(store: Arc<dyn Store>, chosen: &Candidate, layout: Layout, options: &SourceOptions, notices: Vec<String>) -> Result<Source> {
    let names = gene_names(&*store, &chosen.var, options.gene_column.as_deref())?;
    let label = Label { path: store.path().to_owned(), matrix: chosen.name.clone(), features: Arc::new(names.clone()) };
    let (n_cells, n_genes) = shape(&*store, &chosen.path, layout)?;
    check_shape(store.path(), n_cells, n_genes, names.len())?;
    let matrix: Box<dyn Matrix> = match layout {
        Layout::Dense => Box::new(Dense::new(store.array(&chosen.path)?, 0, label)?),
        Layout::Csr => Box::new(Sparse::open(&*store, &chosen.path, n_cells, n_genes, true, label)?),
        Layout::Csc => Box::new(Sparse::open(&*store, &chosen.path, n_genes, n_cells, false, label)?),
    };
    let container = if store.path().is_dir() || store.path().extension().is_some_and(|e| e == "zip") { "AnnData zarr" } else { "h5ad" };
    let kind = match layout {
        Layout::Dense => format!("{container}, dense"),
        Layout::Csr => format!("{container}, CSR"),
        Layout::Csc => format!("{container}, CSC"),
    };
    let features = all_features(names.len());
    Ok(Source {
        path: store.path().to_owned(),
        kind,
        matrix_name: chosen.name.clone(),
        n_cells,
        n_features: n_genes,
        genes: names,
        features,
        notices,
        matrix,
    })
}

fn shape(store: &dyn Store, path: &str, layout: Layout) -> Result<(u64, u64)> {
    let shape: Vec<u64> = if layout == Layout::Dense {
        store.array(path)?.shape().to_vec()
    } else {
        let attribute = store.attribute(path, "shape").or_else(|| store.attribute(path, "h5sparse_shape"));
        attribute.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    match shape.as_slice() {
        &[n_cells, n_genes] => Ok((n_cells, n_genes)),
        _ => Err(store.fault(format!("{path} has the shape {shape:?}, expected cells and genes"))),
    }
}

/// The index of the var table, or one of its columns.
fn gene_names(store: &dyn Store, table: &str, column: Option<&str>) -> Result<Vec<String>> {
    match store.node(table) {
        Some(Node::Array) => record_names(store, table, column),
        Some(Node::Group) => {
            let children = store.children(table);
            let name = match column {
                Some(name) if children.iter().any(|c| c == name) => name.to_owned(),
                Some(name) => return Err(no_column(store, table, name, &children)),
                None => store
                    .attribute_text(table, "_index")
                    .or_else(|| ["_index", "index"].into_iter().find(|n| children.iter().any(|c| c == n)).map(str::to_owned))
                    .ok_or_else(|| store.fault(format!("{table} does not say which column is its index")))?,
            };
            column_texts(store, &format!("{table}/{name}"))
        }
        None => Err(store.fault(format!("the gene table {table} is missing"))),
    }
}

/// Before anndata 0.7 a table was one array of records, with the index as its first field.
fn record_names(store: &dyn Store, table: &str, column: Option<&str>) -> Result<Vec<String>> {
    let fields = store.fields(table).ok_or_else(|| store.fault(format!("{table} is neither a group nor a table of records")))?;
    let name = match column {
        Some(name) if fields.iter().any(|f| f == name) => name,
        Some(name) => return Err(no_column(store, table, name, &fields)),
        None => fields.iter().find(|f| matches!(f.as_str(), "index" | "_index")).or(fields.first()).map(String::as_str).unwrap_or_default(),
    };
    store.field_strings(table, name)
}

fn no_column(store: &dyn Store, table: &str, name: &str, columns: &[String]) -> Error {
    let columns: Vec<&str> = columns.iter().map(String::as_str).filter(|c| *c != "__categories").collect();
    Error::Usage(format!("{}: {table} has no column {name:?} (--gene-column); it has {}", store.path().display(), columns.join(", ")))
}
