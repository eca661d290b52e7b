"""CSGH: Collaborative Subspace Graph Hashing (ICMR 2018), reconstructed from its abstract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from fusehash.hashers.linear import CenteredViews, LinearHasher, settled, sum_parts
from fusehash.numerics.anchors import anchor_weights, choose_anchors, to_sparse
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import Progress, Rule, integer, optional, real, rng_for
from fusehash.views import Floats, PairedViews

# Ridges are never below this, so that dependent features and idle subspace directions have a solution too.
LEAST_RIDGE = 1e-10


class CSGH(LinearHasher):
    """Two views with a subspace each, one shared map from the subspaces to the codes, graphs within and across views.

        min  (1/N) [ sum_m ||B - Y_m Q||^2  +  a sum_m tr(Y_m' L_m Y_m)  +  b/2 sum_ij S_ij ||y_1i - y_2j||^2 ]
             + g (sum_m ||P_m||^2 / d_m + ||Q||^2),         Y_m = X_m P_m,   B in {-1, +1}

        S_m = Z_m Lambda_m^-1 Z_m',   L_m = I - S_m,   S = (S_1 + S_2) / 2

    X_m (N x d_m) is centered and scaled to unit mean square norm, P_m (d_m x r), Q (r x K). Z_m is the anchor graph of
    view m, so S_m is symmetric with rows that sum to 1. Nothing N x N is formed: the graphs enter through Z_m'X_l only.
    Every step is the exact minimizer over its block, so the objective never rises:

        P_m :  G_m P_m QQ' + A_m P_m = X_m'B Q' / N + (b/2) X_m'S X_l P_l / N      (l the other view),
               G_m = X_m'X_m / N,   A_m = a X_m'L_m X_m / N + (b/2) G_m + (g / d_m) I,
               a Sylvester equation; with V'A_m V = I, V'G_m V = diag(delta) and QQ' = U diag(theta) U' the entries of
               V^-1 P_m U are those of V' (right side) U over 1 + delta_i theta_j
        Q   :  (sum_m Y_m'Y_m / N + g I)^-1 sum_m Y_m'B / N
        B   :  sgn(sum_m Y_m Q)

    Parameters
    ----------
    n_bits, n_anchors, n_neighbors : int, default 64, 300 and 5
        Code length, a multiple of 8; random training pairs as anchors (at most N); anchors that each item is joined to.
    n_components : int, optional
        r, the dimension of the subspaces; n_bits by default.
    graph_weight, cross_weight : float, default 0.1
        a, the weight of the Laplacians; b, the weight of the correlation between the views.
    ridge, max_iter, tol : float, default 1e-3; int, default 20; float, default 1e-5
        g; stop after so many iterations or when the objective changes by no more than `tol` (relative).
    random_state, n_threads, callback : optional
        Seed; threads of `fit` (all cores by default); function called as callback(step, total, message).

    Attributes
    ----------
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    Known: a subspace per view, one shared map to Hamming space, a Laplacian per view, a graph-based correlation between
    the views, alternating closed forms. The correlation is a squared distance, since a trace has no bound.

    References
    ----------
    Collaborative Subspace Graph Hashing for Cross-modal Retrieval. ICMR 2018.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.CSGH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "csgh"
    summary: ClassVar[str] = "a subspace for each view, one map to the codes, anchor graphs within and across views"
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "n_components": optional(integer(1)),
        "graph_weight": real(),
        "cross_weight": real(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        n_components: int | None = None,
        graph_weight: float = 0.1,
        cross_weight: float = 0.1,
        n_anchors: int = 300,
        n_neighbors: int = 5,
        ridge: float = 1e-3,
        max_iter: int = 20,
        tol: float = 1e-5,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_components = n_components
        self.graph_weight = graph_weight
        self.cross_weight = cross_weight
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge, self.n_threads)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        N, (first, second) = views.n_rows, views.names
        scale = {name: float(np.sqrt(np.trace(data.sums[name].gram) / N)) for name in views}
        n_anchors = min(self.n_anchors, N)
        anchors = choose_anchors(views, n_anchors, "random", rng_for(self._seed, "anchors"))
        within, graph = graph_sums(data, anchors, min(self.n_neighbors, n_anchors), scale)
        g = max(self.ridge, LEAST_RIDGE)
        steps = {
            name: SubspaceStep.of(
                data.sums[name].gram / scale[name] ** 2 / N, within[name], self.graph_weight, self.cross_weight, g
            )
            for name in views
        }
        across = {first: graph, second: graph.T}
        other = {first: second, second: first}
        r = self.n_components or self.n_bits
        Q = random_rotations(r, self.n_bits, rng_for(self._seed, "Q"))
        rng = rng_for(self._seed, "W")
        W = {name: rng.standard_normal((d, self.n_bits)) / scale[name] for name, d in views.n_features.items()}
        P = {name: np.zeros((d, r)) for name, d in views.n_features.items()}
        codes, XB = data.sign_step(W)
        losses: list[float] = []
        for step in range(self.max_iter):
            targets = {name: XB[name] / scale[name] / N for name in views}
            for name in views:
                pull = 0.5 * self.cross_weight * (across[name] @ P[other[name]])
                P[name] = steps[name](targets[name] @ Q.T + pull, Q)
            Q = shared_map(P, {name: steps[name].G for name in views}, targets, g)
            W = {name: P[name] @ Q / scale[name] for name in views}
            codes, XB = data.sign_step(W)
            # tr(P_m'A_m P_m) holds the quadratic terms of P_m.
            smooth = sum(float(np.sum(P[name] * (steps[name].A @ P[name]))) for name in views)
            smooth -= self.cross_weight * float(np.sum(P[first] * (graph @ P[second])))
            loss = data.regression_loss(W, XB, N * self.n_bits) / N + smooth + g * float(np.sum(Q * Q))
            losses.append(loss)
            self._report(step + 1, self.max_iter, f"loss {loss:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = codes
        self.means_ = data.means
        self.weights_ = W
        self.objective_ = np.array(losses)


def graph_sums(
    data: CenteredViews, anchors: dict[str, Floats], k: int, scale: dict[str, float]
) -> tuple[dict[str, Floats], Floats]:
    """X_m'S_m X_m / N of every view, and X_1'S X_2 / N, from one pass over row blocks for Z_m'1 and Z_m'X_l."""
    names = data.views.names

    def of_block(rows: slice) -> dict[str, Floats]:
        X = {name: data.block(name, rows) / scale[name] for name in names}
        parts = {}
        for name in names:
            Z = to_sparse(anchor_weights(data.views.block(name, rows), anchors[name], k), len(anchors[name]))
            parts[f"{name} mass"] = np.asarray(Z.sum(axis=0)).ravel()
            parts[name] = Z.T @ np.hstack(list(X.values()))
        return parts

    sums = sum_parts(map_blocks(of_block, data.views.blocks(), data.n_threads))
    cut, N = data.views.n_features[names[0]], data.views.n_rows
    within, across = {}, np.zeros((cut, data.views.n_features[names[1]]))
    for i, name in enumerate(names):
        mass = sums[f"{name} mass"]
        half = np.where(mass > 0.0, 1.0 / np.sqrt(np.where(mass > 0.0, mass, 1.0)), 0.0)
        parts = np.split(sums[name] * half[:, None], [cut], axis=1)  # Lambda_m^-1/2 Z_m' [X_1, X_2]
        within[name] = parts[i].T @ parts[i] / N
        across += parts[0].T @ parts[1] / (2.0 * N)
    return within, across


@dataclass(frozen=True)
class SubspaceStep:
    """P with G P QQ' + A P = R; the pencil (G, A) is decomposed once, QQ' in every iteration."""

    G: Floats
    A: Floats
    V: Floats
    delta: Floats

    @classmethod
    def of(cls, G: Floats, within: Floats, graph_weight: float, cross_weight: float, g: float) -> SubspaceStep:
        """V'A V = I and V'G V = diag(delta)."""
        A = graph_weight * (G - within) + 0.5 * cross_weight * G + (g / len(G)) * np.eye(len(G))
        delta, V = eigh(G, (A + A.T) / 2.0, check_finite=False)
        return cls(G, A, V, np.maximum(delta, 0.0))

    def __call__(self, R: Floats, Q: Floats) -> Floats:
        theta, U = eigh(Q @ Q.T, check_finite=False)
        inner = (self.V.T @ R @ U) / (1.0 + np.outer(self.delta, np.maximum(theta, 0.0)))
        return self.V @ inner @ U.T


def shared_map(P: dict[str, Floats], G: dict[str, Floats], targets: dict[str, Floats], g: float) -> Floats:
    """Q = (sum_m Y_m'Y_m / N + g I)^-1 sum_m Y_m'B / N, with targets X_m'B / N."""
    gram = np.sum([P[name].T @ G[name] @ P[name] for name in P], axis=0)
    right = np.sum([P[name].T @ targets[name] for name in P], axis=0)
    return np.asarray(cho_solve(cho_factor(gram + g * np.eye(len(gram)), lower=True), right))
