"""Search, add and serve of this tree against those of an earlier commit, in turns.

    python benchmarks/earlier.py COMMIT [--rounds 30] [--texts 20000]

Each tree runs in a process of its own; the two measure each case in turns, so that a busy moment of the machine hits
both. The time of a case is the CPU time of its fastest round, which other processes and the disk disturb least; the
ratio is this tree / the earlier one. Writes benchmarks/results/earlier-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
N_CODES, N_BITS = 100_000, 64


def cases(folder: Path, n_texts: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Name, repetitions per round, and what is repeated."""
    import fusehash as fh
    from fusehash.collection import NewItem
    from serve_load import caption

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (N_CODES, N_BITS // 8), dtype=np.uint8)
    index = fh.HammingIndex.open(folder / "codes.fhi", n_bits=N_BITS)
    index.add(codes)
    growing = fh.HammingIndex.open(folder / "growing.fhi", n_bits=N_BITS)
    yield "index file: search, 1 query", 50, lambda: index.search(codes[:1], k=10)
    yield "index file: search, 100 queries", 3, lambda: index.search(codes[:100], k=10)
    yield "index file: add 1 code", 20, lambda: growing.add(codes[:1])
    yield "index file: add 200 codes", 10, lambda: growing.add(codes[:200])
    yield "index file: open 100,000 codes", 2, lambda: fh.HammingIndex.open(folder / "codes.fhi").close()

    texts = [NewItem(f"{i}", None, caption(rng), (f"label{i % 20}",)) for i in range(n_texts)]
    collection = fh.Collection.create(folder / "texts.collection", image_encoder="classical", text_encoder="tfidf")
    collection.build(texts[:2000])
    collection.add(texts[2000:])
    count = iter(range(n_texts, 10**9))
    collection.search("red boat")
    yield "collection: search by text", 5, lambda: collection.search("a red boat near a tree", k=24)
    yield "collection: search with a label", 5, lambda: collection.search("a red boat", k=24, label="label3")
    yield "collection: add 1 text", 3, lambda: collection.add([NewItem(f"{next(count)}", None, caption(rng))])
    yield "collection: open", 1, lambda: fh.Collection.open(folder / "texts.collection").close()

    address = serve(collection)

    def ask() -> None:
        with urllib.request.urlopen(f"{address}api/search?text=a+red+boat+near+a+tree&k=24") as answer:
            if len(json.load(answer)["hits"]) != 24:
                raise RuntimeError("An answer must have 24 results.")

    ask()
    yield "serve: search by text over HTTP", 5, ask


def serve(collection: object) -> str:
    """Start the server on a thread of this process; returns its address."""
    from fusehash.app import create_app
    from fusehash.app.server import address, bind
    from fusehash.app.server import serve as run

    listening, ready = bind("127.0.0.1", 0), threading.Event()
    threading.Thread(target=run, args=(create_app(collection), listening, ready.set), daemon=True).start()
    ready.wait()
    return address(listening, "127.0.0.1")


def measure(folder: Path, n_texts: int) -> None:
    """The process of one tree: prints the name of a case, then one time per line that it reads, until an empty one."""
    for name, repetitions, work in cases(folder, n_texts):
        print(name, flush=True)
        while sys.stdin.readline().strip():
            started = time.process_time()
            for _ in range(repetitions):
                work()
            print((time.process_time() - started) / repetitions, flush=True)
    os._exit(0)  # the server runs on


def main() -> None:
    """Check out the earlier commit, measure in turns, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.texts)
    from runs import described, result_path, store  # not in the measured processes, which import the earlier fusehash

    head, rows = described(), []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        earlier = Path(scratch) / "earlier"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", earlier, arguments.commit], cwd=ROOT, check=True)
        stack.callback(subprocess.run, ["git", "worktree", "remove", "--force", str(earlier)], cwd=ROOT, check=True)
        trees = []
        for number, tree in enumerate((ROOT, earlier)):
            folder = Path(scratch) / f"data{number}"
            folder.mkdir()
            words = [sys.executable, __file__, arguments.commit, "--texts", str(arguments.texts), "--measure", folder]
            environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": str(folder / "numba")}
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
            )
            trees.append(stack.enter_context(process))
        while all(names := [tree.stdout.readline().strip() for tree in trees]):  # type: ignore[union-attr]
            times: list[list[float]] = [[], []]
            for turn in range(arguments.rounds + 1):
                for tree, taken in zip(trees, times, strict=True):
                    tree.stdin.write("again\n")  # type: ignore[union-attr]
                    taken.append(float(tree.stdout.readline()))  # type: ignore[union-attr]
                if turn == 0:
                    times = [[], []]  # the first one compiles
            for tree in trees:
                tree.stdin.write("\n")  # type: ignore[union-attr]
            now, before = map(min, times)
            rows.append({"case": names[0], "earlier_ms": before * 1e3, "now_ms": now * 1e3, "ratio": now / before})
            print(f"{names[0]:36} {before * 1e3:9.3f} ms {now * 1e3:9.3f} ms   x {now / before:.3f}", flush=True)
    store(result_path("earlier"), head | {"commit": arguments.commit, "rounds": arguments.rounds, "cases": rows})


if __name__ == "__main__":
    main()
