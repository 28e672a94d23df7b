"""Every file of ../shared/corpus/cells through convert and export, against EXPECTED.json."""

import hashlib
import json

import anndata as ad
import pytest
import scanpy as sc
from conftest import SHARED, cellsilo, convert, digest, refused

CELLS = SHARED / "corpus/cells"
EXPECTED = json.loads((CELLS / "EXPECTED.json").read_text()) if CELLS.is_dir() else {}
CASES = [(name, case) for name, cases in EXPECTED.items() for case in cases]
IDS = [f"{name}-{case.get('matrix') or case.get('genome') or 'X'}" for name, case in CASES]


def options(case):
    pairs = [("--matrix", case.get("matrix")), ("--genome", case.get("genome")), ("--feature-type", case.get("feature_types"))]
    return [word for flag, value in pairs if value for word in (flag, value)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=IDS)
def test_corpus(tmp_path, name, case):
    out = tmp_path / "out.silo"
    if "refused" in case:
        message = refused("convert", CELLS / name, "-o", out, *options(case))
        assert ("no matrix" in message) == (case["refused"] == "no matrix")
        assert not out.exists()
        return
    report = convert(CELLS / name, out, *options(case))
    assert (report["n_cells"], report["n_genes"], report["nnz"]) == (case["cells"], case["genes"], case["nnz"])
    assert any("rounding noise" in n for n in report["notices"]) == case.get("noise", False)
    cellsilo("verify", out)
    readers = {"h5ad": ad.read_h5ad, "zarr": ad.read_zarr, "mtx": lambda path: sc.read_10x_mtx(path, make_unique=False)}
    for kind, read in readers.items():
        path = tmp_path / f"back.{kind}"
        cellsilo("export", out, "-o", path)
        back = read(path)
        assert digest(back.X) == case["csr_sha256"], kind
        assert back.X.sum() == case["total"]
        if "gene_names_sha256" in case:
            assert hashlib.sha256("\n".join(back.var_names).encode()).hexdigest() == case["gene_names_sha256"], kind


@pytest.mark.skipif(not CASES, reason="the corpus is not here")
def test_auto_takes_what_holds_counts(tmp_path):
    message = refused("convert", CELLS / "anndata_0.5.0.h5ad", "-o", tmp_path / "o")
    assert "raw/X does not hold counts" in message and "X does not hold counts" in message
    report = convert(CELLS / "anndata_0.7.8.h5ad", tmp_path / "o")
    assert report["sources"][0]["matrix"] == "raw/X"
    assert any("raw/X" in n for n in report["notices"])
    assert "--genome" in refused("convert", CELLS / "10x_v1.2_two_genomes.h5", "-o", tmp_path / "p", status=2)
