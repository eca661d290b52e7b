"""FDCH: Fast Discrete Cross-modal Hashing with regressing from semantic labels (Liu et al., ACM MM 2018)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.base import CrossModalHasher, Progress
from fusehash.hashers.baselines.shared import RBFFeatures, anchor_features, balanced_codes
from fusehash.numerics.linalg import damped_solver, solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Rule, integer, real, rng_for
from fusehash.views import Floats, PairedViews


class FDCH(CrossModalHasher):
    """Codes are regressed from labels, with a drift, and from kernel features of every view.

        min || B - Y G - 1 t' ||^2 + label_ridge ||G||^2 + mu sum_m (|| B - Phi_m W_m ||^2 + ridge ||W_m||^2)

    B (N x K) in {-1, +1}, Y (N x c) labels, G (c x K), t (K) the drift, Phi_m (N x P) RBF similarities to P anchors,
    centered. Every step is the exact minimizer given the others, so the objective never rises:

        G   = (Y'Y + label_ridge I)^-1 Y'(B - 1 t')
        t   = mean of the rows of B - Y G
        W_m = (Phi_m'Phi_m + ridge I)^-1 Phi_m'B
        B   = sgn(Y G + 1 t' + mu sum_m Phi_m W_m)

    from random B in which every bit is +1 for half of the rows. An item seen in view m gets sgn(Phi_m(x) W_m).
    Going from labels to codes makes the step for B a plain sign, without a loop over bits.

    With a small mu, items of equal labels get equal codes: `codes_` then has as many different rows as there are
    different sets of labels.

    Reconstructed from text. The abstract gives the regression from labels to codes and the drift. The term of the
    views, its kernel features (bandwidth: twice the mean squared distance to the anchors), the settings and the start
    are those of related methods (supervised discrete hashing and its fast form), and the fusion of several views, the
    sum of projections, is ours. `ridge` was chosen on training rows of Wiki alone.

    Parameters
    ----------
    n_bits : code length, a multiple of 8.
    mu : weight of the views.
    label_ridge : weight of ||G||^2.
    ridge : weight of ||W_m||^2; the features are between -1 and 1.
    n_anchors : anchors P, random training rows, the same in all views.
    max_iter : iterations; stops when no bit changes.
    random_state : seed of the anchors and the first codes.
    callback : called with (step, total, message), once per iteration.

    Attributes
    ----------
    objective_ : the objective after every iteration.
    """

    method: ClassVar[str] = "fdch"
    summary: ClassVar[str] = "codes regressed from labels with a drift, kernel ridge hash functions"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "mu": real(),
        "label_ridge": real(),
        "ridge": real(),
        "n_anchors": integer(1),
        "max_iter": integer(1),
    }

    objective_: Floats
    features_: dict[str, RBFFeatures]
    weights_: dict[str, Floats]

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
        # The functions of the last codes.
        self.weights_ = {name: solve_ridge(solvers[name], phi.T @ B) for name, phi in Phi.items()}
        self.objective_ = np.array(losses)

    def _project_block(self, block: Floats, view: str) -> Floats:
        return self.features_[view](block) @ self.weights_[view]

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
