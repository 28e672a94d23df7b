//! Rows in, a dataset out: tiles are cut, encoded on all cores, and the manifest comes last.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::{Map, Value};

use super::folder::write_whole;
use super::verify::{TileFacts, check_tile};
use super::{GENE_ORDER, MANIFEST, VAR_NAMES};
use crate::error::{Error, Result};
use crate::format::{Manifest, gene_order, manifest, tile_name, var_names};
use crate::limits::MAX_GENES;
use crate::tile::{CsrBlock, EncodeOptions, encode_tile};

/// How to write a dataset.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Cells of every tile but the last.
    pub tile_size: u64,
    /// How to encode each tile.
    pub encode: EncodeOptions,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { tile_size: 10_000, encode: EncodeOptions::default() }
    }
}

/// Writes a dataset row by row.
///
/// Holds one tile that is filled and one that is encoded. Without [`finish`](Self::finish) no manifest is
/// written, and the folder is not a dataset.
#[derive(Debug)]
pub struct DatasetWriter {
    folder: PathBuf,
    n_genes: u32,
    options: WriteOptions,
    rows: Rows,
    tiles: Vec<TileFacts>,
    encoding: Option<Receiver<Result<(TileFacts, Rows)>>>,
    spare: Option<Rows>,
    gene_order: Option<Vec<i32>>,
    var_names: Option<Vec<String>>,
    metadata: Map<String, Value>,
}

/// Rows of the tile that is filled.
#[derive(Debug)]
struct Rows {
    indptr: Vec<i64>,
    indices: Vec<u32>,
    data: Vec<u32>,
}

impl Rows {
    fn new() -> Self {
        Self { indptr: vec![0], indices: Vec::new(), data: Vec::new() }
    }

    fn clear(&mut self) {
        self.indptr.truncate(1);
        self.indices.clear();
        self.data.clear();
    }

    fn n_cells(&self) -> u64 {
        self.indptr.len() as u64 - 1
    }
}

impl DatasetWriter {
    /// Starts a dataset of `n_genes` genes in `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// [`Error::Usage`] for impossible options or if the folder already has a manifest; [`Error::Io`].
    pub fn create(folder: impl AsRef<Path>, n_genes: u32, options: WriteOptions) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        if n_genes == 0 || u64::from(n_genes) > MAX_GENES {
            return Err(Error::Usage(format!("{n_genes} genes, allowed are 1 to {MAX_GENES}")));
        }
        if options.tile_size == 0 {
            return Err(Error::Usage("the tile size is 0, it must be at least 1".into()));
        }
        if folder.join(MANIFEST).exists() {
            return Err(Error::Usage(format!("{} already holds a dataset", folder.display())));
        }
        let tiles = folder.join("tiles");
        fs::create_dir_all(&tiles).map_err(|e| Error::io(&tiles, e))?;
        Ok(Self {
            folder,
            n_genes,
            options,
            rows: Rows::new(),
            tiles: Vec::new(),
            encoding: None,
            spare: None,
            gene_order: None,
            var_names: None,
            metadata: Map::new(),
        })
    }

    /// Goes on with a dataset that was interrupted: whole tiles that stand in the folder from the first on,
    /// pass every check and have exactly the tile size and genes are kept. Returns the number of cells that
    /// need not be pushed again.
    ///
    /// # Errors
    /// As [`create`](Self::create). A damaged tile is not an error, it is written again.
    pub fn resume(folder: impl AsRef<Path>, n_genes: u32, options: WriteOptions) -> Result<(Self, u64)> {
        let mut writer = Self::create(folder, n_genes, options)?;
        loop {
            let path = writer.folder.join(tile_name(writer.tiles.len()));
            let Ok(bytes) = fs::read(&path) else { break };
            match check_tile(&bytes) {
                Ok(facts) if facts.cells == writer.options.tile_size && facts.n_genes == n_genes => writer.tiles.push(facts),
                _ => break,
            }
        }
        let cells = writer.tiles.len() as u64 * writer.options.tile_size;
        Ok((writer, cells))
    }

    /// Says that output column `j` was column `order[j]` of the source.
    pub fn set_gene_order(&mut self, order: Vec<i32>) {
        self.gene_order = Some(order);
    }

    /// Names the genes in output column order.
    pub fn set_var_names(&mut self, names: Vec<String>) {
        self.var_names = Some(names);
    }

    /// Adds a key to the manifest's `metadata`.
    pub fn set_metadata(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    /// Appends rows. Row `r` is the entries `indptr[r]..indptr[r + 1]`; `indptr` may start anywhere in the
    /// arrays, so that a part of a larger block can be pushed. In each row, genes increase strictly.
    ///
    /// # Errors
    /// [`Error::Usage`] if the block is not consistent (the order of genes is checked when the tile is
    /// encoded), or what encoding and writing an earlier tile gave.
    pub fn push_rows(&mut self, indptr: &[i64], indices: &[u32], data: &[u32]) -> Result<()> {
        let inside = |p: i64| usize::try_from(p).is_ok_and(|p| p <= indices.len());
        if indptr.is_empty()
            || indices.len() != data.len()
            || !indptr.is_sorted()
            || !inside(indptr[0])
            || !inside(indptr[indptr.len() - 1])
        {
            return Err(Error::Usage(format!(
                "the rows are not consistent: {} limits, {} gene indices, {} counts",
                indptr.len(),
                indices.len(),
                data.len()
            )));
        }
        let mut row = 0;
        while row + 1 < indptr.len() {
            let room = (self.options.tile_size - self.rows.n_cells()) as usize;
            let end = (indptr.len() - 1).min(row + room);
            self.append(&indptr[row..=end], indices, data);
            row = end;
            if self.rows.n_cells() == self.options.tile_size {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn append(&mut self, indptr: &[i64], indices: &[u32], data: &[u32]) {
        let range = indptr[0] as usize..indptr[indptr.len() - 1] as usize;
        let shift = self.rows.indices.len() as i64 - indptr[0];
        self.rows.indptr.extend(indptr[1..].iter().map(|p| p + shift));
        self.rows.indices.extend_from_slice(&indices[range.clone()]);
        self.rows.data.extend_from_slice(&data[range]);
    }

    /// Cells pushed so far, those of resumed tiles included.
    pub fn n_cells(&self) -> u64 {
        self.tiles.len() as u64 * self.options.tile_size
            + self.rows.n_cells()
            + if self.encoding.is_some() { self.options.tile_size } else { 0 }
    }

    /// Hands the filled tile to the encoder, after the one before is on disk.
    fn flush(&mut self) -> Result<()> {
        self.settle()?;
        let mut next = self.spare.take().unwrap_or_else(Rows::new);
        next.clear();
        let rows = std::mem::replace(&mut self.rows, next);
        let (n_genes, encode, path) = (self.n_genes, self.options.encode, self.folder.join(tile_name(self.tiles.len())));
        let (send, receive) = sync_channel(1);
        // The receiver is gone only if the writer was dropped: then nobody wants the tile.
        let work = move || drop(send.send(write_tile(&path, n_genes, &rows, &encode).map(|facts| (facts, rows))));
        if rayon::current_thread_index().is_some() {
            // On a thread of the pool, waiting for a job of the same pool could wait for ever.
            work();
        } else {
            rayon::spawn(work);
        }
        self.encoding = Some(receive);
        Ok(())
    }

    /// Waits for the tile that is being encoded.
    fn settle(&mut self) -> Result<()> {
        let Some(receive) = self.encoding.take() else { return Ok(()) };
        let result = receive.recv().unwrap_or_else(|_| Err(Error::Refused("the encoder stopped unexpectedly".into())));
        let (facts, rows) = result?;
        self.tiles.push(facts);
        self.spare = Some(rows);
        Ok(())
    }

    /// Writes the last tile, the gene order, the gene names and, by rename, the manifest.
    ///
    /// # Errors
    /// [`Error::Usage`] if the gene order or the names do not fit; otherwise as [`push_rows`](Self::push_rows).
    pub fn finish(mut self) -> Result<Manifest> {
        if self.rows.n_cells() > 0 {
            self.flush()?;
        }
        self.settle()?;
        self.remove_later_tiles()?;
        let n_genes = u64::from(self.n_genes);
        if let Some(order) = &self.gene_order {
            let bytes = gene_order::to_bytes(order);
            gene_order::parse(&bytes, n_genes).map_err(|e| Error::Usage(e.to_string()))?;
            write_whole(&self.folder.join(GENE_ORDER), &bytes)?;
        }
        if let Some(names) = &self.var_names {
            if names.len() as u64 != n_genes {
                return Err(Error::Usage(format!("{} gene names for {n_genes} genes", names.len())));
            }
            write_whole(&self.folder.join(VAR_NAMES), var_names::to_text(names)?.as_bytes())?;
        }
        let manifest = self.manifest();
        manifest.check()?;
        write_whole(&self.folder.join(MANIFEST), &manifest.to_json())?;
        Ok(manifest)
    }

    /// Tiles past the end, left by an interrupted conversion of other data, would only confuse.
    fn remove_later_tiles(&self) -> Result<()> {
        for tile_index in self.tiles.len().. {
            let path = self.folder.join(tile_name(tile_index));
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                Err(e) => return Err(Error::io(path, e)),
            }
        }
        Ok(())
    }

    fn manifest(&self) -> Manifest {
        let column = |get: fn(&TileFacts) -> u64| self.tiles.iter().map(get).collect::<Vec<_>>();
        let tile_cells = column(|t| t.cells);
        Manifest {
            format: manifest::FORMAT.into(),
            version: manifest::VERSION,
            n_cells: tile_cells.iter().sum(),
            n_genes: u64::from(self.n_genes),
            tile_size: self.options.tile_size,
            tile_cells,
            tile_nnz: column(|t| t.nnz),
            tile_bytes: column(|t| t.bytes),
            n_chunks: u64::from(self.options.encode.n_chunks),
            zstd_level: self.options.encode.preset.zstd_level(),
            has_gene_order: self.gene_order.is_some(),
            has_var_names: self.var_names.is_some(),
            has_var_table: false,
            has_obs: false,
            obs_tiles_per_file: None,
            obs_shard_bytes: None,
            obs_shard_sha256: None,
            obs_fingerprint: None,
            metadata: self.metadata.clone(),
            unknown: Map::new(),
        }
    }
}

/// Waits for the tile under way, so that nobody finds two writers in one folder. Its outcome does not matter: without
/// a manifest there is no dataset, and a good tile can be resumed from.
impl Drop for DatasetWriter {
    fn drop(&mut self) {
        if let Some(receive) = self.encoding.take() {
            let _ = receive.recv();
        }
    }
}

fn write_tile(path: &Path, n_genes: u32, rows: &Rows, encode: &EncodeOptions) -> Result<TileFacts> {
    let block = CsrBlock { n_genes, indptr: &rows.indptr, indices: &rows.indices, data: &rows.data };
    let bytes = encode_tile(&block, encode).map_err(|e| e.in_file(path))?;
    write_whole(path, &bytes)?;
    Ok(TileFacts { n_genes, cells: rows.n_cells(), nnz: rows.indices.len() as u64, bytes: bytes.len() as u64 })
}
