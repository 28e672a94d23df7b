"""AnnData zarr of versions 2 and 3 with the codecs such stores use, and loom files by loompy."""

import shutil

import anndata as ad
import h5py
import loompy
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from conftest import adata, cellsilo, convert, counts, digest, refused, same


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
@pytest.mark.parametrize("packing", ["folder", "zip"])
def test_versions_and_kinds(tmp_path, version, kind, packing):
    x = counts(120, 60)
    a = adata({"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda m: m.toarray()}[kind](x.astype(np.float32)))
    a.var["gene_ids"] = [f"E{i}" for i in range(60)]
    with ad.settings.override(zarr_write_format=version):
        a.write_zarr(tmp_path / "a.zarr")
    source = tmp_path / "a.zarr"
    if packing == "zip":
        source = shutil.make_archive(tmp_path / "b.zarr", "zip", tmp_path / "a.zarr")
    same(tmp_path, source, x, names=a.var_names)
    same(tmp_path, source, x, "--gene-column", "gene_ids", "--overwrite", names=a.var["gene_ids"])


def store(path, x, create, version=3):
    """An AnnData store whose X arrays are made by `create(group, name, data)`."""
    with ad.settings.override(zarr_write_format=version):
        adata(x).write_zarr(path)
    group = zarr.open_group(path, mode="r+")["X"]
    for name in ("data", "indices", "indptr"):
        data, attrs = group[name][...], dict(group[name].attrs)
        del group[name]
        create(group, name, data).attrs.update(attrs)


V3 = {
    "blosc lz4": dict(compressors=zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")),
    "blosc zstd": dict(compressors=zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")),
    "zstd": dict(compressors=zarr.codecs.ZstdCodec(level=5)),
    "zstd checksum": dict(compressors=zarr.codecs.ZstdCodec(level=1, checksum=True)),
    "gzip": dict(compressors=zarr.codecs.GzipCodec(level=5)),
    "gzip crc32c": dict(compressors=[zarr.codecs.GzipCodec(level=5), zarr.codecs.Crc32cCodec()]),
    "none": dict(compressors=None),
    "sharding": dict(shards=(100,), compressors=zarr.codecs.ZstdCodec(level=3)),
    "big-endian": dict(serializer=zarr.codecs.BytesCodec(endian="big")),
}


@pytest.mark.parametrize("name", V3)
def test_codecs_of_version_3(tmp_path, name):
    x = counts(90, 40)
    store(tmp_path / "a.zarr", x, lambda g, n, d: g.create_array(n, data=d, chunks=(25,), **V3[name]))
    same(tmp_path, tmp_path / "a.zarr", x)


@pytest.mark.parametrize("name", ["blosc", "zstd", "gzip", "zlib", "bz2", "none"])
def test_codecs_of_version_2(tmp_path, name):
    import numcodecs

    codec = {"blosc": numcodecs.Blosc(cname="blosclz", shuffle=1), "zstd": numcodecs.Zstd(3), "gzip": numcodecs.GZip(3), "zlib": numcodecs.Zlib(3), "bz2": numcodecs.BZ2(3), "none": None}[name]
    x = counts(90, 40)
    store(tmp_path / "a.zarr", x, lambda g, n, d: g.create_array(n, data=d, chunks=(33,), compressors=codec), version=2)
    same(tmp_path, tmp_path / "a.zarr", x)


def test_a_damaged_store_is_refused(tmp_path):
    store(tmp_path / "a.zarr", counts(), lambda g, n, d: g.create_array(n, data=d, chunks=(64,), compressors=zarr.codecs.GzipCodec()))
    chunk = next((tmp_path / "a.zarr/X/data/c").iterdir())
    chunk.write_bytes(chunk.read_bytes()[:-9])
    assert "X/data" in refused("convert", tmp_path / "a.zarr", "-o", tmp_path / "o")
    assert not (tmp_path / "o").exists()
    (tmp_path / "empty").mkdir()
    assert "neither a zarr store" in refused("convert", tmp_path / "empty", "-o", tmp_path / "o")


def test_export_of_zarr_reads_back(tmp_path):
    a = adata(counts())
    a.write_h5ad(tmp_path / "a.h5ad")
    convert(tmp_path / "a.h5ad", tmp_path / "o", "--tile-size", "9")
    cellsilo("export", tmp_path / "o", "-o", tmp_path / "b.zarr", "--cells", "5:33")
    back = ad.read_zarr(tmp_path / "b.zarr")
    assert digest(back.X) == digest(a.X[5:33]) and list(back.var_names) == list(a.var_names)
    same(tmp_path, tmp_path / "b.zarr", a.X[5:33], "--overwrite")


def test_loom(tmp_path):
    x = counts(150, 70)
    rows = {"Gene": np.array([f"g{i}" for i in range(70)]), "Accession": np.array([f"E{i}" for i in range(70)])}
    cols = {"CellID": np.array([f"c{i}" for i in range(150)])}
    loompy.create(str(tmp_path / "a.loom"), {"": x.T.toarray(), "spliced": (x * 2).T.toarray().astype(np.float32)}, rows, cols)
    same(tmp_path, tmp_path / "a.loom", x, names=rows["Gene"])
    same(tmp_path, tmp_path / "a.loom", x, "--gene-column", "gene_ids", "--overwrite", names=rows["Accession"])
    same(tmp_path, tmp_path / "a.loom", x * 2, "--matrix", "layers/spliced", "--overwrite")
    assert "spliced" in refused("convert", tmp_path / "a.loom", "-o", tmp_path / "x", "--matrix", "layers/none")
    with h5py.File(tmp_path / "a.loom", "r+") as f:
        f["matrix"][3, 8] = -2
    assert "cell 8, gene g3 has -2" in refused("convert", tmp_path / "a.loom", "-o", tmp_path / "x")
