"""HammingIndex: codes and their ids, searched exactly; in memory, in a file, or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes
from fusehash.errors import DataError, ParameterError
from fusehash.search import engines
from fusehash.search.arguments import (
    ADDRESSES,
    CANDIDATES,
    ESTIMATE,
    N_BITS,
    RADIUS,
    SCORE,
    THREADS,
    K,
    check_allowed,
    check_not_on_server,
    checked_flag,
    make_engine,
    vector_format,
)
from fusehash.search.contents import IndexContents
from fusehash.search.file import FileStore
from fusehash.search.projections import Projections, check_floats, check_projections, is_real
from fusehash.search.rows import Distances, Ids, Ints
from fusehash.search.servers import address as server
from fusehash.search.store import MemoryStore
from fusehash.search.warming import warm_up_soon


class HammingIndex(IndexContents):
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
        n_bits = int(N_BITS.check("HammingIndex", "n_bits", n_bits))
        form = vector_format(vectors, dim)
        self._threads: int | None = THREADS.check("HammingIndex", "threads", threads)
        if server.is_address(engine):
            check_not_on_server(form, factors)
            self._store = server.connect(engine, n_bits)
        else:
            self._store = MemoryStore(n_bits, make_engine(engine), form, checked_flag(factors))

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
            raise ParameterError("HammingIndex.open", "path", f"a file, or {ADDRESSES}", server.scheme_of(path))
        searcher = make_engine(engine)
        index = cls(64 if n_bits is None else n_bits, engine=searcher, threads=threads)
        width = None if n_bits is None else int(n_bits)
        form = vector_format(vectors, dim)
        if server.is_address(path):
            check_not_on_server(form, factors)
            index._store = server.connect(path, width, timeout=timeout)
            return index
        index._store = FileStore(path, width, searcher, timeout, form, checked_flag(factors))
        if warm:
            warm_up_soon(index.n_bits)
        return index

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
        k, threads = int(K.check("HammingIndex.search", "k", k)), self._checked_threads(threads)
        if rescore is None:
            if candidates is not None:
                raise ParameterError("HammingIndex.search", "candidates", "None without `rescore`", candidates)
            return self._store.search(queries, k, check_allowed(allowed), threads)
        store = self._local("vectors")
        vectors = check_floats(rescore, store.checked_form().dim, "Query vectors")
        if len(vectors) != len(queries):
            raise DataError(f"There must be one vector for each of {len(queries)} queries. Got {len(vectors)} instead.")
        count = CANDIDATES.check("HammingIndex.search", "candidates", candidates)
        count = max(k, 100, 10 * k) if count is None else max(k, int(count))
        return store.rescored(queries, k, check_allowed(allowed), threads, vectors, count)

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
            rule = ESTIMATE if self.has_factors else SCORE
            radius = float(rule.check("HammingIndex.range_search", "radius", radius))
        else:
            radius = int(RADIUS.check("HammingIndex.range_search", "radius", radius))
        return self._store.range_search(queries, radius, check_allowed(allowed), self._checked_threads(threads))

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
        >>> import numpy as np
        >>> index = HammingIndex(n_bits=8)
        >>> index.add(np.array([[0], [255], [1]], np.uint8), ids=[10, 20, 30])
        array([10, 20, 30])
        >>> for ids, other_ids, distances in index.pairs(radius=1):
        ...     print(ids, other_ids, distances)
        [10] [30] [1]
        """
        from fusehash.search.near import near_pairs

        radius = int(RADIUS.check("HammingIndex.pairs", "radius", radius))
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

        radius = int(RADIUS.check("HammingIndex.groups", "radius", radius))
        rows = self._store.rows()
        return [rows.ids_at(group) for group in near_groups(rows.codes, radius, self._checked_threads(threads))]

    def __enter__(self) -> HammingIndex:
        return self

    def _checked_queries(self, queries: ArrayLike) -> Codes | Projections:
        """Codes, or real numbers as projections."""
        if not is_real(queries):
            return check_codes(queries, self.n_bits, what="Query codes")
        if not isinstance(self._store, MemoryStore):
            raise DataError("Queries to an index on a server must be uint8 codes. Got floats instead.")
        return check_projections(queries, self.n_bits)

    def _checked_threads(self, threads: int | None) -> int | None:
        return self._threads if threads is None else int(THREADS.check("HammingIndex", "threads", threads))
