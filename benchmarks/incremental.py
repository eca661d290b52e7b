"""partial_fit against a fit on everything at once, and against what was there first: docs/learning-on.md.

    python benchmarks/incremental.py wiki --data FOLDER          # two halves; also: made
    python benchmarks/incremental.py made --by-class             # half of the classes first, the others later
    python benchmarks/incremental.py made --calls 5              # five equal parts

A third of the training rows is held out as new items (HN, FN). MAP@50, stable ties, mean of both directions, one JSON
line per seed. Fields of the stored lines that begin with W_ or err_ come from other ways to compute the hash functions,
which were tried while partial_fit was built; this script does not make them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
from fusehash import bits
from fusehash.evaluation import mean_average_precision


def load(name: str, folder: Path | None, seed: int) -> Any:
    if name == "wiki":
        return fh.datasets.load("wiki", folder)
    return fh.datasets.make_paired(n_samples=4000, n_query=500, random_state=seed)


def parts_of(data: Any, calls: int, by_class: bool, rng: np.random.Generator) -> tuple[Any, list[Any]]:
    """Rows held out as new items, and the rows of every call."""
    order = rng.permutation(data.train)
    held, rest = np.sort(order[: len(order) // 3]), order[len(order) // 3 :]
    if not by_class:
        return held, [np.sort(part) for part in np.array_split(rest, calls)]
    labels = np.asarray(data.labels)
    classes = rng.permutation(np.unique(labels))
    early = np.isin(labels[rest], classes[: len(classes) // 2])
    return held, [np.sort(rest[early]), np.sort(rest[~early])]


def score(model: fh.FuseHash, codes: Any, data: Any, learned: Any, held: Any) -> dict[str, float]:
    """U over the rows learned (by the codes given), HN and FN over new items."""
    views, labels, query = data.views, np.asarray(data.labels), data.query
    asked = {name: model.encode(views[name][query], view=name) for name in views}
    fused = model.encode_fused(views.rows(held))

    def mean(database: Any, rows: Any) -> float:
        relevant = labels[query], labels[rows]
        values = [
            mean_average_precision(asked[a], database(b), relevant, k=50, ties="stable")
            for a, b in permutations(views, 2)
        ]
        return round(float(np.mean(values)), 4)

    return {
        "U": mean(lambda view: codes, learned),
        "FN": mean(lambda view: fused, held),
        "HN": mean(lambda view: model.encode(views[view][held], view=view), held),
    }


def measure(name: str, folder: Path | None, seed: int, calls: int, by_class: bool) -> dict[str, Any]:
    data = load(name, folder, seed)
    held, parts = parts_of(data, calls, by_class, np.random.default_rng(seed))
    learned, views = np.concatenate(parts), data.views
    first = fh.FuseHash(random_state=seed).partial_fit(views.rows(parts[0]))
    later = deepcopy(first)
    for part in parts[1:]:
        later.partial_fit(views.rows(part))
    everything = fh.FuseHash(random_state=seed).fit(views.rows(learned))
    again = later.encode_fused(views.rows(learned))
    n_old = len(learned) - len(parts[-1])
    stale = np.mean(bits.unpack(later.codes_[:n_old], 64) != bits.unpack(again[:n_old], 64))
    rest = first.encode_fused(views.rows(learned[len(parts[0]) :]))
    return {
        "data": name,
        "by_class": by_class,
        "seed": seed,
        "n": [len(part) for part in parts],
        "first": score(first, np.concatenate([first.codes_, rest]), data, learned, held),
        "partial": score(later, later.codes_, data, learned, held),
        "partial, encoded anew": score(later, again, data, learned, held),
        "all": score(everything, everything.codes_, data, learned, held),
        "drift": round(later.drift_, 4),
        "true drift": round(float(stale), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("wiki", "made"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--by-class", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed in range(options.seeds):
        print(json.dumps(measure(options.name, options.data, seed, options.calls, options.by_class)), flush=True)


if __name__ == "__main__":
    main()
