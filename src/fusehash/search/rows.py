"""Codes and their ids in memory, in order of id, and the checks of ids that callers pass.

A `CodeRows` never changes once a search may use it: adding and removing return a new one. Appending (new ids above all
others) writes into spare room past the end, which no earlier `CodeRows` sees. The room is 1/64 of the size: a million
codes of 64 bits take 16 MB and at most 2 % more. Membership is a binary search; there is no dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError

Ids = NDArray[np.int64]
Ints = NDArray[np.int64]
Distances = NDArray[np.int32]
Nearest = tuple[Distances, Ids]  # (queries, k) each
InRange = tuple[Ints, Distances, Ids]  # offsets (queries + 1), and the results of all queries one after the other
Allowed: TypeAlias = "NDArray[Any] | None"  # what may be returned; None for all
Threads: TypeAlias = "int | None"  # None for all cores

NO_IDS: Ids = np.empty(0, np.int64)
HIGHEST = int(np.iinfo(np.int64).max)


class CodeRows:
    """`ids`, ascending and without repetition, and one row of `codes` for each."""

    __slots__ = ("__weakref__", "_codes", "_ids", "codes", "ids")

    def __init__(self, n_bytes: int, size: int = 0, capacity: int = 0) -> None:
        capacity = max(size, capacity)
        self._ids = np.empty(capacity, np.int64)
        raw = np.empty(capacity * n_bytes + 64, np.uint8)
        skip = -raw.ctypes.data % 64  # on a boundary of 64 bytes no vector straddles two cache lines
        self._codes = raw[skip : skip + capacity * n_bytes].reshape(capacity, n_bytes)
        self.ids: Ids = self._ids[:size]
        self.codes: Codes = self._codes[:size]

    @classmethod
    def numbered(cls, codes: Codes) -> CodeRows:
        """Codes under the ids 0, 1, 2, ..."""
        return cls(codes.shape[1]).with_added(np.arange(len(codes)), codes)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, spare room included."""
        return self._ids.nbytes + self._codes.nbytes

    def positions(self, ids: Ids) -> NDArray[np.intp]:
        """Positions of ids, all of which must be here."""
        here, positions = find(self.ids, ids)
        check_here(ids, here)
        return positions

    def allowed(self, allowed: Allowed) -> Ints | None:
        """Positions of ids, as far as they are here, or of a mask over all ids; None for None."""
        if allowed is None:
            return None
        if allowed.dtype == bool:
            return selected(allowed, len(self))
        here, positions = find(self.ids, allowed)
        return positions[here].astype(np.int64, copy=False)

    def with_added(self, ids: Ids, codes: Codes) -> CodeRows:
        """These rows and new ones; `ids` ascending, none of them here yet.

        Call it at most once per object: the results of two calls would share the spare room.
        """
        size, total = len(self), len(self) + len(ids)
        if size and len(ids) and ids[0] < self.ids[-1]:
            added = CodeRows(codes.shape[1], total, total)
            positions = np.searchsorted(self.ids, ids) + np.arange(len(ids))
            is_old = np.ones(total, bool)
            is_old[positions] = False
            for target, old, new in ((added.ids, self.ids, ids), (added.codes, self.codes, codes)):
                target[positions] = new
                target[is_old] = old
            return added
        added = CodeRows.__new__(CodeRows)
        added._ids, added._codes = self._ids, self._codes
        if total > len(self._ids):
            larger = CodeRows(codes.shape[1], 0, total + total // 64 if size else total)
            added._ids, added._codes = larger._ids, larger._codes
            added._ids[:size], added._codes[:size] = self.ids, self.codes
        added._ids[size:total], added._codes[size:total] = ids, codes
        added.ids, added.codes = added._ids[:total], added._codes[:total]
        return added

    def without(self, positions: NDArray[np.intp]) -> CodeRows:
        """These rows except the ones at `positions`."""
        keep = np.ones(len(self), bool)
        keep[positions] = False
        rest = CodeRows(self.codes.shape[1], int(np.count_nonzero(keep)))
        np.compress(keep, self.ids, out=rest.ids)
        np.compress(keep, self.codes, axis=0, out=rest.codes)
        return rest

    def with_codes(self, positions: NDArray[np.intp], codes: Codes) -> CodeRows:
        """These rows with other codes at `positions`."""
        changed = self.trimmed()
        changed.codes[positions] = codes
        return changed

    def trimmed(self) -> CodeRows:
        """A copy without spare room."""
        copy = CodeRows(self.codes.shape[1], len(self))
        copy.ids[:], copy.codes[:] = self.ids, self.codes
        return copy

    def sorted(self) -> CodeRows:
        """The same rows in order of id; a copy if they are not."""
        if np.all(self.ids[1:] > self.ids[:-1]):
            return self
        order = np.argsort(self.ids, kind="stable")
        copy = CodeRows(self.codes.shape[1], len(self))
        np.take(self.ids, order, out=copy.ids)
        np.take(self.codes, order, axis=0, out=copy.codes)
        return copy


@dataclass(frozen=True)
class Edit:
    """What one call changes: ids to remove, and ids (ascending) with codes to add. Ids in both get other codes."""

    removed: Ids
    ids: Ids
    codes: Codes

    @property
    def replaces(self) -> bool:
        return len(self.removed) > 0 and len(self.ids) > 0

    def apply(self, rows: CodeRows) -> CodeRows:
        """The rows after the change; ids to remove must be there, ids to add must not."""
        if self.replaces:
            return rows.with_codes(find(rows.ids, self.removed)[1], self.codes)
        if len(self.removed):
            return rows.without(find(rows.ids, self.removed)[1])
        return rows.with_added(self.ids, self.codes) if len(self.ids) else rows

    def last_id(self, before: int) -> int:
        """The highest id ever used, after the change."""
        return max(before, int(self.ids[-1])) if len(self.ids) else before


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
