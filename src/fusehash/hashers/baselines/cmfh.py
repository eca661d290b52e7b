"""CMFH: one latent matrix that every view is factorized into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.errors import ParameterError
from fusehash.hashers.baselines.joint_features import JointFeatures
from fusehash.hashers.linear import LinearHasher
from fusehash.numerics.linalg import solve_damped
from fusehash.parameters import Progress, Rule, optional, real, rng_for, sequence
from fusehash.views import Floats, PairedViews


class CMFH(LinearHasher):
    """Collective Matrix Factorization Hashing: one latent matrix that every view is factorized into.

    The centered views X_m share one latent matrix V (N x K), which linear functions of each view predict:

        min  sum_m l_m ||X_m - V U_m'||^2 + mu sum_m ||V - X_m W_m||^2 + g (||V||^2 + sum_m ||U_m||^2 + ||W_m||^2)

    From U(0, 1) for V and U(-1/2, 1/2) for W_m each step solves for one group of unknowns exactly, so the objective
    never rises:

        U_m = X_m'V (V'V + g/l_m I)^-1
        V   = (sum_m X_m (l_m U_m + mu W_m)) (sum_m l_m U_m'U_m + (M mu + g) I)^-1
        W_m = (X_m'X_m + g/mu I)^-1 X_m'V

    B = sgn(V), a query is sgn(x W_m), and items seen in every view are coded by the formula of V. V has mean zero
    because the views have, so no threshold is needed. After its start V is a combination of the features,
    V = sum_m X_m A_m, and the loop works on A_m and the Gram matrix of all features: its cost does not depend on N.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    view_weights : sequence of float, optional
        l_m, one positive number per view, in the order of their names, scaled to sum 1. Equal by default.
    mu : float, default 100
        Weight of the linear predictions.
    gamma : float, default 0.01
        g, the ridge, in squared units of the features.
    max_iter : int, default 25
        Iterations; there is no other stopping rule.
    as_released : bool, default False
        Follow the second public code, slip included (see Notes).

    Attributes
    ----------
    means_, weights_, fusion_ : dict of str to ndarray
        Training mean, W_m and A_m of every view.
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    The authors start W_m at U(0, 1), so that all columns share the direction of the sum of the features. Where that
    sum varies much, as in deep features after a ReLU, mu holds V near X_m W_m, and all bits stay nearly the same.
    Around zero the columns start apart.

    Two codes of the authors are public. The first uses g where the objective asks for g/l_m and g/mu. The second
    weights mu by l_m, and the order of its operations divides W_m by mu^2, so that W_m hardly pulls at V after
    the first step. `as_released` follows the second from U(0, 1), which collections of methods contain;
    `objective_` is then that code's (every term weighted by l_m) and can rise.

    References
    ----------
    G. Ding, Y. Guo, J. Zhou. Collective Matrix Factorization Hashing for Multimodal Data. CVPR 2014.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.CMFH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "cmfh"
    summary: ClassVar[str] = "collective matrix factorization of all views, with linear predictions of the factor"
    scale_free: ClassVar[bool] = False
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "view_weights": optional(sequence(real(strict=True), "one number greater than 0 per view")),
        "mu": real(strict=True),
        "gamma": real(strict=True),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        view_weights: Sequence[float] | None = None,
        mu: float = 100.0,
        gamma: float = 0.01,
        max_iter: int = 25,
        as_released: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.mu = mu
        self.gamma = gamma
        self.max_iter = max_iter
        self.as_released = as_released
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = JointFeatures(views, {"V": self.n_bits}, self._seed, self.n_threads)
        share = self._shares(views)
        rng = rng_for(self._seed, "W")
        middle = 0.0 if self.as_released else 0.5
        W = {name: rng.random((d, self.n_bits)) - middle for name, d in views.n_features.items()}
        A = data.start("V")
        losses = []
        for step in range(self.max_iter):
            U = {name: self._basis(data, A, name, weight) for name, weight in share.items()}
            A = self._latent(data, U, W, share)
            W = {name: self._hash_function(data, A, name) for name in views}
            losses.append(self._objective(data, A, U, W, share))
            self._report(step + 1, self.max_iter, f"objective {losses[-1]:.6g}")
        self.codes_ = np.vstack(list(data.map_blocks(lambda block: bits.pack(block @ A))))
        self.means_ = data.means
        self.weights_ = W
        self.fusion_ = {name: A[data.span[name]] for name in views}
        self.objective_ = np.array(losses)

    def _shares(self, views: PairedViews) -> dict[str, float]:
        """l_m, which sum to 1."""
        weights = [1.0] * len(views.names) if self.view_weights is None else self.view_weights
        if len(weights) != len(views.names):
            expected = f"None or one number for each of the {len(views.names)} views"
            raise ParameterError(type(self).__name__, "view_weights", expected, weights)
        return {name: float(weight) / float(sum(weights)) for name, weight in zip(views.names, weights, strict=True)}

    def _pull(self, share: float) -> float:
        """The weight of ||V - X_m W_m||^2."""
        return share * self.mu if self.as_released else self.mu

    def _basis(self, data: JointFeatures, A: Floats, name: str, share: float) -> Floats:
        """U_m = X_m'V (V'V + g/l_m I)^-1."""
        ridge = self.gamma if self.as_released else self.gamma / share
        return solve_damped(A.T @ data.gram @ A, ridge, (data.gram[data.span[name]] @ A).T).T

    def _latent(
        self, data: JointFeatures, U: dict[str, Floats], W: dict[str, Floats], share: dict[str, float]
    ) -> Floats:
        """V = (sum_m X_m (l_m U_m + mu W_m)) (sum_m l_m U_m'U_m + (M mu + g) I)^-1, as coefficients of the features."""
        ridge = sum(self._pull(weight) for weight in share.values()) + self.gamma
        UU = np.sum([weight * (U[name].T @ U[name]) for name, weight in share.items()], axis=0)
        A = np.zeros((len(data.gram), self.n_bits))
        for name, weight in share.items():
            A[data.span[name]] = solve_damped(UU, ridge, (weight * U[name] + self._pull(weight) * W[name]).T).T
        return A

    def _hash_function(self, data: JointFeatures, A: Floats, name: str) -> Floats:
        """W_m = (X_m'X_m + g/mu I)^-1 X_m'V."""
        span = data.span[name]
        W = solve_damped(data.gram[span, span], self.gamma / self.mu, data.gram[span] @ A)
        return W / self.mu**2 if self.as_released else W

    def _objective(
        self, data: JointFeatures, A: Floats, U: dict[str, Floats], W: dict[str, Floats], share: dict[str, float]
    ) -> float:
        """The objective from traces: nothing of N rows is looked at."""
        VV = A.T @ data.gram @ A
        value = self.gamma * np.trace(VV)
        for name, weight in share.items():
            value += weight * data.residual(name, A, U[name])
            XW = data.gram[:, data.span[name]] @ W[name]
            missed = np.trace(VV) - 2.0 * np.sum(A * XW) + np.sum(W[name] * XW[data.span[name]])
            value += self._pull(weight) * missed
            ridge = self.gamma * weight if self.as_released else self.gamma
            value += ridge * (np.sum(U[name] ** 2) + np.sum(W[name] ** 2))
        return float(value)

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        return np.sum([(block - self.means_[name]) @ self.fusion_[name] for name, block in blocks.items()], axis=0)
