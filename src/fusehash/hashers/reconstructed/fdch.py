"""FDCH: Fast Discrete Cross-modal Hashing with regressing from semantic labels (Liu et al., ACM MM 2018)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.kernel import KernelHasher, anchor_features, balanced_codes
from fusehash.numerics.linalg import damped_solver, solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class FDCH(KernelHasher):
    """Codes are regressed from labels, with a drift, and from kernel features of every view.

        min || B - Y G - 1 t' ||^2 + label_ridge ||G||^2 + mu sum_m (|| B - Phi_m W_m ||^2 + ridge ||W_m||^2)

    B (N x K) in {-1, +1}, Y (N x c) labels, G (c x K), t (K) the drift, Phi_m (N x P) RBF similarities to P anchors,
    centered. Every step is the exact minimizer given the others, so the objective never rises:

        G   = (Y'Y + label_ridge I)^-1 Y'(B - 1 t')
        t   = mean of the rows of B - Y G
        W_m = (Phi_m'Phi_m + ridge I)^-1 Phi_m'B
        B   = sgn(Y G + 1 t' + mu sum_m Phi_m W_m)

    from random balanced B. A query is sgn(Phi_m(x) W_m). With a small mu, items of equal labels get equal codes.

    Parameters
    ----------
    n_bits, n_anchors, max_iter : int, default 64, 500 and 10
        Code length, a multiple of 8; P random rows, the same in all views; iterations, at most.
    mu, label_ridge, ridge : float, default 0.01, 1 and 0.1
        Weights of the views, of ||G||^2, and of ||W_m||^2; the features are between -1 and 1.
    random_state, callback : optional
        Seed; function called as callback(step, total, message) in every step.

    Attributes
    ----------
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    Known: the regression from labels to codes and the drift. The term of the views, its features and the settings come
    from supervised discrete hashing; the fusion of views is ours. `ridge` was chosen on training rows of Wiki alone.

    References
    ----------
    X. Liu, X. Nie, W. Zeng, C. Cui, L. Zhu, Y. Yin. Fast Discrete Cross-modal Hashing with Regressing from Semantic
    Labels. ACM MM 2018.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.FDCH(n_bits=16, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "fdch"
    summary: ClassVar[str] = "codes regressed from labels with a drift, kernel ridge hash functions"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {"mu": real(), "label_ridge": real()}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        mu: float = 1e-2,
        label_ridge: float = 1.0,
        ridge: float = 0.1,
        n_anchors: int = 500,
        max_iter: int = 10,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.mu = mu
        self.label_ridge = label_ridge
        self.ridge = ridge
        self.n_anchors = n_anchors
        self.max_iter = max_iter
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        self.features_, Phi = anchor_features(views, self.n_anchors, rng_for(self._seed, "anchors"))
        solvers = {name: damped_solver(phi.T @ phi, self.ridge) for name, phi in Phi.items()}
        label_solver = damped_solver(labels.T @ labels, self.label_ridge)
        B = balanced_codes(views.n_rows, self.n_bits, rng_for(self._seed, "B"))
        t = np.zeros(self.n_bits)
        losses = []
        for i in range(self.max_iter):
            G = solve_ridge(label_solver, labels.T @ (B - t))
            t = (B - labels @ G).mean(axis=0)
            W = {name: solve_ridge(solvers[name], phi.T @ B) for name, phi in Phi.items()}
            before, B = B, self._codes(labels @ G + t, Phi, W)
            losses.append(self._objective(B, labels @ G + t, G, Phi, W))
            self._report(i + 1, self.max_iter, f"objective {losses[-1]:.6g}")
            if np.array_equal(before, B):
                break
        self.codes_ = bits.pack(B)
        self.weights_ = {name: solve_ridge(solvers[name], phi.T @ B) for name, phi in Phi.items()}
        self.objective_ = np.array(losses)

    def _codes(self, from_labels: Floats, Phi: dict[str, Floats], W: dict[str, Floats]) -> Floats:
        """B = sgn(Y G + 1 t' + mu sum_m Phi_m W_m)."""
        return signs_of(from_labels + self.mu * np.sum([Phi[name] @ W[name] for name in Phi], axis=0))

    def _objective(
        self, B: Floats, from_labels: Floats, G: Floats, Phi: dict[str, Floats], W: dict[str, Floats]
    ) -> float:
        loss = np.sum((B - from_labels) ** 2) + self.label_ridge * np.sum(G**2)
        for name, phi in Phi.items():
            loss += self.mu * (np.sum((B - phi @ W[name]) ** 2) + self.ridge * np.sum(W[name] ** 2))
        return float(loss)
