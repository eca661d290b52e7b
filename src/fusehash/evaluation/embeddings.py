"""How well codes stand in for joint embeddings: recall of the float ranking and of partners, also after rescoring.

For every direction (from one view to another, or within the only one), with rows of both views that pair one to one:

    recall@k               share of the k nearest items by cosine that are among the first k by codes
    pair recall@k          share of queries whose partner is among the first k
    ... after rescoring C  the same if the first C by codes are ranked again by the cosine of the float vectors

Ties go to the item with the lower number, as in `HammingIndex`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.numerics.features import unit_rows
from fusehash.parameters import choice, integer
from fusehash.views import Floats, PairedViews, ViewsLike

Positions = NDArray[np.int64]
CELLS = 1 << 22  # scores in memory at a time


class HasherLike(Protocol):
    """What `evaluate_embeddings` needs of a fitted model."""

    view_names_: list[str]
    n_bits: int

    def encode(self, X: Any, *, view: str | int) -> Any: ...
    def project(self, X: Any, *, view: str | int) -> Any: ...


@dataclass(frozen=True)
class EmbeddingScores:
    """Recalls of one direction; `n_queries` of `n_items` were asked."""

    query_view: str
    item_view: str
    recall: float
    rescored_recall: float
    pair_recall: float
    rescored_pair_recall: float
    n_queries: int
    n_items: int

    @property
    def direction(self) -> str:
        """As in "image->text"."""
        return f"{self.query_view}->{self.item_view}"

    def row(self) -> dict[str, Any]:
        """The scores as a flat, JSON-ready row."""
        return asdict(self)


def nearest_by_cosine(queries: ArrayLike, items: ArrayLike, k: int = 10) -> Positions:
    """Positions of the k items of largest cosine for every query, largest first.

    Parameters
    ----------
    queries, items : array of float (n_queries, d) and (n_items, d)
        Embeddings of one space; their lengths do not matter.
    k : int, default 10
        How many; at most the number of items.

    Returns
    -------
    positions : ndarray of int64, shape (n_queries, k)

    Raises
    ------
    DataError, ParameterError
        If the widths differ or a number is not finite; if k is out of range.

    Examples
    --------
    >>> nearest_by_cosine([[1.0, 0.1]], [[0.0, 2.0], [3.0, 0.0]], k=2)
    array([[1, 0]])
    """
    Q, X = _unit(queries, "Queries"), _unit(items, "Items")
    if Q.shape[1] != X.shape[1]:
        raise DataError(f"Queries and items must have equal widths. Got {Q.shape[1]} and {X.shape[1]}.")
    integer(1, len(X), " (the number of items)").check("nearest_by_cosine", "k", k)
    return np.vstack([largest(Q[rows] @ X.T, k) for rows in _query_blocks(len(Q), len(X))])


def recall_of(found: ArrayLike, expected: ArrayLike) -> float:
    """The mean share of the expected positions that were found, query by query.

    Parameters
    ----------
    found, expected : array of int (n_queries, any) and (n_queries, k)
        Positions or ids; in a row of `expected` all different.

    Returns
    -------
    recall : float

    Examples
    --------
    >>> recall_of([[3, 1, 7]], [[1, 2]])
    0.5
    """
    hits, wanted = np.asarray(found), np.asarray(expected)
    if hits.ndim != 2 or wanted.ndim != 2 or len(hits) != len(wanted) or wanted.size == 0:
        raise DataError(f"Found and expected must have one row per query. Got shapes {hits.shape} and {wanted.shape}.")
    return float(np.mean([np.isin(row, got).mean() for row, got in zip(wanted, hits, strict=True)]))


def rescored(queries: ArrayLike, items: ArrayLike, candidates: ArrayLike, k: int = 10) -> Positions:
    """The first k of every query's candidates by the cosine of the float vectors.

    Parameters
    ----------
    queries, items : array of float (n_queries, d) and (n_items, d)
        Embeddings of one space.
    candidates : array of int (n_queries, C)
        Positions of items, such as a search through codes returns.
    k : int, default 10
        How many; at most C.

    Returns
    -------
    positions : ndarray of int64, shape (n_queries, k)

    Examples
    --------
    >>> rescored([[1.0, 0.1]], [[0.0, 2.0], [3.0, 0.0], [1.0, 1.0]], [[0, 2]], k=1)
    array([[2]])
    """
    Q, X, chosen = _unit(queries, "Queries"), _unit(items, "Items"), np.sort(np.asarray(candidates, np.int64), axis=1)
    integer(1, chosen.shape[1], " (the number of candidates)").check("rescored", "k", k)
    return _rescored(Q, X, chosen, k)


def evaluate_embeddings(
    model: HasherLike, views: ViewsLike, *, k: int = 10, candidates: int = 100, queries: str = "floats",
    n_queries: int | None = None, random_state: int = 0,
) -> list[EmbeddingScores]:  # fmt: skip
    """Recalls of a fitted model on rows that it has not seen, for every direction.

    Parameters
    ----------
    model : CrossModalHasher
        A fitted model. Its factors are used if it has them (`encode(..., with_factors=True)`), and its `decode`, if it
        has one, instead of projections.
    views : mapping of str to matrix, or PairedViews
        Joint embeddings, all of one width; row i of every view is the same item.
    k, candidates : int, default 10 and 100
        Length of a ranking, and how many items are rescored.
    queries : {"floats", "codes"}, default "floats"
        Rank by real-valued projections of the queries, or by Hamming distance between codes.
    n_queries : int, optional
        Ask only so many random rows; the items are always all rows.
    random_state : int, default 0
        Seed of that choice.

    Returns
    -------
    scores : list of EmbeddingScores

    Raises
    ------
    DataError, ParameterError
        If the views are not of one width; if a number is out of range.
    """
    owner = "evaluate_embeddings"
    paired = PairedViews(views).in_order().on_host()
    n_items, widths = paired.n_rows, set(paired.n_features.values())
    if len(widths) > 1:
        raise DataError(f"Joint embeddings must have one width. Got {paired.n_features}.")
    choice("floats", "codes").check(owner, "queries", queries)
    integer(1, n_items, " (the number of items)").check(owner, "k", k)
    if integer(1).check(owner, "candidates", candidates) < k:
        raise ParameterError(owner, "candidates", f"at least k ({k})", candidates)
    candidates = min(candidates, n_items)
    asked = np.arange(n_items)
    if n_queries is not None and integer(1).check(owner, "n_queries", n_queries) < n_items:
        asked = np.sort(np.random.default_rng(random_state).choice(n_items, n_queries, replace=False))
    units = {name: _unit(paired.block(name, slice(None)), f"View '{name}'") for name in paired}
    directions = list(permutations(paired.names, 2)) or [(paired.names[0], paired.names[0])]
    searches = {name: _Items(model, paired[name], name, queries) for name in paired}
    return [
        _direction(searches[b], paired[a][asked], a, units[a][asked], units[b], asked, k, candidates)
        for a, b in directions
    ]


def _direction(
    items: _Items, rows: Any, query_view: str, Q: Floats, X: Floats, asked: Positions, k: int, candidates: int
) -> EmbeddingScores:
    sums = np.zeros(4)
    asking = items.queries(rows, query_view)
    for block in _query_blocks(len(Q), len(X)):
        exact = largest(Q[block] @ X.T, k)
        ranked = largest(items.scores(asking[block]), candidates)
        again = _rescored(Q[block], X, np.sort(ranked, axis=1), k)
        partners = asked[block, None]
        for i, (found, wanted) in enumerate(
            ((ranked[:, :k], exact), (again, exact), (ranked[:, :k], partners), (again, partners))
        ):
            sums[i] += recall_of(found, wanted) * len(exact)
    recall, rescored_recall, pairs, rescored_pairs = (sums / len(Q)).tolist()
    return EmbeddingScores(
        query_view, items.view, recall, rescored_recall, pairs, rescored_pairs, n_queries=len(Q), n_items=len(X)
    )


class _Items:
    """The items of one view as a model stores them, and how queries score them."""

    def __init__(self, model: Any, rows: Any, view: str, queries: str) -> None:
        self.view, self._model, self._decodes = view, model, False
        self._scale, self._offset = np.ones(1, np.float32), np.zeros(1, np.float32)
        self._by_codes = queries == "codes"
        if not self._by_codes and hasattr(model, "decode"):
            self._decodes = True
            self._matrix = np.asarray(model.decode(model.encode(rows, view=view), view=view), np.float32)
            return
        codes = None
        if not self._by_codes:
            try:
                codes, factors = model.encode(rows, view=view, with_factors=True)
                self._scale, self._offset = factors.T
            except ParameterError:  # of this method
                codes = None
        codes = model.encode(rows, view=view) if codes is None else codes
        self._matrix = bits.unpack(codes, model.n_bits).astype(np.float32)

    def queries(self, rows: Any, view: str) -> NDArray[np.float32]:
        """What is multiplied with the items."""
        if self._decodes:
            return _unit(rows, "Queries").astype(np.float32)
        if self._by_codes:
            return bits.unpack(self._model.encode(rows, view=view), self._model.n_bits).astype(np.float32)
        return np.asarray(self._model.project(rows, view=view), np.float32)

    def scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        return (queries @ self._matrix.T) * self._scale + self._offset


def largest(scores: NDArray[Any], k: int) -> Positions:
    """Columns of the k largest entries of every row, largest first; of equal ones the first columns."""
    if k >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    found = np.empty((len(scores), k), np.int64)
    limits = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    for i, (row, limit) in enumerate(zip(scores, limits, strict=True)):
        above = np.flatnonzero(row > limit)
        equal = np.flatnonzero(row == limit)[: k - len(above)]
        chosen = np.sort(np.concatenate([above, equal]))
        found[i] = chosen[np.argsort(-row[chosen], kind="stable")]
    return found


def _rescored(Q: Floats, X: Floats, chosen: Positions, k: int) -> Positions:
    """`chosen` in ascending order, so that of equal items the first counts."""
    cosines = (
        np.einsum("qd,qcd->qc", Q, X[chosen])
        if chosen.size * X.shape[1] <= CELLS
        else np.stack([X[row] @ q for q, row in zip(Q, chosen, strict=True)])
    )
    return np.take_along_axis(chosen, largest(cosines, k), axis=1)


def _unit(rows: ArrayLike, what: str) -> Floats:
    matrix = np.asarray(rows, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(f"{what} must be a matrix (rows, features). Got shape {matrix.shape} instead.")
    if not np.isfinite(matrix).all():
        raise DataError(f"{what} must hold finite numbers. Got NaN or infinity.")
    return np.asarray(unit_rows(matrix))


def _query_blocks(n_queries: int, n_items: int) -> Iterator[slice]:
    size = max(CELLS // n_items, 1)
    return (slice(start, min(start + size, n_queries)) for start in range(0, n_queries, size))
