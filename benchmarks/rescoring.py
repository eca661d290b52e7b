"""What rescoring with stored vectors costs next to the search of the codes alone, in one run.

    python benchmarks/rescoring.py                 # a few minutes on one core, 1 GB of disk
    python benchmarks/rescoring.py --table FILE    # a stored run as a table, in Markdown

An index of 1,000,000 random codes with vectors of 512 int8 numbers, in memory and in a file; k = 10, 200 candidates,
batches of queries. The ways take turns; the time of a way is the fastest of its rounds, in process CPU time on one
thread. "times" is the search with rescoring divided by the same search without.

Writes benchmarks/results/rescoring-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.search import HammingIndex
from runs import RESULTS, described, store, today

DIM, K, CANDIDATES, BLOCK = 512, 10, 200, 50_000


def fill(indexes: list[HammingIndex], n: int, n_bits: int) -> None:
    rng = np.random.default_rng(0)
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        codes = rng.integers(0, 256, (count, n_bits // 8), dtype=np.uint8)
        vectors = rng.standard_normal((count, DIM), np.float32)
        for index in indexes:
            index.add(codes, vectors=vectors)


def measure(indexes: dict[str, HammingIndex], n_bits: int, batch: int, rounds: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(batch)
    asked = rng.standard_normal((batch, DIM), np.float32)
    queries = {
        "codes": rng.integers(0, 256, (batch, n_bits // 8), dtype=np.uint8),
        "floats": rng.standard_normal((batch, n_bits), np.float32),
    }
    times: dict[tuple[str, str, bool], list[float]] = {}
    for _ in range(rounds):
        for where, index in indexes.items():
            for kind, matrix in queries.items():
                for again in (False, True):
                    options = {"rescore": asked, "candidates": CANDIDATES} if again else {}
                    start = time.process_time()
                    index.search(matrix, K, **options)
                    times.setdefault((where, kind, again), []).append(1e3 * (time.process_time() - start) / batch)
    return [
        {
            "n_bits": n_bits, "batch": batch, "where": where, "queries": kind,
            "codes_ms": times[where, kind, False], "rescored_ms": times[where, kind, True],
            "times": min(times[where, kind, True]) / min(times[where, kind, False]),
        }
        for where, kind, again in times if again
    ]  # fmt: skip


def table(run: dict[str, Any]) -> str:
    lines = [
        "| bits | batch | vectors | queries | codes alone, ms per query | with rescoring, ms | times |",
        "| ---: | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {case['n_bits']} | {case['batch']:,} | {case['where']} | {case['queries']} | "
        f"{min(case['codes_ms']):.3f} | {min(case['rescored_ms']):.3f} | {case['times']:.1f} |"
        for case in run["cases"]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--name", default=f"rescoring-{today()}")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, nargs="+", default=[256])
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())))
        return
    head, cases = described(), []
    for n_bits in arguments.bits:
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"vectors": "int8", "dim": DIM, "threads": 1}
            with HammingIndex.open(Path(folder) / "codes.db", n_bits, **options) as stored:
                indexes = {"memory": HammingIndex(n_bits, **options), "file": stored}
                fill(list(indexes.values()), arguments.n, n_bits)
                for batch in arguments.batches:
                    cases += measure(indexes, n_bits, batch, arguments.rounds)
                    print(table({"cases": cases[-4:]}), flush=True)
    run = head | {"n": arguments.n, "dim": DIM, "k": K, "candidates": CANDIDATES, "cases": cases}
    store(RESULTS / f"{arguments.name}.json", run)


if __name__ == "__main__":
    main()
