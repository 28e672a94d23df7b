"""h5ad files as the real anndata writes them: every matrix kind, number type, filter, chunking and layout."""

import anndata as ad
import h5py
import hdf5plugin
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import adata, cellsilo, convert, counts, digest, refused, same

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_matrix_kinds_and_types(tmp_path, kind, dtype):
    x = counts()
    a = adata(x)
    if kind == "dense":
        a.X = x.toarray().astype(dtype)
        a.write_h5ad(tmp_path / "a.h5ad")
    else:
        a.X = sp.csr_matrix(x) if kind == "csr" else sp.csc_matrix(x)
        a.write_h5ad(tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad", "r+") as f:
            data = f["X/data"][:].astype(dtype)
            del f["X/data"]
            f["X/data"] = data
    report = same(tmp_path, tmp_path / "a.h5ad", x, names=a.var_names)
    assert kind.replace("csr", "CSR").replace("csc", "CSC") in report["sources"][0]["kind"]


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_compressions(tmp_path, kind, compression):
    x = counts(400, 300)
    a = adata({"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda m: m.toarray()}[kind](x.astype(np.float32)))
    a.write_h5ad(tmp_path / "a.h5ad", compression=compression)
    same(tmp_path, tmp_path / "a.h5ad", x)


FILTERS = {
    "blosc lz4": hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE),
    "blosc blosclz": hdf5plugin.Blosc(cname="blosclz", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
    "blosc zstd": hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.NOSHUFFLE),
    "blosc zlib": hdf5plugin.Blosc(cname="zlib"),
    "blosc lz4hc": hdf5plugin.Blosc(cname="lz4hc"),
    "lz4": hdf5plugin.LZ4(),
    "lz4 small blocks": hdf5plugin.LZ4(nbytes=1024),
    "zstd": hdf5plugin.Zstd(clevel=5),
    "gzip shuffle fletcher32": dict(compression="gzip", shuffle=True, fletcher32=True),
    "lzf shuffle fletcher32": dict(compression="lzf", shuffle=True, fletcher32=True),
    "fletcher32 alone": dict(fletcher32=True),
    "shuffle alone": dict(shuffle=True),
}


def rewrite(path, names, **kwargs):
    """Stores arrays again with other filters or chunks."""
    with h5py.File(path, "r+") as f:
        for name in names:
            data, attrs = f[name][...], dict(f[name].attrs)
            del f[name]
            f.create_dataset(name, data=data, **kwargs).attrs.update(attrs)


@pytest.mark.parametrize("name", FILTERS)
def test_filters(tmp_path, name):
    x = counts(300, 200)
    adata(x.astype(np.float64)).write_h5ad(tmp_path / "a.h5ad")
    rewrite(tmp_path / "a.h5ad", ["X/data", "X/indices", "X/indptr"], chunks=(101,), **FILTERS[name])
    same(tmp_path, tmp_path / "a.h5ad", x)


def test_an_unknown_filter_is_named(tmp_path):
    adata(counts()).write_h5ad(tmp_path / "a.h5ad")
    rewrite(tmp_path / "a.h5ad", ["X/data"], chunks=(10,), **hdf5plugin.BZip2())
    message = refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "o")
    assert "filter 307" in message and "h5repack" in message


@pytest.mark.parametrize("chunks", [(1,), (7,), (1000,), (100_000,)])
def test_sparse_chunkings(tmp_path, chunks):
    x = counts(300, 100)
    adata(x).write_h5ad(tmp_path / "a.h5ad")
    rewrite(tmp_path / "a.h5ad", ["X/data", "X/indices", "X/indptr"], chunks=chunks, maxshape=(None,), compression="gzip")
    same(tmp_path, tmp_path / "a.h5ad", x)


@pytest.mark.parametrize("chunks", [None, (1, 45), (70, 1), (70, 45), (8, 8), (33, 2), (1, 1)])
def test_dense_chunkings(tmp_path, chunks):
    x = counts()
    adata(x.toarray()).write_h5ad(tmp_path / "a.h5ad")
    rewrite(tmp_path / "a.h5ad", ["X"], chunks=chunks)
    same(tmp_path, tmp_path / "a.h5ad", x)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_file_versions_and_wide_indices(tmp_path, libver):
    x = counts()
    adata(x).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad") as old, h5py.File(tmp_path / "b.h5ad", "w", libver=libver) as f:
        for key in old:
            old.copy(key, f)
        f.attrs.update(old.attrs)
        for name in ("indices", "indptr"):
            data = f[f"X/{name}"][:]
            del f[f"X/{name}"]
            f.create_dataset(f"X/{name}", data=data.astype(">i8" if name == "indices" else "<i8"), chunks=(13,), maxshape=(None,))
    same(tmp_path, tmp_path / "b.h5ad", x)


def test_chunks_that_were_never_written_hold_zeros(tmp_path):
    x = counts().toarray()
    x[:40] = 0
    adata(x).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as f:
        attrs = dict(f["X"].attrs)
        del f["X"]
        d = f.create_dataset("X", x.shape, dtype="f4", chunks=(10, 45), compression="gzip")
        d[40:] = x[40:]
        d.attrs.update(attrs)
    same(tmp_path, tmp_path / "a.h5ad", sp.csr_matrix(x))


def test_unsorted_repeated_and_zero_entries(tmp_path):
    a = adata(counts(3, 6))
    a.write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as f:
        for name, values in (("data", [1, 2, 3, 0, 5, 6]), ("indices", [5, 0, 5, 1, 2, 0]), ("indptr", [0, 4, 4, 6])):
            del f[f"X/{name}"]
            f[f"X/{name}"] = np.array(values, np.int32)
    expected = sp.csr_matrix(([2, 4, 6, 5], [0, 5, 0, 2], [0, 2, 2, 4]), shape=(3, 6))
    report = same(tmp_path, tmp_path / "a.h5ad", expected)
    assert any(n.startswith("warning: 1 entries") for n in report["notices"])


def test_layers_and_raw(tmp_path):
    raw, x = counts(50, 30), counts(50, 12, seed=1)
    a = adata(raw)
    a.raw = a
    a = a[:, :12].copy()
    a.X = x.astype(np.float32) * 0.5
    a.layers["counts"], a.layers["other"] = x, x * 2
    a.write_h5ad(tmp_path / "a.h5ad")
    report = same(tmp_path, tmp_path / "a.h5ad", x)
    assert report["sources"][0]["matrix"] == "layers/counts" and any("layers/counts" in n for n in report["notices"])
    convert(tmp_path / "a.h5ad", tmp_path / "raw", "--matrix", "raw/X")
    assert "30 genes" in cellsilo("export", tmp_path / "raw", "-o", tmp_path / "raw.h5ad")
    assert digest(ad.read_h5ad(tmp_path / "raw.h5ad").X) == digest(raw)
    convert(tmp_path / "a.h5ad", tmp_path / "other", "--matrix", "layers/other")
    assert "not an integer" in refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "x", "--matrix", "X")
    message = refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "x", "--matrix", "layers/nothing")
    assert "layers/other" in message
    refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "x", "--matrix", "nonsense", status=2)


@pytest.mark.parametrize("writer", ["plain", "nullable", "arrow"])
def test_gene_names_in_every_string_encoding(tmp_path, writer):
    a = adata(counts(20, 5))
    names = ["α", "", "B", "naïve gene", "x" * 300]
    if writer == "plain":
        a.var_names = names
        a.write_h5ad(tmp_path / "a.h5ad")
    else:
        dtype = pd.StringDtype("pyarrow" if writer == "arrow" else "python")
        a.var.index = pd.Index(pd.array(names, dtype=dtype))
        with ad.settings.override(allow_write_nullable_strings=True):
            a.write_h5ad(tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad") as f:
            assert f["var"][f["var"].attrs["_index"]].attrs["encoding-type"] == "nullable-string-array"
    same(tmp_path, tmp_path / "a.h5ad", a.X, names=names)


def test_gene_columns(tmp_path):
    a = adata(counts(20, 4))
    a.var["gene_ids"] = ["E1", "E2", "E3", "E4"]
    a.var["kind"] = pd.Categorical(["x", "y", "x", "y"])
    a.var.index.name = "symbol"
    a.write_h5ad(tmp_path / "a.h5ad")
    same(tmp_path, tmp_path / "a.h5ad", a.X, "--gene-column", "gene_ids", names=a.var["gene_ids"])
    report = convert(tmp_path / "a.h5ad", tmp_path / "o", "--gene-column", "kind", "--make-unique")
    assert report["n_genes"] == 4
    message = refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "p", "--gene-column", "none", status=2)
    assert "gene_ids" in message


@pytest.mark.parametrize("strings", ["fixed", "variable"])
def test_tables_of_records(tmp_path, strings):
    """obs and var as compound datasets, X with h5sparse attributes: anndata 0.5 (fixed) and 0.6 (variable)."""
    x = counts(9, 4)
    kind = "S5" if strings == "fixed" else h5py.string_dtype()
    var = np.array([(b"A", 1.5), (b"BB", 2.5), (b"CCC", 0), (b"", 1)], dtype=[("index", kind), ("score", "f4")])
    with h5py.File(tmp_path / "a.h5ad", "w") as f:
        f["obs"] = np.array([(f"c{i}".encode(),) for i in range(9)], dtype=[("index", "S3")])
        f["var"] = var
        g = f.create_group("X")
        g.attrs["h5sparse_format"], g.attrs["h5sparse_shape"] = b"csr", np.array([9, 4])
        for name in ("data", "indices", "indptr"):
            g[name] = getattr(x, name)
    same(tmp_path, tmp_path / "a.h5ad", x, names=["A", "BB", "CCC", ""])
    same(tmp_path, tmp_path / "a.h5ad", x, "--gene-column", "score", "--overwrite", names=["1.5", "2.5", "0", "1"])


BAD_VALUES = [(0.5, "not an integer"), (-1.0, "negative"), (np.nan, "not a number"), (np.inf, "above"), (3e9, "above")]


@pytest.mark.parametrize(("value", "says"), BAD_VALUES)
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_values_that_are_not_counts(tmp_path, kind, value, says):
    x = counts().astype(np.float64).tolil()
    x[31, 7] = value
    a = adata({"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda m: m.toarray()}[kind](x.tocsr()))
    a.write_h5ad(tmp_path / "a.h5ad")
    message = refused("convert", tmp_path / "a.h5ad", "-o", tmp_path / "o", "--matrix", "X")
    assert says in message and "cell 31" in message and "gene g7" in message and "a.h5ad" in message and "--matrix" in message
    assert not (tmp_path / "o").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5ad"], "nothing is left beside it"


def test_counts_above_65535_and_many_genes(tmp_path):
    n_genes = 200_000
    x = sp.csr_matrix(([70_000, 1, 2**31 - 1, 3], ([0, 0, 1, 2], [3, n_genes - 1, 150_000, 0])), shape=(3, n_genes), dtype=np.int64)
    adata(x).write_h5ad(tmp_path / "a.h5ad")
    same(tmp_path, tmp_path / "a.h5ad", x, "--gene-order", "source")
    same(tmp_path, tmp_path / "a.h5ad", x, "--overwrite")


def test_options_of_10x_do_nothing_here(tmp_path):
    adata(counts()).write_h5ad(tmp_path / "a.h5ad")
    report = convert(tmp_path / "a.h5ad", tmp_path / "o", "--feature-type", "all")
    assert any("--feature-type" in n and "does nothing" in n for n in report["notices"])


def test_no_cells(tmp_path):
    adata(sp.csr_matrix((0, 7), dtype=np.int32)).write_h5ad(tmp_path / "a.h5ad")
    assert convert(tmp_path / "a.h5ad", tmp_path / "o")["n_cells"] == 0
    cellsilo("verify", tmp_path / "o")
