"""Multi-index hashing: exact search that looks only where near codes can be (Norouzi, Punjani and Fleet, 2012).

Cut every code into m substrings. Two codes at distance r agree in at least one substring up to r // m bits. So it is
enough to look up, in one table per substring, the codes that are close to the query's substring, and to compare those
whole codes. Radii are tried upwards until all codes as near as the k-th have been seen (look_up.py).

This wins where near codes exist (duplicates, clusters, learned codes) and the database is large: the time of a query
hardly grows with the database. Among codes that are all far apart it looks nearly everywhere: if the cost of a query
exceeds a budget, the scan answers it instead. The tables take 8 bytes per code and table, and follow the rows of the
index as they change (segments.py).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.forks import new_lock
from fusehash.search.engines.multi_index import kept
from fusehash.search.engines.multi_index.look_up import look_up
from fusehash.search.engines.multi_index.segments import Segments, shape
from fusehash.search.engines.numpy import SHIFT, split
from fusehash.search.engines.scan import Scan, blocks, run, workers
from fusehash.search.rows import NO_IDS, Allowed, Changes, CodeRows, Ids, InRange, Ints, Nearest, Threads

_BUILD = 1e-7  # seconds per code and table, about
_SAMPLE = 16  # queries on which "auto" compares tables and scan
_BUDGET = 16  # for "auto", the scan costs as much as looking at 1 / 16 of the codes through the tables


class MultiIndex(Scan):
    """Look-up tables, where they pay.

    With `always` the tables are built at the first search and used for every one. Else ("auto") they are built once the
    time spent scanning the same index exceeds what building them is expected to take. A sample of queries is then
    answered both ways, and the faster way is kept for searches of that kind (k or radius) until the index has grown by
    half.
    """

    def __init__(self, *, always: bool) -> None:
        self.name = "multi-index" if always else "auto"
        self._always, self._budget = always, 1 if always else _BUDGET
        self._lock = new_lock()
        self._rows: weakref.ref[CodeRows] | None = None  # weak, so that rows that an index has dropped are freed
        self._changes: Changes | None = None  # of the index that the tables follow
        self._n_changes = 0
        self._loose_ids = NO_IDS
        self._tables: Segments | None = None
        self._scan_seconds = 0.0
        self._faster: dict[str, bool] = {}
        self._measured_at = 0
        self._kept: tuple[int, ...] | None = None  # the tables that are in a file
        self._given_up = 0

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        def use(tables: Segments, queries: Codes) -> Nearest:
            distances, positions = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.int64)
            for block, counts, keys in self._looked_up(tables, rows, queries, k, None, threads):
                answered = counts >= 0
                distances[block][answered], positions[block][answered] = split(keys.reshape(-1, k))
                rest = np.flatnonzero(~answered)
                self._given_up += len(rest)
                if len(rest):
                    distances[block][rest], positions[block][rest] = scan(queries[block][rest])
            return distances, positions

        def scan(queries: Codes) -> Nearest:
            return super(MultiIndex, self).search(rows, queries, k, allowed, threads)

        return self._answer(f"k {k}", rows, queries, use if allowed is None else None, scan)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        def use(tables: Segments, queries: Codes) -> InRange:
            parts = self._looked_up(tables, rows, queries, 0, min(radius, rows.codes.shape[1] * 8), threads)
            counts = np.concatenate([counts for _, counts, _ in parts])
            if np.any(counts < 0):
                return scan(queries)
            keys = np.concatenate([keys for _, _, keys in parts])
            offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
            return offsets, *split(keys)

        def scan(queries: Codes) -> InRange:
            return super(MultiIndex, self).range_search(rows, queries, radius, allowed, threads)

        return self._answer(f"radius {radius}", rows, queries, use if allowed is None else None, scan)

    def stats(self) -> dict[str, Any]:
        chosen = {kind: "tables" if faster else "scan" for kind, faster in self._faster.items()}
        tables = self._tables
        n_bytes = 0 if tables is None else tables.nbytes
        segments = [] if tables is None else [len(part) for part in tables.parts]
        return {"table_bytes": n_bytes, "segments": segments, "chosen": chosen, "given_up": self._given_up}

    def keep(self, index: Path, rows: CodeRows, blocks: Ints) -> None:
        """Write the tables, if there are any, next to an index file whose blocks hold these rows."""
        with self._lock:
            if self._tables is None or self._is_earlier(rows) or not self._follows(rows):
                return
            if self._kept is None or self._kept != tuple(map(id, (part.entries for part in self._tables.parts))):
                kept.write(index, self._tables.parts, self._loose_ids, blocks)

    def resume(self, index: Path, rows: CodeRows, changed_since: Callable[[Ints], Ids]) -> None:
        """Take up the tables next to an index file; `changed_since(blocks)` are the ids outside of those blocks."""
        if not kept.path_of(index).is_file():
            return
        parts, loose_ids, blocks = kept.read(index, rows.codes.shape[1] * 8)
        with self._lock:
            tables = Segments(parts, NO_IDS, rows.codes[:0]).after(rows, loose_ids, np.unique(changed_since(blocks)))
            self._adopt(rows, tables)
            self._loose_ids = rows.ids_at(tables.loose)
            self._kept = tuple(id(part.entries) for part in tables.parts)

    def _adopt(self, rows: CodeRows, tables: Segments) -> None:
        """Follow these rows from now on."""
        rows.changes, rows.n_changes = Changes(), 0
        self._rows, self._changes, self._n_changes = weakref.ref(rows), rows.changes, 0
        self._tables, self._loose_ids, self._measured_at, self._kept = tables, NO_IDS, len(rows), None

    def _looked_up(
        self, tables: Segments, rows: CodeRows, queries: Codes, k: int, radius: int | None, threads: Threads
    ) -> list[tuple[slice, Ints, Ints]]:
        """(block of queries, results per query or -1 where given up, their keys) for all blocks, in order."""
        n_bytes = rows.codes.shape[1]
        codes = rows.codes.view(np.uint64) if n_bytes % 8 == 0 else rows.codes
        padded = np.zeros((len(queries), -(-n_bytes // 8) * 8), np.uint8)
        padded[:, :n_bytes] = queries
        budget = len(rows) // self._budget
        reach = _affordable(tables, n_bytes * 8, budget) if radius is None else radius
        ids = NO_IDS if rows.first_id is not None else rows.ids
        query_blocks = blocks(len(queries), 512, workers(threads))
        results: list[Any] = [None] * len(query_blocks)

        def answer(i: int, block: slice) -> None:
            counts = np.empty(block.stop - block.start, np.int64)
            given, limits = self._loose(tables, queries[block], k, reach), (n_bytes * 8, reach, budget)
            words = padded[block].view(np.uint64)
            keys = look_up(codes, ids, rows.first_id or 0, words, tables.columns, given, k, limits, counts)
            results[i] = block, counts, keys

        run(answer, list(enumerate(query_blocks)), workers(threads))
        return results

    def _loose(self, tables: Segments, queries: Codes, k: int, reach: int) -> tuple[Ints, Ints]:
        """The results of a scan over the rows that are in no table, as (offsets, keys)."""
        if not len(tables.loose):
            return np.zeros(len(queries) + 1, np.int64), NO_IDS
        loose = CodeRows.numbered(tables.codes)
        if k:
            k = min(k, len(loose))
            distances, positions = super().search(loose, queries, k, None, 1)
            offsets = np.arange(len(queries) + 1) * k
        else:
            offsets, distances, positions = super().range_search(loose, queries, reach, None, 1)
        return offsets, distances.ravel().astype(np.int64) << SHIFT | tables.loose[positions.ravel()]

    def _answer(
        self, kind: str, rows: CodeRows, queries: Codes, use: Callable[..., Any] | None, scan: Callable[..., Any]
    ) -> Any:
        """Answer in the faster of two ways; without tables, by a scan whose time is counted."""
        tables = None if use is None else self._prepared(rows)
        if use is None or tables is None:
            start = perf_counter()
            answer = scan(queries)
            self._scan_seconds += perf_counter() - start
            return answer
        if not self._always and kind not in self._faster:
            seconds = []
            for way in (partial(use, tables), scan):
                way(queries[:1])  # compiled and in the cache
                start = perf_counter()
                way(queries[:_SAMPLE])
                seconds.append(perf_counter() - start)
            self._faster[kind] = seconds[0] < seconds[1]
        return use(tables, queries) if self._always or self._faster[kind] else scan(queries)

    def _prepared(self, rows: CodeRows) -> Segments | None:
        """The tables of these rows, or None where they are not (yet) worth building."""
        with self._lock:
            if self._tables is not None and self._is_earlier(rows):
                return None  # another thread searches the rows as they were before the last change
            if self._tables is not None and not self._follows(rows):
                self._tables, self._faster, self._scan_seconds = None, {}, 0.0
            if self._tables is None and (self._always or self._scan_seconds > _BUILD * len(rows) * _tables_for(rows)):
                self._adopt(rows, Segments.of(rows))
            return self._tables

    def _is_earlier(self, rows: CodeRows) -> bool:
        return rows.changes is not None and rows.changes is self._changes and rows.n_changes < self._n_changes

    def _follows(self, rows: CodeRows) -> bool:
        """Bring the tables up to these rows; False if they are of another index, or too much has changed."""
        if self._rows is not None and self._rows() is rows:
            return True
        if rows.changes is None or rows.changes is not self._changes or rows.changes.is_over:
            return False
        assert self._tables is not None
        changed = self._changes.ids[self._n_changes : rows.n_changes]
        self._tables = self._tables.after(rows, self._loose_ids, np.unique(np.concatenate([NO_IDS, *changed])))
        self._changes.ids[self._n_changes : rows.n_changes] = [NO_IDS] * len(changed)
        self._rows, self._n_changes = weakref.ref(rows), rows.n_changes
        self._loose_ids = rows.ids_at(self._tables.loose)
        if not 2 * self._measured_at < 3 * len(rows) < 4.5 * self._measured_at:
            self._faster, self._measured_at = {}, len(rows)
        return True


def _tables_for(rows: CodeRows) -> int:
    return shape(rows.codes.shape[1] * 8, len(rows))[0]


def _affordable(tables: Segments, n_bits: int, budget: int) -> int:
    """The last step whose look-ups are within the budget."""
    spent = 0
    for r in range(n_bits + 1):
        spent += sum(math.comb(part.width, r // part.n_tables) for part in tables.parts)
        if spent > budget:
            return max(0, r - 1)
    return n_bits
