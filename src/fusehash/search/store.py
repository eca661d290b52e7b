"""Where the rows of an index are. `HammingIndex` checks its arguments and asks one of these stores.

    MemoryStore   in the memory of this process; an engine answers searches
    FileStore     the same, with a file behind it (file.py)
    servers/      on a PostgreSQL or Milvus server, which also answers searches

All stores follow the same rules. Results are in order of (distance, id). An id that was removed is never assigned again
automatically. A call that raises has changed nothing, unless its message says that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import starmap
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.forks import new_lock
from fusehash.search import factors
from fusehash.search.engines import Engine, estimates, weighted
from fusehash.search.engines.scan import cut_evenly
from fusehash.search.ids import check_new, count_on
from fusehash.search.projections import Projections
from fusehash.search.rows import NO_IDS, Allowed, CodeRows, Edit, Ids, Reals
from fusehash.search.vectors import Center, Locate, Records, VectorFormat, gathered, rescored

T = TypeVar("T")
_PAIRS = 1 << 16  # of a query and a candidate that are in memory at a time while candidates are rescored


class Store(Protocol):
    """Rows and searches over them. Codes and ids are checked before: equal lengths, no id twice, the right width. The
    codes of `add` and `replace` are wide rows (see rows.py) where codes have factors.

    `allowed` is None, a vector of ids without repetition, or a boolean mask over `ids()`; `search` returns as many
    columns as there are allowed codes, at most k. Distances are int32 for codes, and for projections, which stores on
    servers do not take, scores in double precision. Ids of `get`, `remove` and `replace` must be in the index; those of
    the last two are ascending.
    """

    n_bits: int

    def __len__(self) -> int: ...
    def __str__(self) -> str: ...  # where the codes are, as "in ..."; never with a password
    def ids(self) -> Ids: ...  # all of them, ascending
    def here(self, ids: Ids) -> NDArray[Any]: ...  # whether each id is in the index
    def get(self, ids: Ids) -> Codes: ...
    def rows(self) -> CodeRows: ...  # all of them in memory, as they are now
    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]: ...  # in order of id, as they are now
    def add(self, ids: Ids | None, codes: Codes) -> Ids: ...  # at least one; without ids, count on from the highest
    def remove(self, ids: Ids) -> None: ...  # at least one
    def replace(self, ids: Ids, codes: Codes) -> None: ...  # at least one
    def search(self, queries: Any, k: int, allowed: Allowed, threads: int | None) -> tuple[Any, Ids]: ...
    def range_search(
        self, queries: Any, radius: Any, allowed: Allowed, threads: int | None
    ) -> tuple[Any, Any, Ids]: ...
    def compact(self) -> None: ...  # return unused space
    def stats(self) -> dict[str, Any]: ...  # never with a password
    def close(self) -> None: ...  # release files and connections


class MemoryStore:
    """The rows of one index in memory, and its vectors in rows of their own."""

    def __init__(
        self, n_bits: int, engine: Engine, form: VectorFormat | None = None, has_factors: bool = False
    ) -> None:
        self.n_bits, self.engine, self.form, self.has_factors = n_bits, engine, form, has_factors
        self._vectors = CodeRows(form.n_bytes if form else 0)
        self._center: Center | None = None
        self._lock = new_lock()
        self._rows, self._last_id = CodeRows(n_bits // 8, n_extra=factors.N_BYTES * has_factors), -1

    def __len__(self) -> int:
        return len(self._current())

    def __str__(self) -> str:
        return "in memory"

    def ids(self) -> Ids:
        return self._current().ids

    def here(self, ids: Ids) -> NDArray[Any]:
        return self._current().find(ids)[0]

    def get(self, ids: Ids) -> Codes:
        rows = self._current()
        return rows.codes[rows.positions(ids)]

    def factors(self, ids: Ids) -> factors.Factors:
        """The factors of some ids; all must be here."""
        rows = self._current()
        return factors.decoded(rows.extras[rows.positions(ids)])

    def rows(self) -> CodeRows:
        return self._current()

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        rows = self._current()
        return (
            (rows.ids_between(i, i + size).copy(), rows.codes[i : i + size].copy()) for i in range(0, len(rows), size)
        )

    def add(self, ids: Ids | None, codes: Codes, vectors: Reals | None = None) -> Ids:
        def plan(rows: CodeRows, last_id: int) -> Edit:
            if ids is None:
                return Edit(NO_IDS, count_on(last_id, len(codes)), codes, vectors)
            order = np.argsort(ids, kind="stable")
            new = ids[order]
            check_new(new[rows.find(new)[0]])
            return Edit(NO_IDS, new, codes[order], None if vectors is None else vectors[order])

        edit = self._change(plan)
        return edit.ids if ids is None else ids

    def remove(self, ids: Ids) -> None:
        self._change(lambda rows, last_id: Edit(rows.ids_at(rows.positions(ids)), NO_IDS, rows.codes[:0]))

    def replace(self, ids: Ids, codes: Codes, vectors: Reals | None = None) -> None:
        self._change(lambda rows, last_id: Edit(rows.ids_at(rows.positions(ids)), ids, codes, vectors))

    def vectors(self, ids: Ids) -> NDArray[Any]:
        """The stored numbers of vectors; all ids must be here."""
        form = self.checked_form()

        def use(rows: CodeRows, locate: Locate) -> NDArray[Any]:
            return gathered(form, rows, locate, rows.positions(ids))

        return self._with_vectors(use, form)

    def rescored(
        self, queries: Codes | Projections, k: int, allowed: Allowed, threads: int | None, vectors: Any, candidates: int
    ) -> tuple[NDArray[np.float32], Ids]:
        """The nearest k by vectors among the nearest `candidates` by codes."""
        form = self.checked_form()

        def use(rows: CodeRows, locate: Locate) -> tuple[NDArray[np.float32], Ids]:
            positions, (searcher, _) = rows.allowed(allowed), self._searcher(queries)
            count = min(candidates, len(rows) if positions is None else len(positions))
            distances = np.empty((len(queries), min(k, count)), np.float32)
            ids = np.empty(distances.shape, np.int64)
            if not distances.size:
                return distances, ids
            pairs = _PAIRS // 2 if isinstance(queries, Projections) else _PAIRS  # scores take twice the memory
            for part in starmap(slice, cut_evenly(len(queries), -(-len(queries) * count // pairs))):
                _, nearest = searcher.search(rows, queries[part], count, positions, threads)
                distances[part], ids[part] = rescored(form, rows, locate, vectors[part], nearest, k, threads)
            return distances, ids

        return self._with_vectors(use, form)

    def checked_form(self) -> VectorFormat:
        """How vectors are stored; DataError if there are none."""
        if self.form is None:
            raise DataError(
                "The index must keep vectors for this; create it with vectors='int8' and dim, or by "
                "`fusehash index add --vectors` with its first codes. It has none."
            )
        return self.form

    def _with_vectors(self, use: Callable[[CodeRows, Locate], T], form: VectorFormat) -> T:
        """`use` with rows and what finds their vectors, both of one state of the index."""
        with self._lock:
            rows, kept, center = self._rows, self._vectors.codes.view(), self._center  # in the same order
        kept.flags.writeable = False
        return use(rows, lambda positions: (Records(kept, center=center), positions))

    def search(self, queries: Codes | Projections, k: int, allowed: Allowed, threads: int | None) -> tuple[Any, Ids]:
        rows, (searcher, dtype) = self._current(), self._searcher(queries)
        positions = rows.allowed(allowed)
        k = min(k, len(rows) if positions is None else len(positions))
        if not k or not len(queries):
            return np.empty((len(queries), k), dtype), np.empty((len(queries), k), np.int64)
        distances, nearest = searcher.search(rows, queries, k, positions, threads)
        return distances, rows.ids_at(nearest)

    def range_search(
        self, queries: Codes | Projections, radius: float, allowed: Allowed, threads: int | None
    ) -> tuple[Any, Any, Ids]:
        rows, (searcher, dtype) = self._current(), self._searcher(queries)
        positions = rows.allowed(allowed)
        if not len(queries) or not len(rows) or (positions is not None and not len(positions)):
            return np.zeros(len(queries) + 1, np.int64), np.empty(0, dtype), np.empty(0, np.int64)
        offsets, distances, near = searcher.range_search(rows, queries, radius, positions, threads)
        return offsets, distances, rows.ids_at(near)

    def _searcher(self, queries: Codes | Projections) -> tuple[Any, Any]:
        """What answers such queries, and the type of its distances."""
        if isinstance(queries, Projections) and self.has_factors:
            return getattr(self.engine, "estimates", estimates), np.float64
        if isinstance(queries, Projections):
            return getattr(self.engine, "weighted", weighted), np.float64
        return self.engine, np.int32

    def compact(self) -> None:
        with self._lock:
            self._rows, self._vectors = self._rows.trimmed(), self._vectors.trimmed()

    def stats(self) -> dict[str, Any]:
        rows, engine = self._current(), self.engine
        n_bytes = rows.nbytes + (self._vectors.nbytes if self.form else 0)
        sizes: dict[str, Any] = {"n_bits": self.n_bits, "count": len(rows), "memory_bytes": n_bytes}
        if self.form is not None:
            sizes |= {"vectors": self.form.kind, "dim": self.form.dim}
        if self.has_factors:
            sizes["factors"] = True
        name = getattr(engine, "name", type(engine).__name__)
        return {**sizes, "engine": name, **getattr(engine, "stats", dict)()}

    def close(self) -> None:
        """Nothing: the codes stay in memory."""

    def _current(self) -> CodeRows:
        """The rows as they are now."""
        return self._rows

    def _change(self, plan: Callable[[CodeRows, int], Edit]) -> Edit:
        """Make the edit that `plan` returns for the current rows and the highest id ever used."""
        with self._lock:
            edit = plan(self._rows, self._last_id)
            kept, center = self._vectors, self._center
            if self.form is not None and (edit.vectors is not None or not edit.replaces):
                stored = kept.codes[:0]
                if edit.vectors is not None:
                    center = center if len(self._rows) else self.form.center_of(edit.vectors)
                    stored = self.form.encoded(edit.vectors, center)
                kept = replace(edit, codes=stored).apply(kept)
            self._rows, self._vectors, self._center = edit.apply(self._rows), kept, center
            self._last_id = edit.last_id(self._last_id)
            return edit
