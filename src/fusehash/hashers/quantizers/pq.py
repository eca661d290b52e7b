"""Product quantization by faiss: the centroid of every sub-vector, one byte each."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.extras import require
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.quantizers.joint import unit_moments
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.features import unit_rows
from fusehash.parameters import Progress
from fusehash.views import Floats, PairedViews

MIN_ROWS_PER_CENTROID = 4  # below, sub-vectors get 4 bits and 16 centroids


class ProductQuantizer(CrossModalHasher):
    """Product quantization: sub-vectors of the centered unit rows, each replaced by the nearest of 256 centroids.

    faiss learns the centroids (k-means per sub-vector). A code is one byte per sub-vector: the number of its centroid.
    Hamming distances between such codes mean nothing; queries are compared with what `decode` returns. With fewer than
    1,024 rows, sub-vectors have 4 bits and 16 centroids.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed of k-means; threads of `fit` (default: all); called as
        callback(step, total, message).

    Attributes
    ----------
    means_ : dict of str to ndarray
        Mean of the unit rows of every view.
    centroids_ : dict of str to ndarray of shape (sub-vectors, centroids, width of a sub-vector)
        What the codes stand for.

    References
    ----------
    H. Jegou, M. Douze, C. Schmid. Product Quantization for Nearest Neighbor Search. TPAMI 2011.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> X = np.random.default_rng(0).standard_normal((40, 16))
    >>> model = fh.hashers.ProductQuantizer(n_bits=16, random_state=0).fit({"image": X, "text": X})
    >>> model.decode(model.encode(X, view="image"), view="image").shape
    (40, 16)
    """

    method: ClassVar[str] = "pq"
    summary: ClassVar[str] = "quantizer: product quantization by faiss"
    comparable: ClassVar[bool] = False

    means_: dict[str, Floats]
    centroids_: dict[str, Floats]

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
        faiss = require("faiss", "Product quantization")
        self.means_ = {name: total.mean for name, total in unit_moments(views).items()}
        n_centroids = 256 if views.n_rows >= 256 * MIN_ROWS_PER_CENTROID else 16
        n_parts = self.n_bits // (8 if n_centroids == 256 else 4)
        self.centroids_ = {}
        for step, name in enumerate(views):
            self._report(step, len(views.names), f"centroids of {name}")
            X = np.vstack([unit_rows(views.block(name, rows)) for rows in views.blocks()]) - self.means_[name]
            parts = np.ascontiguousarray(_in_parts(X, n_parts), dtype=np.float32)
            centroids = []
            for part in np.moveaxis(parts, 1, 0):
                clusters = faiss.Kmeans(part.shape[1], n_centroids, niter=20, seed=self._seed % 2**31, verbose=False)
                clusters.cp.min_points_per_centroid = 1
                clusters.train(np.ascontiguousarray(np.resize(part, (max(len(part), n_centroids), part.shape[1]))))
                centroids.append(clusters.centroids.astype(np.float64))
            self.centroids_[name] = np.stack(centroids)
        self.codes_ = np.vstack(
            [
                bits.pack(self._project_block(views.block(views.names[0], rows), views.names[0]))
                for rows in views.blocks()
            ]
        )

    def _project_block(self, block: Floats, view: str) -> Floats:
        """The bits of the code as -1 and +1."""
        centroids = self.centroids_[view]
        parts = _in_parts(unit_rows(block) - self.means_[view], len(centroids))
        nearest = [squared_distances(parts[:, i], centroids[i]).argmin(axis=1) for i in range(len(centroids))]
        numbers = np.stack(nearest, axis=1).astype(np.uint8)
        n_bits = centroids.shape[1].bit_length() - 1
        ones = (numbers[:, :, None] >> np.arange(n_bits, dtype=np.uint8)) & 1
        signs: Floats = 2.0 * ones.reshape(len(block), -1).astype(np.float64) - 1.0
        return signs

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        """Items seen in every view have the code of the first one."""
        return self._project_block(blocks[self.view_names_[0]], self.view_names_[0])

    def decode(self, codes: bits.Codes, *, view: str | int) -> Floats:
        """The rows of a view that codes stand for.

        Parameters
        ----------
        codes : array of uint8, shape (n, n_bits / 8)
            Codes that `encode` returned for this view.
        view : str or int
            Name of the view, or its position in `view_names_`.

        Returns
        -------
        rows : ndarray of shape (n, d)
        """
        name = self._view_name(view)
        centroids = self.centroids_[name]
        n_bits = centroids.shape[1].bit_length() - 1
        ones = bits.unpack(codes, self.n_bits).reshape(len(codes), -1, n_bits) > 0
        numbers = (ones * (1 << np.arange(n_bits))).sum(axis=2)
        parts = centroids[np.arange(numbers.shape[1])[None, :], numbers]
        return parts.reshape(len(codes), -1)[:, : len(self.means_[name])] + self.means_[name]


def _in_parts(X: Floats, n_parts: int) -> Floats:
    """Rows as (n, parts, width of a part), filled up with zeros."""
    width = -(-X.shape[1] // n_parts)
    padded = np.zeros((len(X), n_parts * width))
    padded[:, : X.shape[1]] = X
    return padded.reshape(len(X), n_parts, width)
