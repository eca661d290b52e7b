"""LSSH, Latent Semantic Sparse Hashing: sparse codes of images and a factorization of texts, in one latent space."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import centered_matrices
from fusehash.numerics.compiled import compiled
from fusehash.numerics.linalg import solve_ridge
from fusehash.numerics.parallel import map_blocks
from fusehash.parameters import Progress, Rule, between, integer, real, rng_for
from fusehash.views import Floats, PairedViews

Real = TypeVar("Real", np.float32, np.float64)

# Rows whose sparse codes are computed at once: all that a step touches stays in the cache.
LASSO_ROWS = 256
# Sweeps over the atoms when a dictionary is updated; it starts from the one before, which is nearly right.
SWEEPS = 3


class LSSH(CrossModalHasher):
    """Latent Semantic Sparse Hashing. The view "image", or else the first by name, is the image, the others are text.

        min ||X - S D||^2 + rho |S|_1 + mu ||T - Z A||^2 + lam ||Z - S R||^2,    rows of D, A, R of norm at most 1

    X (N x p) are the leading n_bits principal components of the images and T (N x q) the texts, both centered and with
    rows scaled to norm 1; S (N x P) sparse codes over P atoms, Z (N x K) the latent codes. With r = lam / mu, repeat

        Z = (r S R + T A')(A A' + r I)^-1
        A = argmin ||T - Z A||^2
        S = Lasso of [X, sqrt(lam) Z] over [D, sqrt(lam) R]
        D = argmin ||X - S D||^2,    R = argmin ||Z - S R||^2

    from normal A, D, R and S = Lasso of X over D. The Lasso is min 1/2 ||x - s D||^2 + rho max|x D'| |s|_1, so that rho
    is a share of the weight that would give s = 0, by a fixed number of steps of FISTA from zero.

        image   sgn(Lasso(x) R)                text  sgn(t A'(A A' + r I)^-1)
        both    sgn((r Lasso(x) R + t A')(A A' + r I)^-1), also the unified codes of the training pairs

    Several text views are placed side by side in T, and each has its own part of A.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    mu, rho, lam : float, default 0.5, 0.2 and 1
        Weights as above; rho is below 1.
    n_atoms, max_iter, lasso_iter : int, default 512, 20 and 30
        P, at most the number of training rows; rounds of all updates; steps of FISTA.
    max_rows : int, default 10000
        Learn from at most this many random pairs; all pairs get codes.

    Attributes
    ----------
    components_, atoms_, links_ : ndarray
        Principal directions of the image (d x p), D (P x p) and R (P x K).
    means_, topics_ : dict of str to ndarray
        Training mean of every view; the part of A of every text view.
    step_ : float
        Step length of FISTA over D.
    objective_ : ndarray of shape (max_iter,)
        Objective after every round. It can rise: the weights of the Lasso change with the dictionaries.

    Notes
    -----
    The number of FISTA steps is that of the authors' code, and it matters that this is not the exact minimum: fewer
    steps leave more atoms in use, and on Wiki codes from the exact minimum are worse. The authors' solver searches its
    step length; here it is 1 / ||D||^2. Dictionaries are updated atom by atom, to nearly the exact minimum, where the
    authors solve the dual problem. `fit` computes sparse codes in single precision, `project` in double.

    References
    ----------
    J. Zhou, G. Ding, Y. Guo. Latent Semantic Sparse Hashing for Cross-Modal Similarity Search. SIGIR 2014.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.LSSH(n_bits=16, n_atoms=64, max_iter=5, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "lssh"
    summary: ClassVar[str] = "sparse codes of images tied to a factorization of texts"
    min_views: ClassVar[int] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "mu": real(strict=True),
        "rho": between(0.0, 1.0),
        "lam": real(strict=True),
        "n_atoms": integer(2),
        "lasso_iter": integer(1),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        mu: float = 0.5,
        rho: float = 0.2,
        lam: float = 1.0,
        n_atoms: int = 512,
        max_iter: int = 20,
        lasso_iter: int = 30,
        max_rows: int = 10000,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.mu = mu
        self.rho = rho
        self.lam = lam
        self.n_atoms = n_atoms
        self.max_iter = max_iter
        self.lasso_iter = lasso_iter
        self.max_rows = max_rows
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    # -- learning ------------------------------------------------------------------------------------------------

    def _fit(self, views: PairedViews, labels: Any) -> None:
        learn = views.rows(self._sample_rows(views.n_rows, self.max_rows))
        centered, self.means_ = centered_matrices(learn)
        image = "image" if "image" in learn else learn.names[0]
        texts = [name for name in learn if name != image]
        self.components_ = principal_directions(centered[image], self.n_bits)
        X = unit_rows(centered[image] @ self.components_)
        T = np.hstack([unit_rows(centered[name]) for name in texts])
        A, D, R = self._learn(X, T)
        cuts = np.cumsum([learn.n_features[name] for name in texts])[:-1]
        self.topics_ = dict(zip(texts, np.split(A, cuts, axis=1), strict=True))
        self.atoms_, self.links_, self.step_ = D, R, step_length(D)
        self.codes_ = self._codes_of(views)

    def _learn(self, X: Floats, T: Floats) -> tuple[Floats, Floats, Floats]:
        """The alternating updates; A, D and R."""
        K, P, root = self.n_bits, min(self.n_atoms, len(X)), np.sqrt(self.lam)
        rng = rng_for(self._seed, "dictionaries")
        A, D, R = (rng.standard_normal(shape) for shape in ((K, T.shape[1]), (P, X.shape[1]), (P, K)))
        S, _ = self._sparse_codes(X, D)
        SR = S @ R
        values = []
        for step in range(self.max_iter):
            Z = self._latent(SR, T @ A.T, A)
            A = update_atoms(Z.T @ Z, Z.T @ T, A, SWEEPS)
            S, weights = self._sparse_codes(np.hstack([X, root * Z]), np.hstack([D, root * R]))
            gram, SX, SZ = S.T @ S, S.T @ X.astype(S.dtype), S.T @ Z.astype(S.dtype)
            D, R = update_atoms(gram, SX, D, SWEEPS), update_atoms(gram, SZ, R, SWEEPS)
            SR = np.asarray(S @ R.astype(S.dtype), dtype=np.float64)
            fits = np.sum((X - S @ D.astype(S.dtype)) ** 2) + self.lam * np.sum((Z - SR) ** 2)
            fits += self.mu * np.sum((T - Z @ A) ** 2)
            values.append(float(fits + 2.0 * np.sum(weights * np.abs(S).sum(axis=1))))
            self._report(step + 1, self.max_iter, f"objective {values[-1]:.6g}")
        self.objective_ = np.array(values)
        return A, D, R

    def _latent(self, SR: Floats, TA: Floats, A: Floats) -> Floats:
        """Z = (r S R + T A')(A A' + r I)^-1."""
        ratio = self.lam / self.mu
        factor = np.linalg.cholesky(A @ A.T + ratio * np.eye(len(A)))
        return solve_ridge(factor, (ratio * SR + TA).T).T

    def _sparse_codes(self, X: Floats, D: Floats) -> tuple[NDArray[np.float32], Floats]:
        """Lasso of all training rows in blocks; also the weight of the 1-norm of every row."""
        step, single, atoms = step_length(D), X.astype(np.float32), D.astype(np.float32)
        gram = atoms @ atoms.T

        def of_block(rows: slice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return lasso(single[rows], atoms, self.rho, step, self.lasso_iter, gram)

        blocks = [slice(start, start + LASSO_ROWS) for start in range(0, len(X), LASSO_ROWS)]
        parts = list(map_blocks(of_block, blocks, self.n_threads))
        return np.vstack([S for S, _ in parts]), np.concatenate([weights for _, weights in parts]).astype(np.float64)

    # -- hashing -------------------------------------------------------------------------------------------------

    def _project_block(self, block: Floats, view: str) -> Floats:
        if view in self.topics_:
            A = self.topics_[view]
            return self._latent(np.zeros(1), unit_rows(block - self.means_[view]) @ A.T, A)
        X = unit_rows((block - self.means_[view]) @ self.components_)
        return lasso(X, self.atoms_, self.rho, self.step_, self.lasso_iter)[0] @ self.links_

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        image = next(name for name in blocks if name not in self.topics_)
        TA = np.sum([unit_rows(blocks[n] - self.means_[n]) @ A.T for n, A in self.topics_.items()], axis=0)
        return self._latent(self._project_block(blocks[image], image), TA, np.hstack(list(self.topics_.values())))


def unit_rows(X: Floats) -> Floats:
    """Rows scaled to norm 1; rows of zeros stay."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0.0, norms, 1.0)


def principal_directions(X: Floats, n_directions: int) -> Floats:
    """(d, p) leading eigenvectors of X'X, as far as X varies along them."""
    w, Q = np.linalg.eigh(X.T @ X)
    p = min(n_directions, int(np.sum(w > 1e-10 * w[-1])))
    return np.ascontiguousarray(Q[:, : -p - 1 : -1])


def step_length(D: Floats) -> float:
    """1 / ||D||^2, the longest step with which FISTA is sure to converge."""
    small = D.T @ D if D.shape[0] > D.shape[1] else D @ D.T
    return float(1.0 / np.linalg.eigvalsh(small)[-1])


def lasso(
    X: NDArray[Real], D: NDArray[Real], rho: float, step: float, n_steps: int, gram: NDArray[Real] | None = None
) -> tuple[NDArray[Real], NDArray[Real]]:
    """Rows s of min 1/2 ||x - s D||^2 + weight |s|_1, weight = rho max|x D'|, by FISTA from zero; and the weights.

    Every row has the same number of steps, so that it does not matter which rows are computed together. Only rounding
    does depend on it if gram = D D' is given: then steps use it as soon as few atoms are left, which is faster.
    """
    C = X @ D.T
    weights = (rho * np.abs(C).max(axis=1)).astype(X.dtype)
    S, Y, gradient = np.zeros_like(C), np.zeros_like(C), -C
    t, n_used = 1.0, 0
    for left in range(n_steps, 0, -1):
        following = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
        momentum = (t - 1.0) / following
        n_used = _fista_step(gradient, weights, X.dtype.type(step), X.dtype.type(momentum), S, Y)
        t = following
        if left > 1 and gram is not None and 2 * n_used < X.size:  # half as many atoms as features: it pays
            _sparse_gradient(Y, gram, C, gradient)
        elif left > 1:
            np.matmul(Y @ D, D.T, out=gradient)
            gradient -= C
    return S, weights


@compiled()
def _fista_step(
    gradient: NDArray[Any], weights: NDArray[Any], step: Any, momentum: Any, S: NDArray[Any], Y: NDArray[Any]
) -> int:
    """S = shrink(Y - step * gradient), Y = S + momentum (S - old S), in place and in one pass; entries of S in use."""
    n, p = S.shape
    n_used = 0
    for i in range(n):
        limit = step * weights[i]
        for j in range(p):
            v = Y[i, j] - step * gradient[i, j]
            new = v - min(max(v, -limit), limit)
            Y[i, j] = new + momentum * (new - S[i, j])
            S[i, j] = new
            n_used += new != 0.0
    return n_used


@compiled()
def _sparse_gradient(Y: NDArray[Any], gram: NDArray[Any], C: NDArray[Any], gradient: NDArray[Any]) -> None:
    """gradient = Y gram - C, for rows of Y that are mostly zeros; four rows of gram at a time."""
    for i in range(len(Y)):
        used = np.flatnonzero(Y[i])
        row = gradient[i]
        row[:] = -C[i]
        whole = len(used) - len(used) % 4
        for k in range(0, whole, 4):
            a, b, c, d = used[k], used[k + 1], used[k + 2], used[k + 3]
            ya, yb, yc, yd = Y[i, a], Y[i, b], Y[i, c], Y[i, d]
            ga, gb, gc, gd = gram[a], gram[b], gram[c], gram[d]
            for j in range(len(row)):
                row[j] += (ya * ga[j] + yb * gb[j]) + (yc * gc[j] + yd * gd[j])
        for k in range(whole, len(used)):
            y, g = Y[i, used[k]], gram[used[k]]
            for j in range(len(row)):
                row[j] += y * g[j]


@compiled()
def _sweep(gram: Floats, target: Floats, D: Floats, n_sweeps: int) -> None:
    for _ in range(n_sweeps):
        for j in range(len(D)):
            atom = D[j].copy()
            if gram[j, j] > 0.0:
                atom += (target[j] - gram[j] @ D) / gram[j, j]
            D[j] = atom / max(1.0, np.sqrt(atom @ atom))


def update_atoms(gram: NDArray[Any], target: NDArray[Any], D: Floats, n_sweeps: int) -> Floats:
    """min ||X - S D||^2 over D with rows of norm at most 1, atom by atom; gram = S'S, target = S'X.

    Each atom goes to its exact minimum with the others fixed: the unconstrained one, shortened to norm 1 where longer.
    """
    D = np.array(D, dtype=np.float64, order="C")
    gram, target = (np.ascontiguousarray(part, dtype=np.float64) for part in (gram, target))
    _sweep(gram, target, D, n_sweeps)
    return D
