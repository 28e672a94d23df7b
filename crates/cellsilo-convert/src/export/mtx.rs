//! A 10x mtx folder as Cell Ranger 3 writes it: features by barcodes, all three files gzipped.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use cellsilo::tile::Csr;
use cellsilo::{Error, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use rayon::prelude::*;

use super::{Shape, Sink, cell_names};

/// Cells whose text one task makes.
const TASK_CELLS: usize = 256;

type Gz = GzEncoder<BufWriter<File>>;

pub(super) struct MtxSink {
    path: PathBuf,
    matrix: Gz,
    next_cell: u64,
}

fn create(path: &Path, compress: bool) -> Result<Gz> {
    let level = if compress { Compression::new(4) } else { Compression::none() };
    let file = File::create(path).map_err(|e| Error::io(path, e))?;
    Ok(GzEncoder::new(BufWriter::with_capacity(1 << 17, file), level))
}

fn finish(path: &Path, gz: Gz) -> Result<()> {
    gz.finish().and_then(|mut file| file.flush()).map_err(|e| Error::io(path, e))
}

fn write_lines(path: &Path, lines: impl Iterator<Item = String>, compress: bool) -> Result<()> {
    let mut gz = create(path, compress)?;
    for line in lines {
        writeln!(gz, "{line}").map_err(|e| Error::io(path, e))?;
    }
    finish(path, gz)
}

impl MtxSink {
    pub(super) fn create(folder: &Path, shape: &Shape<'_>) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        // A tab would break the table.
        let plain = |name: &String| name.replace('\t', " ");
        write_lines(
            &folder.join("features.tsv.gz"),
            shape.genes.iter().map(|g| format!("{0}\t{0}\tGene Expression", plain(g))),
            shape.compress,
        )?;
        write_lines(&folder.join("barcodes.tsv.gz"), cell_names(&shape.cells).into_iter(), shape.compress)?;
        let path = folder.join("matrix.mtx.gz");
        let mut matrix = create(&path, shape.compress)?;
        let n_cells = shape.cells.end - shape.cells.start;
        let banner = format!(
            "%%MatrixMarket matrix coordinate integer general\n%metadata_json: {{\"software_version\": \"cellsilo {}\", \"format_version\": 2}}\n{} {n_cells} {}\n",
            env!("CARGO_PKG_VERSION"),
            shape.genes.len(),
            shape.nnz
        );
        matrix.write_all(banner.as_bytes()).map_err(|e| Error::io(&path, e))?;
        Ok(Self { path, matrix, next_cell: 1 })
    }
}

impl Sink for MtxSink {
    fn push(&mut self, rows: &Csr<i32>) -> Result<()> {
        let first = self.next_cell;
        let starts: Vec<usize> = (0..rows.n_cells()).step_by(TASK_CELLS).collect();
        let texts: Vec<Vec<u8>> = starts
            .into_par_iter()
            .map(|start| {
                let mut text = Vec::new();
                for cell in start..(start + TASK_CELLS).min(rows.n_cells()) {
                    let (genes, counts) = rows.row(cell);
                    for (gene, count) in genes.iter().zip(counts) {
                        // Writing to memory does not fail.
                        let _ = writeln!(text, "{} {} {count}", i64::from(*gene) + 1, first + cell as u64);
                    }
                }
                text
            })
            .collect();
        for text in texts {
            self.matrix.write_all(&text).map_err(|e| Error::io(&self.path, e))?;
        }
        self.next_cell += rows.n_cells() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        finish(&self.path, self.matrix)
    }
}
