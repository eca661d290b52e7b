"""How codes of joint embeddings do with few pairs, and what rows without a partner add: one line per run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/few_pairs.py embeddings/iapr-near

Each set is a folder with `image.npy` and `text.npy` (benchmarks/two_tower.py makes them). 1,000 random pairs are
searched and not learned from. Of the others, some are learned from as pairs, and once more with up to 4,000 further
rows, half of them only with their image and half only with their text. Codes have 128 bits, queries are floats.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh

N_NEW, N_ALONE, N_BITS, K = 1000, 4000, 128, 10
PAIRS, SEEDS = (100, 300, 1000, 3000, 8000), range(5)


def rows_of(folder: Path, n_pairs: int, unpaired: bool, seed: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Views to learn from, and new pairs; None if the set has too few."""
    views = {name: np.load(folder / f"{name}.npy").astype(np.float32) for name in ("image", "text")}
    order = np.random.default_rng(seed).permutation(len(views["image"]))
    new, pairs, rest = order[:N_NEW], order[N_NEW : N_NEW + n_pairs], order[N_NEW + n_pairs :][:N_ALONE]
    half = len(rest) // 2
    if len(pairs) < n_pairs or (unpaired and half < 100):
        return None
    learned = {name: X[pairs] for name, X in views.items()}
    if unpaired:
        alone = {"image": rest[:half], "text": rest[half : 2 * half]}
        for name, X in views.items():
            gap = np.full((half, X.shape[1]), np.nan, np.float32)
            parts = [X[alone[other]] if other == name else gap for other in alone]
            learned[name] = np.vstack([learned[name], *parts])
    return learned, {name: X[new] for name, X in views.items()}


def run(job: tuple[Path, int, int, bool, str]) -> dict[str, Any] | None:
    folder, n_pairs, seed, unpaired, target = job
    rows = rows_of(folder, n_pairs, unpaired, seed)
    if rows is None:
        return None
    learned, new = rows
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fh.FuseHash(n_bits=N_BITS, target=target, missing="allow", random_state=seed, n_threads=1).fit(learned)
    seconds = time.process_time() - started
    scores = fh.evaluation.evaluate_embeddings(model, new, k=K)
    partners = np.arange(N_NEW)[:, None]
    floats = [
        fh.evaluation.recall_of(fh.evaluation.nearest_by_cosine(new[s.query_view], new[s.item_view], K), partners)
        for s in scores
    ]
    return {
        "set": folder.name, "target": target, "pairs": n_pairs, "rows": len(learned["image"]), "seed": seed,
        "pair_recall": [round(s.pair_recall, 4) for s in scores], "recall": [round(s.recall, 4) for s in scores],
        "floats_pair_recall": [round(x, 4) for x in floats], "fit_seconds": round(seconds, 2),
        "version": fh.__version__,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("few_pairs.jsonl"))
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    jobs = list(
        product(args.sets, sorted(args.pairs, reverse=True), range(args.seeds), (False, True), ("pairs", "floats"))
    )
    with Pool(args.workers) as pool, args.out.open("w", encoding="utf-8") as out:
        for row in pool.imap_unordered(run, jobs):
            if row is not None:
                out.write(json.dumps(row) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
