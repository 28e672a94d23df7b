//! AnnData in a zarr folder of version 2, which zarr 2 and 3 read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellsilo::tile::Csr;
use cellsilo::{Error, Result};
use serde_json::{Value, json};
use zarrs::array::{Array, ArrayMetadata};
use zarrs::filesystem::FilesystemStore;

use super::{Shape, Sink, cell_names};

/// Elements of a chunk: 1 MiB.
const CHUNK: u64 = 1 << 18;

type Opened = Array<FilesystemStore>;

pub(super) struct ZarrSink {
    path: PathBuf,
    data: Column<i32>,
    places: Places,
    base: i64,
}

/// scipy wants indices and indptr of one type, and int32 wherever it is enough.
enum Places {
    Narrow { indices: Column<i32>, indptr: Column<i32> },
    Wide { indices: Column<i64>, indptr: Column<i64> },
}

impl Places {
    fn create(root: &Root, n_cells: u64, nnz: u64) -> Result<Self> {
        let (indices, indptr) = ("X/indices", "X/indptr");
        Ok(if nnz > i32::MAX as u64 {
            Self::Wide { indices: root.numbers(indices, "<i8", nnz)?, indptr: root.numbers(indptr, "<i8", n_cells + 1)? }
        } else {
            Self::Narrow { indices: root.numbers(indices, "<i4", nnz)?, indptr: root.numbers(indptr, "<i4", n_cells + 1)? }
        })
    }

    fn push(&mut self, path: &Path, genes: &[i32], limits: &[i64]) -> Result<()> {
        match self {
            Self::Wide { indices, indptr } => {
                indices.push(path, &genes.iter().map(|&g| i64::from(g)).collect::<Vec<_>>())?;
                indptr.push(path, limits)
            }
            Self::Narrow { indices, indptr } => {
                indices.push(path, genes)?;
                indptr.push(path, &limits.iter().map(|&p| p as i32).collect::<Vec<_>>())
            }
        }
    }

    fn finish(self, path: &Path) -> Result<()> {
        match self {
            Self::Wide { indices, indptr } => indices.finish(path).and_then(|()| indptr.finish(path)),
            Self::Narrow { indices, indptr } => indices.finish(path).and_then(|()| indptr.finish(path)),
        }
    }
}

/// An array that is filled from front to back.
struct Column<T> {
    array: Opened,
    chunk: u64,
    next: u64,
    held: Vec<T>,
}

fn bad(path: &Path, e: impl std::fmt::Display) -> Error {
    Error::io(path, std::io::Error::other(format!("writing zarr: {e}")))
}

impl<T: zarrs::array::Element + Copy + Default> Column<T> {
    fn push(&mut self, path: &Path, values: &[T]) -> Result<()> {
        self.held.extend_from_slice(values);
        while self.held.len() as u64 >= self.chunk {
            let rest = self.held.split_off(self.chunk as usize);
            let full = std::mem::replace(&mut self.held, rest);
            self.store(path, full)?;
        }
        Ok(())
    }

    fn finish(mut self, path: &Path) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut last = std::mem::take(&mut self.held);
        last.resize(self.chunk as usize, T::default());
        self.store(path, last)
    }

    fn store(&mut self, path: &Path, chunk: Vec<T>) -> Result<()> {
        self.array.store_chunk(&[self.next], chunk).map_err(|e| bad(path, e))?;
        self.next += 1;
        Ok(())
    }
}

/// A folder that becomes a zarr group.
struct Root {
    path: PathBuf,
    store: Arc<FilesystemStore>,
    compress: bool,
}

impl Root {
    fn file(&self, name: &str, value: &Value) -> Result<()> {
        let path = self.path.join(name);
        let folder = path.parent().unwrap_or(&self.path);
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        std::fs::write(&path, value.to_string()).map_err(|e| Error::io(path, e))
    }

    fn group(&self, name: &str, attributes: &Value) -> Result<()> {
        let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
        self.file(&format!("{prefix}.zgroup"), &json!({"zarr_format": 2}))?;
        self.file(&format!("{prefix}.zattrs"), attributes)
    }

    fn array(&self, name: &str, dtype: &str, n: u64, chunk: u64, filters: &Value, attributes: &Value) -> Result<Opened> {
        let compressor = if self.compress { json!({"id": "zstd", "level": 3, "checksum": false}) } else { Value::Null };
        let fill = if dtype == "|O" { json!("") } else { json!(0) };
        let metadata = json!({"zarr_format": 2, "shape": [n], "chunks": [chunk], "dtype": dtype, "compressor": compressor, "fill_value": fill, "order": "C", "filters": filters, "dimension_separator": "."});
        self.file(&format!("{name}/.zarray"), &metadata)?;
        self.file(&format!("{name}/.zattrs"), attributes)?;
        let metadata: ArrayMetadata = serde_json::from_value(metadata).map_err(|e| bad(&self.path, e))?;
        Array::new_with_metadata(self.store.clone(), &format!("/{name}"), metadata).map_err(|e| bad(&self.path, e))
    }

    fn numbers<T>(&self, name: &str, dtype: &str, n: u64) -> Result<Column<T>> {
        let chunk = n.clamp(1, CHUNK);
        let array = self.array(name, dtype, n, chunk, &Value::Null, &json!({"encoding-type": "array", "encoding-version": "0.2.0"}))?;
        Ok(Column { array, chunk, next: 0, held: Vec::new() })
    }

    fn strings(&self, name: &str, mut values: Vec<String>) -> Result<()> {
        let n = values.len() as u64;
        let chunk = n.clamp(1, CHUNK);
        let array = self.array(
            name,
            "|O",
            n,
            chunk,
            &json!([{"id": "vlen-utf8"}]),
            &json!({"encoding-type": "string-array", "encoding-version": "0.2.0"}),
        )?;
        for k in 0..n.div_ceil(chunk) {
            let rest = values.split_off(values.len().min(chunk as usize));
            let mut part = std::mem::replace(&mut values, rest);
            part.resize(chunk as usize, String::new());
            array.store_chunk(&[k], part).map_err(|e| bad(&self.path, e))?;
        }
        Ok(())
    }
}

impl ZarrSink {
    pub(super) fn create(path: &Path, shape: &Shape<'_>) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| Error::io(path, e))?;
        let store = Arc::new(FilesystemStore::new(path).map_err(|e| bad(path, e))?);
        let root = Root { path: path.to_owned(), store, compress: shape.compress };
        root.group("", &json!({"encoding-type": "anndata", "encoding-version": "0.1.0"}))?;
        for (table, names) in [("obs", cell_names(&shape.cells)), ("var", shape.genes.to_vec())] {
            root.group(table, &json!({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": []}))?;
            root.strings(&format!("{table}/_index"), names)?;
        }
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            root.group(name, &json!({"encoding-type": "dict", "encoding-version": "0.1.0"}))?;
        }
        let n_cells = shape.cells.end - shape.cells.start;
        root.group("X", &json!({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_cells, shape.genes.len()]}))?;
        let mut places = Places::create(&root, n_cells, shape.nnz)?;
        places.push(path, &[], &[0])?;
        Ok(Self { path: path.to_owned(), data: root.numbers("X/data", "<i4", shape.nnz)?, places, base: 0 })
    }
}

impl Sink for ZarrSink {
    fn push(&mut self, rows: &Csr<i32>) -> Result<()> {
        self.data.push(&self.path, &rows.data)?;
        let limits: Vec<i64> = rows.indptr[1..].iter().map(|p| p + self.base).collect();
        self.base += rows.nnz() as i64;
        self.places.push(&self.path, &rows.indices, &limits)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.data.finish(&self.path)?;
        self.places.finish(&self.path)
    }
}
