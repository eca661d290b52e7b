"""Are the scores of a search by words right as often as they say? Photos whose captions are hidden from the collection.

    python benchmarks/calibration.py ../shared/data/iapr_photos --flickr8k ../shared/data/flickr8k --out RESULT.json

For each of five splits, half of the photos keep their captions. Queries are one and two words of the hidden captions.
Of the first 100 results, for those without a caption, the confidence is compared with the share of the words that the
hidden caption has. A control gives every result the mean share of the other splits. The bridge of the package was
learned from these photos, so a bridge of Flickr8k's training photos stands for it here (make_bridge.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fusehash.collection import Collection, read_folder
from fusehash.collection import bridge as bridges
from fusehash.collection.queries.calibration import asked_words, has_word, queries_from
from fusehash.collection.queries.words import Words
from make_bridge import as_bridge, of_flickr8k
from runs import described, store

SEEDS, K, BINS = 5, 100, 10


def results_of(collection: Collection, hidden: dict[int, str], n_queries: int) -> np.ndarray:
    """Confidence and share of right words for the results without a caption of each query."""
    words = Words.read(sorted(hidden.items()))
    ids = sorted(hidden)
    rng = np.random.default_rng(0)
    chosen = [ids[i] for i in rng.permutation(len(ids))[: n_queries // 2]]
    rows = []
    for query in queries_from([hidden[id] for id in chosen], [str(id) for id in chosen]):
        text = " ".join(query)
        for hit in collection.search(text, k=K):
            if hit.item.text is None and hit.confidence is not None:
                right = has_word(words, asked_words(text), np.array([hit.id])).mean()
                rows.append((hit.confidence, right))
    return np.array(rows)


def reliability(rows: np.ndarray) -> dict[str, Any]:
    """Brier score and, per tenth of confidence, how many results, their mean confidence and share of right words."""
    place = np.minimum((rows[:, 0] * BINS).astype(int), BINS - 1)
    bins = []
    for chosen in filter(np.any, (place == number for number in range(BINS))):
        confidence, right = rows[chosen].mean(axis=0).round(4).tolist()
        bins.append({"results": int(chosen.sum()), "confidence": confidence, "right": right})
    error = sum(b["results"] * abs(b["confidence"] - b["right"]) for b in bins) / len(rows)
    brier = float(((rows[:, 0] - rows[:, 1]) ** 2).mean())
    return {"results": len(rows), "error": round(error, 4), "brier": round(brier, 4), "bins": bins}


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    axes.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1, label="perfect")
    for run in runs:
        bins = [b for b in run["bins"] if b["results"] >= 20]
        axes.plot([b["confidence"] for b in bins], [b["right"] for b in bins], marker="o", label=f"split {run['seed']}")
    axes.set(xlabel="confidence of a result", ylabel="share of its words that are right", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="the folder iapr_photos")
    parser.add_argument("--flickr8k", type=Path, required=True, help="the folder flickr8k")
    parser.add_argument("--collection", type=Path, help="a collection of these photos, to take its features from")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    items = list(read_folder(options.photos / "images", options.photos / "captions.csv"))
    other = as_bridge(of_flickr8k(options.flickr8k))
    head, runs, rows_of = described(), [], []
    with tempfile.TemporaryDirectory() as temporary, mock.patch.object(bridges, "shipped", return_value=other):
        folder = Path(temporary) / "photos.collection"
        if options.collection:
            shutil.copytree(options.collection, folder)
        with Collection.open(folder) if options.collection else Collection.create(folder) as collection:
            for seed in range(SEEDS):
                hide = np.random.default_rng(seed).permutation(len(items))[: len(items) // 2].tolist()
                without = {items[i].key for i in hide}
                collection.build(replace(item, text=None) if item.key in without else item for item in items)
                collection.reindex()
                text_of = {item.key: item.text or "" for item in items if item.key in without}
                stored = collection.items(limit=len(items) + 1)
                hidden = {item.id: text_of[item.key] for item in stored if item.key in without}
                rows = results_of(collection, hidden, options.queries)
                rows_of.append(rows)
                runs.append({"seed": seed, "photos": len(items), "hidden": len(hidden), **reliability(rows)})
                print(json.dumps(runs[-1]), flush=True)
    for number, run in enumerate(runs):
        mean = np.concatenate([rows[:, 1] for i, rows in enumerate(rows_of) if i != number]).mean()
        run["brier_of_the_mean"] = round(float(((rows_of[number][:, 1] - mean) ** 2).mean()), 4)
    store(options.out, head | {"k": K, "runs": runs})
    if options.plot:
        draw(runs, options.plot)


if __name__ == "__main__":
    main()
