"""From codes to rankings: for one query, the tie groups of the database, nearest first.

The type of the queries selects the distance: packed uint8 codes (n, bytes) rank by Hamming distance, float projections
p (n, n_bits) by -<p, b> to the database codes b in {-1, +1} ("asymmetric"). Ties are equal distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import check_codes, n_bytes
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import kernels
from fusehash.numerics.parallel import n_cores
from fusehash.parameters import integer, optional

Ties: TypeAlias = Literal["expected", "stable", "best", "worst"]
TIES: tuple[Ties, ...] = ("expected", "stable", "best", "worst")
Cut: TypeAlias = int | None  # a number of ranks; None is the whole database
# The order inside tie groups as compiled kernels expect it; "stable" has no ties left, so its expectation is exact.
ORDER: dict[str, int] = {"expected": 0, "stable": 0, "best": 1, "worst": -1}

# Entries of relevance (one byte to eight each) that a block of queries may hold at once, per thread.
BLOCK_ENTRIES = 1 << 22


class Ranking:
    """The order in which a database answers queries.

    `queries` are 64-bit words of codes (n_queries, words) or projections; `words` (words, n_items) the database codes.
    """

    def __init__(self, query_codes: Any, database_codes: Any) -> None:
        self._codes = check_codes(database_codes, what="Database codes")
        self.max_distance = 8 * self._codes.shape[1]
        queries = np.asarray(query_codes)
        self.is_hamming = queries.dtype.kind != "f"  # queries are codes, not projections
        if self.is_hamming:
            packed = check_codes(queries, what="Query codes")
            if packed.shape[1] != self._codes.shape[1]:
                widths = f"{packed.shape[1]} and {self._codes.shape[1]}"
                raise DataError(f"Query and database codes must have equal numbers of bytes per row. Got {widths}.")
            self.queries: NDArray[Any] = np.ascontiguousarray(kernels.to_words(packed).T)
            self.words = kernels.to_words(self._codes)
        else:
            self.queries = self._check_projections(queries)
        self.n_queries, self.n_items = len(self.queries), len(self._codes)
        if self.n_queries == 0 or self.n_items == 0:
            raise DataError(
                f"Queries and database must have rows. Got {self.n_queries} queries and {self.n_items} database items."
            )

    def levels(self, query: int, *, stable: bool = False) -> tuple[NDArray[np.int32], int]:
        """A level per item (smaller is nearer, equal is tied) and the number of levels; stable: ranks, without ties."""
        levels, n_levels = np.empty(self.n_items, dtype=np.int32), self.max_distance + 1
        if self.is_hamming:
            kernels.hamming_levels(self.queries[query], self.words, levels)
        else:
            distances = np.empty(self.n_items)
            kernels.asymmetric_distances(self.queries[query], self._codes, distances)
            order = np.argsort(distances)
            ascending = distances[order]
            levels[order] = np.append(0, np.cumsum(ascending[1:] != ascending[:-1]))
            n_levels = int(levels[order[-1]]) + 1
        if stable:
            kernels.break_ties_in_order(levels, n_levels)
            n_levels = self.n_items
        return levels, n_levels

    def groups(self, query: int, values: NDArray[Any], *, stable: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
        """Number of items and sum of values of every tie group, nearest group first; 0/1 bytes are counted."""
        levels, n_levels = self.levels(query, stable=stable)
        sizes = np.zeros(n_levels, dtype=np.int64)
        sums = np.zeros(n_levels, dtype=np.int64 if values.dtype == np.uint8 else np.float64)
        kernels.group_sums(levels, values, sizes, sums)
        return sizes, sums

    def for_each_block(self, work: Callable[[slice], None]) -> None:
        """Call `work` for slices that cover the queries, on all cores; it must write only to rows of its slice."""
        cores = n_cores()
        size = max(1, min(BLOCK_ENTRIES // self.n_items, -(-self.n_queries // (2 * cores))))
        blocks = [slice(start, min(start + size, self.n_queries)) for start in range(0, self.n_queries, size)]
        few = cores == 1 or self.n_queries * self.n_items < 100_000  # threads would cost more than they save
        with ThreadPoolExecutor(cores) as pool:
            run = map if few else pool.map
            list(run(work, blocks))

    def _check_projections(self, projections: NDArray[Any]) -> NDArray[np.float64]:
        if projections.ndim != 2 or n_bytes(projections.shape[1]) != self._codes.shape[1]:
            raise DataError(
                "Query projections must be a matrix with a column per bit of the database codes "
                f"({self.max_distance - 7} to {self.max_distance}). Got an array of shape {projections.shape} instead."
            )
        if not np.isfinite(projections).all():
            raise DataError("Query projections must be finite numbers. Got NaN or infinity.")
        return np.ascontiguousarray(projections, dtype=np.float64)


def check_k(k: Any, owner: str, n_items: int) -> int:
    """The cut as a number of ranks, at most the size of the database; None is the whole database."""
    if k is None:
        return n_items
    if not integer(1).accepts(k):
        optional(integer(1)).check(owner, "k", k)
    return min(int(k), n_items)


def check_ranks(ranks: Any, owner: str, name: str, n_items: int | None = None) -> NDArray[np.int64]:
    """Cuts as an array of integers >= 1 and, with n_items, at most n_items."""
    rule = integer(1, n_items, "" if n_items is None else ", the number of database items")
    listed = list(ranks) if isinstance(ranks, Iterable) else [ranks]
    for rank in listed or [None]:
        if not rule.accepts(rank):
            expected = rule.expected.replace("an integer", "one or more integers")
            raise ParameterError(owner, name, expected, rank if listed else ranks)
    return np.array(listed, dtype=np.int64)
