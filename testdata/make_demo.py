#!/usr/bin/env python3
"""Makes testdata/demo.h5: every seventh of the 559 real cells that the celltypist package (MIT) ships.

    pip download --no-deps celltypist==1.7.1
    make_demo.py celltypist-1.7.1-py3-none-any.whl demo.h5

The layout is Cell Ranger 3's, so that names are compressed too and sizes compare fairly. Needs numpy, pandas,
scipy, h5py.
"""
import io
import sys
import zipfile

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

source, out = sys.argv[1:]
member = "celltypist/data/samples/sample_cell_by_gene.csv"
table = pd.read_csv(io.BytesIO(zipfile.ZipFile(source).read(member)), index_col=0).iloc[::7]
counts = sp.csr_matrix(np.rint(table.values).astype(np.int32))
names = np.array(table.columns, dtype="S")
with h5py.File(out, "w", track_order=False) as f:
    m = f.create_group("matrix")
    kw = dict(compression="gzip", compression_opts=4)
    m.create_dataset("barcodes", data=np.array(table.index, dtype="S"), **kw)
    for name in ("data", "indices"):
        m.create_dataset(name, data=getattr(counts, name).astype(np.int32), chunks=(80_000,), **kw)
    m.create_dataset("indptr", data=counts.indptr.astype(np.int64), **kw)
    m.create_dataset("shape", data=np.array(counts.shape[::-1], dtype=np.int32))
    features = m.create_group("features")
    for name, values in [("id", names), ("name", names), ("feature_type", np.full(len(names), b"Gene Expression")), ("genome", np.full(len(names), b"GRCh38"))]:
        features.create_dataset(name, data=values, **kw)
