"""Hamming search against its peers, on the same codes, in one run.

    python benchmarks/search.py                 # everything: about half an hour on two cores
    python benchmarks/search.py --quick         # 184,577 codes, exact peers only: two minutes
    python benchmarks/search.py --table FILE    # a stored run as a table of ratios, in Markdown

Every case (number of codes, width, queries per batch) is measured in rounds in which the methods take turns, so that a
busy moment of the machine hits all of them, with a pause after faiss, whose idle threads keep spinning for a while; a
method's time is its fastest round. Ratios are peer / fusehash. The bound
is what the same machine needs for the exclusive ors and population counts alone, out of the first-level cache, or for
reading the codes once from memory, whichever is more, measured in the same run. Peers that would take minutes
answer only the first queries of a batch, and their time is scaled (`queries` in the stored results says so).

Writes benchmarks/results/search-DATE.json (every time measured) and a plot next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from fusehash.search import HammingIndex
from fusehash.search.engines.kernel import entry

RESULTS = Path(__file__).parent / "results"
SIZES, WIDTHS, BATCHES, K = (184_577, 1_000_000), (16, 32, 64, 128, 256), (1, 100, 2000), 50
SLOW = 5.0  # seconds that a peer may take for one round of a case
SPINNING = 0.25  # seconds for which threads of OpenMP may keep a core busy after their work
TARGETS = {16: 6.0, 32: 6.0, 64: 6.0, 128: 4.0, 256: 2.5}  # times faiss's exact search, in batches
EXACT = ("faiss flat", "usearch exact", "numpy")
Search = Callable[[np.ndarray], Any]


@intrinsic
def compare_all(_: Any, codes: Any, n_bytes: Any, query: Any) -> Any:
    """Exclusive or with a query, population count, add, over a multiple of 512 bytes: eight vectors at a time."""
    bits = query.bitwidth
    lanes = 512 // bits

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, n_bytes, query = args
        vector, index = ir.VectorType(ir.IntType(bits), lanes), ir.IntType(32)
        undefined, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(index, lanes), [0] * lanes)
        repeated = builder.shuffle_vector(builder.insert_element(undefined, query, index(0)), undefined, zeros)
        kind = ir.FunctionType(vector, [vector])
        popcount = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{lanes}i{bits}")
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * lanes)) for _ in range(8)]
        step = codes.type(512)
        with cgutils.for_range_slice(builder, codes.type(0), n_bytes, step, codes.type) as (i, _count):
            for v, total in enumerate(sums):
                address = builder.add(builder.add(codes, i), codes.type(64 * v))
                block = builder.load(builder.inttoptr(address, vector.as_pointer()), align=64)
                counts = builder.call(popcount, [builder.xor(block, repeated)])
                builder.store(builder.add(builder.load(total), counts), total)
        total = builder.load(sums[0])
        for other in sums[1:]:
            total = builder.add(total, builder.load(other))
        return builder.extract_element(total, index(0))

    return query(codes, n_bytes, query), generate


@entry
def popcounts(codes: Any, query: Any, repetitions: int) -> Any:
    """The least that comparing can take."""
    total = query ^ query
    for _ in range(repetitions):
        total ^= compare_all(np.intp(codes.ctypes.data), codes.nbytes, query)
    return total


def rate(n_bytes: int, width: int, threads: int) -> float:
    """Bytes per second that can be compared out of so many bytes per thread."""
    word = np.dtype(f"u{min(8, width // 8)}")
    data = [aligned(n_bytes // 512 * 512).view(word) for _ in range(threads)]
    popcounts(data[0][: 512 // word.itemsize], word.type(1), 1)
    repetitions, best = max(2, (1 << 28) // n_bytes), np.inf
    for _ in range(5):
        workers = [threading.Thread(target=popcounts, args=(part, word.type(1), repetitions)) for part in data]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - start)
    return threads * data[0].nbytes * repetitions / best


def aligned(n_bytes: int) -> np.ndarray:
    raw = np.ones(n_bytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + n_bytes]


def numpy_search(codes: np.ndarray) -> Search:
    def search(queries: np.ndarray) -> np.ndarray:
        found = np.empty((len(queries), K), np.int64)
        words = codes.view(f"u{min(8, codes.shape[1])}")
        for q, query in enumerate(queries.view(words.dtype)):
            distances = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)
            nearest = np.argpartition(distances, K)[:K]
            found[q] = np.sort(distances[nearest])
        return found

    return search


def peers(codes: np.ndarray, threads: int, approximate: bool) -> dict[str, Search]:
    """Searches by name, each giving the distances of the nearest K, ascending."""
    import faiss
    from usearch.index import MetricKind
    from usearch.index import search as usearch

    faiss.omp_set_num_threads(threads)
    n_bits = codes.shape[1] * 8
    flat = faiss.IndexBinaryFlat(n_bits)
    flat.add(codes)
    methods: dict[str, Search] = {
        "faiss flat": lambda queries: flat.search(queries, K)[0],
        "usearch exact": lambda queries: (
            usearch(codes, queries, K, MetricKind.Hamming, exact=True, threads=threads).distances
        ),
        "numpy": numpy_search(codes),
    }
    if approximate:
        hashed = faiss.IndexBinaryHash(n_bits, min(n_bits, 16))
        hashed.nflip = 2
        quantizer = faiss.IndexBinaryFlat(n_bits)
        lists = faiss.IndexBinaryIVF(quantizer, n_bits, 1024)
        lists.nprobe = 16
        lists.train(codes[:100_000])
        graph = faiss.IndexBinaryHNSW(n_bits, 16)
        for name, index in (("faiss hash", hashed), ("faiss ivf", lists), ("faiss hnsw", graph)):
            start = time.perf_counter()
            index.add(codes)
            print(f"    built {name} in {time.perf_counter() - start:.1f} s", flush=True)
            methods[name] = lambda queries, index=index: index.search(queries, K)[0]
        methods["_keep"] = lambda queries: quantizer  # faiss does not keep it alive itself
    return methods


def measure(methods: dict[str, Search], queries: np.ndarray, rounds: int) -> dict[str, dict[str, Any]]:
    """Seconds of every round for every method, the methods taking turns."""
    results: dict[str, dict[str, Any]] = {}
    for name, search in methods.items():
        search(queries[:1])
        asked = len(queries)
        start = time.perf_counter()
        search(queries[: min(asked, 10)])
        expected = (time.perf_counter() - start) / min(asked, 10)
        if expected * asked > SLOW:
            asked = max(1, min(asked, int(SLOW / expected)))
        calls = int(np.clip(0.02 / (expected * asked), 1, 10))  # short ones several times per turn, as a user would
        results[name] = {"queries": asked, "calls": calls, "seconds": []}
    before = ""
    for _ in range(rounds):
        for name, search in methods.items():
            if before.startswith("faiss") and not name.startswith("faiss"):
                time.sleep(SPINNING)
            before, asked = name, results[name]["queries"]
            for _ in range(results[name]["calls"]):
                start = time.perf_counter()
                search(queries[:asked])
                results[name]["seconds"].append((time.perf_counter() - start) * len(queries) / asked)
    for result in results.values():
        result["best"] = min(result["seconds"])
    return results


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """Fraction of results that are no farther than the exact K-th; -1 and huge distances are misses."""
    return float(np.mean((found >= 0) & (found <= exact[:, -1:])))


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    cases = []
    for size in options.sizes:
        for width in options.widths:
            codes = rng.integers(0, 256, (size, width // 8), dtype=np.uint8)
            queries = rng.integers(0, 256, (max(options.batches), width // 8), dtype=np.uint8)
            index = HammingIndex(width, threads=options.threads)
            index.add(codes)
            cache = rate(1 << 14, width, options.threads)
            memory = rate(codes.nbytes // options.threads, width, options.threads)
            print(
                f"{size:,} codes of {width} bits: compared at {cache / 1e9:.0f} GB/s, read at {memory / 1e9:.0f} GB/s"
            )
            methods = {"fusehash": lambda asked, index=index: index.search(asked, K)[0]}
            methods |= peers(codes, options.threads, options.approximate)
            keep = methods.pop("_keep", None)
            exact = methods["fusehash"](queries[:100])
            for name in EXACT:
                np.testing.assert_array_equal(np.asarray(methods[name](queries[:3])), exact[:3], err_msg=name)
            recalls = {
                name: recall(search(queries[:100]), exact) for name, search in methods.items() if name not in EXACT
            }
            for batch in options.batches:
                rounds = options.rounds * (5 if batch == 1 else 3 if batch < 1000 else 1)  # short ones scatter more
                results = measure(methods, queries[:batch], rounds)
                bound = max(size * batch * (width // 8) / cache, size * (width // 8) / memory)
                case = {
                    "size": size,
                    "width": width,
                    "batch": batch,
                    "bound": bound,
                    "results": results,
                    "recall": recalls,
                }
                cases.append(case)
                print("  " + line(case), flush=True)
                if options.save:
                    store(cases, options)  # an interrupted run keeps what it has
            del keep
    return cases


def line(case: dict[str, Any]) -> str:
    ours = case["results"]["fusehash"]["best"]
    ratios = [
        f"{name} {result['best'] / ours:.1f}x" + (f" (recall {case['recall'][name]:.2f})" if name not in EXACT else "")
        for name, result in case["results"].items()
        if name != "fusehash"
    ]
    return (
        f"{case['size']:>9,} x {case['width']:>3} bits, {case['batch']:>4} queries: {1e3 * ours:9.3f} ms, "
        f"{case['bound'] / ours:4.0%} of the bound; " + ", ".join(ratios)
    )


def verdict(cases: list[dict[str, Any]]) -> list[str]:
    """Targets that were missed."""
    missed = []
    for case in cases:
        ours = case["results"]["fusehash"]["best"]
        name = f"{case['size']:,} x {case['width']} bits, {case['batch']} queries"
        ratio = {peer: case["results"][peer]["best"] / ours for peer in EXACT}
        if case["batch"] > 1 and ratio["faiss flat"] < TARGETS.get(case["width"], 0):
            missed.append(f"{name}: {ratio['faiss flat']:.1f} times faiss, not {TARGETS[case['width']]}")
        if case["batch"] > 1 and case["bound"] / ours < 1 / 3:
            missed.append(f"{name}: {case['bound'] / ours:.0%} of the bound, not a third")
        missed += [f"{name}: slower than {peer} ({ratio[peer]:.2f})" for peer in EXACT if ratio[peer] < 1]
    return missed


def markdown(cases: list[dict[str, Any]]) -> str:
    """The ratios as a table."""
    names = [name for name in cases[0]["results"] if name != "fusehash"]
    rows = [["codes", "bits", "queries", "ms", "of the bound", *names]]
    rows.append(["---:"] * len(rows[0]))
    for case in cases:
        ours = case["results"]["fusehash"]["best"]
        ratios = [f"{case['results'][name]['best'] / ours:.1f}" for name in names]
        found = [f"{r} ({case['recall'][n]:.2f})" if n not in EXACT else r for n, r in zip(names, ratios, strict=True)]
        size, width, batch = (f"{case[key]:,}" for key in ("size", "width", "batch"))
        rows.append([size, width, batch, f"{1e3 * ours:.2f}", f"{case['bound'] / ours:.0%}", *found])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(cases: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sizes, batches = sorted({c["size"] for c in cases}), sorted({c["batch"] for c in cases})
    figure, axes = plt.subplots(len(sizes), len(batches), figsize=(4 * len(batches), 3.4 * len(sizes)), squeeze=False)
    for row, size in zip(axes, sizes, strict=True):
        for axis, batch in zip(row, batches, strict=True):
            chosen = [c for c in cases if (c["size"], c["batch"]) == (size, batch)]
            widths = [c["width"] for c in chosen]
            for name in chosen[0]["results"]:
                seconds = [c["results"][name]["best"] / batch for c in chosen]
                style = {"lw": 2.5, "color": "black"} if name == "fusehash" else {"ls": "-" if name in EXACT else ":"}
                axis.loglog(widths, seconds, marker="o", ms=3, label=name, **style)
            axis.loglog(widths, [c["bound"] / batch for c in chosen], color="gray", ls="--", label="bound")
            axis.set_xticks(widths, [str(width) for width in widths])
            axis.minorticks_off()
            axis.set_title(f"{size:,} codes, {batch} queries", fontsize=9)
            axis.set_xlabel("bits")
            axis.set_ylabel("seconds per query")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exact-only", dest="approximate", action="store_false")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--no-save", dest="save", action="store_false")
    options = parser.parse_args()
    if options.table:
        print(markdown(json.loads(options.table.read_text())["cases"]))
        return
    if options.quick:
        options.sizes, options.approximate, options.rounds = SIZES[:1], False, 3
    start = time.perf_counter()
    cases = run(options)
    print("\nfusehash against its peers (times faster), and the fraction of the bound it reaches")
    for case in cases:
        print(line(case))
    missed = verdict(cases)
    print("\nEvery target is met." if not missed else "\nMissed:\n  " + "\n  ".join(missed))
    if options.save:
        path = store(cases, options)
        plot(cases, path.with_suffix(".png"))
        print(f"\n{path} and {path.with_suffix('.png').name} after {time.perf_counter() - start:.0f} s")


def store(cases: list[dict[str, Any]], options: argparse.Namespace) -> Path:
    """Write every time measured so far."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"search-{datetime.now(UTC):%Y-%m-%d}.json"
    machine = {"processor": processor(), "threads": options.threads, "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, "k": K, "missed": verdict(cases), "cases": cases}, indent=1))
    return path


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
        return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
