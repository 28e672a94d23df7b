//! Writing, reading and verifying datasets, and the conformance dataset that another writer made.

use std::path::{Path, PathBuf};

use cellsilo::dataset::{Dataset, DatasetWriter, WriteOptions, verify};
use cellsilo::tile::{Csr, EncodeOptions, Preset};
use serde_json::Value;

fn conformance() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    path.is_dir().then_some(path)
}

/// Rows with a pattern: cell `c` has the genes `(c * 7 + k * 3) % 40` for some `k`.
fn rows(n_cells: usize) -> Csr<i32> {
    let mut csr = Csr::empty(40);
    for cell in 0..n_cells {
        let mut genes: Vec<i32> = (0..cell % 9).map(|k| ((cell * 7 + k * 3) % 40) as i32).collect();
        genes.sort_unstable();
        genes.dedup();
        csr.data.extend(genes.iter().map(|g| 1 + g * 1000 * (cell % 5) as i32 % 70_001));
        csr.indices.extend(genes);
        csr.indptr.push(csr.indices.len() as i64);
    }
    csr
}

fn write(folder: &Path, csr: &Csr<i32>, tile_size: u64, block: usize) -> cellsilo::Result<()> {
    let options = WriteOptions { tile_size, encode: EncodeOptions { n_chunks: 3, preset: Preset::Fast, ..Default::default() } };
    let mut writer = DatasetWriter::create(folder, csr.n_genes as u32, options)?;
    push(&mut writer, csr, 0, block)?;
    writer.set_gene_order((0..40).rev().collect());
    writer.set_var_names((0..40).map(|g| format!("gene {g}")).collect());
    writer.set_metadata("note", "é".into());
    writer.finish()?;
    Ok(())
}

fn push(writer: &mut DatasetWriter, csr: &Csr<i32>, from: usize, block: usize) -> cellsilo::Result<()> {
    let indices: Vec<u32> = csr.indices.iter().map(|&v| v as u32).collect();
    let data: Vec<u32> = csr.data.iter().map(|&v| v as u32).collect();
    let mut start = from;
    while start < csr.n_cells() {
        let end = (start + block).min(csr.n_cells());
        writer.push_rows(&csr.indptr[start..=end], &indices, &data)?;
        start = end;
    }
    Ok(())
}

#[test]
fn rows_come_back_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let csr = rows(103);
    write(folder.path(), &csr, 25, 7).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!((dataset.n_cells(), dataset.n_tiles(), dataset.n_genes()), (103, 5, 40));
    assert_eq!(dataset.read_range::<i32>(0..103).unwrap(), csr);
    assert_eq!(dataset.read_range::<i32>(103..103).unwrap(), Csr::empty(40));
    for list in [vec![], vec![102, 0, 0, 57, 24, 25, 26, 102], (0..103).rev().collect()] {
        let mut expected = Csr::empty(40);
        list.iter().for_each(|&c| expected.push_row_of(&csr, c as usize));
        assert_eq!(dataset.read_cells::<i32>(&list).unwrap(), expected);
    }
    assert!(dataset.read_cells::<i32>(&[103]).unwrap_err().to_string().contains("no cell 103"));
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range must be refused")]
    let reversed = dataset.read_range::<f32>(5..4);
    assert!(reversed.is_err() && dataset.read_range::<f32>(0..104).is_err());
    assert_eq!(dataset.gene_order().unwrap().unwrap()[0], 39);
    assert_eq!(dataset.var_names().unwrap().unwrap()[3], "gene 3");
    assert_eq!(dataset.manifest().metadata["note"], "é");
    let report = verify(folder.path(), &|_| ()).unwrap();
    assert_eq!((report.faults, report.cells, report.nnz), (vec![], 103, csr.nnz() as u64));
}

#[test]
fn the_bytes_do_not_depend_on_blocks_or_threads() {
    let csr = rows(300);
    let read = |threads: usize, block: usize| {
        let folder = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| write(folder.path(), &csr, 100, block)).unwrap();
        (0..3).map(|t| std::fs::read(folder.path().join(format!("tiles/tile_{t:06}.dct"))).unwrap()).collect::<Vec<_>>()
    };
    let first = read(1, 300);
    assert_eq!(first, read(4, 1));
    assert_eq!(first, read(2, 64));
}

#[test]
fn an_interrupted_dataset_goes_on() {
    let csr = rows(60);
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), &csr, 20, 60).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions { tile_size: 20, encode: EncodeOptions { n_chunks: 3, preset: Preset::Fast, ..Default::default() } };
    let mut writer = DatasetWriter::create(folder.path(), 40, options.clone()).unwrap();
    push(&mut writer, &csr, 0, 13).unwrap();
    drop(writer);
    assert!(Dataset::open(folder.path()).unwrap_err().to_string().contains("no manifest.json"));
    // The second tile is damaged: it and the rest are written again.
    let second = folder.path().join("tiles/tile_000001.dct");
    let mut bytes = std::fs::read(&second).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&second, bytes).unwrap();
    let (mut writer, cells) = DatasetWriter::resume(folder.path(), 40, options).unwrap();
    assert_eq!(cells, 20);
    push(&mut writer, &csr, cells as usize, 50).unwrap();
    writer.finish().unwrap();
    assert_eq!(Dataset::open(folder.path()).unwrap().read_range::<i32>(0..60).unwrap(), csr);
    for t in 0..3 {
        let name = format!("tiles/tile_{t:06}.dct");
        assert_eq!(std::fs::read(folder.path().join(&name)).unwrap(), std::fs::read(whole.path().join(&name)).unwrap());
    }
}

#[test]
fn verify_reports_every_fault() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &rows(100), 20, 100).unwrap();
    let tile = |t: usize| folder.path().join(format!("tiles/tile_{t:06}.dct"));
    let mut bytes = std::fs::read(tile(1)).unwrap();
    *bytes.last_mut().unwrap() ^= 0x40;
    std::fs::write(tile(1), bytes).unwrap();
    std::fs::remove_file(tile(3)).unwrap();
    std::fs::write(tile(9), b"stray").unwrap();
    std::fs::write(folder.path().join("var_names.txt"), "one\n").unwrap();
    let report = verify(folder.path(), &|_| ()).unwrap();
    assert_eq!(report.tiles, 3);
    for (says, file) in [("crc32", "tile_000001"), ("missing", "tile_000003"), ("no tile", "tile_000009"), ("1 lines", "var_names")] {
        assert!(report.faults.iter().any(|f| f.contains(says) && f.contains(file)), "{says}: {:?}", report.faults);
    }
    assert!(Dataset::open(folder.path()).unwrap_err().to_string().contains("tile_000003"));
}

#[test]
fn too_many_wide_counts_are_refused_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::create(folder.path(), 2000, WriteOptions::default()).unwrap();
    let genes: Vec<u32> = (0..2000).collect();
    writer.push_rows(&[0, 2000], &genes, &vec![70_000; 2000]).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("2000 of 2000 counts") && error.contains("not raw counts"), "{error}");
}

#[test]
fn the_conformance_dataset_opens_and_gives_its_matrix() {
    let Some(conformance) = conformance() else { return };
    let folder = conformance.join("dataset_small");
    let expected: Value = serde_json::from_slice(&std::fs::read(conformance.join("dataset_small.expected.json")).unwrap()).unwrap();
    let dataset = Dataset::open(&folder).unwrap();
    let csr = dataset.read_range::<i32>(0..dataset.n_cells()).unwrap();
    let numbers = |key: &str| expected[key].as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect::<Vec<_>>();
    assert_eq!(csr.indptr, numbers("indptr"));
    assert_eq!(csr.indices.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), numbers("indices"));
    assert_eq!(csr.data.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), numbers("data"));
    assert_eq!(dataset.gene_order().unwrap().unwrap().len(), 60);
    assert_eq!(dataset.var_names().unwrap().unwrap().len(), 60);
    let report = verify(&folder, &|_| ()).unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
    assert_eq!(report.nnz, 2420);
}
