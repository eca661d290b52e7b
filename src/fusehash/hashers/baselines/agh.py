"""AGH: Anchor Graph Hashing (Liu, Wang, Kumar and Chang, ICML 2011), applied to each view on its own."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fusehash import bits
from fusehash.errors import warn
from fusehash.files import storable
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import centered_matrices
from fusehash.numerics.anchors import choose_anchors, squared_distances
from fusehash.parameters import Progress, Rule, choice, integer, rng_for
from fusehash.views import Floats, PairedViews

# Eigenvalues nearer to 1 are those of separate parts of the graph and tell nothing else, as in the authors' code.
TRIVIAL, VANISHING = 1.0 - 1e-3, 1e-10


class AGH(CrossModalHasher):
    """Anchor Graph Hashing of each view on its own: signs of the smoothest functions on its anchor graph.

        z_ij = exp(-||x_i - t_j||^2 / sigma^2) on the s nearest anchors t_j of x_i, rows scaled to sum 1
        S = Z Lambda^-1 Z',  Lambda = diag(Z'1):     M = Lambda^-1/2 Z'Z Lambda^-1/2 = V Sigma V'
        Y = sqrt(N) Z Lambda^-1/2 V_r Sigma_r^-1/2,  the eigenvectors of S with eigenvalues below 1, largest first

    Z (N x P), Y (N x r), sigma the mean distance to the s-th nearest anchor. New items get their z from the stored
    anchors and sigma, so on training rows the formula gives Y itself.

    With `layers=1` the K bits are sgn(Y), r = K. With `layers=2` the K / 2 smoothest functions give two bits each:
    sgn(y), and then, inside each half, y > T+ on the positive and y < T- on the negative one. (T+, T-) minimize
    yhat'(I - S) yhat for yhat = y - T+ on the positive half and T- - y on the negative one, with 1'yhat = 0:

        e = (y > 0),  t = e'(I - S)|y| / e'(I - S)e,  T+ = (2 sum_{y>0} y + n_- t) / N,   T- = t - T+

    Use it as a reference within one view only: codes of different views are not comparable. `codes_` are the signs of
    the sum of the views' projections. They compare with other such sums, not with the codes of one view.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) in every step.
    layers : {1, 2}, default 1
        Bits taken from each function.
    n_anchors, n_neighbors : int, default 300 and 2
        P, the k-means centers of each view, at most half the number of rows; s, the anchors that a row is joined to.

    Attributes
    ----------
    graphs_ : dict of str to AnchorHash
        Hash functions of every view.

    Notes
    -----
    Departures from the authors' code: Y is scaled by sqrt(N) in both variants; the sign of an eigenvector is fixed (its
    largest entry is positive); where the graph has fewer functions than needed, the ones it has are repeated.

    References
    ----------
    W. Liu, J. Wang, S. Kumar, S.-F. Chang. Hashing with Graphs. ICML 2011.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.AGH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "agh"
    summary: ClassVar[str] = "anchor graph hashing of each view on its own; views cannot be compared"
    comparable: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    PARAMETERS: ClassVar[dict[str, Rule]] = {"layers": choice(1, 2), "n_anchors": integer(2)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        layers: int = 1,
        n_anchors: int = 300,
        n_neighbors: int = 2,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.layers = layers
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        X, means = centered_matrices(views)
        n_anchors = min(self.n_anchors, max(views.n_rows // 2, 2))
        rng = rng_for(self._seed, "anchors")
        total = np.zeros((views.n_rows, self.n_bits))
        self.graphs_: dict[str, AnchorHash] = {}
        for step, name in enumerate(views):
            self._report(step + 1, len(views.names), f"anchor graph of view '{name}'")
            anchors = kmeans_anchors(X[name], n_anchors, rng)
            graph, Z = AnchorHash.learn(X[name], means[name], anchors, self.n_neighbors, self.n_bits, self.layers)
            if graph.n_functions < graph.W.shape[1]:
                warn(
                    f"AGH was asked for {graph.W.shape[1]} functions on a graph that has {graph.n_functions} "
                    f"in view '{name}'; further bits repeat the first ones."
                )
            self.graphs_[name] = graph
            total += graph.bits_of(Z @ graph.W)
        self.codes_ = bits.pack(total)

    def _project_block(self, block: Floats, view: str) -> Floats:
        return self.graphs_[view](block)


@storable
@dataclass(frozen=True)
class AnchorHash:
    """The hash functions of one view; y = z W."""

    mean: Floats
    anchors: Floats  # (P, d), seen from the mean
    width: float  # sigma
    n_neighbors: int
    W: Floats  # (P, r) = sqrt(N) Lambda^-1/2 V Sigma^-1/2
    thresholds: Floats  # (2, r): T+ and T-; (0, r) for one layer
    n_functions: int  # the functions that are not repetitions

    @classmethod
    def learn(
        cls, X: Floats, mean: Floats, anchors: Floats, n_neighbors: int, n_bits: int, layers: int
    ) -> tuple[AnchorHash, Floats]:
        """Eigenvectors of the anchor graph of centered rows, and the graph's Z."""
        s = min(n_neighbors, len(anchors))
        D = squared_distances(X, anchors)
        width = float(np.mean(np.sqrt(np.partition(D, s - 1, axis=1)[:, s - 1]))) or 1.0
        Z = anchor_affinities(D, s, width)
        W, values = eigenfunctions(Z, n_bits // layers)
        thresholds = second_layer(Z, Z @ W) if layers == 2 else np.zeros((0, W.shape[1]))
        return cls(mean, anchors, width, s, W, thresholds, len(values)), Z

    def bits_of(self, Y: Floats) -> Floats:
        """(rows, n_bits) from (rows, r): Y itself, or Y and the second layer's bits."""
        if len(self.thresholds) == 0:
            return Y
        above, below = self.thresholds
        return np.hstack([Y, np.where(Y > 0.0, Y - above, below - Y)])

    def __call__(self, block: Floats) -> Floats:
        D = squared_distances(block - self.mean, self.anchors)
        return self.bits_of(anchor_affinities(D, self.n_neighbors, self.width) @ self.W)


def kmeans_anchors(X: Floats, n_anchors: int, rng: np.random.Generator) -> Floats:
    """Centers of k-means; one thread, since the order in which threads add up would show in the last digits."""
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than centers: some centers are equal
        return choose_anchors(PairedViews({"view": X}), n_anchors, "kmeans", rng)["view"]


def anchor_affinities(D: Floats, s: int, width: float) -> Floats:
    """Z from squared distances: Gaussian weights on the s nearest anchors, rows sum to 1."""
    near: NDArray[np.intp] = np.argpartition(D, s - 1, axis=1)[:, :s]
    d = np.take_along_axis(D, near, axis=1)
    weights = np.exp((d.min(axis=1, keepdims=True) - d) / width**2)  # the nearest has 1, so no row underflows
    Z = np.zeros(D.shape)
    np.put_along_axis(Z, near, weights / weights.sum(axis=1, keepdims=True), axis=1)
    return Z


def eigenfunctions(Z: Floats, r: int) -> tuple[Floats, Floats]:
    """W (P x r) with Y = Z W, and the eigenvalues of its columns; repeated columns where there are fewer than r."""
    mass = Z.sum(axis=0)
    half = np.where(mass > 0.0, 1.0 / np.sqrt(np.where(mass > 0.0, mass, 1.0)), 0.0)
    scaled = Z * half
    values, V = np.linalg.eigh(scaled.T @ scaled)
    keep = np.flatnonzero((values > VANISHING) & (values < TRIVIAL))[::-1][:r]
    if len(keep) == 0:  # a graph of separate points: its parts are all there is
        keep = np.flatnonzero(values > VANISHING)[::-1][:r]
    values, V = values[keep], V[:, keep]
    V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(len(keep))] < 0.0, -1.0, 1.0)
    # An eigenvector is zero on parts of the graph that it does not belong to; the signs of rounding errors are no bits.
    V = np.where(np.abs(V) > VANISHING * np.abs(V).max(axis=0), V, 0.0)
    W = np.sqrt(len(Z)) * half[:, None] * V / np.sqrt(values)
    return W[:, np.arange(r) % len(keep)], values


def second_layer(Z: Floats, Y: Floats) -> Floats:
    """T+ and T- of every function; see the class."""
    mass = Z.sum(axis=0)
    inverse = np.where(mass > 0.0, 1.0 / np.where(mass > 0.0, mass, 1.0), 0.0)
    positive = (Y > 0.0).astype(np.float64)
    left = Z.T @ positive
    above = np.sum(Y * positive, axis=0)
    cut = positive.sum(axis=0) - np.sum(left * left * inverse[:, None], axis=0)
    numerator = above - np.sum(left * (Z.T @ np.abs(Y)) * inverse[:, None], axis=0)
    # A half without edges to the other one costs nothing wherever it is cut: the mean of |y| balances both halves.
    separate = cut <= 1e-12 * len(Y)
    shift = np.where(separate, 0.0, numerator / np.where(separate, 1.0, cut))
    n_positive = positive.sum(axis=0)
    high = (2.0 * above + (len(Y) - n_positive) * shift) / len(Y)
    return np.vstack([high, shift - high])
