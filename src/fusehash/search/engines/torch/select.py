"""The k smallest of every row, in order of (value, column), with the operations of any array library.

Selecting directly costs many passes over a wide row. Two observations make it one pass:

- Cut a row into groups of neighboring columns. The k smallest entries lie in the k groups that come first by
  (smallest value, number of the group): a group that comes later has k entries before every one of its own.
- Minima of groups are a row like any other, only shorter, and so are the entries of the k groups, put side by side in
  order of column. Both are selected from in the same way.

With groups of sqrt(n / k) columns both have about sqrt(n k) entries. Rows that are short enough are turned into keys,
value * width + column, all different, so that no library has a choice between ties.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, Protocol

from fusehash.numerics.arrays import cast, namespace

LEAF = 4096  # columns up to which a row is selected from directly
_FAR = 2047  # more than any distance less half the bits, and exact in half precision


class Row(Protocol):
    """A matrix whose rows are selected from, held or not."""

    n_columns: int

    def minima(self, size: int) -> Any:
        """The smallest entry of every group of ``size`` columns; the last group may be shorter."""

    def groups(self, chosen: Any, size: int) -> Any:
        """The entries of some groups (rows, groups), side by side; past the last column, one larger than all."""


class Held:
    """A matrix in memory: integers of at most 2046 in any type, or real numbers in float64."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.n_columns = int(values.shape[1])

    def minima(self, size: int) -> Any:
        xp, whole = namespace(self.values), self.n_columns // size
        shape = (self.values.shape[0], whole, size)
        found = xp.min(xp.reshape(self.values[:, : whole * size], shape), axis=2)
        if whole * size == self.n_columns:
            return found
        last = xp.min(self.values[:, whole * size :], axis=1)
        return xp.concat([found, last[:, None]], axis=1)

    def groups(self, chosen: Any, size: int) -> Any:
        xp = namespace(self.values)
        within = xp.arange(size, dtype=xp.int64, device=chosen.device)
        columns = xp.reshape(chosen[:, :, None] * size + within, (chosen.shape[0], -1))
        if self.n_columns % size == 0:
            return xp.take_along_axis(self.values, columns, axis=1)
        there = columns < self.n_columns
        values = xp.take_along_axis(self.values, xp.where(there, columns, self.n_columns - 1), axis=1)
        return xp.where(there, values, float("inf") if _is_real(values) else _FAR)


def worth_grouping(n: int, k: int) -> bool:
    """Whether rows of n columns are cut into groups for the first k."""
    return n > LEAF and n >= 16 * k


def smallest(D: Row, k: int, size: int | None = None) -> tuple[Any, Any]:
    """The k smallest values of every row and their columns (int64), by (value, column); k is at most the columns."""
    if size is None:
        if isinstance(D, Held) and not worth_grouping(D.n_columns, k):
            return first(D.values, k)
        size = group_size(D.n_columns, k)
    _, chosen = smallest(Held(D.minima(size)), k)
    chosen = namespace(chosen).sort(chosen, axis=1)
    values, columns = smallest(Held(D.groups(chosen, size)), k)
    xp = namespace(values)
    return values, xp.take_along_axis(chosen, columns // size, axis=1) * size + columns % size


def group_size(n: int, k: int) -> int:
    """The power of two next to sqrt(n / k)."""
    return 1 << max(1, isqrt(2 * n // max(1, k)).bit_length() - 1)


def merge(one: tuple[Any, Any], other: tuple[Any, Any], k: int) -> tuple[Any, Any]:
    """The first k of two selections, all positions of the first of which come before those of the other."""
    xp = namespace(one[0])
    values, positions = (xp.concat([a, b], axis=1) for a, b in zip(one, other, strict=True))
    values, columns = first(values, min(k, int(values.shape[1])))
    return values, xp.take_along_axis(positions, columns, axis=1)


def first(values: Any, k: int) -> tuple[Any, Any]:
    """As `smallest`, directly."""
    xp, width = namespace(values), int(values.shape[1])
    if _is_real(values):
        columns = xp.argsort(values, axis=1, stable=True)[:, :k]
        return xp.take_along_axis(values, columns, axis=1), cast(columns, "int64")
    dtype = "int32" if width * (_FAR + 1) < 1 << 31 else "int64"
    keys = cast(values, dtype) * width + xp.arange(width, dtype=getattr(xp, dtype), device=values.device)
    if hasattr(keys, "topk") and 2 * k <= width:
        keys = keys.topk(k, dim=1, largest=False).values
    else:
        keys = xp.sort(keys, axis=1)[:, :k]
    width = max(1, width)
    return keys // width, cast(keys % width, "int64")


def _is_real(values: Any) -> bool:
    return str(values.dtype).rsplit(".", 1)[-1] == "float64"
