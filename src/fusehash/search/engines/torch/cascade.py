"""The k nearest codes on CUDA without a matrix of distances: groups of codes, then parts of groups, then codes.

Cut the codes into groups of neighbors. The k nearest codes are in the k groups that come first by (smallest value,
number of the group): a group that comes later has k codes before every one of its own. The same holds for the parts of
those k groups, and for the codes of the parts. So a search is a cascade of two steps, `sizes` codes per group, the last
of size 1:

- the smallest value of every group, of all or within the groups chosen before: at most 8,192 numbers per query;
- the first k of them, by bisection of the limit: `choose` keeps a row in registers and counts.

Values are distances of codes (`top_k`) or scores of real-valued queries (`weighted_top_k`). Many queries meet all codes
in tensor cores, with bits turned into -1 and +1 on the way; a few are compared by exclusive or and counting bits.

Scores have 41 bits per weight, tensor cores take 8. The first step of `weighted_top_k` therefore rounds weights down to
14 bits (two products), so that its values are lower bounds, and chooses some groups more than k. All later values are
exact. If the k-th score is below the bound of the last chosen group, no code outside of them can be nearer. Where it is
not (many codes with nearly the same score), the query is reported, and the caller answers it in another way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib import import_module
from math import isqrt
from typing import Any, TypeVar

from fusehash.extras import is_installed

logger = logging.getLogger(__name__)
T = TypeVar("T")

WIDTH = 8192  # values per query that a step chooses from
MOST = 1024  # results per query at most
FEWEST = 4096  # codes up to which the matrix is small
SMALLEST = 32  # codes per group of the first step, at least: what a tile in registers can take
SHIFT = 26  # last bits of the weights that the first step leaves out
_MORE = 32  # groups more than k that the first step over scores chooses
_MANY = 16  # queries from which on distances are computed by tensor cores
_TILE = 2048  # codes that a program compares with one query at a time
_PAD = {"int16": 1 << 14, "int32": 1 << 28, "int64": 1 << 60}
_RANKED = 128  # results per query up to which a kernel puts them in order
_fails = False  # reported once; from then on products answer


def missing(array: Any) -> str:
    """What is missing to run the kernels on this array; empty if nothing."""
    if not hasattr(array, "is_cuda"):
        return "the kernels take PyTorch tensors"
    if not array.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "the kernels need a CUDA device"
    return "" if is_installed("triton") else "Triton is not installed"


def suits(n: int, k: int) -> bool:
    """Whether k groups leave out most of n codes; else the matrix may as well be in memory."""
    return n > FEWEST and n >= 4 * k * SMALLEST and k <= MOST


def attempt(answer: Callable[[], T], *, must: bool = False) -> T | None:
    """The answer of the kernels, or None if they cannot run here; with `must` their error is raised."""
    global _fails
    if _fails and not must:
        return None
    try:
        return answer()
    except Exception as error:  # compilers fail in many ways; the products have the same results
        if must or "OutOfMemory" in type(error).__name__:
            raise
        _fails = True
        logger.warning("Triton could not run (%s): searches use matrix products, with the same results", error)
        return None


def to_words(codes: Any) -> Any:
    """Packed codes as 32-bit words (n, words), padded with zeros."""
    import torch

    gap = -codes.shape[1] % 4
    padded = torch.nn.functional.pad(codes, (0, gap)) if gap else codes
    return padded.contiguous().view(torch.int32)


def sizes(n: int, k: int, first: int | None = None) -> list[int]:
    """Codes per group of every step, powers of two: the first about sqrt(n / k), the last 1."""
    steps = [max(SMALLEST, first or group_size(n, k), _power(-(-n // WIDTH)))]
    while k * steps[-1] > WIDTH:
        ratio = min(1 << ((WIDTH // k).bit_length() - 1), 1 << (steps[-1].bit_length() // 2))
        steps.append(steps[-1] // ratio)
    return [*steps, 1]


def group_size(n: int, k: int) -> int:
    """The power of two nearest to sqrt(n / k)."""
    return 1 << max(1, isqrt(2 * n // max(1, k)).bit_length() - 1)


def top_k(
    words: Any, queries: Any, k: int, cells: int, *, size: int | None = None, tensor_cores: bool | None = None
) -> tuple[Any, Any]:
    """Distances (int32) and positions (int64) by (distance, position); codes and queries as 32-bit words.

    `cells` values are in memory at a time. `size` is the number of codes per group of the first step and
    `tensor_cores` the way to compare there; by default both are chosen.
    """
    import torch

    tensor_cores = queries.shape[0] >= _MANY if tensor_cores is None else tensor_cores
    answers = []
    for part in _parts(queries, cells):
        steps = _Steps(words, part.contiguous(), k, size)
        answers.append(steps.finish(steps.first_distances(tensor_cores=tensor_cores), torch.int32))
    distances, positions = answers[0] if len(answers) == 1 else map(torch.cat, zip(*answers, strict=True))
    return distances, positions


def weighted_top_k(words: Any, weights: Any, k: int, cells: int, *, size: int | None = None) -> tuple[Any, Any, Any]:
    """Scores in steps (int64) and positions (int64) by (score, position), and which queries are answered.

    `weights` are whole numbers (int64), 32 per word of a code, 0 for missing bits.
    """
    import torch

    answers = []
    for part in _parts(weights, cells):
        steps = _Steps(words, part.contiguous(), k, size)
        values, positions = steps.finish(steps.first_bounds(), torch.int64)
        answers.append((values, positions, steps.is_certain(values)))
    scores, positions, certain = answers[0] if len(answers) == 1 else map(torch.cat, zip(*answers, strict=True))
    return scores, positions, certain


def _parts(queries: Any, cells: int) -> list[Any]:
    n_rows = max(1, cells // (4 * WIDTH))
    return [queries[start : start + n_rows] for start in range(0, queries.shape[0], n_rows)]


class _Steps:
    """The steps of one search; queries are words, or weights in 64-bit integers."""

    def __init__(self, words: Any, queries: Any, k: int, size: int | None) -> None:
        self._words, self._queries, self._k = words, queries, k
        self._n, self._n_words = words.shape
        self._n_queries = queries.shape[0]
        self._sizes = sizes(self._n, k, size)
        self._n_groups = -(-self._n // self._sizes[0])
        self._chosen: Any = None
        self._n_chosen = 0
        self._limits: Any = None  # of the first step, its k-th value
        self._kernels: Any = import_module("fusehash.search.engines.torch.kernels")
        self._ones: Any = queries  # not read for codes

    def first_distances(self, *, tensor_cores: bool) -> Any:
        """The smallest distance in every group."""
        out = self._empty("int16", self._n_queries, self._n_groups)
        if tensor_cores:
            self._by_products(out, self._queries, self._queries, self._queries, weighted=False)
            return out
        size = min(self._sizes[0], _TILE)
        n_side = _TILE // size
        with _on_device_of(self._words):
            self._kernels.minima_by_counting[(-(-self._n_groups // n_side), self._n_queries)](
                self._words, self._queries, out, self._n, self._n_groups, N_PARTS=self._sizes[0] // size,
                PAD=_PAD["int16"], N_WORDS=self._n_words, SIZE=size, N_SIDE=n_side, num_warps=4,
            )  # fmt: skip
        return out

    def first_bounds(self) -> Any:
        """A lower bound of the scores in every group."""
        n_columns = 32 * self._n_words
        high, low = self._empty("int8", self._n_queries, n_columns), self._empty("int8", self._n_queries, n_columns)
        totals, self._ones = self._empty("int32", self._n_queries), self._empty("int64", self._n_queries)
        out = self._empty("int32", self._n_queries, self._n_groups)
        with _on_device_of(self._words):
            self._kernels.split_weights[(self._n_queries,)](
                self._queries, high, low, totals, self._ones, n_columns, SHIFT=SHIFT, BLOCK=_power(n_columns)
            )
        self._by_products(out, high, low, totals, weighted=True)
        return out

    def _by_products(self, out: Any, queries: Any, low: Any, totals: Any, *, weighted: bool) -> None:
        size = min(self._sizes[0], 64 if weighted else 128)
        n_steps = 8 if self._n_groups >= 2048 else 1
        tile = 128 if self._n_queries > 64 else 64 if self._n_queries > 32 else 32
        chunk = min(4, _power(self._n_words))
        with _on_device_of(self._words):
            self._kernels.minima_by_products[(-(-self._n_groups // n_steps), -(-self._n_queries // tile))](
                self._words, queries, low, totals, out, self._n, self._n_queries, self._n_groups, self._n_words,
                N_PARTS=self._sizes[0] // size, WEIGHTED=weighted, N_STEPS=n_steps, SIZE=size, TILE=tile, CHUNK=chunk,
                N_CHUNKS=-(-self._n_words // chunk), num_warps=4 if size < 128 else 8,
            )  # fmt: skip

    def finish(self, values: Any, dtype: Any) -> tuple[Any, Any]:
        """From the values of all groups to the k results in order, their values in this type."""
        import torch

        is_weighted = self._queries.dtype == torch.int64
        kept = self._choose(values, 1, self._k + _MORE if is_weighted else self._k, keep=False)
        for larger, size in zip(self._sizes, self._sizes[1:], strict=False):
            values = self._minima(larger // size, size, is_weighted=is_weighted)
            kept = self._choose(values, larger // size, self._k, keep=size == 1)
        positions = self._chosen
        if self._k > _RANKED:
            ordered, columns = torch.sort(kept, dim=1, stable=True)
            return ordered.to(dtype), positions.gather(1, columns)
        ordered, ordered_positions = torch.empty_like(kept, dtype=dtype), torch.empty_like(positions)
        with _on_device_of(self._words):
            self._kernels.order[(self._n_queries,)](
                kept, positions, ordered, ordered_positions, self._k, BLOCK=max(16, _power(self._k))
            )
        return ordered, ordered_positions

    def is_certain(self, values: Any) -> Any:
        """For which queries no code outside of the groups chosen first can be among the results."""
        if self._k + _MORE >= self._n_groups:
            return values[:, -1] >= 0
        return values[:, -1] < self._limits.long() << SHIFT

    def _minima(self, ratio: int, size: int, *, is_weighted: bool) -> Any:
        """The smallest value in every part of the chosen groups."""
        name = "int64" if is_weighted else "int16"
        out = self._empty(name, self._n_queries, self._n_chosen * ratio)
        n_side = max(1, min((_TILE if size > 1 else 1024) // size, _power(self._n_chosen * ratio)))
        with _on_device_of(self._words):
            self._kernels.minima_in_groups[(self._n_queries, -(-self._n_chosen * ratio // n_side))](
                self._words, self._queries, self._ones, self._chosen, out, self._n, self._n_chosen,
                WEIGHTED=is_weighted, PAD=_PAD[name], N_WORDS=self._n_words, RATIO=ratio,
                SIZE=size, N_SIDE=n_side, num_warps=4,
            )  # fmt: skip
        return out

    def _choose(self, values: Any, ratio: int, k: int, *, keep: bool) -> Any:
        """Choose k columns of every row, or all; returns their values, to keep for the last step."""
        import torch

        width, name = values.shape[1], str(values.dtype).removeprefix("torch.")
        k = min(k, width)
        chosen = self._empty("int64", self._n_queries, k)
        kept = torch.empty_like(chosen, dtype=values.dtype) if keep else values
        limits = self._empty("int64", self._n_queries)
        with _on_device_of(self._words):
            self._kernels.choose[(self._n_queries,)](
                values, values if self._chosen is None else self._chosen, chosen, kept, limits, width, self._n_chosen,
                k, HAS_CHOSEN=self._chosen is not None, RATIO=ratio, KEEP=keep, PAD=_PAD[name],
                BLOCK=max(16, _power(width)), num_warps=8 if width > 2048 else 4,
            )  # fmt: skip
        if self._chosen is None:
            self._limits = limits
        self._chosen, self._n_chosen = chosen, k
        return kept

    def _empty(self, dtype: str, *shape: int) -> Any:
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=self._words.device)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def _on_device_of(array: Any) -> Any:
    """Triton launches on the current device, which need not be the array's."""
    import torch

    return torch.cuda.device(array.device) if array.is_cuda else torch.no_grad()
