"""SePH: Semantics-Preserving Hashing (Lin, Ding, Hu and Wang, CVPR 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize

from fusehash.hashers.kernel import KernelHasher, RBFFeatures, label_cosines
from fusehash.hashers.linear import centered_matrices
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, choice, real, rng_for
from fusehash.views import Floats, PairedViews

Reals = NDArray[np.floating[Any]]
# Pairs are looked at in blocks of this many rows, so that no N x N matrix is ever held.
PAIR_ROWS = 128
MOMENTUM, MIN_GAIN = 0.5, 0.01


class SePH(KernelHasher):
    """Semantics-Preserving Hashing: codes that follow the labels, then kernel logistic regression per bit.

    Stage 1, labels only. P_ij is the cosine of the label rows of items i != j, scaled to sum 1. Real H (N x K):

        Q_ij ~ T_ij = 1 / (1 + ||h_i - h_j||^2 / 4),  i != j, scaled to sum 1
        min KL(P || Q) + alpha / (K N) || |H| - 1 ||^2
        gradient  (diag(Z 1) - Z) H + 2 alpha / (K N) (|H| - 1) o sgn(H),    Z = (P - Q) o T

    by gradient descent with momentum and a gain for every entry, from H ~ 1e-4 N(0, 1). The H of the least cost gives
    the code C = sgn(H).

    Stage 2, each view. k(x) = exp(-||x - t_j||^2 / s), s the mean squared distance of training pairs, to P basis points
    t_j; K_m (N x P) and K_0 (P x P) hold it for training rows and basis points. For every bit c (a column of C)

        min_w  sum_i log(1 + exp(-c_i k_i w)) + penalty w'K_0 w

    for all bits at once by L-BFGS, on the features K_m K_0^(-1/2), for which the penalty is a plain square norm.

    A projection k(x) w is the log-odds of its bit, p = 1 / (1 + exp(-k(x) w)). The authors fuse two views by
    sgn(p_1 p_2 - (1 - p_1)(1 - p_2)). This is positive where p_1 / (1 - p_1) * p_2 / (1 - p_2) > 1, that is where the
    sum of the log-odds is: the sum of projections, for any number of views. `codes_` holds the training items encoded
    by this fusion, as the authors search them, and not C. Time grows with N^2 (memory does not).

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    basis, n_anchors : {"km", "rnd"}, default "km"; int, default 500
        P basis points: k-means centers of each view, or random training items, the same in all views.
    alpha : float, default 0.01
        Weight of the quantization term of stage 1.
    learning_rate, max_iter : float, default 500; int, default 100
        Settings of the gradient descent of stage 1.
    penalty : float, default 0.01
        Weight of w'K_0 w in stage 2.
    max_rows, subsample : int, default 5000; bool, default False
        With more pairs than this raise DataError, or learn from random ones; `codes_` are those of all rows.

    Attributes
    ----------
    features_, weights_ : dict of str to RBFFeatures, dict of str to ndarray
        k and w (P x K) of every view.
    objective_ : ndarray of shape (max_iter,)
        Cost of stage 1 in every iteration. It can rise: steps have a fixed length.

    Notes
    -----
    Departures from the authors' code: none in the formulas. Pairs are worked on in single precision; k-means starts at
    random rows; with fewer rows than `n_anchors` every row is a basis point.

    References
    ----------
    Z. Lin, G. Ding, M. Hu, J. Wang. Semantics-Preserving Hashing for Cross-View Retrieval. CVPR 2015.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.SePH(n_bits=16, n_anchors=50, max_iter=20, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "seph"
    summary: ClassVar[str] = "codes whose distances follow the labels, kernel logistic regression per bit"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "basis": choice("km", "rnd"),
        "alpha": real(),
        "learning_rate": real(strict=True),
        "penalty": real(strict=True),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        basis: str = "km",
        n_anchors: int = 500,
        alpha: float = 0.01,
        learning_rate: float = 500.0,
        max_iter: int = 100,
        penalty: float = 0.01,
        max_rows: int = 5000,
        subsample: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.basis = basis
        self.n_anchors = n_anchors
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.penalty = penalty
        self.max_rows = max_rows
        self.subsample = subsample
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        rows = self._sample_rows(views.n_rows, self.max_rows)
        X, means = centered_matrices(views.rows(rows))
        C = signs_of(self._semantic_embedding(label_cosines(labels[rows])))

        def hash_function(name: str) -> tuple[RBFFeatures, Floats]:
            kernel = self._kernel(X[name], means[name])
            return kernel, self._classifiers(X[name], kernel, C)

        functions = dict(zip(X, map_blocks(hash_function, X, self.n_threads), strict=True))
        self.features_ = {name: kernel for name, (kernel, _) in functions.items()}
        self.weights_ = {name: W for name, (_, W) in functions.items()}
        self.codes_ = self._codes_of(views)  # the authors' fusion

    # -- stage 1 -------------------------------------------------------------------------------------------------

    def _semantic_embedding(self, L: Floats) -> Floats:
        """H of the least cost on the way; L has label rows of unit length."""
        H = 1e-4 * rng_for(self._seed, "H").standard_normal((len(L), self.n_bits))
        step, gains = np.zeros_like(H), np.ones_like(H)
        best = H
        costs: list[float] = []
        pairs = SemanticPairs(L, self.alpha / H.size, self.n_threads)
        for i in range(self.max_iter):
            cost, gradient = pairs.cost_and_gradient(H, np.float32)
            if not costs or cost < min(costs):
                best = H
            costs.append(cost)
            # Longer steps where the direction stays, shorter ones where it turns.
            gains = np.maximum(np.where((gradient > 0) != (step > 0), gains + 0.2, gains * 0.8), MIN_GAIN)
            step = MOMENTUM * step - self.learning_rate * gains * gradient
            H = H + step
            H = H - H.mean(axis=0)
            self._report(i + 1, self.max_iter, f"cost {cost:.6g}")
        self.objective_ = np.array(costs)
        return best

    # -- stage 2 -------------------------------------------------------------------------------------------------

    def _kernel(self, X: Floats, mean: Floats) -> RBFFeatures:
        """The kernel of one view; X is centered, so that the mean squared distance of pairs is twice its variance."""
        n = len(X)
        if n <= self.n_anchors:
            points = X
        elif self.basis == "rnd":  # the same stream for every view: the same items
            points = X[np.sort(rng_for(self._seed, "basis").choice(n, self.n_anchors, replace=False))]
        else:
            points = k_means(X, self.n_anchors, rng_for(self._seed, "basis"))
        return RBFFeatures(mean, points, 2.0 * float(X.var(axis=0).sum()), np.zeros(len(points)))

    def _classifiers(self, X: Floats, kernel: RBFFeatures, C: Floats) -> Floats:
        """W (P x K): a kernel logistic regression for every column of C."""
        values, V = eigh(kernel.of_centered(kernel.anchors))
        keep = values > 1e-10 * values[-1]  # what is below is zero up to rounding
        root = V[:, keep] / np.sqrt(values[keep])
        return root @ logistic_regression(kernel.of_centered(X) @ root, C, self.penalty)


class SemanticPairs:
    """Cost and gradient of stage 1, over all pairs of rows.

    With s the sum of T, Q = T / s and sum P = 1,  KL(P || Q) = sum P log P - sum P log T + log s,  and with
    P T for the entry-wise product,  Z = P T - T T / s:  one pass over the pairs is enough.

    Rows are sorted by their labels, so that P is zero in a block of rows but for a span of columns.
    """

    def __init__(self, L: Floats, weight: float, n_threads: int | None = None) -> None:
        self.weight, self.n_threads = weight, n_threads
        self.order = np.lexsort(L.T) if L.shape[1] else np.arange(len(L))
        total = float(np.sum(L.sum(axis=0) ** 2) - np.sum(L**2))
        scale = 1.0 / total if total > 1e-12 else 0.0  # no two rows share a label: nothing attracts
        self.L = L[self.order] * np.sqrt(scale)
        self.starts = range(0, len(L), PAIR_ROWS)
        self.spans = {start: self._span(start) for start in self.starts}
        self.entropy = float(sum(map_blocks(self._entropy, self.starts, n_threads)))

    def _span(self, start: int) -> slice:
        """Columns outside which these rows of P are zero."""
        shared = np.flatnonzero(self.L @ self.L[start : start + PAIR_ROWS].sum(axis=0))
        return slice(int(shared[0]), int(shared[-1]) + 1) if len(shared) else slice(0, 0)

    def _affinities(self, start: int, L: Reals) -> Reals:
        """Some rows of P, the columns of their span."""
        span = self.spans[start]
        P: Reals = L[start : start + PAIR_ROWS] @ L[span].T
        diagonal = np.arange(len(P)) + start - span.start
        inside = (diagonal >= 0) & (diagonal < P.shape[1])
        P[np.flatnonzero(inside), diagonal[inside]] = 0.0
        return P

    def _entropy(self, start: int) -> float:
        P = self._affinities(start, self.L)
        return float(np.sum(P * np.log(np.maximum(P, np.finfo(np.float64).tiny))))

    def cost_and_gradient(self, H: Floats, precision: Any = np.float64) -> tuple[float, Floats]:
        """The objective at H and its gradient; the work on pairs is done in the given precision."""
        L, X = self.L.astype(precision), H[self.order].astype(precision)
        quarter, ones = 0.25 * np.einsum("ij,ij->i", X, X)[:, None], np.ones((len(X), 1), precision)
        # 1 / T = 1 + ||a - b||^2 / 4 = (1 + aa / 4) 1 + 1 bb / 4 - ab / 2, as one product; a column of ones gives sums.
        left, right = np.hstack([X, quarter + ones, ones]), np.hstack([-0.5 * X, ones, quarter])
        summed = np.hstack([X, ones])

        def of_block(start: int) -> tuple[float, float, Reals, Reals]:
            rows, span = slice(start, start + PAIR_ROWS), self.spans[start]
            T = left[rows] @ right.T
            np.maximum(T, 1.0, out=T)
            P = self._affinities(start, L)
            attraction = float(np.vdot(P, np.log(T[:, span])))
            np.reciprocal(T, out=T)
            np.fill_diagonal(T[:, start:], 0.0)
            P *= T[:, span]
            mass = float(T.sum(axis=1).sum(dtype=np.float64))
            T *= T
            pull, push = P @ summed[span], T @ summed
            return attraction, mass, pull[:, -1:] * X[rows] - pull[:, :-1], push[:, -1:] * X[rows] - push[:, :-1]

        attractions, masses, pulls, pushes = zip(*map_blocks(of_block, self.starts, self.n_threads), strict=True)
        s = sum(masses)
        gap = np.abs(H) - 1.0
        cost = self.entropy + sum(attractions) + float(np.log(s)) + self.weight * float(np.sum(gap**2))
        gradient = 2.0 * self.weight * gap * np.sign(H)
        gradient[self.order] += np.vstack(pulls).astype(np.float64) - np.vstack(pushes).astype(np.float64) / s
        return cost, gradient


def k_means(X: Floats, n_clusters: int, rng: np.random.Generator, max_iter: int = 100) -> Floats:
    """Centers of k-means (Lloyd) from random distinct rows; a center that loses all its rows stays where it was.

    One thread, so that equal seed and data give equal centers on any machine.
    """
    n = len(X)
    centers = X[np.sort(rng.choice(n, n_clusters, replace=False))]
    nearest = np.full(n, -1)
    for _ in range(max_iter):
        before, nearest = nearest, np.argmin(squared_distances(X, centers), axis=1)
        if np.array_equal(before, nearest):
            break
        members = sp.csr_matrix((np.ones(n), (nearest, np.arange(n))), shape=(n_clusters, n))
        counts = np.bincount(nearest, minlength=n_clusters)[:, None]
        centers = np.where(counts > 0, (members @ X) / np.maximum(counts, 1), centers)
    return centers


def logistic_regression(Z: Floats, C: Floats, penalty: float, max_iter: int = 200) -> Floats:
    """For each column c of C: min_v sum_i log(1 + exp(-c_i z_i v)) + penalty v'v.

    L-BFGS over all columns at once, in coordinates in which the greatest Hessian (at v = 0) is the identity.
    """
    values, V = eigh(0.25 * Z.T @ Z + 2.0 * penalty * np.eye(Z.shape[1]))
    change = V / np.sqrt(values)
    Y, D = Z @ change, penalty / values  # v = change u:  penalty v'v = u'D u
    shape = (Z.shape[1], C.shape[1])

    def cost_and_gradient(u: Floats) -> tuple[float, Floats]:
        U = u.reshape(shape)
        margin = C * (Y @ U)
        small = np.exp(-np.abs(margin))  # never overflows
        cost = np.sum(np.log1p(small) + np.maximum(-margin, 0.0)) + np.sum(D[:, None] * U**2)
        missed = np.where(margin > 0.0, small, 1.0) / (1.0 + small)  # 1 / (1 + exp(margin))
        gradient = 2.0 * D[:, None] * U - Y.T @ (C * missed)
        return float(cost), gradient.ravel()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-3}
    solution = minimize(cost_and_gradient, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options=options)
    return change @ solution.x.reshape(shape)
