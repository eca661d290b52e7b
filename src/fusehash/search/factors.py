"""Factors: two numbers per code with which real-valued queries estimate a product instead of adding up differences.

A code b in {-1, +1} with the scale s >= 0 and the offset o has, for a query with projections p, the estimate
s <b, p> + o; the distance is minus that, so that smaller is nearer. All engines return the same number:

    <b, p> = step (T - 2 d) is exact, with T and d the sums of all whole weights and of those that differ (see
    projections.py). The product with s and the sum with o are then each rounded once, to double precision; what is
    beyond the largest double becomes that.

Factors are single-precision numbers, kept in the extras of a row (rows.py): eight bytes per code. They do not matter to
queries that are codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.rows import CodeRows, Ints

N_BYTES = 8
LARGEST = float(np.finfo(np.float64).max)
SCHEMA = ("CREATE TABLE factors (only INTEGER PRIMARY KEY, per_code INTEGER)",)
Factors = NDArray[np.float32]


def encoded(factors: ArrayLike, count: int) -> Codes:
    """Factors as rows of bytes; there must be `count`."""
    try:
        values = np.asarray(factors)
    except ValueError:
        raise DataError("Factors must be a matrix of floats. Got rows of unequal length instead.") from None
    if values.shape != (count, 2) or values.dtype.kind != "f":
        expected = f"Factors must be a matrix of floats of shape ({count}, 2), one row per code."
        raise DataError(f"{expected} Got {values.dtype} of shape {values.shape} instead.")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, "<f4")
    if not np.isfinite(single).all():
        raise DataError("Factors must be finite in single precision. Got NaN, infinity or larger numbers.")
    if (single[:, 0] < 0).any():
        raise DataError("The first factor of a code is a scale and must not be negative. Got one that is.")
    return single.view(np.uint8)


def decoded(extras: Codes) -> Factors:
    """The factors in rows of extras."""
    return np.ascontiguousarray(extras[:, :N_BYTES]).view("<f4").astype(np.float32, copy=False)


def factors_of(rows: CodeRows) -> Factors | None:
    """All factors, one row per code; None if codes have none."""
    return decoded(rows.extras) if rows.extras.shape[1] else None


def distances_of(differing: Ints, total: Any, step: Any, factors: Factors) -> NDArray[np.float64]:
    """Distances of codes from the sums of the weights that differ; `total` and `step` of their queries."""
    scales, offsets = factors[:, 0].astype(np.float64), factors[:, 1].astype(np.float64)
    products = (total - 2 * differing).astype(np.float64) * step
    with np.errstate(over="ignore"):
        return np.clip(0.0 - (scales * products + offsets), -LARGEST, LARGEST)
