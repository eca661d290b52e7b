"""HammingIndex: codes and their ids, searched exactly; in memory, kept in a file for years, or on a server."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes
from fusehash.errors import ParameterError
from fusehash.search import engines
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.file import Storage
from fusehash.search.ids import NO_IDS, check_different, check_ids
from fusehash.search.local import LocalStore
from fusehash.search.rows import Ids
from fusehash.search.servers import address as server
from fusehash.search.store import Store

logger = logging.getLogger(__name__)

_warm: set[int] = set()  # widths whose kernels this process has compiled or is compiling


class HammingIndex:
    """Exact nearest-neighbor search over packed binary codes.

    Results come in order of (distance, id) and depend on nothing else: not on threads, nor on the order in which codes
    were added. Ids are 64-bit integers, given by the caller or counted up from 0; an id that was removed is never given
    out again. A call that raises has changed nothing. All methods may be called from several threads.

    Parameters
    ----------
    n_bits : int
        Width of the codes, a multiple of 8 from 8 to 1024.
    engine : str, default "scan"
        "scan", "numpy", "multi-index", "auto", "torch" (all exact, equal results), "faiss-ivf" or "faiss-hnsw"
        (approximate); fusehash.search.engines says which is for what. Or the address of a server that keeps the codes
        and answers (exact, equal results): "postgresql://user@host:5432/database?index=name" or
        "milvus://host:19530/name"; what is there already is opened, else an empty index is made.
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
        self._threads = _check_threads(threads)
        self._store: Store
        if server.is_address(engine):
            self._store = server.connect(engine, int(n_bits))
        else:
            self._store = LocalStore(int(n_bits), engines.make(engine))

    @classmethod
    def open(cls, path: str | os.PathLike[str], n_bits: int | None = None, *, engine: str | engines.Engine = "scan",
             threads: int | None = None, timeout: float = 30.0, warm: bool = True) -> HammingIndex:  # fmt: skip
        """Open the index kept in a file or on a server (``path`` is its address), or create one of ``n_bits``.

        When `add`, `remove`, `replace` or `compact` has returned, its effect survives kill -9 and loss of power; a call
        that was cut off has left nothing. Any number of processes may search while one writes; they see what has been
        committed. A second writer waits for up to ``timeout`` seconds. ``warm`` compiles the kernels in the background.
        """
        if server.is_address(engine):
            raise ParameterError(
                "HammingIndex.open", "engine", "one that searches a file; a server's address goes in place of the path",
                server.without_secrets(engine),
            )  # fmt: skip
        index = cls(
            64 if n_bits is None else n_bits, engine=engine, threads=threads
        )  # says what is wrong, makes no file
        if server.is_address(path):
            index._store = server.connect(path, None if n_bits is None else int(n_bits), timeout=timeout)
            return index
        if server.is_other_address(path):
            raise ParameterError(
                "HammingIndex.open", "path", f"a file, or an address that begins with {', '.join(server.SCHEMES)}",
                server.scheme_of(path),
            )  # fmt: skip
        storage = Storage(path, None if n_bits is None else int(n_bits), timeout)
        index._store = LocalStore(storage.state.n_bits, engines.make(engine), storage)
        if warm:
            _warm_up(index)
        return index

    @property
    def n_bits(self) -> int:
        """Width of the codes."""
        return self._store.n_bits

    @property
    def ids(self) -> Ids:
        """All ids, ascending (read-only)."""
        return self._store.ids()

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (int, np.integer)) or not -(1 << 63) <= id < 1 << 63:
            return False
        return bool(self._store.here(np.array([id], np.int64))[0])

    def __iter__(self) -> Iterator[tuple[Ids, Codes]]:
        return self.blocks()

    def blocks(self, size: int = 65536) -> Iterator[tuple[Ids, Codes]]:
        """(ids, codes) in order of id, ``size`` at a time, as they were when the iteration began."""
        if size < 1:
            raise ParameterError("HammingIndex.blocks", "size", "at least 1", size)
        return self._store.blocks(size)

    def get(self, ids: ArrayLike) -> Codes:
        """The codes of some ids."""
        return self._store.get(check_ids(ids))

    def add(self, codes: ArrayLike, ids: ArrayLike | None = None) -> Ids:
        """Add codes and return their ids; without ``ids`` they count on from the highest one ever used."""
        packed = check_codes(codes, self.n_bits)
        given = None if ids is None else check_ids(ids, len(packed))
        if given is not None:
            check_different(given)
        return self._store.add(given, packed) if len(packed) else NO_IDS.copy()

    def remove(self, ids: ArrayLike) -> int:
        """Remove codes by id and return how many; an id that is not there is an error."""
        gone = np.unique(check_ids(ids))
        if len(gone):
            self._store.remove(gone)
        return len(gone)

    def replace(self, codes: ArrayLike, ids: ArrayLike) -> None:
        """Give ids that are in the index other codes, all at once."""
        packed = check_codes(codes, self.n_bits)
        changed = check_ids(ids, len(packed))
        check_different(changed)
        order = np.argsort(changed, kind="stable")
        if len(packed):
            self._store.replace(changed[order], packed[order])

    def search(
        self, codes: ArrayLike, k: int, *, allowed: ArrayLike | None = None, threads: int | None = None
    ) -> tuple[Distances, Ids]:
        """The ``k`` nearest codes of every query: distances and ids, in order of (distance, id).

        ``allowed`` restricts the search to some ids, given as integers (ids that are not in the index are passed over)
        or as a boolean mask over `ids`. Both results have min(k, codes that may be found) columns.
        """
        queries, chosen = self._asked(codes, allowed)
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
            raise ParameterError("HammingIndex.search", "k", "an integer of at least 1", k)
        return self._store.search(queries, int(k), chosen, self._workers(threads))

    def range_search(
        self, codes: ArrayLike, radius: int, *, allowed: ArrayLike | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ids]:
        """All codes at most ``radius`` away: offsets, distances, ids; ``allowed`` as in `search`.

        Query q's lie from ``offsets[q]`` to ``offsets[q + 1]``, in order of (distance, id).
        """
        queries, chosen = self._asked(codes, allowed)
        if not isinstance(radius, (int, np.integer)) or isinstance(radius, bool) or radius < 0:
            raise ParameterError("HammingIndex.range_search", "radius", "an integer of at least 0", radius)
        return self._store.range_search(queries, int(radius), chosen, self._workers(threads))

    def compact(self) -> None:
        """Give back spare memory; in a file or on a server, what removals have left."""
        self._store.compact()

    def stats(self) -> dict[str, Any]:
        """Number of codes and engine; bytes in memory, path and size of a file, or the address of a server."""
        return self._store.stats()

    def close(self) -> None:
        """Let go of the file or the server; an index in memory is left as it is."""
        self._store.close()

    def __enter__(self) -> HammingIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HammingIndex of {self.n_bits} bits {self._store}>"

    @property
    def _storage(self) -> Storage | None:
        return self._store.storage if isinstance(self._store, LocalStore) else None

    def _asked(self, codes: ArrayLike, allowed: ArrayLike | None) -> tuple[Codes, NDArray[Any] | None]:
        queries = check_codes(codes, self.n_bits, what="Query codes")
        if allowed is None:
            return queries, None
        chosen = np.asarray(allowed)
        return queries, chosen if chosen.dtype == bool else np.unique(check_ids(chosen))

    def _workers(self, threads: int | None) -> int | None:
        return self._threads if threads is None else _check_threads(threads)


def _check_threads(threads: int | None) -> int | None:
    if threads is not None and (not isinstance(threads, (int, np.integer)) or threads < 1):
        raise ParameterError("HammingIndex", "threads", "at least 1, or None for all cores", threads)
    return None if threads is None else int(threads)


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
