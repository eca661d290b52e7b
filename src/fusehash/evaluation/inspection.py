"""What two views of joint embeddings are like, before anything is learned: gap, spectrum, hubness, what bits would buy.

Rows are scaled to unit length, since embeddings are compared by cosine. With the means m_a and m_b of the views:

    gap          |m_a - m_b|, between 0 and 2 (Liang et al. 2022)
    dimension    (sum w)^2 / sum w^2 of the eigenvalues w of a view's covariance: over how many directions it spreads
    hubness      skewness of the number of queries that have an item among their k nearest (Radovanovic et al. 2010)

Bits are signs of randomly rotated rows, ranked by float queries. Nothing is learned but the means:

    sign          b = sgn(x R)               score <b, q R>
    own means     b = sgn((x - m_b) R)       score <b, (q - m_a) R>
    two numbers   the same                   score <b, (q - m_a) R> |r|^2 / sum_j |(r R)_j| + <m_a, r>,   r = x - m_b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.evaluation.embeddings import largest, recall_of, rescored
from fusehash.numerics.features import unit_rows
from fusehash.numerics.memory import check_memory
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import MAX_BITS, integer, multiple_of, sequence
from fusehash.views import Floats, PairedViews, ViewsLike

CODES = ("sign", "own means", "two numbers")
LENGTHS = (64, 128, 256, 512, 1024)
N_ROWS, N_QUERIES = 4000, 1000
LARGE_GAP, MANY_HUBS = 0.3, 2.0  # beyond which the summary gives advice


@dataclass(frozen=True)
class Hubness:
    """How evenly the items of one view are found from the other by cosine."""

    query_view: str
    item_view: str
    skewness: float
    most_found: int
    never_found: float
    pair_recall: float


@dataclass(frozen=True)
class RecallOfBits:
    """What codes of one kind and length keep of the float ranking, in one direction."""

    codes: str
    n_bits: int
    query_view: str
    item_view: str
    recall: float
    rescored_recall: float


@dataclass(frozen=True)
class EmbeddingInspection:
    """What `inspect_embeddings` found; `summary` says it in one paragraph."""

    n_rows: int
    n_used: int
    width: int
    k: int
    candidates: int
    gap: float
    partner_cosine: float
    other_cosine: float
    spectra: dict[str, list[float]]
    dimensions: dict[str, float]
    hubness: tuple[Hubness, ...]
    recalls: tuple[RecallOfBits, ...]

    @property
    def lengths(self) -> list[int]:
        """The code lengths that were tried."""
        return sorted({entry.n_bits for entry in self.recalls})

    def recall(self, codes: str, n_bits: int, *, is_rescored: bool = False) -> float:
        """The mean over both directions."""
        found = [entry for entry in self.recalls if (entry.codes, entry.n_bits) == (codes, n_bits)]
        return float(np.mean([entry.rescored_recall if is_rescored else entry.recall for entry in found]))

    def row(self) -> dict[str, Any]:
        """Everything as a JSON-ready mapping."""
        return {**asdict(self), "summary": self.summary}

    @property
    def summary(self) -> str:
        """One paragraph."""
        (a, spread_a), (b, spread_b) = self.dimensions.items()
        advice = "large: center each view on its own mean, as fusehash does" if self.gap > LARGE_GAP else "small"
        hub = max(self.hubness, key=lambda entry: entry.skewness)
        n_bits = min(self.lengths, key=lambda length: abs(length - 256))
        kept = {kind: [self.recall(kind, n_bits, is_rescored=again) for again in (False, True)] for kind in CODES}
        partners = [f"{entry.pair_recall:.3f} from {entry.query_view} to {entry.item_view}" for entry in self.hubness]
        sentences = (
            f"{self.n_used:,} of {self.n_rows:,} pairs with {self.width:,} columns were looked at.",
            f"The means of {a} and {b} are {self.gap:.2f} apart, which is {advice}.",
            f"The cosine of partners is {self.partner_cosine:.2f} on average, that of others {self.other_cosine:.2f}.",
            f"Rows spread over about {spread_a:.0f} directions ({a}) and {spread_b:.0f} ({b}).",
            f"Hubs are {'strong' if hub.skewness > MANY_HUBS else 'weak'}: one {hub.item_view} is among the {self.k}",
            f"nearest of {hub.most_found:,} queries, and {hub.never_found:.0%} are among those of none.",
            f"Of the {self.k} nearest by cosine, {n_bits} bits keep {kept['two numbers'][0]:.3f} with own means and",
            f"two numbers per item ({kept['two numbers'][1]:.3f} after rescoring {self.candidates}), and",
            f"{kept['sign'][0]:.3f} with sign() alone ({kept['sign'][1]:.3f}).",
            f"By cosine, the partner is among the first {self.k} for {' and '.join(partners)}; codes that are learned",
            "from pairs can do better, which only fitting shows.",
        )
        return " ".join(sentences)


def inspect_embeddings(
    views: ViewsLike, *, lengths: Sequence[int] = LENGTHS, k: int = 10, candidates: int = 100, n_rows: int = N_ROWS,
    n_queries: int = N_QUERIES, random_state: int = 0,
) -> EmbeddingInspection:  # fmt: skip
    """Look at two views of joint embeddings without fitting anything.

    Parameters
    ----------
    views : mapping of str to matrix, or PairedViews
        Two views of one width; row i of both is the same item.
    lengths : sequence of int
        Code lengths to try, multiples of 8.
    k, candidates : int, default 10 and 100
        Length of a ranking, and how many items are rescored.
    n_rows, n_queries : int, default 4,000 and 1,000
        Look at so many random rows, and ask so many of them.
    random_state : int, default 0
        Seed of these choices and of the rotations.

    Returns
    -------
    inspection : EmbeddingInspection

    Raises
    ------
    DataError, ParameterError
        If there are not two views of one width with at least 3 rows, a row is all zeros, or memory is too small.

    References
    ----------
    Liang, Zhang, Kwon, Yeung and Zou (2022), Mind the gap. Radovanovic, Nanopoulos and Ivanovic (2010), Hubs in space.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, views={"image": 16, "text": 16}, random_state=0)
    >>> found = fh.evaluation.inspect_embeddings(data.views, lengths=(32,))
    >>> 0.0 <= found.gap <= 2.0, [entry.codes for entry in found.recalls[:3]]
    (True, ['sign', 'own means', 'two numbers'])
    """
    owner, paired = "inspect_embeddings", PairedViews(views).in_order().on_host()
    if len(paired.names) != 2:
        raise DataError(f"There must be two views of embeddings. Got {len(paired.names)}: {', '.join(paired.names)}.")
    if len(set(paired.n_features.values())) > 1:
        raise DataError(f"Joint embeddings must have one width. Got {paired.n_features}.")
    if paired.n_rows < 3:
        raise DataError(f"There must be at least 3 pairs. Got {paired.n_rows}.")
    width = paired.n_features[paired.names[0]]
    check_memory(owner, f"covariances and rotations of {width:,} columns", 3 * 8 * width**2)
    sequence(multiple_of(8), f"multiples of 8, at most {MAX_BITS}").check(owner, "lengths", lengths)
    integer(1).check(owner, "k", k)
    integer(k, None, f" (k = {k})").check(owner, "candidates", candidates)
    rng = np.random.default_rng(random_state)
    count = min(integer(3).check(owner, "n_rows", n_rows), paired.n_rows)
    rows = np.sort(rng.choice(paired.n_rows, count, replace=False))
    units = {name: _unit_view(paired, name, rows) for name in paired}
    asked = np.sort(rng.choice(count, min(integer(1).check(owner, "n_queries", n_queries), count), replace=False))
    k, candidates = min(k, count - 1), min(candidates, count)
    means = {name: X.mean(axis=0) for name, X in units.items()}
    a, b = paired.names
    partner = float(np.einsum("ij,ij->", units[a], units[b])) / count
    spectra = {name: _spectrum(X) for name, X in units.items()}
    hubness, recalls = [], []
    for query_view, item_view in permutations(paired.names, 2):
        Q, X = units[query_view][asked], units[item_view]
        exact = largest(Q @ X.T, k)
        hubness.append(_hubness(query_view, item_view, exact, asked, count))
        for n_bits in lengths:
            R = random_rotations(paired.n_features[a], n_bits, np.random.default_rng([random_state, n_bits]))
            scores = _scores(Q, X, means[query_view], means[item_view], R)
            for codes, matrix in scores.items():
                found = largest(matrix, candidates)
                again = rescored(Q, X, found, k)
                kept = recall_of(found[:, :k], exact), recall_of(again, exact)
                recalls.append(RecallOfBits(codes, n_bits, query_view, item_view, *kept))
    return EmbeddingInspection(
        n_rows=paired.n_rows, n_used=count, width=paired.n_features[a], k=k, candidates=candidates,
        gap=float(np.linalg.norm(means[a] - means[b])), partner_cosine=partner,
        other_cosine=float((means[a] @ means[b] * count - partner) / (count - 1)),
        spectra={name: w.tolist() for name, w in spectra.items()},
        dimensions={name: float(w.sum() ** 2 / np.sum(w**2)) for name, w in spectra.items()},
        hubness=tuple(hubness), recalls=tuple(recalls),
    )  # fmt: skip


def _unit_view(views: PairedViews, name: str, rows: NDArray[np.intp]) -> Floats:
    X = views.block(name, rows)
    is_zero = ~X.any(axis=1)
    if is_zero.any():
        raise DataError(f"View '{name}' must hold embeddings other than zero. Row {rows[is_zero][0]} is all zeros.")
    if np.array_equal(X, np.broadcast_to(X[:1], X.shape)):
        raise DataError(f"View '{name}' must vary between rows. Every row is the same.")
    return unit_rows(X)


def _spectrum(X: Floats) -> Floats:
    """Eigenvalues of the covariance, largest first."""
    return np.maximum(np.linalg.eigvalsh(np.cov(X.T, bias=True).reshape(X.shape[1], -1))[::-1], 0.0)


def _hubness(query_view: str, item_view: str, exact: NDArray[np.int64], asked: Any, n_items: int) -> Hubness:
    counts = np.bincount(exact.ravel(), minlength=n_items).astype(np.float64)
    spread = counts.std()
    skewness = float(np.mean((counts - counts.mean()) ** 3) / spread**3) if spread else 0.0
    return Hubness(
        query_view, item_view, skewness, int(counts.max()), float(np.mean(counts == 0)),
        recall_of(exact, asked[:, None]),
    )  # fmt: skip


def _scores(Q: Floats, X: Floats, query_mean: Floats, item_mean: Floats, R: Floats) -> dict[str, Floats]:
    """The scores of every kind of codes; see the top of this file."""
    centered = X - item_mean
    P, queries = centered @ R, (Q - query_mean) @ R
    own = queries @ np.where(P > 0.0, 1.0, -1.0).T
    sums = np.abs(P).sum(axis=1)
    scales = np.sum(centered**2, axis=1) / np.where(sums > 0.0, sums, 1.0)
    plain = (Q @ R) @ np.where(X @ R > 0.0, 1.0, -1.0).T
    return dict(zip(CODES, (plain, own, own * scales + centered @ query_mean), strict=True))
