"""Whole fits of deep methods on a GPU and on a CPU, and UCCH on a million pairs.

    python benchmarks/gpu_deep.py methods flickr8k.npz --device cuda --out FILE.json [--limit 200]
    python benchmarks/gpu_deep.py methods flickr8k.npz --device cpu --out FILE.json --only ucch,ddcmh
    python benchmarks/gpu_deep.py million --device cuda --out FILE.json [--limit 170]

methods: `fit` of each method on the 6,000 training pairs of Flickr8k (deep_features.py), 64 bits, seed 0, with the
epochs of the authors, which are the defaults (DCMH: 500). A method whose whole fit would not end within its share of
the time that is left, as a fit of two epochs tells, runs `epochs_run` of them; `whole_seconds` is then a projection.
UCCH runs in single and in mixed precision.

million: UCCH on 1,000,000 generated pairs (1,280 and 384 features, single precision, rows in groups that both views
show, next to noise), 64 bits, mixed and single precision; how many epochs fit into the limit is told by a fit of a
part of the rows. R@10 is of 2,000 new pairs among each other.

Times are of the clock, with everything that `fit` does: checks, means, preparing rows, training, codes of all rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fusehash as fh
from fusehash import hashers
from fusehash.evaluation import pair_recall
from runs import described, store

BITS = 64
EPOCHS = {"ucch": 20, "cirh": 60, "ddcmh": 50, "dbrc": 100, "djsrh": 80, "dcmh": 500, "dgcpn": 100, "jdsh": 300}
MIXED = {"mixed_precision": True}
WIDTHS, N_GROUPS, N_NEW, PROBE_ROWS = {"image": 1280, "text": 384}, 5000, 2000, 80_000
RESERVE = 1.3  # what is projected takes up to so many times as long


def fitted(method: str, views: Any, labels: Any, device: str, **params: Any) -> tuple[Any, dict[str, Any]]:
    """A model, and how long its fit took: in all, and per epoch from the second on."""
    ends: list[float] = []
    model = hashers.make(method, n_bits=BITS, random_state=0, device=device, **params)
    model.set_params(callback=lambda *_: ends.append(time.perf_counter()))
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(views, labels if model.supervised else None)
    seconds = time.perf_counter() - started
    return model, {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "seconds_per_epoch": round(float(np.diff(ends).mean()) if len(ends) > 1 else seconds, 4),
        "gpu_mib": torch.cuda.max_memory_allocated() // 2**20 if on_gpu else 0,
    }


def recall(model: Any, views: Any) -> dict[str, float]:
    """R@10 of pairs among each other."""
    codes = {name: model.encode(views[name], view=name) for name in views}
    found = {f"{a}->{b}": pair_recall(codes[a], codes[b], (10,))[0] for a, b in (("image", "text"), ("text", "image"))}
    return {direction: round(float(value), 4) for direction, value in found.items()}


def methods(options: argparse.Namespace) -> list[dict[str, Any]]:
    data = fh.datasets.load(options.file)
    views, labels = data.views.rows(data.train), data.labels[data.train]
    queries = data.views.rows(data.query)
    rows, ends = [], time.monotonic() + options.limit
    cells = [(name, epochs, {}) for name, epochs in EPOCHS.items()]
    cells.insert(1, ("ucch", EPOCHS["ucch"], MIXED))
    cells = [cell for cell in cells if not options.only or cell[0] in options.only]
    for i, (method, epochs, params) in enumerate(cells):
        stages = 2 if method == "ddcmh" else 1
        probe = fitted(method, views, labels, options.device, epochs=2, **params)[1]  # also warms up
        left = (ends - time.monotonic()) / (len(cells) - i)
        per_epoch = stages * probe["seconds_per_epoch"]
        most = int((left - max(probe["seconds"] - 2 * per_epoch, 0.0)) / RESERVE / per_epoch)
        if most < 1:
            print(f"{method}: no time left for an epoch of {per_epoch:.1f} s", flush=True)
            continue
        run = min(epochs, most)
        model, cost = fitted(method, views, labels, options.device, epochs=run, **params)
        whole = cost["seconds"] + (epochs - run) * stages * cost["seconds_per_epoch"]
        row = {"method": method, "params": params, "epochs": epochs, "epochs_run": run, **cost}
        row |= {"whole_seconds": round(whole, 2), "R@10": recall(model, queries)}
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
    started = time.monotonic()
    n = options.rows
    made = pairs(n + N_NEW, options.device)
    views = {name: X[:n] for name, X in made.items()}
    new = {name: X[n:] for name, X in made.items()}
    part = {name: X[: min(n, PROBE_ROWS)] for name, X in views.items()}
    heads = {"hidden": options.hidden}
    print(f"{time.monotonic() - started:.0f} s: rows are made", flush=True)
    rows = []
    few = {name: X[:4096] for name, X in part.items()}
    for params in (MIXED, {}):
        if options.only and ("mixed" if params else "single") not in options.only:
            continue
        fitted("ucch", few, None, options.device, epochs=2, **heads, **params)  # warms up
        probe = fitted("ucch", part, None, options.device, epochs=3, **heads, **params)[1]
        scale = n / len(part["image"])
        per_epoch = probe["seconds_per_epoch"] * scale
        rest = max(probe["seconds"] - 3 * probe["seconds_per_epoch"], 0.0) * scale
        print(
            f"{time.monotonic() - started:.0f} s: {params} {per_epoch:.1f} s an epoch, {rest:.0f} s besides", flush=True
        )
        row = {"method": "ucch", "params": {**heads, **params}, "rows": n, "epochs": EPOCHS["ucch"]}
        row |= {"projected_seconds_per_epoch": round(per_epoch, 2), "projected_rest": round(rest, 1)}
        left = options.limit - (time.monotonic() - started)
        run = min(EPOCHS["ucch"], int((left / 1.1 - rest) / per_epoch))
        if run >= 1:
            model, cost = fitted("ucch", views, None, options.device, epochs=run, **heads, **params)
            whole = cost["seconds"] + (EPOCHS["ucch"] - run) * cost["seconds_per_epoch"]
            row |= {"epochs_run": run, **cost, "whole_seconds": round(whole, 1), "R@10": recall(model, new)}
            row["loss"] = [round(float(loss), 5) for loss in model.objective_]
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.save(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["methods", "million"])
    parser.add_argument("file", nargs="?", type=Path, help="flickr8k.npz")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="methods, by commas; of million: mixed, single"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; what does not fit runs fewer epochs")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hidden", type=int, default=8192, help="of UCCH on a million pairs")
    options = parser.parse_args()
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    head = described("torch")

    def save(rows: list[dict[str, Any]]) -> None:
        store(options.out, {**head, "device": options.device, "rows": rows})

    options.save = save
    {"methods": methods, "million": million}[options.part](options)


if __name__ == "__main__":
    main()
