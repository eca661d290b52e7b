"""Generalized canonical correlation analysis: the directions that several views share.

    max  sum_{m != n} tr A_m'X_m' S X_n A_n      s.t.  sum_m A_m'(X_m'X_m + ridge I)A_m = I

S (N x N) is the similarity of pairs. With S = I (a pair is similar to itself alone) this is canonical correlation
analysis, and its MAXVAR form for more than two views. The problem is as large as the features, whatever the number of
rows. CVH and CCA-ITQ solve it by `shared_directions`. `canonical_directions` is the short form for a control.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, eigh

from fusehash.hashers.linear import CenteredViews, sum_parts
from fusehash.numerics.arrays import with_signs
from fusehash.numerics.linalg import top_eigenpairs, whitening
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import random_rotations
from fusehash.views import Floats, PairedViews

# Eigenvalues of a Gram matrix below this share of the largest are rounding errors.
RANK_TOL = 1e-10
# A view whose share of an eigenvector is below this has no part in it; a contradiction below this is none.
SHARE_TOL, AGREEMENT_TOL = 1e-10, 1e-9


@dataclass
class SharedDirections:
    """Per view a map to variates of unit variance; the directions that are shared most come first."""

    maps: dict[str, Floats]  # view -> (d_m, r)
    agreement: Floats  # (r,) the eigenvalues / (M - 1); for S = I and two views the canonical correlations
    seen: dict[str, NDArray[np.bool_]]  # view -> (r,) whether it takes part in a direction; if not, its column is 0
    basis: dict[str, Floats]  # view -> (d_m, rank), white variates that span the view

    @property
    def n_shared(self) -> int:
        """How many directions at least two views take part in; they come first."""
        return int(np.sum(np.sum(list(self.seen.values()), axis=0) >= 2))


def joint_sums(data: CenteredViews, E: Floats | None = None) -> tuple[Floats, Floats]:
    """X'X and X'SX of the views side by side, X = [X_1 ... X_M], in one pass over the rows.

    Without E, S = I. With E, the label rows scaled to norm 1, S = EE' + I: similar are pairs with common labels, and a
    pair to itself once more. S is never formed: X'EE'X = (X'E)(X'E)'.
    """

    def of_block(rows: slice) -> dict[str, Floats]:
        X = np.hstack([data.block(name, rows) for name in data.views])
        return {"X": X.T @ X} if E is None else {"X": X.T @ X, "E": X.T @ E[rows]}

    sums = sum_parts(map_blocks(of_block, data.views.blocks(), data.n_threads))
    return sums["X"], sums["X"] if E is None else sums["X"] + sums["E"] @ sums["E"].T


def shared_directions(data: CenteredViews, gram: Floats, similar: Floats) -> SharedDirections:
    """Solve the eigenproblem; directions along which the views contradict each other are left out."""
    names, spans = data.views.names, feature_spans(data.views)
    bases = [white_basis(gram[span, span], data.ridge) for span in spans]
    ranks = [basis.shape[1] for basis in bases]
    T = block_diag(*bases)
    same_view = block_diag(*[np.ones((r, r)) for r in ranks]) > 0
    F = np.where(same_view, 0.0, T.T @ similar @ T) / (len(names) - 1)
    w, V = eigh((F + F.T) / 2.0)
    V = with_signs(V[:, ::-1])
    # Along w = 0 each eigenvector belongs to one view; for w < 0 the views say opposite things.
    keep = w[::-1] > -AGREEMENT_TOL * w[-1]
    maps, seen = {}, {}
    for name, span, basis, part in zip(names, spans, bases, np.split(V[:, keep], np.cumsum(ranks)[:-1]), strict=True):
        seen[name] = np.einsum("ij,ij->j", part, part) > SHARE_TOL
        maps[name] = np.where(seen[name], unit_variance(basis @ part, gram[span, span], data.views.n_rows), 0.0)
    return SharedDirections(maps, w[::-1][keep], seen, dict(zip(names, bases, strict=True)))


def canonical_directions(data: CenteredViews, n_directions: int) -> dict[str, Floats]:
    """The leading (d_m x r) maps for S = I by Cholesky whitening, which keeps dependent features.

    V = top eigenvectors of T'X'X T,   T = diag(T_m),   T_m'(X_m'X_m + ridge I)T_m = I,   A_m = T_m V_m
    """
    gram, _ = joint_sums(data)
    spans = feature_spans(data.views)
    T = block_diag(*[whitening(gram[span, span], data.ridge) for span in spans])
    w, V = top_eigenpairs(T.T @ gram @ T, min(n_directions, len(gram)))
    A = T @ V[:, w > 1e-8 * w[0]]
    n = data.views.n_rows
    return {name: unit_variance(A[s], gram[s, s], n) for name, s in zip(data.views.names, spans, strict=True)}


def rotated_directions(
    data: CenteredViews, n_directions: int, n_bits: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Canonical directions, randomly rotated; several rotations where there are more bits than directions."""
    directions = canonical_directions(data, n_directions)
    R = random_rotations(next(iter(directions.values())).shape[1], n_bits, rng)
    return {name: A @ R for name, A in directions.items()}


def feature_spans(views: PairedViews) -> list[slice]:
    """The columns of every view in [X_1 ... X_M]."""
    return [slice(a, b) for a, b in pairwise(np.cumsum([0, *views.n_features.values()]))]


def white_basis(gram: Floats, ridge: float) -> Floats:
    """T (d x rank) with T'(gram + ridge * mean diagonal I)T = I and the span of the features, largest variance first.

    Dependent features are left out (proportions are dependent after centering): a Cholesky factor would turn the
    rounding errors along them into directions.
    """
    w, Q = eigh(gram)
    keep = w > RANK_TOL * w[-1]
    Q = with_signs(Q)
    return np.ascontiguousarray((Q[:, keep] / np.sqrt(w[keep] + ridge * np.trace(gram) / len(gram)))[:, ::-1])


def unit_variance(A: Floats, gram: Floats, n_rows: int) -> Floats:
    """Columns scaled so that X A has unit variance; constant columns become 0."""
    spread = np.sqrt(np.maximum(np.einsum("ij,ij->j", A, gram @ A), 0.0) / n_rows)
    return A / np.where(spread > 1e-12 * spread.max(initial=0.0), spread, np.inf)
