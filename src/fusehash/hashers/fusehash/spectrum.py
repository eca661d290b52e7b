"""The top of the spectrum of Z'Z (see `closed_form`), from sums over rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fusehash.hashers.fusehash.fitted import Arrays, Choices, Embedding
from fusehash.numerics.arrays import Array, cast, host, namespace, solve_lower, zeros
from fusehash.numerics.linalg import leading_eigenpairs, ridge_solver


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
    """F'F of centered features, and for every ridge what whitens them: the same for all graphs over these features."""

    FF: Array
    spans: dict[str, slice]
    kept: dict[float, Whitened] = field(default_factory=dict, repr=False)

    def whitened(self, ridge: float) -> Whitened:
        if ridge not in self.kept:
            factors = {name: ridge_solver(self.FF[span, span], ridge) for name, span in self.spans.items()}
            Q = zeros(self.FF.shape, self.FF)
            for i, (a, left) in enumerate(self.spans.items()):
                for b, right in list(self.spans.items())[i:]:
                    half = solve_lower(factors[a], self.FF[left, right])
                    Q[left, right] = solve_lower(factors[b], half.T).T
                    Q[right, left] = Q[left, right].T
            self.kept[ridge] = Whitened(factors, Q)
        return self.kept[ridge]


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
