"""An index on real servers compared with one in a file: a million codes of 64 bits.

    python benchmarks/servers.py                              # all three servers: about ten minutes on two cores
    python benchmarks/servers.py --codes 20000 --no-save      # a short run
    python benchmarks/servers.py --table FILE                 # print a stored run as a Markdown table

For each server: add the codes in batches of 100,000; search the 50 nearest of ten queries one by one and of 100 queries
in one batch; search by radius; compact; search again; remove one code in ten; replace one in a hundred; kill the server
with kill -9 and start it again. Then compare all ids, codes and results with the index in the file. A difference ends
the run. tests/servers.py starts the servers with their default settings, except for the standalone Milvus, whose time
tick is 20 ms instead of 200 ms. Times are of one run; ratios are server / file in the same run.

Writes benchmarks/results/servers-DATE.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.search import HammingIndex
from runs import described, result_path, store

HERE = Path(__file__).parent
BATCH, QUERIES, K = 100_000, 100, 50
SEARCHES = ("search_one_by_one", "search_batch", "range_search")
STEPS = ("add", *SEARCHES, "compact", *(f"{step}_compacted" for step in SEARCHES), "remove", "replace", "read_all")


def real_servers() -> Any:
    """tests/servers.py."""
    spec = importlib.util.spec_from_file_location("real_servers", HERE.parent / "tests" / "servers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_servers"] = module
    spec.loader.exec_module(module)
    return module


def timed(times: dict[str, float], step: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    times[step] = round(time.perf_counter() - start, 4)
    print(f"    {step:18} {times[step]:9.3f} s", flush=True)
    return result


def go_through(index: HammingIndex, n: int) -> tuple[dict[str, float], list[Any]]:
    """All steps: how long each took, and what they gave."""
    rng = np.random.default_rng(0)
    centers = rng.integers(0, 256, (max(1, n // 100), 8), dtype=np.uint8)
    codes = centers[rng.integers(0, len(centers), n)] ^ np.packbits(rng.random((n, 64)) < 0.05, axis=1)
    queries = codes[rng.permutation(n)[:QUERIES]] ^ 1
    times: dict[str, float] = {}
    timed(times, "add", lambda: [index.add(codes[i : i + BATCH]) for i in range(0, n, BATCH)])
    results = searches(index, queries, times, "")
    timed(times, "compact", index.compact)
    results += searches(index, queries, times, "_compacted")
    timed(times, "remove", lambda: index.remove(np.arange(0, n, 10)))
    timed(times, "replace", lambda: index.replace(~codes[1:n:100], np.arange(1, n, 100)))
    return times, results


def searches(index: HammingIndex, queries: np.ndarray, times: dict[str, float], suffix: str) -> list[Any]:
    """Seconds per query of three kinds of searches, and their results."""
    index.search(queries[:1], K)
    calls: dict[str, tuple[int, Callable[[], list[Any]]]] = {
        "search_one_by_one": (10, lambda: [index.search(queries[i : i + 1], K) for i in range(10)]),
        "search_batch": (len(queries), lambda: [index.search(queries, K)]),
        "range_search": (len(queries), lambda: [index.range_search(queries, 6)]),
    }
    results = []
    for step, (count, call) in calls.items():
        results += timed(times, step + suffix, call)
        times[step + suffix] /= count
    return results


def whole(index: HammingIndex, queries: np.ndarray) -> list[Any]:
    """Everything an index holds, and answers."""
    blocks = list(index)
    ids, codes = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return [(ids, codes), index.search(queries, K), (np.array([len(index)]), index.ids)]


def same(results: list[Any], expected: list[Any]) -> None:
    for result, reference in zip(results, expected, strict=True):
        for part, expected_part in zip(result, reference, strict=True):
            np.testing.assert_array_equal(part, expected_part)


def run(names: list[str], n: int, save: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    servers, queries = real_servers(), np.random.default_rng(1).integers(0, 256, (20, 8), dtype=np.uint8)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        print(f"file, {n:,} codes", flush=True)
        local = HammingIndex.open(Path(folder) / "codes.db", 64)
        times, expected = go_through(local, n)
        final = timed(times, "read_all", lambda: whole(local, queries))
        cases.append({"engine": "file", "codes": n, "times": times})
        for name in names:
            print(f"{name}, {n:,} codes", flush=True)
            server = servers.server(name)
            address = server.address()
            index = HammingIndex(64, engine=address)
            times, results = go_through(index, n)
            same(results, expected)
            server.kill()
            timed(times, "restart", server.start)
            timed(times, "first_answer", lambda index=index: len(index))
            same(timed(times, "read_all", lambda index=index: whole(index, queries)), final)
            same(whole(HammingIndex.open(address), queries), final)
            assert index.add(queries[:1]).tolist() == [n]
            cases.append({"engine": name, "codes": n, "times": times, "checked": True, "stats": shown(index.stats())})
            save(cases)
            index.close()
            server.remove()
    return cases


def shown(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if name != "address"}


def markdown(cases: list[dict[str, Any]]) -> str:
    """Times, and in brackets how many times the file's."""
    file = next(case for case in cases if case["engine"] == "file")["times"]
    lines = ["| step | " + " | ".join(case["engine"] for case in cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for step in (*STEPS, "restart", "first_answer"):
        cells = []
        for case in cases:
            seconds = case["times"].get(step)
            ratio = f" ({seconds / file[step]:.3g}x)" if seconds is not None and step in file else ""
            cells.append("" if seconds is None else f"{seconds:.4g} s{ratio if case['engine'] != 'file' else ''}")
        lines.append(f"| {step.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--servers", nargs="+", default=["postgresql", "milvus", "milvus-lite"])
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--no-save", dest="save", action="store_false")
    options = parser.parse_args()
    if options.table:
        print(markdown(json.loads(options.table.read_text())["cases"]))
        return
    head, path = described(), result_path("servers")

    def save(cases: list[dict[str, Any]]) -> None:
        if options.save:
            store(path, head | {"queries": QUERIES, "k": K, "cases": cases})

    print(markdown(run(options.servers, options.codes, save)))


if __name__ == "__main__":
    main()
