"""FuseHash on views that are wide, sparse or deep, next to its controls: new items only, several seeds.

    python benchmarks/wide.py --data FOLDER [--only captions-500,tags-500] [--bits 64] [--seeds 5]

Sets, made from the files of the folder (data that cannot be distributed; see docs/study.md):

    captions-N   two captions of one Flickr8k photo as two bags of words, N photos to learn from, 1,000 new ones
    words-N      the words of an IAPR TC-12 caption, except those that are labels, split into two views at random
    tags-N       the tags of a MIRFlickr photo, split likewise
    deep-N       EfficientNet-Lite0 of a Flickr8k photo and MiniLM of its five captions (mean); one caption searches
    clip         CLIP of product photos and descriptions, 800 pairs to learn from, 326 new ones

The measure is R@10 of the partner where the pair is the truth (both directions; deep: caption to photo), else MAP@50 of
HN and FN. "floats" ranks by the inner product of real-valued projections of both sides. `uneven` is the largest |mean|
of a bit over new items. Every line of benchmarks/results/wide.jsonl is one cell; stored cells are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

import fusehash as fh
from controls import OnFeatures
from fusehash import bits
from fusehash.evaluation import mean_average_precision, pair_recall

RESULTS = Path(__file__).parent / "results" / "wide.jsonl"
METHODS = ("fusehash", "cca_itq", "regression")
# Controls with the features of FuseHash: the method, and its ridge relative to the mean diagonal.
ON_FEATURES = {
    "regression on RBF features": ("regression", 0.03),
    "CCA-ITQ on RBF features": ("cca_itq", 0.03),
    "kernel CCA + ITQ": ("cca_itq", 0.3),
}
SETS = (
    *(f"captions-{n}" for n in (500, 1000, 2000)),
    *(f"{kind}-{n}" for kind in ("words", "tags") for n in (500, 2000)),
    *("deep-1200", "deep-6000", "clip"),
)


@cache
def stored(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(file)


def captions(folder: Path, n: int, seed: int) -> dict[str, Any]:
    features, texts = stored(folder / "flickr8k" / "flickr8k_effl0_minilm.npz"), {}
    for line in (folder / "flickr8k" / "captions.tsv").read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t")[:2]
        texts.setdefault(name, []).append(caption)
    split, names = features["split"], features["name"]
    train = np.random.default_rng(seed).choice(np.flatnonzero(split == "train"), n, replace=False)
    new = np.flatnonzero(split == "test")
    views: dict[str, Any] = {}
    for number in (0, 1):
        words = CountVectorizer(token_pattern="[a-z]{2,}", binary=True, dtype=float)
        learned = words.fit_transform([texts[names[row]][number] for row in train])
        views[f"caption {number}"] = learned, words.transform([texts[names[row]][number] for row in new])
    return {"train": {v: x[0] for v, x in views.items()}, "new": {v: x[1] for v, x in views.items()}}


def deep(folder: Path, n: int, seed: int) -> dict[str, Any]:
    features = stored(folder / "flickr8k" / "flickr8k_effl0_minilm.npz")
    train = np.sort(np.random.default_rng(seed).choice(np.flatnonzero(features["split"] == "train"), n, replace=False))
    new = np.flatnonzero(features["split"] == "test")
    image, text = features["image"].astype(float), features["text"].astype(float)
    views = {"image": image[new], "text": text[new]}  # five captions per photo
    return {"train": {"image": image[train], "text": text[train].mean(axis=1)}, "new": views}


def clip(folder: Path, n: int, seed: int) -> dict[str, Any]:
    features = stored(folder / "clip" / "shopsphere_clip_vitb32.npz")
    order = np.random.default_rng(seed).permutation(len(features["image"]))
    views = {name: features[name].astype(float) for name in ("image", "text")}
    return {
        "train": {v: x[order[:800]] for v, x in views.items()},
        "new": {v: x[order[800:]] for v, x in views.items()},
    }


def halves(words: Any, labels: Any, n: int, seed: int) -> dict[str, Any]:
    """Columns split into two views, always the same; rows into n to learn from, 1,000 queries and 4,000 others."""
    columns = np.random.default_rng(1).permutation(words.shape[1])
    cut = len(columns) // 2
    views = {"a": words[:, np.sort(columns[:cut])], "b": words[:, np.sort(columns[cut:])]}
    present = np.all([np.asarray(X.sum(axis=1)).ravel() > 0 for X in views.values()], axis=0) & (labels.sum(axis=1) > 0)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(present))
    parts = np.split(order[: n + 5000], [n, n + 1000])
    rows = {
        name: {v: X[part] for v, X in views.items()}
        for name, part in zip(("train", "query", "new"), parts, strict=True)
    }
    return {**rows, "relevance": (labels[parts[1]], labels[parts[2]])}


def words(folder: Path, n: int, seed: int) -> dict[str, Any]:
    file = stored(folder / "iaprtc12.npz")
    text, labels = sp.csc_array(file["text"].astype(float)), sp.csc_array(file["labels"].astype(float))
    both = (text.T @ labels).toarray()
    is_label = ((both == text.sum(axis=0)[:, None]) & (both == labels.sum(axis=0)[None])).any(axis=1)
    return halves(sp.csr_array(text[:, ~is_label]), file["labels"], n, seed)


def tags(folder: Path, n: int, seed: int) -> dict[str, Any]:
    file = stored(folder / "mirflickr25k_tags_labels.npz")
    return halves(sp.csr_array(file["text"].astype(float)), file["labels"], n, seed)


def measured(model: Any, data: dict[str, Any]) -> dict[str, float]:
    """The score of codes and of floats, and how uneven the codes of new items are."""
    a, b = data["train"]
    if "relevance" in data:
        codes = {p: {v: model.encode(X, view=v) for v, X in data[p].items()} for p in ("query", "new")}
        fused = model.encode_fused(data["new"])
        found = [(codes["query"][v], codes["new"][w]) for v, w in ((a, b), (b, a))]
        found += [(codes["query"][v], fused) for v in (a, b)]
        scores = [mean_average_precision(q, d, data["relevance"], ties="stable") for q, d in found]
        real = {p: {v: model.project(X, view=v) for v, X in data[p].items()} for p in ("query", "new")}
        floats = [float_map(real["query"][v], real["new"][w], data["relevance"]) for v, w in ((a, b), (b, a))]
        new = list(codes["new"].values())
    else:
        texts = data["new"]["text"] if "text" in data["new"] and data["new"]["text"].ndim == 3 else None
        if texts is not None:  # each of the captions of a photo searches for it
            image = model.project(data["new"]["image"], view="image")
            pairs = [(model.project(texts[:, i], view="text"), image) for i in range(texts.shape[1])]
        else:
            x, y = (model.project(data["new"][v], view=v) for v in (a, b))
            pairs = [(x, y), (y, x)]
        scores = [pair_recall(bits.pack(q), bits.pack(d), k=10) for q, d in pairs]
        floats = [float_recall(q, d) for q, d in pairs]
        new = [bits.pack(side) for side in pairs[0]]
    means = [np.abs(2.0 * np.unpackbits(packed, axis=1).mean(axis=0) - 1.0).max() for packed in new]
    return {"score": float(np.mean(scores)), "floats": float(np.mean(floats)), "uneven": float(max(means))}


def float_recall(queries: Any, database: Any, k: int = 10) -> float:
    scores = queries @ (database / np.linalg.norm(database, axis=1, keepdims=True)).T
    return float(np.mean(np.sum(scores > np.diagonal(scores)[:, None], axis=1) < k))


def float_map(queries: Any, database: Any, relevance: Any, k: int = 50) -> float:
    """MAP@k, divided by the relevant items among the first k, as for codes."""
    scores = queries @ (database / np.linalg.norm(database, axis=1, keepdims=True)).T
    first = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    total = 0.0
    for query, rows in zip(relevance[0], first, strict=True):
        hits = (relevance[1][rows] @ query > 0).astype(float)
        precision = np.cumsum(hits) / np.arange(1, k + 1)
        total += float((precision * hits).sum() / max(hits.sum(), 1.0))
    return total / len(first)


def run(folder: Path, only: list[str], lengths: list[int], seeds: int) -> None:
    done = {(r["set"], r["method"], r["bits"]) for r in rows()}
    for name in only:
        kind, _, n = name.partition("-")
        make = {"captions": captions, "words": words, "tags": tags, "deep": deep, "clip": clip}[kind]
        for n_bits in lengths:
            for method in (*METHODS, *ON_FEATURES):
                if (name, method, n_bits) in done:
                    continue
                results, seconds = [], []
                for seed in range(seeds):
                    data = make(folder, int(n or 0), seed)
                    model, start = made(method, n_bits, seed), time.perf_counter()
                    model.fit(data["train"])
                    seconds.append(time.perf_counter() - start)
                    results.append(measured(model, data))
                line = {
                    "set": name,
                    "method": method,
                    "bits": n_bits,
                    "seeds": seeds,
                    "date": time.strftime("%Y-%m-%d"),
                }
                line |= {key: [round(r[key], 4) for r in results] for key in results[0]}
                line["fit_seconds"] = round(float(np.median(seconds)), 2)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{name:14} {method:12} {n_bits:4} {np.mean(line['score']):.3f}", flush=True)


def made(method: str, n_bits: int, seed: int) -> Any:
    if method in ON_FEATURES:
        inner, ridge = ON_FEATURES[method]
        return OnFeatures(inner, ridge, n_bits=n_bits, random_state=seed)
    return fh.hashers.make(method, n_bits=n_bits, random_state=seed)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def table() -> None:
    """The stored cells as Markdown."""
    print("| set | bits | FuseHash | its floats | CCA-ITQ | its floats | regression | uneven | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    cells = {(r["set"], r["bits"], r["method"]): r for r in rows()}
    for name, n_bits in dict.fromkeys((r["set"], r["bits"]) for r in rows()):
        parts = [cells.get((name, n_bits, method)) for method in METHODS]
        if None in parts:
            continue

        def mean(row: Any, key: str) -> str:
            return f"{np.mean(row[key]):.3f} ± {np.std(row[key], ddof=1):.3f}"

        ours, cca, control = parts
        columns = [mean(ours, "score"), mean(ours, "floats"), mean(cca, "score"), mean(cca, "floats")]
        columns += [mean(control, "score"), f"{max(ours['uneven']):.2f}", f"{ours['fit_seconds']:.1f}"]
        print(f"| {name} | {n_bits} | " + " | ".join(columns) + " |")
    print("\n| set | bits | " + " | ".join(ON_FEATURES) + " |")
    print("|---|---|" + "---|" * len(ON_FEATURES))
    for name, n_bits in dict.fromkeys((r["set"], r["bits"]) for r in rows() if r["method"] in ON_FEATURES):
        found = [cells.get((name, n_bits, method)) for method in ON_FEATURES]
        scores = [
            "" if row is None else f"{np.mean(row['score']):.3f} ± {np.std(row['score'], ddof=1):.3f}" for row in found
        ]
        print(f"| {name} | {n_bits} | " + " | ".join(scores) + " |")


if __name__ == "__main__":
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the real data files; without it, print what is stored")
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--bits", default="64")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.data:
        run(options.data, options.only.split(","), [int(b) for b in options.bits.split(",")], options.seeds)
    table()
