"""The cells of wide.py and study.py on many cores: one task per cell and seed, then one line per finished cell.

    python benchmarks/many.py run OUT.jsonl --data FOLDER --seconds 240 --workers 14   # resumes what OUT.jsonl lacks
    python benchmarks/many.py store OUT.jsonl                                          # into benchmarks/results

`run` starts no task after the given seconds; `--only` names groups of cells (GROUPS). `store` writes cells of which all
seeds are there, in place of stored lines of the same cell. Data sets whose files are not in the folder are left out.
emoji.npz is what emoji_features.py writes; iapr_photos.npz is the folder of that name as `fusehash.datasets.load`
encodes it, in the same layout.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

import fusehash as fh
import study
import wide
from controls import OnFeatures
from fusehash.evaluation import protocols
from fusehash.views import PairedViews

SEEDS = 5
WIDE_SETS = (
    "captions-500",
    "captions-1000",
    "captions-2000",
    "words-500",
    "words-2000",
    "tags-500",
    "tags-2000",
    "clip",
)
FILES = {"captions": "flickr8k", "words": "iaprtc12.npz", "tags": "mirflickr25k_tags_labels.npz", "clip": "clip"}
FILES |= {name: f"{name}.npz" for name in ("wiki", "emoji", "iapr_photos")} | {"iapr": "iaprtc12.npz"}
STUDY_METHODS = ("default", "CCA-ITQ", "kernel CCA + ITQ")
FLOATS, ASYMMETRIC = " as floats", ", asymmetric"
GROUPS = ("wide", "usual", "iapr", "long", "parts", "missing")
PARTS = [variant for variant in study.VARIANTS if variant not in study.CONTROLS]  # of the default, one switched off
Task = tuple[str, str, str, int, int]  # benchmark, data, method, bits, seed


def tasks(folder: Path, groups: Sequence[str]) -> list[Task]:
    """Every cell and seed of the groups, the most wanted first."""
    cells = [(*cell, seed) for group in groups for cell in cells_of(group) for seed in range(SEEDS)]
    return [
        task for task in cells if (file := FILES.get(task[1].partition("-")[0])) is None or (folder / file).exists()
    ]


def cells_of(group: str) -> list[tuple[str, str, str, int]]:
    if group == "wide":
        return [(group, name, method, 64) for name in WIDE_SETS for method in (*wide.METHODS, *wide.ON_FEATURES)]
    if group == "usual":
        cells = []
        for name in ("wiki", "made", "iapr_photos", "emoji"):
            cells += [("study", name, method, bits) for bits in (64, 16, 32, 128) for method in STUDY_METHODS]
            cells += [("study", name, method + FLOATS, 64) for method in STUDY_METHODS]
        return cells
    if group == "iapr":
        methods = ("default", *STUDY_METHODS[1:], "default" + ASYMMETRIC)
        return [("study", "iapr", method, 64) for method in (*methods, *(m + FLOATS for m in STUDY_METHODS))]
    if group == "long":
        return [("study", name, "default", bits) for name in ("made", "wiki") for bits in (256, 512)]
    if group == "parts":
        sets = ("wiki", "made", "iapr")
        more = [("study", name, "default" + ASYMMETRIC, 64) for name in ("wiki", "made")]
        return [*more, *(("study", name, part, 64) for name in sets for part in PARTS)]
    shares = ("0%", "30%", "50%")
    return [("study", f"made {n} views, {share} missing", "default", 64) for n in (2, 3, 4) for share in shares]


@cache
def paired(folder: Path, name: str) -> Any:
    if name == "made":
        return fh.datasets.make_paired(n_samples=3000, n_train=1500, random_state=7)
    if name == "wiki":
        return fh.datasets.load("wiki", path=folder)
    if name == "iapr":
        return fh.datasets.load("iaprtc12", path=folder, stack_images=True)
    return fh.datasets.load(folder / f"{name}.npz")


def model_of(method: str, bits: int, seed: int) -> Any:
    if method in wide.ON_FEATURES:
        inner, ridge = wide.ON_FEATURES[method]
        return OnFeatures(inner, ridge, n_bits=bits, random_state=seed)
    name, params = study.VARIANTS.get(method, ("cca_itq" if method == "CCA-ITQ" else method, {}))
    threads = {"n_threads": 1} if name == "fusehash" else {}
    return fh.hashers.make(name, n_bits=bits, random_state=seed, **params, **threads)


def run_task(folder: Path, task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    benchmark, name, method, bits, seed = task
    start = time.perf_counter()
    if benchmark == "wide":
        kind, _, n = name.partition("-")
        data = getattr(wide, kind)(folder, int(n or 0), seed)
        model = model_of(method, bits, seed).fit(data["train"])
        seconds = time.perf_counter() - start
        values = wide.measured(model, data)
    elif name.endswith("missing"):
        n_views, share = int(name.split()[1]), float(name.split()[3].removesuffix("%")) / 100
        model, scores = None, study.missing_scores(n_views, share, seed, n_threads=1)
        values = dict(zip(("HN all", "FN all"), scores, strict=True))
        seconds = time.perf_counter() - start
    else:
        plain = method.removesuffix(FLOATS).removesuffix(ASYMMETRIC)
        data, model = paired(folder, name), model_of(plain, bits, seed)
        if method.endswith(FLOATS):
            values = float_scores(model, data, seed)
        else:
            asked = ("U", "H", "HN", "FN") if method == "default" and name == "wiki" and bits <= 128 else ("HN", "FN")
            asymmetric = method.endswith(ASYMMETRIC)
            result = fh.evaluation.evaluate(
                model, data, ties="stable", seeds=[seed], protocols=asked, asymmetric=asymmetric
            )
            values = {f"{s.protocol} {s.direction}": float(s.values[0]) for s in result.scores}
        seconds = time.perf_counter() - start
    chosen = getattr(model, "tuning_", {}).get("chosen")
    return {"task": task, "values": values, "seconds": round(seconds, 3), "chosen": chosen}


def float_scores(model: Any, data: Any, seed: int) -> dict[str, float]:
    """HN with real-valued projections of both sides, by their cosine."""
    rows = protocols.check_split(data)
    stage = rows.stage("HN")
    protocols.fit_rows(model, PairedViews(data.views), data.labels, rows.learned(stage, seed))
    searched, values = rows.searched("HN", seed), {}
    labels = data.labels.toarray() if issparse(data.labels) else np.asarray(data.labels)
    labels = labels if labels.ndim == 2 else labels[:, None] == np.unique(labels)
    labels = labels.astype(float)
    for a, b in (("image", "text"), ("text", "image")):
        queries = model.project(PairedViews(data.views).dense(a, data.query), view=a)
        items = model.project(PairedViews(data.views).dense(b, searched), view=b)
        values[f"HN {a}->{b}"] = wide.float_map(queries, items, (labels[data.query], labels[searched]))
    return values


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def run(folder: Path, out: Path, seconds: float, workers: int, groups: Sequence[str]) -> None:
    done = {tuple(line["task"]) for line in lines(out)}
    waiting = [task for task in tasks(folder, groups) if task not in done][::-1]
    start, running = time.perf_counter(), {}
    with ProcessPoolExecutor(workers) as pool, out.open("a") as file:
        while running or (waiting and time.perf_counter() - start < seconds):
            while waiting and len(running) < workers and time.perf_counter() - start < seconds:
                task = waiting.pop()
                running[pool.submit(run_task, folder, task)] = task
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                try:
                    file.write(json.dumps(future.result()) + "\n")
                except Exception as error:  # the other cells go on
                    print(task, repr(error), flush=True)
            file.flush()
    print(f"{len(lines(out))} tasks are done, {len(waiting)} are left, after {time.perf_counter() - start:.0f} s")


def store(out: Path) -> None:
    cells: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for line in lines(out):
        *cell, seed = line["task"]
        cells.setdefault(tuple(cell), {})[seed] = line
    complete = {cell: [by_seed[s] for s in sorted(by_seed)] for cell, by_seed in cells.items() if len(by_seed) == SEEDS}
    fresh: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {"wide": {}, "study": {}}
    for (benchmark, name, method, bits), found in complete.items():
        values = {key: [round(one["values"][key], 4) for one in found] for key in found[0]["values"]}
        facts = {"bits": bits, "seeds": SEEDS, "date": time.strftime("%Y-%m-%d")}
        seconds = round(float(np.median([one["seconds"] for one in found])), 2)
        if benchmark == "wide":
            line = {"set": name, "method": method, **facts, **values, "fit_seconds": seconds, "processes": True}
            fresh[benchmark][name, method, bits] = line
            continue
        scores = []
        for key, numbers in values.items():
            protocol, direction = key.split()
            spread = {"mean": float(np.mean(numbers)), "std": float(np.std(numbers, ddof=1)), "values": numbers}
            scores.append({"protocol": protocol, "direction": direction, **spread})
        asymmetric, variant = method.endswith(ASYMMETRIC), method.removesuffix(ASYMMETRIC)
        line = {
            "data": name,
            "variant": variant,
            "asymmetric": asymmetric,
            **facts,
            "version": fh.__version__,
            "scores": scores,
        }
        fresh[benchmark][name, variant, bits, asymmetric] = line
    keys = {"wide": ("set", "method", "bits"), "study": ("data", "variant", "bits", "asymmetric")}
    for benchmark, module in (("wide", wide), ("study", study)):
        kept = [r for r in module.rows() if tuple(r[key] for key in keys[benchmark]) not in fresh[benchmark]]
        text = "".join(json.dumps(line) + "\n" for line in [*kept, *fresh[benchmark].values()])
        module.RESULTS.write_text(text)
        print(f"{benchmark}: {len(fresh[benchmark])} cells")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "store"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of cells, in this order")
    given = parser.parse_args()
    if given.action == "run":
        run(given.data, given.out, given.seconds, given.workers, given.only)
    else:
        store(given.out)
