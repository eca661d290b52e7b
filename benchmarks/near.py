"""Sublinear search and near pairs, as the number of codes grows.

    python benchmarks/near.py growth              # time per query of "multi-index" from 1 M to 100 M codes (6 GB)
    python benchmarks/near.py join                # all pairs within 4 of 64 bits, up to 10 M codes
    python benchmarks/near.py billion             # one index of 1,000,000,000 codes: 8 GB
    python benchmarks/near.py table FILE...       # stored runs as Markdown

Codes are clustered: 32 copies of a random code, each bit flipped with a probability such that the 10th neighbor of a
code is 4 of 64 bits away (6 %). Queries are codes of the index with bits flipped in the same way. Times are given as
wall time and as processor time of this process, since the machine may be busy; `load` says how busy it was before.

Writes benchmarks/results/near-PART-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.numerics.compiled import compiled
from fusehash.numerics.parallel import n_cores
from fusehash.search import HammingIndex
from fusehash.search.near import near_pairs
from fusehash.search.rows import CodeRows
from runs import described, result_path, store

CLUSTER, FLIPS, K, RADIUS, ROUNDS = 32, 0.0385, 10, 4, 4
GROWTH, JOIN, FAISS_JOIN = (1_000_000, 10_000_000, 100_000_000), (20_000, 200_000, 1_000_000, 10_000_000), 20_000


@compiled(boundscheck=False)
def _mixed(state: Any) -> Any:
    """SplitMix64: the next of a series of random words."""
    value = state
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled(boundscheck=False)
def _flip(words: Any, threshold: Any, seed: Any) -> None:
    """Flip every bit with the probability threshold / 65536."""
    state = np.uint64(seed)
    for i in range(len(words)):
        flips = np.uint64(0)
        for group in range(16):
            state += np.uint64(0x9E3779B97F4A7C15)
            value = _mixed(state)
            for part in range(4):
                if (value >> np.uint64(16 * part)) & np.uint64(0xFFFF) < threshold:
                    flips |= np.uint64(1) << np.uint64(4 * group + part)
        words[i] ^= flips


@compiled(boundscheck=False)
def _centers(words: Any, size: int, seed: Any) -> None:
    """Random words, each repeated, in a mixed order."""
    n = np.uint64(max(1, len(words) // size))
    for i in range(len(words)):
        center = _mixed(np.uint64(seed) + np.uint64(i)) % n
        words[i] = _mixed(center * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed + 1))


def fill_clustered(words: np.ndarray, seed: int = 0) -> None:
    _centers(words, CLUSTER, seed)
    _flip(words, np.uint64(round(FLIPS * 65536)), seed + 2)


def clustered(n: int, seed: int = 0) -> np.ndarray:
    words = np.empty(n, np.uint64)
    fill_clustered(words, seed)
    return words.view(np.uint8).reshape(-1, 8)


def queries_near(codes: np.ndarray, n: int) -> np.ndarray:
    """Codes as a new member of a cluster would have."""
    rng = np.random.default_rng(1)
    words = codes[np.sort(rng.choice(len(codes), n))].copy().view(np.uint64).ravel()
    _flip(words, np.uint64(round(FLIPS / 8 * 65536)), 3)
    return words.view(np.uint8).reshape(-1, 8)


def timed(work: Callable[[], Any], rounds: int = 1) -> tuple[dict[str, float], Any]:
    """Wall and processor seconds of the fastest round, and the last result."""
    wall = cpu = np.inf
    for _ in range(rounds):
        start, cpu_start = time.perf_counter(), time.process_time()
        result = work()
        wall, cpu = min(wall, time.perf_counter() - start), min(cpu, time.process_time() - cpu_start)
    return {"wall_s": wall, "cpu_s": cpu}, result


def growth(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    rows = []
    for n in sizes:
        codes = clustered(n)
        queries = queries_near(codes, 2000)
        index, scan = HammingIndex(64, engine="multi-index", threads=1), HammingIndex(64, threads=1)
        index.add(codes)
        scan._store = type(index._store)(64, scan._store.engine)  # type: ignore[attr-defined]
        scan._store._rows = index._store._rows  # type: ignore[attr-defined]  # the same codes, not a copy
        del codes
        build, _ = timed(lambda index=index, queries=queries: index.search(queries[:1], K))
        batch, found = timed(lambda index=index, queries=queries: index.search(queries, K), 5)
        single, _ = timed(
            lambda index=index, queries=queries: [index.search(query[None], K) for query in queries[:200]], 3
        )
        scanned, exact = timed(lambda scan=scan, queries=queries: scan.search(queries[:32], K), 2)
        assert all(np.array_equal(a[:32], b) for a, b in zip(found, exact, strict=True))
        stats = index.stats()
        rows.append({
            "codes": n, "tables": index._store.engine._tables.parts[0].n_tables,  # type: ignore[attr-defined]
            "build": build, "batch_us": {name: s / len(queries) * 1e6 for name, s in batch.items()},
            "single_us": {name: s / 200 * 1e6 for name, s in single.items()},
            "scan_us": {name: s / 32 * 1e6 for name, s in scanned.items()},
            "tenth_neighbor": float(np.median(found[0][:, -1])), "given_up": stats["given_up"],
            "table_bytes_per_code": stats["table_bytes"] / n, "memory_bytes_per_code": stats["memory_bytes"] / n,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def join(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    rows = []
    list(near_pairs(clustered(5000), RADIUS))
    for n in sizes:
        codes = clustered(n)

        def count(codes: np.ndarray = codes) -> int:
            return sum(len(first) for first, _, _ in near_pairs(codes, RADIUS, n_cores()))

        index = HammingIndex(64)
        index.add(codes)
        index.groups(0)
        pairs, n_pairs = timed(count, 3 if n <= 1_000_000 else 1)
        groups, listed = timed(lambda index=index: index.groups(RADIUS))
        row = {"codes": n, "pairs": n_pairs, "groups": len(listed), "join": pairs, "grouping": groups}
        if n <= FAISS_JOIN:
            import faiss

            faiss.omp_set_num_threads(n_cores())
            flat = faiss.IndexBinaryFlat(64)
            flat.add(codes)
            row["faiss flat"], found = timed(lambda flat=flat, codes=codes: flat.range_search(codes, RADIUS + 1))
            assert (len(found[2]) - n) // 2 == n_pairs
        rows.append(row)
        print(json.dumps(rows[-1]), flush=True)
    return rows


def bandwidth(words: np.ndarray, threads: int) -> dict[str, float]:
    """Seconds in which each thread reads a part of the codes."""
    parts = np.array_split(words, threads)

    def read() -> None:
        workers = [threading.Thread(target=_sum, args=(part,)) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return timed(read)[0]


@compiled(boundscheck=False)
def _sum(words: Any) -> Any:
    total = np.uint64(0)
    for i in range(len(words)):
        total ^= words[i]
    return total


def billion(n: int) -> list[dict[str, Any]]:
    index = HammingIndex(64)
    rows = CodeRows(8, n, first_id=0)  # filled in place, as when a file is opened; `add` would hold a copy meanwhile
    words = rows.codes.view(np.uint64).ravel()
    build, _ = timed(lambda: fill_clustered(words))
    index._store._rows = rows  # type: ignore[attr-defined]
    queries = queries_near(rows.codes, 100)
    _sum(words[:1000])
    HammingIndex(64).search(queries, 1)
    index.search(queries[:1], K)
    stats = index.stats()
    row: dict[str, Any] = {"codes": len(index), "build": build, "memory_bytes": stats["memory_bytes"],
                           "resident_bytes": _memory("VmRSS")}  # fmt: skip
    print(json.dumps(row), flush=True)
    for count in (1, n_cores()):
        # In turns, so that a busy moment of the machine hits both. With one thread, processor time says what the
        # machine would do if it were not busy.
        reads = [bandwidth(words, count) for _ in range(ROUNDS)]
        scans = [timed(lambda count=count: index.search(queries[:1], K, threads=count))[0] for _ in range(ROUNDS)]
        row[f"threads {count}"] = {"reads": reads, "scans": scans, "of_bandwidth": {
            kind: min(r[kind] for r in reads) / min(s[kind] for s in scans) for kind in ("wall_s", "cpu_s")
        }}  # fmt: skip
        print(json.dumps(row), flush=True)
    for batch in (10, 100):
        row[f"batch {batch}"], found = timed(lambda batch=batch: index.search(queries[:batch], K))
    row["tenth_neighbor"] = float(np.median(found[0][:, -1]))
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(row), flush=True)
    return [row]


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def table(paths: list[Path]) -> None:
    for path in paths:
        run = json.loads(path.read_text())
        rows = run["rows"]
        if run["part"] == "growth":
            print("| codes | tables | 10th neighbor | batch, µs a query | one query, µs | scan, µs | build, s |")
            print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            for row in rows:
                us = [row[name]["cpu_s"] for name in ("batch_us", "single_us", "scan_us")]
                cells = [f"{row['codes']:,}", row["tables"], row["tenth_neighbor"], *(f"{u:,.1f}" for u in us)]
                print("|", *(f"{cell} |" for cell in [*cells, f"{row['build']['cpu_s']:.1f}"]))
        elif run["part"] == "join":
            print("| codes | pairs | pairs, s | groups, s | faiss flat, times as long |")
            print("| ---: | ---: | ---: | ---: | ---: |")
            for row in rows:
                peer = f"{row['faiss flat']['wall_s'] / row['join']['wall_s']:.0f}" if "faiss flat" in row else ""
                seconds = f"{row['join']['wall_s']:.2f}", f"{row['grouping']['wall_s']:.2f}"
                print("|", *(f"{cell} |" for cell in (f"{row['codes']:,}", f"{row['pairs']:,}", *seconds, peer)))
        else:
            print(json.dumps(rows, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("growth", "join", "billion", "table"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--most", type=int, help="no more codes than this")
    options = parser.parse_args()
    if options.part == "table":
        return table(options.files)
    most = options.most or 10**9
    head = described()
    rows = {
        "growth": lambda: growth(tuple(n for n in GROWTH if n <= most)),
        "join": lambda: join(tuple(n for n in JOIN if n <= most)),
        "billion": lambda: billion(most),
    }[options.part]()
    run = head | {"part": options.part, "cluster": CLUSTER, "flips": FLIPS, "k": K, "radius": RADIUS, "rows": rows}
    print(store(result_path(f"near-{options.part}"), run))
    return None


if __name__ == "__main__":
    main()
