"""The k smallest entries of every row of a matrix, in order of (value, column), with any array library.

Selecting directly takes many passes over a wide row. Two observations make it one pass:

- Cut a row into groups of neighboring columns. The k smallest entries are in the k groups that come first by (smallest
  value, number of the group): a group that comes later has k entries before every one of its own.
- The minima of the groups are a row like any other, only shorter, and so are the entries of the k groups, put side by
  side in order of column. Both are selected from in the same way.

With groups of sqrt(n / k) columns both have about sqrt(n k) entries. Rows that are short enough are turned into keys,
value * width + column, all different, so that no library has a choice between ties.

On CUDA the matrix of distances is never written: two Triton kernels (kernels.py) keep distances in registers. The first
returns the smallest distance of every group of codes, the second the distances in the chosen groups. Codes stay packed,
as 32-bit words. Many queries meet the codes in tensor cores, with bits turned into -1 and +1 on the way; a few are
compared by exclusive or and counting bits.
"""

from __future__ import annotations

import os
from importlib import import_module
from math import isqrt
from typing import Any

from fusehash.extras import is_installed
from fusehash.numerics.arrays import cast, namespace

LEAF = 4096  # columns up to which a row is selected from directly
_FAR = 8192  # greater than any distance, and exact in half precision
_GROUP_SIZES = (32, 128)  # codes per group of the fused search, at least and at most: what tiles in registers can take
_MANY = 16  # queries from which on the fused search uses tensor cores


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


def smallest(matrix: Held | _Fused, k: int, size: int | None = None) -> tuple[Any, Any]:
    """The k smallest values of every row and their columns (int64), by (value, column); k is at most the columns."""
    if size is None:
        if isinstance(matrix, Held) and not worth_grouping(matrix.n_columns, k):
            return first(matrix.values, k)
        size = group_size(matrix.n_columns, k)
    _, chosen = smallest(Held(matrix.minima(size)), k)
    chosen = namespace(chosen).sort(chosen, axis=1)
    values, columns = smallest(Held(matrix.groups(chosen, size)), k)
    xp = namespace(values)
    return values, xp.take_along_axis(chosen, columns // size, axis=1) * size + columns % size


def group_size(n: int, k: int) -> int:
    """The power of two nearest to sqrt(n / k)."""
    return 1 << max(1, isqrt(2 * n // max(1, k)).bit_length() - 1)


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


def missing_for_fused(array: Any) -> str:
    """What is missing to run the Triton kernels on this array; empty if nothing."""
    if not hasattr(array, "is_cuda"):
        return "the kernels take PyTorch tensors"
    if not array.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "the kernels need a CUDA device"
    return "" if is_installed("triton") else "Triton is not installed"


def suits_fused(n: int, k: int) -> bool:
    """Whether choosing k groups leaves out most of n codes; else the matrix may as well be in memory."""
    return n > LEAF and n >= 4 * k * _GROUP_SIZES[0]


def to_words(codes: Any) -> Any:
    """Packed codes as 32-bit words (n, words), padded with zeros."""
    import torch

    gap = -codes.shape[1] % 4
    padded = torch.nn.functional.pad(codes, (0, gap)) if gap else codes
    return padded.contiguous().view(torch.int32)


def fused_top_k(
    words: Any, queries: Any, k: int, cells: int, *, size: int | None = None, tensor_cores: bool | None = None
) -> tuple[Any, Any]:
    """Distances (int32) and positions (int64) by (distance, position); codes and queries as words.

    `size` is the number of codes per group and `tensor_cores` the way to compare; by default both are chosen.
    """
    import torch

    n = words.shape[0]
    if size is None:
        size = max(_GROUP_SIZES[0], min(_GROUP_SIZES[1], group_size(n, k)))
    if tensor_cores is None:
        tensor_cores = queries.shape[0] >= _MANY
    n_rows = max(1, cells // 16 // (n // size + k * size))
    parts = [
        smallest(_Fused(words, queries[start : start + n_rows], tensor_cores=tensor_cores), k, size)
        for start in range(0, queries.shape[0], n_rows)
    ]
    values, positions = (part[0] if len(part) == 1 else torch.cat(part) for part in zip(*parts, strict=True))
    return values.to(torch.int32), positions


class _Fused:
    """The distances of queries to codes, computed when needed."""

    def __init__(self, words: Any, queries: Any, *, tensor_cores: bool) -> None:
        self.words, self.queries, self._tensor_cores = words, queries.contiguous(), tensor_cores
        self.n_columns = words.shape[0]
        self._kernels: Any = import_module("fusehash.search.engines.torch.kernels")

    def _empty(self, *shape: int) -> Any:
        import torch

        return torch.empty(shape, dtype=torch.int16, device=self.words.device)

    def minima(self, size: int) -> Any:
        (n, n_words), n_queries = self.words.shape, self.queries.shape[0]
        n_groups = -(-n // size)
        # One row per group: neighboring threads have neighboring queries and write side by side.
        out = self._empty(n_groups, n_queries)
        with _on_device_of(self.words):
            if self._tensor_cores:
                n_steps = 1 if n_groups < 2048 else 8
                tile = 128 if n_queries > 64 else 64 if n_queries > 32 else 32
                chunk = min(4, 1 << (n_words - 1).bit_length())
                self._kernels.minima_by_products[(-(-n_groups // n_steps), -(-n_queries // tile))](
                    self.words, self.queries, out, n, n_queries, n_groups, n_words,
                    N_STEPS=n_steps, SIZE=size, TILE=tile, CHUNK=chunk, N_CHUNKS=-(-n_words // chunk),
                    num_warps=4 if size < 128 else 8,
                )  # fmt: skip
            else:
                n_side = max(1, 1024 // size)
                self._kernels.minima_by_counting[(-(-n_groups // n_side), n_queries)](
                    self.words, self.queries, out, n, n_queries, n_groups,
                    N_WORDS=n_words, SIZE=size, N_SIDE=n_side, num_warps=4,
                )  # fmt: skip
        return out.T

    def groups(self, chosen: Any, size: int) -> Any:
        (n, n_words), (n_queries, count) = self.words.shape, chosen.shape
        out = self._empty(n_queries, count * size)
        n_side = max(1, 1024 // size)
        with _on_device_of(self.words):
            self._kernels.distances_in_groups[(n_queries, -(-count // n_side))](
                self.words, self.queries, chosen.contiguous(), out, n, count,
                N_WORDS=n_words, SIZE=size, N_SIDE=n_side, num_warps=4,
            )  # fmt: skip
        return out


def _on_device_of(array: Any) -> Any:
    """Triton launches on the current device, which need not be the array's."""
    import torch

    return torch.cuda.device(array.device) if array.is_cuda else torch.no_grad()
