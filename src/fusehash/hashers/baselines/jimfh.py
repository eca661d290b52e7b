"""JIMFH: a factor that both views share, and one of each view."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.baselines.joint_features import JointFeatures
from fusehash.hashers.linear import LinearHasher
from fusehash.numerics.linalg import solve_damped
from fusehash.parameters import Progress, Rule, between, real
from fusehash.views import Floats, PairedViews


class JIMFH(LinearHasher):
    """Joint and Individual Matrix Factorization Hashing, for two views: a shared factor and one per view.

    K/4 bits come from a factor V that both centered views share, 3K/4 from individual factors V_1, V_2, of which R
    makes the second from the first:

        min  sum_m l_m (||X_m - V U_m'||^2 + ||X_m - V_m Q_m'||^2) + b ||V_2 - V_1 R||^2 + g (all squared norms)

    with l_1 = l, l_2 = 1 - l. From U(0, 1) for V, V_1, V_2 each step solves for one group of unknowns exactly, in this
    order, so the objective never rises:

        R   = (V_1'V_1 + g/b I)^-1 V_1'V_2
        U_m = X_m'V (V'V + g/l_m I)^-1,      Q_m = X_m'V_m (V_m'V_m + g/l_m I)^-1
        V   = (sum_m l_m X_m U_m) (sum_m l_m U_m'U_m + g I)^-1
        V_1 = (l_1 X_1 Q_1 + b V_2 R') (l_1 Q_1'Q_1 + b R R' + g I)^-1
        V_2 = (l_2 X_2 Q_2 + b V_1 R) (l_2 Q_2'Q_2 + (b + g) I)^-1

    The code is B = sgn([V V_2] - mean): of the individual factors only that of the second view is used, as the authors
    do, so the order of the views matters (image first, text second). Hash functions are
    W_m = (X_m'X_m + g I)^-1 X_m'[V V_2], a query is sgn((x - mean) W_m). All factors are combinations of the features
    and of the starts, and the loop works on coefficients and one Gram matrix: its cost does not depend on N.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    balance : float, default 0.5
        l, the weight of the first view by name, between 0 and 1.
    beta, gamma : float, default 1e-3 and 1e-4
        b, the weight of the tie between the individual factors; g, the ridge, in squared units of the features.
    max_iter, tol : int, default 100; float, default 1e-3
        Stop after so many iterations, or when the sum of the norms, weighted as in the objective but not squared,
        changes by less than `tol`, as the authors do.
    as_released : bool, default False
        Code queries as the public code does (see Notes).

    Attributes
    ----------
    means_, weights_, centres_, fusion_ : dict of str to ndarray
        What is subtracted from a query, W_m, training mean, and the map for items seen in both views, of every view.
    thresholds_ : ndarray of shape (n_bits,)
        Subtracted from the projections; zeros unless `as_released`.
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    The public code centers queries by the mean of training data that is centered already, that is, not at all.
    `as_released` does the same, sgn(x W_m - mean of [V V_2]), for every item that is coded from one view. Items seen in
    both views get the V of the formula and the V_2 that minimizes the objective together with V_1; the authors do not
    describe them.

    References
    ----------
    D. Wang, Q. Wang, L. He, X. Gao, Y. Tian. Joint and Individual Matrix Factorization Hashing for Large-Scale
    Cross-Modal Retrieval. Pattern Recognition 107, 2020.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.JIMFH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "jimfh"
    summary: ClassVar[str] = "matrix factorization into a shared factor and one for each of two views"
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    scale_free: ClassVar[bool] = False
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "balance": between(0.0, 1.0),
        "beta": real(strict=True),
        "gamma": real(strict=True),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        balance: float = 0.5,
        beta: float = 1e-3,
        gamma: float = 1e-4,
        max_iter: int = 100,
        tol: float = 1e-3,
        as_released: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.balance = balance
        self.beta = beta
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.as_released = as_released
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        joint, individual = self.n_bits // 4, 3 * self.n_bits // 4
        data = JointFeatures(views, {"V": joint, "V1": individual, "V2": individual}, self._seed, self.n_threads)
        model = JIMFHFactors(data, self.balance, self.beta, self.gamma)
        losses: list[float] = []
        before = np.inf
        for step in range(self.max_iter):
            model.update_bases()
            model.update_factors()
            weights, squares = model.terms()
            losses.append(float(weights @ squares))
            rough = float(weights @ np.sqrt(squares))
            self._report(step + 1, self.max_iter, f"objective {losses[-1]:.6g}")
            if abs(before - rough) < self.tol:
                break
            before = rough
        A = np.hstack([model.V, model.V2])
        mean = sum(data.map_blocks(lambda block: (block @ A).sum(axis=0))) / views.n_rows
        self.codes_ = np.vstack(list(data.map_blocks(lambda block: bits.pack(block @ A - mean))))
        spans = [(name, data.span[name]) for name in views]
        self.weights_ = {
            name: solve_damped(data.gram[span, span], self.gamma, data.gram[span] @ A) for name, span in spans
        }
        self.means_ = {name: np.zeros(d) for name, d in views.n_features.items()} if self.as_released else data.means
        self.thresholds_ = mean if self.as_released else np.zeros(self.n_bits)
        self.centres_ = data.means
        self.fusion_ = model.fusion()
        self.objective_ = np.array(losses)

    def _project_block(self, block: Floats, view: str) -> Floats:
        return super()._project_block(block, view) - self.thresholds_

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        return np.sum([(block - self.centres_[name]) @ self.fusion_[name] for name, block in blocks.items()], axis=0)


class JIMFHFactors:
    """The unknowns; V, V1, V2 as coefficients of the columns of `JointFeatures`."""

    def __init__(self, data: JointFeatures, balance: float, beta: float, gamma: float) -> None:
        self.data, self.names = data, data.views.names
        self.l = (balance, 1.0 - balance)
        self.b, self.g = beta, gamma
        self.V, self.V1, self.V2 = (data.start(name) for name in ("V", "V1", "V2"))

    def update_bases(self) -> None:
        """R, U_m and Q_m from the factors."""
        gram = self.data.gram
        V1, V2 = self.V1, self.V2
        self.R = solve_damped(V1.T @ gram @ V1, self.g / self.b, V1.T @ gram @ V2)
        self.U = [self._basis(m, self.V) for m in (0, 1)]
        self.Q = [self._basis(m, V_m) for m, V_m in enumerate((V1, V2))]

    def _basis(self, m: int, A: Floats) -> Floats:
        """X_m'V (V'V + g/l_m I)^-1."""
        gram = self.data.gram
        return solve_damped(A.T @ gram @ A, self.g / self.l[m], (gram[self.data.span[self.names[m]]] @ A).T).T

    def update_factors(self) -> None:
        """V, V_1 and V_2 from the bases, in this order."""
        self.V = solve_damped(*self._shared_system()).T
        left, right, (H1, H2) = self._individual_system()
        self.V1 = solve_damped(H1, self.g, (left + self.b * self.V2 @ self.R.T).T).T
        self.V2 = solve_damped(H2, self.g, (right + self.b * self.V1 @ self.R).T).T

    def _shared_system(self) -> tuple[Floats, float, Floats]:
        """H, g and the transposed right side of V (H + g I) = sum_m l_m X_m U_m."""
        H = np.sum([share * (U.T @ U) for share, U in zip(self.l, self.U, strict=True)], axis=0)
        return H, self.g, (self._lift(0, self.U[0]) + self._lift(1, self.U[1])).T

    def _individual_system(self) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
        """l_m X_m Q_m of both views, and the matrices H_1, H_2 (without g) of the steps of V_1 and V_2."""
        H1 = self.l[0] * (self.Q[0].T @ self.Q[0]) + self.b * (self.R @ self.R.T)
        H2 = self.l[1] * (self.Q[1].T @ self.Q[1]) + self.b * np.eye(len(self.R))
        return self._lift(0, self.Q[0]), self._lift(1, self.Q[1]), (H1, H2)

    def _lift(self, m: int, basis: Floats) -> Floats:
        """l_m X_m basis as coefficients."""
        A = np.zeros((len(self.data.gram), basis.shape[1]))
        A[self.data.span[self.names[m]]] = self.l[m] * basis
        return A

    def fusion(self) -> dict[str, Floats]:
        """Items of both views: V, and the minimum over V_1 and V_2 together, which solves one system of both steps."""
        V = solve_damped(*self._shared_system()).T
        left, right, (H1, H2) = self._individual_system()
        tied = -self.b * self.R
        individual = solve_damped(np.block([[H1, tied], [tied.T, H2]]), self.g, np.hstack([left, right]).T).T
        A = np.hstack([V, individual[:, len(H1) :]])
        return {name: A[self.data.span[name]] for name in self.names}

    def terms(self) -> tuple[Floats, Floats]:
        """The weights and squared norms that make up the objective."""
        data, gram = self.data, self.data.gram
        gap = self.V2 - self.V1 @ self.R
        weights, squares = [self.b], [_square(gram, gap)]
        for m, (name, V_m) in enumerate(zip(self.names, (self.V1, self.V2), strict=True)):
            weights += [self.l[m]] * 2
            squares += [data.residual(name, self.V, self.U[m]), data.residual(name, V_m, self.Q[m])]
        ridged = [float(np.sum(part**2)) for part in (*self.U, *self.Q, self.R)]
        ridged += [_square(gram, A) for A in (self.V, self.V1, self.V2)]
        return np.array(weights + [self.g] * len(ridged)), np.array(squares + ridged)


def _square(gram: Floats, A: Floats) -> float:
    """||V||^2 of V with coefficients A."""
    return max(float(np.sum(A * (gram @ A))), 0.0)
