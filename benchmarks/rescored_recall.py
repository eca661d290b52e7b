"""What an index finds of the float ranking: codes of target="floats" first, then the best 100 again by their vectors.

    OMP_NUM_THREADS=1 python benchmarks/rescored_recall.py embeddings/*

Each set is a folder with `image.npy` and `text.npy` (benchmarks/two_tower.py makes four). Half of the pairs are learned
from, with the split of `fusehash bench run embeddings/table`; the rows of the other half are stored in a `HammingIndex`
with codes, factors and vectors, and 2,000 of them search the other view. Recall@10 is against cosines of the float
vectors. One line per set, kind of vectors and seed in benchmarks/results/rescored_recall-DATE.jsonl.
"""

from __future__ import annotations

import argparse
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
import runs
from fusehash.experiments.embeddings import EmbeddingSet, open_set

N_BITS, K, CANDIDATES, N_QUERIES = 256, 10, 100, 2000


def measure(data: EmbeddingSet, kind: str, seed: int) -> dict[str, Any]:
    model = fh.FuseHash(n_bits=N_BITS, target="floats", random_state=seed, n_threads=1).fit(data.learned)
    new = {name: np.asarray(data.new[name], np.float32) for name in data.new}
    asked = np.sort(np.random.default_rng(0).permutation(data.new.n_rows)[:N_QUERIES])
    row: dict[str, Any] = {"set": data.name, "vectors": kind, "n_bits": N_BITS, "candidates": CANDIDATES, "seed": seed}
    for query_view, item_view in permutations(new, 2):
        queries, items = new[query_view][asked], new[item_view]
        codes, factors = model.encode(items, view=item_view, with_factors=True)
        index = fh.HammingIndex(N_BITS, factors=True, vectors=kind, dim=items.shape[1])
        index.add(codes, factors=factors, vectors=items)
        exact = fh.evaluation.nearest_by_cosine(queries, items, K)
        p = model.project(queries, view=query_view)
        found = {"codes": index.search(p, K)[1]}
        found["rescored"] = index.search(p, K, rescore=queries, candidates=CANDIDATES)[1]
        row[f"{query_view}->{item_view}"] = {
            how: round(fh.evaluation.recall_of(ids, exact), 5) for how, ids in found.items()
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--kinds", nargs="+", default=("float16", "int8"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=runs.RESULTS / f"rescored_recall-{runs.today()}.jsonl")
    args = parser.parse_args()
    with args.out.open("w", encoding="utf-8") as out:
        for folder in args.sets:
            data = open_set(folder, 0.5)
            for kind in args.kinds:
                for seed in range(args.seeds):
                    row = measure(data, kind, seed)
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    main()
