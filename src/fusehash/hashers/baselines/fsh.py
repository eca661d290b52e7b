"""FSH: a graph to anchors in which the neighbors of one view are crossed with those of the other."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fusehash import bits
from fusehash.hashers.linear import LinearHasher, centered_matrices, checked_mean
from fusehash.numerics.anchors import anchor_weights, squared_distances, to_sparse
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, between, flag, real, rng_for
from fusehash.views import Floats, PairedViews


class FSH(LinearHasher):
    """Fusion Similarity Hashing, for two views: an anchor graph that crosses the neighbors of both.

    Rows are scaled to unit length, then centered. P random training pairs are the anchors. E_m (N x P) marks the k
    nearest anchors of each row in view m, F_m (P x P) the k nearest anchors of each anchor (itself among them), and
    G_m = exp(-distance / 2) between anchors. With o the other view, the fused similarity of rows and anchors is

        A_m = E_m G_m F_o' / k^2,      S = eta A_1 + (1 - eta) A_2

    and codes B of the rows, B_s (P x K) of the anchors and hash functions W_m follow from

        max  tr(B' S B_s) - lambda sum_m ||B - X_m W_m||^2

    From W_m ~ N(0, 1), B_s = (anchors of view 2) W_2 and eta = 1/2 each round does

        B   = sgn(S B_s + 2 lambda sum_m X_m W_m),   B_s = sgn(S'B),   W_m = (X_m'X_m)^-1 X_m'B
        eta = |p_1|^e / (|p_1|^e + |p_2|^e),         p_m = P - tr(B' A_m B_s),   e = 1 / (1 - r)

    until nothing changes. A query is sgn(x W_m). Items seen in both views are coded by the formula of B.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) in every step.
    n_anchors, n_neighbors, max_iter : int, default 50, 10 and 100
        P, at most the number of rows; k, at most P; largest number of rounds.
    penalty, power : float, default 300 and 0.5
        lambda, the weight of the regression; r, between 0 and 1 (both excluded).
    normalize : bool, default True
        Scale rows to unit length first; rows of zeros stay.
    as_released : bool, default False
        Compute eta as the public code does (see Notes).

    Attributes
    ----------
    means_, weights_, anchors_, graph_weights_ : dict of str to ndarray
        Training mean, W_m, anchors, and the table that gives S B_s from the nearest anchors, of every view.
    eta_ : float
        Weight of the graph of the first view by name.
    objective_ : ndarray of shape (n_iterations,)
        Negative of the objective. The first three steps cannot raise it, the change of eta can.

    Notes
    -----
    The formulas are those of the authors' public code; its k-means and CCA starts are left out. There eta is
    (p_1 / (p_1 + p_2))^e, which does not sum to 1 with its counterpart: equal p give the second view the weight 3/4.
    A tiny ridge replaces the missing one where features depend on each other.

    References
    ----------
    H. Liu, R. Ji, Y. Wu, F. Huang, B. Zhang. Cross-Modality Binary Code Learning via Fusion Similarity Hashing. CVPR
    2017.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.FSH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "fsh"
    summary: ClassVar[str] = "anchor graph with the neighbors of two views crossed, sign and regression"
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "penalty": real(strict=True),
        "power": between(0.0, 1.0),
        "normalize": flag(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        n_anchors: int = 50,
        n_neighbors: int = 10,
        penalty: float = 300.0,
        power: float = 0.5,
        normalize: bool = True,
        max_iter: int = 100,
        as_released: bool = False,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.penalty = penalty
        self.power = power
        self.normalize = normalize
        self.max_iter = max_iter
        self.as_released = as_released
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        whole = {name: views.block(name, slice(None)) for name in views}
        for name, x in whole.items():
            checked_mean(name, x)  # before rows are scaled
        centered, self.means_ = centered_matrices(PairedViews({name: self._scaled(x) for name, x in whole.items()}))
        X = list(centered.values())
        n_anchors = min(self.n_anchors, views.n_rows)
        k = min(self.n_neighbors, n_anchors)
        rows = rng_for(self._seed, "anchors").choice(views.n_rows, n_anchors, replace=False)
        anchors = [x[rows] for x in X]
        tables = crossed_tables(anchors, k)
        A = [neighbor_matrix(x, t, k) @ table for x, t, table in zip(X, anchors, tables, strict=True)]
        factors = [ridge_solver(x.T @ x, 0.0) for x in X]
        rng = rng_for(self._seed, "W")
        W = [rng.standard_normal((x.shape[1], self.n_bits)) for x in X]
        B_s, eta = anchors[1] @ W[1], 0.5
        B = np.zeros((views.n_rows, self.n_bits))
        losses = []
        for step in range(self.max_iter):
            S = eta * A[0] + (1.0 - eta) * A[1]
            before, used = (B, B_s), eta
            B = signs_of(S @ B_s + 2.0 * self.penalty * (X[0] @ W[0] + X[1] @ W[1]))
            B_s = signs_of(S.T @ B)
            XB = [x.T @ B for x in X]
            W = [solve_ridge(factor, product) for factor, product in zip(factors, XB, strict=True)]
            explained = sum(float(np.sum(w * product)) for w, product in zip(W, XB, strict=True))
            losses.append(self.penalty * (2 * B.size - explained) - float(np.sum((S.T @ B) * B_s)))
            eta = self._weight(*(n_anchors - float(np.sum((a.T @ B) * B_s)) for a in A))
            self._report(step + 1, self.max_iter, f"objective {losses[-1]:.6g}")
            if eta == used and np.array_equal(B, before[0]) and np.array_equal(B_s, before[1]):
                break
        self.codes_ = bits.pack(B)
        self.weights_ = dict(zip(views, W, strict=True))
        self.anchors_ = dict(zip(views, anchors, strict=True))
        shares = zip(views, (used, 1.0 - used), tables, strict=True)
        self.graph_weights_ = {name: share * (table @ B_s) for name, share, table in shares}
        self.eta_ = eta
        self.objective_ = np.array(losses)

    def _weight(self, p_1: float, p_2: float) -> float:
        """eta from the misfits of the two graphs."""
        exponent = 1.0 / (1.0 - self.power)
        if self.as_released:
            return float(abs(p_1 / (p_1 + p_2)) ** exponent) if p_1 + p_2 else 0.5
        largest = max(abs(p_1), abs(p_2)) or 1.0
        q_1, q_2 = (abs(p_1) / largest) ** exponent, (abs(p_2) / largest) ** exponent
        return q_1 / (q_1 + q_2) if q_1 + q_2 else 0.5

    def _scaled(self, block: Floats) -> Floats:
        if not self.normalize:
            return block
        largest = np.abs(block).max(axis=1, keepdims=True)
        block = block / np.where(largest > 0.0, largest, 1.0)  # or squares of very large or small numbers are lost
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
        return block / np.where(norms > 0.0, norms, 1.0)

    def _project_block(self, block: Floats, view: str) -> Floats:
        return super()._project_block(self._scaled(block), view)

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        """S B_s + 2 lambda sum_m x_m W_m, with S from the anchors of the training pairs."""
        total = np.zeros((1, 1))
        for name, block in blocks.items():
            rows = self._scaled(block) - self.means_[name]
            E = neighbor_matrix(rows, self.anchors_[name], min(self.n_neighbors, len(self.anchors_[name])))
            total = total + E @ self.graph_weights_[name] + 2.0 * self.penalty * (rows @ self.weights_[name])
        return total


def neighbor_matrix(X: Floats, anchors: Floats, k: int) -> sp.csr_matrix:
    """E (n x P, 0/1): the k nearest anchors of every row; of equal distances the first anchor counts."""
    index, _ = anchor_weights(X, anchors, k)
    return to_sparse((index, np.ones(index.shape)), len(anchors))


def crossed_tables(anchors: list[Floats], k: int) -> list[Floats]:
    """G_m F_o' / k^2 of both views (P x P): what the anchors near a row pass on through the other view."""
    F = [neighbor_matrix(t, t, k) for t in anchors]
    G = [np.exp(-0.5 * np.sqrt(squared_distances(t, t))) for t in anchors]
    return [(F[1] @ G[0].T).T / k**2, (F[0] @ G[1].T).T / k**2]
