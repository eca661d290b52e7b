"""Fitting on a GPU: time and agreement with NumPy.

    python benchmarks/gpu_fit.py --out FILE.json                 # on a machine with a GPU and PyTorch
    python benchmarks/gpu_fit.py --scale 0.01 --device cpu       # the same, small, anywhere

Data is made on the device (a latent mixture seen through two noisy linear views, single precision) and stays there.
Every time is the median of three fits after one that warms up, with the device synchronized before and after.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fusehash as fh
from fusehash import bits
from runs import described, store

WIDTHS = {"image": 500, "text": 1000}
FIXED: dict[str, Any] = {
    "feature_map": "linear",
    "ridge": 0.03,
    "graph_weight": 1.0,
    "latent_weight": 1.0,
    "view_weights": (1.0, 1.0),
    "spectral_power": 2.0,
    "n_anchors": 900,
}


def made(n: int, device: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """n paired rows on a device."""
    generator = torch.Generator(device=device).manual_seed(seed)
    fixed = torch.Generator(device=device).manual_seed(7)

    def normal(*shape: int, source: torch.Generator = generator) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=source)

    centers = 2.0 * normal(24, 40, source=fixed)
    maps = {name: normal(40, d, source=fixed) / 6.0 for name, d in WIDTHS.items()}
    views = {name: torch.empty(n, d, device=device) for name, d in WIDTHS.items()}
    for start in range(0, n, 200_000):
        rows = slice(start, min(start + 200_000, n))
        count = rows.stop - rows.start
        latent = centers[torch.randint(24, (count,), device=device, generator=generator)] + normal(count, 40)
        for name, view in views.items():
            view[rows] = latent @ maps[name] + 0.5 * normal(count, WIDTHS[name])
    return views


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(work: Callable[[], Any], device: str, repeats: int = 3) -> dict[str, Any]:
    """Median seconds of some runs after one that warms up, and the most memory that the device held."""
    times = []
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats + 1):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.startswith("cuda") else None
    return {"seconds": statistics.median(times[1:]), "first": times[0], "all": times[1:], "peak_gib": peak}


def agreement(n: int, device: str) -> dict[str, Any]:
    """Share of equal bits between a fit on the device and one in NumPy, of training codes and of new texts."""
    views, new = made(n, device), made(500, device, seed=1)
    on_host = {name: view.cpu().numpy() for name, view in views.items()}
    shares = {}
    for name, method, params in (
        ("default", "fusehash", {}),
        ("linear map", "fusehash", FIXED),
        ("paper", "agsfh", {"n_anchors": 200, "max_iter": 10}),
    ):
        ours = fh.hashers.make(method, n_bits=64, random_state=0, **params).fit(on_host)
        theirs = fh.hashers.make(method, n_bits=64, random_state=0, **params).fit(views)
        answers = ours.encode(new["text"].cpu().numpy(), view="text"), theirs.encode(new["text"], view="text").cpu()
        shares[name] = {"training": same(ours.codes_, theirs.codes_), "new texts": same(*answers)}
    return shares


def same(a: Any, b: Any) -> float:
    return float(np.mean(bits.unpack(np.asarray(a), 64) == bits.unpack(np.asarray(b), 64)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device, n = options.device, int(184_577 * options.scale)
    results: dict[str, Any] = {**described("torch"), "device": device, "rows": n}

    def keep(name: str, value: Any) -> None:
        results[name] = value
        print(name, json.dumps(value), flush=True)
        if options.out:
            store(options.out, results)

    make = lambda **params: fh.FuseHash(n_bits=64, random_state=0, **params)  # noqa: E731
    views = made(n, device)
    model = make(**FIXED).fit(views)
    large: dict[str, torch.Tensor] = {}
    cases: dict[str, Callable[[], Any]] = {
        "fixed settings, linear map": lambda: make(**FIXED).fit(views),
        "fixed settings, rbf map": lambda: make(**{**FIXED, "feature_map": "rbf", "kernel_width": 1.0}).fit(views),
        "self-tuned": lambda: make().fit(views),
        "paper, 40 iterations": lambda: fh.AGSFH(n_bits=64, max_iter=40, tol=0.0, random_state=0).fit(views),
        "encode texts": lambda: model.encode(views["text"], view="text"),
        "3 million pairs, fixed settings": lambda: make(**FIXED).fit(large),
    }
    chosen = [name for name in cases if not options.only or options.only in name]
    if not options.only:
        keep("agreement", agreement(5000, device))
    for name in chosen:
        if name.startswith("3 million"):
            views.clear()
            large.update(made(int(3_000_000 * options.scale), device))
        keep(name, timed(cases[name], device))
        if options.profile:
            profile(cases[name])


def profile(work: Callable[[], Any]) -> None:
    import cProfile
    import pstats

    with cProfile.Profile() as watched:
        work()
    pstats.Stats(watched).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
