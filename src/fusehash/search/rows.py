"""Codes and their ids in memory, in order of id: what a search looks at.

A `Rows` never changes once a search may hold it: adding and removing give a new one. Appending (new ids above all
others) writes into spare room past the end, which no earlier `Rows` sees; the room is 1/64 of the size, so that a
million codes of 64 bits take 16 MB and at most 2 % more. Membership is a binary search; there is no dictionary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes

Ids = NDArray[np.int64]


class Rows:
    """``ids`` ascending and without repetition, ``codes`` one row each."""

    __slots__ = ("__weakref__", "_codes", "_ids", "codes", "ids")

    def __init__(self, n_bytes: int, size: int = 0, capacity: int = 0) -> None:
        capacity = max(size, capacity)
        self._ids = np.empty(capacity, np.int64)
        self._codes = _aligned(capacity, n_bytes)
        self.ids: Ids = self._ids[:size]
        self.codes: Codes = self._codes[:size]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._ids.nbytes + self._codes.nbytes

    def find(self, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Whether each id is here, and at which position (where not: at which it would be)."""
        spots = np.searchsorted(self.ids, ids)
        if not len(self):
            return np.zeros(len(ids), bool), spots
        return self.ids[np.minimum(spots, len(self) - 1)] == ids, spots

    def with_added(self, ids: Ids, codes: Codes) -> Rows:
        """These rows and new ones; ``ids`` ascending, none of them here yet.

        At most one of the results of an object may be used on, since appending shares the spare room.
        """
        size, total = len(self), len(self) + len(ids)
        if size and len(ids) and ids[0] < self.ids[-1]:
            added = Rows(codes.shape[1], total, total)
            spots = np.searchsorted(self.ids, ids) + np.arange(len(ids))
            old = np.ones(total, bool)
            old[spots] = False
            for target, here, new in ((added.ids, self.ids, ids), (added.codes, self.codes, codes)):
                target[spots] = new
                target[old] = here
            return added
        added = Rows.__new__(Rows)
        added._ids, added._codes = self._ids, self._codes
        if total > len(self._ids):
            larger = Rows(codes.shape[1], 0, total + total // 64 if size else total)
            added._ids, added._codes = larger._ids, larger._codes
            added._ids[:size], added._codes[:size] = self.ids, self.codes
        added._ids[size:total], added._codes[size:total] = ids, codes
        added.ids, added.codes = added._ids[:total], added._codes[:total]
        return added

    def without(self, positions: NDArray[np.intp]) -> Rows:
        """These rows but for the ones at ``positions``."""
        keep = np.ones(len(self), bool)
        keep[positions] = False
        left = Rows(self.codes.shape[1], int(np.count_nonzero(keep)))
        np.compress(keep, self.ids, out=left.ids)
        np.compress(keep, self.codes, axis=0, out=left.codes)
        return left

    def with_codes(self, positions: NDArray[np.intp], codes: Codes) -> Rows:
        """These rows with other codes at ``positions``."""
        changed = Rows(self.codes.shape[1], len(self))
        changed.ids[:], changed.codes[:] = self.ids, self.codes
        changed.codes[positions] = codes
        return changed


def _aligned(rows: int, n_bytes: int) -> Codes:
    """A matrix that begins on a boundary of 64 bytes, so that no vector straddles two cache lines."""
    raw = np.empty(rows * n_bytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + rows * n_bytes].reshape(rows, n_bytes)
