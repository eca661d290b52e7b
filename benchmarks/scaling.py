"""Views in files: time and memory as the rows grow, and as workers of a Dask cluster are added.

    python benchmarks/scaling.py rows --data FOLDER --sizes 10000 100000 1000000     # 10000000 takes 10 GB there
    python benchmarks/scaling.py workers --data FOLDER --n 200000
    python benchmarks/scaling.py plot

Pairs have 128 + 128 features in float32 and lie in .npy files, which are written first where they are missing. Every
fit runs in a process of its own, so that peak memory is each one's own; it is that of the process (or, on a cluster,
of the client and of its largest worker) and includes the interpreter and its libraries. Each is preceded by a small
fit, so that compilation is not counted. Results are added to benchmarks/results/scaling-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
from fusehash.numerics.parallel import n_cores
from fusehash.streams import NpyWriter
from runs import described, result_path, store

DIMS = {"image": 128, "text": 128}
BITS = 64
# What the tuning starts from: the same fit without a search.
FIXED = {"feature_map": "rbf", "kernel_width": 1.0, "ridge": 0.03, "hash_ridge": 0.003, "graph_weight": 1.0,
         "latent_weight": 1.0, "spectral_power": 2.0, "view_weights": (1.0, 1.0)}  # fmt: skip
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("fusehash", {}),
    "fixed": ("fusehash", FIXED),
    "paper": ("agsfh", {"max_iter": 5, "tol": 0.0}),
}


def write_views(folder: Path, n: int, block: int = 50_000) -> dict[str, str]:
    """Files of n pairs: noisy, bent images of a shared 20-dimensional position in one of 50 groups."""
    paths = {name: folder / f"{name}-{n}.npy" for name in DIMS}
    if all(path.exists() for path in paths.values()):
        return {name: str(path) for name, path in paths.items()}
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((50, 20), dtype=np.float32)
    maps = {name: rng.standard_normal((20, d)).astype(np.float32) / np.float32(4.5) for name, d in DIMS.items()}
    with (
        NpyWriter(paths["image"], n, DIMS["image"], np.float32) as image,
        NpyWriter(paths["text"], n, DIMS["text"], np.float32) as text,
    ):
        for start in range(0, n, block):
            rows = min(block, n - start)
            position = centers[rng.integers(50, size=rows)] + 0.7 * rng.standard_normal((rows, 20), dtype=np.float32)
            for name, out in (("image", image), ("text", text)):
                noise = rng.standard_normal((rows, DIMS[name]), dtype=np.float32)
                out.write(np.tanh(position @ maps[name]) + np.float32(0.3) * noise)
    return {name: str(path) for name, path in paths.items()}


def make(method: str, n_bits: int = BITS, **more: Any) -> Any:
    name, params = METHODS[method]
    return fh.hashers.make(name, n_bits=n_bits, random_state=0, **params, **more)


def warm_up(method: str) -> None:
    """Compile, and import what is imported when first used."""
    rng = np.random.default_rng(0)
    make(method, 16).fit({name: rng.standard_normal((600, d)).astype(np.float32) for name, d in DIMS.items()})


def peak_mib() -> float:
    """Peak memory of this process alone; what the resource module says begins with that of the process before it."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed_fit(method: str, views: dict[str, str]) -> tuple[float, dict[str, float], Any]:
    """Seconds of a fit, and when each of its stages began."""
    stages: dict[str, float] = {}
    started = time.perf_counter()
    model = make(
        method, callback=lambda step, total, message: stages.setdefault(message, time.perf_counter() - started)
    )
    model.fit(views)
    return time.perf_counter() - started, stages, model


def fit_rows(method: str, views: dict[str, str], n: int) -> dict[str, Any]:
    warm_up(method)
    before = peak_mib()
    seconds, stages, model = timed_fit(method, views)
    return {
        "n": n,
        "method": method,
        "threads": n_cores(),
        "fit_s": seconds,
        "codes_s": seconds - stages.get("codes", seconds),
        "peak_mib": peak_mib(),
        "before_mib": before,
        "data_mib": n * sum(DIMS.values()) * 4 / 2**20,
        "codes_mib": model.codes_.nbytes / 2**20,
    }


def fit_on_workers(method: str, views: dict[str, str], n: int, n_workers: int) -> dict[str, Any]:
    """The fit on a cluster of processes, and how its codes agree with those of one process."""
    from distributed import Client, LocalCluster

    warm_up(method)
    alone_s, _, alone = timed_fit(method, views)
    options = {"n_workers": n_workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
        client.run(warm_up, method)
        seconds, stages, model = timed_fit(method, views)
        workers = client.run(peak_mib)
    return {
        "n": n,
        "method": method,
        "workers": n_workers,
        "fit_s": seconds,
        "codes_s": seconds - stages.get("codes", seconds),
        "no_cluster_s": alone_s,
        "client_peak_mib": peak_mib(),
        "worker_peak_mib": max(workers.values()),
        "equal_bits": 1.0 - float(np.unpackbits(model.codes_ ^ alone.codes_).mean()),
    }


# -- processes and results -------------------------------------------------------------------------------------------


def in_a_process(what: str, *arguments: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, what, *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def keep(table: str, found: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Put a result into the file of today, in the place of an earlier one of the same setting."""
    path = result_path("scaling")
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else described()
    others = [row for row in known.get(table, []) if any(row[key] != found[key] for key in keys)]
    known[table] = sorted([*others, found], key=lambda row: [str(row["method"]), *(row[key] for key in keys[1:])])
    store(path, known)
    print(found, flush=True)


def run_rows(data: Path, sizes: list[int], methods: list[str]) -> None:
    for n in sizes:
        write_views(data, n)
        for method in methods:
            keep("rows", in_a_process("one", data, n, method), ("method", "n"))


def run_workers(data: Path, n: int, counts: list[int], methods: list[str]) -> None:
    write_views(data, n)
    for method in methods:
        for count in counts:
            found = in_a_process("one", data, n, method, "--workers", count)
            keep("workers", found, ("method", "n", "workers"))


def plot() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = json.loads(result_path("scaling").read_text())
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for method in dict.fromkeys(row["method"] for row in found.get("rows", [])):
        rows = [row for row in found["rows"] if row["method"] == method]
        axes[0].loglog([row["n"] for row in rows], [row["fit_s"] for row in rows], "o-", label=method)
        axes[1].semilogx([row["n"] for row in rows], [row["peak_mib"] for row in rows], "o-", label=method)
    sizes = sorted({row["n"] for row in found.get("rows", [])})
    if sizes:
        axes[1].semilogx(
            sizes, [n * sum(DIMS.values()) * 4 / 2**20 for n in sizes], ":", color="gray", label="the data"
        )
        axes[1].set_ylim(0, 2400)
        axes[1].axhline(2048, color="gray", linewidth=0.8)
    for method in dict.fromkeys(row["method"] for row in found.get("workers", [])):
        rows = [row for row in found["workers"] if row["method"] == method]
        label = f"{method}, {rows[0]['n']:,} pairs"
        axes[2].plot([row["workers"] for row in rows], [row["fit_s"] for row in rows], "o-", label=label)
    titles = (
        "Whole fit from files",
        "Peak memory of the process",
        f"Dask workers on {found['machine']['cores']} cores",
    )
    labels = (("pairs (128 + 128 features)", "seconds"), ("pairs (128 + 128 features)", "MiB"), ("workers", "seconds"))
    for axis, title, (x, y) in zip(axes, titles, labels, strict=True):
        axis.set(title=title, xlabel=x, ylabel=y)
        if axis.lines:
            axis.legend()
        axis.grid(alpha=0.3)
    axes[2].set_ylim(bottom=0)
    figure.savefig(result_path("scaling").with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rows, workers, one = (commands.add_parser(name) for name in ("rows", "workers", "one"))
    commands.add_parser("plot")
    for command in (rows, workers):
        command.add_argument("--data", type=Path, required=True, help="folder for the files, 1 KB a pair")
    rows.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    rows.add_argument("--methods", nargs="+", default=["default", "fixed"], choices=METHODS)
    workers.add_argument("--n", type=int, default=200_000)
    workers.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    workers.add_argument("--methods", nargs="+", default=["default", "paper"], choices=METHODS)
    one.add_argument("data", type=Path)
    one.add_argument("n", type=int)
    one.add_argument("method")
    one.add_argument("--workers", type=int)
    given = parser.parse_args()
    if given.command == "rows":
        run_rows(given.data, given.sizes, given.methods)
    elif given.command == "workers":
        run_workers(given.data, given.n, given.counts, given.methods)
    elif given.command == "plot":
        plot()
    else:
        views = write_views(given.data, given.n)
        if given.workers is None:
            print(json.dumps(fit_rows(given.method, views, given.n)))
        else:
            print(json.dumps(fit_on_workers(given.method, views, given.n, given.workers)))


if __name__ == "__main__":
    main()
