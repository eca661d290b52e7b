"""Exact search by real-valued queries over codes with factors: weighted.py divides the work, and bounds.py does it."""

from __future__ import annotations

import math

import numpy as np

from fusehash.search.engines.weighted import InScore, Kernel, NearestScores, nearest_by, within_by
from fusehash.search.factors import factors_of
from fusehash.search.projections import Projections
from fusehash.search.rows import Allowed, CodeRows, Threads


def search(rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads) -> NearestScores:
    """Distances and positions of the k codes with the smallest distances, in order of (distance, position)."""
    return nearest_by(_kernel(rows, queries), rows, len(queries), k, allowed, threads)


def range_search(rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads) -> InScore:
    """All codes whose distance is at most `radius`: offsets, distances, positions."""
    limits = np.full(len(queries), math.nextafter(radius, math.inf))
    return within_by(_kernel(rows, queries), rows, limits, allowed, threads)


def _kernel(rows: CodeRows, queries: Projections) -> Kernel:
    from fusehash.search.engines.bounds import nearest

    factors = factors_of(rows)
    return Kernel(nearest, lambda block: (factors, queries.weights[block], queries.steps[block]), np.float64(np.inf))
