"""10x files: HDF5 with several feature types, and mtx folders in every form people have."""

import gzip

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from conftest import cellsilo, convert, counts, export, digest, refused, same


def write_h5(path, x, types, genomes=None):
    n = x.shape[1]
    with h5py.File(path, "w") as f:
        m = f.create_group("matrix")
        m["barcodes"] = np.array([f"B{i}-1" for i in range(x.shape[0])], "S")
        for name in ("data", "indices", "indptr"):
            m.create_dataset(name, data=getattr(x, name), compression="gzip")
        m["shape"] = np.array(x.shape[::-1], np.int32)
        g = m.create_group("features")
        g["id"] = np.array([f"ENSG{i}" for i in range(n)], "S")
        g["name"] = np.array([f"g{i}" for i in range(n)], "S")
        g["feature_type"] = np.array(types, "S")
        g["genome"] = np.array(genomes or ["GRCh38"] * n, "S")


def test_feature_types_and_genomes(tmp_path):
    x = counts(40, 10)
    types = ["Gene Expression"] * 6 + ["Antibody Capture"] * 3 + ["CRISPR Guide Capture"]
    write_h5(tmp_path / "a.h5", x, types, ["GRCh38"] * 4 + ["mm10"] * 2 + [""] * 4)
    report = same(tmp_path, tmp_path / "a.h5", x[:, :6], names=[f"g{i}" for i in range(6)])
    notice = next(n for n in report["notices"] if "left out" in n)
    assert "3 of type \"Antibody Capture\"" in notice and "1 of type \"CRISPR Guide Capture\"" in notice
    same(tmp_path, tmp_path / "a.h5", x, "--feature-type", "all", "--overwrite")
    same(tmp_path, tmp_path / "a.h5", x[:, 6:9], "--feature-type", "Antibody Capture", "--overwrite")
    same(tmp_path, tmp_path / "a.h5", x[:, :4], "--genome", "GRCh38", "--overwrite")
    same(tmp_path, tmp_path / "a.h5", x[:, :6], "--gene-column", "gene_ids", "--overwrite", names=[f"ENSG{i}" for i in range(6)])
    assert "Antibody Capture" in refused("convert", tmp_path / "a.h5", "-o", tmp_path / "x", "--feature-type", "nothing", status=2)
    assert "mm10" in refused("convert", tmp_path / "a.h5", "-o", tmp_path / "x", "--genome", "hg19", status=2)


def write_mtx(folder, x, prefix="", zipped=("matrix", "features", "barcodes"), features="features.tsv", columns=3, field="integer", order="cells", orient="genes"):
    folder.mkdir(exist_ok=True)
    t = sp.coo_matrix(x.T if orient == "genes" else x)
    rank = np.lexsort((t.row, t.col) if (order == "cells") == (orient == "genes") else (t.col, t.row))
    kind = "real" if field == "real" else "integer"
    lines = [f"%%MatrixMarket matrix coordinate {kind} general", "%a comment", f"{t.shape[0]} {t.shape[1]} {t.nnz}"]
    value = (lambda v: f"{v}.0" if v % 2 else f"{v}e0") if field == "real" else str
    lines += [f"{t.row[k] + 1} {t.col[k] + 1} {value(t.data[k])}" for k in rank]
    rows = [[f"ENSG{i}", f"g{i}", "Gene Expression"][:columns] for i in range(x.shape[1])]
    tables = {"matrix": ("matrix.mtx", lines), "features": (features, ["\t".join(r) for r in rows]), "barcodes": ("barcodes.tsv", [f"B{i}-1" for i in range(x.shape[0])])}
    for key, (name, text) in tables.items():
        text = "\n".join(text) + "\n"
        if key in zipped:
            with gzip.open(folder / f"{prefix}{name}.gz", "wt") as f:
                f.write(text)
        else:
            (folder / f"{prefix}{name}").write_text(text)


FORMS = {
    "all gzipped": {},
    "nothing gzipped, genes.tsv": dict(zipped=(), features="genes.tsv", columns=2),
    "only the matrix gzipped": dict(zipped=("matrix",)),
    "only the tables gzipped": dict(zipped=("features", "barcodes"), features="genes.tsv", columns=2),
    "one column": dict(columns=1),
    "two columns": dict(columns=2),
    "real numbers": dict(field="real"),
    "sorted by gene": dict(order="genes"),
    "cells by genes": dict(orient="cells"),
    "cells by genes, sorted by gene": dict(orient="cells", order="genes"),
    "one prefix": dict(prefix="GSM1_"),
}


@pytest.mark.parametrize("form", FORMS)
def test_mtx_forms(tmp_path, form):
    x = counts(60, 33)
    write_mtx(tmp_path / "m", x, **FORMS[form])
    names = [f"ENSG{i}" if form == "one column" else f"g{i}" for i in range(33)]
    report = same(tmp_path, tmp_path / "m", x, names=names)
    assert any("turned" in n for n in report["notices"]) == ("cells by genes" in form)
    same(tmp_path, tmp_path / "m", x, "--gene-column", "gene_ids", "--overwrite", names=[f"ENSG{i}" for i in range(33)])
    matrix = next(p for p in (tmp_path / "m").iterdir() if "matrix.mtx" in p.name)
    same(tmp_path, matrix, x, "--overwrite")


def test_prefixes(tmp_path):
    x, y = counts(30, 12), counts(20, 12, seed=9)
    write_mtx(tmp_path / "m", x, prefix="GSM1_")
    write_mtx(tmp_path / "m", y, prefix="GSM2_sampleB_", features="genes.tsv", columns=2)
    message = refused("convert", tmp_path / "m", "-o", tmp_path / "o", status=2)
    assert "GSM1" in message and "GSM2_sampleB" in message and "--prefix" in message
    same(tmp_path, tmp_path / "m", x, "--prefix", "GSM1")
    same(tmp_path, tmp_path / "m", y, "--prefix", "GSM2_sampleB_", "--overwrite")
    same(tmp_path, tmp_path / "m", sp.vstack([x, y]).tocsr(), "--prefix", "all", "--overwrite")
    assert "GSM1" in refused("convert", tmp_path / "m", "-o", tmp_path / "o2", "--prefix", "GSM3", status=2)


@pytest.mark.parametrize("shuffled", [False, True])
def test_unsorted_among_sorted(tmp_path, shuffled):
    x, y, z = counts(60, 21), counts(50, 21, seed=3), counts(40, 21, seed=5)
    write_mtx(tmp_path / "a", x)
    write_mtx(tmp_path / "b", y, order="genes")
    write_mtx(tmp_path / "c", z, order="genes", field="real")
    inputs, all_cells = [tmp_path / n for n in "abc"], sp.vstack([x, y, z]).tocsr()
    if not shuffled:
        same(tmp_path, inputs, all_cells)
        return
    convert(inputs, tmp_path / "o", "--shuffle", "4")
    back = export(tmp_path / "o", tmp_path / "o.h5ad").X.toarray()
    assert sorted(map(tuple, back)) == sorted(map(tuple, all_cells.toarray()))
    assert (back != all_cells.toarray()).any()


def test_nested_folders(tmp_path):
    x = counts(10, 6)
    (tmp_path / "outer").mkdir()
    write_mtx(tmp_path / "outer/GRCh38", x)
    same(tmp_path, tmp_path / "outer", x)
    write_mtx(tmp_path / "outer/mm10", x)
    assert "mm10" in refused("convert", tmp_path / "outer", "-o", tmp_path / "p", status=2)


def test_what_scipy_writes(tmp_path):
    x = counts(25, 14)
    write_mtx(tmp_path / "m", x)
    (tmp_path / "m/matrix.mtx.gz").unlink()
    scipy.io.mmwrite(tmp_path / "m/matrix.mtx", x.T.tocsr(), field="integer")
    same(tmp_path, tmp_path / "m", x)


def test_broken_mtx(tmp_path):
    def broken(change, **kwargs):
        write_mtx(tmp_path / "m", counts(20, 8), zipped=(), **kwargs)
        path = tmp_path / "m/matrix.mtx"
        path.write_text(change(path.read_text()))
        message = refused("convert", tmp_path / "m", "-o", tmp_path / "o")
        assert "matrix.mtx" in message and not (tmp_path / "o").exists()
        return message

    lines = lambda text: text.split("\n")
    assert "cut short" in broken(lambda t: "\n".join(lines(t)[:-3]))
    assert "not an integer" in broken(lambda t: "\n".join([*lines(t)[:3], "1 1 0.5", *lines(t)[4:]]))
    assert "line 4" in broken(lambda t: "\n".join([*lines(t)[:3], "9 1 2", *lines(t)[4:]]))
    assert "line 4" in broken(lambda t: "\n".join([*lines(t)[:3], "1 1", *lines(t)[4:]]))
    assert "line 4" in broken(lambda t: "\n".join([*lines(t)[:3], "1 1 x", *lines(t)[4:]]))
    assert "lines" in broken(lambda t: t.replace("8 20 ", "9 20 "))
    assert "MatrixMarket" in broken(lambda t: t[1:])
    assert "symmetric" in broken(lambda t: t.replace("general", "symmetric"))
    assert "no counts" in broken(lambda t: t.replace("integer", "pattern"))
    (tmp_path / "m/barcodes.tsv").unlink()
    assert "barcodes.tsv" in refused("convert", tmp_path / "m", "-o", tmp_path / "o")


def test_a_cut_gzip_is_refused(tmp_path):
    write_mtx(tmp_path / "m", counts(200, 50))
    path = tmp_path / "m/matrix.mtx.gz"
    path.write_bytes(path.read_bytes()[:-50])
    assert "cut short" in refused("convert", tmp_path / "m", "-o", tmp_path / "o")


def test_mtx_export_reads_back(tmp_path):
    x = counts(30, 9)
    write_mtx(tmp_path / "m", x)
    convert(tmp_path / "m", tmp_path / "o")
    cellsilo("export", tmp_path / "o", "-o", tmp_path / "back")
    same(tmp_path, tmp_path / "back", x, "--overwrite")
    assert digest(export(tmp_path / "o", tmp_path / "b.h5ad").X) == digest(x)
