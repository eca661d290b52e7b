"""Rows held in this process: in memory, or with a file behind them (storage.py), searched by an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.blocks import Change, State
from fusehash.search.engines import Engine
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.file import IndexFileError, Storage
from fusehash.search.ids import NO_IDS, check_here, check_mask, check_new, count_on
from fusehash.search.rows import Ids, Rows


class LocalStore:
    """The rows of one index in this process; ``storage`` is the file behind them, None for memory alone."""

    def __init__(self, n_bits: int, engine: Engine, storage: Storage | None = None) -> None:
        self.n_bits = n_bits
        self.engine, self.storage = engine, storage
        self._lock = threading.RLock()
        self._closed = False
        self._state = State(n_bits)
        self._rows = Rows(n_bits // 8)

    def __len__(self) -> int:
        return len(self._now())

    def __str__(self) -> str:
        return "in memory" if self.storage is None else f"in {self.storage.path}"

    def ids(self) -> Ids:
        ids = self._now().ids.view()
        ids.flags.writeable = False
        return ids

    def here(self, ids: Ids) -> NDArray[Any]:
        return self._now().find(ids)[0]

    def get(self, ids: Ids) -> Codes:
        rows = self._now()
        return rows.codes[_positions(rows, ids)]

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        rows = self._now()
        return ((rows.ids[i : i + size].copy(), rows.codes[i : i + size].copy()) for i in range(0, len(rows), size))

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        given = ids

        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            nonlocal given
            if ids is None:
                given = count_on(state.last_id, len(codes))
                return Change(NO_IDS, given, codes), int(given[-1])
            order = np.argsort(ids, kind="stable")
            new = ids[order]
            check_new(new[rows.find(new)[0]])
            return Change(NO_IDS, new, codes[order]), max(state.last_id, int(new[-1]))

        self._change(plan)
        assert given is not None
        return given

    def remove(self, ids: Ids) -> None:
        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            _positions(rows, ids)
            return Change(ids, NO_IDS, np.empty((0, self.n_bits // 8), np.uint8)), state.last_id

        self._change(plan)

    def replace(self, ids: Ids, codes: Codes) -> None:
        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            _positions(rows, ids)
            return Change(ids, ids, codes), state.last_id

        self._change(plan)

    def search(
        self, queries: Codes, k: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Distances, Ids]:
        rows, positions = self._asked(allowed)
        k = min(k, len(rows) if positions is None else len(positions))
        if not k or not len(queries):
            return np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.int64)
        distances, found = self.engine.top_k(rows, queries, k, allowed=positions, threads=threads)
        return distances, rows.ids[found]

    def range_search(
        self, queries: Codes, radius: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Ints, Distances, Ids]:
        rows, positions = self._asked(allowed)
        if not len(queries) or not len(rows) or (positions is not None and not len(positions)):
            return np.zeros(len(queries) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64)
        offsets, distances, found = self.engine.within(rows, queries, radius, allowed=positions, threads=threads)
        return offsets, distances, rows.ids[found]

    def compact(self) -> None:
        with self._lock:
            rows = self._now() if self.storage is None else self.storage.compact()
            trimmed = Rows(self.n_bits // 8, len(rows))
            trimmed.ids[:], trimmed.codes[:] = rows.ids, rows.codes
            if self.storage is None:
                self._rows = trimmed
            else:
                self.storage.rows = trimmed

    def stats(self) -> dict[str, Any]:
        with self._lock:
            rows = self._now()
            known = {
                "n_bits": self.n_bits,
                "count": len(rows),
                "memory_bytes": rows.nbytes,
                "engine": self.engine.name,
            }
            return {**known, **self.engine.stats(), **({} if self.storage is None else self.storage.stats())}

    def close(self) -> None:
        """Let go of the file; an index in memory is left as it is."""
        with self._lock:
            if self.storage is not None:
                self.storage.close()
                self._closed = True

    def _now(self) -> Rows:
        """The rows as they are now, whoever wrote them."""
        with self._lock:
            if self.storage is None:
                return self._rows
            if self._closed:
                raise IndexFileError(f"The index {self.storage.path} is closed; open it again.")
            return self.storage.refresh()

    def _change(self, plan: Callable[[Rows, State], tuple[Change, int]]) -> None:
        with self._lock:
            rows = self._now()
            if self.storage is not None:
                self.storage.change(plan)
                return
            change, last_id = plan(rows, self._state)
            self._rows = change.apply(rows)
            self._state = State(self.n_bits, last_id=last_id)

    def _asked(self, allowed: NDArray[Any] | None) -> tuple[Rows, Ints | None]:
        rows = self._now()
        if allowed is None:
            return rows, None
        if allowed.dtype == bool:
            check_mask(allowed, len(rows))
            return rows, np.flatnonzero(allowed)
        here, positions = rows.find(allowed)
        return rows, positions[here].astype(np.int64, copy=False)


def _positions(rows: Rows, ids: Ids) -> Ints:
    here, positions = rows.find(ids)
    check_here(ids, here)
    return positions
