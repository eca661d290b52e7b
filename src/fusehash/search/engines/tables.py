"""Multi-index hashing: exact search that looks only where near codes can be (Norouzi, Punjani and Fleet, 2012).

Cut every code into m substrings. Two codes at distance r agree in at least one substring up to r // m bits. So it is
enough to look up, in one table per substring, the codes that close to the query's substring, and to compare those whole
codes. Radii are tried upwards: step r looks up distance r // m in table r % m. After that every code at distance r or
less has been seen, and the search stops as soon as there are k of them.

This wins where near codes exist (duplicates, clusters, learned codes) and the database is large. Among codes that are
all far apart it looks nearly everywhere: if the cost of a query exceeds a budget, the scan answers it instead. The
tables take 4 bytes per code and table.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.forks import new_lock
from fusehash.numerics.compiled import bit_count
from fusehash.search.engines.kernel import entry, part
from fusehash.search.engines.numpy import SHIFT, split
from fusehash.search.engines.scan import Scan, blocks, run, workers
from fusehash.search.rows import Allowed, CodeRows, InRange, Ints, Nearest, Threads

_LONGEST = 20  # bits of a substring: a table of a million starts
_BUILD = 5e-8  # seconds per code and table, about
_SAMPLE = 16  # queries on which "auto" compares tables and scan
_BUDGET = 16  # for "auto", the scan costs as much as looking at 1 / 16 of the codes through the tables


class MultiIndex(Scan):
    """Look-up tables, where they pay.

    With `always` the tables are built at the first search and used for every one. Else ("auto") they are built once the
    time spent scanning the same rows exceeds what building them is expected to take. A sample of queries is then
    answered both ways, and the faster way is kept for searches of that kind (k or radius) until the rows change.
    """

    def __init__(self, *, always: bool) -> None:
        self.name = "multi-index" if always else "auto"
        self._always, self._budget = always, 1 if always else _BUDGET
        self._lock = new_lock()
        self._rows: weakref.ref[CodeRows] | None = None  # weak, so that rows that an index has dropped are freed
        self._tables: Tables | None = None
        self._scan_seconds = 0.0
        self._faster: dict[str, bool] = {}
        self._given_up = 0

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        def look_up(tables: Tables, queries: Codes) -> Nearest:
            distances, positions = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.int64)
            for block, counts, keys in tables.look_up(rows.codes, queries, k, -1, len(rows) // self._budget, threads):
                answered = counts >= 0
                distances[block][answered], positions[block][answered] = split(keys.reshape(-1, k))
                rest = np.flatnonzero(~answered)
                self._given_up += len(rest)
                if len(rest):
                    distances[block][rest], positions[block][rest] = scan(queries[block][rest])
            return distances, positions

        def scan(queries: Codes) -> Nearest:
            return super(MultiIndex, self).search(rows, queries, k, allowed, threads)

        return self._answer(f"k {k}", rows, queries, look_up if allowed is None else None, scan)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        def look_up(tables: Tables, queries: Codes) -> InRange:
            limit = min(radius, rows.codes.shape[1] * 8)
            parts = tables.look_up(rows.codes, queries, 0, limit, len(rows) // self._budget, threads)
            counts = np.concatenate([counts for _, counts, _ in parts])
            if np.any(counts < 0):
                return scan(queries)
            keys = np.concatenate([keys for _, _, keys in parts])
            offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
            return offsets, *split(keys)

        def scan(queries: Codes) -> InRange:
            return super(MultiIndex, self).range_search(rows, queries, radius, allowed, threads)

        return self._answer(f"radius {radius}", rows, queries, look_up if allowed is None else None, scan)

    def stats(self) -> dict[str, Any]:
        chosen = {kind: "tables" if faster else "scan" for kind, faster in self._faster.items()}
        n_bytes = 0 if self._tables is None else self._tables.order.nbytes + self._tables.starts.nbytes
        return {"table_bytes": n_bytes, "chosen": chosen, "given_up": self._given_up}

    def _answer(
        self, kind: str, rows: CodeRows, queries: Codes, look_up: Callable[..., Any] | None, scan: Callable[..., Any]
    ) -> Any:
        """Answer in the faster of two ways; without tables, by a scan whose time is counted."""
        tables = None if look_up is None else self._prepared(rows)
        if look_up is None or tables is None:
            start = perf_counter()
            answer = scan(queries)
            self._scan_seconds += perf_counter() - start
            return answer
        if not self._always and kind not in self._faster:
            seconds = []
            for way in (partial(look_up, tables), scan):
                way(queries[:1])  # compiled and in the cache
                start = perf_counter()
                way(queries[:_SAMPLE])
                seconds.append(perf_counter() - start)
            self._faster[kind] = seconds[0] < seconds[1]
        return look_up(tables, queries) if self._always or self._faster[kind] else scan(queries)

    def _prepared(self, rows: CodeRows) -> Tables | None:
        """The tables of these rows, or None where they are not (yet) worth building."""
        with self._lock:
            if self._rows is None or rows is not self._rows():
                self._rows, self._tables, self._scan_seconds, self._faster = weakref.ref(rows), None, 0.0, {}
            if self._tables is None and (self._always or self._scan_seconds > _BUILD * len(rows) * _count(rows.codes)):
                self._tables = Tables(rows.codes)
            return self._tables


class Tables:
    """Positions of all codes by substring, one table per substring: `order[starts[s] : starts[s + 1]]` have value s."""

    def __init__(self, codes: Codes) -> None:
        n_bits, count = codes.shape[1] * 8, _count(codes)
        self.cuts = np.array([n_bits * i // count for i in range(count + 1)], np.int64)
        self.order = np.empty((count, len(codes)), np.uint32)
        self.bases = np.concatenate(([0], np.cumsum((1 << np.diff(self.cuts)) + 1)))
        self.starts = np.zeros(self.bases[-1], np.int64)
        for i in range(count):
            starts = self.starts[self.bases[i] : self.bases[i + 1]]
            _fill(codes, self.cuts[i], self.cuts[i + 1], starts, self.order[i])

    def look_up(
        self, codes: Codes, queries: Codes, k: int, radius: int, budget: int, threads: int | None
    ) -> list[tuple[slice, Ints, Ints]]:
        """(block of queries, results per query or -1 where given up, their keys) for all blocks, in order."""
        word = np.uint64 if codes.shape[1] % 8 == 0 else np.uint8
        query_blocks = blocks(len(queries), 512, workers(threads))
        results: list[Any] = [None] * len(query_blocks)

        def answer(i: int, block: slice) -> None:
            asked = np.ascontiguousarray(queries[block])
            counts = np.empty(len(asked), np.int64)
            tables = self.cuts, self.bases, self.starts, self.order
            keys = _look_up(codes.view(word), asked, asked.view(word), tables, k, radius, budget, counts)
            results[i] = block, counts, keys

        run(answer, list(enumerate(query_blocks)), workers(threads))
        return results


def _count(codes: Codes) -> int:
    """Substrings of about log2(n) bits: as many values as there are codes, so that a look-up returns about one."""
    return -(-codes.shape[1] * 8 // min(_LONGEST, max(1, int(np.log2(max(2, len(codes)))))))


@part
def _substring(code: Any, first: int, last: int) -> Any:
    """Bits `first` to `last` of a code as an integer; any fixed way to cut a code into substrings serves."""
    value = np.int64(0)
    for byte in range(first // 8, (last + 7) // 8):
        value |= np.int64(code[byte]) << np.int64(8 * (byte - first // 8))
    return (value >> np.int64(first % 8)) & ((np.int64(1) << np.int64(last - first)) - 1)


@entry
def _fill(codes: Any, first: int, last: int, starts: Any, order: Any) -> None:
    """Sort positions by substring; a counting sort, so that equal ones stay in order."""
    for i in range(len(codes)):
        starts[_substring(codes[i], first, last) + 1] += 1
    for s in range(1, len(starts)):
        starts[s] += starts[s - 1]
    free = starts.copy()
    for i in range(len(codes)):
        s = _substring(codes[i], first, last)
        order[free[s]] = i
        free[s] += 1


@part
def _next_combination(bits: int) -> int:
    """The next larger integer with as many ones (Gosper)."""
    lowest = bits & -bits
    carried = bits + lowest
    return carried | (((bits ^ carried) >> 2) // lowest)


@entry
def _look_up(words: Any, queries: Any, query_words: Any, tables: Any, k: int, radius: int, budget: int, counts: Any
             ) -> Any:  # fmt: skip
    """Keys of the results of all queries, one after the other, sorted; how many each has in `counts`.

    `words` are the codes and `query_words` the queries as words; `tables` is (cuts, bases, starts, order). With
    `radius` -1 the nearest `k`, else all within the radius. A count of -1: the query exceeded the budget.
    """
    cuts, bases, starts, order = tables
    n_tables, n_bits = len(cuts) - 1, queries.shape[1] * 8
    seen = np.zeros(len(words) // 8 + 1, np.uint8)
    keys = np.empty(256, np.int64)  # of the current query
    out, used = np.empty(max(256, len(queries) * k), np.int64), 0
    histogram = np.empty(n_bits + 1, np.int64)
    for q in range(len(queries)):
        n_seen, cost, done = 0, 0, False
        histogram[:] = 0
        for r in range(n_bits + 1 if radius < 0 else radius + 1):
            table, distance = r % n_tables, r // n_tables
            width = cuts[table + 1] - cuts[table]
            if distance <= width:
                value = _substring(queries[q], cuts[table], cuts[table + 1])
                flips = (np.int64(1) << np.int64(distance)) - 1
                while flips < np.int64(1) << np.int64(width):
                    slot = bases[table] + (value ^ flips)
                    cost += 1 + starts[slot + 1] - starts[slot]
                    for i in range(starts[slot], starts[slot + 1]):
                        row = np.int64(order[table, i])
                        if seen[row >> 3] >> np.uint8(row & 7) & np.uint8(1):
                            continue
                        seen[row >> 3] |= np.uint8(1) << np.uint8(row & 7)
                        d = np.int64(0)
                        for w in range(words.shape[1]):
                            d += np.int64(bit_count(words[row, w] ^ query_words[q, w]))
                        if n_seen == len(keys):
                            keys = np.concatenate((keys, np.empty(len(keys), np.int64)))
                        keys[n_seen] = d << np.int64(SHIFT) | row
                        n_seen += 1
                        histogram[d] += 1
                    if flips == 0 or cost > budget:
                        break
                    flips = _next_combination(flips)
            if cost > budget:
                break
            done = histogram[: r + 1].sum() >= k if radius < 0 else r == radius
            if done:
                break
        for i in range(n_seen):
            row = keys[i] & ((np.int64(1) << np.int64(SHIFT)) - 1)
            seen[row >> 3] = 0
        counts[q] = -1
        if done:
            reach = r + 1
            kept = np.empty(histogram[:reach].sum(), np.int64)
            j = 0
            for i in range(n_seen):
                if keys[i] >> np.int64(SHIFT) < reach:
                    kept[j] = keys[i]
                    j += 1
            kept.sort()
            counts[q] = k if radius < 0 else len(kept)
            while used + counts[q] > len(out):
                out = np.concatenate((out, np.empty(len(out), np.int64)))
            out[used : used + counts[q]] = kept[: counts[q]]
            used += counts[q]
    return out[:used]
