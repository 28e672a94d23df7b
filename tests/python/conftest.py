"""Runs the command that cargo built on files that the real anndata, scanpy and loompy make."""

import hashlib
import json
import os
import pathlib
import subprocess
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

ROOT = pathlib.Path(__file__).parents[2]
BINARY = pathlib.Path(os.environ.get("CELLSILO_BIN", ROOT / "target/release/cellsilo"))
SHARED = ROOT.parent / "shared"

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=UserWarning)


class Failed(Exception):
    """The command ended with another status than 0."""

    def __init__(self, status, message):
        super().__init__(f"exit status {status}: {message}")
        self.status, self.message = status, message


def cellsilo(*args, timeout=300):
    """Runs the command; returns its standard output. Whatever happens, it must not panic."""
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=timeout)
    assert "panicked" not in done.stderr, done.stderr
    if done.returncode:
        assert done.returncode in (1, 2, 130), (done.returncode, done.stderr)
        raise Failed(done.returncode, done.stderr.strip())
    return done.stdout


def convert(source, out, *args):
    """Converts and returns the report."""
    sources = source if isinstance(source, (list, tuple)) else [source]
    return json.loads(cellsilo("convert", *sources, "-o", out, "--json", *args))


def export(dataset, out, *args):
    """Exports as h5ad and returns it as AnnData."""
    cellsilo("export", dataset, "-o", out, "--overwrite", *args)
    return ad.read_h5ad(out)


def refused(*args, status=1):
    """Runs a command that must fail with one clear line; returns the line."""
    with pytest.raises(Failed) as failure:
        cellsilo(*args)
    assert failure.value.status == status, failure.value.message
    lines = [line for line in failure.value.message.splitlines() if line]
    assert len(lines) == 1 or status == 2, lines
    return failure.value.message


def digest(matrix):
    """The digest of EXPECTED.json: indptr i64, indices i32, data i32, little-endian, sorted."""
    matrix = sp.csr_matrix(matrix)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    h = hashlib.sha256()
    for part, dtype in ((matrix.indptr, "<i8"), (matrix.indices, "<i4"), (matrix.data, "<i4")):
        h.update(part.astype(dtype).tobytes())
    return h.hexdigest()


def counts(n_cells=70, n_genes=45, seed=0, density=0.25):
    """A small count matrix with an empty cell and an empty gene."""
    rng = np.random.default_rng(seed)
    dense = rng.poisson(3, (n_cells, n_genes)) * (rng.random((n_cells, n_genes)) < density)
    dense[n_cells // 3], dense[:, n_genes // 2] = 0, 0
    return sp.csr_matrix(dense.astype(np.int32))


def frame(n, prefix):
    return pd.DataFrame(index=[f"{prefix}{i}" for i in range(n)])


def adata(matrix, **kwargs):
    n_cells, n_genes = matrix.shape
    return ad.AnnData(matrix, obs=frame(n_cells, "c"), var=frame(n_genes, "g"), **kwargs)


def same(tmp_path, source, expected, *args, names=None):
    """Converts, verifies, exports, and compares with the expected matrix. Returns the report."""
    report = convert(source, tmp_path / "out.silo", *args)
    cellsilo("verify", tmp_path / "out.silo")
    back = export(tmp_path / "out.silo", tmp_path / "back.h5ad")
    assert back.shape == expected.shape
    assert digest(back.X) == digest(expected)
    if names is not None:
        assert list(back.var_names) == list(names)
    return report
