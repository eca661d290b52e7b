"""Mergeable sums over row blocks, and the top of a symmetric spectrum.

Every fit in fusehash touches the data only through sums over rows (means, Gram matrices), so blocks can come in any
order, from disk or from other machines, and their sums can be merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular

Floats = NDArray[np.float64]


@dataclass
class CentredGram:
    """Count, mean and centred Gram matrix sum (x - mean)(x - mean)' of rows, exact under merging (Chan et al. 1979)."""

    n_features: int
    count: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    gram: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.mean.size == 0:
            self.mean = np.zeros(self.n_features)
            self.gram = np.zeros((self.n_features, self.n_features))

    def add(self, X: Floats) -> None:
        """Take in a block of rows."""
        if len(X) == 0:
            return
        mean = X.mean(axis=0)
        centred = X - mean
        self._merge(len(X), mean, centred.T @ centred)

    def merge(self, other: CentredGram) -> None:
        """Take in the sums of other rows."""
        if other.count:
            self._merge(other.count, other.mean, other.gram)

    def _merge(self, count: int, mean: Floats, gram: Floats) -> None:
        total = self.count + count
        shift = mean - self.mean
        self.gram += gram
        if self.count:
            self.gram += np.outer(shift, shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total

    @property
    def variance(self) -> Floats:
        """Variance of every feature."""
        return np.diagonal(self.gram) / max(self.count, 1)


def top_eigenpairs(
    G: Floats, r: int, start: Floats | None = None, *, tol: float = 1e-7, max_rounds: int = 8
) -> tuple[Floats, Floats]:
    """The r largest eigenvalues (descending) of a symmetric matrix and their eigenvectors.

    From a `start` (the eigenvectors of a similar matrix) a few rounds of Rayleigh-Ritz over [V, residual, last step]
    are enough (LOBPCG without a preconditioner); V never gets worse, since each round searches a space that holds it.
    Where that does not settle, or where r is a large part of the spectrum, the dense solver is used.
    """
    n = len(G)
    r = min(r, n)
    if start is not None and start.shape == (n, r) and 5 * r <= n:
        V, last = start, np.zeros((n, 0))
        GV = G @ V
        for _ in range(max_rounds):
            w = np.einsum("ij,ij->j", V, GV)
            residual = GV - V * w
            if np.linalg.norm(residual, axis=0).max() <= tol * max(abs(w[0]), 1e-300):
                return w, V
            basis = _orthonormal(np.hstack([V, residual, last]))
            image = G @ basis
            small = basis.T @ image
            _, Q = eigh((small + small.T) / 2, subset_by_index=[small.shape[0] - r, small.shape[0] - 1])
            Q = Q[:, ::-1]
            new = basis @ Q
            last, V, GV = new - V @ (V.T @ new), new, image @ Q
    w, V = eigh((G + G.T) / 2, subset_by_index=[n - r, n - 1])
    return w[::-1], np.ascontiguousarray(V[:, ::-1])


def _orthonormal(A: Floats) -> Floats:
    """An orthonormal basis of the columns, by the eigenvectors of their Gram matrix (twice, for accuracy)."""
    for _ in range(2):
        norms = np.linalg.norm(A, axis=0)
        A = A[:, norms > 1e-14] / norms[norms > 1e-14]
        w, Q = np.linalg.eigh(A.T @ A)
        keep = w > 1e-10 * w[-1]
        A = A @ (Q[:, keep] / np.sqrt(w[keep]))
    return A


def ridge_solver(gram: Floats, ridge: float) -> Floats:
    """Cholesky factor of gram + ridge * (mean diagonal) I; a relative ridge, so units do not matter."""
    scale = np.trace(gram) / len(gram)
    damped = gram + np.eye(len(gram)) * (ridge * scale if scale > 0 else 1.0)
    return cholesky(damped, lower=True, check_finite=False)


def solve_ridge(factor: Floats, rhs: Floats) -> Floats:
    """(gram + ridge I)^-1 rhs from the factor of `ridge_solver`."""
    return cho_solve((factor, True), rhs, check_finite=False)


def whitening(gram: Floats, ridge: float) -> Floats:
    """The matrix T with T'(gram + ridge * mean diagonal I)T = I, so that X T has white columns."""
    factor = ridge_solver(gram, ridge)
    return np.ascontiguousarray(solve_triangular(factor, np.eye(len(gram)), lower=True, check_finite=False).T)
