"""The projected gradient step of `simplex` on CUDA tensors: one kernel that reads a row once and keeps it in registers.

It is to PyTorch on a GPU what the numba kernels are to NumPy: the fast path of the same function. Without Triton, and
for everything else, the plain array code of `simplex` computes the same.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from fusehash.numerics.arrays import Array, place

MAX_COLUMNS = 4096  # a row must fit into the registers of a block of threads


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return find_spec("triton") is not None


def can_take(Y: Array) -> bool:
    """Whether the kernel is for these rows: a matrix of PyTorch on a GPU, not too wide."""
    library, device = place(Y)
    return library == "torch" and device.startswith("cuda") and Y.shape[1] <= MAX_COLUMNS and _has_triton()


def step(Y: Array, linear: Array | None, scale: float, tau: Array, S: Array | None) -> tuple[Array, Array, Array]:
    """`simplex.step`."""
    import torch
    import triton

    from fusehash.numerics.simplex.triton import project_step

    n, width = Y.shape
    Y = Y.contiguous()
    if Y.dtype == torch.float64:  # Triton takes a Python float as single precision
        Y, scale = Y * scale, 1.0
    new, found = torch.empty_like(Y), torch.empty_like(tau)
    norms = torch.empty((n, 3), dtype=Y.dtype, device=Y.device)
    nothing: Any = Y  # never read
    size = triton.next_power_of_2(width)
    with torch.cuda.device(Y.device):
        project_step[(n,)](
            Y, nothing if linear is None else linear.contiguous(), nothing if S is None else S.contiguous(),
            tau, new, found, norms, float(scale), width,
            HAS_LINEAR=linear is not None, HAS_LAST=S is not None, SIZE=size,
            num_warps=max(min(size // 256, 8), 1),
        )  # fmt: skip
    return new, found, norms
