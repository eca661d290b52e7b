"""The projected gradient step as a Triton kernel. Nothing here has types: Triton reads annotations as code."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-not-found,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def project_step(Y, linear, last, tau, new, new_tau, norms, scale, width,
                 HAS_LINEAR: tl.constexpr, HAS_LAST: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    """One row: y = scale * Y + linear, its threshold by Newton steps (simplex._threshold), max(y - tau, 0), norms."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, SIZE)
    there = column < width
    y = scale * tl.load(Y + row * width + column, mask=there, other=0.0)
    extra = tl.zeros_like(y)
    if HAS_LINEAR:
        extra = tl.load(linear + row * width + column, mask=there, other=0.0)
        y += extra
    y = tl.where(there, y, -float("inf"))
    y -= tl.max(y, axis=0)  # differences to the largest entry are what counts; keeps huge inputs exact
    t = tl.load(tau + row)
    count = -1.0
    before = -2.0
    rounds = 0
    while (count != before) & (rounds < 64):
        before = count
        above = y > t
        count = tl.sum(above.to(tl.float32), axis=0)
        excess = tl.sum(tl.where(above, y - t, 0.0), axis=0)
        t += (excess - 1.0) / tl.maximum(count, 1.0)
        rounds += 1
    s = tl.where(there, tl.maximum(y - t, 0.0), 0.0)
    tl.store(new + row * width + column, s, mask=there)
    tl.store(new_tau + row, t)
    tl.store(norms + row * 3, tl.sum(s * s, axis=0))
    tl.store(norms + row * 3 + 1, tl.sum(s * extra, axis=0))
    change = s
    if HAS_LAST:
        change -= tl.load(last + row * width + column, mask=there, other=0.0)
    tl.store(norms + row * 3 + 2, tl.sum(change * change, axis=0))
