//! `cellsilo tile`: single tiles, for a look inside and for tests from outside.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use cellsilo::dataset::check_tile;
use cellsilo::tile::{Csr, TileView};
use cellsilo::{Error, Result};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::human::{bytes, count, print, print_json};
use crate::{Context, Outcome};

/// Look at single tiles
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Decode a tile: with --json, print n_genes, indptr, indices and data
    #[command(after_help = "Example:\n  cellsilo tile decode pbmc.silo/tiles/tile_000000.dct --json | jq .indptr[-1]")]
    Decode {
        /// The tile
        file: PathBuf,
    },
    /// Check tiles, with every check there is
    #[command(after_help = "Exit status: 0 if all are well, 1 if one is not.\n\nExample:\n  cellsilo tile verify pbmc.silo/tiles/*.dct")]
    Verify {
        /// The tiles
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show the header, the chunk table and the sizes of the streams
    #[command(after_help = "Example:\n  cellsilo tile inspect pbmc.silo/tiles/tile_000000.dct")]
    Inspect {
        /// The tile
        file: PathBuf,
    },
}

pub(crate) fn run(command: &Command, context: &Context) -> Result<Outcome> {
    match command {
        Command::Decode { file } => decode(file, context),
        Command::Verify { files } => verify(files, context),
        Command::Inspect { file } => inspect(file, context),
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|e| Error::io(file, e))
}

fn decode(file: &Path, context: &Context) -> Result<Outcome> {
    let bytes = read(file)?;
    let mut rows = Csr::<i32>::default();
    TileView::parse(&bytes).and_then(|view| view.decode_into(&mut rows)).map_err(|e| e.in_file(file))?;
    if context.json {
        let value = json!({"n_genes": rows.n_genes, "indptr": rows.indptr, "indices": rows.indices, "data": rows.data});
        print(&format!("{value}\n"))?;
    } else {
        let mut out = String::from("cell\tgene\tcount\n");
        for cell in 0..rows.n_cells() {
            let (genes, counts) = rows.row(cell);
            genes.iter().zip(counts).for_each(|(gene, count)| out.push_str(&format!("{cell}\t{gene}\t{count}\n")));
            if out.len() > 1 << 20 {
                print(&std::mem::take(&mut out))?;
            }
        }
        print(&out)?;
    }
    Ok(Outcome::Good)
}

fn verify(files: &[PathBuf], context: &Context) -> Result<Outcome> {
    let mut good = true;
    let mut all = Vec::new();
    for file in files {
        let result = read(file).and_then(|bytes| check_tile(&bytes)).map_err(|e| e.in_file(file));
        good &= result.is_ok();
        let line = match &result {
            Ok(facts) => {
                format!("{}: good: {} cells, {} nonzeros, {}\n", file.display(), count(facts.cells), count(facts.nnz), bytes(facts.bytes))
            }
            Err(error) => format!("{error}\n"),
        };
        match result {
            _ if !context.json => print(&line)?,
            Ok(facts) => all.push(json!({"file": file, "good": true, "facts": facts})),
            Err(error) => all.push(json!({"file": file, "good": false, "fault": error.to_string()})),
        }
    }
    if context.json {
        print_json(&all)?;
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

fn inspect(file: &Path, context: &Context) -> Result<Outcome> {
    let data = read(file)?;
    let view = TileView::parse(&data).map_err(|e| e.in_file(file))?;
    let header = view.header();
    if context.json {
        let span = |r: &std::ops::Range<u64>| json!({"offset": r.start, "bytes": r.end - r.start});
        let chunks: Vec<Value> = view
            .chunks()
            .iter()
            .map(|c| json!({"cells": [c.cells.start, c.cells.end], "nnz": [c.nnz.start, c.nnz.end], "gaps": span(&c.gaps), "vals": span(&c.vals), "vexc": span(&c.vexc), "gexc": span(&c.gexc)}))
            .collect();
        print_json(&json!({
            "n_cells": header.n_cells, "nnz": header.nnz, "n_genes": header.n_genes, "n_chunks": header.n_chunks, "indptr_off": header.indptr_off,
            "total_size": header.total_size, "crc32": format!("{:08x}", header.crc32), "chunks": chunks,
        }))?;
        return Ok(Outcome::Good);
    }
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}", file.display(), bytes(header.total_size));
    let _ = writeln!(
        out,
        "  cells {}, genes {}, nonzeros {}, chunks {}",
        count(header.n_cells),
        count(header.n_genes.into()),
        count(header.nnz),
        header.n_chunks
    );
    let _ = writeln!(out, "  indptr at byte {}, crc32 {:08x}", header.indptr_off, header.crc32);
    let _ = writeln!(
        out,
        "  {:>5} {:>17} {:>12} {:>11} {:>11} {:>9} {:>9} {:>10}",
        "chunk", "cells", "nonzeros", "gaps", "vals", "vexc", "gexc", "bytes/nnz"
    );
    for (k, c) in view.chunks().iter().enumerate() {
        let len = |r: &std::ops::Range<u64>| r.end - r.start;
        let sizes = [len(&c.gaps), len(&c.vals), len(&c.vexc), len(&c.gexc)];
        let per = sizes.iter().sum::<u64>() as f64 / c.len().max(1) as f64;
        let cells = format!("{}..{}", c.cells.start, c.cells.end);
        let _ = writeln!(
            out,
            "  {k:>5} {cells:>17} {:>12} {:>11} {:>11} {:>9} {:>9} {per:>10.3}",
            count(c.len()),
            bytes(sizes[0]),
            bytes(sizes[1]),
            bytes(sizes[2]),
            bytes(sizes[3])
        );
    }
    print(&out)?;
    Ok(Outcome::Good)
}
