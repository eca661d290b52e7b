"""Whole numbers of rows, such as their ids, that take no memory while they count up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Counting:
    """One number per row; stored only if they do not count up from `first`.

    Room past the end may be shared with earlier objects, which do not look there (see rows.py).
    """

    __slots__ = ("_stored", "first")

    def __init__(self, first: int = 0, stored: Ints | None = None) -> None:
        self.first, self._stored = first, stored

    @property
    def is_stored(self) -> bool:
        return self._stored is not None

    @property
    def nbytes(self) -> int:
        return 0 if self._stored is None else self._stored.nbytes

    def between(self, start: int, stop: int) -> Ints:
        """The numbers of some consecutive rows; made if they are not stored."""
        if self._stored is None:
            return np.arange(self.first + start, self.first + max(start, stop), dtype=np.int64)
        return self._stored[start:stop]

    def at(self, positions: NDArray[Any]) -> Ints:
        """The numbers of the rows at some positions."""
        if self._stored is not None:
            return self._stored[positions]
        return positions + self.first if self.first else positions.astype(np.int64, copy=False)

    def copy(self, size: int | None = None) -> Counting:
        """The same; with numbers of its own, and so many without spare room, if `size` is passed."""
        if self._stored is None or size is None:
            return Counting(self.first, self._stored)
        return Counting(self.first, self._stored[:size].copy())

    def put(self, start: int, numbers: Ints, capacity: int) -> None:
        """Set the numbers of the rows from `start` on, the last ones so far; there is room for `capacity` rows."""
        if self._stored is None and len(numbers):
            first = self.first if start else int(numbers[0])
            ascend = int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1 and bool(np.all(numbers[1:] > numbers[:-1]))
            if ascend and int(numbers[0]) == first + start:
                self.first = first
                return
            self._stored = np.empty(capacity, np.int64)
            self._stored[:start] = np.arange(first, first + start)
        if self._stored is not None:
            if start + len(numbers) > len(self._stored):
                larger = np.empty(capacity, np.int64)
                larger[:start] = self._stored[:start]
                self._stored = larger
            self._stored[start : start + len(numbers)] = numbers

    def set(self, positions: NDArray[Any], numbers: Ints, size: int) -> None:
        """Set the numbers of some of `size` rows."""
        if np.array_equal(self.at(positions), numbers):
            return
        if self._stored is None:
            self._stored = self.between(0, size)
        self._stored[positions] = numbers
