"""BGDH: hypergraph-based discrete hashing (2018), reconstructed from one sentence about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fusehash import bits
from fusehash.hashers.linear import CenteredViews, LinearHasher, random_weights, ridge_penalty, settled
from fusehash.numerics.anchors import anchor_weights, choose_anchors, to_sparse
from fusehash.numerics.simplex import project_rows
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class BGDH(LinearHasher):
    """A hypergraph over all views, its weights, balanced codes and hash functions, learned together.

        min  sum_m (||B - X_m W_m||^2 + r_m ||W_m||^2)  +  beta N [ sum_e w_e V_e  +  mu K E ||w||^2 ]

        V_e = (1 / delta_e) sum_{i in e} ||b_i - mean of b over e||^2 = K - ||h_e'B||^2 / delta_e^2
        B in {-1, +1} with as many +1 as -1 in every bit,   w >= 0,  1'w = 1

    X_m (N x d_m) is centered, W_m (d_m x K), r_m = ridge times the mean diagonal of X_m'X_m. Each of P anchors (random
    training pairs) makes a hyperedge in each view: the rows that have it among their k nearest anchors there. H = [h_e]
    (N x E, sparse, 0/1) holds the hyperedges of all views side by side, delta = H'1 their sizes. V_e is how much the
    codes differ inside a hyperedge, so w prefers hyperedges, and views, whose items agree. Three steps:

        W_m :  (X_m'X_m + r_m I)^-1 X_m'B                                        exact
        w   :  projection of -V / (2 mu K E) onto the simplex                    exact
        B   :  F = sum_m X_m W_m + beta N H diag(w / delta^2) H'B,   then +1 for the N / 2 largest entries of each
               column of F and -1 for the others. The graph term is concave in B; F is the slope of its tangent, an
               upper bound, which this B minimizes under the balance, so the objective cannot rise.

    Parameters
    ----------
    n_bits, n_anchors, n_neighbors : int, default 64, 200 and 3
        Code length, a multiple of 8; P (at most N); the hyperedges that each item is in, per view.
    hypergraph_weight, spread : float, default 0.5
        beta, relative to the regression; mu, which keeps the weights of the hyperedges equal where it is large.
    ridge, max_iter, tol : float, default 1e-6; int, default 20; float, default 1e-5
        Relative ridge; stop after so many iterations or when the objective changes by no more than `tol` (relative).
    random_state, callback : optional
        Seed; function called as callback(step, total, message) in every step.

    Attributes
    ----------
    edge_weights_, objective_ : ndarray
        w; the objective after every iteration.

    Notes
    -----
    Known: hypergraph and codes are learned together, the codes discretely. Vertex degrees are not normalized, so that w
    enters linearly and has an exact step. New items get sgn((x - mean) W_m), which is not forced to be balanced.

    References
    ----------
    Hypergraph-based Discrete Hashing (BGDH), 2018.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.BGDH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "bgdh"
    summary: ClassVar[str] = "hypergraph of all views with learned weights, balanced discrete codes"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"hypergraph_weight": real(), "spread": real(strict=True)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hypergraph_weight: float = 0.5,
        spread: float = 0.5,
        n_anchors: int = 200,
        n_neighbors: int = 3,
        ridge: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-5,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hypergraph_weight = hypergraph_weight
        self.spread = spread
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        n_anchors = min(self.n_anchors, views.n_rows)
        anchors = choose_anchors(views, n_anchors, "random", rng_for(self._seed, "anchors"))
        edges = Hyperedges.around(views, anchors, min(self.n_neighbors, n_anchors))
        W = random_weights(data, self.n_bits, rng_for(self._seed, "W"))
        B = balanced(data.project(slice(None), W))
        XB = {name: data.block(name, slice(None)).T @ B for name in views}
        beta = self.hypergraph_weight * views.n_rows
        losses: list[float] = []
        for step in range(self.max_iter):
            W = data.regress(XB)
            w = edge_weights(edges.variation(B), self.spread, self.n_bits)
            B = balanced(data.project(slice(None), W) + beta * edges.smooth(B, w))
            XB = {name: data.block(name, slice(None)).T @ B for name in views}
            loss = data.regression_loss(W, XB, B.size) + ridge_penalty(data, W)
            loss += beta * float(w @ edges.variation(B) + self.spread * self.n_bits * len(w) * (w @ w))
            losses.append(loss)
            self._report(step + 1, self.max_iter, f"loss {loss:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = bits.pack(B)
        self.means_ = data.means
        self.weights_ = data.regress(XB)
        self.edge_weights_ = w
        self.objective_ = np.array(losses)


@dataclass(frozen=True)
class Hyperedges:
    """The incidence of rows and hyperedges, and their sizes; empty hyperedges are left out."""

    H: sp.csr_matrix
    sizes: Floats

    @classmethod
    def around(cls, views: PairedViews, anchors: dict[str, Floats], k: int) -> Hyperedges:
        """A hyperedge for every anchor and view: the rows that have the anchor among their k nearest."""
        blocks = []
        for rows in views.blocks():
            parts = []
            for name in views:
                index, _ = anchor_weights(views.block(name, rows), anchors[name], k)
                parts.append(to_sparse((index, np.ones(index.shape)), len(anchors[name])))
            blocks.append(sp.hstack(parts, format="csr"))
        H = sp.vstack(blocks, format="csr")
        sizes = np.asarray(H.sum(axis=0)).ravel()
        return cls(sp.csr_matrix(H[:, sizes > 0]), sizes[sizes > 0])

    def variation(self, B: Floats) -> Floats:
        """V_e = K - ||h_e'B||^2 / delta_e^2 for every hyperedge."""
        sums = self.H.T @ B
        return B.shape[1] - np.einsum("ij,ij->i", sums, sums) / self.sizes**2

    def smooth(self, B: Floats, w: Floats) -> Floats:
        """H diag(w / delta^2) H'B."""
        return np.asarray(self.H @ ((w / self.sizes**2)[:, None] * (self.H.T @ B)))


def edge_weights(variation: Floats, spread: float, n_bits: int) -> Floats:
    """The w on the simplex that minimizes w'V + mu K E ||w||^2."""
    return project_rows(variation[None, :] / (-2.0 * spread * n_bits * len(variation)))[0]


def balanced(F: Floats) -> Floats:
    """+1 for the N / 2 largest entries of each column, -1 for the others; of equal entries the first row wins."""
    columns = np.ascontiguousarray(-F.T)  # sorting along rows is much faster
    order = np.argsort(columns, axis=1, kind="stable")
    columns[:] = -1.0
    np.put_along_axis(columns, order[:, : len(F) // 2], 1.0, axis=1)
    return np.ascontiguousarray(columns.T)
