"""Choosing the settings of the closed form on held-out training rows, without labels.

Two things can be checked on held-out pairs without knowing any class, both across views and by Hamming distance:

    pair AUC     the mean normalized rank of the true partner; sees whether the views are aligned
    neighbors   MAP@50 of finding items that are near in every view at once, from each view among the codes of each
                 other view and among the fused codes; sees whether neighborhoods survive, which pair AUC does not
                 (it undervalues the graph)

The score is log(pair AUC - 1/2) + log(neighbors). Over seven data sets and 52 random settings each its pick lost
.010 MAP on average against the best of 13 settings, pair AUC alone .0125 (docs/study.md).

The search is a walk: one setting at a time, over a few values, keeping a change only where it beats the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.hashers.fusehash.closed_form import ClosedForm
from fusehash.hashers.fusehash.fitted import Choices, Fitted, GraphMap
from fusehash.hashers.fusehash.rows import RowMaps
from fusehash.numerics.anchors import neighbor_graph, squared_distances
from fusehash.numerics.arrays import Array, cast, host, take_rows
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.numerics.parallel import map_blocks, n_cores
from fusehash.streams.row_passes import Block, RowPasses

TUNING_ROWS = 1600
HELD_OUT = 0.3
ANCHORS = 160
N_SPLITS = 2
BITS = 64
# A change must raise the score by this much; smaller gains are noise.
MARGIN = 0.06
MANY_CORES = 8

GRID: dict[str, list[dict[str, Any]]] = {
    "kernel_width": [{"kernel_width": w} for w in (0.5, 2.0)],
    "feature_map": [{"feature_map": "linear"}],
    "ridge": [{"ridge": r, "hash_ridge": r / 10} for r in (0.003, 0.01, 0.1, 0.3)],
    "graph_weight": [
        {"graph_weight": 0.5, "latent_weight": 1.0},
        {"graph_weight": 1.0, "latent_weight": 0.0},
        {"graph_weight": 2.0, "latent_weight": 1.0},
    ],
    "view_weights": [],  # one view at a time counted double; filled in for the views at hand
    "spectral_power": [{"spectral_power": p} for p in (1.5, 3.0)],
}


@dataclass
class Trial:
    """One setting and how it did."""

    choices: Choices
    score: float
    pair_auc: float
    neighbors: float
    fitted: Fitted | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self.choices)
        values["view_weights"] = list(self.choices.view_weights)
        return {**values, "score": self.score, "pair_auc": self.pair_auc, "neighbors": self.neighbors}


def build_graph(
    arrays: dict[str, Array], rows: NDArray[np.intp], n_neighbors: int, choices: Choices
) -> GraphMap | None:
    """The graph map with the given rows as anchors (all present)."""
    if choices.graph_weight == 0.0:
        return None
    has = np.ones(len(rows), dtype=bool)
    return GraphMap(
        anchors={name: take_rows(X, rows) for name, X in arrays.items()},
        has_anchor=dict.fromkeys(arrays, has),
        n_neighbors=n_neighbors,
        fusion=choices.fusion,
        weights=list(choices.view_weights or (1.0,) * len(arrays)),
    )


class PreparedRows(RowPasses):
    """Passes over rows that are prepared, in memory and present in every view; trials run in parallel, not blocks."""

    def __init__(self, arrays: dict[str, Array], block_rows: int = 2048) -> None:
        self.arrays, self.block_rows, self.n_threads = arrays, block_rows, 1
        self.like = next(iter(arrays.values()))

    @property
    def n_rows(self) -> int:
        return len(self.like)

    @property
    def n_features(self) -> dict[str, int]:
        return {name: X.shape[1] for name, X in self.arrays.items()}

    def blocks(self, size: int) -> list[slice]:
        return [slice(i, min(i + self.block_rows, self.n_rows)) for i in range(0, self.n_rows, self.block_rows)]

    def block(self, rows: slice) -> Block:
        return Block(rows, {name: X[rows] for name, X in self.arrays.items()}, dict.fromkeys(self.arrays))


class Split:
    """One cut of the tuning rows into kept and held-out, and what is near among the held-out."""

    def __init__(
        self, preparations: dict[str, Preparation], arrays: dict[str, Array], n_bits: int, rng: np.random.Generator
    ) -> None:
        self.preparations = preparations
        self.n_bits = min(n_bits, BITS)
        n = len(next(iter(arrays.values())))
        order = rng.permutation(n)
        held, kept = order[: int(HELD_OUT * n)], order[int(HELD_OUT * n) :]
        self.kept = {name: take_rows(X, kept) for name, X in arrays.items()}
        self.held = {name: take_rows(X, held) for name, X in arrays.items()}
        self.anchor_rows = rng.choice(len(kept), min(ANCHORS, len(kept) // 2), replace=False)
        self.seed = int(rng.integers(2**31))
        self.near = near_in_every_view([host(X) for X in self.held.values()])
        self.n_neighbors = max(min(45, len(self.anchor_rows) // 10), 1)
        self.known: dict[tuple[str, float], RowMaps] = {}  # by feature map and width: what can be used again
        self.raw_graphs = [
            neighbor_graph(X, take_rows(X, self.anchor_rows), self.n_neighbors) for X in self.kept.values()
        ]

    def run(self, choices: Choices) -> Trial:
        """Fit on the kept rows, score on the held-out ones."""
        kind = choices.feature_map, choices.kernel_width
        data = PreparedRows(self.kept)
        rows = self.known.get(kind)
        if rows is None:
            maps = self.learn_maps(choices)
            rows = RowMaps(maps, None, data.n_rows, is_prepared=True, raw_graphs=self.raw_graphs)
        graph = build_graph(self.kept, self.anchor_rows, self.n_neighbors, choices)
        form = ClosedForm(data, rows.maps, graph, choices, rows)
        fitted, _, _ = form.fit(self.n_bits, self.n_bits, np.random.default_rng(self.seed), n_rotation_steps=15)
        self.known.setdefault(kind, form.rows.with_graph(None))
        pair_auc, neighbors_map = self.measure(fitted)
        score = np.log(max(pair_auc - 0.5, 1e-3)) + np.log(max(neighbors_map, 1e-3))
        return Trial(choices, float(score), pair_auc, neighbors_map, fitted)

    def learn_maps(self, choices: Choices) -> dict[str, FeatureMap]:
        rng = np.random.default_rng(self.seed)  # the same random choices for every trial
        kind, width = choices.feature_map, choices.kernel_width
        return {
            name: FeatureMap.learn(self.preparations[name], X, kind, width, ANCHORS, rng)
            for name, X in self.kept.items()
        }

    def project_held(self, fitted: Fitted, name: str) -> NDArray[np.float64]:
        F = fitted.maps[name].of_prepared(self.held[name]) - fitted.means[name]
        return host(cast(F, "float64") @ fitted.weights[name])

    def measure(self, fitted: Fitted) -> tuple[float, float]:
        from fusehash.evaluation import average_precision, pair_auc

        codes = {name: bits.pack(self.project_held(fitted, name)) for name in self.held}
        directions = list(permutations(codes, 2)) or [(name, name) for name in codes]
        alignment = [pair_auc(codes[a], codes[b]) for a, b in directions] if len(codes) > 1 else [1.0]
        k = min(50, len(self.near))
        neighbors = [average_precision(codes[a], codes[b], self.near, k=k).mean() for a, b in directions]
        # What is searched may be items seen in one view or in all; a setting must not serve one at the other's cost.
        fused = bits.pack(host(fitted.project_complete(self.held)))
        neighbors += [average_precision(query, fused, self.near, k=k).mean() for query in codes.values()]
        return float(np.mean(alignment)), float(np.mean(neighbors))

    def fusion_weights(self, trial: Trial) -> dict[str, float]:
        """How much each view counts in a fusion: least squares of held-out codes on the views' projections."""
        fitted = trial.fitted
        assert fitted is not None
        B = np.where(host(fitted.project_complete(self.held)) > 0.0, 1.0, -1.0)
        return fusion_weights({name: self.project_held(fitted, name) for name in self.held}, B)


class Tuner:
    """A walk over the settings; every trial is the mean over a few splits."""

    def __init__(
        self,
        preparations: dict[str, Preparation],
        arrays: dict[str, Array],
        n_bits: int,
        rng: np.random.Generator,
        n_threads: int | None = None,
    ) -> None:
        self.n_views, self.n_threads = len(arrays), n_threads
        seeds = rng.spawn(N_SPLITS)
        self.splits = list(map_blocks(lambda own: Split(preparations, arrays, n_bits, own), seeds, n_threads))
        self.trials: list[Trial] = []

    def run(self, grid: list[Choices]) -> list[Trial]:
        """The mean trial of every setting, in order."""
        jobs = [(split, choices) for choices in grid for split in self.splits]
        results = map_blocks(lambda job: job[0].run(job[1]), jobs, self.n_threads)
        return [mean_trial([next(results) for _ in self.splits]) for _ in grid]

    def walk(self, start: Choices, free: set[str], report: Callable[[int, int, str], None]) -> Trial:
        """From the start, improve one free setting at a time.

        Most steps change nothing. Where there are cores enough, the steps that are left are therefore all tried from
        the present setting at once, and those after a change once more; the walk is the same.
        """
        best = self.run([start])[0]
        self.trials.append(best)
        steps = tunable(start, free)
        ahead = len(steps) if (self.n_threads or n_cores()) >= MANY_CORES else 1
        number = 0
        while number < len(steps):
            batch = steps[number : number + ahead]
            grids = [self.candidates(best.choices, name, free) for name in batch]
            report(number + 1, len(steps), f"tuning {', '.join(batch)}")
            tried = iter(self.run([choices for grid in grids for choices in grid]))
            before = best
            for grid in grids:
                number += 1
                for trial in [next(tried) for _ in grid]:
                    self.trials.append(trial)
                    if trial.score > best.score + MARGIN:
                        best = trial
                if best is not before:
                    break
        return best

    def candidates(self, now: Choices, name: str, free: set[str]) -> list[Choices]:
        changes: list[dict[str, Any]] = GRID[name]
        if name == "view_weights" and self.n_views > 1:
            favored = range(self.n_views)
            changes = [{name: tuple(2.0 if i == j else 1.0 for j in range(self.n_views))} for i in favored]
        if name == "kernel_width" and now.feature_map == "linear":
            changes = []
        tied = {"ridge": "hash_ridge", "graph_weight": "latent_weight"}.get(name)
        if tied is not None and tied not in free:  # the user fixed the companion
            changes = [{key: value for key, value in change.items() if key != tied} for change in changes]
        return [replace(now, **change) for change in changes]

    def fusion_weights(self, trial: Trial) -> dict[str, float]:
        """How much each view counts in a fusion."""
        return self.splits[-1].fusion_weights(trial)


def tunable(start: Choices, free: set[str]) -> list[str]:
    """The settings that a walk from here would try to change."""
    return [name for name in GRID if name in free and (name != "kernel_width" or start.feature_map != "linear")]


def fusion_weights(projections: dict[str, NDArray[Any]], B: NDArray[Any]) -> dict[str, float]:
    """Least squares of codes on the views' projections, never below a twentieth of the largest; their mean is 1."""
    P = np.stack([projected.ravel() for projected in projections.values()], axis=1)
    solution = np.linalg.solve(P.T @ P + 1e-12 * np.trace(P.T @ P) * np.eye(P.shape[1]), P.T @ B.ravel())
    clipped = np.maximum(solution, 0.05 * max(float(solution.max()), 1e-9))
    return dict(zip(projections, (float(a) for a in clipped / clipped.mean()), strict=True))


def mean_trial(parts: list[Trial]) -> Trial:
    """One trial from the same settings on several splits."""
    score, auc, neighbors = np.mean([(part.score, part.pair_auc, part.neighbors) for part in parts], axis=0)
    return Trial(parts[0].choices, float(score), float(auc), float(neighbors), parts[-1].fitted)


def near_in_every_view(arrays: list[Array], share: float = 0.03) -> NDArray[np.bool_]:
    """(n, n): the few per cent of items with the best product of ranks over the views; an item is not its own."""
    n = len(arrays[0])
    total = np.zeros((n, n))
    for X in arrays:
        ranks = np.argsort(np.argsort(squared_distances(X, X), axis=1), axis=1)
        total += np.log((ranks + 1.0) / n)
    np.fill_diagonal(total, np.inf)
    count = min(int(share * n) + 1, n - 1)
    limit = np.partition(total, count - 1, axis=1)[:, count - 1 : count]
    return total <= limit
