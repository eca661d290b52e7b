"""The compiled kernels at real sizes: results, threads, frames from Python, and the cache of machine code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fusehash.search import HammingIndex
from fusehash.search.engines import kernel, make, scan
from fusehash.search.rows import CodeRows


def random_rows(n: int, n_bits: int, seed: int = 0) -> CodeRows:
    return CodeRows.numbered(np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), dtype=np.uint8))


def assert_equal(results: Any, expected: Any) -> None:
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


@pytest.mark.parametrize(
    "n_bits", [16, 64, 128, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 24, 192, 256, 1024))]
)
def test_real_sizes_equal_numpy(n_bits: int) -> None:
    """Full chunks, odd remainders, groups of four queries and single ones, stretches, filters, large k."""
    compiled, reference = make("scan"), make("numpy")
    for n in (16384, 40_003):
        rows, queries = random_rows(n, n_bits, n_bits), random_rows(9, n_bits, n_bits + 1).codes
        allowed = np.flatnonzero(np.random.default_rng(n).random(n) < 0.5)
        for n_queries, k, chosen in ((9, 50, None), (1, 10, None), (3, 5000, None), (5, 300, allowed)):
            expected = reference.search(rows, queries[:n_queries], k, chosen, 1)
            for threads in (1, 5):
                assert_equal(compiled.search(rows, queries[:n_queries], k, chosen, threads), expected)
        radius = n_bits * 3 // 8
        expected_range = reference.range_search(rows, queries, radius, allowed, 1)
        for threads in (1, 3):
            assert_equal(compiled.range_search(rows, queries, radius, allowed, threads), expected_range)


@pytest.mark.parametrize("threads", [1, 2])
def test_five_frames_from_the_index_to_the_kernel(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """search, the store, the engine, the loop over calls, the kernel."""
    frames: list[list[str]] = []

    def counting(*arguments: Any) -> None:
        arguments[-1][2][:] = 0  # positions
        frame: Any = sys._getframe()
        names = []
        while frame is not None:
            names.append(frame.f_code.co_name)
            if isinstance(frame.f_locals.get("self"), HammingIndex):
                frames.append(names)
                return
            frame = frame.f_back

    monkeypatch.setattr(kernel, "select", counting)
    monkeypatch.setattr(scan, "_SHARE_BYTES", 64)
    index = HammingIndex(64, threads=threads)
    index.add(random_rows(100, 64).codes)
    index.search(random_rows(40, 64).codes, 3)
    assert frames
    for names in frames:
        assert len(names) <= 5
        assert names[-1] == "search"


def test_searching_releases_the_gil() -> None:
    rows = random_rows(100_000, 64)
    scan.Scan().search(rows, rows.codes[:4], 5, None, 1)
    searching, ticks = threading.Event(), []
    searching.set()

    def work() -> None:
        scan.Scan().search(rows, rows.codes[:4000], 50, None, 1)
        searching.clear()

    thread = threading.Thread(target=work)
    thread.start()
    while searching.is_set():
        ticks.append(searching.wait(0.001))
    thread.join()
    assert len(ticks) > 20  # a call of the kernel takes far longer than 20 ticks; with the GIL there would be 2 or 3


def test_an_error_in_a_thread_is_raised_by_the_caller() -> None:
    finished = []

    def work(number: int) -> None:
        if number == 1:
            raise MemoryError("too much")
        finished.append(number)

    with pytest.raises(MemoryError, match="too much"):
        scan.run(work, [(number,) for number in range(3)], 3)
    with pytest.raises(MemoryError, match="too much"):
        scan.run(work, [(number,) for number in range(1, 100)])
    assert len(finished) <= 2  # what had not begun was not started


def test_opening_compiles_in_the_background(tmp_path: Path) -> None:
    script = f"""
import threading
from fusehash.search import HammingIndex
index = HammingIndex.open({str(tmp_path / "codes.db")!r}, 16)
for thread in [t for t in threading.enumerate() if t.name == "fusehash-warm-up"]:
    thread.join()
from fusehash.search.engines.kernel import select
assert select.signatures
HammingIndex.open({str(tmp_path / "codes.db")!r}, 16)
assert threading.active_count() == 1
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


SEARCH = """
import numpy as np
from fusehash.search import HammingIndex
index = HammingIndex(16)
index.add(np.arange(200, dtype=np.uint8).reshape(100, 2))
assert index.search(np.zeros((1, 2), np.uint8), 3)[1].tolist() == [[0, 1, 2]]
"""


@pytest.mark.slow
def test_a_cache_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    """A cache folder that is damaged or on a full disk costs the time to compile, and a damaged file is replaced."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def search(before: str = "") -> str:
        command = [sys.executable, "-c", before + SEARCH]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return run.stderr

    full = "import numba.core.caching as c\ndef fail(*a, **k): raise OSError(28, 'No space left on device')\n"
    assert "No space left" in search(full + "c.IndexDataCacheFile.save = fail\n")
    assert not search()
    files = [file for file in tmp_path.rglob("*.nb?") if file.write_bytes(b"damaged")]
    assert files
    assert "cannot be kept" in search()
    assert not search()


def test_tables_and_scan_agree_on_clustered_codes() -> None:
    rng = np.random.default_rng(5)
    centers = rng.integers(0, 256, (200, 8), dtype=np.uint8)
    codes = centers[rng.integers(0, 200, 20_020)] ^ np.packbits(rng.random((20_020, 64)) < 0.04, axis=1)
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
        assert_equal(other, results[0])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("query_bytes", [0, 1, 400_000, 10**8])
def test_blocks_hold_every_query_once(threads: int, query_bytes: int) -> None:
    for n_queries in (1, 2, 15, 16, 17, 100, 128, 129, 5000):
        blocks = scan.blocks(n_queries, 64, threads, query_bytes)
        assert [i for block in blocks for i in range(block.start, block.stop)] == list(range(n_queries))
        assert max(block.stop - block.start for block in blocks) <= 128
