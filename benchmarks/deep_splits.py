"""Deep methods on photos, several ways to divide them: how much a figure depends on which photos are the queries.

    python benchmarks/deep_splits.py photos.npz --device cuda --out FILE.json [--only jdsh,cirh,ucch] [--limit 120]

Split 0 is the one of photos.npz (deep_features.py); split s of the others is that of default_rng(s).permutation: 600
queries, 1,200 pairs to learn from, 600 new items. 64 bits, seed 0, the authors' settings, MAP@50. A line is stored when
its fit is finished; after the limit no fit begins.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import fusehash as fh
from fusehash import hashers
from fusehash.evaluation import evaluate
from runs import described, store

BITS, SPLITS, N_QUERIES, N_TRAIN = 64, range(8), 600, 1200


def divided(photos: fh.datasets.PairedDataset, split: int) -> fh.datasets.PairedDataset:
    """The photos with other queries."""
    if split == 0:
        return photos
    order = np.random.default_rng(split).permutation(photos.views.n_rows)
    train = np.sort(order[N_QUERIES : N_QUERIES + N_TRAIN])
    query, database = np.sort(order[:N_QUERIES]), np.sort(order[N_QUERIES:])
    return replace(photos, train=train, query=query, database=database, split=f"default_rng({split})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cpu", help="where deep methods learn")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["jdsh", "cirh", "ucch"])
    parser.add_argument("--limit", type=float, default=np.inf, help="seconds")
    options = parser.parse_args()
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    started, rows, head = time.monotonic(), [], described("torch")
    photos = fh.datasets.load(options.file, n_train=N_TRAIN)
    for split in SPLITS:
        data = divided(photos, split)
        for method in options.only:
            if time.monotonic() - started > options.limit:
                return
            begun = time.perf_counter()
            model = hashers.make(method, n_bits=BITS, random_state=0)
            if "device" in model.get_params(deep=False) and method != "fusehash":
                model.set_params(device=options.device)
            labels = data.labels[data.train] if model.supervised else None
            model.fit(data.views.rows(data.train), labels)
            seconds = round(time.perf_counter() - begun, 2)
            scores = {
                f"{score.protocol} {score.direction}": round(float(score.mean), 4)
                for score in evaluate(model, data, k=50, refit=False).scores
            }
            rows.append({"split": split, "method": method, "seconds": seconds, "scores": scores})
            store(options.out, {**head, "device": options.device, "rows": rows})
            print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
