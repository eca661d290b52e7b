"""SCM: Semantic Correlation Maximization (Zhang and Li, AAAI 2014)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular, svd

from fusehash import bits
from fusehash.errors import warn
from fusehash.hashers.kernel import label_cosines
from fusehash.hashers.linear import LinearHasher, centered_matrices
from fusehash.numerics.linalg import ridge_solver, top_eigenpairs
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, choice
from fusehash.views import Floats, PairedViews


class SCM(LinearHasher):
    """Semantic Correlation Maximization: two linear hash functions whose codes agree as much as the labels do.

        min || sgn(X_1 W_1) sgn(X_2 W_2)' - K S ||^2,    S = 2 L L' - 1 1',    L: rows of labels, scaled to unit length

    S is never formed: C = K X_1'S X_2 = 2 K (X_1'L)(X_2'L)' - K (X_1'1)(X_2'1)'. With G_m = X_m'X_m + ridge I:

        orth    signs dropped, W_m'G_m W_m = N I:  W_1, W_2 from the leading singular vectors of the whitened C
        seq     bit after bit:  (w_1, w_2) = leading pair of C,   C <- C - (X_1'sgn(X_1 w_1))(X_2'sgn(X_2 w_2))'

    The data are whitened once (Cholesky factors F_m F_m' = G_m): the leading pair of C under the two metrics is
    w_m = F_m^-T u_m with (u_1, u_2) the leading singular pair of the small matrix A = F_1^-1 C F_2^-T, and `seq`
    deflates A itself.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; nothing is random; called as callback(step, total, message) for every bit.
    solver : {"seq", "orth"}, default "seq"
        One bit after the other, or all at once.
    ridge : float, default 1e-6
        Relative to the mean diagonal of X_m'X_m.

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Training mean and W_m of every view.
    correlations_ : ndarray of shape (n_bits,)
        Singular value of each bit.

    Notes
    -----
    The method has no code for both views together: `codes_` is the sign of the sum of both projections, which have unit
    variance. Departures from the authors' code: The ridge is relative instead of 1e-6, so that units do not matter.
    Their `seq` stops when a singular value rises and keeps plain CCA directions for the bits that are left; there are
    no more of those than features, so here it goes on deflating. Their `orth` takes square roots of eigenvalues that
    are zero up to rounding, which makes every bit constant; here bits beyond the positive ones (at most classes - 1, 9
    on Wiki) are constant, do not change any distance, and come with a warning.

    References
    ----------
    D. Zhang, W.-J. Li. Large-Scale Supervised Multimodal Hashing with Semantic Correlation Maximization. AAAI 2014.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.SCM(n_bits=16, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "scm"
    summary: ClassVar[str] = "linear codes of two views that agree as the labels do"
    supervised: ClassVar[bool] = True
    seeded: ClassVar[bool | None] = False
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {"solver": choice("seq", "orth")}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        solver: str = "seq",
        ridge: float = 1e-6,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.solver = solver
        self.ridge = ridge
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        X, means = centered_matrices(views)
        first, second = views.names
        F1, F2 = (ridge_solver(X[name].T @ X[name], self.ridge) for name in (first, second))
        # Rows seen through the whitening: Z_m = X_m F_m^-T, so that Z_m u_m = X_m w_m.
        Z1, Z2 = _whitened(X[first], F1), _whitened(X[second], F2)
        A = self.n_bits * semantic_covariance(Z1, Z2, label_cosines(labels))
        U1, U2, self.correlations_ = self._sequential(A, Z1, Z2) if self.solver == "seq" else self._orthogonal(A)
        scale = np.sqrt(views.n_rows)
        self.codes_ = bits.pack(Z1 @ U1 + Z2 @ U2)
        self.means_ = means
        self.weights_ = {first: _unwhitened(U1, F1) * scale, second: _unwhitened(U2, F2) * scale}

    def _sequential(self, A: Floats, Z1: Floats, Z2: Floats) -> tuple[Floats, Floats, Floats]:
        """One bit at a time: the leading pair of what the bits so far leave unexplained."""
        U1, U2 = np.zeros((A.shape[0], self.n_bits)), np.zeros((A.shape[1], self.n_bits))
        values = np.zeros(self.n_bits)
        for k in range(self.n_bits):
            U1[:, k], U2[:, k], values[k] = leading_pair(A)
            A = A - np.outer(Z1.T @ signs_of(Z1 @ U1[:, k]), Z2.T @ signs_of(Z2 @ U2[:, k]))
            self._report(k + 1, self.n_bits, f"bit {k + 1}, singular value {values[k]:.4g}")
        return U1, U2, values

    def _orthogonal(self, A: Floats) -> tuple[Floats, Floats, Floats]:
        """All bits at once; zero columns, which give constant bits, where singular values end."""
        left, s, right = svd(A, full_matrices=False)
        r = int(np.sum(s[: self.n_bits] > 1e-8 * s[0]))
        if r < self.n_bits:
            warn(f"SCM with solver='orth' was asked for {self.n_bits} bits and found {r}; the others are constant.")
        U1, U2 = np.zeros((A.shape[0], self.n_bits)), np.zeros((A.shape[1], self.n_bits))
        values = np.zeros(self.n_bits)
        U1[:, :r], U2[:, :r], values[:r] = left[:, :r], right[:r].T, s[:r]
        self._report(1, 1, f"{r} directions")
        return U1, U2, values


def semantic_covariance(Z1: Floats, Z2: Floats, L: Floats) -> Floats:
    """Z_1'S Z_2 for S = 2 L L' - 1 1', without S."""
    return 2.0 * (Z1.T @ L) @ (Z2.T @ L).T - np.outer(Z1.sum(axis=0), Z2.sum(axis=0))


def leading_pair(A: Floats) -> tuple[Floats, Floats, float]:
    """Largest singular value of A and its vectors, from the Gram matrix of the smaller side."""
    if len(A) > A.shape[1]:
        v, u, value = leading_pair(A.T)
        return u, v, value
    u = top_eigenpairs(A @ A.T, 1)[1][:, 0]
    v = A.T @ u
    value = float(np.linalg.norm(v))
    return u, v / (value or 1.0), value


def _whitened(X: Floats, F: Floats) -> Floats:
    return solve_triangular(F, X.T, lower=True, check_finite=False).T


def _unwhitened(U: Floats, F: Floats) -> Floats:
    return solve_triangular(F, U, lower=True, trans="T", check_finite=False)
