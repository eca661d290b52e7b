"""What rescoring with stored vectors costs next to the search of the codes alone, in one run.

    python benchmarks/rescoring.py                 # a few minutes on one core, 1 GB of disk
    python benchmarks/rescoring.py --table FILE    # a stored run as a table, in Markdown

An index of 1,000,000 random codes with vectors of 512 int8 numbers, in memory and in a file; k = 10, 200 candidates,
batches of queries. The ways take turns; the time of a way is the fastest of its rounds, in process CPU time on one
thread. "times" is the search with rescoring divided by the same search without. The search of the codes for as many
neighbors as there are candidates is measured, too: it is the first stage.

Memory is that of a new process that opens the index and searches a batch, with and without rescoring: the largest
anonymous memory (RssAnon, sampled every millisecond), less what the process had before it opened the index, when it had
searched a tiny one of the same kind. The mapped file of the vectors is not in it: its pages belong to the operating
system, which takes them back when it needs them.

Writes benchmarks/results/rescoring-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import tempfile
import threading
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
    ways: dict[str, dict[str, Any]] = {
        "codes_ms": {"k": K}, "candidates_ms": {"k": CANDIDATES},
        "rescored_ms": {"k": K, "rescore": asked, "candidates": CANDIDATES},
    }  # fmt: skip
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(rounds):
        for where, index in indexes.items():
            for kind, matrix in queries.items():
                for way, options in ways.items():
                    start = time.process_time()
                    index.search(matrix, **options)
                    spent = 1e3 * (time.process_time() - start) / batch
                    times.setdefault((where, kind), {}).setdefault(way, []).append(spent)
    return [
        {
            "n_bits": n_bits, "batch": batch, "where": where, "queries": kind, **spent,
            "times": min(spent["rescored_ms"]) / min(spent["codes_ms"]),
        }
        for (where, kind), spent in times.items()
    ]  # fmt: skip


def peak_of(path: Path, n_bits: int, batch: int, kind: str, rescore: bool, answers: Any) -> None:
    """Bytes of anonymous memory that it takes to open an index and to search a batch."""
    rng = np.random.default_rng(batch)
    asked = rng.standard_normal((batch, DIM), np.float32)
    bits = rng.standard_normal((batch, n_bits), np.float32)
    queries = bits if kind == "floats" else np.packbits(bits > 0, axis=1)
    options: dict[str, Any] = {"rescore": asked, "candidates": CANDIDATES} if rescore else {}
    one_query = options | ({"rescore": asked[:1]} if rescore else {})
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], anonymous_bytes())

    with tempfile.TemporaryDirectory() as folder:
        form: dict[str, Any] = {"vectors": "int8", "dim": DIM, "threads": 1, "warm": False}
        with HammingIndex.open(Path(folder) / "tiny.db", n_bits, **form) as tiny:
            fill([tiny], 1000, n_bits)
            tiny.search(queries[:1], K, **one_query)
        before = anonymous_bytes()
        threading.Thread(target=watch).start()
        with HammingIndex.open(path, threads=1, warm=False) as index:
            opened = max(most[0], anonymous_bytes())
            most[0] = opened
            for _ in range(2):
                index.search(queries, K, **options)
            done.set()
    answers.put({"n_bits": n_bits, "batch": batch, "queries": kind, "rescored": rescore,
                 "opened_bytes": opened - before, "peak_bytes": most[0] - before})  # fmt: skip


def anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measure_memory(path: Path, n_bits: int, batch: int) -> list[dict[str, Any]]:
    spawn, cases = multiprocessing.get_context("spawn"), []
    for kind in ("codes", "floats"):
        for rescore in (False, True):
            answers = spawn.Queue()
            process = spawn.Process(target=peak_of, args=(path, n_bits, batch, kind, rescore, answers))
            process.start()
            cases.append(answers.get())
            process.join()
    return cases


def table(run: dict[str, Any]) -> str:
    lines = [
        "| bits | batch | vectors | queries | codes, ms per query | 200 candidates, ms | rescored, ms | times |",
        "| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {case['n_bits']} | {case['batch']:,} | {case['where']} | {case['queries']} | {min(case['codes_ms']):.3f} | "
        f"{min(case['candidates_ms']):.3f} | {min(case['rescored_ms']):.3f} | {case['times']:.1f} |"
        for case in run["cases"]
    ]
    lines += ["", "| bits | batch | queries | rescored | opened, MB | peak, MB | codes, MB |"]
    lines += ["| ---: | ---: | --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {case['n_bits']} | {case['batch']:,} | {case['queries']} | {'yes' if case['rescored'] else 'no'} | "
        f"{case['opened_bytes'] / 1e6:.1f} | {case['peak_bytes'] / 1e6:.1f} | {run['n'] * case['n_bits'] / 8e6:.1f} |"
        for case in run["memory"]
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
    head, cases, memory = described(), [], []
    for n_bits in arguments.bits:
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"vectors": "int8", "dim": DIM, "threads": 1}
            path = Path(folder) / "codes.db"
            with HammingIndex.open(path, n_bits, **options) as stored:
                indexes = {"memory": HammingIndex(n_bits, **options), "file": stored}
                fill(list(indexes.values()), arguments.n, n_bits)
                for batch in arguments.batches:
                    cases += measure(indexes, n_bits, batch, arguments.rounds)
            del indexes
            for batch in arguments.batches:
                memory += measure_memory(path, n_bits, batch)
    run = head | {"n": arguments.n, "dim": DIM, "k": K, "candidates": CANDIDATES, "cases": cases, "memory": memory}
    print(table(run))
    store(RESULTS / f"{arguments.name}.json", run)


if __name__ == "__main__":
    main()
