"""The search of gpu.py on CUDA without its matrix: two Triton kernels that keep distances in registers.

The first gives the smallest distance of every group of neighboring codes, the second the distances in the groups
that were chosen; gpu_select.py does the rest. Codes stay packed, as 32-bit words. Many queries meet the codes in
tensor cores, with bits turned into -1 and +1 on the way; a few are compared by exclusive or and counting bits.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

from fusehash.search.engines.torch.select import LEAF, group_size, smallest

_SIZES = (32, 128)  # codes in a group, at least and at most: what tiles in registers can take
_MANY = 16  # queries from which on tensor cores are used


def missing(array: Any) -> str:
    """What the kernels lack to search with this array; empty if nothing."""
    if not hasattr(array, "is_cuda"):
        return "the kernels take PyTorch tensors"
    if not array.is_cuda and not _interpreted():
        return "the kernels need a CUDA device"
    return "" if find_spec("triton") else "Triton is not installed"


def suits(n: int, k: int) -> bool:
    """Whether choosing k groups leaves out most of n codes; else their distances may as well be held."""
    return n > LEAF and n >= 4 * k * _SIZES[0]


def to_words(codes: Any) -> Any:
    """Packed codes as 32-bit words (n, words), filled up with zeros."""
    import torch

    gap = -codes.shape[1] % 4
    padded = torch.nn.functional.pad(codes, (0, gap)) if gap else codes
    return padded.contiguous().view(torch.int32)


def top_k(
    words: Any, queries: Any, k: int, cells: int, *, size: int | None = None, tensor_cores: bool | None = None
) -> tuple[Any, Any]:
    """Distances (int32) and positions (int64) by (distance, position); codes and queries as words.

    ``size`` is the number of codes in a group and ``tensor_cores`` the way to compare, both chosen if not given.
    """
    import torch

    n = words.shape[0]
    if size is None:
        size = max(_SIZES[0], min(_SIZES[1], group_size(n, k)))
    if tensor_cores is None:
        tensor_cores = queries.shape[0] >= _MANY
    high = max(1, cells // 16 // (n // size + k * size))
    done = [
        smallest(_Fused(words, queries[start : start + high], tensor_cores=tensor_cores), k, size)
        for start in range(0, queries.shape[0], high)
    ]
    values, positions = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*done, strict=True))
    return values.to(torch.int32), positions


class _Fused:
    """The distances of queries to codes, computed when asked for."""

    def __init__(self, words: Any, queries: Any, *, tensor_cores: bool) -> None:
        self.words, self.queries, self._tensor_cores = words, queries.contiguous(), tensor_cores
        self.n_columns = words.shape[0]

    def minima(self, size: int) -> Any:
        import torch

        (n, n_words), n_queries = self.words.shape, self.queries.shape[0]
        n_groups = -(-n // size)
        # A group a row: neighboring threads hold neighboring queries and write side by side.
        out = torch.empty((n_groups, n_queries), dtype=torch.int16, device=self.words.device)
        kernels = _kernels()
        with _on(self.words):
            if self._tensor_cores:
                n_steps = 1 if n_groups < 2048 else 8
                tile = 128 if n_queries > 64 else 64 if n_queries > 32 else 32
                chunk = min(4, 1 << (n_words - 1).bit_length())
                kernels.minima_by_products[(-(-n_groups // n_steps), -(-n_queries // tile))](
                    self.words, self.queries, out, n, n_queries, n_groups, n_words,
                    N_STEPS=n_steps, SIZE=size, TILE=tile, CHUNK=chunk, N_CHUNKS=-(-n_words // chunk),
                    num_warps=4 if size < 128 else 8,
                )  # fmt: skip
            else:
                n_side = max(1, 1024 // size)
                kernels.minima_by_counting[(-(-n_groups // n_side), n_queries)](
                    self.words, self.queries, out, n, n_queries, n_groups,
                    N_WORDS=n_words, SIZE=size, N_SIDE=n_side, num_warps=4,
                )  # fmt: skip
        return out.T

    def groups(self, chosen: Any, size: int) -> Any:
        import torch

        (n, n_words), (n_queries, count) = self.words.shape, chosen.shape
        out = torch.empty((n_queries, count * size), dtype=torch.int16, device=self.words.device)
        n_side = max(1, 1024 // size)
        with _on(self.words):
            _kernels().distances_in_groups[(n_queries, -(-count // n_side))](
                self.words, self.queries, chosen.contiguous(), out, n, count,
                N_WORDS=n_words, SIZE=size, N_SIDE=n_side, num_warps=4,
            )  # fmt: skip
        return out


def _on(array: Any) -> Any:
    """Triton launches on the current device, which need not be the array's."""
    import torch

    return torch.cuda.device(array.device) if array.is_cuda else torch.no_grad()


def _interpreted() -> bool:
    import os

    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _kernels() -> Any:
    from fusehash.search.engines.torch import kernels as gpu_kernels

    return gpu_kernels
