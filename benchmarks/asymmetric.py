"""Real-valued queries against codes: exact scores, next to faiss's fast scan and to our own Hamming search, in one run.

    python benchmarks/asymmetric.py                 # about five minutes on one core
    python benchmarks/asymmetric.py --table FILE    # a stored run as a table, in Markdown

The peer is faiss `IndexPQFastScan` with 4 bits per quantizer and the 16 patterns of four signs as centroids, whose
inner products are those of the codes. It rounds its tables to 8 bits, so that some answers differ: "overlap" is the
share of our exact ids that it returns. At "equal answers" it returns more candidates, the fewest of 1, 2, 4 or 8 times
k that include all but 0.1 % of our ids, without the time to score those exactly. Methods take turns; a method's time is
the fastest of its rounds, of which a single query has ten times as many, in process CPU time on one thread. Before a
single query is timed it is asked once more, so that no method finds codes in a cache because of the one before it.

Writes benchmarks/results/asymmetric-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.bits import pack
from fusehash.search import HammingIndex
from fusehash.search.engines.tiles import GROUP_BITS
from runs import RESULTS, described, store, today

WIDTHS, N, K, ROUNDS = (64, 128, 256, 512, 1024), 1_000_000, 10, 3
BATCHES = (1, 128)


def fast_scan(codes: np.ndarray) -> Any:
    """faiss's index over the same codes."""
    import faiss

    faiss.omp_set_num_threads(1)
    n_bits = 8 * codes.shape[1]
    index = faiss.IndexPQFastScan(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    patterns = np.array([[1.0 if c >> j & 1 else -1.0 for j in range(4)] for c in range(16)], np.float32)
    faiss.copy_array_to_vector(np.tile(patterns, (n_bits // 4, 1)).ravel(), index.pq.centroids)
    index.is_trained = True
    for start in range(0, len(codes), 50_000):
        bits = np.unpackbits(codes[start : start + 50_000], axis=1, bitorder="little")
        index.add(bits.astype(np.float32) * 2 - 1)
    return index


def measure(
    n_bits: int, batch: int, codes: np.ndarray, ours: HammingIndex, faiss_index: Any, seed: int
) -> dict[str, Any]:
    queries = np.random.default_rng(seed).standard_normal((batch, n_bits)).astype(np.float32)
    packed = pack(queries)
    ids = ours.search(queries, K)[1]
    missed = {}
    for factor in (1, 2, 4, 8):
        theirs = faiss_index.search(queries, factor * K)[1]
        missed[factor] = float(np.mean([~np.isin(a, b) for a, b in zip(ids, theirs, strict=True)]))
        if missed[factor] <= 0.001:
            break
    ways = {
        "scores": lambda: ours.search(queries, K),
        "hamming": lambda: ours.search(packed, K),
        "faiss": lambda: faiss_index.search(queries, K),
        "faiss equal": lambda: faiss_index.search(queries, factor * K),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS if batch > 1 else 10 * ROUNDS):
        for name, search in ways.items():
            if batch == 1:
                search()
            start = time.process_time()
            search()
            times[name].append(1e3 * (time.process_time() - start) / batch)
    return {
        "n_bits": n_bits,
        "queries": batch,
        "overlap": 1 - missed[1],
        "factor": factor,
        "missed": missed,
        "ms": times,
    }


def table(run: dict[str, Any]) -> str:
    lines = [
        "| bits | queries | ms per query | Hamming search, ms | times Hamming | faiss, times ours | overlap "
        "| faiss at equal answers, times ours |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in run["cases"]:
        best = {name: min(values) for name, values in case["ms"].items()}
        lines.append(
            f"| {case['n_bits']:,} | {case['queries']} | {best['scores']:.3f} | {best['hamming']:.3f} | "
            f"{best['scores'] / best['hamming']:.1f} | {best['faiss'] / best['scores']:.1f} | {case['overlap']:.3f} | "
            f"{best['faiss equal'] / best['scores']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--name", default=f"asymmetric-{today()}")
    parser.add_argument("--bits", type=int, nargs="+", default=WIDTHS)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())))
        return
    head, cases = described("faiss-cpu"), []
    for n_bits in arguments.bits:
        codes = np.random.default_rng(n_bits).integers(0, 256, (N, n_bits // 8), dtype=np.uint8)
        ours, theirs = HammingIndex(n_bits, threads=1), fast_scan(codes)
        ours.add(codes)
        for batch in BATCHES:
            cases.append(measure(n_bits, batch, codes, ours, theirs, seed=batch))
            print(table({"cases": cases[-1:]}).splitlines()[-1], flush=True)
    run = head | {"bits of a look-up": GROUP_BITS, "n": N, "k": K, "cases": cases}
    store(RESULTS / f"{arguments.name}.json", run)


if __name__ == "__main__":
    main()
