"""Several lengths from one training: what codes that are cut lose against codes trained at that length.

    python benchmarks/nested.py run wiki --data FOLDER      # also: iapr (4,000 rows of it); resumes where it stopped
    python benchmarks/nested.py table                       # prints these runs as a table, as docs/methods.md has one

Every line of benchmarks/results/nested.jsonl is one fit: MAP@50 (stable ties, mean of both directions) of its codes cut
to every length, by protocol.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
from fusehash.evaluation import average_precision
from fusehash.evaluation.protocols import check_split
from fusehash.hashers.fusehash import FuseHash

RESULTS = Path(__file__).parent / "results" / "nested.jsonl"
LENGTHS = (16, 32, 64, 128)
PROTOCOLS = ("U", "H", "HN", "FN")
VARIANTS: dict[str, tuple[int, Any]] = {
    "plain": (128, None),
    "nested (16,)": (128, (16,)),
    "nested (16, 32, 64)": (128, (16, 32, 64)),
    "trained at 16": (16, None),
    "trained at 32": (32, None),
    "trained at 64": (64, None),
}
IAPR_ROWS, IAPR_QUERIES = 4000, 1000


def load(name: str, folder: str) -> Any:
    if name == "wiki":
        return fh.datasets.load("wiki", path=folder)
    data = fh.datasets.load("iaprtc12", path=folder, stack_images=True)
    rng = np.random.default_rng(0)
    query = np.sort(rng.choice(data.query, IAPR_QUERIES, replace=False))
    train = np.sort(rng.choice(data.train, IAPR_ROWS, replace=False))
    return dataclasses.replace(data, query=query, train=train, database=train)


def rows() -> Iterator[dict[str, Any]]:
    if RESULTS.exists():
        yield from map(json.loads, RESULTS.read_text().splitlines())


def run(name: str, folder: str, seeds: int) -> None:
    data = load(name, folder)
    split = check_split(data)
    labels = data.labels.tocsr() if hasattr(data.labels, "tocsr") else np.asarray(data.labels)
    done = {(r["data"], r["variant"], r["seed"], r["stage"]) for r in rows()}
    for seed in range(seeds):
        for stage in split.stages(PROTOCOLS):
            learned = split.learned(stage, seed)
            searched = {name: split.searched(name, seed) for name in PROTOCOLS if split.stage(name) == stage}
            for variant, (n_bits, nested) in VARIANTS.items():
                if (name, variant, seed, stage) in done:
                    continue
                start = time.time()
                model = FuseHash(n_bits=n_bits, nested=nested, random_state=seed).fit(data.views.rows(learned))
                fit_seconds = time.time() - start
                lengths = list(LENGTHS) if n_bits == LENGTHS[-1] else [n_bits]
                line = {"data": name, "variant": variant, "seed": seed, "stage": stage,
                        "fit_seconds": round(fit_seconds, 2), "date": time.strftime("%Y-%m-%d"),
                        "version": fh.__version__, "fingerprint": data.fingerprint,
                        "scores": scores(model, lengths, data, labels, split.query, searched)}  # fmt: skip
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{name} {variant:20} seed {seed} {stage} {time.time() - start:.0f} s", flush=True)


def scores(model: Any, lengths: list[int], data: Any, labels: Any, query: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """MAP by protocol and length; every code is computed once and cut."""
    views = data.views
    queries = {name: model.encode(views[name][query], view=name) for name in views.names}
    by_protocol: dict[str, Any] = {}
    for protocol, searched in rows.items():
        if protocol == "U":
            database = dict.fromkeys(views.names, model.codes_)
        elif protocol == "FN":
            database = dict.fromkeys(views.names, model.encode_fused(views.rows(searched)))
        else:
            database = {name: model.encode(views[name][searched], view=name) for name in views.names}
        relevant = labels[query], labels[searched]
        directions = [(asked, other) for asked in views.names for other in views.names if asked != other]
        by_protocol[protocol] = {
            str(n): float(np.mean([precision(queries[a], database[b], n, relevant) for a, b in directions]))
            for n in lengths
        }
    return by_protocol


def precision(queries: Any, database: Any, n_bits: int, relevant: Any) -> float:
    short = fh.bits.cut(queries, n_bits), fh.bits.cut(database, n_bits)
    return float(average_precision(*short, relevant, k=50, ties="stable").mean())


def table() -> None:
    names = list(dict.fromkeys(r["data"] for r in rows()))
    if not names:
        raise SystemExit(f"There are no runs in {RESULTS}; `run` makes them.")
    for name in names:
        print(f"\n{name}: MAP@50, mean over seeds (spread)\n")
        print("| codes | " + " | ".join(f"{p} {n}" for p in PROTOCOLS for n in LENGTHS) + " |")
        for label, parts in (
            ("plain, cut", ["plain"]),
            ("nested=(16,)", ["nested (16,)"]),
            ("nested=(16, 32, 64)", ["nested (16, 32, 64)"]),
            ("trained at each length", ["trained at 16", "trained at 32", "trained at 64", "plain"]),
        ):
            cells = []
            for protocol in PROTOCOLS:
                for n in LENGTHS:
                    part = parts[0] if len(parts) == 1 else parts[LENGTHS.index(n)]
                    values = [r["scores"][protocol][str(n)] for r in rows()
                              if (r["data"], r["variant"]) == (name, part) and protocol in r["scores"]]  # fmt: skip
                    cells.append(f"{np.mean(values):.3f} ({np.std(values):.3f})" if values else "-")
            print(f"| {label} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("part", nargs="?", default="wiki", choices=["wiki", "iapr"])
    parser.add_argument("--data", default=".", help="folder with the real data files")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "run":
        run(options.part, options.data, options.seeds)
    else:
        table()


if __name__ == "__main__":
    main()
