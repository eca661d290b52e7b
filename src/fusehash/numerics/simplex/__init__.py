"""The probability simplex {s : s >= 0, 1's = 1}: projection onto it, and quadratic programs over it.

`project_rows` is the Euclidean projection without a sort. `minimize_rows` is the paper's Algorithm 1 (accelerated
projected gradient) for many rows that share one low-rank Hessian:

    min_{s on the simplex}  s'Hs - l's,     H = ridge I - sign * U U',     U (P x C), C << P.

Departures from the paper, both measured in docs/paper.md:
- Momentum (Eq. 24) is printed as (1 + sqrt(1 + 4c)) / 2, which stalls; Nesterov's rule has 4c^2. See `as_printed`.
- A row whose objective would rise drops its momentum and keeps its last point, so the objective never rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fusehash.numerics.arrays import (
    Array,
    Floats,
    cast,
    clip_at_zero,
    device_of,
    dots,
    host,
    namespace,
    precision,
    squares,
    to_device_of,
    zeros,
)
from fusehash.numerics.compiled import compiled

Step = tuple[Array, Array, Array]  # projected rows, their thresholds, and three norms per row
ROUNDING = {"float64": 1e-14, "float32": 1e-6}  # relative changes below this are none
_MAX_TRITON_COLUMNS = 4096  # a row must fit into the registers of a block of threads
_FAST = {"reassoc", "contract", "nsz", "nnan"}  # no NaN; sums may be reordered so that they can be vectorized


@compiled(fastmath=_FAST)
def _threshold(y: Floats, start: float) -> float:
    """The tau with sum max(y - tau, 0) = 1, by Newton steps on that convex, decreasing function.

    The largest entry must be 0, so tau is in [-1, 0), and so must be the start. Newton reaches the left side of the
    root in one step and then climbs. The set of entries above tau only shrinks, so an unchanged count means that the
    last step was exact. From a warm start this takes two or three passes, which the compiler vectorizes.
    """
    tau, last = start, -1
    for _ in range(y.size + 2):
        count, excess = 0, 0.0
        for i in range(y.size):
            gap = y[i] - tau
            count += gap > 0.0
            excess += max(gap, 0.0)
        tau += (excess - 1.0) / count
        if count == last:
            break
        last = count
    return tau


def project_rows(Y: Array) -> Array:
    """Project every row of Y (n, P) onto the simplex (Eq. 26)."""
    if isinstance(Y, np.ndarray):
        Y = np.array(Y, dtype=np.float64, order="C")
    return step(Y, None, 1.0, first_thresholds(Y))[0]


def first_thresholds(Y: Array) -> Array:
    """Thresholds to start from if there are no better ones: far enough below the largest entry of any row."""
    return zeros((len(Y),), Y, precision(Y)) - 1.0


def thresholds(Y: Array, start: Array) -> Array:
    """`_threshold` of every row at once, in any array library."""
    xp, dtype = namespace(Y), precision(Y)
    tau, last = start, None
    for _ in range(Y.shape[1] + 2):
        gap = clip_at_zero(Y - tau[:, None])
        count = xp.count_nonzero(gap, axis=1)
        change = (xp.sum(gap, axis=1) - 1.0) / cast(count, dtype)
        # An entry that rounding moves over the limit and back must not keep all rows waiting.
        done = xp.abs(change) <= ROUNDING[dtype] * xp.abs(tau)
        if last is not None and bool(xp.all(done | (count == last))):
            break
        tau, last = tau + change, count
    return tau


def step(Y: Array, linear: Array | None, scale: float, tau: Array, S: Array | None = None) -> Step:
    """Every row of scale * Y + linear projected onto the simplex; Y may be overwritten.

    `tau` are thresholds to start from, relative to the largest entry of their row. The norms are ||s||^2,
    <linear, s> and ||s - row of S||^2 (what is not given counts as 0).
    """
    if isinstance(Y, np.ndarray):
        norms = np.empty((len(Y), 3))
        nothing = np.zeros((1, Y.shape[1]))
        _step(Y, nothing if linear is None else linear, scale, nothing if S is None else S, tau, norms)
        return Y, tau, norms
    xp = namespace(Y)
    if _suits_triton(Y):
        return _triton_step(Y, linear, scale, tau, S)
    Y = scale * Y if linear is None else scale * Y + linear
    Y = Y - xp.max(Y, axis=1, keepdims=True)
    tau = thresholds(Y, tau)
    new = clip_at_zero(Y - tau[:, None])
    inner = xp.zeros_like(tau) if linear is None else dots(new, linear)
    return new, tau, xp.stack([squares(new), inner, squares(new if S is None else new - S)], axis=1)


_has_triton = cache(lambda: find_spec("triton") is not None)


def _suits_triton(Y: Array) -> bool:
    """Whether the Triton kernel takes these rows: a matrix of PyTorch on a GPU, not too wide."""
    library, device = device_of(Y)
    return library == "torch" and device.startswith("cuda") and Y.shape[1] <= _MAX_TRITON_COLUMNS and _has_triton()


def _triton_step(Y: Array, linear: Array | None, scale: float, tau: Array, S: Array | None) -> Step:
    """`step` on a GPU: one kernel that reads a row once and keeps it in registers."""
    import torch
    import triton

    from fusehash.numerics.simplex.triton import project_step

    n, width = Y.shape
    Y = Y.contiguous()
    if Y.dtype == torch.float64:  # Triton takes a Python float as single precision
        Y, scale = Y * scale, 1.0
    new, new_tau = torch.empty_like(Y), torch.empty_like(tau)
    norms = torch.empty((n, 3), dtype=Y.dtype, device=Y.device)
    size = triton.next_power_of_2(width)
    with torch.cuda.device(Y.device):
        arrays = *((Y if part is None else part.contiguous()) for part in (linear, S)), tau, new, new_tau, norms
        options = {"HAS_LINEAR": linear is not None, "HAS_LAST": S is not None, "SIZE": size}
        project_step[(n,)](Y, *arrays, float(scale), width, **options, num_warps=max(min(size // 256, 8), 1))
    return new, new_tau, norms


@compiled(fastmath=_FAST)
def _step(Y: Floats, linear: Floats, scale: float, S: Floats, tau: Floats, norms: Floats) -> None:
    """`step` in place, row by row; a `linear` or `S` of one row is that of all rows."""
    for i in range(Y.shape[0]):
        row, extra, old = Y[i], linear[min(i, len(linear) - 1)], S[min(i, len(S) - 1)]
        top = -np.inf
        for j in range(row.size):
            row[j] = scale * row[j] + extra[j]
            top = max(top, row[j])
        for j in range(row.size):
            row[j] -= top
        tau[i] = _threshold(row, tau[i])
        square, inner, change = 0.0, 0.0, 0.0
        for j in range(row.size):
            s = max(row[j] - tau[i], 0.0)
            row[j] = s
            square += s * s
            inner += s * extra[j]
            change += (s - old[j]) ** 2
        norms[i, 0], norms[i, 1], norms[i, 2] = square, inner, change


def advance(new: Array, S: Array, Z: Array, moved: Array, momentum: Array, needs_z: bool) -> tuple[Array, Array]:
    """Accept the rows that moved (S <- new) and extrapolate (Z, Eq. 23) where the gradient step needs Z itself."""
    if isinstance(new, np.ndarray):
        _advance(new, S, Z, moved, momentum, needs_z)
        return S, Z
    stayed = namespace(new).nonzero(~moved)[0]
    if len(stayed):  # few rows, as a rule
        new[stayed] = S[stayed]
    if needs_z:
        Z = new + momentum[:, None] * (new - S)  # the momentum of a row that stayed is 0
    return new, Z


@compiled()
def _advance(new: Floats, S: Floats, Z: Floats, moved: NDArray[np.bool_], momentum: Floats, needs_z: bool) -> None:
    for i in range(S.shape[0]):
        if moved[i]:
            for j in range(S.shape[1]):
                s = new[i, j]
                if needs_z:
                    Z[i, j] = s + momentum[i] * (s - S[i, j])
                S[i, j] = s
        elif needs_z:
            for j in range(S.shape[1]):
                Z[i, j] = S[i, j]


@dataclass(frozen=True)
class LowRankHessian:
    """H = ridge I - sign * U U'. `sign` +1 is the corrected Eq. 21, -1 the printed one."""

    U: Array
    ridge: float
    sign: float = 1.0

    @cached_property
    def structure(self) -> float:
        """Largest eigenvalue of U U'. The problem is convex iff it is <= ridge (or sign is -1)."""
        if self.U.shape[1] == 0:
            return 0.0
        return float(np.linalg.eigvalsh(host(cast(self.U.T @ self.U, "float64")))[-1])

    def prepare(self) -> None:
        """Compute what all blocks share once, before several threads need it."""
        if self.has_inverse:
            self.inverse_core  # noqa: B018
        self.lipschitz  # noqa: B018

    @property
    def has_inverse(self) -> bool:
        return self.ridge > 0.0 and (self.sign < 0 or self.structure < self.ridge * (1.0 - 1e-9))

    @cached_property
    def inverse_core(self) -> Array:
        """sign * (ridge I - sign U'U)^-1, the small matrix of the Woodbury identity."""
        core = np.eye(self.U.shape[1]) * self.ridge - self.sign * host(cast(self.U.T @ self.U, "float64"))
        return cast(to_device_of(self.sign * np.linalg.inv(core), self.U), precision(self.U))

    @cached_property
    def lipschitz(self) -> float:
        """Lipschitz constant of the gradient, twice the largest |eigenvalue| of H."""
        top = self.structure
        bound = max(self.ridge, top - self.ridge) if self.sign > 0 else self.ridge + top
        return 2.0 * max(bound, 1e-30)  # within the range of single precision


def minimize_rows(
    hessian: LowRankHessian,
    linear: Array,
    *,
    max_iter: int = 50,
    tol: float = 1e-4,
    as_printed: bool = False,
    start: Array | None = None,
    trace: list[float] | None = None,
) -> Array:
    """Solve min s'Hs - l's on the simplex for every row l of `linear` (Algorithm 1), all rows together.

    Because H = ridge I - U U', a gradient costs O(P C) per row. With Lp = 2 ridge (the usual case) the update is the
    projection of (U U'z + l / 2) / ridge.

    Parameters
    ----------
    linear : (n, P); row i is gamma_1 a_i + gamma_3 Bs b_i.
    max_iter, tol : stops after `max_iter` steps, or when ||s_new - s_old|| <= tol * ||s_new|| in every row.
    start : feasible (n, P) first points; by default the projection of Eq. 27 (see `_first_point`).
    trace : gets the sum of the objectives after every step.
    """
    U, sign = hessian.U, hessian.sign
    lipschitz = hessian.lipschitz
    keep = 1.0 - 2.0 * hessian.ridge / lipschitz
    keep = 0.0 if abs(keep) < 1e-12 else keep
    # On the simplex a common shift of l is a constant; without it huge terms stay exact.
    xp, dtype = namespace(linear), precision(linear)
    shift = xp.max(linear, axis=1)
    scaled = linear - shift[:, None]
    scaled /= lipschitz
    if start is None:
        S, tau, norms = _first_point(hessian, linear, scaled)
        square, inner = norms[:, 0], norms[:, 1]
    else:
        S = cast(xp.asarray(start, copy=True), dtype)
        square, inner, tau = squares(S), dots(S, scaled), first_thresholds(S)
    SU = S @ U
    Z, ZU = (xp.asarray(S, copy=True) if keep else S), SU
    momentum = xp.zeros_like(tau)
    c, has_momentum = momentum + 1.0, False
    new = xp.empty_like(S)

    def objective(square: Array, inner: Array, low_rank: Array) -> Array:
        return hessian.ridge * square - sign * squares(low_rank) - lipschitz * inner

    value = objective(square, inner, SU)
    for _ in range(max_iter):
        new = np.matmul(ZU, U.T, out=new) if xp is np else ZU @ U.T
        if keep:
            new += (keep * lipschitz / (2.0 * sign)) * Z
        new, tau, norms = step(new, scaled, 2.0 * sign / lipschitz, tau, S)
        settled = norms[:, 2] <= tol * tol * norms[:, 0]
        if trace is None and not has_momentum and bool(xp.all(settled)):
            return new  # plain steps cannot rise: no need to look at the objective
        new_U = new @ U
        new_value = objective(norms[:, 0], norms[:, 1], new_U)
        # A rise beyond rounding: stay, and take a step without momentum next time, which is always accepted.
        moved = (new_value <= value + ROUNDING[dtype] * xp.abs(value)) | (momentum == 0.0)
        if as_printed:
            moved = moved | ~moved
        # Nearly always all rows have moved, and then nothing has to be chosen row by row.
        choose = (lambda _, new, old: new) if bool(xp.all(moved)) else xp.where
        rows = moved[:, None]
        c_next = (1.0 + xp.sqrt(1.0 + 4.0 * (c if as_printed else c * c))) / 2.0  # Eq. 24
        momentum = choose(moved, (c - 1.0) / c_next, xp.zeros_like(c))
        has_momentum = bool(xp.any(momentum != 0.0))
        ZU = choose(rows, new_U + momentum[:, None] * (new_U - SU), SU)  # Eq. 23, seen through U
        S, Z = advance(new, S, Z, moved, momentum, keep != 0.0)
        SU = choose(rows, new_U, SU)
        value = choose(moved, new_value, value)
        c = choose(moved, c_next, xp.ones_like(c))
        if trace is not None:
            trace.append(float(xp.sum(value - shift)))
        if bool(xp.all(moved & settled)):
            break
    return S


def _first_point(hessian: LowRankHessian, linear: Array, scaled: Array) -> Step:
    """`step` to the projection of Eq. 27, s0 = (2H)^-1 l (with the factor 1/2 that the print lacks, by the Woodbury
    identity), or of l where H has no inverse. `scaled` is (l - max l) / Lp; the second norm is <scaled, s0>.
    """
    U, ridge = hessian.U, hessian.ridge
    if not hessian.has_inverse:
        S, tau, norms = step(hessian.lipschitz * scaled, None, 1.0, first_thresholds(linear))
        norms[:, 1] = dots(S, scaled)
        return S, tau, norms
    first = (linear @ U) @ (hessian.inverse_core / (2.0 * ridge)) @ U.T
    stretch = hessian.lipschitz / (2.0 * ridge)  # usually 1
    S, tau, norms = step(first, scaled if stretch == 1.0 else stretch * scaled, 1.0, first_thresholds(linear))
    norms[:, 1] /= stretch
    return S, tau, norms
