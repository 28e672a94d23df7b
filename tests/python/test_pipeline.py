"""Several inputs, shuffling, resuming, overwriting, threads, and the other commands."""

import json
import shutil
import signal
import subprocess
import time

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import BINARY, adata, cellsilo, convert, counts, digest, export, refused, same


def write(path, x, genes=None):
    a = adata(x)
    if genes is not None:
        a.var_names = genes
    a.write_h5ad(path)
    return a


def tiles(folder):
    return {p.name: p.read_bytes() for p in sorted((folder / "tiles").iterdir())}


def test_joins(tmp_path):
    x, y = counts(20, 4), counts(15, 4, seed=2)
    write(tmp_path / "a.h5ad", x, ["A", "B", "C", "D"])
    write(tmp_path / "b.h5ad", y, ["D", "E", "A", "F"])
    both = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    expected = ad.concat([ad.read_h5ad(p) for p in both], join="outer")
    report = convert(both, tmp_path / "outer")
    back = export(tmp_path / "outer", tmp_path / "o.h5ad")
    assert list(back.var_names) == ["A", "B", "C", "D", "E", "F"]
    assert digest(back.X) == digest(expected[:, back.var_names].X)
    assert sum("missing" in n for n in report["notices"]) == 2
    report = convert(both, tmp_path / "inner", "--join", "inner")
    back = export(tmp_path / "inner", tmp_path / "i.h5ad")
    assert list(back.var_names) == ["A", "D"] and digest(back.X) == digest(expected[:, ["A", "D"]].X)
    assert any("left out: B, C" in n for n in report["notices"])
    (tmp_path / "genes.txt").write_text("# mine\nF\nX\nA\tcomment\n")
    report = convert(both, tmp_path / "list", "--genes", tmp_path / "genes.txt")
    back = export(tmp_path / "list", tmp_path / "l.h5ad")
    assert list(back.var_names) == ["F", "X", "A"] and back[:, "X"].X.nnz == 0
    assert digest(back[:, ["F", "A"]].X) == digest(expected[:, ["F", "A"]].X)
    assert any("2 of 3 genes are missing and stay empty: F, X" in n for n in report["notices"])


def test_repeated_names(tmp_path):
    x = counts(20, 4)
    names = ["A", "B", "A", "A-1"]
    write(tmp_path / "a.h5ad", x, names)
    write(tmp_path / "b.h5ad", x, ["A", "B", "C", "D"])
    report = same(tmp_path, tmp_path / "a.h5ad", x, names=names)
    assert any("more than once" in n for n in report["notices"])
    both = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    message = refused("convert", *both, "-o", tmp_path / "o")
    assert "--gene-column" in message and "--make-unique" in message
    convert(both, tmp_path / "o", "--make-unique")
    unique = ad.AnnData(x)
    unique.var_names = names
    unique.var_names_make_unique()
    back = export(tmp_path / "o", tmp_path / "o.h5ad")
    assert list(back.var_names) == [*unique.var_names, "C", "D"]


def test_names_with_line_breaks_are_cleaned(tmp_path):
    names = ["A\nB", "C\u2028D", "E\x1cF", "G"]
    write(tmp_path / "a.h5ad", counts(8, 4), names)
    report = same(tmp_path, tmp_path / "a.h5ad", counts(8, 4), names=["A B", "C D", "E F", "G"])
    assert any("line breaks" in n for n in report["notices"])
    text = (tmp_path / "out.silo/var_names.txt").read_text()
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_shuffle(tmp_path, kind):
    x = counts(500, 20)
    x[:, 0] = np.arange(1, 501)[:, None]  # every cell can be told
    x = sp.csr_matrix(x)
    write(tmp_path / "a.h5ad", {"csr": x, "csc": x.tocsc(), "dense": x.toarray()}[kind][:300])
    write(tmp_path / "b.h5ad", x[300:])
    both = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    convert(both, tmp_path / "s1", "--shuffle", "1", "--tile-size", "64")
    back = export(tmp_path / "s1", tmp_path / "s1.h5ad").X
    order = np.asarray(back[:, 0].todense()).ravel() - 1
    assert sorted(order) == list(range(500)) and digest(back) == digest(x[order])
    assert np.abs(np.corrcoef(order, np.arange(500))[0, 1]) < 0.15
    convert(both, tmp_path / "s1b", "--shuffle", "1", "--tile-size", "64", "--threads", "1")
    assert tiles(tmp_path / "s1") == tiles(tmp_path / "s1b")
    convert(both, tmp_path / "s2", "--shuffle", "2", "--tile-size", "64")
    assert tiles(tmp_path / "s1") != tiles(tmp_path / "s2")
    assert not list(tmp_path.glob(".cellsilo-spill*"))


def test_gene_order_and_tiles(tmp_path):
    x = counts(95, 30)
    a = write(tmp_path / "a.h5ad", x)
    same(tmp_path, tmp_path / "a.h5ad", x, "--tile-size", "10")
    manifest = json.loads((tmp_path / "out.silo/manifest.json").read_text())
    assert manifest["tile_cells"] == [10] * 9 + [5] and sum(manifest["tile_nnz"]) == x.nnz
    assert set(manifest) == {
        "format", "version", "n_cells", "n_genes", "tile_size", "tile_cells", "tile_nnz", "tile_bytes", "n_chunks", "zstd_level",
        "has_gene_order", "has_var_names", "has_var_table", "has_obs", "metadata",
    }  # fmt: skip
    assert manifest["metadata"]["cellsilo"]["sources"][0]["path"].endswith("a.h5ad")
    totals = np.asarray(x.sum(0)).ravel()
    order = np.load(tmp_path / "out.silo/gene_order.npy")
    assert order.dtype == np.int32 and list(order) == list(np.argsort(-totals, kind="stable"))
    stored = export(tmp_path / "out.silo", tmp_path / "s.h5ad", "--gene-order", "stored")
    assert list(stored.var_names) == list(a.var_names[order]) and digest(stored.X) == digest(x[:, order])
    part = export(tmp_path / "out.silo", tmp_path / "p.h5ad", "--cells", "7:31")
    assert digest(part.X) == digest(x[7:31]) and list(part.obs_names[:2]) == ["7", "8"]
    convert(tmp_path / "a.h5ad", tmp_path / "src", "--gene-order", "source")
    assert list(np.load(tmp_path / "src/gene_order.npy")) == list(range(30))


@pytest.mark.parametrize("options", [[], ["--preset", "fast"], ["--zstd-level", "7"], ["--chunks", "3"]])
def test_same_bytes_for_any_threads(tmp_path, options):
    x = counts(2000, 400)
    write(tmp_path / "a.h5ad", x)
    for threads in (1, 2, 5):
        convert(tmp_path / "a.h5ad", tmp_path / f"t{threads}", "--threads", threads, "--tile-size", "700", *options)
    assert tiles(tmp_path / "t1") == tiles(tmp_path / "t2") == tiles(tmp_path / "t5")


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_interrupt_and_resume(tmp_path, kind):
    x = sp.random(6000, 3000, density=0.05, random_state=0, format="csr", data_rvs=lambda n: np.random.default_rng(0).integers(1, 9, n)).astype(np.int32)
    write(tmp_path / "a.h5ad", x if kind == "csr" else x.tocsc())
    options = ["--tile-size", "500", "--preset", "small"]
    convert(tmp_path / "a.h5ad", tmp_path / "whole", *options)
    out = tmp_path / "out"
    for _ in range(10):  # a fast machine may be done before the signal comes
        run = subprocess.Popen([BINARY, "convert", tmp_path / "a.h5ad", "-o", out, "--overwrite", *options], stderr=subprocess.PIPE, text=True)
        while run.poll() is None and len(list(out.glob("tiles/*.dct"))) < 2:
            time.sleep(0.002)
        run.send_signal(signal.SIGINT)
        message = run.communicate()[1]
        if run.returncode != 0:
            break
        shutil.rmtree(out)
    assert run.returncode == 130 and "--resume" in message
    assert not (out / "manifest.json").exists()
    assert "no manifest.json" in refused("info", out)
    assert "--resume" in refused("convert", tmp_path / "a.h5ad", "-o", out, *options)
    assert "options" in refused("convert", tmp_path / "a.h5ad", "-o", out, "--resume", "--tile-size", "600")
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("tiles/*.dct")}
    order = np.load(out / "gene_order.npy")
    np.save(out / "gene_order.npy", order[::-1].copy())
    assert "order of genes" in refused("convert", tmp_path / "a.h5ad", "-o", out, *options, "--resume")
    assert {p.name for p in out.glob("tiles/*.dct")} == set(before), "nothing finished is thrown away"
    np.save(out / "gene_order.npy", order)
    report = convert(tmp_path / "a.h5ad", out, *options, "--resume")
    assert report["resumed_cells"] >= 1000
    kept = [p for p in out.glob("tiles/*.dct") if before.get(p.name) == p.stat().st_mtime_ns]
    assert len(kept) * 500 == report["resumed_cells"]
    assert tiles(out) == tiles(tmp_path / "whole")
    again = convert(tmp_path / "a.h5ad", out, *options, "--resume")
    assert any("already finished" in n for n in again["notices"])
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_overwrite_keeps_the_old_until_the_new_is_whole(tmp_path):
    x, y = counts(40, 10), counts(30, 10, seed=4)
    write(tmp_path / "a.h5ad", x)
    write(tmp_path / "b.h5ad", y)
    out = tmp_path / "out"
    convert(tmp_path / "a.h5ad", out)
    (out / "my notes.txt").write_text("keep me")
    before = tiles(out)
    assert "--overwrite" in refused("convert", tmp_path / "b.h5ad", "-o", out)
    bad = y.astype(np.float32)
    bad.data[-1] = 0.5
    write(tmp_path / "bad.h5ad", bad)
    refused("convert", tmp_path / "bad.h5ad", "-o", out, "--overwrite")
    assert tiles(out) == before and cellsilo("verify", out)
    convert(tmp_path / "b.h5ad", out, "--overwrite")
    assert digest(export(out, tmp_path / "o.h5ad").X) == digest(y)
    convert(tmp_path / "a.h5ad", out, "--overwrite")
    assert digest(export(out, tmp_path / "o.h5ad").X) == digest(x)
    assert (out / "my notes.txt").read_text() == "keep me"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    foreign = tmp_path / "home"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    assert "not touched" in refused("convert", tmp_path / "b.h5ad", "-o", foreign, "--overwrite")
    assert (foreign / "thesis.tex").exists()
    assert "not touched" in refused("export", out, "-o", foreign, "--overwrite")
    assert "exists" in refused("export", out, "-o", tmp_path / "o.h5ad")


def test_info_verify_and_tile(tmp_path):
    x = counts(60, 25)
    write(tmp_path / "a.h5ad", x)
    convert(tmp_path / "a.h5ad", tmp_path / "o", "--tile-size", "25", "--gene-order", "source")
    info = json.loads(cellsilo("info", tmp_path / "o", "--json"))
    assert (info["n_cells"], info["n_genes"], info["nnz"], info["n_tiles"]) == (60, 25, x.nnz, 3)
    assert "60" in cellsilo("info", tmp_path / "o")
    tile = tmp_path / "o/tiles/tile_000001.dct"
    decoded = json.loads(cellsilo("tile", "decode", tile, "--json"))
    part = x[25:50]
    assert (decoded["n_genes"], decoded["indptr"], decoded["indices"], decoded["data"]) == (25, part.indptr.tolist(), part.indices.tolist(), part.data.tolist())
    assert "good" in cellsilo("tile", "verify", tile, tile)
    shown = json.loads(cellsilo("tile", "inspect", tile, "--json"))
    assert shown["n_cells"] == 25 and shown["chunks"][0]["cells"] == [0, 25]
    assert "vexc" in cellsilo("tile", "inspect", tile)
    tile.write_bytes(tile.read_bytes()[:-1])
    (tmp_path / "o/tiles/tile_000002.dct").unlink()
    done = subprocess.run([BINARY, "verify", tmp_path / "o", "--json"], capture_output=True, text=True)
    faults = json.loads(done.stdout)["faults"]
    assert done.returncode == 1 and len(faults) == 2, faults
    assert "total_size" in subprocess.run([BINARY, "tile", "verify", tile], capture_output=True, text=True).stdout
    refused("tile", "decode", tile)


def test_usage_and_files_that_are_not_there(tmp_path):
    assert "No such file" in refused("convert", tmp_path / "no.h5ad", "-o", tmp_path / "o")
    for words in (["convert"], ["convert", "a", "-o", "b", "--preset", "huge"], ["export", "a", "-o", "b", "--cells", "x"], ["nonsense"]):
        refused(*words, status=2)
    write(tmp_path / "a.h5ad", counts())
    convert(tmp_path / "a.h5ad", tmp_path / "o")
    assert "0:70" in refused("export", tmp_path / "o", "-o", tmp_path / "e.h5ad", "--cells", "0:71", status=2)
    for command in ("convert", "verify", "info", "export", "demo"):
        assert "Example" in cellsilo(command, "--help")


def test_demo(tmp_path):
    out = cellsilo("demo", "--keep", tmp_path / "demo.silo")
    assert "all is well" in out and "80 cells" in out
    assert json.loads(cellsilo("demo", "--json"))["shuffled_pass"]["cells"] == 80
    cellsilo("verify", tmp_path / "demo.silo")
