"""PDH: Predictable Dual-view Hashing (Rastegari et al., ICML 2013), reconstructed from text."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.canonical import rotated_directions
from fusehash.hashers.linear import CenteredViews, LinearHasher, settled
from fusehash.numerics.linalg import solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, integer, real, rng_for
from fusehash.views import Floats, PairedViews


class PDH(LinearHasher):
    """Two views whose bits are predictable from each other by large-margin classifiers, and uncorrelated.

        min  sum_m [ sum h(B_l * U_m) + s sum h(B_m * U_m) + (1 + s) r_m ||W_m||^2 ]  +  2 rho sum_m (NK - <B_m, Y_m>)

        U_m = X_m W_m + 1 c_m',   h(z) = max(0, 1 - z)^2,   l the other view,   B_m in {-1, +1},
        Y_m'Y_m <= N I,  Y_m'1 = 0

    X_m (N x d_m) is centered, W_m (d_m x K), r_m = ridge times the mean diagonal of X_m'X_m. The first term lets each
    view predict the bits of the other one, the second ties a view's bits to its own classifier, and Y_m stands for
    balanced, uncorrelated codes. No step raises the objective:

        W_m, c_m :  a squared hinge is h(b u) = min_{e >= 0} (b (1 + e) - u)^2, so with T_j = B_j * max(1, B_j * U_m)
                    the classifiers of all bits move together by one ridge regression of (T_l + s T_m) / (1 + s) on X_m;
                    `n_inner` such steps (they go down, but are not the end of the minimization)
        B_m      :  sgn(f(U_l) + s f(U_m) + 4 rho Y_m),   f(u) = h(-u) - h(u)       exact, entry by entry
        Y_m      :  sqrt(N) times the polar factor of B_m - mean                    exact

    It starts from the signs of randomly rotated canonical variates. The unified code is sgn(U_1 + U_2).

    Parameters
    ----------
    n_bits, n_inner : int, default 64 and 3
        Code length, a multiple of 8; regressions in each classifier step.
    self_weight, decorrelation : float, default 0.5 and 0.3
        s; rho, the weight of balance and decorrelation: with little of it the offsets c_m make bits constant.
    ridge, max_iter, tol : float, default 1e-3; int, default 20; float, default 1e-4
        Relative ridge; stop after so many iterations or when the objective changes by no more than `tol` (relative).
    random_state, callback : optional
        Seed; function called as callback(step, total, message) in every step.

    Attributes
    ----------
    offsets_ : dict of str to ndarray
        c_m of every view.
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    Known: classifiers of one view are trained on the bits of the other in turn, from a start by CCA, with bits that are
    decorrelated in between. That this is one objective, the squared hinge and the joint training of bits are ours.

    References
    ----------
    M. Rastegari, J. Choi, S. Fakhraei, H. Daume III, L. S. Davis. Predictable Dual-View Hashing. ICML 2013.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.PDH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "pdh"
    summary: ClassVar[str] = "bits of each view predicted from the other by large-margin classifiers"
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {"self_weight": real(), "decorrelation": real(), "n_inner": integer(1)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        self_weight: float = 0.5,
        decorrelation: float = 0.3,
        n_inner: int = 3,
        ridge: float = 1e-3,
        max_iter: int = 20,
        tol: float = 1e-4,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.self_weight = self_weight
        self.decorrelation = decorrelation
        self.n_inner = n_inner
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        X = {name: data.block(name, slice(None)) for name in views}
        first, second = views.names
        other = {first: second, second: first}
        r = min(self.n_bits, *views.n_features.values())
        W = rotated_directions(data, r, self.n_bits, rng_for(self._seed, "rotation"))
        c = {name: np.zeros(self.n_bits) for name in views}
        U = {name: X[name] @ W[name] for name in views}
        B = {name: signs_of(U[name]) for name in views}
        Y = {name: decorrelated(B[name]) for name in views}
        losses: list[float] = []
        for step in range(self.max_iter):
            for name in views:
                for _ in range(self.n_inner):
                    T = margin_targets(U[name], B[other[name]], B[name], self.self_weight)
                    W[name] = solve_ridge(data.factors[name], X[name].T @ T)
                    c[name] = T.mean(axis=0)
                    U[name] = X[name] @ W[name] + c[name]
            for name in views:
                B[name] = predicted_bits(U[other[name]], U[name], Y[name], self.self_weight, self.decorrelation)
                Y[name] = decorrelated(B[name])
            loss = sum(self._loss(data, name, W[name], U[name], B[other[name]], B[name], Y[name]) for name in views)
            losses.append(loss)
            self._report(step + 1, self.max_iter, f"loss {loss:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = bits.pack(U[first] + U[second])
        self.means_ = data.means
        self.weights_ = W
        self.offsets_ = c
        self.objective_ = np.array(losses)

    def _loss(
        self, data: CenteredViews, name: str, W: Floats, U: Floats, target: Floats, current: Floats, Y: Floats
    ) -> float:
        gram, s = data.sums[name].gram, self.self_weight
        penalty = (1.0 + s) * self.ridge * np.trace(gram) / len(gram) * np.sum(W * W)
        correlated = 2.0 * self.decorrelation * (current.size - np.sum(current * Y))
        return float(hinge(target * U).sum() + s * hinge(current * U).sum() + penalty + correlated)

    def _project_block(self, block: Floats, view: str) -> Floats:
        return super()._project_block(block, view) + self.offsets_[view]


def hinge(Z: Floats) -> Floats:
    """h(z) = max(0, 1 - z)^2."""
    return np.maximum(0.0, 1.0 - Z) ** 2


def margin_targets(U: Floats, target: Floats, current: Floats, self_weight: float) -> Floats:
    """(T_l + s T_m) / (1 + s), T = B * max(1, B * U): what is beyond the margin stays where it is."""
    T = target * np.maximum(1.0, target * U)
    T += self_weight * (current * np.maximum(1.0, current * U))
    return T / (1.0 + self_weight)


def predicted_bits(other: Floats, U: Floats, Y: Floats, self_weight: float, decorrelation: float) -> Floats:
    """The signs b that minimize h(b u_l) + s h(b u_m) - 2 rho b y, entry by entry."""
    gain = hinge(-other) - hinge(other) + self_weight * (hinge(-U) - hinge(U))
    return signs_of(gain + 4.0 * decorrelation * Y)


def decorrelated(B: Floats) -> Floats:
    """The Y with Y'Y <= N I and Y'1 = 0 nearest in angle to B: sqrt(N) times the polar factor of the centered B."""
    centered = B - B.mean(axis=0)
    w, V = np.linalg.eigh(centered.T @ centered)
    root = np.where(w > 1e-10 * len(B), 1.0 / np.sqrt(np.maximum(w, 1e-300)), 0.0)
    return np.sqrt(len(B)) * (centered @ ((V * root) @ V.T))
