"""Deep heads on frozen features against closed forms: quality, time and memory of every fit, and choosing settings.

    python benchmarks/deep_study.py run FOLDER [--device cuda --jobs 11 --cpu-jobs 4 --limit-seconds 500]
    python benchmarks/deep_study.py table

FOLDER holds photos.npz and flickr8k.npz (deep_features.py) and wiki.npz. `--only` and `--stages` choose parts.

Settings. `start` are those of the prototypes that came before this package, `authors` those of the papers (the
defaults of the package). `chosen` is the best of a method's CANDIDATES, which include the others where they are not
too slow: each learns from 70 % of the training rows, with seed 0, and is scored on the other 30 %. Methods without
labels are scored as `FuseHash` scores its own settings (hashers/fusehash/tuning: partners, neighbors, live bits),
methods that learn from labels by MAP@50 of the held-out rows among each other. Queries take no part. FuseHash chooses
by itself in `fit`; SCM, SePH and the controls have their defaults. `power` is FuseHash(spectral_power=4).

Every fit has a process of its own. `fit_mib` is how far its memory grew over what was there before (packages and data),
`gpu_mib` the peak of PyTorch on the device, `seconds` the time by the clock, next to other fits on the same device. A
line is stored when its fit is finished; what is there is not computed again, and fits that run when the time is over
are ended without a line.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # before NumPy is imported: one core per fit

import numpy as np  # noqa: E402

import fusehash as fh  # noqa: E402
from fusehash import bits, hashers  # noqa: E402
from fusehash.evaluation import average_precision, evaluate, pair_recall  # noqa: E402
from fusehash.hashers.fusehash.tuning.measures import NearItems, count_distinct, live_share, partner_rank  # noqa: E402
from fusehash.numerics.features import Preparation  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "deep_study.jsonl"
BITS, SEEDS, HELD_OUT = 64, range(5), 0.3
Settings = dict[str, Any]

CLOSED = ("fusehash", "regression", "random", "cca_itq", "cmfh", "scm", "seph")
DSAH: Settings = {
    "alignment": True, "decoders": True, "learning_rate": 0.005, "momentum": 0.7, "nesterov": True, "beta": 0.9,
    "eta": 0.0, "epochs": 200,
}  # fmt: skip
# What deep methods do better than FuseHash, the order of all items, comes closer with it.
POWER: dict[str, Settings] = {"fusehash": {"spectral_power": 4.0}}
SMALL: Settings = {"hidden": 1024}
BOTH: Settings = {"hidden": 1024, "image_hidden": 1024}
CENTERED: Settings = {**SMALL, "center": True}
# Of the papers; {} is the default of the package, which has them. DJSRH's authors set beta and the weight by data set.
AUTHORS: dict[str, Settings] = {
    "jdsh": {}, "ucch": {}, "djsrh": {}, "dsah": DSAH, "cirh": {}, "dgcpn": {}, "dbrc": {},
    "dcmh": {"epochs": 500}, "ddcmh": {},
}  # fmt: skip
AUTHORS_WIKI = {**AUTHORS, "djsrh": {"beta": 0.3, "intra_weight": 0.3, "epochs": 200}}
START: dict[str, Settings] = {
    "jdsh": {**SMALL, "epochs": 80}, "ucch": {**SMALL, "epochs": 40}, "djsrh": {**SMALL, "epochs": 80},
    "cirh": SMALL, "dgcpn": {**SMALL, "epochs": 60, "text_weight": 0.5},
}  # fmt: skip
START_FLICKR8K: dict[str, Settings] = {
    "jdsh": {**SMALL, "epochs": 20}, "ucch": {**SMALL, "epochs": 40}, "djsrh": {**SMALL, "epochs": 20},
    "cirh": {**SMALL, "epochs": 40},
}  # fmt: skip
CANDIDATES: dict[str, list[Settings]] = {
    "jdsh": [
        {}, {"epochs": 80}, {**SMALL, "epochs": 80}, {**SMALL, "epochs": 40}, {**CENTERED, "epochs": 80},
        {**SMALL, "epochs": 80, "image_weight": 0.4, "text_weight": 0.3, "joint_weight": 0.3},
    ],
    "djsrh": [
        {}, SMALL, {**SMALL, "beta": 0.9}, {**SMALL, "beta": 0.3, "intra_weight": 0.3}, CENTERED,
        {**SMALL, "intra_weight": 0.3},
    ],
    "dsah": [
        DSAH, {**DSAH, **SMALL, "epochs": 80}, {**DSAH, **CENTERED, "epochs": 80},
        {**DSAH, **SMALL, "epochs": 80, "beta": 0.5}, {**DSAH, **SMALL, "epochs": 80, "learning_rate": 0.01},
    ],
    "cirh": [
        {}, SMALL, {**SMALL, "epochs": 120}, CENTERED, {**SMALL, "image_weight": 0.6, "own_weight": 0.6},
        {**SMALL, "neighbors": 0.2},
    ],
    "ucch": [
        {}, {**SMALL, "epochs": 40}, {**SMALL, "epochs": 100}, {"hidden": 4096, "epochs": 40},
        {**CENTERED, "epochs": 100}, {**SMALL, "epochs": 100, "contrast_weight": 0.9, "shift": 1.0},
    ],
    "dgcpn": [
        {}, {"text_weight": 0.5}, {**SMALL, "epochs": 60, "text_weight": 0.5}, {**SMALL, "text_weight": 0.5},
        {**SMALL, "text_weight": 0.5, "neighbors": 0.2}, {**CENTERED, "text_weight": 0.5},
    ],
    "dbrc": [{}, {"epochs": 30}, SMALL, {"hidden": 0}, {"center": True}, {"center": True, "epochs": 300}],
    "cmfh": [{}, {"mu": 10.0}, {"mu": 1.0}, {"mu": 0.1}, {"mu": 0.01}, {"mu": 0.001}],
    "dcmh": [
        {"epochs": 500}, {**BOTH, "epochs": 100, "learning_rate": 0.1}, {**BOTH, "epochs": 300, "learning_rate": 0.1},
        {**BOTH, "epochs": 300, "learning_rate": 0.1, "center": True}, {**BOTH, "epochs": 500, "learning_rate": 0.03},
        {"image_hidden": 4096, "hidden": 4096, "epochs": 300, "learning_rate": 0.03},
    ],
    "ddcmh": [
        {}, {**BOTH, "epochs": 20}, BOTH, {"epochs": 20}, {**BOTH, "epochs": 20, "center": True},
        {**BOTH, "epochs": 10, "learning_rate": 0.0003},
    ],
}  # fmt: skip
# With 6,000 rows and batches of 32 the longest of these would take minutes each.
CANDIDATES_FLICKR8K: dict[str, list[Settings]] = {
    **CANDIDATES,
    "jdsh": [
        {"epochs": 20}, {**SMALL, "epochs": 20}, {**SMALL, "epochs": 40}, {**CENTERED, "epochs": 20},
        {**SMALL, "epochs": 20, "image_weight": 0.4, "text_weight": 0.3, "joint_weight": 0.3},
    ],
    "djsrh": [
        {"epochs": 20}, {**SMALL, "epochs": 20}, {**SMALL, "epochs": 40}, {**CENTERED, "epochs": 20},
        {**SMALL, "epochs": 20, "beta": 0.3, "intra_weight": 0.3},
    ],
    "dsah": [
        {**DSAH, **SMALL, "epochs": 20}, {**DSAH, **SMALL, "epochs": 40}, {**DSAH, **CENTERED, "epochs": 20},
        {**DSAH, **SMALL, "epochs": 20, "beta": 0.5},
    ],
    "dgcpn": [
        {"epochs": 20, "text_weight": 0.5}, {**SMALL, "epochs": 20, "text_weight": 0.5},
        {**SMALL, "epochs": 40, "text_weight": 0.5}, {**CENTERED, "epochs": 20, "text_weight": 0.5},
        {**SMALL, "epochs": 20},
    ],
}  # fmt: skip
DEEP = tuple(AUTHORS)
CLOSED_FLICKR8K: dict[str, Settings] = {"seph": {"subsample": True}}  # it compares all pairs of rows
SUPERVISED = ("dcmh", "ddcmh", "scm", "seph")
CLASSES = {"dsah": "djsrh"}  # a method that is another one with some settings


@dataclass(frozen=True)
class Job:
    """One fit: of a run, which is scored on the queries, or of a trial, which is scored on held-out training rows."""

    data: str
    method: str
    params: str  # as JSON
    seed: int
    kind: str = "run"

    def __str__(self) -> str:
        return f"{self.kind} {self.data} {self.method} {self.params} {self.seed}"


def job(data: str, method: str, params: Settings, seed: int, kind: str = "run") -> Job:
    return Job(data, method, json.dumps(params, sort_keys=True), seed, kind)


def job_of(line: dict[str, Any]) -> Job:
    return job(line["data"], line["method"], line["params"], line["seed"], line["kind"])


def candidates(data: str) -> dict[str, list[Settings]]:
    return CANDIDATES_FLICKR8K if data == "flickr8k" else CANDIDATES


def closed(data: str) -> dict[str, Settings]:
    return {method: CLOSED_FLICKR8K.get(method, {}) if data == "flickr8k" else {} for method in CLOSED}


def chosen(data: str, lines: list[dict[str, Any]]) -> dict[str, Settings]:
    """The best candidate of every method whose trials are all there; one that raised an error is the worst."""
    found = {job_of(line): line for line in lines if line["kind"] == "trial"}
    best = {}
    for method, grid in candidates(data).items():
        trials = [found.get(job(data, method, params, 0, "trial")) for params in grid]
        if all(trials):
            measure = "held-out MAP@50" if method in SUPERVISED else "score"
            scores = [line["scores"].get(measure, -np.inf) for line in trials if line]
            best[method] = grid[int(np.argmax(scores))]
    return best


def plan(lines: list[dict[str, Any]], stages: list[str]) -> Iterator[Job]:
    """All jobs in order; those with chosen settings as soon as these are known."""
    for stage in stages:
        data, what = stage.split(":")
        if what == "trials":
            # The method with most trials to come first would leave a long tail; one of each in turn does not.
            for i in range(max(map(len, candidates(data).values()))):
                yield from (job(data, m, grid[i], 0, "trial") for m, grid in candidates(data).items() if i < len(grid))
            continue
        start = START_FLICKR8K if data == "flickr8k" else START
        settings = {
            "closed": closed(data),
            "start": start,
            "authors": AUTHORS_WIKI if data == "wiki" else AUTHORS,
            "chosen": chosen(data, lines),
            "power": POWER,
        }[what]
        yield from (job(data, method, params, seed) for seed in SEEDS for method, params in settings.items())


STAGES = [
    "photos:authors", "photos:closed", "photos:start", "photos:trials", "photos:chosen", "flickr8k:closed",
    "flickr8k:start", "wiki:closed", "wiki:authors", "flickr8k:trials", "flickr8k:chosen", "wiki:trials", "wiki:chosen",
    "flickr8k:authors", "photos:power", "flickr8k:power", "wiki:power",
]  # fmt: skip


# -- one fit ----------------------------------------------------------------------------------------------------------


@cache
def load(data: str, folder: Path) -> tuple[fh.datasets.PairedDataset, Any]:
    """The data set, and several captions of every query if there are some."""
    dataset = fh.datasets.load(folder / f"{data}.npz", n_train=1200 if data == "photos" else None)
    with np.load(folder / f"{data}.npz") as file:
        return dataset, file["captions"].astype(float) if "captions" in file else None


def do(task: Job, folder: Path, device: str | None) -> dict[str, Any]:
    """One fit and its scores."""
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    dataset, captions = load(task.data, folder)
    rows, held = dataset.train, np.zeros(0, dtype=int)
    if task.kind == "trial":
        order = np.random.default_rng(0).permutation(rows)
        held, rows = np.sort(order[: int(HELD_OUT * len(order))]), np.sort(order[int(HELD_OUT * len(order)) :])
    params = {**json.loads(task.params), **({"device": device} if device and task.method in DEEP else {})}
    model = hashers.make(CLASSES.get(task.method, task.method), n_bits=BITS, random_state=task.seed, **params)
    learned, labels = dataset.views.rows(rows), dataset.labels[rows] if model.supervised else None
    torch = gpu(params.get("device"))
    before, started, cpu = peak_mib(), time.perf_counter(), time.process_time()
    model.fit(learned, labels)
    line = {
        "kind": task.kind,
        "data": task.data,
        "method": task.method,
        "params": json.loads(task.params),
        "bits": BITS,
        "seed": task.seed,
        "device": params.get("device", "cpu"),
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "fit_mib": peak_mib() - before,
        "gpu_mib": torch.cuda.max_memory_allocated() // 2**20 if torch else 0,
        "date": str(date.today()),
    }
    if task.kind == "trial":
        line["scores"] = held_out_scores(model, dataset, rows, held)
    else:
        line["scores"] = query_scores(model, dataset, captions)
    return line


def gpu(device: str | None) -> Any:
    """PyTorch with the device ready, so that its start is not in the time of the fit; None without one."""
    if not (device or "").startswith("cuda"):
        return None
    import torch

    torch.zeros(8, device=device).sum().item()
    return torch


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def query_scores(model: Any, dataset: fh.datasets.PairedDataset, captions: Any) -> dict[str, float]:
    """MAP@50 and of the whole ranking by caption words or classes, and R@k of the partner among the queries."""
    scores = {}
    for k in (50, None):
        result = evaluate(model, dataset, k=k, refit=False)
        scores |= {f"{s.protocol} {s.direction} {k or 'all'}": float(s.mean) for s in result.scores}
    codes = {view: model.encode(dataset.views[view][dataset.query], view=view) for view in ("image", "text")}
    cuts = (1, 5, 10)
    asked = [codes["text"]] if captions is None else [model.encode(captions[:, i], view="text") for i in range(5)]
    found = np.mean([pair_recall(queries, codes["image"], cuts) for queries in asked], axis=0)
    scores |= {f"R@{k} text->image": float(value) for k, value in zip(cuts, found, strict=True)}
    found = pair_recall(codes["image"], codes["text"], cuts)
    scores |= {f"R@{k} image->text": float(value) for k, value in zip(cuts, found, strict=True)}
    return {name: round(value, 5) for name, value in scores.items()} | evenness(codes)


def evenness(codes: dict[str, Any]) -> dict[str, float]:
    """The largest |mean| of a bit over the queries, and the share of different codes."""
    means = [np.abs(bits.unpack(c, BITS).astype(float).mean(axis=0)).max() for c in codes.values()]
    distinct = [len(np.unique(c, axis=0)) / len(c) for c in codes.values()]
    return {"uneven": round(float(max(means)), 4), "distinct": round(min(distinct), 4)}


def held_out_scores(model: Any, dataset: Any, rows: Any, held: Any) -> dict[str, float]:
    """The criterion of FuseHash, and MAP@50 of held-out rows among each other, by their labels."""
    kept = {view: dataset.views[view][rows] for view in dataset.views.names}
    new = {view: dataset.views[view][held] for view in dataset.views.names}
    near = NearItems([np.asarray(Preparation.learn(kept[view])(new[view])) for view in new])
    real = {view: model.project(X, view=view) for view, X in new.items()}
    codes = {view: model.encode(X, view=view) for view, X in new.items()}
    fused, (a, b) = model.encode_fused(new), codes
    searches = [(codes[a], codes[b]), (codes[b], codes[a]), (codes[a], fused), (codes[b], fused)]
    scores = {
        "partners": float(np.mean([partner_rank(real[x], codes[y]) for x, y in ((a, b), (b, a))])),
        "neighbors": float(np.mean([average_precision(x, y, near, k=50).mean() for x, y in searches])),
        "live bits": min(live_share(codes[view], BITS, count_distinct(new[view])) for view in codes),
    }
    scores["score"] = float(sum(np.log(max(value, 1e-3)) for value in scores.values()))
    relevant = dataset.labels[held], dataset.labels[held]
    maps = [average_precision(codes[x], codes[y], relevant, 50).mean() for x, y in ((a, b), (b, a))]
    return {name: round(value, 5) for name, value in {**scores, "held-out MAP@50": float(np.mean(maps))}.items()}


# -- many of them -----------------------------------------------------------------------------------------------------


def serve(pipe: Any, task: Job, folder: Path, device: str | None) -> None:
    try:
        pipe.send(do(task, folder, device))
    except fh.errors.DataError as error:  # such as training that diverges: a result, too
        outcome = {"kind": task.kind, "data": task.data, "method": task.method, "params": json.loads(task.params)}
        pipe.send({**outcome, "bits": BITS, "seed": task.seed, "seconds": 0.0, "scores": {}, "error": str(error)})
    except Exception as error:  # is printed, and the others go on
        pipe.send(f"{type(error).__name__}: {error}")


def run(options: argparse.Namespace) -> None:
    """Start jobs in order, as many at a time as there are places; store each line as it comes."""
    context = multiprocessing.get_context("forkserver")
    # Every fit is forked from a process that has the packages but no data and no device.
    context.set_forkserver_preload(["deep_study", "fusehash.hashers.deep.training", "fusehash.evaluation.kernels"])
    started, lines = time.monotonic(), stored(options.results)
    device = None if options.device == "cpu" else options.device
    finished = {job_of(line) for line in lines}
    places = {"device": options.jobs, "cpu": options.cpu_jobs if device else 0}
    running: dict[Any, tuple[Job, Any, str]] = {}
    while True:
        late = time.monotonic() - started > options.limit_seconds
        busy = {task for task, _, _ in running.values()}
        for task in () if late else wanted(lines, options):
            kind = "device" if device is None or task.method in DEEP else "cpu"
            if places[kind] and task not in finished | busy:
                places[kind] -= 1
                busy.add(task)
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, task, options.folder, device), daemon=True)
                process.start()
                theirs.close()
                running[ours] = task, process, kind
            if not any(places.values()):
                break
        if not running:
            break
        for pipe in wait(list(running), timeout=1.0):
            task, process, kind = running.pop(pipe)
            places[kind] += 1
            finished.add(task)
            try:
                line = pipe.recv()
            except EOFError:
                line = "its process ended"
            process.join()
            if isinstance(line, str):
                print(f"FAILED {task}: {line}", flush=True)
                continue
            lines.append(line)
            with options.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            shown = [name for name in SHOWN if name in line["scores"]]
            print(
                f"{time.monotonic() - started:5.0f} s  {task}  {line.get('error', line['seconds'])} s ",
                *(f"{line['scores'][name]:.3f}" for name in shown),
                flush=True,
            )
        if late and time.monotonic() - started > options.limit_seconds + options.grace_seconds:
            for _, process, _ in running.values():
                process.terminate()
            break
    left = len({*wanted(lines, options)} - finished)
    print(f"{len(lines)} lines in {options.results}; {left} fits that are known of are left", flush=True)


def wanted(lines: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[Job]:
    return (task for task in plan(lines, options.stages) if not options.only or task.method in options.only)


SHOWN = ("HN image->text 50", "HN text->image 50", "H image->text 50", "R@10 text->image", "score", "held-out MAP@50")


def stored(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


# -- tables -----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "photos": {
        "H I→T": "H image->text 50", "H T→I": "H text->image 50", "HN I→T": "HN image->text 50",
        "HN T→I": "HN text->image 50", "whole, HN I→T": "HN image->text all", "whole, HN T→I": "HN text->image all",
        "R@10 T→I": "R@10 text->image",
    },
    "flickr8k": {
        "R@1": "R@1 text->image", "R@5": "R@5 text->image", "R@10": "R@10 text->image", "R@10 I→T": "R@10 image->text",
        "H I→T": "H image->text 50", "H T→I": "H text->image 50",
    },
    "wiki": {
        "U I→T": "U image->text 50", "U T→I": "U text->image 50", "H I→T": "H image->text 50",
        "H T→I": "H text->image 50", "whole, H I→T": "H image->text all", "whole, H T→I": "H text->image all",
    },
}  # fmt: skip
TITLES = {"random": "CCA, random rotation", "cca_itq": "CCA-ITQ", "regression": "regression", "fusehash": "FuseHash"}
TITLES |= {"seph": "SePH (labels)", "dcmh": "DCMH (labels)", "ddcmh": "DDCMH (labels)", "scm": "SCM (labels)"}


def table(results: Path) -> None:
    """Mean and spread over seeds, a line for each settings; then what was chosen."""
    lines = stored(results)
    for data in dict.fromkeys(line["data"] for line in lines):
        runs = [line for line in lines if line["data"] == data and line["kind"] == "run" and line["scores"]]
        named = settings_of(data, lines)
        columns = {title: key for title, key in COLUMNS[data].items() if runs and key in runs[0]["scores"]}
        print(f"\n**{data}, {BITS} bits**\n")
        print(f"| method | settings | seeds | {' | '.join(columns)} | s | CPU s | MiB | GPU MiB |")
        print("|" + "---|" * (len(columns) + 7))
        for method in (*CLOSED, *DEEP):
            for params in dict.fromkeys(json.dumps(r["params"], sort_keys=True) for r in runs if r["method"] == method):
                same = [r for r in runs if job_of(r) == Job(data, method, params, r["seed"])]
                cells = [mean_and_spread([r["scores"][key] for r in same]) for key in columns.values()]
                costs = [np.mean([r[key] for r in same]) for key in ("seconds", "cpu_seconds", "fit_mib", "gpu_mib")]
                print(
                    f"| {TITLES.get(method, method.upper())} | {named.get((method, params), '-')} | {len(same)} | "
                    f"{' | '.join(cells)} | {costs[0]:.1f} | {costs[1]:.1f} | {costs[2]:.0f} | {costs[3]:.0f} |"
                )
    for data in dict.fromkeys(line["data"] for line in lines):
        print(f"\n**Chosen on {data}**\n")
        for method, params in chosen(data, lines).items():
            print(f"- {method}: {', '.join(f'{name}={value}' for name, value in params.items()) or 'defaults'}")


def settings_of(data: str, lines: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """What the settings of a method are called."""
    kinds = {
        "start": START_FLICKR8K if data == "flickr8k" else START,
        "authors": AUTHORS_WIKI if data == "wiki" else AUTHORS,
        "chosen": chosen(data, lines),
        "defaults": closed(data),
        "power": POWER,
    }
    names: dict[tuple[str, str], list[str]] = {}
    for kind, settings in kinds.items():
        for method, params in settings.items():
            names.setdefault((method, json.dumps(params, sort_keys=True)), []).append(kind)
    return {key: ", ".join(kinds) for key, kinds in names.items()}


def mean_and_spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of the lines")
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("table", help="the stored lines as Markdown")
    running = parts.add_parser("run", help="compute what is missing")
    running.add_argument("folder", type=Path)
    running.add_argument("--device", default="cpu", help="where deep methods learn")
    running.add_argument("--jobs", type=int, default=1, help="fits at a time, on a device those of deep methods")
    running.add_argument("--cpu-jobs", type=int, default=1, help="other fits at a time, next to a device")
    running.add_argument("--limit-seconds", type=float, default=np.inf, help="start nothing after this time")
    running.add_argument("--grace-seconds", type=float, default=20.0, help="then wait this long for what runs")
    running.add_argument("--only", type=lambda text: text.split(","), default=[], help="methods, by commas")
    running.add_argument("--stages", type=lambda text: text.split(","), default=STAGES, help=", ".join(STAGES))
    options = parser.parse_args()
    if options.part == "table":
        table(options.results)
    else:
        run(options)


if __name__ == "__main__":
    main()
