"""Exact search through all codes, on several threads: how the work is cut, and who does it.

Many queries are cut into blocks of queries, each of which passes over all codes. Few queries (fewer blocks than
threads) leave the codes to be cut instead: every thread searches a stretch of them, and the results are merged.
Neither changes a result. Threads live for one call; the kernels run without the GIL, and the calling thread works too.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.numerics.parallel import n_cores

Ints = NDArray[np.int64]
Distances = NDArray[np.int32]

_BLOCK = 512  # queries that share one pass over the codes
_NARROW_BLOCK = 128  # the same below 64 bits, where reading the codes again costs less than the buffers of more queries
_CHUNK_BYTES = 1 << 18  # codes that stay in the second-level cache while a block of queries passes over them
_BUFFER_BYTES = 1 << 24  # what the buffers of a block of queries may take
_SHARE_BYTES = 1 << 23  # what a thread must have to compare to be worth starting
_START_BYTES = 3 << 20  # what a thread compares while another one starts
_NO_ROWS = np.empty(0, np.int64)


def top_k(
    codes: Codes, queries: Codes, k: int, *, rows: Ints | None = None, threads: int | None = None
) -> tuple[Distances, Ints]:
    """Distances and positions, (queries, k) each, of the nearest codes in order of (distance, position).

    ``rows`` are the positions to look at, ascending (None: all); there must be at least ``k`` of them.
    """
    from fusehash.search.engines.kernel import select

    layout = _Layout(codes, queries)
    looked_at, n_rows = (_NO_ROWS, len(codes)) if rows is None else (rows, len(rows))
    n_bits, n_queries = codes.shape[1] * 8, len(queries)
    capacity = min(2 * k + 64, n_rows)
    threads = _worth(n_rows, queries, threads)
    asked = blocks(n_queries, layout.block(capacity), threads, codes.shape[1] * n_rows)
    stretches = _cut(n_rows, min(-(-threads // len(asked)), n_rows // k))
    distances = np.empty((len(stretches), n_queries, k), np.int32)
    positions = np.empty((len(stretches), n_queries, k), np.int64)

    def task(block: slice, part: int) -> Callable[[], Any]:
        count = block.stop - block.start
        return lambda: select(
            layout.codes, looked_at, *stretches[part], layout.queries[block], n_bits, n_bits + 1, capacity,
            layout.chunk, layout.word, np.arange(0, (count + 1) * k, k), distances[part, block].reshape(-1),
            positions[part, block].reshape(-1),
        )  # fmt: skip

    run([task(block, part) for part in range(len(stretches)) for block in asked], threads)
    if len(stretches) == 1:
        return distances[0], positions[0]
    return _merge(distances, positions, k)


def within(
    codes: Codes, queries: Codes, radius: int, *, rows: Ints | None = None, threads: int | None = None
) -> tuple[Ints, Distances, Ints]:
    """Offsets (queries + 1), distances and positions of all codes at most ``radius`` away.

    Query q's lie from ``offsets[q]`` to ``offsets[q + 1]``, in order of (distance, position). They are counted first,
    then collected into what was counted, so that no memory is spent on guesses.
    """
    from fusehash.search.engines.kernel import count_closer, select

    layout = _Layout(codes, queries)
    n_bits, n_rows = codes.shape[1] * 8, len(codes) if rows is None else len(rows)
    looked_at, limit = _NO_ROWS if rows is None else rows, min(radius, n_bits) + 1
    threads = _worth(n_rows, queries, threads)
    asked = blocks(len(queries), layout.block(0), threads)
    stretches = _cut(n_rows, -(-threads // len(asked)))
    counts = np.zeros((len(stretches), len(queries)), np.int64)

    def counting(block: slice, part: int) -> Callable[[], Any]:
        return lambda: count_closer(
            layout.codes, looked_at, *stretches[part], layout.queries[block], limit, layout.chunk, layout.word,
            counts[part, block],
        )  # fmt: skip

    run([counting(block, part) for part in range(len(stretches)) for block in asked], threads)
    offsets = np.concatenate(([0], np.cumsum(counts.sum(axis=0)))).astype(np.int64)
    distances, positions = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int64)

    def collecting(block: slice) -> Callable[[], Any]:
        own = slice(int(offsets[block.start]), int(offsets[block.stop]))
        most = int(np.diff(offsets[block.start : block.stop + 1]).max())
        return lambda: select(
            layout.codes, looked_at, 0, n_rows, layout.queries[block], n_bits, limit, most, layout.chunk, layout.word,
            offsets[block.start : block.stop + 1] - own.start, distances[own], positions[own],
        )  # fmt: skip

    most = int(np.diff(offsets).max(initial=0))
    run(
        [
            collecting(block)
            for block in blocks(len(queries), layout.block(most), threads)
            if offsets[block.stop] > offsets[block.start]
        ],
        threads,
    )
    return offsets, distances, positions


def warm_up(n_bits: int) -> None:
    """Compile (or load) the kernels for one width, so that the first search does not wait for it."""
    codes = np.zeros((1, n_bits // 8), np.uint8)
    top_k(codes, codes, 1, threads=1)
    within(codes, codes, 0, threads=1)


def run(tasks: Sequence[Callable[[], Any]], threads: int | None) -> None:
    """Do all tasks on at most so many threads, this one among them; the first error is raised here."""
    waiting = iter(tasks)
    turn = threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            with turn:
                task = next(waiting, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    def help_out(done: threading.Lock) -> None:
        try:
            work()
        finally:
            done.release()

    # Not threading.Thread, whose start waits for the new thread to run: a tenth of a millisecond in which to search.
    helpers = [threading.Lock() for _ in range(min(workers(threads), len(tasks)) - 1)]
    for done in helpers:
        done.acquire()
        _thread.start_new_thread(help_out, (done,))
    work()
    for done in helpers:
        done.acquire()
    if errors:
        raise errors[0]


class _Layout:
    """Codes and queries as the kernels want them: rows of words.

    Up to 64 bits a code is one word of 8, 16, 32 or 64 bits, beyond that 64-bit words. Codes that do not fill their
    words stay bytes (the kernel pads them chunk by chunk); queries are padded here.
    """

    def __init__(self, codes: Codes, queries: Codes) -> None:
        n_bytes = codes.shape[1]
        size = next((size for size in (1, 2, 4) if n_bytes <= size), 8)
        n_words = -(-n_bytes // size)
        dtype = np.dtype(f"u{size}")
        self.word = (dtype.type(0),) * n_words
        self.chunk = min(1 << 14, max(64, _CHUNK_BYTES // (n_words * size) // 64 * 64))
        self.codes = codes.view(dtype) if n_words * size == n_bytes else codes
        padded = np.zeros((len(queries), n_words * size), np.uint8)
        padded[:, :n_bytes] = queries
        self.queries = padded.view(dtype)

    def block(self, capacity: int) -> int:
        """Queries in a block whose buffers hold ``capacity`` codes each."""
        most = _BLOCK if self.queries.itemsize == 8 else _NARROW_BLOCK
        return max(1, min(most, _BUFFER_BYTES // (6 * max(1, capacity))))


def workers(threads: int | None) -> int:
    return n_cores() if threads is None else threads


def blocks(n_queries: int, most: int, threads: int | None, query_bytes: int = 0) -> list[slice]:
    """Blocks of at most so many queries, and enough to share out evenly.

    Where every thread gets one block, the first, which is the calling thread's, is longer by what it compares while the
    others start; ``query_bytes`` are compared for a query.
    """
    count = -(-n_queries // most)
    if count > 1 or n_queries >= 8 * workers(threads):
        count = -(-count // workers(threads)) * workers(threads)
    ahead = (
        min(_START_BYTES // query_bytes, n_queries // (2 * count))
        if query_bytes and 1 < count <= workers(threads)
        else 0
    )
    parts = _cut(n_queries - ahead, count)
    return [slice(start + ahead * (start > 0), stop + ahead) for start, stop in parts]


def _worth(n_rows: int, queries: Codes, threads: int | None) -> int:
    """How many threads have work that is worth their start."""
    return max(1, min(workers(threads), n_rows * queries.size // _SHARE_BYTES))


def _cut(n: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0..n into so many stretches (at least one) of equal length."""
    parts = max(1, parts)
    return [(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def _merge(distances: Distances, positions: Ints, k: int) -> tuple[Distances, Ints]:
    """Nearest k out of the nearest k of each stretch; a stable sort keeps ties in order of position."""
    flat_distances = np.concatenate(list(distances), axis=1)
    flat_positions = np.concatenate(list(positions), axis=1)
    order = np.argsort(flat_distances.astype(np.uint16), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(flat_distances, order, axis=1), np.take_along_axis(flat_positions, order, axis=1)
