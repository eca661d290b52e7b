"""HammingIndex: codes and their ids, searched exactly; in memory, in a file, or on a server."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes, looks_reversed
from fusehash.errors import DataError, ParameterError, warn
from fusehash.parameters import choice, flag, integer, multiple_of, optional, real
from fusehash.search import engines
from fusehash.search.engines.scan import warm_up
from fusehash.search.factors import encoded
from fusehash.search.file import FileStore
from fusehash.search.ids import check_different, check_ids
from fusehash.search.projections import Projections, check_floats, check_projections, is_real
from fusehash.search.rows import NO_IDS, Distances, Ids, Ints
from fusehash.search.servers import address as server
from fusehash.search.store import MemoryStore, Store
from fusehash.search.vectors import KINDS, MAX_DIM, VectorFormat

logger = logging.getLogger(__name__)

_N_BITS, _K, _THREADS = multiple_of(8), integer(1), optional(integer(1))
_RADIUS, _SCORE, _ESTIMATE = integer(0), real(0), real(-np.inf)
_FLAG = flag()
_LOOKED_AT = 2000  # codes of the index and new ones, to see whether bits are reversed
_NO_FACTORS = (
    "The index must keep factors for this; create it with factors=True, or by `fusehash index add --factors` with its "
    "first codes. It has none."
)
_VECTORS, _DIM, _CANDIDATES = optional(choice(*KINDS)), integer(1, MAX_DIM), optional(integer(1))
_warming: list[threading.Thread] = []
_ADDRESSES = f"an address that begins with one of {', '.join(server.SCHEMES)} and ://"


class HammingIndex:
    """Exact nearest-neighbor search over packed binary codes.

    Results are in order of (distance, id) and do not depend on the number of threads or on the order in which codes
    were added. Ids are 64-bit integers: pass your own, or let the index count up from 0. An id that was removed is
    never assigned again automatically. A call that raises has changed nothing. Several threads may share an index.

    Parameters
    ----------
    n_bits : int, default 64
        Width of the codes, a multiple of 8 up to 4,096.
    engine : str, default "scan"
        "scan", "numpy", "multi-index", "auto" or "torch" (exact, equal results), "faiss-ivf" or "faiss-hnsw"
        (approximate); see `fusehash.search.engines`. Or the address of a server that keeps the codes and answers
        (exact, equal results): "postgresql://user@host:5432/database?index=name" or "milvus://host:19530/name". An
        index that exists at the address is opened, else an empty one is created.
    threads : int, optional
        Threads per search; all cores by default.
    vectors : {"int8", "float16", "float32"}, optional
        Keep a vector next to every code, in these numbers, to rescore with.
    dim : int, optional
        Numbers per vector; needed with `vectors`.
    factors : bool, default False
        Keep two numbers per code, as `encode(..., with_factors=True)` returns them, and rank by them when queries are
        projections; see `fusehash.search.factors`.

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    IndexServerError
        If a server cannot be reached.

    Examples
    --------
    >>> import numpy as np
    >>> from fusehash import HammingIndex
    >>> index = HammingIndex(n_bits=16)
    >>> index.add(np.array([[0, 0], [255, 0], [1, 0]], np.uint8), ids=[10, 20, 30])
    array([10, 20, 30])
    >>> distances, ids = index.search(np.array([[3, 0]], np.uint8), k=2)
    >>> distances, ids
    (array([[1, 2]], dtype=int32), array([[30, 10]]))
    >>> offsets, distances, ids = index.range_search(np.array([[3, 0]], np.uint8), radius=1)
    >>> offsets, ids
    (array([0, 1]), array([30]))
    >>> index.search(np.array([[-2.0, 0.5] + 14 * [-1.0]]), k=2)  # the first bit weighs more than the second
    (array([[0.5, 2.5]]), array([[10, 30]]))
    >>> index.remove([10]), len(index), 10 in index
    (1, 2, False)
    """

    def __init__(
        self,
        n_bits: int = 64,
        *,
        engine: str | engines.Engine = "scan",
        threads: int | None = None,
        vectors: str | None = None,
        dim: int | None = None,
        factors: bool = False,
    ) -> None:
        n_bits = int(_N_BITS.check("HammingIndex", "n_bits", n_bits))
        form = _vector_format(vectors, dim)
        self._threads: int | None = _THREADS.check("HammingIndex", "threads", threads)
        self._store: Store
        if server.is_address(engine):
            _check_not_on_server(form, factors)
            self._store = server.connect(engine, n_bits)
        else:
            self._store = MemoryStore(n_bits, _make_engine(engine), form, _checked_flag(factors))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        n_bits: int | None = None,
        *,
        engine: str | engines.Engine = "scan",
        threads: int | None = None,
        timeout: float = 30.0,
        warm: bool = True,
        vectors: str | None = None,
        dim: int | None = None,
        factors: bool = False,
    ) -> HammingIndex:
        """Open an index in a file or on a server, or create one.

        When `add`, `remove`, `replace` or `compact` has returned, its effect survives kill -9 and loss of power. A call
        that was interrupted has changed nothing. Any number of processes may search while one writes; they see what has
        been committed.

        Parameters
        ----------
        path : str or path-like
            The file, or the address of a server.
        n_bits : int, optional
            Width of the codes. Needed to create an index; an existing one must have this width.
        engine, threads
            As in `HammingIndex`; servers search by themselves.
        timeout : float, default 30.0
            Seconds to wait while another process writes.
        warm : bool, default True
            Compile the kernels in the background.
        vectors, dim
            As in `HammingIndex`, to create an index; an existing one must have the same. The vectors stay in the file:
            a search reads those of its candidates.
        factors
            As in `HammingIndex`, to create an index; if True, an existing one must have factors.

        Returns
        -------
        index : HammingIndex
            Close it after use, or use it in a `with` statement.

        Raises
        ------
        ParameterError
            If a parameter is out of range or the index has another width.
        IndexFileError, IndexServerError
            If the file or server cannot be reached, or there is no index and `n_bits` is None.
        CorruptIndexError
            If the file is damaged or foreign. It is not modified.
        """
        if server.is_address(engine):
            expected = "an engine that searches a file; pass the address of a server as `path`"
            raise ParameterError("HammingIndex.open", "engine", expected, server.without_secrets(engine))
        if server.is_other_address(path):
            raise ParameterError("HammingIndex.open", "path", f"a file, or {_ADDRESSES}", server.scheme_of(path))
        searcher = _make_engine(engine)
        index = cls(64 if n_bits is None else n_bits, engine=searcher, threads=threads)
        width = None if n_bits is None else int(n_bits)
        form = _vector_format(vectors, dim)
        if server.is_address(path):
            _check_not_on_server(form, factors)
            index._store = server.connect(path, width, timeout=timeout)
            return index
        index._store = FileStore(path, width, searcher, timeout, form, _checked_flag(factors))
        if warm:
            _warm_up(index.n_bits)
        return index

    @property
    def n_bits(self) -> int:
        """Width of the codes."""
        return self._store.n_bits

    @property
    def dim(self) -> int | None:
        """Numbers per vector; None if the index keeps no vectors."""
        form = getattr(self._store, "form", None)
        return None if form is None else int(form.dim)

    @property
    def vector_kind(self) -> str | None:
        """How vectors are stored, as "int8", "float16" or "float32"; None if the index keeps none."""
        form = getattr(self._store, "form", None)
        return None if form is None else str(form.kind)

    @property
    def has_factors(self) -> bool:
        """Whether the index keeps factors."""
        return bool(getattr(self._store, "has_factors", False))

    @property
    def ids(self) -> Ids:
        """All ids, ascending (read-only)."""
        ids = self._store.ids().view()
        ids.flags.writeable = False
        return ids

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (int, np.integer)) or not -(1 << 63) <= id < 1 << 63:
            return False
        return bool(self._store.here(np.array([id], np.int64))[0])

    def __iter__(self) -> Iterator[tuple[Ids, Codes]]:
        return self.blocks()

    def blocks(self, size: int = 65536) -> Iterator[tuple[Ids, Codes]]:
        """Iterate over all codes, as they were when the iteration began.

        Parameters
        ----------
        size : int, default 65536
            Codes per block.

        Returns
        -------
        blocks : iterator of (ids, codes), in order of id
        """
        return self._store.blocks(int(_K.check("HammingIndex.blocks", "size", size)))

    def get(self, ids: ArrayLike) -> Codes:
        """Return the codes of some ids.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        codes : uint8 array, shape (n, n_bits / 8)

        Raises
        ------
        DataError
            If an id is not in the index.
        """
        return self._store.get(check_ids(ids))

    def get_vectors(self, ids: ArrayLike) -> NDArray[Any]:
        """Return the vectors of some ids, as they are stored.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        vectors : array, shape (n, dim)
            int8 or float32. Only "float32" keeps the lengths of vectors.

        Raises
        ------
        DataError
            If the index has no vectors, or an id is not in the index.
        """
        return self._local("vectors").vectors(check_ids(ids))

    def get_factors(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the factors of some ids.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        factors : float32 array, shape (n, 2)

        Raises
        ------
        DataError
            If the index has no factors, or an id is not in the index.
        """
        store = self._local("factors")
        if not store.has_factors:
            raise DataError(_NO_FACTORS)
        return store.factors(check_ids(ids))

    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        vectors: ArrayLike | None = None,
        factors: ArrayLike | None = None,
    ) -> Ids:
        """Add codes.

        In memory and in a file, warns if they resemble the codes in the index only with the bits of every byte
        reversed, as NumPy packs them by default. That can be said of 100 codes or more, next to 100 or more, whose bits
        are not all alike.

        Parameters
        ----------
        codes : uint8 array-like, shape (n, n_bits / 8)
        ids : array-like of int, shape (n,), optional
            By default, count on from the highest id ever used.
        vectors : float array-like, shape (n, dim), optional
            Needed if the index keeps vectors, and only then.
        factors : float array-like, shape (n, 2), optional
            Scale and offset of every code; needed if the index keeps factors, and only then.

        Returns
        -------
        ids : int64 array, shape (n,)
            The ids of the codes.

        Raises
        ------
        DataError
            If the codes have another width, an id occurs twice or is in the index already, or vectors or factors are
            missing, zero (vectors) or not finite.
        """
        packed = self._wide(check_codes(codes, self.n_bits), factors)
        kept = self._encoded_vectors(vectors, len(packed), must=True)
        new = None if ids is None else check_ids(ids, len(packed))
        if new is not None:
            check_different(new)
        if not len(packed):
            return NO_IDS.copy()
        self._warn_if_reversed(packed[:, : self.n_bits // 8])
        return self._store.add(new, packed) if kept is None else self._local("vectors").add(new, packed, kept)

    def remove(self, ids: ArrayLike) -> int:
        """Remove codes.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        count : int

        Raises
        ------
        DataError
            If an id is not in the index.
        """
        removed = np.unique(check_ids(ids))
        if len(removed):
            self._store.remove(removed)
        return len(removed)

    def replace(
        self,
        codes: ArrayLike,
        ids: ArrayLike,
        vectors: ArrayLike | None = None,
        factors: ArrayLike | None = None,
    ) -> None:
        """Replace the codes of ids that are in the index, all at once.

        Parameters
        ----------
        codes : uint8 array-like, shape (n, n_bits / 8)
        ids : array-like of int, shape (n,)
        vectors : float array-like, shape (n, dim), optional
            By default the vectors stay as they are.
        factors : float array-like, shape (n, 2), optional
            As in `add`: other codes have other factors.

        Raises
        ------
        DataError
            If the codes have another width, or an id occurs twice or is not in the index.
        """
        packed = self._wide(check_codes(codes, self.n_bits), factors)
        kept = self._encoded_vectors(vectors, len(packed), must=False)
        changed = check_ids(ids, len(packed))
        check_different(changed)
        order = np.argsort(changed, kind="stable")
        if not len(packed):
            return
        if kept is None:
            self._store.replace(changed[order], packed[order])
        else:
            self._local("vectors").replace(changed[order], packed[order], kept[order])

    def search(
        self,
        codes: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        threads: int | None = None,
        rescore: ArrayLike | None = None,
        candidates: int | None = None,
    ) -> tuple[NDArray[Any], Ids]:
        """Return the nearest codes of every query.

        Parameters
        ----------
        codes : uint8 array-like, shape (n_queries, n_bits / 8), or float array-like, shape (n_queries, n_bits)
            The queries: codes, compared by Hamming distance, or projections (one real number per bit, of which a code
            keeps the sign). The score of a code is then the sum of the |numbers| whose signs differ from its bits,
            each number rounded to a 2^-40th of the largest; see `fusehash.search.projections`. If the index keeps
            factors, it is minus their estimate, -(scale <code, numbers> + offset); see `fusehash.search.factors`.
        k : int
            Number of neighbors.
        allowed : array-like, optional
            Search only these ids (those that are not in the index are ignored), or a boolean mask over `ids`.
        threads : int, optional
            Threads for this search.
        rescore : float array-like, shape (n_queries, dim), optional
            The vectors of the queries: the nearest `candidates` by code are ordered by the cosine distance of their
            vectors, 1 - cos, and the first k returned. The index must keep vectors.
        candidates : int, optional
            By default 10 k, at least 100; never fewer than k.

        Returns
        -------
        distances : int32 array, shape (n_queries, min(k, codes searched))
            For projections their scores, float64; with `rescore` cosine distances, float32.
        ids : int64 array of the same shape
            In order of (distance, id).

        Raises
        ------
        ParameterError
            If `k` or `threads` is below 1.
        DataError
            If the queries have another width, are not finite or zero in all columns, or `allowed` is neither ids nor a
            mask.
        """
        queries = self._checked_queries(codes)
        k, threads = int(_K.check("HammingIndex.search", "k", k)), self._checked_threads(threads)
        if rescore is None:
            if candidates is not None:
                raise ParameterError("HammingIndex.search", "candidates", "None without `rescore`", candidates)
            return self._store.search(queries, k, _check_allowed(allowed), threads)
        store = self._local("vectors")
        vectors = check_floats(rescore, store.checked_form().dim, "Query vectors")
        if len(vectors) != len(queries):
            raise DataError(f"There must be one vector for each of {len(queries)} queries. Got {len(vectors)} instead.")
        count = _CANDIDATES.check("HammingIndex.search", "candidates", candidates)
        count = max(k, 100, 10 * k) if count is None else max(k, int(count))
        return store.rescored(queries, k, _check_allowed(allowed), threads, vectors, count)

    def range_search(
        self, codes: ArrayLike, radius: float, *, allowed: ArrayLike | None = None, threads: int | None = None
    ) -> tuple[Ints, NDArray[Any], Ids]:
        """Return all codes at most `radius` away from every query.

        Parameters
        ----------
        radius : int, or float for projections
            Largest Hamming distance or score; with factors a score may be negative.
        codes, allowed, threads
            As in `search`, and so are the errors.

        Returns
        -------
        offsets : int64 array, shape (n_queries + 1,)
            The results of query q are from `offsets[q]` to `offsets[q + 1]`.
        distances : int32 array, shape (n_results,)
            For projections their scores, float64.
        ids : int64 array, shape (n_results,)
            In order of (distance, id) for each query.
        """
        queries = self._checked_queries(codes)
        if isinstance(queries, Projections):
            rule = _ESTIMATE if self.has_factors else _SCORE
            radius = float(rule.check("HammingIndex.range_search", "radius", radius))
        else:
            radius = int(_RADIUS.check("HammingIndex.range_search", "radius", radius))
        return self._store.range_search(queries, radius, _check_allowed(allowed), self._checked_threads(threads))

    def pairs(self, radius: int, *, threads: int | None = None) -> Iterator[tuple[Ids, Ids, Distances]]:
        """Iterate over all pairs of codes at most `radius` apart, as they were when the iteration began.

        Exact, without comparing all codes with each other: see `fusehash.search.near`. Pairs come while the search goes
        on, and are not kept, so there may be more than fit into memory.

        Parameters
        ----------
        radius : int
            Largest Hamming distance.
        threads : int, optional
            Threads for this search.

        Returns
        -------
        blocks : iterator of (ids, other_ids, distances)
            Every pair once, the lower id first; blocks of pairs in no particular order.

        Examples
        --------
        >>> index = HammingIndex(n_bits=8)
        >>> index.add(np.array([[0], [255], [1]], np.uint8), ids=[10, 20, 30])
        array([10, 20, 30])
        >>> for ids, other_ids, distances in index.pairs(radius=1):
        ...     print(ids, other_ids, distances)
        [10] [30] [1]
        """
        from fusehash.search.near import near_pairs

        radius = int(_RADIUS.check("HammingIndex.pairs", "radius", radius))
        threads = self._checked_threads(threads)
        rows = self._store.rows()
        blocks = near_pairs(rows.codes, radius, threads)
        return ((rows.ids_at(first), rows.ids_at(second), distances) for first, second, distances in blocks)

    def groups(self, radius: int, *, threads: int | None = None) -> list[Ids]:
        """Return the connected groups of near codes: a chain of pairs within `radius` leads from each to each.

        Parameters
        ----------
        radius, threads
            As in `pairs`.

        Returns
        -------
        groups : list of int64 arrays
            The ids of every group of two or more, ascending; the largest group first, then by lowest id.
        """
        from fusehash.search.near import near_groups

        radius = int(_RADIUS.check("HammingIndex.groups", "radius", radius))
        rows = self._store.rows()
        return [rows.ids_at(group) for group in near_groups(rows.codes, radius, self._checked_threads(threads))]

    def compact(self) -> None:
        """Return unused memory and, in a file or on a server, the space that removals have left."""
        self._store.compact()

    def stats(self) -> dict[str, Any]:
        """Return numbers about the index.

        Returns
        -------
        stats : dict
            Number of codes, engine, bytes in memory; of a file its path, size and revision; of a server its address.
        """
        return self._store.stats()

    def close(self) -> None:
        """Release the file or the connection to the server. An index in memory stays usable."""
        self._store.close()

    def __enter__(self) -> HammingIndex:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HammingIndex of {self.n_bits} bits {self._store}>"

    def _local(self, what: str) -> MemoryStore:
        if not isinstance(self._store, MemoryStore):
            raise DataError(f"An index on a server has no {what}; keep it in memory or in a file.")
        return self._store

    def _encoded_vectors(self, vectors: ArrayLike | None, count: int, *, must: bool) -> Codes | None:
        """Vectors to store, as bytes."""
        form = getattr(self._store, "form", None)
        if vectors is None:
            if form is not None and must:
                raise DataError(f"The index keeps vectors: pass one of {form.dim} numbers for each code. Got none.")
            return None
        return self._local("vectors").checked_form().encoded(vectors, count)

    def _wide(self, codes: Codes, factors: ArrayLike | None) -> Codes:
        """Codes with the bytes of their factors."""
        if factors is None:
            if self.has_factors:
                raise DataError("The index keeps factors: pass two numbers for each code. Got none.")
            return codes
        if not self._local("factors").has_factors:
            raise DataError(_NO_FACTORS)
        return np.hstack([codes, encoded(factors, len(codes))])

    def _warn_if_reversed(self, codes: Codes) -> None:
        if isinstance(self._store, MemoryStore) and looks_reversed(codes, self._store.rows().codes, _LOOKED_AT):
            warn(
                "The new codes look bit-reversed: with the bits of every byte in the other order they resemble the "
                "codes in the index, as they are they do not. The first bit belongs into the lowest bit of a byte."
            )

    def _checked_queries(self, queries: ArrayLike) -> Codes | Projections:
        """Codes, or real numbers as projections."""
        if not is_real(queries):
            return check_codes(queries, self.n_bits, what="Query codes")
        if not isinstance(self._store, MemoryStore):
            raise DataError("Queries to an index on a server must be uint8 codes. Got floats instead.")
        return check_projections(queries, self.n_bits)

    def _checked_threads(self, threads: int | None) -> int | None:
        return self._threads if threads is None else int(_THREADS.check("HammingIndex", "threads", threads))


def _make_engine(engine: str | engines.Engine) -> engines.Engine:
    expected = f"one of {', '.join(engines.NAMES)}, or {_ADDRESSES}"
    if isinstance(engine, str) and "://" in engine:  # an unknown address, which may contain a password
        raise ParameterError("HammingIndex", "engine", expected, server.scheme_of(engine))
    return engines.make(engine, expected)


def _vector_format(vectors: str | None, dim: int | None) -> VectorFormat | None:
    _VECTORS.check("HammingIndex", "vectors", vectors)
    if (vectors is None) != (dim is None):
        expected = "None without `vectors`" if vectors is None else "the numbers per vector"
        raise ParameterError("HammingIndex", "dim", expected, dim)
    return None if vectors is None else VectorFormat(vectors, int(_DIM.check("HammingIndex", "dim", dim)))


def _check_not_on_server(form: VectorFormat | None, factors: bool) -> None:
    if form is not None:
        raise ParameterError("HammingIndex", "vectors", "None for an index on a server", form.kind)
    if factors:
        raise ParameterError("HammingIndex", "factors", "False for an index on a server", factors)


def _checked_flag(factors: bool) -> bool:
    return bool(_FLAG.check("HammingIndex", "factors", factors))


def _check_allowed(allowed: ArrayLike | None) -> NDArray[Any] | None:
    """None, a mask, or ids without repetition."""
    if allowed is None:
        return None
    chosen = np.asarray(allowed)
    return chosen if chosen.dtype == bool else np.unique(check_ids(chosen))


@cache
def _warm_up(n_bits: int) -> None:
    """Compile the kernels of this width on another thread, once per process."""

    def work() -> None:
        try:
            warm_up(n_bits)
        except Exception as error:
            logger.warning("the kernels for %d bits could not be compiled ahead: %s", n_bits, error)

    # Not a daemon: a process must not end in the middle of a compilation.
    thread = threading.Thread(target=work, name="fusehash-warm-up")
    _warming.append(thread)
    thread.start()


def _finish_warm_up() -> None:
    """Before a fork: a child would wait for ever for the locks of a compiler thread that it does not have."""
    while _warming:
        with contextlib.suppress(RuntimeError):  # not started yet, or this very thread
            _warming.pop().join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_warm_up)
