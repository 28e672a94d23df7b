//! ../shared/corpus/cells through the library, without Python: convert, verify, and the digest of the rows in
//! the source's gene order.

use std::path::{Path, PathBuf};

use cellsilo::dataset::{Dataset, verify};
use cellsilo::{Error, Result};
use cellsilo_convert::source::SourceOptions;
use cellsilo_convert::{ConvertOptions, ConvertReport, Silent, convert};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/cells");
    path.is_dir().then_some(path)
}

fn run(input: &Path, output: &Path, case: &Value) -> Result<ConvertReport> {
    let text = |key: &str| case[key].as_str().map(str::to_owned);
    let source = SourceOptions {
        matrix: text("matrix").unwrap_or_default(),
        genome: text("genome"),
        feature_type: text("feature_types"),
        ..Default::default()
    };
    convert(&[input.to_owned()], output, &ConvertOptions { source, ..Default::default() }, &Silent)
}

/// sha256 of indptr i64, indices i32, data i32, with each row sorted by the source's gene index.
fn digest(dataset: &Dataset) -> String {
    let rows = dataset.read_range::<i32>(0..dataset.n_cells()).unwrap();
    let order = dataset.gene_order().unwrap().unwrap();
    let (mut indices, mut data) = (Vec::new(), Vec::new());
    for cell in 0..rows.n_cells() {
        let (genes, counts) = rows.row(cell);
        let mut row: Vec<(i32, i32)> = genes.iter().map(|&g| order[g as usize]).zip(counts.iter().copied()).collect();
        row.sort_unstable();
        indices.extend(row.iter().flat_map(|e| e.0.to_le_bytes()));
        data.extend(row.iter().flat_map(|e| e.1.to_le_bytes()));
    }
    let mut hash = Sha256::new();
    rows.indptr.iter().for_each(|p| hash.update(p.to_le_bytes()));
    hash.update(&indices);
    hash.update(&data);
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn every_file_gives_its_digest_or_is_refused() {
    let Some(corpus) = corpus() else { return };
    let expected: Value = serde_json::from_slice(&std::fs::read(corpus.join("EXPECTED.json")).unwrap()).unwrap();
    for (name, cases) in expected.as_object().unwrap() {
        for case in cases.as_array().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let output = folder.path().join("out");
            let result = run(&corpus.join(name), &output, case);
            if let Some(reason) = case["refused"].as_str() {
                let error = result.expect_err(name);
                assert!(matches!(error, Error::NotCounts(_)) == (reason == "not raw counts"), "{name}: {error}");
                assert!(!output.exists(), "{name} left something behind");
                continue;
            }
            let report = result.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(
                (report.n_cells, report.n_genes, report.nnz),
                (case["cells"].as_u64().unwrap(), case["genes"].as_u64().unwrap(), case["nnz"].as_u64().unwrap())
            );
            assert!(verify(&output, &|_| ()).unwrap().faults.is_empty());
            assert_eq!(digest(&Dataset::open(&output).unwrap()), case["csr_sha256"].as_str().unwrap(), "{name}");
        }
    }
}
