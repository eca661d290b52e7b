"""target="floats": codes that keep the float ranking of joint embeddings, with two numbers per item.

Rows are scaled to unit length and every view is centered on its own mean. Of two views with covariances C_a and C_b,
the directions that matter to products <x_a, x_b> are those of the singular values of C_a^1/2 C_b^1/2 = U S V':

    A_a = C_a^-1/2 U_k S_k^1/2,    A_b = C_b^-1/2 V_k S_k^1/2,    (A_a'x_a)'(A_b'x_b) ~ x_a'x_b

(exact for k = d), where both views have the covariance S_k. With one view, or more than two, A holds the leading
principal directions of all. Signs are taken in a random tight frame F (k, n_bits), FF' = (n_bits / k) I:

    p = A'(x - own mean) F,   b = sgn(p),   <q, x> ~ scale <b, p_q> + offset + a number per query
    scale = |A'r|^2 / <b, p>,   offset = <mean of the other view, r>,   r = x - own mean

Fewer directions than bits give each direction several bits; the code that comes with factors is then better than
signs (best_bits.py). `rank` is chosen on rows that the maps were not learned from. Pairs are not used, so that rows
need not be paired.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage

from fusehash.errors import DataError
from fusehash.hashers.fusehash.best_bits import MAX_BITS, nearest_bits
from fusehash.hashers.fusehash.fitted import Embedding, Fitted
from fusehash.hashers.quantizers.joint import mean_query, scales_of, unit_moments
from fusehash.numerics.arrays import host, to_dense, with_signs
from fusehash.numerics.features import FeatureMap, Preparation, unit_rows
from fusehash.numerics.linalg import CenteredGram
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats, PairedViews

Rng = np.random.Generator
SAMPLE_ROWS = 4000  # of every view, for the choice of the rank: one half learns, the other is searched
N_QUERIES, N_NEAREST = 400, 10
JOINT_ROWS, MIN_JOINT_ROWS, MAX_JOINT_WIDTH = 1000, 20, 8192
MIN_PARTNER_SHARE = 0.75  # 1/2 is chance; the five sets of docs/embeddings.md have .946 to 1.000
SHARES = (1, 2, 4, 8)  # bits per direction that are tried


def fit_floats(views: PairedViews, n_bits: int, rank: int | None, rng: Rng) -> tuple[Fitted, dict[str, Any], Floats]:
    """The maps, what was tried, and the spectrum S_k."""
    widths = set(views.n_features.values())
    if len(widths) > 1:
        listed = ", ".join(f"'{name}' has {d}" for name, d in views.n_features.items())
        expected = 'Views must be embeddings of one space for target="floats".'
        raise DataError(f'{expected} Got different widths: {listed}; target="pairs" takes them.')
    (d,) = widths
    frame_rng, sample_rng = rng.spawn(2)
    totals = unit_moments(views)
    shrinkage = {name: _shrinkage(views, name, sample_rng) for name in views}
    tried: dict[int, float] = {}
    if rank is None:
        candidates = sorted({max(min(d, n_bits // share), 1) for share in SHARES if n_bits // share >= 8 or share == 1})
        tried = _try_ranks(views, candidates, n_bits, shrinkage, sample_rng)
        rank = max(tried, key=lambda k: tried[k])
    rank = min(rank, d, n_bits)
    maps, spectrum = balanced_maps(totals, shrinkage, rank)
    F = tight_frame(rank, n_bits, frame_rng)
    weights = {name: A @ F for name, A in maps.items()}
    feature_maps = {
        name: FeatureMap(Preparation("unit", total.mean, np.ones(d), None, "float64"), np.zeros((0, d)), 0.0)
        for name, total in totals.items()
    }
    code_map = Embedding(np.vstack(list(weights.values())), np.zeros((0, n_bits)))
    zeros = {name: np.zeros(d) for name in views}
    fitted = Fitted(feature_maps, zeros, weights, dict.fromkeys(weights, 1.0), None, code_map, frame_rank=rank)
    recalls = [{"rank": k, "recall": recall} for k, recall in tried.items()]
    return fitted, {"target": "floats", "rank": rank, "ranks": recalls, "shrinkage": shrinkage}, spectrum


def factors_of(fitted: Fitted, block: Floats, projections: Floats, products: Floats, rank: int, view: str) -> Floats:
    """Scale and offset of every item: from its row, its projections on all columns of the frame, and <b, p>."""
    means = {name: np.asarray(m.preparation.mean) for name, m in fitted.maps.items()}
    residuals = unit_rows(block) - means[view]
    squared = np.einsum("ij,ij->i", projections, projections) * (rank / projections.shape[1])
    return np.stack([scales_of(squared, products), residuals @ mean_query(means, view)], axis=1)


def share_a_space(data: RowPasses, rng: Rng) -> bool:
    """Whether partners are near each other as they are: by cosine around the means, in most comparisons with others."""
    rows, widths = data.views.complete_rows(), set(data.n_features.values())
    if len(data.names) < 2 or len(widths) > 1 or max(widths) > MAX_JOINT_WIDTH or len(rows) < MIN_JOINT_ROWS:
        return False
    rows = np.sort(rng.choice(rows, min(JOINT_ROWS, len(rows)), replace=False))
    units = [unit_rows(np.asarray(host(to_dense(data.take(name, rows))), np.float64)) for name in data.names]
    units = [unit_rows(X - X.mean(axis=0)) for X in units]
    return all(partner_share(A @ B.T) > MIN_PARTNER_SHARE for A, B in combinations(units, 2))


def partner_share(cosines: Floats) -> float:
    """Share of the other columns that are below the diagonal entry of their row; 1/2 by chance, ties count half."""
    own, n = np.diagonal(cosines)[:, None], len(cosines)
    below = np.sum(cosines < own, axis=1) + 0.5 * (np.sum(cosines == own, axis=1) - 1)
    return float(np.mean(below)) / (n - 1)


def balanced_maps(
    totals: dict[str, CenteredGram], shrinkage: dict[str, float], rank: int
) -> tuple[dict[str, Floats], Floats]:
    """A of every view, (d, rank), and the spectrum S_k."""
    covariances: dict[str, Floats] = {}
    for name, total in totals.items():
        C, share = total.gram / total.count, shrinkage[name]
        covariances[name] = (1.0 - share) * C + share * np.trace(C) / len(C) * np.eye(len(C))
    return balanced(covariances, rank)


def balanced(covariances: dict[str, Floats], rank: int) -> tuple[dict[str, Floats], Floats]:
    """A of every view, from its covariance, and the spectrum S_k."""
    if len(covariances) != 2:
        w, V = np.linalg.eigh(np.mean(list(covariances.values()), axis=0))
        leading: Floats = with_signs(V[:, ::-1][:, :rank])
        return dict.fromkeys(covariances, leading), w[::-1][:rank]
    roots = {name: _roots(C) for name, C in covariances.items()}
    (a, (root_a, inverse_a)), (b, (root_b, inverse_b)) = roots.items()
    U, s, Vt = np.linalg.svd(root_a @ root_b)
    scale = np.sqrt(s[:rank])
    return {a: inverse_a @ U[:, :rank] * scale, b: inverse_b @ Vt[:rank].T * scale}, s[:rank]


def tight_frame(rank: int, n_bits: int, rng: Rng) -> Floats:
    """F (rank, n_bits) with FF' = (n_bits / rank) I, uniformly random."""
    Q, R = np.linalg.qr(rng.standard_normal((n_bits, rank)))
    return (Q * np.sign(np.diagonal(R))).T * np.sqrt(n_bits / rank)


def _roots(C: Floats) -> tuple[Floats, Floats]:
    """C^1/2 and C^-1/2 of a symmetric matrix."""
    w, V = np.linalg.eigh(C)
    root = np.sqrt(np.maximum(w, 1e-12 * w[-1]))
    return (V * root) @ V.T, (V / root) @ V.T


def _sample(views: PairedViews, name: str, n_rows: int, rng: Rng) -> Floats:
    """Some unit rows of a view."""
    rows = np.flatnonzero(views.is_present(name))
    return unit_rows(views.block(name, np.sort(rng.choice(rows, min(n_rows, len(rows)), replace=False))))


def _shrinkage(views: PairedViews, name: str, rng: Rng) -> float:
    """The share of the identity in the covariance (Ledoit and Wolf 2004): large where rows are few."""
    X = _sample(views, name, SAMPLE_ROWS // 2, rng)
    of_sample = float(ledoit_wolf_shrinkage(X)) if len(X) > 1 else 1.0
    n_rows = int(views.is_present(name).sum())
    return float(np.clip(of_sample * len(X) / n_rows, 1e-4, 1.0))


def _try_ranks(
    views: PairedViews, candidates: list[int], n_bits: int, shrinkage: dict[str, float], rng: Rng
) -> dict[int, float]:
    """rank -> recall of the float ranking among rows that the maps were not learned from."""
    if len(candidates) == 1:
        return {candidates[0]: 1.0}
    frame_rng, rng = rng.spawn(2)
    samples = {name: rng.permutation(_sample(views, name, SAMPLE_ROWS, rng)) for name in views}
    totals, held = {}, {}
    for name, X in samples.items():
        totals[name] = CenteredGram(X.shape[1])
        totals[name].add(X[: len(X) // 2])
        held[name] = X[len(X) // 2 :] - totals[name].mean
    means = {name: total.mean for name, total in totals.items()}
    more = {name: min(2.0 * share, 1.0) for name, share in shrinkage.items()}  # of half the rows
    names = list(views)
    directions = [(a, b) for a in names for b in names if a != b] or [(names[0], names[0])]
    recalls = {}
    for rank in candidates:
        maps, _ = balanced_maps(totals, more, rank)
        F, found = tight_frame(rank, n_bits, np.random.default_rng(frame_rng.integers(2**32))), []
        for a, b in directions:
            queries, items = held[a][:N_QUERIES], held[b]
            k = min(N_NEAREST, len(items))
            exact = (queries + means[a]) @ items.T
            P = items @ maps[b] @ F
            B = np.where(P > 0.0, 1.0, -1.0) if n_bits > MAX_BITS else nearest_bits(P, F.T @ F * (rank / n_bits))
            scales = scales_of(np.einsum("ij,ij->i", P, P) * (rank / n_bits), np.einsum("ij,ij->i", P, B))
            estimate = (queries @ maps[a] @ F) @ B.T * scales + items @ means[a]
            nearest, chosen = (np.argpartition(-S, k - 1, axis=1)[:, :k] for S in (exact, estimate))
            found += [len(np.intersect1d(x, y)) / k for x, y in zip(nearest, chosen, strict=True)]
        recalls[rank] = float(np.mean(found))
    return recalls
