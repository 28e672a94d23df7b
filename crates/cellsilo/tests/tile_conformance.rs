//! The vectors in ../shared/conformance/tiles: every valid tile decodes to its JSON, every other is refused
//! with a message about its fault.

use std::path::{Path, PathBuf};

use cellsilo::tile::{Count, Csr, CsrBlock, EncodeOptions, Preset, TileView, encode_tile};
use serde_json::Value;

fn folder(kind: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/tiles").join(kind);
    path.is_dir().then_some(path)
}

fn tiles(kind: &str) -> Vec<PathBuf> {
    let Some(folder) = folder(kind) else { return Vec::new() };
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "dct")).collect();
    files.sort();
    assert!(files.len() > 10, "the conformance folder has lost its tiles");
    files
}

fn decode<T: Count>(bytes: &[u8]) -> cellsilo::Result<Csr<T>> {
    let mut out = Csr::default();
    TileView::parse(bytes)?.decode_into(&mut out)?;
    Ok(out)
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect()
}

#[test]
fn valid_tiles_decode_to_their_json() {
    for path in tiles("valid") {
        let expected: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let rows = decode::<i32>(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(rows.n_genes as i64, expected["n_genes"].as_i64().unwrap(), "{}", path.display());
        assert_eq!(rows.indptr, numbers(&expected["indptr"]), "{}", path.display());
        assert_eq!(rows.indices.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), numbers(&expected["indices"]), "{}", path.display());
        assert_eq!(rows.data.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), numbers(&expected["data"]), "{}", path.display());
        let floats = decode::<f32>(&bytes).unwrap();
        assert_eq!(floats.data, rows.data.iter().map(|&v| v as f32).collect::<Vec<_>>());
        parts_agree_with_the_whole(&bytes, &rows);
        encoding_again_gives_the_same_rows(&rows);
    }
}

fn parts_agree_with_the_whole(bytes: &[u8], rows: &Csr<i32>) {
    let view = TileView::parse(bytes).unwrap();
    let mut joined = Csr::empty(rows.n_genes);
    let mut part = Csr::default();
    for k in 0..view.chunks().len() {
        view.decode_chunk_into(k, &mut part).unwrap();
        joined.append(&part);
    }
    assert_eq!(&joined, rows);
    assert!(view.decode_chunk_into(view.chunks().len(), &mut part).is_err());
    let n = rows.n_cells();
    for (a, b) in [(0, n), (n / 3, n / 2), (n / 2, n), (n, n), (n / 3, (n / 3 + 1).min(n))] {
        view.decode_cells_into(a..b, &mut part).unwrap();
        let mut expected = Csr::empty(rows.n_genes);
        (a..b).for_each(|cell| expected.push_row_of(rows, cell));
        assert_eq!(part, expected, "cells {a}..{b}");
    }
    assert!(view.decode_cells_into(0..n + 1, &mut part).is_err());
}

fn encoding_again_gives_the_same_rows(rows: &Csr<i32>) {
    let Ok(n_genes) = u32::try_from(rows.n_genes) else { return };
    let block = CsrBlock { n_genes, indptr: &rows.indptr, indices: &rows.indices, data: &rows.data };
    for preset in [Preset::Fast, Preset::Balanced, Preset::Small, Preset::Level(3)] {
        let bytes = encode_tile(&block, &EncodeOptions { n_chunks: 4, min_chunk_nnz: 1, preset }).unwrap();
        assert_eq!(&decode::<i32>(&bytes).unwrap(), rows);
    }
}

/// For each reject vector, a word that its message must have, so that it is refused for its own fault.
fn says(name: &str) -> &'static str {
    match name {
        "bad_magic" => "magic",
        "version_1" | "version_3" => "version",
        "unknown_flag" => "flags",
        "reserved_set" => "reserved",
        "zero_genes" | "too_many_genes" => "n_genes",
        "crc_wrong" => "crc32",
        "total_size_short" | "total_size_long" | "trailing_byte" => "total_size",
        "indptr_off_unaligned" => "multiple of 8",
        "indptr_off_in_table" => "inside the chunk table",
        "indptr_off_past_end" | "indptr_off_overflow" | "n_cells_overflow" | "n_cells_huge" => "past the end",
        "n_chunks_huge" => "chunk table",
        "n_chunks_zero" => "chunks",
        "nnz_wrong" | "nnz_huge" => "nnz",
        "indptr_first_not_zero" => "indptr[0]",
        "indptr_decreasing" | "indptr_negative" => "below",
        "chunk_gap_in_cells" | "chunk_overlap" => "the last one ended",
        "chunk_cells_past_end" => "ends at cell",
        "chunk_cells_short" => "is the last and ends at",
        "chunk_nnz_against_indptr" => "the indptr of its last cell",
        "chunk_reversed" => "chunk 0 ends at nonzero",
        "gaps_past_end" | "gaps_offset_overflow" | "vals_in_header" | "vexc_past_end" => "not inside the tile",
        "gaps_length_zero" => "gaps_len is 0",
        "gaps_truncated_frame" => "cut short",
        "gaps_not_zstd" => "not a zstd frame",
        "gaps_without_content_size" => "content size",
        "gaps_too_short" | "gaps_too_long" | "vals_odd_size" => "expected",
        "vals_bomb" => "holds 268435456 bytes",
        "two_frames_in_stream" | "junk_after_frame" => "one whole frame",
        "gene_past_end" | "gene_equals_n_genes" => "genes",
        "repeated_gene" => "twice",
        "stored_zero" => "count of 0",
        "vexc_not_multiple_of_8" | "vexc_empty_frame" | "vexc_more_than_n" => "exceptions",
        "vexc_position_past_end" => "has position",
        "vexc_positions_repeat" => "increase strictly",
        "vexc_payload_small" | "vexc_payload_large" => "has the count",
        "vexc_unmarked_position" | "gexc_unmarked_position" => "where the stream holds",
        "gexc_payload_zero" | "gexc_payload_large" => "has the payload",
        "gexc_wraps_u32" => "gexc",
        _ => "",
    }
}

#[test]
fn bad_tiles_are_refused_for_their_own_fault() {
    for path in tiles("reject") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let error = decode::<i32>(&bytes).expect_err(name).to_string();
        println!("{name}: {error}");
        assert!(error.contains(says(name)), "{name}: {error}");
        assert!(!error.contains('\n'));
        assert!(decode::<f32>(&bytes).is_err());
    }
}
