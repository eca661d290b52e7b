"""The compiled kernels at their real sizes, without numba, without a cache, and as the machine sees them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fusehash.search
from fusehash.search import HammingIndex
from fusehash.search.engines import kernel, scan
from fusehash.search.engines import numpy as numpy_kernel
from fusehash.search.engines import tables as multi_index

SOURCES = Path(fusehash.search.__file__).parent


def test_caches_know_the_sources_they_were_made_from() -> None:
    """numba recompiles when the file of a kernel changes, but not when a file that it imports does."""
    text = b"".join((SOURCES / name).read_bytes() for name in ("compiled.py", "vector.py"))
    digest = hashlib.sha256(text).hexdigest()[:16]
    assert digest == kernel.SOURCES, "put this digest into kernel.py, so that machine code kept on disk is made anew"
    assert digest == multi_index.SOURCES, "put this digest into multi_index.py, for the same reason"


@pytest.mark.parametrize("n_bits", [8, 16, 24, 64, 128, 192, 256])
def test_real_sizes_equal_numpy(n_bits: int) -> None:
    """Full chunks, odd remainders, groups of four queries and single ones, stretches, filters, large k."""
    rng = np.random.default_rng(n_bits)
    for n in (16384, 16385, 100_003):
        codes = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
        queries = rng.integers(0, 256, (9, n_bits // 8), dtype=np.uint8)
        rows = np.flatnonzero(rng.random(n) < 0.5)
        for n_queries, k, chosen in ((9, 50, None), (1, 10, None), (3, 5000, None), (5, 300, rows)):
            expected = numpy_kernel.top_k(codes, queries[:n_queries], k, rows=chosen)
            for threads in (1, 2, 5):
                found = scan.top_k(codes, queries[:n_queries], k, rows=chosen, threads=threads)
                for one, other in zip(found, expected, strict=True):
                    assert_array_equal(one, other)
        radius = n_bits * 3 // 8
        for threads in (1, 3):
            for one, other in zip(
                scan.within(codes, queries, radius, rows=rows, threads=threads),
                numpy_kernel.within(codes, queries, radius, rows=rows),
                strict=True,
            ):
                assert_array_equal(one, other)


def test_searching_releases_the_gil() -> None:
    codes = np.random.default_rng(0).integers(0, 256, (200_000, 8), dtype=np.uint8)
    scan.top_k(codes, codes[:4], 5, threads=1)
    searching, ticks = threading.Event(), []
    searching.set()

    def work() -> None:
        scan.top_k(codes, codes[:4000], 50, threads=1)
        searching.clear()

    thread = threading.Thread(target=work)
    thread.start()
    while searching.is_set():
        ticks.append(searching.wait(0.001))
    thread.join()
    assert (
        len(ticks) > 20
    )  # one call into the kernel takes far longer than 20 of them; with the GIL there would be 2 or 3


def test_an_error_in_a_thread_is_raised_here() -> None:
    def fail() -> None:
        raise MemoryError("too much")

    with pytest.raises(MemoryError, match="too much"):
        scan.run([lambda: None, fail, lambda: None], 3)
    assert threading.active_count() < 20


SEARCH = """
import sys, logging
import numpy as np
from fusehash.search import HammingIndex
index = HammingIndex(16)
index.add(np.arange(200, dtype=np.uint8).reshape(100, 2))
found = index.search(np.zeros((1, 2), np.uint8), 3)[1].tolist()
assert found == [[0, 1, 2]], found
"""


def test_without_numba_numpy_answers() -> None:
    script = f"import sys; sys.modules['numba'] = None\n{SEARCH}\nassert index.stats()['kernel'] == 'numpy'"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("state", ["no folder can be written", "damaged", "full"])
def test_a_cache_that_cannot_be_used_is_no_error(tmp_path: Path, state: str) -> None:
    """The user's folder for caches is set to one that fails; NumPy's answer must come all the same."""
    folder, before = tmp_path / "cache", ""
    if state == "no folder can be written":
        before = "import tempfile\ndef fail(*a, **k): raise OSError('read-only')\ntempfile.TemporaryFile = fail\n"
    if state == "full":
        before = (
            "import numba.core.caching as c\n"
            "def fail(*a, **k): raise OSError(28, 'No space left on device')\n"
            "c.IndexDataCacheFile.save = fail\n"
        )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    if state == "damaged":
        subprocess.run([sys.executable, "-c", SEARCH], env=environment, check=True)
        damaged = [file for file in folder.rglob("*.nb?") if file.write_bytes(b"damaged")]
        assert damaged
    run = subprocess.run(
        [sys.executable, "-c", before + SEARCH], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_opening_warms_up_in_the_background(tmp_path: Path) -> None:
    script = f"""
import threading, sys
from fusehash.search import HammingIndex
index = HammingIndex.open({str(tmp_path / "codes.db")!r}, 16)
assert [t for t in threading.enumerate() if t.name == "fusehash-warm-up"]
for thread in threading.enumerate():
    if thread.name == "fusehash-warm-up":
        thread.join()
from fusehash.search.kernel import select
assert select._compiled.signatures
HammingIndex.open({str(tmp_path / "codes.db")!r}, 16)
assert threading.active_count() == 1
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_threads_and_engines_agree_on_real_sizes() -> None:
    """Clustered codes, which the tables of multi-index hashing suit."""
    rng = np.random.default_rng(5)
    centers = rng.integers(0, 256, (500, 8), dtype=np.uint8)
    noise = np.packbits(rng.random((60_020, 64)) < 0.04, axis=1)
    codes = centers[rng.integers(0, 500, 60_020)] ^ noise
    results = []
    for engine in ("scan", "multi-index", "auto"):
        index = HammingIndex(64, engine=engine)
        index.add(codes[20:])
        results.append([*index.search(codes[:20], 40), *index.range_search(codes[:20], 9)])
        if engine == "multi-index":
            assert index.stats()["table_bytes"] > 0
            assert index.stats()["given_up"] < 20
        if engine == "auto":
            for _ in range(200):
                index.search(codes[:20], 40)
            assert index.stats()["chosen"]
            results.append([*index.search(codes[:20], 40), *index.range_search(codes[:20], 9)])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert_array_equal(one, two)


@pytest.mark.parametrize("n_queries", [1, 2, 15, 16, 17, 100, 128, 129, 5000])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("query_bytes", [0, 1, 400_000, 10**8])
def test_blocks_hold_every_query_once(n_queries: int, threads: int, query_bytes: int) -> None:
    blocks = scan.blocks(n_queries, 64, threads, query_bytes)
    assert [i for block in blocks for i in range(block.start, block.stop)] == list(range(n_queries))
    assert max(block.stop - block.start for block in blocks) <= 128
