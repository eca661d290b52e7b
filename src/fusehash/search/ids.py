"""Ids as callers give them: checked once, with one sentence for each thing that can be wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import DataError
from fusehash.search.rows import Ids

NO_IDS: Ids = np.empty(0, np.int64)
HIGHEST = int(np.iinfo(np.int64).max)


def check_ids(ids: ArrayLike, count: int | None = None) -> Ids:
    """Ids as a vector of 64-bit integers, or why they are none."""
    given = np.asarray(ids)
    if given.size == 0:
        given = given.astype(np.int64)
    if given.dtype == object and all(isinstance(id, (int, np.integer)) for id in given.ravel()):
        raise DataError("Ids must be 64-bit integers. Got larger ones.")
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise DataError(f"Ids must be a vector of integers. Got {given.dtype} of shape {given.shape} instead.")
    if given.dtype == np.uint64 and given.size and int(given.max()) > HIGHEST:
        raise DataError(f"Ids must be 64-bit integers. Got {given.max()} instead.")
    if count is not None and len(given) != count:
        raise DataError(f"There must be one id for each of {count} codes. Got {len(given)} instead.")
    return given.astype(np.int64)


def check_different(ids: Ids) -> None:
    """No id may come twice."""
    values, counts = np.unique(ids, return_counts=True)
    if len(values) != len(ids):
        raise DataError(f"Ids must differ from each other. Got {values[counts > 1][0]} more than once.")


def check_new(taken: Ids) -> None:
    """``taken`` are those of the ids to be added that are there already."""
    if len(taken):
        raise DataError(f"Ids must be new. Id {taken[0]} is in the index already; replace() changes its code.")


def check_here(ids: Ids, here: NDArray[np.bool_]) -> None:
    """Every id must be there."""
    if not here.all():
        missing = ids[~here]
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"Ids must be in the index. Id {missing[0]}{others} is not.")


def count_on(last_id: int, count: int) -> Ids:
    """The next ``count`` ids after the highest one ever used."""
    if last_id + count > HIGHEST:
        raise DataError("No higher ids are left to give out; ids must be given.")
    return np.arange(last_id + 1, last_id + 1 + count, dtype=np.int64)


def chosen_by_mask(ids: Ids, mask: NDArray[np.bool_]) -> Ids:
    """The ids that a mask over all of them picks."""
    check_mask(mask, len(ids))
    return ids[mask]


def check_mask(mask: NDArray[np.bool_], count: int) -> None:
    """A mask has one entry for each code."""
    if mask.shape != (count,):
        raise DataError(f"A mask must have one entry for each of {count} codes. Got shape {mask.shape} instead.")
