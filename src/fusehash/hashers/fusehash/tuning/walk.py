"""The walk over settings: one setting at a time, over a few values.

A change is kept only if it exceeds what noise, or the difference between partners and classes, explains (`MIN_GAIN`).
All trials use the same splits of the rows, so that most of what the draw of a split does cancels from a gain. Another
map changes codes most: a gain of one that is too near to its margin to tell is measured on more splits. The last step
is a linear map with a strong ridge. A trial that is hopeless on the first split is not run on others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fusehash.hashers.fusehash.fitted import Choices
from fusehash.hashers.fusehash.tuning.agreement import MAX_FALL
from fusehash.hashers.fusehash.tuning.trials import Trial, mean_trial

# A gain of another map within CLOSE of its margin on the first splits is measured on the others too. On emoji, where
# the right map gains .05 and needs .03, and a wrong one .11 and needs .15, gains on one split spread by .02 to .03.
N_SPLITS, MAX_SPLITS, CLOSE = 2, 4, 0.04
# A trial that misses its margin by more than this on the first split is not run on the second. Gains on the
# two splits of a few development sets differed by .03 to .04, judged by eye.
HOPELESS = 0.05

Change = dict[str, Any]
GRID: dict[str, list[Change]] = {
    "kernel_width": [{"kernel_width": w} for w in (0.5, 2.0)],
    "feature_map": [{"feature_map": "linear", "ridge": 0.1, "hash_ridge": 0.01}],
    "ridge": [{"ridge": r, "hash_ridge": r / 10} for r in (0.003, 0.01, 0.1, 0.3)],
    "graph_weight": [],  # none, a quarter, double, and without the latent graph; see `Walk`
    "view_weights": [],  # one view at a time with double weight; see `Walk`
    "spectral_power": [{"spectral_power": p} for p in (1.0, 1.5, 3.0)],
}
# The last step: maps that cannot collapse. On emoji, with 1,138 rows, they gain .05 MAP. They meet RBF maps of few
# anchors here; against those of many, their score gains less than noise there.
LINEAR = "strong ridge"
MAP_STEPS = ("feature_map", LINEAR)
LINEAR_GRID: list[Change] = [{"feature_map": "linear", "ridge": r, "hash_ridge": r / 10} for r in (1.0, 3.0)]
# What a change of a step must add to the score. On data with classes, a weaker graph and a linear map find partners
# better without finding classes better; a heavier view helps its own searches at the expense of fused codes.
MIN_GAIN = dict.fromkeys(GRID, 0.06) | {
    "kernel_width": 0.045,
    "feature_map": 0.15,
    "graph_weight": 0.15,
    "view_weights": 0.15,
    LINEAR: 0.03,
}


def steps_of(start: Choices, free: set[str]) -> list[str]:
    """The free settings that matter: the width not to linear maps, most others not to canonical hash functions."""
    idle = {"kernel_width"} if start.feature_map == "linear" else set()
    idle |= {"graph_weight", "view_weights"} if start.is_canonical else set()
    steps = [name for name in GRID if name in free - idle]
    return [*steps, LINEAR] if "feature_map" in steps else steps


class Walk:
    """What is tried next, the best settings so far, and all that were tried."""

    def __init__(self, start: Choices, steps: list[str], free: set[str], n_views: int, *, ahead: bool) -> None:
        self._free, self._n_views, self._ahead = free, n_views, ahead
        self._start = self._best = start
        self.steps = ["start", *steps]
        self.n_done = 0
        self._tried: dict[Choices, list[Trial]] = {}  # one per split, in the order of the splits

    @property
    def best(self) -> Trial:
        return mean_trial(self._tried[self._best])

    @property
    def trials(self) -> list[Trial]:
        return [mean_trial(parts) for parts in self._tried.values()]

    def next_grids(self) -> dict[str, list[Choices]]:
        """The candidates of the next step, or of all remaining steps on many cores; {} at the end."""
        if self.n_done == 0:
            return {"start": [self._best]}
        names = self.steps[self.n_done :] if self._ahead else self.steps[self.n_done : self.n_done + 1]
        return {name: self._candidates(name) for name in names}

    def is_hopeful(self, name: str, first: Trial) -> bool:
        """Whether a trial of a step does so well on the first split that it can be taken."""
        if self.n_done == 0:
            return True
        return first.score > self._tried[self._best][0].score + MIN_GAIN[name] - HOPELESS

    def add(self, firsts: list[Trial], others: list[Trial]) -> None:
        """Trials on the first split, and those on the next ones."""
        self._tried |= {trial.choices: [trial] for trial in firsts}
        self.extend(others)

    def extend(self, trials: list[Trial]) -> None:
        """Trials on further splits, those of one choice in the order of the splits."""
        for trial in trials:
            self._tried[trial.choices].append(trial)

    def close(self, grids: dict[str, list[Choices]]) -> list[Choices]:
        """Other maps that were tried on `N_SPLITS` splits and gain about their margin, and the best if it was too."""
        steps = [(name, choices) for name, grid in grids.items() for choices in grid] if self.n_done else []
        near = [
            choices
            for name, choices in steps
            if name in MAP_STEPS
            and len(self._tried[choices]) == N_SPLITS
            and abs(self._gain(choices) - MIN_GAIN[name]) < CLOSE
        ]
        return [*([self._best] if near and len(self._tried[self._best]) == N_SPLITS else []), *dict.fromkeys(near)]

    def decide(self, grids: dict[str, list[Choices]]) -> None:
        """Take the best of the first step that gains; the steps after it come again.

        Only trials on at least `N_SPLITS` splits can be taken, and scores of the same splits are compared.
        """
        if self.n_done == 0:
            self.n_done = 1
            return
        before = self._best
        for name, grid in grids.items():
            self.n_done += 1
            for choices in grid:
                least = MIN_GAIN[name] if self._best is before else 0.0
                if len(self._tried[choices]) >= N_SPLITS and self._gain(choices) > least:
                    self._best = choices
            if self._best is not before:
                return

    def with_more_graph(self, weight: float) -> Choices | None:
        """The best settings with this weight of the graph; None if they have as much, or if the walk changed it."""
        current = self._best.graph_weight
        is_start = "graph_weight" in self._free and self._best.has_graph and current == self._start.graph_weight
        return replace(self._best, graph_weight=weight) if is_start and current < weight else None

    def raised(self, more: Choices) -> Trial:
        """The trial with more of the graph, or that of the best settings if the score falls too far."""
        return mean_trial(self._tried[more if self._gain(more) > -MAX_FALL else self._best])

    def _gain(self, choices: Choices) -> float:
        """How much higher choices score than the best so far, on the splits on which both were tried."""
        pairs = zip(self._tried[choices], self._tried[self._best], strict=False)
        return float(np.mean([new.score - old.score for new, old in pairs]))

    def _candidates(self, name: str) -> list[Choices]:
        """The best settings with other values of one of them."""
        current, changes = self._best, GRID.get(name, LINEAR_GRID)
        if name == "view_weights" and self._n_views > 1:
            count = self._n_views
            changes = [{name: tuple(2.0 if i == j else 1.0 for j in range(count))} for i in range(count)]
        if name == "graph_weight":
            without = {"graph_weight": 0.0, "latent_weight": 0.0}
            scaled = [{"graph_weight": current.graph_weight * factor} for factor in (0.25, 2.0)]
            changes = [without, *scaled, {"graph_weight": current.graph_weight, "latent_weight": 0.0}]
        if name == "kernel_width" and current.feature_map == "linear":
            changes = []
        changed = (changed_choices(current, change, self._free) for change in changes)
        return list(dict.fromkeys(choices for choices in changed if choices is not None))


def changed_choices(current: Choices, change: Change, free: set[str]) -> Choices | None:
    """The current settings with those of a change that are free; None if that changes nothing or its first is fixed."""
    if next(iter(change)) not in free:
        return None
    choices = replace(current, **{name: value for name, value in change.items() if name in free})
    return None if choices == current else choices
