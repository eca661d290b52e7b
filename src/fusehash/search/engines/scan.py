"""Exact search through all codes on several threads: how the work is divided, and which thread does it.

Many queries are divided into blocks of queries, each of which passes over all codes. With few queries (fewer blocks
than threads) the codes are divided instead: every thread searches a stretch of them, and the results are merged.
Neither changes a result. Threads live for one call; the kernels run without the GIL, and the calling thread works too.
"""

from __future__ import annotations

import _thread
import threading
from collections import deque
from collections.abc import Callable, Iterable
from operator import length_hint
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.numerics.parallel import n_cores
from fusehash.search.rows import Allowed, CodeRows, Distances, InRange, Ints, Nearest, Threads

_BLOCK = 512  # queries that share one pass over the codes
_NARROW_BLOCK = 128  # the same below 64 bits, where reading the codes again costs less than the buffers of more queries
_CHUNK_BYTES = 1 << 18  # codes that stay in the second-level cache while a block of queries passes over them
_BUFFER_BYTES = 1 << 24  # memory for the buffers of a block of queries
_SHARE_BYTES = 1 << 23  # a thread is started only if it has so much to compare
_START_BYTES = 3 << 20  # what a thread compares while another one starts
_ALL_ROWS = np.empty(0, np.int64)


class Scan:
    """Compares every code."""

    name = "scan"

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        from fusehash.search.engines.kernel import select

        layout, n_queries = _Layout(rows.codes, queries, allowed), len(queries)
        capacity = min(2 * k + 64, layout.n_rows)
        threads = layout.worthwhile(threads)
        query_blocks = blocks(n_queries, layout.block(capacity), threads, rows.codes.shape[1] * layout.n_rows)
        stretches = cut_evenly(layout.n_rows, min(-(-threads // len(query_blocks)), layout.n_rows // k))
        distances = np.empty((len(stretches), n_queries, k), np.int32)
        positions = np.empty((len(stretches), n_queries, k), np.int64)
        calls = []
        for i, stretch in enumerate(stretches):
            for block in query_blocks:
                offsets = np.arange(0, (block.stop - block.start + 1) * k, k)
                results = offsets, distances[i, block].reshape(-1), positions[i, block].reshape(-1)
                calls.append((layout.codes(*stretch), layout.queries[block], layout.n_bits + 1, capacity, results))
        run(select, calls, threads)
        return (distances[0], positions[0]) if len(stretches) == 1 else _merge(distances, positions, k)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        # Counted first, then collected, so that no memory is spent on guesses.
        from fusehash.search.engines.kernel import count_closer, select

        layout, n_queries = _Layout(rows.codes, queries, allowed), len(queries)
        limit, threads = min(radius, layout.n_bits) + 1, layout.worthwhile(threads)
        query_blocks = blocks(n_queries, layout.block(0), threads)
        stretches = cut_evenly(layout.n_rows, -(-threads // len(query_blocks)))
        counts = np.zeros((len(stretches), n_queries), np.int64)
        calls: list[tuple[Any, ...]] = [
            (layout.codes(*stretch), layout.queries[block], limit, counts[i, block])
            for i, stretch in enumerate(stretches)
            for block in query_blocks
        ]
        run(count_closer, calls, threads)
        per_query = counts.sum(axis=0)
        offsets = np.concatenate(([0], np.cumsum(per_query))).astype(np.int64)
        distances, positions = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int64)
        calls = []
        for block in blocks(n_queries, layout.block(int(per_query.max(initial=0))), threads):
            begin, end = int(offsets[block.start]), int(offsets[block.stop])
            if begin < end:
                results = offsets[block.start : block.stop + 1] - begin, distances[begin:end], positions[begin:end]
                everything, capacity = layout.codes(0, layout.n_rows), int(per_query[block].max())
                calls.append((everything, layout.queries[block], limit, capacity, results))
        run(select, calls, threads)
        return offsets, distances, positions


def warm_up(n_bits: int) -> None:
    """Compile (or load) the kernels for one width, so that the first search does not wait for it."""
    rows = CodeRows.numbered(np.zeros((1, n_bits // 8), np.uint8))
    Scan().search(rows, rows.codes, 1, None, 1)
    Scan().range_search(rows, rows.codes, 0, None, 1)


def run(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], threads: int = 1) -> None:
    """Make all calls on at most so many threads, including this one; raise the first error here."""
    waiting = iter(calls)  # threads may share the iterator of a list: taking its next entry is atomic
    errors: list[BaseException] = []

    def help_out(done: threading.Lock) -> None:
        try:
            run(function, waiting)
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    # Not threading.Thread, whose start waits for the new thread to run: a tenth of a millisecond in which to search.
    helpers = [threading.Lock() for _ in range(min(threads, length_hint(waiting)) - 1)]
    for done in helpers:
        done.acquire()
        _thread.start_new_thread(help_out, (done,))
    try:
        for arguments in waiting:
            function(*arguments)
    except BaseException:
        deque(waiting, maxlen=0)  # leaves nothing for the other threads to start
        raise
    finally:
        for done in helpers:
            done.acquire()
    if errors:
        raise errors[0]


class _Layout:
    """Codes and queries as the kernels read them: rows of words.

    Up to 64 bits a code is one word of 8, 16, 32 or 64 bits, beyond that it is 64-bit words. Codes that do not fill
    their words stay bytes (the kernel pads them chunk by chunk); queries are padded here.
    """

    def __init__(self, codes: Codes, queries: Codes, allowed: Ints | None) -> None:
        n_bytes = codes.shape[1]
        size = next((size for size in (1, 2, 4) if n_bytes <= size), 8)
        n_words = -(-n_bytes // size)
        dtype = np.dtype(f"u{size}")
        self.n_bits, self.n_rows = n_bytes * 8, len(codes) if allowed is None else len(allowed)
        self._word = (dtype.type(0),) * n_words
        self._chunk = min(1 << 14, max(64, _CHUNK_BYTES // (n_words * size) // 64 * 64))
        self._codes = codes.view(dtype) if n_words * size == n_bytes else codes
        self._rows = _ALL_ROWS if allowed is None else allowed
        padded = np.zeros((len(queries), n_words * size), np.uint8)
        padded[:, :n_bytes] = queries
        self.queries = padded.view(dtype)

    def codes(self, start: int, stop: int) -> tuple[Any, ...]:
        """A stretch of the codes, as the kernels take it."""
        return self._codes, self._rows, start, stop, self._chunk, self._word

    def block(self, capacity: int) -> int:
        """Queries in a block whose buffers hold `capacity` codes each."""
        largest = _BLOCK if self.queries.itemsize == 8 else _NARROW_BLOCK
        return max(1, min(largest, _BUFFER_BYTES // (6 * max(1, capacity))))

    def worthwhile(self, threads: int | None) -> int:
        """How many threads have enough work to be worth starting."""
        n_bytes = self.n_rows * len(self.queries) * self.n_bits // 8
        return max(1, min(workers(threads), n_bytes // _SHARE_BYTES))


def workers(threads: int | None) -> int:
    """Threads to use; all cores by default."""
    return n_cores() if threads is None else threads


def blocks(n_queries: int, largest: int, threads: int, query_bytes: int = 0) -> list[slice]:
    """Blocks of at most so many queries, and enough of them for all threads.

    If every thread gets one block, the first one, which is the calling thread's, is longer by what it compares while
    the others start; `query_bytes` are compared per query.
    """
    count = -(-n_queries // largest)
    if count > 1 or n_queries >= 8 * threads:
        count = -(-count // threads) * threads
    ahead = 0
    if query_bytes and 1 < count <= threads:
        ahead = min(_START_BYTES // query_bytes, n_queries // (2 * count))
    return [slice(start + ahead * (start > 0), stop + ahead) for start, stop in cut_evenly(n_queries - ahead, count)]


def cut_evenly(n: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0..n into so many stretches (at least one) of equal length."""
    parts = max(1, parts)
    return [(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def _merge(distances: Distances, positions: Ints, k: int) -> Nearest:
    """The nearest k of the nearest k of each stretch; a stable sort keeps ties in order of position."""
    flat_distances = np.concatenate(list(distances), axis=1)
    flat_positions = np.concatenate(list(positions), axis=1)
    order = np.argsort(flat_distances.astype(np.uint16), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(flat_distances, order, axis=1), np.take_along_axis(flat_positions, order, axis=1)
