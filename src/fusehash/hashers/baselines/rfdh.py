"""RFDH: balanced binary factors of the views under a robust loss."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import gram_sums
from fusehash.numerics.linalg import solve_damped
from fusehash.parameters import Progress, Rule, integer, real, rng_for
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats, PairedViews

# Keeps 1 / ||e_i|| finite; the rounding unit, as in the authors' code.
EPS = float(np.finfo(np.float64).eps)


class RFDH(CrossModalHasher):
    """Robust and Flexible Discrete Hashing, linear version: balanced binary factors under a robust loss.

    Binary factors Z (N x K, 0/1, each bit 1 in half of the rows) rebuild the views, which are used as they come:

        min  sum_m a_m^r sum_i ||x_mi - F_m z_i|| + g/2 sum_m ||F_m||^2,      sum_m a_m = 1

    Norms that are not squared are handled by weights D_m = diag(1 / ||x_mi - F_m z_i||). From random Z each round does

        a_m = h_m^(1/(1-r)) / sum_m h_m^(1/(1-r)),   h_m = sum_i ||x_mi - F_m z_i||,   w_m = a_m^r
        Z   : for each bit k in turn, up to `n_sweeps` times, cost_i = sum_m w_m D_m(i) f_mk'(F_m z_i without bit k
              + f_mk / 2 - x_mi); the half of the rows with the smallest costs gets 1, which is the exact minimum
        F_m = X_m'D_m Z (Z'D_m Z + g/w_m I)^-1

    A bit costs O(N), and O(K) for each row in which it flips. The objective never rises. With B = 2 Z - 1 the hash
    functions are fitted through real T (N x K) and R (K x K):

        min  sum_m ||X_m W_m - 1 u_m' - T||^2 + c ||B - T R'||^2,   B(x) = sgn((x W_m - u_m) R')

        W_m = (X_m'X_m + g I)^-1 X_m'(T + 1 u_m'),   T = (sum_m (X_m W_m - 1 u_m') + c B R)(c R'R + M I)^-1
        R   = B'T (T'T + g I)^-1,                    u_m = mean of X_m W_m - T

    Items seen in every view get the sum of their projections. Z is the result of a search and no function of the
    features, so such codes differ from the learned ones in more bits than those of other methods.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) in every step.
    exponent : float, default 3
        r, greater than 1; the larger, the more equal the weights of the views.
    gamma : float, default 1e-4
        g, the ridge, in squared units of the features.
    max_iter, n_sweeps : int, default 20 and 5
        Rounds; sweeps over the bits in a round, which end early when nothing changes.
    hash_weight, hash_iter : float, default 10; int, default 5
        c, and the rounds of the hash functions.
    as_released : bool, default False
        Follow the public code (see Notes).

    Attributes
    ----------
    weights_, offsets_ : dict of str to ndarray
        W_m R' and u_m R' of every view.
    view_weights_ : dict of str to float
        w_m.
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    The paper has g where this objective has g/2, which is what the authors' step for F_m minimizes. The public code has
    the exponent 1/(r-1) in a_m, which favors the view that fits worse, and R = T'B (B'B + g I)^-1, which predicts T
    from B; `as_released` keeps both, and `objective_` can then rise.

    References
    ----------
    D. Wang, Q. Wang, X. Gao. Robust and Flexible Discrete Hashing for Cross-Modal Similarity Search. IEEE TCSVT 28,
    2018.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.RFDH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "rfdh"
    summary: ClassVar[str] = "balanced binary factors of all views under a robust loss"
    scale_free: ClassVar[bool] = False
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "exponent": real(1.0, strict=True),
        "gamma": real(strict=True),
        "n_sweeps": integer(1),
        "hash_weight": real(strict=True),
        "hash_iter": integer(1),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        exponent: float = 3.0,
        gamma: float = 1e-4,
        max_iter: int = 20,
        n_sweeps: int = 5,
        hash_weight: float = 10.0,
        hash_iter: int = 5,
        as_released: bool = False,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.exponent = exponent
        self.gamma = gamma
        self.max_iter = max_iter
        self.n_sweeps = n_sweeps
        self.hash_weight = hash_weight
        self.hash_iter = hash_iter
        self.as_released = as_released
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        sums = gram_sums(RowPasses(views))
        X = [views.block(name, slice(None)) for name in views]
        XX = [total.gram + total.count * np.outer(total.mean, total.mean) for total in sums.values()]
        Z, w = self._binary_factors(X)
        W, u, R = self._hash_functions(X, XX, 2.0 * Z - 1.0)
        self.codes_ = bits.pack(Z)
        self.weights_ = {name: weights @ R.T for name, weights in zip(views, W, strict=True)}
        self.offsets_ = {name: offset @ R.T for name, offset in zip(views, u, strict=True)}
        self.view_weights_ = {name: float(weight) for name, weight in zip(views, w, strict=True)}

    # -- codes ---------------------------------------------------------------------------------------------------

    def _binary_factors(self, X: list[Floats]) -> tuple[Floats, Floats]:
        """Z, and the weights w_m of the views."""
        Z = (rng_for(self._seed, "Z").random((len(X[0]), self.n_bits)) < 0.5).astype(np.float64)
        F = [solve_damped(Z.T @ Z, self.gamma, Z.T @ x).T for x in X]
        errors = [row_errors(x, Z, f) for x, f in zip(X, F, strict=True)]
        losses = []
        for step in range(self.max_iter):
            w = self._view_weights(errors)
            Z = sweep_bits(Z, X, F, [weight / e for weight, e in zip(w, errors, strict=True)], self.n_sweeps)
            F = [self._dictionary(x, 1.0 / e, Z, weight) for x, e, weight in zip(X, errors, w, strict=True)]
            errors = [row_errors(x, Z, f) for x, f in zip(X, F, strict=True)]
            fit = sum(weight * float(e.sum()) for weight, e in zip(w, errors, strict=True))
            losses.append(fit + 0.5 * self.gamma * sum(float(np.sum(f**2)) for f in F))
            self._report(step + 1, self.max_iter, f"objective {losses[-1]:.6g}")
        self.objective_ = np.array(losses)
        return Z, w

    def _view_weights(self, errors: list[Floats]) -> Floats:
        """w_m = a_m^r."""
        h = np.array([e.sum() for e in errors])
        share = np.exp(np.log(h / h.max()) / (1.0 - self.exponent) * (-1.0 if self.as_released else 1.0))
        share = np.maximum(share / share.sum(), 1e-12)  # a view of no weight has no dictionary
        return np.asarray(share**self.exponent)

    def _dictionary(self, X: Floats, d: Floats, Z: Floats, weight: float) -> Floats:
        """F_m = X_m'D_m Z (Z'D_m Z + g/w_m I)^-1."""
        DZ = d[:, None] * Z
        return solve_damped(Z.T @ DZ, self.gamma / weight, DZ.T @ X).T

    # -- hash functions ------------------------------------------------------------------------------------------

    def _hash_functions(
        self, X: list[Floats], XX: list[Floats], B: Floats
    ) -> tuple[list[Floats], list[Floats], Floats]:
        """W_m, u_m and R."""
        rng = rng_for(self._seed, "hash functions")
        R = rng.standard_normal((self.n_bits, self.n_bits))
        T = rng.standard_normal(B.shape)
        u = [rng.standard_normal(self.n_bits) for _ in X]
        W: list[Floats] = []
        for _ in range(self.hash_iter):
            W = [solve_damped(xx, self.gamma, x.T @ (T + v)) for x, xx, v in zip(X, XX, u, strict=True)]
            XW = [x @ weights for x, weights in zip(X, W, strict=True)]
            target = np.sum([xw - v for xw, v in zip(XW, u, strict=True)], axis=0) + self.hash_weight * (B @ R)
            T = solve_damped(self.hash_weight * (R.T @ R), float(len(X)), target.T).T
            R = self._rotation(T, B)
            u = [(xw - T).mean(axis=0) for xw in XW]
        return W, u, R

    def _rotation(self, T: Floats, B: Floats) -> Floats:
        """R = B'T (T'T + g I)^-1."""
        if self.as_released:
            return solve_damped(B.T @ B, self.gamma, B.T @ T).T
        return solve_damped(T.T @ T, self.gamma, T.T @ B).T

    def _project_block(self, block: Floats, view: str) -> Floats:
        return block @ self.weights_[view] - self.offsets_[view]


def row_errors(X: Floats, Z: Floats, F: Floats) -> Floats:
    """||x_i - F z_i||, never quite 0."""
    E = X - Z @ F.T
    return np.sqrt(np.einsum("ij,ij->i", E, E) + EPS)


def sweep_bits(Z: Floats, X: list[Floats], F: list[Floats], weights: list[Floats], n_sweeps: int) -> Floats:
    """Z after sweeps over its bits; `weights` holds w_m D_m(i) of every row, for every view.

    Y = sum_m w_m D_m (Z F_m'F_m - X_m F_m) holds the cost of every bit due to all bits, itself included. A flip of
    bit k changes only the rows of Y in which it happens.
    """
    Z = Z.copy()
    scale = np.stack(weights, axis=1)
    grams = np.stack([f.T @ f for f in F])
    parts = [Z @ gram - x @ f for gram, x, f in zip(grams, X, F, strict=True)]
    Y = np.sum([s[:, None] * part for s, part in zip(weights, parts, strict=True)], axis=0)
    single = scale @ np.diagonal(grams, axis1=1, axis2=2)  # w D ||f_k||^2 of every row and bit
    for _ in range(n_sweeps):
        changed = False
        for k in range(Z.shape[1]):
            new = smallest_half(Y[:, k] + single[:, k] * (0.5 - Z[:, k]))
            rows = np.flatnonzero(new != Z[:, k])
            if rows.size:
                step = (new[rows] - Z[rows, k])[:, None]
                Y[rows] += (step * scale[rows]) @ grams[:, k]
                Z[:, k] = new
                changed = True
        if not changed:
            break
    return Z


def smallest_half(cost: Floats) -> Floats:
    """1 for the half of the entries (rounded up) that is smallest, else 0; of equal ones the first rows count."""
    half = (len(cost) + 1) // 2
    limit = np.partition(cost, half - 1)[half - 1]
    chosen = cost < limit
    ties = np.flatnonzero(cost == limit)
    chosen[ties[: half - int(chosen.sum())]] = True
    return chosen.astype(np.float64)
