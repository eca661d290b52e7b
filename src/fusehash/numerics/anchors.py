"""Anchors, the anchor graph of one view (Eq. 14), and the fusion of several (Eq. 15).

An anchor graph joins every item to its k nearest of P anchors, with weights that fall with the distance and sum to 1.
Weights come as (n, k) neighbor lists per block, or as one sparse matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.numerics.arrays import (
    BLOCK_ROWS,
    Array,
    Floats,
    cast,
    clip_at_zero,
    dots,
    is_accelerated,
    namespace,
    nearest_columns,
    precision,
    put_rows,
    take_rows,
    to_device_of,
    zeros,
)
from fusehash.numerics.compiled import compiled
from fusehash.numerics.sparse import SparseRows

Neighbors = tuple[Array, Array]


class RowViews(Protocol):
    """What anchors need of paired views: their names, their rows, and where they are present."""

    n_rows: int

    @property
    def n_features(self) -> dict[str, int]: ...
    def __iter__(self) -> Iterator[str]: ...
    def is_present(self, name: str) -> NDArray[np.bool_]: ...
    def block(self, name: str, rows: Any) -> Floats: ...
    def blocks(self, size: int) -> Iterator[slice]: ...


class CenteredAnchors(NamedTuple):
    """Anchors seen from a center: what distances to them need, kept by those who ask for many blocks of rows."""

    center: Array
    anchors: Array
    squares: Array

    @classmethod
    def of(cls, T: Array, xp: Any) -> CenteredAnchors:
        center = center_of(T, xp)
        T = T - center
        return cls(center, T, dots(T, T))


def center_of(T: Array, xp: Any) -> Array:
    """A point among the anchors, since a far origin costs digits; of their entries, so that integers stay exact."""
    return xp.sort(T[:15], axis=0)[len(T[:15]) // 2]


def squared_distances(X: Array, T: Array, centered: CenteredAnchors | None = None) -> Array:
    """(n, P) squared Euclidean distances between the rows of X and of T, in their precision and on their device."""
    if isinstance(X, SparseRows):
        return X.squared_distances(T)
    if centered is None:
        center = center_of(T, namespace(X))
        T = T - center
        squares = dots(T, T)
    else:
        center, T, squares = centered
    X = X - center
    D = X @ T.T
    D *= -2.0
    D += dots(X, X)[:, None]
    D += squares
    return clip_at_zero(D)


def choose_anchors(
    views: RowViews,
    n_anchors: int,
    method: str,
    rng: np.random.Generator,
    scale: dict[str, float] | None = None,
    take: Callable[[str, Any], Floats] | None = None,
) -> dict[str, Floats]:
    """P anchors in every view: the same random pairs, or the centers of k-means over the joint features.

    For k-means each view is divided by `scale` (by default the square root of its total variance), and at most 50 rows
    per anchor are used. `take(name, rows)` reads some rows of a view; by default `views.block` does.
    """
    take = take or views.block
    complete = np.flatnonzero(np.all([views.is_present(name) for name in views], axis=0))
    pool = complete if len(complete) >= n_anchors else np.arange(views.n_rows)
    if method == "random":
        rows = rng.choice(pool, n_anchors, replace=False)
        return {name: take(name, rows) for name in views}
    from sklearn.cluster import MiniBatchKMeans

    sample = rng.choice(pool, min(len(pool), 50 * n_anchors), replace=False)
    scale = scale or {name: float(np.sqrt(take(name, sample).var(axis=0).sum())) or 1.0 for name in views}
    joint = np.hstack([take(name, sample) / scale[name] for name in views])
    seed = int(rng.integers(2**31))
    centers = MiniBatchKMeans(n_anchors, n_init=1, random_state=seed, batch_size=4096).fit(joint).cluster_centers_
    parts = np.split(centers, np.cumsum(list(views.n_features.values()))[:-1], axis=1)
    return {name: np.ascontiguousarray(part) * scale[name] for name, part in zip(views, parts, strict=True)}


@compiled(inline="always")
def _further(d: Floats, index: NDArray[np.int32], a: int, b: int) -> bool:
    """Whether heap entry a is further than b; of equal distances the higher index counts as further."""
    return d[a] > d[b] or (d[a] == d[b] and index[a] > index[b])


@compiled()
def _sift_down(d: Floats, index: NDArray[np.int32], root: int, size: int) -> None:
    while True:
        child = 2 * root + 1
        if child >= size:
            return
        if child + 1 < size and _further(d, index, child + 1, child):
            child += 1
        if not _further(d, index, child, root):
            return
        d[root], d[child] = d[child], d[root]
        index[root], index[child] = index[child], index[root]
        root = child


@compiled()
def _weights(D: Floats, k: int, index: NDArray[np.int32], weights: Floats) -> None:
    """Eq. 14 for every row of distances: a heap of the k + 1 nearest, then their weights."""
    P = D.shape[1]
    size = min(k + 1, P)
    for i in range(D.shape[0]):
        d, near = np.empty(size), np.empty(size, np.int32)
        for j in range(size):
            d[j], near[j] = D[i, j], j
        for root in range(size // 2 - 1, -1, -1):
            _sift_down(d, near, root, size)
        for j in range(size, P):
            if D[i, j] < d[0]:
                d[0], near[0] = D[i, j], j
                _sift_down(d, near, 0, size)
        for end in range(size - 1, 0, -1):  # heap sort: nearest first
            d[0], d[end] = d[end], d[0]
            near[0], near[end] = near[end], near[0]
            _sift_down(d, near, 0, end)
        # If there is no anchor beyond the k-th (k = P), the furthest is the limit.
        limit = d[size - 1]
        total = 0.0
        for j in range(k):
            total += limit - d[j]
        for j in range(k):
            index[i, j] = near[j]
            weights[i, j] = (limit - d[j]) / total if total > 1e-12 * k * limit else 1.0 / k


def anchor_weights(X: Array, anchors: Array, k: int) -> Neighbors:
    """The k nearest anchors of every row, nearest first, and their weights (Eq. 14).

    With d_(1) <= ... <= d_(k+1) the sorted squared distances, the r-th weight is
    (d_(k+1) - d_(r)) / (k d_(k+1) - sum_{r<=k} d_(r)); where all are equal (0/0 in print) it is 1/k.
    """
    return nearest_weights(squared_distances(X, anchors), k)


def nearest_weights(D: Array, k: int) -> Neighbors:
    """Eq. 14 from the squared distances to all anchors."""
    if not isinstance(D, np.ndarray):
        return _nearest_weights_of_tensor(D, k)
    index, weights = np.empty((len(D), k), np.int32), np.empty((len(D), k), D.dtype)
    _weights(D, k, index, weights)
    return index, weights


def _nearest_weights_of_tensor(D: Array, k: int) -> Neighbors:
    """The same in any array library. Anchors at the limit get the weight 0, so it does not matter which are taken.

    If all distances of a row are equal, the first anchors are taken, as in NumPy.
    """
    xp = namespace(D)
    d, index = nearest_columns(D, min(k + 1, D.shape[1]))
    limit = d[:, -1:]
    gaps = limit - d[:, :k]
    total = xp.sum(gaps, axis=1, keepdims=True)
    even = total <= 1e-12 * k * limit
    ties = xp.nonzero(even[:, 0])[0]
    if len(ties):
        index[ties] = cast(xp.argsort(D[ties], axis=1, stable=True)[:, : index.shape[1]], precision(index))
    weights = xp.where(even, xp.ones_like(gaps) / k, gaps / xp.where(even, xp.ones_like(total), total))
    return index[:, :k], weights


def to_sparse(neighbors: Neighbors, n_anchors: int) -> sp.csr_matrix:
    """Neighbor lists as an (n, P) sparse matrix."""
    index, weights = neighbors
    n, k = index.shape
    matrix = sp.csr_matrix((weights.ravel(), index.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n_anchors))
    matrix.sort_indices()
    return matrix


def hadamard(graphs: Sequence[sp.csr_matrix]) -> sp.csr_matrix:
    """Eq. 15: the entry-wise product. An edge survives only where every view has it, so rows can be empty."""
    fused = sp.csr_matrix(reduce(lambda left, right: left.multiply(right), graphs))
    fused.eliminate_zeros()
    return fused


def mean_graph(graphs: Sequence[sp.csr_matrix]) -> sp.csr_matrix:
    """The mean of the graphs: an edge of any view survives, so no row is empty and rows sum to 1."""
    return sp.csr_matrix(sum(graphs[1:], graphs[0]) / len(graphs))


def fused_anchor_graph(
    views: RowViews,
    anchors: dict[str, Floats],
    k: int,
    size: int = BLOCK_ROWS,
    combine: Callable[[Sequence[sp.csr_matrix]], sp.csr_matrix] = hadamard,
) -> sp.csr_matrix:
    """The paper's A (N x P, sparse): Hadamard product of the views' anchor graphs (or their mean), block by block."""

    def graph(name: str, rows: slice) -> sp.csr_matrix:
        return to_sparse(anchor_weights(views.block(name, rows), anchors[name], k), len(anchors[name]))

    return sp.vstack([combine([graph(name, rows) for name in views]) for rows in views.blocks(size)], format="csr")


def neighbor_graph(
    X: Array,
    anchors: Array,
    k: int,
    has_anchor: NDArray[np.bool_] | None = None,
    centered: CenteredAnchors | None = None,
) -> Array:
    """Dense (n, P) anchor graph of a block of rows; anchors that are missing in this view get no edges.

    `centered` is what `graph_anchors` gives, if the caller keeps it for many blocks.
    """
    columns = None if has_anchor is None or has_anchor.all() else np.flatnonzero(has_anchor)
    like, dtype = (np.zeros(0), "float32") if isinstance(X, SparseRows) else (X, precision(X))
    if columns is not None and not len(columns):
        return zeros((len(X), len(anchors)), like, dtype)
    if isinstance(X, SparseRows):
        D = squared_distances(X, anchors if columns is None else take_rows(anchors, columns))
    elif centered is not None:
        D = squared_distances(cast(X, precision(centered.anchors)), anchors, centered)
    else:
        exact = dtype if is_accelerated(X) else "float64"
        points = anchors if columns is None else take_rows(anchors, columns)
        D = squared_distances(cast(X, exact), cast(points, exact))
    index, weights = nearest_weights(D, min(k, D.shape[1]))
    if columns is not None:
        index = to_device_of(columns, like)[index]
    return put_rows((len(X), len(anchors)), index, cast(weights, dtype))


def graph_anchors(anchors: Array, has_anchor: NDArray[np.bool_] | None = None) -> CenteredAnchors:
    """The dense anchors that are present, for `neighbor_graph`.

    In double precision but on a GPU, where single is enough because the weights are continuous.
    """
    points = anchors if has_anchor is None or has_anchor.all() else take_rows(anchors, np.flatnonzero(has_anchor))
    exact = points if is_accelerated(points) else cast(points, "float64")
    return CenteredAnchors.of(exact, namespace(exact))


FUSIONS = ("mean", "hadamard")


def fuse(graphs: Sequence[Array], present: Sequence[Array | None], weights: Sequence[float], fusion: str) -> Array:
    """One graph from the graphs of the views, over the views in which each row is present (None: in all rows).

    It is their weighted mean, or their product (Eq. 15) scaled to row sum 1, with the mean where the product is empty.
    """
    xp = namespace(graphs[0])
    ones = xp.ones_like(graphs[0][:, :1])
    masks = [ones if mask is None else cast(mask, precision(ones))[:, None] for mask in present]
    total = xp.clip(sum(w * mask for w, mask in zip(weights, masks, strict=True)), 1e-12, None)
    mean = sum(w * mask / total * graph for w, mask, graph in zip(weights, masks, graphs, strict=True))
    if fusion == "mean":
        return mean
    product = ones
    for mask, graph in zip(masks, graphs, strict=True):
        product = product * xp.where(mask > 0.0, graph, ones)
    mass = xp.sum(product, axis=1, keepdims=True)
    empty = mass <= 1e-12
    return xp.where(empty, mean, product / xp.where(empty, ones, mass))
