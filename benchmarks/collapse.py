"""Does a method give new items of frozen deep features nearly equal codes? Every method, one seed, 2,000 pairs.

    python benchmarks/collapse.py run flickr8k.npz [--jobs 2] [--only cmfh,lssh]
    python benchmarks/collapse.py table

Each learns from 2,000 random training pairs of Flickr8k (EfficientNet-Lite0 and the mean of five MiniLM captions, see
deep_features.py) with its defaults, 64 bits and seed 0, and codes the 1,000 photos and texts of the test set. `uneven`
is the largest |mean| of a bit over these, `constant` the share of bits beyond .99, `distinct` the smaller share of
different codes of the two views, R@10 from a text to its photo and back. Deep methods have heads of 512 units and 20
epochs. CPU seconds are those of the fit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np  # noqa: E402

import fusehash as fh  # noqa: E402
from fusehash import bits, hashers  # noqa: E402
from fusehash.evaluation import pair_recall  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "collapse.jsonl"
BITS, ROWS, NEARLY = 64, 2000, 0.99


def measured(method: str, file: Path, params: dict[str, Any]) -> dict[str, Any]:
    """One fit, and what its codes of new items look like."""
    warnings.simplefilter("ignore")
    data = fh.datasets.load(file, n_train=ROWS)
    is_deep = hashers.info(method).is_deep
    params = {**({"hidden": 512, "epochs": 20} if is_deep else {}), **params}
    model = hashers.make(method, n_bits=BITS, random_state=0, **params)
    labels = data.labels[data.train] if model.supervised else None
    started = time.process_time()
    try:
        model.fit(data.views.rows(data.train), labels)
    except fh.errors.FusehashError as error:
        return {"method": method, "params": params, "error": str(error)}
    seconds = time.process_time() - started
    codes = {view: model.encode(data.views[view][data.query], view=view) for view in ("image", "text")}
    means = np.array([np.abs(bits.unpack(c, BITS).astype(float).mean(axis=0)) for c in codes.values()])
    found = [pair_recall(codes[a], codes[b], 10)[0] for a, b in (("text", "image"), ("image", "text"))]
    return {
        "method": method,
        "params": params,
        "uneven": round(float(means.max()), 3),
        "constant": round(float((means > NEARLY).mean(axis=1).max()), 3),
        "distinct": round(min(len(np.unique(c, axis=0)) / len(c) for c in codes.values()), 3),
        "R@10 text->image": round(float(found[0]), 4),
        "R@10 image->text": round(float(found[1]), 4),
        "cpu_seconds": round(seconds, 1),
    }


def run(options: argparse.Namespace) -> None:
    there = {json.dumps([row["method"], row["params"]]) for row in stored(options.results)}
    names = options.only or [entry.name for entry in hashers.catalogue() if entry.kind != "quantizer"]
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(measured, name, options.file, options.params) for name in names]
        for future in as_completed(waiting):
            row = future.result()
            print(json.dumps(row), flush=True)
            if json.dumps([row["method"], row["params"]]) not in there:
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def stored(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def table(results: Path) -> None:
    print("| method | settings | uneven | constant bits | distinct | R@10 T→I | R@10 I→T | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(stored(results), key=lambda row: -row.get("R@10 text->image", -1.0)):
        settings = ", ".join(f"{name}={value}" for name, value in row["params"].items())
        if "error" in row:
            print(f"| {hashers.info(row['method']).title} | {settings} | {row['error']} | | | | | |")
            continue
        print(
            f"| {hashers.info(row['method']).title} | {settings} | {row['uneven']:.2f} | {row['constant']:.2f} "
            f"| {row['distinct']:.3f} | {row['R@10 text->image']:.3f} | {row['R@10 image->text']:.3f} "
            f"| {row['cpu_seconds']:.1f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "table"])
    parser.add_argument("file", nargs="?", type=Path, help="flickr8k.npz")
    parser.add_argument("--jobs", type=int, default=1, help="methods at a time")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="methods, by commas")
    parser.add_argument("--params", type=json.loads, default={}, help="settings of these methods, as JSON")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    run(chosen) if chosen.part == "run" else table(chosen.results)
