//! testdata/golden: files of every format version that a release has written. They are never edited.

use std::path::{Path, PathBuf};

use cellsilo::dataset::{Dataset, DatasetWriter, WriteOptions, verify};
use cellsilo::tile::{Csr, EncodeOptions, Preset};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/v2")
}

/// 70 cells of 100,000 genes, with counts and gaps above 65535.
fn rows() -> Csr<u32> {
    let mut csr = Csr::empty(100_000);
    for cell in 0..70u32 {
        let genes = (0..cell % 11).map(|k| k * k * (cell + 1) % 900 + k * 1000 + if k == 10 { 80_000 } else { 0 });
        csr.indices.extend(genes.map(|g| g as i32));
        csr.indptr.push(csr.indices.len() as i64);
    }
    csr.data = (0..csr.indices.len() as u32).map(|i| if i % 97 == 5 { 65_535 + i } else { 1 + i * i % 7 }).collect();
    csr
}

#[test]
fn the_golden_dataset_reads_as_ever() {
    let expected = rows();
    assert_eq!(verify(&golden(), &|_| ()).unwrap().faults, Vec::<String>::new());
    let found = Dataset::open(golden()).unwrap().read_range::<i32>(0..70).unwrap();
    assert_eq!((&found.indptr, &found.indices), (&expected.indptr, &expected.indices));
    assert_eq!(found.data, expected.data.iter().map(|&c| c as i32).collect::<Vec<_>>());
}

/// Writes the files of a new version: `CELLSILO_GOLDEN=folder cargo test -p cellsilo --test golden`.
#[test]
fn the_writer_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("CELLSILO_GOLDEN").map_or_else(|| folder.path().join("v2"), PathBuf::from);
    let csr = rows();
    let options = WriteOptions { tile_size: 30, encode: EncodeOptions { n_chunks: 2, preset: Preset::Fast, ..Default::default() } };
    let mut writer = DatasetWriter::create(&path, 100_000, options).unwrap();
    let genes: Vec<u32> = csr.indices.iter().map(|&g| g as u32).collect();
    writer.push_rows(&csr.indptr, &genes, &csr.data).unwrap();
    writer.finish().unwrap();
    let (new, old) = (Dataset::open(&path).unwrap(), Dataset::open(golden()).unwrap());
    assert_eq!(new.read_range::<i32>(0..70).unwrap(), old.read_range::<i32>(0..70).unwrap());
}
