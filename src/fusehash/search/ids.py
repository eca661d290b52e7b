"""Checks of ids that callers pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import DataError

Ids = NDArray[np.int64]
Ints = NDArray[np.int64]

HIGHEST = int(np.iinfo(np.int64).max)


def find(ascending: Ids, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Whether each id is among ascending ones, and its position (or the position at which it would be)."""
    positions = np.searchsorted(ascending, ids)
    if not len(ascending):
        return np.zeros(len(ids), bool), positions
    return ascending[np.minimum(positions, len(ascending) - 1)] == ids, positions


def check_ids(ids: ArrayLike, count: int | None = None) -> Ids:
    """Ids as a vector of 64-bit integers, `count` of them."""
    vector = np.asarray(ids)
    if vector.size == 0:
        vector = vector.astype(np.int64)
    if vector.dtype == object and all(isinstance(id, (int, np.integer)) for id in vector.ravel()):
        raise DataError("Ids must be 64-bit integers. Got larger ones.")
    if vector.ndim != 1 or vector.dtype.kind not in "iu":
        raise DataError(f"Ids must be a vector of integers. Got {vector.dtype} of shape {vector.shape} instead.")
    if vector.dtype == np.uint64 and vector.size and int(vector.max()) > HIGHEST:
        raise DataError(f"Ids must be 64-bit integers. Got {vector.max()} instead.")
    if count is not None and len(vector) != count:
        raise DataError(f"There must be one id for each of {count} codes. Got {len(vector)} instead.")
    return vector.astype(np.int64)


def check_different(ids: Ids) -> None:
    """No id may occur twice."""
    values, counts = np.unique(ids, return_counts=True)
    if len(values) != len(ids):
        raise DataError(f"Ids must differ from each other. Got {values[counts > 1][0]} more than once.")


def check_new(taken: Ids) -> None:
    """`taken` are the ids to add that are in the index already; there must be none."""
    if len(taken):
        raise DataError(f"Ids must be new. Id {taken[0]} is in the index already; replace() changes its code.")


def check_here(ids: Ids, here: NDArray[np.bool_]) -> None:
    """Every id must be in the index."""
    if not here.all():
        missing = ids[~here]
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"Ids must be in the index. Id {missing[0]}{others} is not.")


def count_on(last_id: int, count: int) -> Ids:
    """The next `count` ids after the highest one ever used."""
    if last_id + count > HIGHEST:
        raise DataError("There are no higher ids left; pass ids.")
    return np.arange(last_id + 1, last_id + 1 + count, dtype=np.int64)


def selected(mask: NDArray[np.bool_], count: int) -> Ints:
    """Positions that a mask over `count` codes selects."""
    if mask.shape != (count,):
        raise DataError(f"A mask must have one entry for each of {count} codes. Got shape {mask.shape} instead.")
    return np.flatnonzero(mask)
