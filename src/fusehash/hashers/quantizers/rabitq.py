"""RaBitQ: signs of randomly rotated residuals, and two numbers per item that turn them into distances."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.quantizers.joint import JointQuantizer, mean_query, scales_of, unit_moments
from fusehash.numerics.features import unit_rows
from fusehash.parameters import Progress
from fusehash.views import Floats, PairedViews


class RaBitQ(JointQuantizer):
    """RaBitQ as vector databases use it: items and queries minus one center, the mean of the items.

        r = x - c,   b = sgn(r R),   -|x - q|^2 / 2 = <r, q - c> - |r|^2 / 2 + a number per query,
        <r, q - c> ~ |r|^2 / sum_j |(r R)_j| * <b, (q - c) R>

    Within one view this is unbiased and hard to beat. Across views c is the mean of the items, so that the gap between
    the views stays in q - c and multiplies the error of every item; FuseHash(target="floats") centers the query on its
    own mean and stores the product of the gap with the item exactly. In the factors here, that product is the estimate
    that RaBitQ computes, so that scale * <b, p> + offset is RaBitQ's ranking with p = (q - mean of its view) R.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed of the rotation; threads of `fit` (default: all); called as
        callback(step, total, message).

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Mean of the unit rows, and the rotation, of every view.

    References
    ----------
    J. Gao, C. Long. RaBitQ: Quantizing High-Dimensional Vectors with a Theoretical Error Bound for Approximate Nearest
    Neighbor Search. SIGMOD 2024.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> X = np.random.default_rng(0).standard_normal((40, 16))
    >>> model = fh.hashers.RaBitQ(n_bits=32, random_state=0).fit({"image": X, "text": X})
    >>> codes, factors = model.encode(X, view="image", with_factors=True)
    >>> codes.shape, factors.shape
    ((40, 4), (40, 2))
    """

    method: ClassVar[str] = "rabitq"
    summary: ClassVar[str] = "quantizer: signs of rotated residuals and two numbers per item"

    def __init__(
        self,
        *,
        n_bits: int = 64,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        self.means_ = {name: total.mean for name, total in unit_moments(views).items()}
        self.weights_ = self._rotations(views)
        self._report(1, 2, "codes")
        self.codes_ = self._codes_of(views)
        self._report(2, 2, "done")

    def _factors_block(self, block: Floats, projections: Floats, signs: Floats, view: str) -> Floats:
        projections = projections[:, : self.n_bits]
        residuals = unit_rows(block) - self.means_[view]
        squared = np.einsum("ij,ij->i", residuals, residuals)
        scales = scales_of(squared, np.abs(projections).sum(axis=1))
        gap = (mean_query(self.means_, view) - self.means_[view]) @ self.weights_[view][:, : self.n_bits]
        code = bits.unpack(bits.pack(signs), self.n_bits)
        return np.stack([scales, scales * (code @ gap) - squared / 2.0], axis=1)
