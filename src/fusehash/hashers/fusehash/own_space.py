"""target="pairs" on joint embeddings: codes of what pairs teach, and of the space that the views share already.

With F_m the centered features of view m, W_m the regression on the codes of pairs and U_m the regression of the
centered unit rows (the embeddings themselves) on the same features,

    P_m = [ sqrt(t) F_m W_m / s_W,  sqrt(1 - t) F_m U_m / s_U ],    s: root mean square length

is one vector per row whose products add both similarities. P of all views is balanced and put into bits as in
target="floats" (see `floats`): A_m from the covariances of P_m, and a random tight frame of half as many directions as
bits. P A F is linear in the features, so that a model has nothing that others have not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.hashers.fusehash.closed_form import BLOCK_ROWS
from fusehash.hashers.fusehash.fitted import Embedding, Fitted, RowMaps
from fusehash.hashers.fusehash.floats import balanced, tight_frame
from fusehash.numerics.arrays import Array, cast, convert, host, namespace, to_device_of, top_eigh, zeros
from fusehash.numerics.features import unit_rows
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.streams.row_passes import Block, RowPasses, RowSums
from fusehash.views import Floats

Rng = np.random.Generator
PAIR_BITS = 256  # of the codes of pairs that W regresses on, whatever the final length
# Chosen by partner recall on held-out parts of the learned halves of four sets (docs/embeddings.md).
RIDGE = 0.01  # of U, relative to the mean diagonal of F'F; .001 was worse on all four sets
# t, what pairs teach: half of it all (.3 was worse on three sets, .7 on all), and in proportion less of few pairs. At
# 256 bits, .5 was best of six shares with 1,000 pairs (one set), .1 with 300 and .02 with 100 pairs (two sets each).
SHARE, ENOUGH_PAIRS = 0.5, 1000
BITS_PER_DIRECTION = 2  # 4 was worse on all at 256 bits, and on three at 128
MAX_WIDTH = 512  # of the embeddings in P; wider ones by their leading directions


def with_own_space(fitted: Fitted, sample: RowPasses, maps: RowMaps, n_bits: int, rng: Rng) -> Fitted:
    """The maps to `n_bits`, from those of the codes of pairs; `sample` has every view in every row."""
    maps = replace(maps, graph=None)
    sums = convert(dict(sample.total(partial(_moments, maps), BLOCK_ROWS)[1]), host)
    basis = _leading_directions(list(sums.values()))
    both = {name: _both(of_view, fitted.weights[name], basis) for name, of_view in sums.items()}
    covariances = {name: P.T @ sums[name]["FF"] @ P / sums[name]["count"] for name, P in both.items()}
    rank = min(max(n_bits // BITS_PER_DIRECTION, 1), min(C.shape[0] for C in covariances.values()))
    to_directions, _ = balanced(covariances, rank)
    frame = tight_frame(rank, n_bits, rng)
    weights = {name: both[name] @ (to_directions[name] @ frame) for name in both}
    code_map = Embedding(np.vstack(list(weights.values())), np.zeros((0, n_bits)))
    return replace(fitted, weights=weights, graph=None, code_map=code_map, softness=0.0, frame_rank=rank)


def codes_of_rows(fitted: Fitted, data: RowPasses, maps: RowMaps) -> bits.Codes:
    """Codes of all rows, from all views."""
    maps = replace(maps, graph=None, n_rows=data.n_rows, kept_features={}, kept_graphs={})
    code_map = convert(fitted.code_map, lambda part: to_device_of(part, data.like))
    per_row, _ = data.total(partial(_codes, maps, code_map), BLOCK_ROWS)
    assert per_row is not None
    return np.asarray(host(per_row[0]))


def _moments(maps: RowMaps, block: Block) -> tuple[None, RowSums]:
    """Sums of a block, by view: F'F, F'x, x'x, and those of F and x, with x the unit rows."""
    features = maps.features(block)
    sums, F_all = RowSums(), maps.exact(features.F)
    for name, span in maps.spans.items():
        F, X = F_all[:, span], unit_rows(cast(block.arrays[name], "float64"))
        xp = namespace(X)
        products = {"FF": F.T @ F, "FX": cast(F, "float64").T @ X, "XX": X.T @ X}
        sums[name] = RowSums({key: cast(value, "float64") for key, value in products.items()})
        sums[name].update(count=len(F), F=xp.sum(F, axis=0, dtype=xp.float64), X=xp.sum(X, axis=0))
    return None, sums


def _codes(maps: RowMaps, code_map: Embedding, block: Block) -> tuple[tuple[Array], RowSums]:
    F = cast(maps.features(block).F, "float64")
    return (bits.pack(code_map(F, zeros((len(F), 0), F))),), RowSums()


def _leading_directions(sums: list[dict[str, Any]]) -> Floats | None:
    """The principal directions of the covariances of unit rows together, (d, MAX_WIDTH); None if all are kept."""
    if len(sums[0]["X"]) <= MAX_WIDTH:
        return None
    C = np.sum([one["XX"] - np.outer(one["X"], one["X"]) / one["count"] for one in sums], axis=0)
    return np.asarray(top_eigh(C, MAX_WIDTH)[1])


def _both(sums: dict[str, Any], pair_weights: Floats, basis: Floats | None) -> Floats:
    """From the features of a view to P."""
    FF = sums["FF"]
    FX = sums["FX"] - np.outer(sums["F"], sums["X"]) / sums["count"]
    U = solve_ridge(ridge_solver(FF, RIDGE), FX if basis is None else FX @ basis)
    share = SHARE * min(sums["count"] / ENOUGH_PAIRS, 1.0)
    parts = [(share, np.asarray(pair_weights, np.float64)), (1.0 - share, U)]
    squared = [max(float(np.einsum("ij,ij->", W, FF @ W)) / sums["count"], 1e-300) for _, W in parts]
    return np.hstack([W * np.sqrt(part / total) for (part, W), total in zip(parts, squared, strict=True)])
