"""Metrics of a ranking with ties: average precision, NDCG, and how well codes retrieve their partners.

    AP@k(q) = (1 / R_k) sum_{r <= k, item r relevant} precision@r,   R_k = relevant items inside the top k;   0 if none
    DCG@k = sum_{r <= k} gain(grade of item r) / log2(r + 1),   NDCG@k = DCG@k / DCG@k of the best ranking;   0 if none

Short codes tie often, and these values depend on the order inside a tie. `ties` selects the order: "expected" is the
exact mean over all orders (closed form), "stable" is database order, "best" and "worst" are the extremes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.evaluation import kernels, tie_kernels
from fusehash.evaluation.curves import precision_at, precision_recall_by_radius, precision_recall_by_rank
from fusehash.evaluation.map_rules import MAP_RULES, get_rule
from fusehash.evaluation.ranking import ORDER, TIES, Cut, Ranking, Ties, check_k, check_ranks
from fusehash.evaluation.relevance import Relevant, as_relevance
from fusehash.parameters import choice
from fusehash.views import Floats

Gain: TypeAlias = Literal["exponential", "linear"]

LARGEST_GRADE = 900  # beyond it 2^grade, summed over a database, overflows


def mean_average_precision(
    query_codes: Any, database_codes: Any, relevant: Relevant, k: Cut = 50, ties: Ties = "expected", *, rule: str = "E1"
) -> float:
    """MAP@k: the mean over queries of AP@k.

    Parameters
    ----------
    query_codes : array of uint8 (n_queries, n_bytes) or of float (n_queries, n_bits)
        Packed codes, ranked by Hamming distance; or real-valued projections, ranked asymmetrically.
    database_codes : array of uint8 (n_items, n_bytes)
        Packed codes.
    relevant : tuple, matrix or callable
        A pair (query_labels, database_labels), a matrix (n_queries, n_items), or a function from query rows to such a
        matrix.
    k : int or None, default=50
        The cut; None is the whole database.
    ties : {"expected", "stable", "best", "worst"}, default="expected"
        Which order inside ties counts.
    rule : str, default="E1"
        Which of the public meanings of MAP@k, a key of `MAP_RULES`. E3, E3', E4 and E6 need k=None.

    Returns
    -------
    float
        From 0 to 1; higher is better.

    Raises
    ------
    ParameterError, DataError
        If k, ties or rule is not one of the values above; if codes and relevance do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from fusehash.evaluation import mean_average_precision
    >>> queries, database = np.array([[0b0]], np.uint8), np.array([[0b0], [0b1], [0b11]], np.uint8)
    >>> round(mean_average_precision(queries, database, ([1], [1, 2, 1])), 3)  # (1 + 2/3) / 2
    0.833
    """
    owner = "mean_average_precision"
    values, has_relevant = average_precisions(owner, query_codes, database_codes, relevant, k, ties, rule)
    return MAP_RULES[rule].mean(values, has_relevant)


def average_precision(
    query_codes: Any, database_codes: Any, relevant: Relevant, k: Cut = 50, ties: Ties = "expected", *, rule: str = "E1"
) -> Floats:
    """AP@k of every query; parameters and errors as for `mean_average_precision`.

    Returns
    -------
    array of float (n_queries,)
        0 for a query without relevant items.

    Examples
    --------
    >>> queries, database = np.array([[0], [3]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> average_precision(queries, database, ([1, 2], [1, 2, 1]), k=1)
    array([1., 0.])
    """
    return average_precisions("average_precision", query_codes, database_codes, relevant, k, ties, rule)[0]


def average_precisions(
    owner: str, query_codes: Any, database_codes: Any, relevant: Relevant, k: Cut, ties: Ties, rule: str
) -> tuple[Floats, NDArray[np.bool_]]:
    """AP of every query, and whether the database holds anything relevant to it."""
    by_rank = get_rule(rule, k, owner).cut == "rank"
    choice(*TIES).check(owner, "ties", ties)
    ranking = Ranking(query_codes, database_codes)
    cut = check_k(k, owner, ranking.n_items)
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    values, has_relevant = np.zeros(ranking.n_queries), np.zeros(ranking.n_queries, dtype=bool)
    average = tie_kernels.rank_cut_ap if by_rank else tie_kernels.hit_cut_ap

    def work(block: slice) -> None:
        is_relevant, stable = relevance.hits(block), ties == "stable"
        if ranking.is_hamming and by_rank and ties in ("expected", "stable"):
            search = ranking.queries[block], ranking.words, ranking.max_distance + 1, np.ascontiguousarray(is_relevant)
            kernels.ap_of_queries(*search, cut, stable, values[block], has_relevant[block])
            return
        for query, row in enumerate(is_relevant, block.start):
            sizes, hits = ranking.groups(query, row, stable=stable)
            has_relevant[query] = hits.any()
            values[query] = average(sizes, hits, cut, ORDER[ties])

    ranking.for_each_block(work)
    return values, has_relevant


def ndcg(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: Cut = 50,
    ties: Literal["expected", "stable"] = "expected",
    *,
    gain: Gain = "exponential",
) -> float:
    """NDCG@k with graded relevance (the number of shared labels), mean over queries.

    Parameters
    ----------
    query_codes, database_codes, relevant, k
        As for `mean_average_precision`.
    ties : {"expected", "stable"}, default="expected"
        Under "expected" every rank of a tie group has the mean gain of the group, which is exact.
    gain : {"exponential", "linear"}, default="exponential"
        2^grade - 1, or the grade.

    Returns
    -------
    float
        From 0 to 1; higher is better.

    Raises
    ------
    ParameterError, DataError
        As for `mean_average_precision`; also for a grade too large for exponential gain.

    Examples
    --------
    >>> queries, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> round(ndcg(queries, database, np.array([[1, 0, 2]])), 3)
    0.689
    """
    return float(ndcg_per_query(query_codes, database_codes, relevant, k, ties, gain=gain).mean())


def ndcg_per_query(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: Cut = 50,
    ties: Literal["expected", "stable"] = "expected",
    *,
    gain: Gain = "exponential",
) -> Floats:
    """NDCG@k of every query (n_queries,); parameters as for `ndcg`.

    Examples
    --------
    >>> ndcg_per_query(np.array([[0]], np.uint8), np.array([[0], [1]], np.uint8), np.array([[2, 1]]))
    array([1.])
    """
    choice("expected", "stable").check("ndcg", "ties", ties)
    choice("exponential", "linear").check("ndcg", "gain", gain)
    ranking = Ranking(query_codes, database_codes)
    cut = check_k(k, "ndcg", ranking.n_items)
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    discounts = 1.0 / np.log2(np.arange(2, cut + 2))
    values = np.zeros(ranking.n_queries)

    def work(block: slice) -> None:
        for query, grades in enumerate(relevance.grades(block), block.start):
            gains, largest = _gains(grades, gain, cut)
            ideal = largest @ discounts
            if ideal > 0:
                sizes, sums = ranking.groups(query, gains, stable=ties == "stable")
                values[query] = tie_kernels.discounted_gain(sizes, sums, discounts) / ideal

    ranking.for_each_block(work)
    return values


def _gains(grades: NDArray[Any], gain: Gain, k: int) -> tuple[Floats, Floats]:
    """The gain of every item, and the k largest gains in falling order."""
    if gain == "exponential" and grades.max() > LARGEST_GRADE:
        raise DataError(f"Grades under exponential gain must be at most {LARGEST_GRADE}. Got {grades.max():g}.")
    is_counted = grades.dtype.kind == "u" and grades.max() < 1024  # few values, many items: count instead of sorting
    gains = np.arange(grades.max() + 1.0) if is_counted else grades.astype(np.float64)
    if gain == "exponential":
        gains = np.exp2(gains) - 1.0
    if is_counted:
        return gains[grades], np.repeat(gains[::-1], np.bincount(grades)[::-1])[:k]
    return gains, np.sort(gains)[::-1][:k]


def pair_recall(
    query_codes: Any, database_codes: Any, k: int | Iterable[int] = (1, 5, 10), ties: Ties = "expected"
) -> Floats:
    """Share of queries whose partner is among the first k. Row i of the queries belongs to row i of the database.

    With c items nearer than the partner and t tied with it (itself included), the rank of the partner is uniform on
    c+1..c+t, so that recall@k is the mean of clip((k - c) / t, 0, 1).

    Parameters
    ----------
    query_codes, database_codes
        As for `mean_average_precision`, with equal numbers of rows.
    k : int or iterable of int, default=(1, 5, 10)
        One or more cuts.
    ties
        As for `mean_average_precision`.

    Returns
    -------
    array of float (len(k),)
        One value per cut; higher is better.

    Raises
    ------
    ParameterError, DataError
        If a parameter is not one of the values above, or the numbers of rows differ.

    Examples
    --------
    >>> image, text = np.array([[0], [1], [7]], np.uint8), np.array([[0], [3], [1]], np.uint8)
    >>> pair_recall(image, text, k=(1, 3)).round(3)
    array([0.333, 1.   ])
    """
    choice(*TIES).check("pair_recall", "ties", ties)
    ranking = Ranking(query_codes, database_codes)
    cuts = check_ranks(k, "pair_recall", "k")
    nearer, tied_before, tied = _partner_positions(ranking)
    if ties == "expected":
        return np.clip((cuts[:, None] - nearer) / tied, 0.0, 1.0).mean(axis=1)
    rank = {"stable": nearer + tied_before + 1, "best": nearer + 1, "worst": nearer + tied}[ties]
    return (rank <= cuts[:, None]).mean(axis=1)


def pair_auc(query_codes: Any, database_codes: Any) -> float:
    """1 - mean normalized rank of the true partner; no labels are needed.

    1 - mean of (c + (t - 1) / 2) / (n - 1), with codes, c and t as for `pair_recall`. Ties count half, so that a
    constant code scores exactly 1/2.

    Returns
    -------
    float
        1 for perfect codes, 1/2 for chance.

    Raises
    ------
    DataError
        If queries and database do not have equal numbers of rows, or have fewer than two.

    Examples
    --------
    >>> codes = np.array([[0], [1], [7]], np.uint8)
    >>> pair_auc(codes, codes)
    1.0
    """
    ranking = Ranking(query_codes, database_codes)
    nearer, _, tied = _partner_positions(ranking)
    if ranking.n_items < 2:
        raise DataError("Pair AUC needs at least two pairs. Got one.")
    return float(1.0 - (nearer + (tied - 1) / 2).mean() / (ranking.n_items - 1))


def _partner_positions(ranking: Ranking) -> NDArray[np.int64]:
    """Per query: items nearer than the partner, tied before it in row order, tied with it at all (3, n)."""
    if ranking.n_queries != ranking.n_items:
        counts = f"{ranking.n_queries} queries and {ranking.n_items} database items"
        raise DataError(f"Queries and database must pair row by row. Got {counts}.")
    positions = np.zeros((3, ranking.n_queries), dtype=np.int64)

    def work(block: slice) -> None:
        if ranking.is_hamming:
            kernels.partners_of_queries(ranking.queries[block], ranking.words, block.start, positions[:, block])
            return
        for query in range(block.start, block.stop):
            positions[:, query] = kernels.partner_position(ranking.levels(query)[0], query)

    ranking.for_each_block(work)
    return positions


@dataclass(frozen=True)
class Metric:
    """One metric. To add a metric to reports, add one entry to `METRICS`.

    Attributes
    ----------
    label : str
        Its name in tables; {k} is the cut.
    compute : callable
        (query_codes, database_codes, relevant, ...) -> values; metrics of pairs take no relevance.
    better : {"higher", "lower"}
        Which values are better.
    """

    label: str
    compute: Callable[..., Any]
    better: Literal["higher", "lower"] = "higher"

    def title(self, k: int | None = None) -> str:
        """The label with its cut: MAP@50, or MAP where the whole database counts."""
        return self.label.format(k=k) if k is not None else self.label.partition("@")[0]


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "map": Metric("MAP@{k}", average_precision),
        "ndcg": Metric("NDCG@{k}", ndcg_per_query),
        "precision": Metric("precision@{k}", precision_at),
        "precision_recall": Metric("precision and recall by radius", precision_recall_by_radius),
        "precision_recall_by_rank": Metric("precision and recall by rank", precision_recall_by_rank),
        "pair_recall": Metric("pair recall@{k}", pair_recall),
        "pair_auc": Metric("pair AUC", pair_auc),
    }
)
