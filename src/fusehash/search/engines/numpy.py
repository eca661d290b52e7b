"""The exact search in NumPy alone: the same results as scan.py, for comparison.

A distance and a position become one integer, `distance << 40 | position`; the smallest are the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusehash.bits import Codes, distances_to, unpacked
from fusehash.search.factors import decoded, distances_of
from fusehash.search.projections import Projections, Scores
from fusehash.search.rows import Allowed, CodeRows, InRange, Ints, Nearest, Threads

SHIFT = 40  # a key is distance << 40 | position
_BLOCK = 1 << 14  # codes unpacked at a time


class NumpyEngine:
    """Compares every code on one thread."""

    name = "numpy"

    @property
    def weighted(self) -> NumpyWeighted:
        """For real-valued queries."""
        return NumpyWeighted(_scores)

    @property
    def estimates(self) -> NumpyWeighted:
        """For real-valued queries and codes with factors."""
        return NumpyWeighted(_estimates)

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        best = np.empty((len(queries), k), np.int64)
        for q, query in enumerate(queries):
            keys = _keys(rows, query, allowed)
            best[q] = np.sort(np.partition(keys, k)[:k] if k < len(keys) else keys)
        return split(best)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        near = [np.empty(0, np.int64)]
        for query in queries:
            keys = _keys(rows, query, allowed)
            near.append(np.sort(keys[keys < (radius + 1) << SHIFT]))
        offsets = np.cumsum([len(keys) for keys in near], dtype=np.int64)
        return offsets, *split(np.concatenate(near))


class NumpyWeighted:
    """Computes the score of every code, on one thread."""

    def __init__(self, score: Callable[[CodeRows, Projections, int, Allowed], tuple[Scores, Ints]]) -> None:
        self._score = score

    def search(
        self, rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads
    ) -> tuple[Scores, Ints]:
        scores, positions = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)
        for q in range(len(queries)):
            all_scores, where = self._score(rows, queries, q, allowed)
            order = np.argsort(all_scores, kind="stable")[:k]
            scores[q], positions[q] = all_scores[order], where[order]
        return scores, positions

    def range_search(
        self, rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads
    ) -> tuple[Ints, Scores, Ints]:
        scores, positions, counts = [np.empty(0)], [np.empty(0, np.int64)], [0]
        for q in range(len(queries)):
            all_scores, where = self._score(rows, queries, q, allowed)
            near = np.flatnonzero(all_scores <= radius)
            near = near[np.argsort(all_scores[near], kind="stable")]
            scores.append(all_scores[near])
            positions.append(where[near])
            counts.append(len(near))
        return np.cumsum(counts, dtype=np.int64), np.concatenate(scores), np.concatenate(positions)


def _scores(rows: CodeRows, queries: Projections, q: int, allowed: Allowed) -> tuple[Scores, Ints]:
    """The scores of all codes or the allowed ones, and their positions."""
    differing, positions = _differing(rows, queries, q, allowed)
    return differing * queries.steps[q], positions


def _estimates(rows: CodeRows, queries: Projections, q: int, allowed: Allowed) -> tuple[Scores, Ints]:
    """The distances of codes with factors, and their positions."""
    differing, positions = _differing(rows, queries, q, allowed)
    total, factors = np.abs(queries.weights[q]).sum(), decoded(rows.extras[positions])
    return distances_of(differing, total, queries.steps[q], factors), positions


def _differing(rows: CodeRows, queries: Projections, q: int, allowed: Allowed) -> tuple[Ints, Ints]:
    """The sums of the weights that differ, and the positions of the codes."""
    positions = np.arange(len(rows)) if allowed is None else allowed
    weights, signs = np.abs(queries.weights[q]), queries[q : q + 1].signs
    scores = np.empty(len(positions), np.int64)
    for start in range(0, len(positions), _BLOCK):
        part = slice(start, start + _BLOCK)
        scores[part] = unpacked(rows.codes[positions[part]] ^ signs) @ weights
    return scores, positions


def _keys(rows: CodeRows, query: Codes, allowed: Allowed) -> Ints:
    if allowed is None:
        return distances_to(query, rows.codes) << SHIFT | np.arange(len(rows))
    return distances_to(query, rows.codes[allowed]) << SHIFT | allowed


def split(keys: Ints) -> Nearest:
    """Distances and positions from keys."""
    return (keys >> SHIFT).astype(np.int32), keys & ((1 << SHIFT) - 1)
