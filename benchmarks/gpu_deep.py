"""Whole fits of deep methods on a GPU and on a CPU, and UCCH on a million pairs.

    python benchmarks/gpu_deep.py recorded flickr8k.npz --device cuda --out FILE.json [--only ucch]
    python benchmarks/gpu_deep.py methods flickr8k.npz --device cuda --out FILE.json [--limit 200]
    python benchmarks/gpu_deep.py methods flickr8k.npz --device cpu --out FILE.json --only ucch,ddcmh
    python benchmarks/gpu_deep.py million --device cuda --out FILE.json [--limit 560] [--only mixed]

recorded: a few epochs of each method with steps that are recorded and replayed, and without (`--plain` is the latter
for the other parts); the losses of the last epoch must agree, or the exit status is 1.

methods: `fit` of each method on the 6,000 training pairs of Flickr8k (deep_features.py), 64 bits, seed 0, with the
epochs of the authors, which are the defaults (DCMH: 500). UCCH runs in single and in mixed precision.

million: UCCH on 1,000,000 generated pairs (1,280 and 384 features, single precision, rows in groups that both views
show, next to noise), 64 bits, mixed and single precision. R@10 is of 2,000 new pairs among each other.

A fit that would not end within its limit (of `methods`: its share of the time that is left) stops after the last epoch
that does; `epochs_run` says how many these are, and `whole_seconds` is then a projection (of DDCMH, whose second head
has more weights than the first, too low a one). What is finished is stored after every fit, and of a million pairs
after every epoch.

Times are of the clock, with everything that `fit` does: checks, means, preparing rows, training, codes of all rows. A
fit of two epochs comes first, of a few rows with a million pairs, so that no library is loaded in that time. On a CPU
training has one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fusehash as fh
from fusehash import hashers
from fusehash.evaluation import pair_recall
from fusehash.hashers.deep import training
from runs import described, store

BITS = 64
EPOCHS = {"ucch": 20, "cirh": 60, "ddcmh": 50, "dbrc": 100, "djsrh": 80, "dcmh": 500, "dgcpn": 100, "jdsh": 300}
MIXED = {"mixed_precision": True}
ORDER = ("ucch", "djsrh", "dcmh", "dbrc", "ddcmh", "cirh", "dgcpn", "jdsh")
WIDTHS, N_GROUPS, N_NEW = {"image": 1280, "text": 384}, 5000, 2000
FEW_ROWS, FEW_EPOCHS = 4096, 4
TOLERANCE = 0.05  # of losses with different random numbers
AFTER = 1.5  # epochs that what comes after the last one may take


class OutOfTimeError(Exception):
    """A fit was stopped after an epoch."""


@dataclass
class Clock:
    """A callback of `fit` that keeps the end of every epoch and stops a fit that will not end in time."""

    ends_at: float = np.inf
    each: Callable[[list[float]], None] = lambda ends: None
    ends: list[float] = field(default_factory=list)

    def __call__(self, step: int, total: int, message: str) -> None:
        self.ends.append(time.perf_counter())
        self.each(self.ends)
        if step < total and self.ends[-1] + (1.0 + AFTER) * self.seconds_per_epoch > self.ends_at:
            raise OutOfTimeError

    @property
    def seconds_per_epoch(self) -> float:
        """From the second epoch on."""
        return float(np.diff(self.ends).mean()) if len(self.ends) > 1 else 0.0


def fitted(method: str, views: Any, labels: Any, device: str, clock: Clock, **params: Any) -> tuple[Any, Any]:
    """A model, or None if the time was over, and how long its fit took: in all, and per epoch from the second on."""
    model = hashers.make(method, n_bits=BITS, random_state=0, device=device, **params)
    model.set_params(callback=clock)
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started, cpu = time.perf_counter(), time.process_time()
    try:
        model.fit(views, labels if model.supervised else None)
    except OutOfTimeError:
        model = None
    seconds = time.perf_counter() - started
    epochs = 2 * params["epochs"] if method == "ddcmh" else params["epochs"]
    left = (epochs - len(clock.ends)) * (clock.seconds_per_epoch or seconds)
    return model, {
        "epochs": epochs,
        "epochs_run": len(clock.ends),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "seconds_per_epoch": round(clock.seconds_per_epoch, 4),
        "whole_seconds": round(seconds + left, 2),
        "gpu_mib": torch.cuda.max_memory_allocated() // 2**20 if on_gpu else 0,
        "recorded": on_gpu and training.RECORD,
    }


def recall(model: Any, views: Any) -> dict[str, float]:
    """R@10 of pairs among each other."""
    codes = {name: model.encode(views[name], view=name) for name in views}
    found = {f"{a}->{b}": pair_recall(codes[a], codes[b], (10,))[0] for a, b in (("image", "text"), ("text", "image"))}
    return {direction: round(float(value), 4) for direction, value in found.items()}


def cells_of(options: argparse.Namespace) -> list[tuple[str, int, dict[str, Any]]]:
    """Methods with their epochs and settings."""
    cells: list[tuple[str, int, dict[str, Any]]] = [(name, EPOCHS[name], {}) for name in ORDER]
    cells.insert(1, ("ucch", EPOCHS["ucch"], MIXED))
    return [cell for cell in cells if not options.only or cell[0] in options.only]


def training_rows(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Views and labels of the training rows, and views of the queries."""
    data = fh.datasets.load(options.file)
    return data.views.rows(data.train), data.labels[data.train], data.views.rows(data.query)


def recorded(options: argparse.Namespace) -> list[dict[str, Any]]:
    (views, labels, _), rows = training_rows(options), []
    for method, _, params in cells_of(options):
        row: dict[str, Any] = {"method": method, "params": params}
        for name, training.RECORD in (("plain", False), ("recorded", True)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                clock = Clock()
                model, cost = fitted(method, views, labels, options.device, clock, epochs=FEW_EPOCHS, **params)
            row[name] = {"seconds": cost["seconds"], "seconds_per_epoch": round(float(np.diff(clock.ends).min()), 4)}
            row[name] |= {"gpu_mib": cost["gpu_mib"], "loss": [round(float(loss), 5) for loss in model.objective_]}
            row[name]["warnings"] = [str(one.message) for one in caught if "recorded" in str(one.message)]
        a, b = (row[name]["loss"][-1] for name in ("plain", "recorded"))
        row["agree"] = bool(abs(a - b) <= TOLERANCE * abs(a))
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.save(rows)
    if not all(row["agree"] for row in rows):
        raise SystemExit(1)
    return rows


def methods(options: argparse.Namespace) -> list[dict[str, Any]]:
    (views, labels, queries), rows = training_rows(options), []
    ends, cells = time.perf_counter() + options.limit, cells_of(options)
    for i, (method, epochs, params) in enumerate(cells):
        n_few = min(FEW_ROWS // 4, views.n_rows)
        fitted(method, views.rows(np.arange(n_few)), labels[:n_few], options.device, Clock(), epochs=2, **params)
        left = ends - time.perf_counter()
        clock = Clock(time.perf_counter() + left / (len(cells) - i))
        model, cost = fitted(method, views, labels, options.device, clock, epochs=epochs, **params)
        row = {"method": method, "params": params, **cost, "R@10": recall(model, queries) if model else None}
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.save(rows)
    return rows


def pairs(n: int, device: str) -> dict[str, np.ndarray[Any, Any]]:
    """Rows of groups that both views show through linear maps, with noise."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    centers, maps = normal(N_GROUPS, 64), {name: normal(64, d) / 8.0 for name, d in WIDTHS.items()}
    views = {name: np.empty((n, d), dtype=np.float32) for name, d in WIDTHS.items()}
    for start in range(0, n, 100_000):
        count = min(100_000, n - start)
        groups = torch.randint(N_GROUPS, (count,), device=device, generator=generator)
        latent = centers[groups] + 0.5 * normal(count, 64)
        for name, d in WIDTHS.items():
            views[name][start : start + count] = (latent @ maps[name] + 0.5 * normal(count, d)).cpu().numpy()
    return views


def million(options: argparse.Namespace) -> list[dict[str, Any]]:
    started, ends_at = time.monotonic(), time.perf_counter() + options.limit
    n, rows = options.rows, []
    made = pairs(n + N_NEW, options.device)
    views = {name: X[:n] for name, X in made.items()}
    new = {name: X[n:] for name, X in made.items()}
    few = {name: X[:FEW_ROWS] for name, X in made.items()}
    print(f"{time.monotonic() - started:.0f} s: rows are made", flush=True)
    for params in (MIXED, {}):
        if options.only and ("mixed" if params else "single") not in options.only:
            continue
        settings: dict[str, Any] = {"hidden": options.hidden, **params}
        fitted("ucch", few, None, options.device, Clock(), epochs=2, **settings)
        begun = time.perf_counter()

        def so_far(ends: list[float], begun: float = begun, settings: dict[str, Any] = settings) -> None:
            row = {"method": "ucch", "params": settings, "rows": n, "epochs": EPOCHS["ucch"]}
            options.save([*rows, {**row, "seconds_of_epochs": [round(end - begun, 1) for end in ends]}])
            print(f"{time.monotonic() - started:.0f} s: epoch {len(ends)}", flush=True)

        model, cost = fitted(
            "ucch", views, None, options.device, Clock(ends_at, so_far), epochs=EPOCHS["ucch"], **settings
        )
        row = {"method": "ucch", "params": settings, "rows": n, **cost}
        if model is not None:
            row |= {"R@10": recall(model, new), "loss": [round(float(loss), 5) for loss in model.objective_]}
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.save(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["recorded", "methods", "million"])
    parser.add_argument("file", nargs="?", type=Path, help="flickr8k.npz")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="methods, by commas; of million: mixed, single"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; what does not fit runs fewer epochs")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hidden", type=int, default=8192, help="of UCCH on a million pairs")
    parser.add_argument("--plain", action="store_true", help="record no steps")
    options = parser.parse_args()
    training.RECORD = not options.plain
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    head = described("torch")

    def save(rows: list[dict[str, Any]]) -> None:
        store(options.out, {**head, "device": options.device, "rows": rows})

    options.save = save
    {"recorded": recorded, "methods": methods, "million": million}[options.part](options)


if __name__ == "__main__":
    main()
