"""HammingIndex: codes and their ids, searched exactly, in memory or kept in a file for years."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fusehash.bits import Codes, check_codes
from fusehash.errors import DataError, ParameterError
from fusehash.search import engines
from fusehash.search.blocks import Change, State
from fusehash.search.rows import Ids, Rows
from fusehash.search.scan import Distances, Ints
from fusehash.search.storage import IndexFileError, Storage

logger = logging.getLogger(__name__)

_NO_IDS = np.empty(0, np.int64)
_warm: set[int] = set()  # widths whose kernels this process has compiled or is compiling


class HammingIndex:
    """Exact nearest-neighbour search over packed binary codes.

    Results come in order of (distance, id) and depend on nothing else: not on threads, nor on the order in which codes
    were added. Ids are 64-bit integers, given by the caller or counted up from 0; an id that was removed is never given
    out again. A call that raises has changed nothing. All methods may be called from several threads.

    Parameters
    ----------
    n_bits : int
        Width of the codes, a multiple of 8 from 8 to 1024.
    engine : str, default "scan"
        "scan", "numpy", "multi-index", "auto" (all exact, equal results), "faiss-ivf" or "faiss-hnsw" (approximate);
        fusehash.search.engines says which is for what.
    threads : int, optional
        Threads a search may use; all cores by default.

    Examples
    --------
    >>> import numpy as np
    >>> index = HammingIndex(n_bits=16)
    >>> index.add(np.array([[0, 0], [255, 0], [1, 0]], np.uint8), ids=[10, 20, 30])
    array([10, 20, 30])
    >>> distances, ids = index.search(np.array([[3, 0]], np.uint8), k=2)
    >>> distances, ids
    (array([[1, 2]], dtype=int32), array([[30, 10]]))
    """

    def __init__(self, n_bits: int = 64, *, engine: str | engines.Engine = "scan", threads: int | None = None) -> None:
        if not isinstance(n_bits, (int, np.integer)) or not 8 <= n_bits <= 1024 or n_bits % 8:
            raise ParameterError("HammingIndex", "n_bits", "a multiple of 8 from 8 to 1024", n_bits)
        self._n_bits = int(n_bits)
        self._threads = _check_threads(threads)
        self._engine = engines.make(engine)
        self._lock = threading.RLock()
        self._storage: Storage | None = None
        self._closed = False
        self._state = State(self._n_bits)
        self._rows = Rows(self._n_bits // 8)

    @classmethod
    def open(cls, path: str | os.PathLike[str], n_bits: int | None = None, *, engine: str | engines.Engine = "scan",
             threads: int | None = None, timeout: float = 30.0, warm: bool = True) -> HammingIndex:  # fmt: skip
        """Open the index kept in a file, or create one of ``n_bits``.

        When `add`, `remove`, `replace` or `compact` has returned, its effect survives kill -9 and loss of power; a call
        that was cut off has left nothing. Any number of processes may search while one writes; they see what has been
        committed. A second writer waits for up to ``timeout`` seconds. ``warm`` compiles the kernels in the background.
        """
        cls(
            64 if n_bits is None else n_bits, engine=engine, threads=threads
        )  # says what is wrong before a file is made
        storage = Storage(path, None if n_bits is None else int(n_bits), timeout)
        index = cls(storage.state.n_bits, engine=engine, threads=threads)
        index._storage = storage
        if warm:
            _warm_up(index)
        return index

    @property
    def n_bits(self) -> int:
        """Width of the codes."""
        return self._n_bits

    @property
    def ids(self) -> Ids:
        """All ids, ascending (read-only)."""
        ids = self._now().ids.view()
        ids.flags.writeable = False
        return ids

    def __len__(self) -> int:
        return len(self._now())

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (int, np.integer)) or not -(1 << 63) <= id < 1 << 63:
            return False
        return bool(self._now().find(np.array([id], np.int64))[0][0])

    def __iter__(self) -> Iterator[tuple[Ids, Codes]]:
        return self.blocks()

    def blocks(self, size: int = 65536) -> Iterator[tuple[Ids, Codes]]:
        """(ids, codes) in order of id, ``size`` at a time, as they were when the iteration began."""
        if size < 1:
            raise ParameterError("HammingIndex.blocks", "size", "at least 1", size)
        rows = self._now()
        return ((rows.ids[i : i + size].copy(), rows.codes[i : i + size].copy()) for i in range(0, len(rows), size))

    def get(self, ids: ArrayLike) -> Codes:
        """The codes of some ids."""
        wanted, rows = _check_ids(ids), self._now()
        return rows.codes[_positions(rows, wanted)]

    def add(self, codes: ArrayLike, ids: ArrayLike | None = None) -> Ids:
        """Add codes and return their ids; without ``ids`` they count on from the highest one ever used."""
        packed = check_codes(codes, self._n_bits)
        given = None if ids is None else _check_ids(ids, len(packed))
        if given is not None and len(np.unique(given)) != len(given):
            raise DataError(f"Ids must differ from each other. Got {_first_repeated(given)} more than once.")

        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            nonlocal given
            if given is None:
                if state.last_id + len(packed) > np.iinfo(np.int64).max:
                    raise DataError("No higher ids are left to give out; ids must be given.")
                new, ordered = np.arange(state.last_id + 1, state.last_id + 1 + len(packed)), packed
                given = new
            else:
                order = np.argsort(given, kind="stable")
                new, ordered = given[order], packed[order]
                here, _ = rows.find(new)
                if here.any():
                    raise DataError(
                        f"Ids must be new. Id {new[here][0]} is in the index already; replace() changes its code."
                    )
            return Change(_NO_IDS, new, ordered), max(state.last_id, int(new[-1]))

        if len(packed):
            self._change(plan)
        return _NO_IDS if given is None else given

    def remove(self, ids: ArrayLike) -> int:
        """Remove codes by id and return how many; an id that is not there is an error."""
        gone = np.unique(_check_ids(ids))

        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            _positions(rows, gone)
            return Change(gone, _NO_IDS, np.empty((0, self._n_bits // 8), np.uint8)), state.last_id

        if len(gone):
            self._change(plan)
        return len(gone)

    def replace(self, codes: ArrayLike, ids: ArrayLike) -> None:
        """Give ids that are in the index other codes, all at once."""
        packed = check_codes(codes, self._n_bits)
        changed = _check_ids(ids, len(packed))
        order = np.argsort(changed, kind="stable")
        ordered = changed[order]
        if len(np.unique(ordered)) != len(ordered):
            raise DataError(f"Ids must differ from each other. Got {_first_repeated(ordered)} more than once.")

        def plan(rows: Rows, state: State) -> tuple[Change, int]:
            _positions(rows, ordered)
            return Change(ordered, ordered, packed[order]), state.last_id

        if len(packed):
            self._change(plan)

    def search(
        self, codes: ArrayLike, k: int, *, allowed: ArrayLike | None = None, threads: int | None = None
    ) -> tuple[Distances, Ids]:
        """The ``k`` nearest codes of every query: distances and ids, in order of (distance, id).

        ``allowed`` restricts the search to some ids, given as integers (ids that are not in the index are passed over)
        or as a boolean mask over `ids`. Both results have min(k, codes that may be found) columns.
        """
        queries, rows, positions = self._asked(codes, allowed)
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
            raise ParameterError("HammingIndex.search", "k", "an integer of at least 1", k)
        k = min(int(k), len(rows) if positions is None else len(positions))
        if not k or not len(queries):
            return np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.int64)
        distances, found = self._engine.top_k(rows, queries, k, allowed=positions, threads=self._workers(threads))
        return distances, rows.ids[found]

    def range_search(
        self, codes: ArrayLike, radius: int, *, allowed: ArrayLike | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ids]:
        """All codes at most ``radius`` away: offsets, distances, ids; ``allowed`` as in `search`.

        Query q's lie from ``offsets[q]`` to ``offsets[q + 1]``, in order of (distance, id).
        """
        queries, rows, positions = self._asked(codes, allowed)
        if not isinstance(radius, (int, np.integer)) or isinstance(radius, bool) or radius < 0:
            raise ParameterError("HammingIndex.range_search", "radius", "an integer of at least 0", radius)
        if not len(queries) or not len(rows) or (positions is not None and not len(positions)):
            return np.zeros(len(queries) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64)
        offsets, distances, found = self._engine.within(
            rows, queries, int(radius), allowed=positions, threads=self._workers(threads)
        )
        return offsets, distances, rows.ids[found]

    def compact(self) -> None:
        """Give back spare memory, and on disk merge small blocks and return what removals have left."""
        with self._lock:
            rows = self._now() if self._storage is None else self._storage.compact()
            trimmed = Rows(self._n_bits // 8, len(rows))
            trimmed.ids[:], trimmed.codes[:] = rows.ids, rows.codes
            if self._storage is None:
                self._rows = trimmed
            else:
                self._storage.rows = trimmed

    def stats(self) -> dict[str, Any]:
        """Number of codes, bytes in memory, engine, and for a file its path and size."""
        with self._lock:
            rows = self._now()
            known = {
                "n_bits": self._n_bits,
                "count": len(rows),
                "memory_bytes": rows.nbytes,
                "engine": self._engine.name,
            }
            return {**known, **self._engine.stats(), **({} if self._storage is None else self._storage.stats())}

    def close(self) -> None:
        """Let go of the file; an index in memory is left as it is."""
        with self._lock:
            if self._storage is not None:
                self._storage.close()
                self._closed = True

    def __enter__(self) -> HammingIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self._storage is None else f"in {self._storage.path}"
        return f"<HammingIndex of {self._n_bits} bits {where}>"

    def _now(self) -> Rows:
        """The rows as they are now, whoever wrote them."""
        with self._lock:
            if self._storage is None:
                return self._rows
            if self._closed:
                raise IndexFileError(f"The index {self._storage.path} is closed; open it again.")
            return self._storage.refresh()

    def _change(self, plan: Callable[[Rows, State], tuple[Change, int]]) -> None:
        with self._lock:
            rows = self._now()
            if self._storage is not None:
                self._storage.change(plan)
                return
            change, last_id = plan(rows, self._state)
            self._rows = change.apply(rows)
            self._state = State(self._n_bits, last_id=last_id)

    def _asked(self, codes: ArrayLike, allowed: ArrayLike | None) -> tuple[Codes, Rows, Ints | None]:
        queries, rows = check_codes(codes, self._n_bits, what="Query codes"), self._now()
        if allowed is None:
            return queries, rows, None
        chosen = np.asarray(allowed)
        if chosen.dtype == bool:
            if chosen.shape != (len(rows),):
                raise DataError(
                    f"A mask must have one entry for each of {len(rows)} codes. Got shape {chosen.shape} instead."
                )
            return queries, rows, np.flatnonzero(chosen)
        here, positions = rows.find(np.unique(_check_ids(chosen)))
        return queries, rows, positions[here].astype(np.int64, copy=False)

    def _workers(self, threads: int | None) -> int | None:
        return self._threads if threads is None else _check_threads(threads)


def _check_threads(threads: int | None) -> int | None:
    if threads is not None and (not isinstance(threads, (int, np.integer)) or threads < 1):
        raise ParameterError("HammingIndex", "threads", "at least 1, or None for all cores", threads)
    return None if threads is None else int(threads)


def _check_ids(ids: ArrayLike, count: int | None = None) -> Ids:
    """Ids as a vector of 64-bit integers, or why they are none."""
    given = np.asarray(ids)
    if given.size == 0:
        given = given.astype(np.int64)
    if given.dtype == object and all(isinstance(id, (int, np.integer)) for id in given.ravel()):
        raise DataError("Ids must be 64-bit integers. Got larger ones.")
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise DataError(f"Ids must be a vector of integers. Got {given.dtype} of shape {given.shape} instead.")
    if given.dtype == np.uint64 and given.size and int(given.max()) > np.iinfo(np.int64).max:
        raise DataError(f"Ids must be 64-bit integers. Got {given.max()} instead.")
    if count is not None and len(given) != count:
        raise DataError(f"There must be one id for each of {count} codes. Got {len(given)} instead.")
    return given.astype(np.int64)


def _positions(rows: Rows, ids: Ids) -> Ints:
    here, positions = rows.find(ids)
    if not here.all():
        missing = ids[~here]
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"Ids must be in the index. Id {missing[0]}{others} is not.")
    return positions


def _first_repeated(ids: Ids) -> int:
    values, counts = np.unique(ids, return_counts=True)
    return int(values[counts > 1][0])


def _warm_up(index: HammingIndex) -> None:
    """Compile the kernels of this width on another thread, once a process."""
    if index.n_bits in _warm:
        return
    _warm.add(index.n_bits)

    def work() -> None:
        try:
            engines.compiled_kernel().warm_up(index.n_bits)
        except Exception as error:
            logger.warning("the kernels for %d bits could not be compiled ahead: %s", index.n_bits, error)

    # Not a daemon: a process must not end in the middle of a compilation.
    threading.Thread(target=work, name="fusehash-warm-up").start()
