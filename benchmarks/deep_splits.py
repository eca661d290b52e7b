"""How much a figure depends on which photos are the queries: deep methods on photos that are divided in several ways.

    python benchmarks/deep_splits.py run photos.npz [--device cuda --only jdsh,cirh,ucch --limit 120]
    python benchmarks/deep_splits.py table benchmarks/results/deep_splits-DATE.json

Split 0 is that of photos.npz (deep_features.py). Split s is by the permutation of default_rng(s): 600 queries, 1,200
pairs to learn from, 600 new items. 64 bits, seed 0, the defaults of the package, MAP@50. The file is written after each
fit; after the limit no fit begins. Seconds are of the clock. `table` prints mean and spread over the splits, then the
least and the most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
from fusehash import hashers
from fusehash.evaluation import evaluate
from runs import described, result_path, store

BITS, SPLITS, N_QUERIES, N_TRAIN = 64, range(8), 600, 1200
COLUMNS = ("H image->text", "H text->image", "HN image->text", "HN text->image")


def divided(photos: fh.datasets.PairedDataset, split: int) -> fh.datasets.PairedDataset:
    """The photos with the queries of a split."""
    if split == 0:
        return photos
    order = np.random.default_rng(split).permutation(photos.views.n_rows)
    train = np.sort(order[N_QUERIES : N_QUERIES + N_TRAIN])
    query, database = np.sort(order[:N_QUERIES]), np.sort(order[N_QUERIES:])
    return replace(photos, train=train, query=query, database=database, split=f"default_rng({split})")


def measured(method: str, data: fh.datasets.PairedDataset, device: str) -> dict[str, Any]:
    """One fit and its scores."""
    params = {"device": device} if hashers.info(method).is_deep else {}
    model = hashers.make(method, n_bits=BITS, random_state=0, **params)
    started = time.perf_counter()
    model.fit(data.views.rows(data.train), data.labels[data.train] if model.supervised else None)
    seconds = time.perf_counter() - started
    scores = evaluate(model, data, k=50, refit=False).scores
    return {
        "seconds": round(seconds, 2),
        "scores": {f"{score.protocol} {score.direction}": round(float(score.mean), 4) for score in scores},
    }


def run(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    ends_at = time.monotonic() + options.limit
    head, rows = described("torch"), []
    photos = fh.datasets.load(options.file, n_train=N_TRAIN)
    for split in SPLITS:
        data = divided(photos, split)
        for method in options.only:
            if time.monotonic() > ends_at:
                return
            rows.append({"split": split, "method": method, **measured(method, data, options.device)})
            store(options.out, {**head, "device": options.device, "rows": rows})
            print(json.dumps(rows[-1]), flush=True)


def table(results: Path) -> None:
    rows = json.loads(results.read_text())["rows"]
    print(f"| method | splits | {' | '.join(COLUMNS)} |\n{'|---' * (len(COLUMNS) + 2)}|")
    for method in dict.fromkeys(row["method"] for row in rows):
        scores = [row["scores"] for row in rows if row["method"] == method]
        cells = [summary([each[column] for each in scores]) for column in COLUMNS]
        print(f"| {method.upper()} | {len(scores)} | {' | '.join(cells)} |")


def summary(values: list[float]) -> str:
    """Such as '.710 ± .011 (.703 to .722)'."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    mean, around, least, most = (
        f"{value:.3f}".removeprefix("0") for value in (statistics.mean(values), spread, min(values), max(values))
    )
    return f"{mean} ± {around} ({least} to {most})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    running = parts.add_parser("run", help="fit and score")
    running.add_argument("file", type=Path, help="photos.npz")
    running.add_argument("--device", default="cpu", help="where deep methods learn")
    running.add_argument("--out", type=Path, default=result_path("deep_splits"))
    running.add_argument("--only", type=lambda text: text.split(","), default=["jdsh", "cirh", "ucch"], help="methods")
    running.add_argument("--limit", type=float, default=np.inf, help="seconds")
    printing = parts.add_parser("table", help="a stored run as Markdown")
    printing.add_argument("results", type=Path)
    options = parser.parse_args()
    if options.part == "table":
        table(options.results)
    else:
        run(options)


if __name__ == "__main__":
    main()
