"""Exact search on a GPU: several ways, timed side by side, each checked against NumPy.

    python benchmarks/gpu_search.py --out gpu.json
    python benchmarks/gpu_search.py --scale 0.01          # a look at it where there is no GPU

Codes are on the device; queries and results too, except for "index", which is a whole call of HammingIndex.search from
NumPy to NumPy. A time is that of one call, from an idle device to an idle device. Needs numpy, torch and
array-api-compat; Triton and CuPy are optional. The target: 2,000 queries over 184,577 codes of 128 bits,
k = 50, in less than 5 ms.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fusehash.search import HammingIndex
from fusehash.search.engines import make
from fusehash.search.engines import torch as gpu
from fusehash.search.engines.torch import select
from fusehash.search.rows import CodeRows

CASES = ((2000, 184_577, 128), (2000, 1_000_000, 64), (1, 10_000_000, 64))  # queries, codes, bits
TARGETS = {CASES[0]: 5.0}  # milliseconds for what "auto" takes
K = 50
SAMPLE = 4  # queries that NumPy answers too
CELLS = 1 << 29

Search = Callable[[], Any]


def data(n_queries: int, n: int, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and queries around a thousand centers, with codes that repeat: neighbors and ties, as real ones have."""
    rng = np.random.default_rng(n)
    centers = rng.integers(0, 256, (1000, n_bits // 8), dtype=np.uint8)

    def near(count: int) -> np.ndarray:
        codes = centers[rng.integers(0, len(centers), count)]
        noise = rng.integers(0, 256, (3, *codes.shape), dtype=np.uint8)
        return codes ^ (noise[0] & noise[1] & noise[2])  # about one bit in eight differs from the center

    codes = near(n)
    codes[n // 2 : n // 2 + n // 20] = codes[: n // 20]
    return codes, near(n_queries)


def variants(codes: Any, queries: Any, device: Any) -> Iterator[tuple[str, Search]]:
    """Every way to the nearest K, by name."""
    resident, n = gpu.Resident(codes), codes.shape[0]
    yield "auto", lambda: gpu.top_k(resident, queries, K)
    yield "product, groups", lambda: gpu.top_k(resident, queries, K, method="product")
    yield "product, keys, topk", lambda: plain(resident, queries)
    if device.type != "cuda":
        return
    signs = resident.signs(0, n).to(torch.int8)
    if len(queries) > 16:
        yield "int8 product, groups", lambda: by_int8(signs, queries, n)
    if not select.missing_for_fused(queries):
        words, asked = resident.words(), select.to_words(queries)
        for way, tensor_cores in (("tensor cores", True), ("bit counts", False)):
            for size in (32, 64, 128):
                yield (
                    f"fused, {way}, groups of {size}",
                    lambda s=size, t=tensor_cores: select.fused_top_k(words, asked, K, CELLS, size=s, tensor_cores=t),
                )
        for leaf in (512, 1024, 2048, 16384):
            yield f"auto, rows to {leaf} directly", lambda wide=leaf: with_leaf(wide, resident, queries)
    if find_spec("cupy"):
        import cupy

        there = gpu.Resident(cupy.asarray(codes.cpu().numpy()))
        asked_there = cupy.asarray(queries.cpu().numpy())
        yield "cupy, product, groups", lambda: gpu.top_k(there, asked_there, K)


def plain(resident: gpu.Resident, queries: Any) -> Any:
    """One selection over all distances, with keys that break ties."""
    values = resident.distances(queries, 0, len(resident))
    found, positions = select.first(values, K)
    return found + resident.n_bits // 2, positions


def by_int8(signs: Any, queries: Any, n: int) -> Any:
    """Products of 8-bit integers, whose results take 32 bits."""
    n_bits = signs.shape[1]
    asked = gpu._signs(queries).to(torch.int8)
    product = torch._int_mm(-asked, signs.T)[:, :n]
    values, positions = select.smallest(select.Held(product), K)
    return (values + n_bits) // 2, positions


def with_leaf(leaf: int, resident: gpu.Resident, queries: Any) -> Any:
    usual, select.LEAF = select.LEAF, leaf
    try:
        return gpu.top_k(resident, queries, K)
    finally:
        select.LEAF = usual


def timed(search: Search, device: Any, rounds: int) -> list[float]:
    """Milliseconds of every round, after three that do not count."""
    times = []
    for turn in range(rounds + 3):
        with waited(device):
            start = perf_counter()
            search()
            wait(device)
            if turn >= 3:
                times.append(1e3 * (perf_counter() - start))
    return times


@contextmanager
def waited(device: Any) -> Iterator[None]:
    wait(device)
    yield


def wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # of the whole device, CuPy's work included


def to_host(found: Any) -> list[np.ndarray]:
    return [each.get() if hasattr(each, "get") else np.asarray(each.cpu()) for each in found]


def run(case: tuple[int, int, int], options: argparse.Namespace, device: Any) -> dict[str, Any]:
    n_queries, n, n_bits = case
    n, n_queries = max(5000, int(n * options.scale)), max(1, int(n_queries * options.scale))
    host_codes, host_queries = data(n_queries, n, n_bits)
    codes, queries = (torch.tensor(each, device=device) for each in (host_codes, host_queries))
    reference, rows = make("numpy"), CodeRows.numbered(host_codes)
    expected = reference.search(rows, host_queries[:SAMPLE], K, None, None)
    print(f"\n{n_queries:,} queries, {n:,} codes of {n_bits} bits, k = {K}")
    results: dict[str, Any] = {}
    first: Any = None

    def note(name: str, search: Search, check: Callable[[Any], bool], rounds: int = options.rounds) -> None:
        try:
            right = check(search())
            times = timed(search, device, rounds)
        except Exception as error:  # one way that fails must not cost the others their times
            results[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            print(f"  {name:36} {results[name]['error'][:80]}")
            return
        results[name] = {"right": right, "median_ms": float(np.median(times)), "best_ms": min(times), "times_ms": times}
        print(f"  {name:36} {np.median(times):9.3f} ms   best {min(times):9.3f}   {'equal' if right else 'WRONG'}")

    def as_expected(found: Any) -> bool:
        nonlocal first
        here = to_host(found)
        first = here if first is None else first
        alike = all(np.array_equal(one, other) for one, other in zip(here, first, strict=True))
        return alike and all(np.array_equal(a[:SAMPLE], b) for a, b in zip(here, expected, strict=True))

    for name, search in variants(codes, queries, device):
        note(name, search, as_expected)
    index = HammingIndex(n_bits, engine=f"torch:{device}")
    index.add(host_codes)
    note("index", lambda: index.search(host_queries, K), lambda found: all(map(np.array_equal, found, first)), 5)
    radius = int(np.median(expected[0][:, -1]))
    near = reference.range_search(rows, host_queries[:SAMPLE], radius, None, None)
    resident = gpu.Resident(codes)
    note(
        f"within {radius}",
        lambda: gpu.within(resident, queries, radius),
        lambda found: all(
            np.array_equal(one[: len(other)], other) for one, other in zip(to_host(found), near, strict=True)
        ),
        5,
    )
    scan = make("scan")
    note(
        "scan on the processor",
        lambda: map(torch.tensor, scan.search(rows, host_queries, K, None, None)),
        as_expected,
        2,
    )
    if options.profile and device.type == "cuda":
        profile(resident, queries)
    target = TARGETS.get(case) if options.scale == 1 else None
    met = None if target is None or "error" in results["auto"] else results["auto"]["median_ms"] < target
    return {
        "queries": n_queries, "codes": n, "bits": n_bits, "k": K, "target_ms": target, "met": met, "results": results,
    }  # fmt: skip


def profile(resident: gpu.Resident, queries: Any) -> None:
    """Where the time goes, kernel by kernel."""
    for method in ("product", "auto"):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            gpu.top_k(resident, queries, K, method=method)
            torch.cuda.synchronize()
        print(f"\n{method}")
        kernels = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)
        for event in kernels[:12]:
            print(f"  {event.device_time_total / 1e3:8.3f} ms  {event.count:3}  {event.key[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the queries and codes to take")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="which of the cases, from 0")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    device = torch.empty(0, device=options.device).device
    machine = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    print(machine)
    cases = []
    for number in options.cases:
        cases.append(run(CASES[number], options, device))
        if options.out:  # after every case: a run that is cut off keeps what it has
            options.out.write_text(json.dumps({"machine": machine, "scale": options.scale, "cases": cases}, indent=1))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    for case in cases:
        if case["met"] is not None:
            print(f"\n{case['codes']:,} x {case['bits']}: {'met' if case['met'] else 'MISSED'} {case['target_ms']} ms")


if __name__ == "__main__":
    main()
