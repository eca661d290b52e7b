"""IMH, Inter-Media Hashing: one spectral embedding for all views, and linear functions that imitate it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh

from fusehash import bits
from fusehash.hashers.linear import LinearHasher, centered_matrices
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews

GRAPH_ROWS = 512


class IMH(LinearHasher):
    """Inter-Media Hashing: one spectral embedding of pairs seen in every view, imitated by linear functions.

    Each view has an embedding Y_m (N x K) that is smooth on its neighbor graph and close to a linear function of its
    features, and the embeddings of a pair are tied together:

        min  sum_m tr Y_m'(G_m + lam L_m)Y_m + coupling sum_{m>1} ||Y_1 - Y_m||^2,     Y_1'Y_1 = I
        G_m = I - X_m (X_m'X_m + ridge I)^-1 X_m',    L_m the Laplacian of the symmetrized 0/1 k-NN graph

    With M_m = G_m + lam L_m the embeddings of the other views follow from the first, and what is left is one symmetric
    eigenproblem (the published form of C, with products of E_m = (I + M_m/coupling)^-1, simplifies to this):

        Y_m = E_m Y_1,     C = M_1 + sum_{m>1} E_m M_m,     Y_1 = eigenvectors of C with the smallest eigenvalues
        W_m = (X_m'X_m + ridge I)^-1 X_m'Y_m,     bit k of x: sgn((x - mean_m) w_mk - threshold_mk)

    Time grows with N^3 and memory with N^2. Later bits describe one view only, so results do not grow with the code
    length, in the published tables as here.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    lam : float, default 0.1
        Weight of the graphs; the authors search 1e-6 to 1e6. The default was chosen on Wiki, where it comes close to
        published values; with 1 the linear functions follow the embedding less well.
    ridge : float, default 1e-3
        Relative to the mean diagonal of X'X; the authors search an absolute one.
    coupling : float, default 1e4
        Weight that ties the views together, as in the authors' code.
    n_neighbors : int, default 10
        k of the graphs.
    max_rows, subsample : int, default 5000; bool, default False
        With more pairs than this raise DataError, or learn from random ones and let the hash functions give `codes_`.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Smallest eigenvalues of C, without that of the constant vector.
    means_, weights_, thresholds_ : dict of str to ndarray
        Training mean, W_m and thresholds of every view.

    Notes
    -----
    Views are centered, so that the constant vector is an exact eigenvector of C; it is removed. The authors' code
    leaves out the first eigenvector, which is the constant one in practice. Thresholds are medians over the training
    rows; the authors' code takes the median over the rows that are being encoded, so that a code there depends on the
    rest of its batch. The paper hashes each view on its own; the unified codes here are sgn(sum_m Y_m - median). Only
    the subsample, and directions beyond N - 1 bits, are random.

    References
    ----------
    J. Song, Y. Yang, Y. Yang, Z. Huang, H. T. Shen. Inter-Media Hashing for Large-Scale Retrieval from Heterogeneous
    Data Sources. SIGMOD 2013.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.IMH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "imh"
    summary: ClassVar[str] = "one spectral embedding of the views' neighbor graphs, imitated by linear functions"
    seeded: ClassVar[bool | None] = None  # unless it has to choose rows
    PARAMETERS: ClassVar[dict[str, Rule]] = {"lam": real(), "coupling": real(strict=True)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        lam: float = 0.1,
        ridge: float = 1e-3,
        coupling: float = 1e4,
        n_neighbors: int = 10,
        max_rows: int = 5000,
        subsample: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.lam = lam
        self.ridge = ridge
        self.coupling = coupling
        self.n_neighbors = n_neighbors
        self.max_rows = max_rows
        self.subsample = subsample
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        rows = self._sample_rows(views.n_rows, self.max_rows)
        X, means = centered_matrices(views.rows(rows))
        factors = {name: ridge_solver(x.T @ x, self.ridge) for name, x in X.items()}
        energies = {}
        for step, (name, x) in enumerate(X.items()):
            self._report(step, len(X) + 1, f"graph of view {name}")
            energies[name] = self._energy(x, factors[name])
        self._report(len(X), len(X) + 1, f"eigenvectors of a matrix of {len(x)} rows")
        Y = self._embed(energies)
        W = {name: solve_ridge(factors[name], x.T @ Y[name]) for name, x in X.items()}
        self.means_, self.weights_ = means, W
        self.thresholds_ = {name: np.median(x @ W[name], axis=0) for name, x in X.items()}
        if isinstance(rows, slice):
            total = np.sum(list(Y.values()), axis=0)
            self.codes_ = bits.pack(total - np.median(total, axis=0))
        else:
            self.codes_ = self._codes_of(views)
        self._report(len(X) + 1, len(X) + 1, "codes")

    def _energy(self, X: Floats, factor: Floats) -> Floats:
        """M = G + lam L (N x N), where G = I - X (X'X + ridge I)^-1 X'."""
        M = -X @ solve_ridge(factor, X.T)
        graph = neighbor_graph(X, min(self.n_neighbors, len(X) - 1), self.n_threads)
        M -= self.lam * graph.toarray()
        M[np.diag_indices_from(M)] += 1.0 + self.lam * np.asarray(graph.sum(axis=1)).ravel()
        return M

    def _embed(self, energies: dict[str, Floats]) -> dict[str, Floats]:
        """Y_1 = smallest eigenvectors of C = M_1 + sum_m E_m M_m without the constant one, and Y_m = E_m Y_1."""
        (first, C), *others = energies.items()
        n = len(C)
        factors = {}
        for name, M in others:
            factors[name] = cho_factor(M / self.coupling + np.eye(n), lower=True, overwrite_a=True, check_finite=False)
            C = C + cho_solve(factors[name], M, check_finite=False)
        C = (C + C.T) / 2.0
        C += float(np.abs(C).sum(axis=1).max()) / n  # the constant vector goes to the far end of the spectrum
        r = min(self.n_bits, n - 1)
        self.eigenvalues_, Y = eigh(C, subset_by_index=[0, r - 1], overwrite_a=True, check_finite=False)
        if r < self.n_bits:
            self._warn_about_bits(f"{n} pairs, which have {r} directions", "further bits are random mixtures of them")
            Y = np.hstack([Y, Y @ random_rotations(r, self.n_bits - r, rng_for(self._seed, "padding"))])
        return {first: Y, **{name: cho_solve(factors[name], Y, check_finite=False) for name, _ in others}}

    def _project_block(self, block: Floats, view: str) -> Floats:
        return super()._project_block(block, view) - self.thresholds_[view]


def neighbor_graph(X: Floats, k: int, n_threads: int | None = None) -> sp.csr_matrix:
    """(W + W')/2 with W_ij = 1 where j is one of the k nearest other rows of i."""
    n = len(X)

    def of_block(rows: slice) -> Any:
        D = squared_distances(X[rows], X)
        D[np.arange(len(D)), np.arange(rows.start, rows.stop)] = np.inf
        return np.argpartition(D, k - 1, axis=1)[:, :k]

    blocks = [slice(start, min(start + GRAPH_ROWS, n)) for start in range(0, n, GRAPH_ROWS)]
    near = np.vstack(list(map_blocks(of_block, blocks, n_threads)))
    W = sp.csr_matrix((np.ones(n * k), near.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    return sp.csr_matrix((W + W.T) / 2.0)
