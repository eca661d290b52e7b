"""CVH, Cross-View Hashing: signs of the directions that views share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.canonical import SharedDirections, joint_sums, shared_directions, unit_variance
from fusehash.hashers.kernel import label_cosines
from fusehash.hashers.linear import CenteredViews, LinearHasher
from fusehash.parameters import Progress, rng_for
from fusehash.views import Floats, PairedViews


class CVH(LinearHasher):
    """Cross-View Hashing in its unsupervised form, which is canonical correlation analysis.

    All that is known is which rows belong together, so the paper's objective becomes

        max  sum_{m != n} tr A_m'X_m'X_n A_n      s.t.  sum_m A_m'(X_m'X_m + ridge I)A_m = I

    (see canonical.py). For two views the solution is the canonical directions, the most correlated first:

        X_1'X_2 (X_2'X_2 + ridge I)^-1 X_2'X_1 a_1 = rho^2 (X_1'X_1 + ridge I) a_1,
        a_2 = (X_2'X_2 + ridge I)^-1 X_2'X_1 a_1 / rho.

    Bit k of a row of view m is sgn((x - mean_m) a_mk). Canonical variates are scaled to unit variance, and the unified
    codes of the training pairs are the signs of their sum over the views; the paper hashes each view on its own.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    ridge : float, default 0.01
        Relative to the mean diagonal of X'X. Public codes use 1e-6 or 1e-4 in units of the features, which fits the
        noise of small training sets.

    Attributes
    ----------
    agreement_ : ndarray
        Canonical correlations of the directions that the views share, at most n_bits of them.
    means_, weights_ : dict of str to ndarray
        Training mean and W_m of every view.

    Notes
    -----
    There are at most as many canonical directions as the smaller view has independent features. The eigenproblem has
    more eigenvectors, along which rho = 0. Public codes go on with them, and the other view then gets a direction made
    of rounding errors. Here a view that has no part in an eigenvector gets a random direction of its whitened features
    instead, as every view does when all are used up. These bits are noise by construction, results fall with them as in
    the published tables, and `fit` warns. Nothing else is random.

    References
    ----------
    S. Kumar, R. Udupa. Learning Hash Functions for Cross-View Similarity Search. IJCAI 2011.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.CVH(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "cvh"
    summary: ClassVar[str] = "signs of canonical variates, one direction per bit"
    min_views: ClassVar[int] = 2
    seeded: ClassVar[bool | None] = None  # as long as there are enough canonical directions

    def __init__(
        self,
        *,
        n_bits: int = 64,
        ridge: float = 1e-2,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.ridge = ridge
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge, self.n_threads)
        gram, similar = joint_sums(data, None if labels is None else label_cosines(labels))
        self._report(1, 2, "directions")
        shared = shared_directions(data, gram, similar)
        if shared.n_shared < self.n_bits:
            self._warn_about_bits(f"views that share {shared.n_shared} directions", "further bits are noise")
        W = self._directions(shared, data)
        self._report(2, 2, "codes")
        self.means_, self.weights_ = data.means, W
        self.codes_ = self._codes_of(views)
        self.agreement_ = shared.agreement[: min(shared.n_shared, self.n_bits)]

    def _directions(self, shared: SharedDirections, data: CenteredViews) -> dict[str, Floats]:
        """The first n_bits columns of every view, with random ones of its white basis where it has none."""
        rng = rng_for(self._seed, "padding")
        W = {}
        for name, A in shared.maps.items():
            basis = shared.basis[name]
            random = basis @ rng.standard_normal((basis.shape[1], self.n_bits))
            W[name] = unit_variance(random, data.sums[name].gram, data.views.n_rows)
            seen = np.flatnonzero(shared.seen[name][: self.n_bits])
            W[name][:, seen] = A[:, seen]
        return W
