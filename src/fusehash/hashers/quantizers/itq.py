"""ITQ on embeddings: principal components of the views' residuals, turned towards their signs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.quantizers.joint import JointQuantizer, unit_moments
from fusehash.numerics.features import unit_rows
from fusehash.numerics.linalg import CenteredGram
from fusehash.numerics.rotation import learned_rotations
from fusehash.parameters import Progress, Rule, flag, rng_for
from fusehash.views import Floats, PairedViews


class ITQ(JointQuantizer):
    """Iterative Quantization of given embeddings, without pairs: PCA of the centered rows, then a learned rotation.

        Z = (X - own mean) V      V the leading principal directions
        min ||B - Z R||^2         R'R = I, B = sgn(Z R)

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed of the rotation; threads of `fit` (default: all); called as
        callback(step, total, message).
    shared : bool, default True
        Learn one rotation from the rows of all views of one width, so that they share codes. False learns one per view,
        as within one modality; codes of different views then have nothing to do with each other.
    max_iter, max_rows : int, default 50 and 20000
        Rounds of B and R; the rotation is learned from at most `max_rows` random rows of each view.

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Mean of the unit rows, and V R, of every view.

    References
    ----------
    Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. CVPR 2011.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> X = np.random.default_rng(0).standard_normal((40, 16))
    >>> fh.hashers.ITQ(n_bits=8, random_state=0).fit({"image": X, "text": X}).codes_.shape
    (40, 1)
    """

    method: ClassVar[str] = "itq"
    summary: ClassVar[str] = "quantizer: principal components and a rotation towards their signs"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"shared": flag()}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        shared: bool = True,
        max_iter: int = 50,
        max_rows: int = 20000,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.shared = shared
        self.max_iter = max_iter
        self.max_rows = max_rows
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        totals = unit_moments(views)
        self.means_ = {name: total.mean for name, total in totals.items()}
        self.weights_ = {}
        groups: dict[Any, list[str]] = {}
        for name, width in views.n_features.items():
            groups.setdefault(width if self.shared else name, []).append(name)
        for step, names in enumerate(groups.values()):
            self._report(step, len(groups), f"rotation of {', '.join(names)}")
            self.weights_ |= dict.fromkeys(names, self._directions(views, names, totals))
        self.codes_ = self._codes_of(views)

    def _directions(self, views: PairedViews, names: list[str], totals: dict[str, CenteredGram]) -> Floats:
        """V R, from the rows of some views together."""
        w, V = np.linalg.eigh(sum(totals[name].gram for name in names))
        rank = min(self.n_bits, max(int(np.sum(w > 1e-10 * w[-1])), 1))
        V = V[:, ::-1][:, :rank]
        rows = rng_for(self._seed, "rows").permutation(views.n_rows)[: self.max_rows]
        Z = np.vstack([(unit_rows(views.block(name, np.sort(rows))) - self.means_[name]) @ V for name in names])
        return V @ learned_rotations(Z, self.n_bits, rng_for(self._seed, "rotation"), self.max_iter)
