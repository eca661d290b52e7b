"""The k smallest entries of every row of a matrix, in order of (value, column), with any array library.

Selecting directly takes many passes over a wide row. Two observations make it one pass:

- Cut a row into groups of neighboring columns. The k smallest entries are in the k groups that come first by (smallest
  value, number of the group): a group that comes later has k entries before every one of its own.
- The minima of the groups are a row like any other, only shorter, and so are the entries of the k groups, put side by
  side in order of column. Both are selected from in the same way.

With groups of sqrt(n / k) columns both have about sqrt(n k) entries. Rows that are short enough are turned into keys,
value * width + column, all different, so that no library has a choice between ties.

cascade.py does the same on CUDA without the matrix.
"""

from __future__ import annotations

from typing import Any

from fusehash.numerics.arrays import cast, namespace
from fusehash.search.engines.torch.cascade import group_size

LEAF = 4096  # columns up to which a row is selected from directly
_FAR = 8192  # greater than any distance, and exact in half precision


class Held:
    """A matrix in memory, of integers of at most 4096 in any type."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.n_columns = int(values.shape[1])

    def minima(self, size: int) -> Any:
        """The smallest entry of every group of `size` columns; the last group may be shorter."""
        xp, whole = namespace(self.values), self.n_columns // size
        shape = (self.values.shape[0], whole, size)
        minima = xp.min(xp.reshape(self.values[:, : whole * size], shape), axis=2)
        if whole * size == self.n_columns:
            return minima
        last = xp.min(self.values[:, whole * size :], axis=1)
        return xp.concat([minima, last[:, None]], axis=1)

    def groups(self, chosen: Any, size: int) -> Any:
        """The entries of some groups (rows, groups), side by side; past the last column, one larger than all."""
        xp = namespace(self.values)
        within = xp.arange(size, dtype=xp.int64, device=chosen.device)
        columns = xp.reshape(chosen[:, :, None] * size + within, (chosen.shape[0], -1))
        if self.n_columns % size == 0:
            return xp.take_along_axis(self.values, columns, axis=1)
        exists = columns < self.n_columns
        values = xp.take_along_axis(self.values, xp.where(exists, columns, self.n_columns - 1), axis=1)
        return xp.where(exists, values, _FAR)


def worth_grouping(n: int, k: int) -> bool:
    """Whether rows of n columns are cut into groups to select k entries."""
    return n > LEAF and n >= 16 * k


def smallest(matrix: Held, k: int, size: int | None = None) -> tuple[Any, Any]:
    """The k smallest values of every row and their columns (int64), by (value, column); k is at most the columns."""
    if size is None:
        if not worth_grouping(matrix.n_columns, k):
            return first(matrix.values, k)
        size = group_size(matrix.n_columns, k)
    _, chosen = smallest(Held(matrix.minima(size)), k)
    chosen = namespace(chosen).sort(chosen, axis=1)
    values, columns = smallest(Held(matrix.groups(chosen, size)), k)
    xp = namespace(values)
    return values, xp.take_along_axis(chosen, columns // size, axis=1) * size + columns % size


def merge(earlier: tuple[Any, Any], later: tuple[Any, Any], k: int) -> tuple[Any, Any]:
    """The first k of two selections; all positions of the first one come before those of the second."""
    xp = namespace(earlier[0])
    values, positions = (xp.concat([a, b], axis=1) for a, b in zip(earlier, later, strict=True))
    values, columns = first(values, min(k, int(values.shape[1])))
    return values, xp.take_along_axis(positions, columns, axis=1)


def first(values: Any, k: int) -> tuple[Any, Any]:
    """As `smallest`, directly."""
    xp, width = namespace(values), int(values.shape[1])
    dtype = "int32" if width * (_FAR + 1) < 1 << 31 else "int64"
    keys = cast(values, dtype) * width + xp.arange(width, dtype=getattr(xp, dtype), device=values.device)
    if hasattr(keys, "topk") and 2 * k <= width:
        keys = keys.topk(k, dim=1, largest=False).values
    else:
        keys = xp.sort(keys, axis=1)[:, :k]
    width = max(1, width)
    return keys // width, cast(keys % width, "int64")
