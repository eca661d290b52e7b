"""From codes to rankings: for one query, the tie groups of the database, nearest first.

The type of the queries selects the distance:
- packed uint8 codes (n, bytes): Hamming distance to the packed database codes;
- float projections (n, n_bits), "asymmetric": distance -<p, b> to the database codes b in {-1, +1}. Ties are equal
  floats.
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
from fusehash.parameters import choice, integer, optional

Ties: TypeAlias = Literal["expected", "stable", "best", "worst"]
TIES: tuple[Ties, ...] = ("expected", "stable", "best", "worst")
# How the compiled kernels spell an order inside tie groups; "stable" has no ties left and is its own expectation.
ORDER: dict[str, int] = {"expected": 0, "stable": 0, "best": 1, "worst": -1}

# Entries of relevance (one byte to eight each) that a block of queries may hold at once, per thread.
BLOCK_ENTRIES = 1 << 22


class Ranking:
    """The order in which a database answers queries, one query at a time."""

    def __init__(self, query_codes: Any, database_codes: Any) -> None:
        self._codes = check_codes(database_codes, what="Database codes")
        queries = np.asarray(query_codes)
        self.is_hamming = queries.dtype.kind != "f"  # queries are codes, not projections
        self._queries: NDArray[Any]
        if not self.is_hamming:
            self._queries = self._check_projections(queries)
        else:
            packed = check_codes(queries, what="Query codes")
            if packed.shape[1] != self._codes.shape[1]:
                raise DataError(
                    "Query and database codes must have equal numbers of bytes per row. "
                    f"Got {packed.shape[1]} and {self._codes.shape[1]}."
                )
            self._queries = np.ascontiguousarray(kernels.to_words(packed).T)
            self._words = kernels.to_words(self._codes)
        self.n_queries, self.n_items = len(self._queries), len(self._codes)
        if self.n_queries == 0 or self.n_items == 0:
            raise DataError(
                f"Queries and database must have rows. Got {self.n_queries} queries and {self.n_items} database items."
            )

    @property
    def max_distance(self) -> int:
        """The largest Hamming distance that the codes allow."""
        return 8 * int(self._codes.shape[1])

    def average_precisions(
        self,
        block: slice,
        relevant: NDArray[np.uint8],
        k: int,
        stable: bool,
        values: NDArray[np.float64],
        has_relevant: NDArray[np.bool_],
    ) -> None:
        """AP@k of a block of codes, into their places of `values`."""
        kernels.ap_of_queries(
            self._queries[block], self._words, self.max_distance + 1, np.ascontiguousarray(relevant), k, stable,
            values[block], has_relevant[block],
        )  # fmt: skip

    def partners(self, block: slice, positions: NDArray[np.int64]) -> None:
        """Where the partners of a block of codes stand: nearer, tied before, tied."""
        kernels.partners_of_queries(self._queries[block], self._words, block.start, positions[:, block])

    def levels(self, query: int, *, stable: bool = False) -> tuple[NDArray[np.int32], int]:
        """A level per item (smaller is nearer, equal is tied) and the number of levels; stable: ranks, without ties."""
        if not self.is_hamming:
            levels, n_levels = self._asymmetric_levels(query)
        else:
            levels, n_levels = np.empty(self.n_items, dtype=np.int32), self.max_distance + 1
            kernels.hamming_levels(self._queries[query], self._words, levels)
        if stable:
            kernels.break_ties_in_order(levels, n_levels)
            n_levels = self.n_items
        return levels, n_levels

    def group_hits(
        self, query: int, relevant: NDArray[np.uint8], *, stable: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Items and relevant items of every tie group, nearest group first."""
        levels, n_levels = self.levels(query, stable=stable)
        sizes, hits = np.zeros(n_levels, dtype=np.int64), np.zeros(n_levels, dtype=np.int64)
        kernels.group_hits(levels, relevant, sizes, hits)
        return sizes, hits

    def group_gains(
        self, query: int, gains: NDArray[np.float64], *, stable: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Items and the sum of gains of every tie group, nearest group first."""
        levels, n_levels = self.levels(query, stable=stable)
        sizes, sums = np.zeros(n_levels, dtype=np.int64), np.zeros(n_levels)
        kernels.group_gains(levels, gains, sizes, sums)
        return sizes, sums

    def for_each_block(self, work: Callable[[slice], None]) -> None:
        """Call `work` for slices that cover the queries, on all cores; it must write only to its own rows."""
        cores = n_cores()
        size = max(1, min(BLOCK_ENTRIES // self.n_items, -(-self.n_queries // (2 * cores))))
        blocks = [slice(start, min(start + size, self.n_queries)) for start in range(0, self.n_queries, size)]
        if cores == 1 or self.n_queries * self.n_items < 100_000:  # threads would cost more than they save
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(cores) as pool:
            for _ in pool.map(work, blocks):
                pass

    def _asymmetric_levels(self, query: int) -> tuple[NDArray[np.int32], int]:
        distances = np.empty(self.n_items)
        kernels.asymmetric_distances(self._queries[query], self._codes, distances)
        order = np.argsort(distances)
        ascending = distances[order]
        numbers = np.zeros(self.n_items, dtype=np.int32)
        np.cumsum(ascending[1:] != ascending[:-1], out=numbers[1:])
        levels = np.empty(self.n_items, dtype=np.int32)
        levels[order] = numbers
        return levels, int(numbers[-1]) + 1

    def _check_projections(self, projections: NDArray[Any]) -> NDArray[np.float64]:
        if projections.ndim != 2:
            raise DataError(
                f"Query projections must be a matrix (n, n_bits). Got an array of shape {projections.shape} instead."
            )
        width = self._codes.shape[1]
        if n_bytes(projections.shape[1]) != width:
            raise DataError(
                f"Query projections must have a column per bit of the database codes ({8 * width - 7} to {8 * width}). "
                f"Got {projections.shape[1]} instead."
            )
        if not np.isfinite(projections).all():
            raise DataError("Query projections must be finite numbers. Got NaN or infinity.")
        return np.ascontiguousarray(projections, dtype=np.float64)


# -- parameters that metrics share -----------------------------------------------------------------------------------


def check_ties(ties: Any, owner: str, allowed: tuple[Ties, ...] = TIES) -> None:
    """Raise unless `ties` is one of the allowed orders."""
    choice(*allowed).check(owner, "ties", ties)


def check_k(k: Any, owner: str, n_items: int) -> int:
    """The cut as a number of ranks, at most the size of the database; None is the whole database."""
    optional(integer(1)).check(owner, "k", k)
    return n_items if k is None else min(int(k), n_items)


def check_ranks(ranks: Any, owner: str, name: str, n_items: int | None = None) -> NDArray[np.int64]:
    """Cuts as an array of integers >= 1 and, with n_items, at most n_items."""
    rule = integer(1, n_items, "" if n_items is None else ", the number of database items")
    listed = list(ranks) if isinstance(ranks, Iterable) else [ranks]
    for rank in listed or [None]:
        if not rule.accepts(rank):
            expected = rule.expected.replace("an integer", "one or more integers")
            raise ParameterError(owner, name, expected, rank if listed else ranks)
    return np.array(listed, dtype=np.int64)
