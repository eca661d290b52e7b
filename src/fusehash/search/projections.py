"""Real-valued queries: the score of a query against a code, defined so that every engine computes the same number.

A query p (one real number per bit) and a code b differ where p_j > 0 and bit j is 0, or p_j < 0 and bit j is 1. The
score of the code is the sum of |p_j| over the bits that differ: the Hamming distance, if all |p_j| are 1.

    Every |p_j| is rounded once, to a multiple of step = 2^(e - 40), where 2^e is the smallest power of two above the
    largest |p_j| of the query. From then on all is exact: a sum of up to 4096 such numbers fits into 53 bits, so that a
    double holds it whatever the order of summation.

Single-precision projections lose nothing unless they are less than 2^-16 of the largest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, pack
from fusehash.errors import DataError
from fusehash.search.rows import Ints

Scores = NDArray[np.float64]
_WEIGHT_BITS = 40
_LOWEST, _HIGHEST = -980, 1e300  # so that steps and scores are doubles too; smaller projections count as 0


@dataclass(frozen=True)
class Projections:
    """Queries as whole numbers: `weights` (queries, n_bits), with the signs of the queries; a score is a whole
    number times the `step` of its query."""

    weights: Ints
    steps: Scores

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, part: slice) -> Projections:
        return Projections(self.weights[part], self.steps[part])

    @property
    def signs(self) -> Codes:
        """The signs as packed codes."""
        return pack(self.weights)

    def limits(self, radius: float) -> Ints:
        """For each query, the smallest whole number whose score is above `radius`."""
        whole = np.floor(np.minimum(radius / self.steps, 2.0**53))
        return whole.astype(np.int64) + 1


def is_real(queries: Any) -> bool:
    """Whether queries are projections rather than packed codes."""
    try:
        return np.asarray(queries).dtype.kind == "f"
    except ValueError:  # rows of unequal length
        return False


def check_projections(queries: ArrayLike, n_bits: int) -> Projections:
    """Projections from an (n, n_bits) matrix of real numbers; DataError unless they are finite and not all zero."""
    what = "Queries of floats, as `project` of a model returns them,"
    return quantized(_matrix(queries, n_bits, what), what)


def check_real(matrix: ArrayLike, width: int, what: str) -> NDArray[np.float64]:
    """An (n, width) matrix of real numbers in double precision; DataError for NaN, infinity and rows of zeros."""
    return check_floats(matrix, width, what).astype(np.float64)


def check_floats(matrix: ArrayLike, width: int, what: str) -> NDArray[np.floating[Any]]:
    """The same in the precision in which it comes, without copies of it."""
    values = _matrix(matrix, width, what)
    with np.errstate(over="ignore"):  # of longer floats
        lowest, highest = (
            extreme(values, axis=1, initial=0.0).astype(np.float64) for extreme in (np.min, np.max)
        )  # NaN if one is
    is_finite = (highest <= _HIGHEST) & (lowest >= -_HIGHEST)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise DataError(f"{what} must be finite. Row {row} has NaN, infinity or numbers beyond 1e300.")
    is_zero = (lowest == 0) & (highest == 0)
    if is_zero.any():
        row = int(np.argmax(is_zero))
        raise DataError(f"{what} must not be zero in all columns. Row {row} is, which has no direction.")
    return values


def _matrix(matrix: ArrayLike, width: int, what: str) -> NDArray[np.floating[Any]]:
    """An (n, width) matrix of floats, whatever they are."""
    try:
        values = np.asarray(matrix)
    except ValueError:
        raise DataError(f"{what} must be a matrix of floats. Got rows of unequal length instead.") from None
    if values.ndim != 2 or values.shape[1] != width or values.dtype.kind != "f":
        raise DataError(
            f"{what} must be a matrix of floats of shape (n, {width}). Got {values.dtype} of shape {values.shape} "
            "instead."
        )
    return values


def quantized(real: NDArray[np.floating[Any]], what: str = "Queries") -> Projections:
    """Every row as whole numbers of its step; DataError unless they are finite and not all zero."""
    from fusehash.search.rounding import round_to_steps

    with np.errstate(over="ignore"):  # of longer floats
        values = np.array(real, np.float64, order="C")
    made = Projections(np.empty(values.shape, np.int64), np.empty(len(values)))
    if round_to_steps(values, _WEIGHT_BITS, _LOWEST, _HIGHEST, made.weights, made.steps) < len(values):
        check_floats(values, values.shape[1], what)
    return made
