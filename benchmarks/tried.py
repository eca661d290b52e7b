"""What was tried to keep more in the codes of few pairs: each idea on the same fixed settings of FuseHash.

    python benchmarks/tried.py --data FOLDER [--only captions-500,...] [--seeds 3]
    python benchmarks/tried.py          # prints the table of docs/study.md from the stored cells

    words P          words weighted by the power .25 P of what they say about the other view (`word_weights`)
    bagged           mean of the projections of five fits to 80 % of the rows each, rotated to those of the first
    anchors twice    mean of the projections of two fits with other anchors and another start of the rotation, likewise
    propagated A     the joint embedding of a row is (1 - A) its own and A the mean of its 15 nearest, twice; then a
                     rotation, and hash functions that regress on its codes, as before

Sets are those of wide.py, and photos with the words of their captions: `words of photos` (1,200 photos of Flickr8k,
EfficientNet-Lite0 and a bag of all five captions). New items, one view searches the other (HN), 64 bits: R@10 of the
partner, or MAP@50 for words and tags. The weight of the graph is what the default chooses there, about.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

import fusehash as fh
import wide
from fusehash import bits
from fusehash.evaluation import mean_average_precision, pair_recall
from fusehash.hashers.fusehash.closed_form import SOFTNESS, target_softness
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.numerics.rotation import learned_rotations, soft_signs

RESULTS = Path(__file__).parent / "results" / "tried-2026-11-19.jsonl"
N_BITS, N_NEAREST = 64, 15
# The weight of the graph, about what the default chooses.
GRAPH = {
    "captions-500": 0.2,
    "captions-1000": 0.4,
    "words of photos": 0.2,
    "deep-1200": 0.02,
    "tags-500": 1.0,
    "words-500": 1.0,
    "words-2000": 1.0,
}
Projections = Callable[[Any, str], Any]  # rows, view -> real codes


def fit(train: Any, graph_weight: float, seed: int, word_weights: float = 0.0) -> Any:
    settings = {
        "feature_map": "rbf", "kernel_width": 1.0, "ridge": 0.03, "hash_ridge": 0.003, "spectral_power": 2.0,
        "latent_weight": 1.0, "hash_functions": "regression", "view_weights": (1.0, 1.0),
    }  # fmt: skip
    given = {**settings, "graph_weight": graph_weight, "word_weights": word_weights}
    return fh.FuseHash(n_bits=N_BITS, random_state=seed, n_threads=1, **given).fit(train)


def words(power: float, train: Any, weight: float, seed: int) -> Projections:
    model = fit(train, weight, seed, power)
    return lambda X, view: model.project(X, view=view)


def averaged(models: list[Any], train: Any) -> Projections:
    """The mean of the projections of several models, each rotated to those of the first on the training rows."""
    views = list(train)
    stacked = [np.vstack([model.project(train[view], view=view) for view in views]) for model in models]
    rotations = []
    for P in stacked:
        U, _, Vt = np.linalg.svd(P.T @ stacked[0])
        rotations.append(U @ Vt)
    return lambda X, view: np.mean(
        [model.project(X, view=view) @ R for model, R in zip(models, rotations, strict=True)], axis=0
    )


def bagged(train: Any, weight: float, seed: int) -> Projections:
    n, rng = next(iter(train.values())).shape[0], np.random.default_rng(seed)
    draws = [np.sort(rng.choice(n, int(0.8 * n), replace=False)) for _ in range(5)]
    return averaged([fit({view: X[rows] for view, X in train.items()}, weight, seed) for rows in draws], train)


def anchors_twice(train: Any, weight: float, seed: int) -> Projections:
    return averaged([fit(train, weight, start) for start in (seed, seed + 100)], train)


def propagated(share: float, train: Any, weight: float, seed: int) -> Projections:
    model = fit(train, weight, seed)
    fitted = model.fitted_
    prepared = {view: m.preparation(train[view]) for view, m in fitted.maps.items()}
    Y = np.asarray(fitted.project_complete(prepared), np.float64)
    units = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    S = units @ units.T
    np.fill_diagonal(S, -np.inf)
    near = np.argpartition(-S, N_NEAREST - 1, axis=1)[:, :N_NEAREST]
    for _ in range(2):
        Y = (1.0 - share) * Y + share * Y[near].mean(axis=1)
    Y = Y @ learned_rotations(Y, N_BITS, np.random.default_rng(seed), 50, SOFTNESS)
    T, maps = soft_signs(Y, target_softness(float(np.mean(Y**2)))), {}
    for view, m in fitted.maps.items():
        F = np.asarray(m.of_prepared(prepared[view]), np.float64) - fitted.means[view]
        maps[view] = solve_ridge(ridge_solver(F.T @ F, 0.003), F.T @ T)

    def project(X: Any, view: str) -> Any:
        m = fitted.maps[view]
        return (np.asarray(m.of_prepared(m.preparation(X)), np.float64) - fitted.means[view]) @ maps[view]

    return project


VARIANTS: dict[str, Callable[[Any, float, int], Projections]] = {
    "fixed settings": lambda *given: words(0.0, *given),
    "words .5": lambda *given: words(0.5, *given),
    "words 1": lambda *given: words(1.0, *given),
    "words 2": lambda *given: words(2.0, *given),
    "bagged": bagged,
    "anchors twice": anchors_twice,
    "propagated .2": lambda *given: propagated(0.2, *given),
    "propagated .5": lambda *given: propagated(0.5, *given),
}


def photo_words(folder: Path, n: int, seed: int) -> dict[str, Any]:
    features, texts = wide.stored(folder / "flickr8k" / "flickr8k_effl0_minilm.npz"), {}
    for line in (folder / "flickr8k" / "captions.tsv").read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t")[:2]
        texts[name] = f"{texts.get(name, '')} {caption}"
    split, names, image = features["split"], features["name"], features["image"].astype(float)
    train = np.random.default_rng(seed).choice(np.flatnonzero(split == "train"), n, replace=False)
    new, bag = np.flatnonzero(split == "test"), CountVectorizer(token_pattern="[a-z]{2,}", binary=True, dtype=float)
    learned = bag.fit_transform([texts[names[row]] for row in train])
    found = bag.transform([texts[names[row]] for row in new])
    return {"train": {"image": image[train], "words": learned}, "new": {"image": image[new], "words": found}}


def made(folder: Path, name: str, seed: int) -> dict[str, Any]:
    if name == "words of photos":
        return photo_words(folder, 1200, seed)
    kind, _, n = name.partition("-")
    data: dict[str, Any] = getattr(wide, kind)(folder, int(n), seed)
    if kind == "deep":  # the first caption of a new photo
        data["new"]["text"] = data["new"]["text"][:, 0]
    return data


def score(project: Projections, data: dict[str, Any]) -> float:
    """HN: R@10 of the partner, or MAP@50, mean of both directions."""
    a, b = data["train"]
    codes = {
        (part, view): bits.pack(np.asarray(project(data[part][view], view)))
        for part in ("query", "new")
        if part in data
        for view in (a, b)
    }
    if "relevance" in data:
        pairs = [(codes["query", v], codes["new", w]) for v, w in ((a, b), (b, a))]
        return float(np.mean([mean_average_precision(q, d, data["relevance"], ties="stable") for q, d in pairs]))
    return float(np.mean([pair_recall(codes["new", v], codes["new", w], k=10) for v, w in ((a, b), (b, a))]))


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(folder: Path, only: list[str], seeds: int) -> None:
    done = {(r["set"], r["variant"]) for r in rows()}
    for name in only:
        sets = [made(folder, name, seed) for seed in range(seeds)]
        for variant, learn in VARIANTS.items():
            if (name, variant) in done:
                continue
            values = [round(score(learn(data["train"], GRAPH[name], seed), data), 4) for seed, data in enumerate(sets)]
            line = {"set": name, "variant": variant, "seeds": seeds, "date": time.strftime("%Y-%m-%d"), "score": values}
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name:16} {variant:16} {np.mean(values):.3f}", flush=True)


def table() -> None:
    cells = {(r["set"], r["variant"]): r["score"] for r in rows()}
    names = [name for name in GRAPH if (name, "fixed settings") in cells]
    print("| | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for variant in VARIANTS:
        found = [cells.get((name, variant)) for name in names]
        print(f"| {variant} | " + " | ".join("" if x is None else f"{np.mean(x):.3f}" for x in found) + " |")


if __name__ == "__main__":
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the real data files; without it, print what is stored")
    parser.add_argument("--only", default=",".join(GRAPH))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.data:
        run(options.data, options.only.split(","), options.seeds)
    table()
