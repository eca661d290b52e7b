"""Exact search on a GPU: several ways, timed side by side, each checked against NumPy.

    python benchmarks/gpu_search.py --out gpu.json
    python benchmarks/gpu_search.py --scale 0.01          # a look at it where there is no GPU

Codes are on the device; queries and results too, except for "index", which is a whole call of HammingIndex.search from
NumPy to NumPy. A time is that of one call, from an idle device to an idle device; `device_ms` is the time of its
kernels and copies alone, by the profiler. "scores" are searches with real-valued queries. Needs numpy, torch and
array-api-compat; Triton and CuPy are optional. The targets, k = 50: 2,000 queries over 184,577 codes of 128 bits in
1 ms through the index, 200 real-valued ones in 2 ms, one query over 10 million codes of 64 bits in 0.15 ms of device
time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fusehash.search import HammingIndex
from fusehash.search.engines import make
from fusehash.search.engines import torch as gpu
from fusehash.search.engines.torch import cascade
from fusehash.search.projections import check_projections
from fusehash.search.rows import CodeRows
from runs import described, store

CASES = ((2000, 184_577, 128), (1, 10_000_000, 64), (2000, 1_000_000, 64))  # queries, codes, bits
# milliseconds, by case, way and kind of time
TARGETS = (
    (CASES[0], "index", "median_ms", 1.0),
    (CASES[0], "index, scores", "median_ms", 2.0),
    (CASES[1], "auto", "device_ms", 0.15),
)
K = 50
SAMPLE = 4  # queries that NumPy answers too
N_SCORED = 200  # real-valued queries, at most
CELLS = 1 << 28

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
    resident = gpu.Resident(codes)
    yield "auto", lambda: gpu.top_k(resident, queries, K)
    yield "product, groups", lambda: gpu.top_k(resident, queries, K, method="product")
    if device.type != "cuda":
        return
    if not cascade.missing(queries):
        words, asked = resident.words(), cascade.to_words(queries)
        for way, tensor_cores in (("tensor cores", True), ("bit counts", False)):
            for size in (32, 64, 128, 256) if tensor_cores == (len(queries) > 1) else (64,):
                yield (
                    f"cascade, {way}, groups of {size}",
                    lambda s=size, t=tensor_cores: cascade.top_k(words, asked, K, CELLS, size=s, tensor_cores=t),
                )
    if find_spec("cupy"):
        import cupy

        there = gpu.Resident(cupy.asarray(codes.cpu().numpy()))
        asked_there = cupy.asarray(queries.cpu().numpy())
        yield "cupy, product, groups", lambda: gpu.top_k(there, asked_there, K)


def timed(search: Search, device: Any, rounds: int) -> list[float]:
    """Milliseconds of every round, after three that do not count."""
    times = []
    for turn in range(rounds + 3):
        wait(device)
        start = perf_counter()
        search()
        wait(device)
        if turn >= 3:
            times.append(1e3 * (perf_counter() - start))
    return times


def wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # of the whole device, CuPy's work included


def on_device(search: Search, device: Any, rounds: int = 5) -> dict[str, Any]:
    """Milliseconds of all kernels and copies of a call, and of each."""
    if device.type != "cuda":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(rounds):
            search()
        torch.cuda.synchronize()
    parts = {event.key[:60]: event.device_time_total / 1e3 / rounds for event in seen.key_averages()}
    parts = {name: ms for name, ms in sorted(parts.items(), key=lambda part: -part[1]) if ms > 0}
    return {"device_ms": sum(parts.values()), "parts_ms": dict(list(parts.items())[:12])}


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
            apart = {} if name.startswith(("scan", "cupy")) else on_device(search, device)
        except Exception as error:  # one way that fails must not cost the others their times
            results[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            print(f"  {name:36} {results[name]['error'][:80]}", flush=True)
            return
        results[name] = {
            "right": right, "median_ms": float(np.median(times)), "best_ms": min(times), "times_ms": times, **apart,
        }  # fmt: skip
        print(
            f"  {name:36} {np.median(times):9.3f} ms   best {min(times):9.3f}   "
            f"on the device {apart.get('device_ms', 0):9.3f}   {'equal' if right else 'WRONG'}",
            flush=True,
        )

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
    note("index", lambda: index.search(host_queries, K), lambda found: all(map(np.array_equal, found, first)))
    real = np.random.default_rng(n).standard_normal((min(n_queries, N_SCORED), n_bits))
    scored = reference.weighted.search(rows, check_projections(real[:SAMPLE], n_bits), K, None, None)
    note(
        "index, scores",
        lambda: index.search(real, K),
        lambda found: all(np.array_equal(one[:SAMPLE], other) for one, other in zip(found, scored, strict=True)),
    )
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
    if options.processor:
        scan = make("scan")
        note(
            "scan on the processor",
            lambda: map(torch.tensor, scan.search(rows, host_queries, K, None, None)),
            as_expected,
            2,
        )
    return {"queries": n_queries, "codes": n, "bits": n_bits, "k": K, "results": results}


def check(device: Any) -> list[str]:
    """Odd widths, many ties and many results: the index against NumPy."""
    rng, lines = np.random.default_rng(0), []
    for n_bits, n, m, k, values in (
        (128, 100_003, 300, 50, 256), (64, 200_000, 3, 10, 256), (64, 2_000_001, 2, 400, 256), (8, 50_001, 40, 300, 4),
        (264, 40_000, 20, 20, 256), (1024, 20_000, 33, 9, 256), (4096, 9_000, 17, 9, 256),
    ):  # fmt: skip
        codes, queries = (rng.integers(0, values, (rows, n_bits // 8)).astype(np.uint8) for rows in (n, m))
        index, exact = HammingIndex(n_bits, engine=f"torch:{device}"), HammingIndex(n_bits, engine="numpy")
        for each in (index, exact):
            each.add(codes)
        for asked in (queries, rng.standard_normal((m, n_bits))):
            start = perf_counter()
            found = index.search(asked, k)
            took, alike = perf_counter() - start, all(map(np.array_equal, found, exact.search(asked, k)))
            kind = "codes" if asked is queries else "scores"
            lines.append(f"{n:,} x {n_bits}, {m} {kind}, k = {k}: {'equal' if alike else 'WRONG'}, first {took:.1f} s")
            print(lines[-1], flush=True)
    return lines


def verdict(cases: list[dict[str, Any]]) -> list[str]:
    """Every target, and whether it was met."""
    lines = []
    for (n_queries, n, n_bits), way, kind, target in TARGETS:
        for case in cases:
            if (case["queries"], case["codes"], case["bits"]) == (n_queries, n, n_bits):
                time = case["results"].get(way, {}).get(kind, float("inf"))
                met = "met" if time < target else "MISSED"
                lines.append(f"{met}: {n_queries:,} x {n:,} x {n_bits}, {way}, {kind} {time:.3f} of {target}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the queries and codes to take")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="which of the cases, from 0")
    parser.add_argument("--check", action="store_true", help="first compare results for odd widths")
    parser.add_argument("--no-processor", dest="processor", action="store_false", help="leave out the compiled scan")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    device = torch.empty(0, device=options.device).device
    head = described("torch") | {"device": str(device)}
    print(head)
    checked = check(device) if options.check else []
    cases: list[dict[str, Any]] = []
    for number in options.cases:
        cases.append(run(CASES[number], options, device))
        if options.out:  # after every case: a run that is cut off keeps what it has
            facts = {"scale": options.scale, "checked": checked, "targets": verdict(cases), "cases": cases}
            store(options.out, head | facts)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print("\n" + "\n".join(verdict(cases)))


if __name__ == "__main__":
    main()
