"""ADCH: Asymmetric Discrete Cross-modal Hashing (Luo et al., ICMR 2018)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.linalg import svd

from fusehash import bits
from fusehash.hashers.kernel import KernelHasher, anchor_features, label_cosines
from fusehash.numerics.linalg import damped_solver, solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class ADCH(KernelHasher):
    """Binary codes and a real latent factor of all views that together reproduce the similarity of the labels.

        min  sum_m || Phi_m - V U_m ||^2 + (alpha / N) || K S - B V' ||^2 + beta || B - V R ||^2
             + gamma (sum_m ||U_m||^2 + ||V||^2),        R'R = I

    B (N x K) in {-1, +1}, V (N x K) real and shared by the views, U_m (K x P), Phi_m (N x P) RBF similarities to P
    anchors, centered and scaled to mean square row length 1. S = 2 L L', L the label rows of unit length minus their
    mean: the usual 2 cosine - 1 without its row and column means, which constant bits (b = 1, v = -1) would explain.
    S is never formed. In every iteration

        U_m = (V'V + gamma I)^-1 V'Phi_m
        R   = P Q'  with  V'B = P D Q'
        V   = (sum_m Phi_m U_m' + (alpha / N) K S B + beta B R') A^-1,
              A = sum_m U_m U_m' + (alpha / N) B'B + (beta + gamma) I
        b_k = sgn((alpha / N) (K S v_k - sum_{j != k} b_j (v_j'v_k)) + beta (V R)_k)     for each bit k in turn

    from random projections V of all features and B = sgn(V). Each step is the exact minimizer given the others, so the
    objective never rises. Then K classifiers for each view: ridge regression of B on Phi_m.

    Parameters
    ----------
    n_bits, n_anchors, max_iter : int, default 64, 500 and 20
        Code length, a multiple of 8; P random rows, the same in all views; iterations, at most.
    alpha, beta, gamma : float, default 1, 1 and 0.01
        Weights of the label similarity, of || B - V R ||^2, and of the squared norms.
    ridge : float, default 0.1
        Ridge of the classifiers; the features are between -1 and 1.
    random_state, callback : optional
        Seed; function called as callback(step, total, message) in every step.

    Attributes
    ----------
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    Known: collective matrix factorization, similarity kept between a real and a binary factor, discrete codes, and
    classifiers as hash functions. `ridge` was chosen on training rows of Wiki alone; the weights were not tuned.

    References
    ----------
    X. Luo, P.-F. Zhang, Y. Wu, Z.-D. Chen, H.-J. Huang, X.-S. Xu. Asymmetric Discrete Cross-Modal Hashing. ICMR 2018.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.ADCH(n_bits=16, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "adch"
    summary: ClassVar[str] = "shared factor of all views and binary codes that reproduce label similarity together"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "alpha": real(strict=True),
        "beta": real(strict=True),
        "gamma": real(strict=True),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 0.01,
        ridge: float = 0.1,
        n_anchors: int = 500,
        max_iter: int = 20,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.ridge = ridge
        self.n_anchors = n_anchors
        self.max_iter = max_iter
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        self.features_, Phi = anchor_features(views, self.n_anchors, rng_for(self._seed, "anchors"))
        cosines = label_cosines(labels)
        L = cosines - cosines.mean(axis=0)
        scaled = [phi / (np.sqrt(np.mean(np.sum(phi**2, axis=1))) or 1.0) for phi in Phi.values()]
        steps = ADCHSteps(scaled, L, self.alpha / views.n_rows, self.beta, self.gamma)
        V = random_projections(scaled, self.n_bits, rng_for(self._seed, "V"))
        B = signs_of(V)
        losses = []
        for i in range(self.max_iter):
            U, R = steps.bases(V), rotation(V, B)
            V = steps.latent(U, R, B)
            before, B = B, steps.codes(V, R, B)
            losses.append(steps.objective(U, R, V, B))
            self._report(i + 1, self.max_iter, f"objective {losses[-1]:.6g}")
            if np.array_equal(before, B):
                break
        self.codes_ = bits.pack(B)
        self.weights_ = {
            name: solve_ridge(damped_solver(phi.T @ phi, self.ridge), phi.T @ B) for name, phi in Phi.items()
        }
        self.objective_ = np.array(losses)


class ADCHSteps:
    """The steps; `alpha` is already divided by N here."""

    def __init__(self, Phi: list[Floats], L: Floats, alpha: float, beta: float, gamma: float) -> None:
        self.Phi, self.L, self.alpha, self.beta, self.gamma = Phi, L, alpha, beta, gamma

    def similarities(self, M: Floats) -> Floats:
        """S M for S = 2 L L'."""
        return 2.0 * self.L @ (self.L.T @ M)

    def bases(self, V: Floats) -> list[Floats]:
        """U_m = (V'V + gamma I)^-1 V'Phi_m."""
        solver = damped_solver(V.T @ V, self.gamma)
        return [solve_ridge(solver, V.T @ phi) for phi in self.Phi]

    def latent(self, U: list[Floats], R: Floats, B: Floats) -> Floats:
        """V, from normal equations that all rows share."""
        K = B.shape[1]
        gram = np.sum([u @ u.T for u in U], axis=0) + self.alpha * (B.T @ B)
        target = np.sum([phi @ u.T for phi, u in zip(self.Phi, U, strict=True)], axis=0)
        target += self.alpha * K * self.similarities(B) + self.beta * (B @ R.T)
        gram[np.diag_indices(K)] += self.beta + self.gamma
        return solve_ridge(np.linalg.cholesky(gram), target.T).T

    def codes(self, V: Floats, R: Floats, B: Floats) -> Floats:
        """One sweep over the bits, each the best given the others."""
        K = B.shape[1]
        B = B.copy()
        target = self.alpha * K * self.similarities(V) + self.beta * (V @ R)
        gram = self.alpha * (V.T @ V)
        for k in range(K):
            others = B @ gram[:, k] - B[:, k] * gram[k, k]
            B[:, k] = signs_of(target[:, k] - others)
        return B

    def objective(self, U: list[Floats], R: Floats, V: Floats, B: Floats) -> float:
        """Everything that is minimized; || K S - B V' ||^2 from small Gram matrices."""
        K, S2 = B.shape[1], 4.0 * np.sum((self.L.T @ self.L) ** 2)
        loss = self.alpha * (K**2 * S2 - 2.0 * K * np.sum(B * self.similarities(V)) + np.sum((B.T @ B) * (V.T @ V)))
        loss += self.beta * np.sum((B - V @ R) ** 2) + self.gamma * np.sum(V**2)
        for phi, u in zip(self.Phi, U, strict=True):
            loss += np.sum((phi - V @ u) ** 2) + self.gamma * np.sum(u**2)
        return float(loss)


def random_projections(Phi: list[Floats], n_bits: int, rng: np.random.Generator) -> Floats:
    """(N x K) of mean square 1 in every column."""
    V = np.sum([phi @ rng.standard_normal((phi.shape[1], n_bits)) for phi in Phi], axis=0)
    size = np.sqrt(np.mean(V**2, axis=0))
    return np.asarray(V / np.where(size > 0.0, size, 1.0))


def rotation(V: Floats, B: Floats) -> Floats:
    """The orthogonal R of the least || B - V R ||."""
    P, _, Qt = svd(V.T @ B)
    return np.asarray(P @ Qt)
