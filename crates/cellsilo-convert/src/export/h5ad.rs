//! h5ad: the on-disk format of anndata 0.8 and later (anndata's "On disk format").

use std::path::{Path, PathBuf};

use cellsilo::tile::Csr;
use cellsilo::{Error, Result};
use hdf5_pure::{AttrValue, File, FileAccessProperties, FileBuilder, H5Element, MaxExtent, SyncPolicy};

use super::{Shape, Sink, cell_names};

/// Elements of a chunk: 128 KiB. hdf5-pure 0.47 stores extents above 65535 in four bytes, but libhdf5 2.0 refuses
/// a file where fewer would do.
const CHUNK: u64 = 1 << 15;
const LEVEL: u32 = 4;

pub(super) struct H5adSink {
    path: PathBuf,
    file: File,
    /// Elements that do not fill a chunk yet.
    data: Vec<i32>,
    indices: Vec<i32>,
    base: i64,
    indptr: Vec<i64>,
    wide: bool,
}

fn bad(path: &Path, e: impl std::fmt::Display) -> Error {
    Error::io(path, std::io::Error::other(format!("writing HDF5: {e}")))
}

fn encoding(kind: &str, version: &str) -> [(&'static str, AttrValue); 2] {
    [("encoding-type", AttrValue::VarLenString(kind.into())), ("encoding-version", AttrValue::VarLenString(version.into()))]
}

impl H5adSink {
    pub(super) fn create(path: &Path, shape: &Shape<'_>) -> Result<Self> {
        let mut builder = FileBuilder::new();
        encoding("anndata", "0.1.0").into_iter().for_each(|(k, v)| builder.set_attr(k, v));
        let n_cells = shape.cells.end - shape.cells.start;
        for (table, names) in [("obs", cell_names(&shape.cells)), ("var", shape.genes.to_vec())] {
            let mut group = builder.create_group(table);
            encoding("dataframe", "0.2.0").into_iter().for_each(|(k, v)| group.set_attr(k, v));
            group.set_attr("_index", AttrValue::VarLenString("_index".into()));
            group.set_attr("column-order", AttrValue::F64Array(Vec::new()));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let index = group.create_dataset("_index").with_vlen_strings(&names);
            encoding("string-array", "0.2.0").into_iter().for_each(|(k, v)| {
                index.set_attr(k, v);
            });
            builder.add_group(group.finish());
        }
        let mut x = builder.create_group("X");
        encoding("csr_matrix", "0.1.0").into_iter().for_each(|(k, v)| x.set_attr(k, v));
        x.set_attr("shape", AttrValue::I64Array(vec![n_cells as i64, shape.genes.len() as i64]));
        // scipy wants indices and indptr of one type, and int32 wherever it is enough.
        let wide = shape.nnz > i32::MAX as u64;
        for name in ["data", "indices", "indptr"] {
            let dataset = x.create_dataset(name);
            if wide && name != "data" {
                dataset.with_i64_data(&[])
            } else {
                dataset.with_i32_data(&[])
            };
            dataset.with_shape(&[0]).with_maxshape(&[MaxExtent::Unlimited]).with_chunks(&[CHUNK]);
            if shape.compress {
                dataset.with_deflate(LEVEL);
            }
        }
        builder.add_group(x.finish());
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            let mut group = builder.create_group(name);
            encoding("dict", "0.1.0").into_iter().for_each(|(k, v)| group.set_attr(k, v));
            builder.add_group(group.finish());
        }
        builder.write(path).map_err(|e| bad(path, e))?;
        let access = FileAccessProperties::new().with_sync_policy(SyncPolicy::OnClose);
        let file = File::open_rw_with_options(path, access).map_err(|e| bad(path, e))?;
        Ok(Self { path: path.to_owned(), file, data: Vec::new(), indices: Vec::new(), base: 0, indptr: vec![0], wide })
    }

    fn append<T: H5Element>(&self, name: &str, values: &[T]) -> Result<()> {
        let mut dataset = self.file.dataset(name).map_err(|e| bad(&self.path, e))?;
        dataset.append(values).map_err(|e| bad(&self.path, e))
    }

    /// Appends to `indices` or `indptr`, in their type.
    fn append_places(&self, name: &str, values: impl Iterator<Item = i64>) -> Result<()> {
        if self.wide {
            self.append(name, &values.collect::<Vec<i64>>())
        } else {
            self.append(name, &values.map(|v| v as i32).collect::<Vec<i32>>())
        }
    }

    /// Writes whole chunks, and at the end the rest.
    fn flush(&mut self, all: bool) -> Result<()> {
        let n = if all { self.data.len() } else { self.data.len() / CHUNK as usize * CHUNK as usize };
        if n > 0 {
            self.append("X/data", &self.data[..n])?;
            self.append_places("X/indices", self.indices[..n].iter().map(|&g| i64::from(g)))?;
            self.data.drain(..n);
            self.indices.drain(..n);
        }
        Ok(())
    }
}

impl Sink for H5adSink {
    fn push(&mut self, rows: &Csr<i32>) -> Result<()> {
        self.data.extend_from_slice(&rows.data);
        self.indices.extend_from_slice(&rows.indices);
        self.indptr.extend(rows.indptr[1..].iter().map(|p| p + self.base));
        self.base += rows.nnz() as i64;
        self.flush(false)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush(true)?;
        self.append_places("X/indptr", self.indptr.iter().copied())?;
        self.file.close().map_err(|e| bad(&self.path, e))
    }
}
