"""Choose the settings of the closed form on held-out training rows, without labels.

Two things can be measured on held-out pairs without knowing any class, both across views and by Hamming distance:

    pair AUC     the mean normalized rank of the true partner: are the views aligned?
    neighbors    MAP@50 of finding items that are near in every view at once, from each view among the codes of each
                 other view and among the fused codes: do neighborhoods survive? (Pair AUC undervalues the graph.)

The score is log(pair AUC - 1/2) + log(neighbors). Over seven data sets and 52 random settings each, its pick lost
.010 MAP on average against the best of 13 settings, and pair AUC alone .0125 (docs/study.md).

The search changes one setting at a time, over a few values, and keeps a change only if it exceeds the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.evaluation import Relevance, average_precision, pair_auc
from fusehash.hashers.fusehash.closed_form import InMemory, Preparations, Rng, learn_means, solve
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Fitted, GraphMap, RowMaps
from fusehash.numerics.anchors import neighbor_graph, squared_distances
from fusehash.numerics.arrays import Array, host, is_accelerated, load_linear_algebra, take_rows
from fusehash.numerics.features import FeatureMap
from fusehash.numerics.parallel import map_blocks, n_cores
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress
from fusehash.streams.row_passes import RowPasses

MIN_TUNING_ROWS, TUNING_ROWS = 40, 1600
HELD_OUT = 0.3  # share of the tuning rows
N_SPLITS = 2
TRIAL_ANCHORS, TRIAL_BITS, TRIAL_ROTATION_STEPS = 160, 64, 15
MIN_GAIN = 0.06  # a change must raise the score by this much; smaller gains are noise
# With more rows per feature than this, training rows are as informative as held-out rows.
MIN_ROWS_PER_FEATURE = 20
MANY_CORES = 8  # with this many, all remaining steps are tried at once
DEVICE_TRIALS = 4  # trials at once on a device; the host part of one overlaps with the device part of another

GRID: dict[str, list[dict[str, Any]]] = {
    "kernel_width": [{"kernel_width": w} for w in (0.5, 2.0)],
    "feature_map": [{"feature_map": "linear"}],
    "ridge": [{"ridge": r, "hash_ridge": r / 10} for r in (0.003, 0.01, 0.1, 0.3)],
    "graph_weight": [
        {"graph_weight": 0.5, "latent_weight": 1.0},
        {"graph_weight": 1.0, "latent_weight": 0.0},
        {"graph_weight": 2.0, "latent_weight": 1.0},
    ],
    "view_weights": [],  # one view at a time with double weight; see `candidates`
    "spectral_power": [{"spectral_power": p} for p in (1.5, 3.0)],
}


@dataclass
class Trial:
    """Settings and their score."""

    choices: Choices
    score: float
    pair_auc: float
    neighbors: float
    fitted: Fitted = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {**self.choices.as_dict(), "score": self.score, "pair_auc": self.pair_auc, "neighbors": self.neighbors}


def tune(
    data: RowPasses, preparations: Preparations, start: Choices, free: set[str], n_bits: int, rng: Rng, report: Progress
) -> tuple[Choices, dict[str, Any], dict[str, float]]:
    """Improve one free setting at a time; returns the choices, what was tried, and the weight of each view in a fusion.

    The weights are {} if the training rows themselves can give them (`training_fusion_weights`). Most steps change
    nothing. With enough cores, all remaining steps are tried from the current settings at once, and the steps after a
    change again; the result is the same.
    """
    rows = data.views.complete_rows()
    kinds = {name: preparation.kind for name, preparation in preparations.items()}
    untuned = {"chosen": start.as_dict(), "views": kinds, "tuned": [], "rows": 0, "trials": []}
    if len(rows) < MIN_TUNING_ROWS:
        note = f"only {len(rows)} rows are present in every view; nothing was tuned"
        return start, {**untuned, "note": note}, dict.fromkeys(data.names, 1.0)
    width = sum(preparation.width for preparation in preparations.values())
    # The kernel width does not matter to the linear map.
    steps = [name for name in GRID if name in free and (name != "kernel_width" or start.feature_map != "linear")]
    if not steps and len(rows) >= MIN_ROWS_PER_FEATURE * width:
        return start, {**untuned, "note": "every setting was given"}, {}
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    arrays = {name: preparations[name](data.take(name, rows)) for name in data.names}
    load_linear_algebra(data.like)
    n_threads = DEVICE_TRIALS if is_accelerated(data.like) else data.n_threads
    splits = list(map_blocks(partial(HeldOut, preparations, arrays, n_bits), rng.spawn(N_SPLITS), n_threads))
    best = mean_trial(list(map_blocks(run_trial, [(split, start) for split in splits], n_threads)))
    trials = [best]
    ahead = len(steps) if (n_threads or n_cores()) >= MANY_CORES else 1
    n_done = 0
    while n_done < len(steps):
        batch = steps[n_done : n_done + ahead]
        report(n_done + 1, len(steps), f"tuning {', '.join(batch)}")
        grids = [candidates(best.choices, name, free, len(arrays)) for name in batch]
        jobs = [(split, choices) for grid in grids for choices in grid for split in splits]
        results = iter(list(map_blocks(run_trial, jobs, n_threads)))
        before = best
        for grid in grids:
            n_done += 1
            for _ in grid:
                trials.append(mean_trial([next(results) for _ in splits]))
                if trials[-1].score > best.score + MIN_GAIN:
                    best = trials[-1]
            if best is not before:
                break
    tuned = {"chosen": best.choices.as_dict(), "views": kinds, "tuned": sorted(free), "rows": len(rows)}
    return (
        best.choices,
        {**tuned, "trials": [trial.as_dict() for trial in trials]},
        fusion_weights(best.fitted, splits[-1].held),
    )


def candidates(current: Choices, name: str, free: set[str], n_views: int) -> list[Choices]:
    """The current settings with other values of one of them."""
    changes = GRID[name]
    if name == "view_weights" and n_views > 1:
        changes = [{name: tuple(2.0 if i == j else 1.0 for j in range(n_views))} for i in range(n_views)]
    if name == "kernel_width" and current.feature_map == "linear":
        changes = []
    tied = {"ridge": "hash_ridge", "graph_weight": "latent_weight"}.get(name)
    if tied is not None and tied not in free:  # the user fixed the companion
        changes = [{key: value for key, value in change.items() if key != tied} for change in changes]
    return [replace(current, **change) for change in changes]


class HeldOut:
    """One split of the tuning rows into kept and held-out rows, and which held-out rows are near each other."""

    def __init__(self, preparations: Preparations, arrays: Arrays, n_bits: int, rng: Rng) -> None:
        self.preparations, self.n_bits = preparations, min(n_bits, TRIAL_BITS)
        n = len(next(iter(arrays.values())))
        order = rng.permutation(n)
        held, kept = order[: int(HELD_OUT * n)], order[int(HELD_OUT * n) :]
        self.kept = {name: take_rows(X, kept) for name, X in arrays.items()}
        self.held = {name: take_rows(X, held) for name, X in arrays.items()}
        rows = rng.choice(len(kept), min(TRIAL_ANCHORS, len(kept) // 2), replace=False)
        self.anchors = {name: take_rows(X, rows) for name, X in self.kept.items()}
        self.seed = int(rng.integers(2**31))
        self.near = NearItems([host(X) for X in self.held.values()])
        self.n_neighbors = max(min(45, len(rows) // 10), 1)
        self.raw_graphs = [neighbor_graph(X, self.anchors[name], self.n_neighbors) for name, X in self.kept.items()]
        self.row_maps: dict[tuple[str, float], RowMaps] = {}  # by feature map and kernel width, for further trials


def run_trial(job: tuple[HeldOut, Choices]) -> Trial:
    """Fit on the kept rows, score on the held-out ones."""
    split, choices = job
    data, rng = InMemory(split.kept), np.random.default_rng(split.seed)  # equal random choices in every trial
    kind = choices.feature_map, choices.kernel_width
    if kind not in split.row_maps:
        feature_maps = {
            name: FeatureMap.learn(split.preparations[name], X, *kind, TRIAL_ANCHORS, rng)
            for name, X in split.kept.items()
        }
        maps = RowMaps(feature_maps, None, n_rows=data.n_rows, is_prepared=True, raw_graphs=split.raw_graphs)
        split.row_maps.setdefault(kind, replace(maps, means=learn_means(data, maps)))
    graph = GraphMap.over(split.anchors, split.n_neighbors, choices) if choices.graph_weight else None
    maps = replace(split.row_maps[kind], graph=graph, kept_graphs={})
    rng, n_bits = np.random.default_rng(split.seed), split.n_bits
    fitted, _, _ = solve(data, data, maps, choices, n_bits, n_bits, TRIAL_ROTATION_STEPS, (), rng)
    codes = {name: bits.pack(host(fitted.project(X, name))) for name, X in split.held.items()}
    directions = list(permutations(codes, 2)) or [(name, name) for name in codes]
    auc = float(np.mean([pair_auc(codes[a], codes[b]) for a, b in directions] if len(codes) > 1 else [1.0]))
    # Both kinds of search count: for items seen in one view, and for items seen in all (fused).
    fused = bits.pack(host(fitted.project_complete(split.held)))
    searches = [(codes[a], codes[b]) for a, b in directions] + [(query, fused) for query in codes.values()]
    precisions = []
    for query, database in searches:
        precisions.append(average_precision(query, database, split.near, k=min(50, len(fused))).mean())
    neighbors = float(np.mean(precisions))
    score = np.log(max(auc - 0.5, 1e-3)) + np.log(max(neighbors, 1e-3))
    return Trial(choices, float(score), auc, neighbors, fitted)


def mean_trial(parts: list[Trial]) -> Trial:
    """One trial from the same settings on several splits."""
    score, auc, neighbors = np.mean([(part.score, part.pair_auc, part.neighbors) for part in parts], axis=0)
    return Trial(parts[0].choices, float(score), float(auc), float(neighbors), parts[-1].fitted)


class NearItems(Relevance):
    """Relevant are the few percent of items with the best product of ranks over the views, except the item itself."""

    def __init__(self, arrays: list[Array], share: float = 0.03) -> None:
        n = len(arrays[0])
        super().__init__(n, n)
        total = np.zeros((n, n))
        for X in arrays:
            ranks = np.argsort(np.argsort(squared_distances(X, X), axis=1), axis=1)
            total += np.log((ranks + 1.0) / n)
        np.fill_diagonal(total, np.inf)
        count = min(int(share * n) + 1, n - 1)
        self.is_near = total <= np.partition(total, count - 1, axis=1)[:, count - 1 : count]

    def hits(self, block: slice) -> NDArray[np.uint8]:
        return self.is_near[block].view(np.uint8)

    grades = hits


def fusion_weights(fitted: Fitted, prepared: Arrays) -> dict[str, float]:
    """Weights of the views in a fusion: least squares of the codes on the projections, scaled to a mean of 1."""
    B = host(signs_of(fitted.project_complete(prepared)))
    P = np.stack([host(fitted.project(X, name)).ravel() for name, X in prepared.items()], axis=1)
    solution = np.linalg.solve(P.T @ P + 1e-12 * np.trace(P.T @ P) * np.eye(P.shape[1]), P.T @ B.ravel())
    clipped = np.maximum(solution, 0.05 * max(float(solution.max()), 1e-9))
    return dict(zip(prepared, (float(a) for a in clipped / clipped.mean()), strict=True))


def training_fusion_weights(fitted: Fitted, data: RowPasses, rng: Rng) -> dict[str, float]:
    """`fusion_weights` on training rows: for fits with so many rows that held-out rows say no more."""
    rows = data.views.complete_rows()
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    return fusion_weights(fitted, {name: fitted.maps[name].preparation(data.take(name, rows)) for name in data.names})
