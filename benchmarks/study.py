"""The study behind docs/study.md: what each part of FuseHash contributes. Raw results first, tables after.

    python benchmarks/study.py run wiki --data FOLDER      # also: iapr, made, views, long; resumes where it stopped
    python benchmarks/study.py table                       # prints the tables of docs/study.md from the stored runs

Every line of benchmarks/results/study.jsonl is one evaluation: MAP@50, stable ties, mean and spread over the seeds.
`table` prints every stored row, also those of options that were removed after they were measured (commit 60f35c0).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh

RESULTS = Path(__file__).parent / "results" / "study.jsonl"
FIXED: dict[str, Any] = {
    "kernel_width": 1.0,
    "feature_map": "rbf",
    "ridge": 0.03,
    "graph_weight": 1.0,
    "latent_weight": 1.0,
    "view_weights": (1.0, 1.0),
    "spectral_power": 2.0,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("fusehash", {}),
    "regression": ("regression", {}),
    "random": ("random", {}),
    "paper": ("agsfh", {}),
    "untuned": ("fusehash", FIXED),
    "no graph": ("fusehash", {"graph_weight": 0.0}),
    "raw graph only": ("fusehash", {"latent_weight": 0.0}),
    "hadamard fusion": ("fusehash", {"fusion": "hadamard"}),
    "linear map": ("fusehash", {"feature_map": "linear"}),
    "random rotation": ("fusehash", {"n_rotation_steps": 0}),
}
CONTROLS = ("default", "regression", "random", "paper")
IAPR = tuple(variant for variant in VARIANTS if variant != "paper")


def done() -> set[tuple[Any, ...]]:
    if not RESULTS.exists():
        return set()
    return {(r["data"], r["variant"], r["bits"], r["asymmetric"]) for r in rows()}


def rows() -> Iterator[dict[str, Any]]:
    for line in RESULTS.read_text().splitlines():
        yield json.loads(line)


def append(
    label: str, variant: str, bits: int, seeds: int, scores: list[dict[str, Any]], *, asymmetric: bool, facts: Any = ()
) -> None:
    """Write one line to the results."""
    line = {
        "data": label,
        "variant": variant,
        "bits": bits,
        "asymmetric": asymmetric,
        "seeds": seeds,
        "date": time.strftime("%Y-%m-%d"),
        "version": fh.__version__,
        **dict(facts),
        "scores": scores,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")


def measure(
    data: Any, label: str, variant: str, bits: int, seeds: int, protocols: str, asymmetric: bool = False
) -> None:
    if (label, variant, bits, asymmetric) in done():
        return
    method, params = VARIANTS[variant]
    model = fh.hashers.make(method, n_bits=bits, **params)
    start = time.time()
    result = fh.evaluation.evaluate(
        model, data, ties="stable", seeds=range(seeds), protocols=tuple(protocols.split(",")), asymmetric=asymmetric
    )
    scores = [
        {"protocol": s.protocol, "direction": s.direction, "mean": s.mean, "std": s.std, "values": list(s.values)}
        for s in result.scores
    ]
    fit_seconds = {stage: float(np.mean(values)) for stage, values in result.fit_seconds.items()}
    facts = {"fingerprint": data.fingerprint, "fit_seconds": fit_seconds}
    append(label, variant, bits, seeds, scores, asymmetric=asymmetric, facts=facts)
    print(f"{label:12} {variant:18} {bits:4} bits {time.time() - start:6.0f} s", flush=True)


def run(part: str, folder: str) -> None:
    if part == "wiki":
        data = fh.datasets.load("wiki", path=folder)
        for bits in (64, 16, 32, 128):
            for variant in CONTROLS:
                measure(data, "wiki", variant, bits, 5, "U,H,HN,FN")
        for variant in VARIANTS:
            measure(data, "wiki", variant, 64, 5, "HN,FN")
        measure(data, "wiki", "default", 64, 5, "HN,FN", asymmetric=True)
    if part == "iapr":
        data = fh.datasets.load("iaprtc12", path=folder, stack_images=True)
        for variant in IAPR:
            measure(data, "iapr", variant, 64, 5, "HN,FN")
        measure(data, "iapr", "default", 64, 5, "HN,FN", asymmetric=True)
    if part == "made":
        data = fh.datasets.make_paired(n_samples=3000, n_train=1500, random_state=7)
        for variant in VARIANTS:
            measure(data, "made", variant, 64, 5, "HN,FN")
        measure(data, "made", "default", 64, 5, "HN,FN", asymmetric=True)
    if part == "long":
        wiki = fh.datasets.load("wiki", path=folder)
        made = fh.datasets.make_paired(n_samples=3000, n_train=1500, random_state=7)
        for bits in (16, 32, 64, 128, 256, 512):
            measure(made, "made", "default", bits, 5, "HN,FN")
        for bits in (256, 512):
            measure(wiki, "wiki", "default", bits, 5, "HN,FN")
    if part == "views":
        for n_views in (2, 3, 4):
            for share in (0.0, 0.3, 0.5):
                missing(n_views, share)


def missing(n_views: int, share: float, seeds: int = 5) -> None:
    """MAP of new items (HN and FN, all directions) when a share of the training entries is missing at random."""
    label = f"made {n_views} views, {share:.0%} missing"
    if (label, "default", 64, False) in done():
        return
    values = np.array([missing_scores(n_views, share, seed) for seed in range(seeds)])
    entries = [
        {"protocol": p, "direction": "all", "mean": float(v.mean()), "std": float(v.std(ddof=1)), "values": v.tolist()}
        for p, v in zip(("HN", "FN"), values.T, strict=True)
    ]
    append(label, "default", 64, seeds, entries, asymmetric=False)
    print(label, values.mean(axis=0), flush=True)


def missing_scores(n_views: int, share: float, seed: int, **params: Any) -> tuple[float, float]:
    """MAP of one seed, HN and FN."""
    data = fh.datasets.make_paired(n_samples=3000, n_train=1500, views=n_views, random_state=seed)
    views = {name: np.array(data.views[name], dtype=float) for name in data.views}
    rng = np.random.default_rng(seed)
    gone = rng.random((len(data.train), n_views)) < share
    gone[gone.all(axis=1), 0] = False  # every row keeps one view
    train = {name: X[data.train] for name, X in views.items()}
    for j, X in enumerate(train.values()):
        X[gone[:, j]] = np.nan
    model = fh.FuseHash(n_bits=64, missing="allow", random_state=seed, **params).fit(train)
    new = np.setdiff1d(data.database, data.train)
    relevant = (data.labels[data.query], data.labels[new])
    queries = {name: model.encode(X[data.query], view=name) for name, X in views.items()}
    hashed = {name: model.encode(X[new], view=name) for name, X in views.items()}
    fused = model.encode_fused({name: X[new] for name, X in views.items()})
    score = fh.evaluation.mean_average_precision
    pairs = [(a, b) for a in views for b in views if a != b]
    hn = np.mean([score(queries[a], hashed[b], relevant, ties="stable") for a, b in pairs])
    fn = np.mean([score(queries[a], fused, relevant, ties="stable") for a in views])
    return float(hn), float(fn)


def table() -> None:
    """The stored runs as Markdown: a table for each data set and length, one row per variant."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for r in rows():
        groups.setdefault((r["data"], r["bits"]), []).append(r)
    for (data, bits), runs in groups.items():
        columns = [(s["protocol"], s["direction"]) for s in max(runs, key=lambda r: len(r["scores"]))["scores"]]
        print(f"\n**{data}, {bits} bits**\n")
        print("| | seeds | " + " | ".join(f"{p} {_arrow(d)}" for p, d in columns) + " |")
        print("|---|---|" + "---|" * len(columns))
        for r in runs:
            scores = {(s["protocol"], s["direction"]): s for s in r["scores"]}
            cells = [f"{scores[c]['mean']:.3f} ± {scores[c]['std']:.3f}" if c in scores else "" for c in columns]
            name = r["variant"] + (", asymmetric" if r["asymmetric"] else "")
            print(f"| {name} | {r['seeds']} | " + " | ".join(cells) + " |")


def _arrow(direction: str) -> str:
    return direction.replace("image", "I").replace("text", "T").replace("->", "→")


if __name__ == "__main__":
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("part", nargs="?", default="made", choices=["wiki", "iapr", "made", "long", "views"])
    parser.add_argument("--data", default=".", help="folder with the real data files")
    arguments = parser.parse_args()
    table() if arguments.action == "table" else run(arguments.part, arguments.data)
