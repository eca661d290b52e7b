"""The top of the spectrum of Z'Z (see `closed_form`), from sums over rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fusehash.hashers.fusehash.fitted import Arrays, Choices, Embedding
from fusehash.numerics.arrays import Array, cast, host, namespace, solve_lower, top_eigh, zeros
from fusehash.numerics.linalg import identity, leading_eigenpairs, ridge_solver

ROUNDING = 1e-6  # of sums in single precision, relative to the mean diagonal


def usual_graph_weight(n_rows: int) -> float:
    """The weight mu that was best on average: 2 for small data, 1 from 6,000 rows on (docs/study.md).

    With more rows, the views alone determine better what belongs together.
    """
    return float(np.clip(np.sqrt(6000.0 / n_rows), 1.0, 2.0))


class Whitened(NamedTuple):
    """L_m with L_m L_m' = F_m'F_m + ridge I, by view, and Q'Q of Q = [F_m L_m'^-1] over all views."""

    factors: Arrays
    gram: Array


@dataclass
class FeatureGram:
    """F'F of centered features, and for every ridge what whitens them: the same for all graphs over these features.

    With `norms` of a view (see `RowMaps.norms`, times the number of rows), the ridge of canonical variates is on the
    norm of functions of rows, as in kernel CCA, and not on the weights of anchors.
    """

    FF: Array
    spans: dict[str, slice]
    norms: Arrays = field(default_factory=dict)
    kept: dict[tuple[float, bool], Whitened] = field(default_factory=dict, repr=False)

    def whitened(self, ridge: float, *, is_canonical: bool = False) -> Whitened:
        """Canonical: with the ridge on the norm, and with the identity in place of the views' own blocks of Q'Q."""
        if (ridge, is_canonical) not in self.kept:
            factors = {}
            for name, span in self.spans.items():
                gram, norm = self.FF[span, span], self.norms.get(name) if is_canonical else None
                factors[name] = ridge_solver(*((gram, ridge) if norm is None else (gram + ridge * norm, ROUNDING)))
            Q = zeros(self.FF.shape, self.FF)
            for i, (a, left) in enumerate(self.spans.items()):
                for b, right in list(self.spans.items())[i:]:
                    if is_canonical and a == b:
                        Q[left, right] = identity(Q[left, right])
                        continue
                    half = solve_lower(factors[a], self.FF[left, right])
                    Q[left, right] = solve_lower(factors[b], half.T).T
                    Q[right, left] = Q[left, right].T
            self.kept[ridge, is_canonical] = Whitened(factors, Q)
        return self.kept[ridge, is_canonical]


class Spectrum(NamedTuple):
    """The r largest eigenvalues of Z'Z with their eigenvectors, and the map from features and graph rows to Y."""

    eigenvalues: Array
    vectors: Array
    on_features: Array
    on_graph: Array

    def embedding(self, dtype: str) -> Embedding:
        return Embedding(cast(self.on_features, dtype), cast(self.on_graph, dtype))


def spectrum(
    sums: dict[str, Any], gram: FeatureGram, choices: Choices, rank: int, start: Array | None = None
) -> Spectrum:
    """Top r eigenpairs of Z'Z, and Y; `start` are eigenvectors of a similar matrix."""
    if choices.is_canonical:
        return canonical_spectrum(gram, sums["count"], choices, rank)
    S_sum, spans, (factors, QQ) = sums["S"], gram.spans, gram.whitened(choices.ridge)
    xp, N, D, P = namespace(QQ), sums["count"], len(QQ), len(S_sum)
    view_weights = choices.view_weights or (1.0,) * len(spans)
    root_a = {name: float(np.sqrt(a)) for name, a in zip(spans, view_weights, strict=True)}
    G = zeros((D + P, D + P), QQ)  # Z'Z
    for a, left in spans.items():
        for b, right in spans.items():
            G[left, right] = root_a[a] * root_a[b] * QQ[left, right]
    if P:
        mu = usual_graph_weight(N) * choices.graph_weight
        mean, is_used = S_sum / N, cast(S_sum > 1e-9, "float64")
        root = is_used * float(np.sqrt(mu)) / xp.sqrt(xp.clip(S_sum, 1e-9, None))  # sqrt(mu) L^-1/2
        FS = (sums["FS"] - sums["F"][:, None] * mean) * root
        for a, left in spans.items():
            G[left, D:] = root_a[a] * solve_lower(factors[a], FS[left])
            G[D:, left] = G[left, D:].T
        G[D:, D:] = (sums["SS"] - N * mean[:, None] * mean) * (root[:, None] * root)
    w, vectors = leading_eigenpairs(G, rank, start=start)
    keep = max(int(np.sum(host(w) > 1e-6 * float(w[0]))), 1)
    w = xp.clip(w[:keep], 1e-30, None)  # 0 if all rows but those held out are (nearly) the same
    V = vectors[:, :keep] * (float(np.sqrt(N)) / xp.sqrt(w) * (w / w[0]) ** choices.spectral_power)
    parts = [root_a[a] * solve_lower(factors[a], V[span], transposed=True) for a, span in spans.items()]
    on_graph = root[:, None] * V[D:] if P else zeros((0, keep), V)
    return Spectrum(w, vectors, xp.concat(parts, axis=0), on_graph)


def canonical_spectrum(gram: FeatureGram, count: int, choices: Choices, rank: int) -> Spectrum:
    """Canonical correlation analysis, as in CCA-ITQ: Y is the sum of the views' variates, F_m A_m diag(rho)^(p / 2).

    The variates have unit variance; rho is their mean correlation over pairs of views, and w = 1 + rho (for two views
    without a ridge).
    """
    FF, spans, (factors, QQ) = gram.FF, gram.spans, gram.whitened(choices.ridge, is_canonical=True)
    xp = namespace(QQ)
    w, vectors = _top_shared(QQ, list(spans.values()), rank)
    maps = {}
    for name, span in spans.items():
        A = solve_lower(factors[name], vectors[span], transposed=True)
        spread = xp.sqrt(xp.clip(xp.sum(A * (FF[span, span] @ A), axis=0) / count, 0.0, None))
        maps[name] = A / xp.where(spread > 1e-6 * xp.max(spread), spread, spread * 0.0 + np.inf)
    pairs = list(combinations(maps, 2))
    shared = [xp.sum(maps[a] * (FF[spans[a], spans[b]] @ maps[b]), axis=0) / count for a, b in pairs]
    rho = xp.clip(sum(shared[1:], shared[0]) / len(pairs), 0.0, 1.0)
    keep = max(int(np.sum(host(rho) > 1e-6)), 1)
    weights = xp.clip(rho[:keep], 1e-12, None) ** (choices.spectral_power / 2.0)
    on_features = xp.concat([A[:, :keep] * weights for A in maps.values()], axis=0)
    return Spectrum(w[:keep], vectors[:, :keep], on_features, zeros((0, keep), QQ))


def _top_shared(QQ: Array, spans: list[slice], rank: int) -> tuple[Array, Array]:
    """The top eigenpairs of Q'Q with identities on its diagonal; exact, since correlations may all be nearly 1.

    Of two views with C = Q_a'Q_b these are 1 + s and [u; v] / sqrt(2), with s, u, v the singular values and vectors.
    """
    if len(spans) != 2:
        return top_eigh(QQ, min(rank, len(QQ)))
    xp, (small, large) = namespace(QQ), sorted(spans, key=lambda span: span.stop - span.start)
    C = QQ[small, large]
    squares, U = top_eigh(C @ C.T, min(rank, len(C)))
    s = xp.sqrt(xp.clip(squares, 1e-30, None))
    vectors = zeros((len(QQ), len(s)), QQ)
    vectors[small], vectors[large] = U / 2.0**0.5, C.T @ U / (s * 2.0**0.5)
    return 1.0 + s, vectors
