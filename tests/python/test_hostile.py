"""Damaged and hostile inputs: one clear line, exit status 1, no panic, no output, no run-away memory."""

import json
import pathlib
import resource
import shutil
import struct
import subprocess

import h5py
import numpy as np
import pytest
from conftest import BINARY, adata, cellsilo, convert, counts, refused

LIMIT = 2 << 30


def run_limited(*args):
    """Runs the command with 2 GiB of address space to spare, so that an allocation by a claimed size fails."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    done = subprocess.run([BINARY, "--threads", "1", *map(str, args)], capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert "panicked" not in done.stderr, done.stderr[-600:]
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr[-600:])
    return done


@pytest.fixture(scope="module")
def h5ad(tmp_path_factory):
    path = tmp_path_factory.mktemp("h") / "a.h5ad"
    adata(counts(50, 20).astype(np.float32)).write_h5ad(path, compression="gzip")
    return path


def test_prefixes_of_a_file(tmp_path, h5ad):
    whole = h5ad.read_bytes()
    for size in [0, 1, 7, 8, 48, 96, *np.linspace(100, len(whole) - 1, 40).astype(int)]:
        (tmp_path / "cut.h5ad").write_bytes(whole[:size])
        done = run_limited("convert", tmp_path / "cut.h5ad", "-o", tmp_path / "o", "-q")
        if done.returncode == 0:  # what was cut off is not part of the matrix
            shutil.rmtree(tmp_path / "o")
        else:
            assert done.stderr.count("\n") == 1 and not (tmp_path / "o").exists(), done.stderr


def test_flipped_bytes_of_a_file(tmp_path, h5ad):
    whole = h5ad.read_bytes()
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(whole), 150):
        bad = bytearray(whole)
        bad[at] ^= 1 << rng.integers(8)
        (tmp_path / "bad.h5ad").write_bytes(bad)
        run_limited("convert", tmp_path / "bad.h5ad", "-o", tmp_path / "o", "-q")
        shutil.rmtree(tmp_path / "o", ignore_errors=True)


CLAIMS = {
    "shape": lambda f: f["X"].attrs.__setitem__("shape", np.array([2**40, 20])),
    "negative shape": lambda f: f["X"].attrs.__setitem__("shape", np.array([-1, 20])),
    "more genes": lambda f: f["X"].attrs.__setitem__("shape", np.array([50, 21])),
    "indptr falls": lambda f: f["X/indptr"].__setitem__(3, 10**6),
    "indptr negative": lambda f: f["X/indptr"].__setitem__(0, -5),
    "index past the end": lambda f: f["X/indices"].__setitem__(7, 20),
    "index negative": lambda f: f["X/indices"].__setitem__(7, -1),
    "no such index column": lambda f: f["var"].attrs.__setitem__("_index", "../../etc"),
    "no var": lambda f: f.__delitem__("var"),
    "no data": lambda f: f["X"].__delitem__("data"),
    "two-dimensional data": lambda f: (f["X"].__delitem__("data"), f["X"].create_dataset("data", (10, 10))),
    "text for data": lambda f: (f["X"].__delitem__("data"), f["X"].create_dataset("data", data=["a"] * 10)),
    "huge empty data": lambda f: [(f["X"].__delitem__(n), f["X"].create_dataset(n, (2**40,), chunks=(2**20,), dtype="i4")) for n in ("data", "indices")],
    "huge chunks": lambda f: (f["X"].__delitem__("data"), f["X"].create_dataset("data", (2**33,), chunks=(2**28,), dtype="f8", compression="gzip")),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims(tmp_path, h5ad, claim):
    shutil.copy(h5ad, tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as f:
        CLAIMS[claim](f)
    done = run_limited("convert", tmp_path / "a.h5ad", "-o", tmp_path / "o", "-q")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "a.h5ad" in done.stderr and not (tmp_path / "o").exists()


@pytest.fixture
def dataset(tmp_path, h5ad):
    convert(h5ad, tmp_path / "d", "--tile-size", "20")
    return tmp_path / "d"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("format", "zip", "format"),
        ("version", 3, "version"),
        ("n_cells", 51, "n_cells"),
        ("n_genes", 21, "manifest states"),
        ("n_genes", 2**31 + 1, "n_genes"),
        ("tile_cells", [20, 20], "tile_nnz"),
        ("tile_size", 0, "tile_size"),
        ("tile_bytes", [1, 2, 3], "the manifest states 1"),
        ("n_cells", -1, "not complete"),
        ("has_obs", True, "obs"),
    ],
)
def test_manifests(dataset, key, value, says):
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {key: value}))
    done = run_limited("verify", dataset)
    assert done.returncode == 1 and says in done.stdout + done.stderr, done.stdout + done.stderr


def test_gene_order_and_names_of_others(dataset):
    order = np.load(dataset / "gene_order.npy")
    for bad in (order[:-1], np.zeros_like(order), order + 1, order.astype(np.float32), order.reshape(4, 5)):
        np.save(dataset / "gene_order.npy", bad)
        assert "gene_order" in refused("export", dataset, "-o", dataset.parent / "e.h5ad")
    np.save(dataset / "gene_order.npy", order.astype(np.int64))
    cellsilo("export", dataset, "-o", dataset.parent / "e.h5ad")
    (dataset / "gene_order.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"x")
    assert "gene_order" in refused("info", dataset)


def test_a_tile_that_claims_a_gigabyte(dataset):
    """Behind a right CRC: nothing is allocated for nonzeros that the tile cannot hold."""
    import zlib

    path = dataset / "tiles/tile_000000.dct"
    bad = bytearray(path.read_bytes())
    bad[24:32] = struct.pack("<Q", 2**30)
    bad[56:60] = struct.pack("<I", zlib.crc32(bytes(bad[64:])))
    path.write_bytes(bad)
    done = run_limited("tile", "verify", path)
    assert done.returncode == 1 and "nnz" in done.stdout


def test_damaged_zips(tmp_path):
    """A zarr in a zip file: prefixes, and bytes changed in its directory at the end."""
    adata(counts(20, 9)).write_zarr(tmp_path / "a.zarr")
    whole = pathlib.Path(shutil.make_archive(tmp_path / "b.zarr", "zip", tmp_path / "a.zarr")).read_bytes()
    rng = np.random.default_rng(5)
    bad = [whole[:n] for n in np.linspace(0, len(whole) - 1, 15).astype(int)]
    for at in rng.integers(len(whole) - 4000, len(whole), 60):
        changed = bytearray(whole)
        changed[at] = rng.choice([0, 255, changed[at] ^ 1])
        bad.append(changed)
    for data in bad:
        (tmp_path / "bad.zarr.zip").write_bytes(data)
        done = run_limited("convert", tmp_path / "bad.zarr.zip", "-o", tmp_path / "o", "-q")
        assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
