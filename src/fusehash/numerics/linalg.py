"""Centered Gram matrices that can be merged, the top of a symmetric spectrum, and ridge regression."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from scipy.linalg import LinAlgError, cho_solve
from scipy.sparse.linalg import lobpcg

from fusehash.numerics.arrays import (
    Array,
    Floats,
    cast,
    cholesky,
    host,
    is_accelerated,
    namespace,
    solve_lower,
    squares,
    to_device_of,
    top_eigh,
    with_signs,
    zeros,
)

MAX_RESIDUAL = 0.1  # of approximate eigenpairs, relative to the eigenvalue


@dataclass
class CenteredGram:
    """Count, mean and centered Gram matrix sum (x - mean)(x - mean)' of rows, exact under merging (Chan 1979)."""

    n_features: int
    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(0))
    gram: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.mean.shape[0] == 0:
            self.mean = np.zeros(self.n_features)
            self.gram = np.zeros((self.n_features, self.n_features))

    def add(self, X: Array, dtype: str = "float64") -> None:
        """Take in a block of rows; products are taken in `dtype` and summed in double precision."""
        if len(X):
            X = cast(X, "float64")
            mean = namespace(X).mean(X, axis=0)
            centered = cast(X - mean, dtype)
            self.__iadd__(CenteredGram(self.n_features, len(X), mean, cast(centered.T @ centered, "float64")))

    def __iadd__(self, other: CenteredGram) -> CenteredGram:
        """Take in the sums of other rows."""
        if other.count == 0:
            return self
        if self.count == 0:
            self.count, self.mean, self.gram = other.count, other.mean, other.gram
            return self
        total, shift = self.count + other.count, other.mean - self.mean
        with np.errstate(over="ignore", invalid="ignore"):  # for the caller to check
            self.gram = self.gram + other.gram
            self.gram += shift[:, None] * shift * (self.count * other.count / total)
            self.mean = self.mean + shift * (other.count / total)
        self.count = total
        return self

    @property
    def variance(self) -> Array:
        """Variance of every feature."""
        return namespace(self.gram).linalg.diagonal(self.gram) / max(self.count, 1)


def gram_of(S: Array, parts: int = 4) -> Array:
    """S'S in double precision; on a GPU, where the product is all the cost, little more than one half of it."""
    if not is_accelerated(S):
        return cast(S.T @ S, "float64")
    width = S.shape[1]
    G = zeros((width, width), S)
    edges = [width * part // parts for part in range(parts + 1)]
    for start, stop in pairwise(edges):
        G[:stop, start:stop] = cast(S[:, :stop].T @ S[:, start:stop], "float64")
        G[start:stop, :start] = G[:start, start:stop].T
    return G


def top_eigenpairs(
    G: Array, r: int, start: Array | None = None, *, tol: float = 1e-7, max_rounds: int = 8
) -> tuple[Array, Array]:
    """The r largest eigenvalues (descending) of a symmetric matrix and their eigenvectors.

    From a `start` (the eigenvectors of a similar matrix) a few rounds of LOBPCG are enough. Where they do not settle or
    miss a part of the top, or where r is a large part of the spectrum, the dense solver is used.
    """
    n = len(G)
    r = min(r, n)
    if not isinstance(G, np.ndarray):  # a device solves it densely in milliseconds
        return top_eigh((G + G.T) / 2, r)
    size = float(np.abs(G).max())
    rounds = min(max_rounds, n**3 // (10 * n * n * r + 100 * r**3))  # as many as cost less than the dense solver
    if start is not None and start.shape == (n, r) and rounds > 1 and 1e-100 < size < 1e100:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the residual is checked here
            w, V = lobpcg(G, start.copy(), tol=tol * size, maxiter=rounds)
        error = float(np.linalg.norm(G @ V - V * w, axis=0).max())
        if error <= tol * max(abs(w[0]), 1e-8 * size) and _is_top(G, w, V, 10.0 * tol * abs(w[0])):
            return w, V
    return top_eigh((G + G.T) / 2, r)


def _is_top(G: Floats, w: Floats, V: Floats, slack: float) -> bool:
    """Whether no eigenvalue of G other than those of (w, V) exceeds the least of w by more than `slack`.

    With w moved down to that least, G must stay below it: a Cholesky factorization shows whether it does.
    """
    gap = (V * (w - w[-1])) @ V.T - G
    gap[np.diag_indices_from(gap)] += w[-1] + slack
    try:
        cholesky(gap)
    except LinAlgError:
        return False
    return True


def leading_eigenpairs(
    G: Array, r: int, *, start: Array | None = None, n_rounds: int = 3, degree: int = 8
) -> tuple[Array, Array]:
    """Nearly the r largest eigenpairs (descending) of a positive semi-definite matrix, much faster than exactly.

    Subspace iteration with a Chebyshev filter (Zhou and Saad 2007): the polynomial is small below the least Ritz value
    of a slightly larger block and grows fast above it, so that only the last pairs may be inaccurate. If the spectrum
    falls too steeply for single precision, it is run in double; if that is not enough, the dense solver is used.
    From a `start` (eigenvectors of a similar matrix) one round is enough.
    """
    n, block = len(G), r + max(16, r // 8)
    if n < 5 * block:
        return top_eigenpairs(G, r)
    xp = namespace(G)
    start = start if start is not None and len(start) == n else None
    for dtype in ("float32", "float64"):
        V = _filtered(G, block, dtype, n_rounds if start is None else 1, degree, start)
        if V is None:
            continue
        # The last step in double precision separates eigenvectors of nearly equal eigenvalues as far as possible.
        V = xp.linalg.qr(cast(V, "float64"))[0]
        image = G @ V
        w, Q = top_eigh(V.T @ image, r)
        V = V @ Q
        if _nearly_solves(w, V, image @ Q):
            return w, with_signs(V)
    return top_eigenpairs(G, r)


def _filtered(G: Array, block: int, dtype: str, n_rounds: int, degree: int, start: Array | None) -> Array | None:
    """A basis near the top of the spectrum; None where the filter leaves the range of `dtype`."""
    xp = namespace(G)
    matrix = cast(G, dtype)
    first = cast(to_device_of(np.random.default_rng(0).standard_normal((len(G), block)).astype(np.float32), G), dtype)
    if start is not None:
        first[:, : start.shape[1]] = cast(start, dtype)[:, :block] * float(np.sqrt(len(G)))
    V = xp.linalg.qr(first)[0]
    for _ in range(n_rounds):
        image = matrix @ V
        w = np.linalg.eigvalsh(host(V.T @ image))
        cut = max(float(w[0]), 1e-6 * float(w[-1]))
        if cut <= 0.0:
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            # Chebyshev recurrence on [0, cut] mapped to [-1, 1], started from V and (2 G / cut - 1) V.
            older, V = V, (2.0 / cut) * image - V
            for _ in range(degree - 1):
                older, V = V, (4.0 / cut) * (matrix @ V) - 2.0 * V - older
            V = xp.linalg.qr(V)[0]
        if not bool(xp.all(xp.isfinite(V))):
            return None
    return V


def _nearly_solves(w: Array, V: Array, image: Array) -> bool:
    """Whether G V = V diag(w) up to a part of each eigenvalue that is not below rounding."""
    xp = namespace(V)
    residual = xp.sqrt(squares((image - V * w).T))
    return bool(xp.all(residual <= MAX_RESIDUAL * xp.clip(w, 1e-6 * float(w[0]), None)))


def ridge_solver(gram: Array, ridge: float) -> Array:
    """Cholesky factor of gram + ridge * (mean diagonal) I; a ridge that is too small is raised."""
    scale = trace(gram) / len(gram)
    ridge = max(ridge, 1e-14 * len(gram))  # never below rounding, so that dependent features have a solution too
    try:
        return cholesky(gram + identity(gram) * (ridge * scale if scale > 0 else 1.0))
    except LinAlgError:
        if ridge >= 1.0:
            raise
        return ridge_solver(gram, 10.0 * ridge)


def trace(A: Array) -> float:
    return float(namespace(A).sum(namespace(A).linalg.diagonal(A)))


def identity(A: Array) -> Array:
    """The identity of A's size, on its device."""
    return to_device_of(np.eye(len(A)), A)


def damped_solver(gram: Floats, ridge: float) -> Floats:
    """Cholesky factor of gram + ridge I."""
    return ridge_solver(gram, ridge / (trace(gram) / max(len(gram), 1) or 1.0))


def solve_damped(gram: Floats, ridge: float, rhs: Floats) -> Floats:
    """(gram + ridge I)^-1 rhs."""
    return solve_ridge(damped_solver(gram, ridge), rhs) if trace(gram) > 0.0 else rhs / ridge


def solve_ridge(factor: Array, rhs: Array) -> Array:
    """(gram + ridge I)^-1 rhs from the factor of `ridge_solver`."""
    if isinstance(factor, np.ndarray):
        return cho_solve((factor, True), rhs, check_finite=False)
    return solve_lower(factor, solve_lower(factor, rhs), transposed=True)


def whitening(gram: Array, ridge: float) -> Array:
    """The matrix T with T'(gram + ridge * mean diagonal I)T = I, so that X T has white columns."""
    T = solve_lower(ridge_solver(gram, ridge), identity(gram)).T
    return np.ascontiguousarray(T) if isinstance(T, np.ndarray) else T
