#!/usr/bin/env python3
"""Times whole commands on an atlas and prints a Markdown table; one row a case.

    python ../shared/tools/make_atlas.py celltypist-1.7.1-py3-none-any.whl atlas.h5ad --cells 100000
    benchmarks/commands.py atlas.h5ad [--work FOLDER] [--cases presets,shuffle,kinds]

Needs the release build; `kinds` also needs anndata, scipy and h5py. Peak memory is the kernel's count of the
resident set (ru_maxrss). Decode is `cellsilo tile verify`, every check included, over all tiles.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
BINARY = ROOT / "target/release/cellsilo"


def run(*args):
    """Seconds, peak MB and the standard output of a command."""
    started = time.perf_counter()
    child = subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.PIPE, text=True)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, args
    return time.perf_counter() - started, usage.ru_maxrss / 1024, out


def row(name, source, work, *options):
    out = work / "out.silo"
    shutil.rmtree(out, ignore_errors=True)
    seconds, memory, text = run("convert", source, "-o", out, "--json", "-q", *options)
    report = json.loads(text)
    check, _, _ = run("verify", out, "-q")
    per = report["output_bytes"] / report["nnz"]
    print(
        f"| {name} | {report['output_bytes'] / 1e6:.1f} | {per:.4f} | {report['output_bytes'] / report['n_cells']:.0f} | {report['input_bytes'] / report['output_bytes']:.2f} "
        f"| {report['scan_seconds']:.1f} | {report['write_seconds']:.1f} | {report['n_cells'] / seconds:,.0f} | {memory:.0f} | {check:.2f} |",
        flush=True,
    )
    return report


def prepare(source, work):
    """The same matrix as CSC and as zarr. In a process of its own: a child's peak memory starts at its parent's."""
    import anndata as ad

    a = ad.read_h5ad(source)
    a.write_zarr(work / "a.zarr")
    ad.AnnData(a.X.tocsc(), var=a.var).write_h5ad(work / "csc.h5ad", compression="gzip")


def kinds(source, work):
    subprocess.run([sys.executable, "-W", "ignore", __file__, source, "--work", work, "--cases", "prepare"], check=True, stdout=subprocess.DEVNULL)
    row("CSC h5ad", work / "csc.h5ad", work, "--preset", "fast")
    row("zarr", work / "a.zarr", work, "--preset", "fast")
    silo = work / "for-mtx.silo"
    shutil.rmtree(silo, ignore_errors=True)
    run("convert", source, "-o", silo, "--preset", "fast", "-q")
    run("export", silo, "-o", work / "mtx", "--overwrite", "-q")
    row("10x mtx, gzipped", work / "mtx", work, "--preset", "fast")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench-work"))
    parser.add_argument("--cases", default="presets")
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    print(f"{cpu}, {os.cpu_count()} cores, {run('--version')[2].strip()}, {args.source.name}\n")
    print("| case | MB | bytes/nonzero | bytes/cell | source/tiles | scan s | write s | cells/s | peak MB | verify s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in args.cases.split(","):
        if case == "presets":
            for preset in ("fast", "balanced", "small"):
                row(preset, args.source, args.work, "--preset", preset)
            row("zstd level 19", args.source, args.work, "--zstd-level", "19")
        elif case == "shuffle":
            row("fast, shuffled", args.source, args.work, "--preset", "fast", "--shuffle", "1")
        elif case == "kinds":
            kinds(args.source, args.work)
        elif case == "prepare":
            prepare(args.source, args.work)


if __name__ == "__main__":
    main()
