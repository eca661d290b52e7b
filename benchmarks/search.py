"""Hamming search against its peers, on the same codes, in one run.

    python benchmarks/search.py                 # everything: more than half an hour on two cores
    python benchmarks/search.py --quick         # 184,577 codes, exact peers only: a few minutes
    python benchmarks/search.py --cpu-time      # processor time on one thread: for a machine that others use too
    python benchmarks/search.py --avx2          # without AVX-512, in a process of its own
    python benchmarks/search.py --table FILE    # a stored run as a table of ratios, in Markdown

Every case (number of codes, width, queries per batch) is measured in rounds in which the methods take turns, so that a
busy moment of the machine hits all of them, with a pause after faiss, whose idle threads keep spinning for a while; a
method's time is its fastest round. Ratios are peer / fusehash. The bound
is what the same machine needs for the exclusive ors and population counts alone, out of the first-level cache, or for
reading the codes once from memory, whichever is more, measured in the same run. Peers that would take minutes
answer only the first queries of a batch, and their time is scaled (`queries` in the stored results says so).

Every exact peer must give the distances that fusehash gives, and ids at these distances. NumKong and SimSIMD compute
distances; NumPy's argpartition selects the nearest, as it does for Polars, whose own selection is slower. What ends in
"distances" selects nothing: the whole matrix of distances is its result. DuckDB answers one query per statement, which
is faster than a join with a table of queries. NumKong, Polars' selection and NumPy use one thread.

`--avx2` turns AVX-512 off in LLVM (fusehash, the bound), faiss, NumPy, NumKong, SimSIMD and Polars. usearch and DuckDB
have no switch. Nothing is taken from numba's cache then, and the run stops if a 512-bit register is in the kernel.

Writes benchmarks/results/search-DATE.json (every time measured) and a plot next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from fusehash.search import HammingIndex
from fusehash.search.engines.kernel import entry, select
from runs import RESULTS, described, store, today

SIZES, WIDTHS, BATCHES, K = (184_577, 1_000_000), (16, 32, 64, 128, 256, 1024), (1, 100, 2000), 50
SLOW = 5.0  # seconds that a peer may take for one round of a case
SETTLING = 0.001  # seconds after which the processor time of a call is read, so that its threads have come to rest
SPINNING = 0.25  # seconds for which threads of OpenMP may keep a core busy after their work
TARGETS = {16: 6.0, 32: 6.0, 64: 6.0, 128: 4.0, 256: 2.5}  # times faiss's exact search, in batches
EXACT = ("faiss flat", "usearch exact", "numpy", "numkong", "simsimd", "polars", "duckdb")
DISTANCES = ("numkong distances", "simsimd distances", "polars distances")  # nothing is selected: not a search
PACKAGES = ("numpy", "numba", "llvmlite", "faiss-cpu", "usearch", "numkong", "simsimd", "polars", "duckdb")
QUERIES = 16  # that NumKong and SimSIMD get at a time, which is faster than all of them
WITHOUT_AVX512 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt",
    "FAISS_SIMD_LEVEL": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
    "POLARS_DISABLE_AVX512": "1",
}
AVX2_FAMILIES = {"serial", "haswell", "alder"}  # kernels of NumKong and SimSIMD without AVX-512
Search = Callable[[np.ndarray], Any]
Clock = Callable[[], float]


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


def rate(n_bytes: int, width: int, threads: int, clock: Clock) -> float:
    """Bytes per second that can be compared out of so many bytes per thread."""
    word = np.dtype(f"u{min(8, width // 8)}")
    data = [aligned(n_bytes // 512 * 512).view(word) for _ in range(threads)]
    popcounts(data[0][: 512 // word.itemsize], word.type(1), 1)
    repetitions, best = max(2, (1 << 28) // n_bytes), np.inf
    for _ in range(5):
        workers = [threading.Thread(target=popcounts, args=(part, word.type(1), repetitions)) for part in data]
        start = clock()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, now(clock) - start)
    return threads * data[0].nbytes * repetitions / best


def aligned(n_bytes: int) -> np.ndarray:
    raw = np.ones(n_bytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + n_bytes]


def nearest(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest K of every row, ascending, as (distances, ids)."""
    ids = np.argpartition(distances, K, axis=1)[:, :K]
    chosen = np.take_along_axis(distances, ids, axis=1)
    order = np.argsort(chosen, axis=1)
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(ids, order, axis=1)


def stacked(answers: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([a[0] for a in answers]), np.concatenate([a[1] for a in answers])


def numpy_search(codes: np.ndarray) -> Search:
    words = codes.view(f"u{min(8, codes.shape[1])}")

    def distances(query: np.ndarray) -> np.ndarray:
        return np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)[None]

    return lambda queries: stacked([nearest(distances(query)) for query in queries.view(words.dtype)])


def numkong_distances(codes: np.ndarray) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Blocks of (codes, queries): the way round that is fastest, and for a single query `cdist`."""
    import numkong

    def distances(queries: np.ndarray) -> list[np.ndarray]:
        if len(queries) == 1:
            return [np.asarray(numkong.cdist(queries, codes, "hamming", dtype="uint1")).T]
        blocks = [queries[i : i + QUERIES] for i in range(0, len(queries), QUERIES)]
        return [np.asarray(numkong.hammings_packed(codes, numkong.hammings_pack(block))) for block in blocks]

    return distances


def simsimd_distances(codes: np.ndarray, threads: int) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Blocks of (queries, codes)."""
    import simsimd

    def distances(queries: np.ndarray) -> list[np.ndarray]:
        blocks = [queries[i : i + QUERIES] for i in range(0, len(queries), QUERIES)]
        return [np.asarray(simsimd.cdist(b, codes, "hamming", dtype="bin8", threads=threads)) for b in blocks]

    return distances


def frame(codes: np.ndarray) -> Any:
    """A Polars table with a column per word of the codes and their ids."""
    import polars

    words = codes.view(f"u{min(8, codes.shape[1])}")
    columns = {f"w{w}": np.ascontiguousarray(words[:, w]) for w in range(words.shape[1])}
    return polars.DataFrame({"id": np.arange(len(codes)), **columns})


def polars_distances(codes: np.ndarray) -> Callable[[np.ndarray], list[np.ndarray]]:
    import polars

    table, word = frame(codes), f"u{min(8, codes.shape[1])}"

    def distances(query: np.ndarray) -> np.ndarray:
        words = [polars.lit(int(v), dtype=table.dtypes[1]) for v in query]
        counts = [(polars.col(f"w{w}") ^ value).bitwise_count_ones() for w, value in enumerate(words)]
        return table.select(sum(counts)).to_series().to_numpy()[None]

    return lambda queries: [distances(query) for query in queries.view(word)]


def duckdb_search(codes: np.ndarray, threads: int) -> Search:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    connection.register("frame", frame(codes))
    connection.execute("CREATE TABLE codes AS SELECT * FROM frame")
    word, bits = f"u{min(8, codes.shape[1])}", min(64, 8 * codes.shape[1])
    kind = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "UBIGINT"}[bits]

    def search(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = [f"bit_count(xor(w{w}, {int(value)}::{kind}))::SMALLINT" for w, value in enumerate(query)]
        statement = f"SELECT {' + '.join(counts)} AS d, id FROM codes ORDER BY d, id LIMIT {K}"
        found = connection.execute(statement).fetchnumpy()
        return found["d"][None], found["id"][None]

    return lambda queries: stacked([search(query) for query in queries.view(word)])


def peers(codes: np.ndarray, threads: int, approximate: bool) -> dict[str, Search]:
    """Searches by name, each giving (distances, ids) of the nearest K, ascending; of DISTANCES, blocks of distances."""
    import faiss
    from usearch.index import MetricKind
    from usearch.index import search as usearch

    faiss.omp_set_num_threads(threads)
    n_bits = codes.shape[1] * 8
    flat = faiss.IndexBinaryFlat(n_bits)
    flat.add(codes)
    numkong, simsimd, polars = numkong_distances(codes), simsimd_distances(codes, threads), polars_distances(codes)

    def usearch_exact(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = usearch(codes, queries, K, MetricKind.Hamming, exact=True, threads=threads)
        return found.distances.reshape(-1, K), found.keys.reshape(-1, K)

    methods: dict[str, Search] = {
        "faiss flat": lambda queries: flat.search(queries, K),
        "usearch exact": usearch_exact,
        "numpy": numpy_search(codes),
        "numkong": lambda queries: stacked([nearest(np.ascontiguousarray(d.T)) for d in numkong(queries)]),
        "numkong distances": numkong,
        "simsimd": lambda queries: stacked([nearest(d) for d in simsimd(queries)]),
        "simsimd distances": simsimd,
        "polars": lambda queries: stacked([nearest(d) for d in polars(queries)]),
        "polars distances": polars,
        "duckdb": duckdb_search(codes, threads),
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
            methods[name] = lambda queries, index=index: index.search(queries, K)
        methods["_keep"] = lambda queries: quantizer  # faiss does not keep it alive itself
    return methods


def check(methods: dict[str, Search], codes: np.ndarray, queries: np.ndarray) -> None:
    """Raise if an exact peer's distances, or those of its ids, are not those of fusehash."""
    every = np.bitwise_count(codes ^ queries[:, None]).sum(axis=2)
    exact = methods["fusehash"](queries)[0]
    for name in ("fusehash", *EXACT):
        distances, ids = (np.asarray(part).astype(np.int64) for part in methods[name](queries))
        np.testing.assert_array_equal(distances, exact, err_msg=name)
        np.testing.assert_array_equal(np.take_along_axis(every, ids, axis=1), exact, err_msg=name)
        assert all(len(set(row)) == K for row in ids), name
    for name in DISTANCES:
        blocks = [block if block.shape[1] == len(codes) else block.T for block in methods[name](queries)]
        np.testing.assert_array_equal(np.concatenate(blocks), every, err_msg=name)


def measure(
    methods: dict[str, Search], queries: np.ndarray, rounds: int, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Seconds of every round for every method, the methods taking turns."""
    clock = clock_of(options)
    results: dict[str, dict[str, Any]] = {}
    for name, search in methods.items():
        search(queries[:1])
        asked = len(queries)
        start = clock()
        search(queries[: min(asked, 10)])
        expected = max(now(clock) - start, 1e-6) / min(asked, 10)
        if expected * asked > options.slow:
            asked = max(1, min(asked, int(options.slow / expected)))
        calls = int(np.clip(0.02 / (expected * asked), 1, 10))  # short ones several times per turn, as a user would
        results[name] = {"queries": asked, "calls": calls, "seconds": []}
    before = ""
    for _ in range(rounds):
        for name, search in methods.items():
            if options.threads > 1 and before.startswith("faiss") and not name.startswith("faiss"):
                time.sleep(SPINNING)
            before, asked = name, results[name]["queries"]
            for _ in range(results[name]["calls"]):
                start = clock()
                search(queries[:asked])
                results[name]["seconds"].append((now(clock) - start) * len(queries) / asked)
    for result in results.values():
        result["best"] = min(result["seconds"])
    return results


def now(clock: Clock) -> float:
    """The time after some work; the system adds the time of other threads only when they wait or end."""
    if clock is time.process_time:
        time.sleep(SETTLING)
    return clock()


def clock_of(options: argparse.Namespace) -> Clock:
    return time.process_time if options.cpu_time else time.perf_counter


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """Fraction of results that are no farther than the exact K-th; -1 and huge distances are misses."""
    return float(np.mean((found >= 0) & (found <= exact[:, -1:])))


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    rng, clock = np.random.default_rng(0), clock_of(options)
    cases = []
    for size in options.sizes:
        for width in options.widths:
            codes = rng.integers(0, 256, (size, width // 8), dtype=np.uint8)
            queries = rng.integers(0, 256, (max(options.batches), width // 8), dtype=np.uint8)
            index = HammingIndex(width, threads=options.threads)
            index.add(codes)
            cache = rate(1 << 14, width, options.threads, clock)
            memory = rate(codes.nbytes // options.threads, width, options.threads, clock)
            print(
                f"{size:,} codes of {width} bits: compared at {cache / 1e9:.0f} GB/s, read at {memory / 1e9:.0f} GB/s"
            )
            methods = {"fusehash": lambda asked, index=index: index.search(asked, K)}
            methods |= peers(codes, options.threads, options.approximate)
            keep = methods.pop("_keep", None)
            check(methods, codes, rng.integers(0, 256, (QUERIES + 3, width // 8), dtype=np.uint8))
            check(methods, codes, queries[:1])
            if options.avx2 and any("zmm" in assembly for assembly in select.inspect_asm().values()):
                raise SystemExit("The kernel uses 512-bit registers.")
            exact = methods["fusehash"](queries[:100])[0]
            recalls = {
                name: recall(search(queries[:100])[0], exact)
                for name, search in methods.items()
                if name not in EXACT + DISTANCES
            }
            for batch in options.batches:
                rounds = options.rounds * (5 if batch == 1 else 3 if batch < 1000 else 1)  # short ones scatter more
                results = measure(methods, queries[:batch], rounds, options)
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
                    keep(cases, options)  # an interrupted run keeps what it has
            del keep
    return cases


def is_approximate(name: str) -> bool:
    return name not in EXACT + DISTANCES


def line(case: dict[str, Any]) -> str:
    ours = case["results"]["fusehash"]["best"]
    ratios = [
        f"{name} {result['best'] / ours:.1f}x"
        + (f" (recall {case['recall'][name]:.2f})" if is_approximate(name) else "")
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
        found = [
            f"{r} ({case['recall'][n]:.2f})" if is_approximate(n) else r for n, r in zip(names, ratios, strict=True)
        ]
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
                style = (
                    {"lw": 2.5, "color": "black"}
                    if name == "fusehash"
                    else {"ls": ":" if is_approximate(name) else "-"}
                )
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
    parser.add_argument("--slow", type=float, default=SLOW, help="seconds that a peer may take for a round of a case")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, on one thread")
    parser.add_argument("--avx2", action="store_true", help="without AVX-512")
    parser.add_argument("--name", default=f"search-{today()}", help="of the files written")
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
    if options.cpu_time:
        options.threads = 1
    if options.avx2 and os.environ.get("NUMBA_CPU_NAME") != "haswell":
        fresh = {"NUMBA_CACHE_DIR": tempfile.mkdtemp(prefix="fusehash-avx2-")}
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | WITHOUT_AVX512 | fresh)
    os.environ["POLARS_MAX_THREADS"] = str(options.threads)
    options.instructions, options.head = instructions(options.avx2), described(*PACKAGES)
    start = time.perf_counter()
    cases = run(options)
    print("\nfusehash against its peers (times faster), and the fraction of the bound it reaches")
    for case in cases:
        print(line(case))
    missed = verdict(cases)
    print("\nEvery target is met." if not missed else "\nMissed:\n  " + "\n  ".join(missed))
    if options.save:
        path = keep(cases, options)
        plot(cases, path.with_suffix(".png"))
        print(f"\n{path} and {path.with_suffix('.png').name} after {time.perf_counter() - start:.0f} s")


def keep(cases: list[dict[str, Any]], options: argparse.Namespace) -> Path:
    """Write every time measured so far."""
    settings = {
        "threads": options.threads,
        "clock": "processor time" if options.cpu_time else "wall time",
        "load after": os.getloadavg(),
        "instructions": options.instructions,
    }
    run = options.head | settings | {"k": K, "missed": verdict(cases), "cases": cases}
    return store(RESULTS / f"{options.name}.json", run)


def instructions(avx2: bool) -> dict[str, str]:
    """What every library says that it uses, after AVX-512 is turned off where it should be."""
    import faiss
    import numkong
    import simsimd
    from numba.core.registry import cpu_target
    from usearch.index import Index

    for library in (numkong, simsimd):
        for family, usable in library.get_capabilities().items():
            if avx2 and usable and family not in AVX2_FAMILIES:
                library.disable_capability(family)
    families = {
        library.__name__.lower(): ", ".join(name for name, usable in library.get_capabilities().items() if usable)
        for library in (numkong, simsimd)
    }
    return {
        "fusehash (LLVM)": cpu_target.target_context.codegen().magic_tuple()[1],
        "faiss": faiss.SIMDConfig.get_level_name(),
        "numpy": f"NPY_DISABLE_CPU_FEATURES={os.environ.get('NPY_DISABLE_CPU_FEATURES', '')}",
        "polars": f"POLARS_DISABLE_AVX512={os.environ.get('POLARS_DISABLE_AVX512', '')}",
        "usearch": f"{Index(ndim=64, metric='hamming', dtype='b1').hardware_acceleration}, no switch",
        "duckdb": "no switch",
        **families,
    }


if __name__ == "__main__":
    main()
