"""Choose the settings of the closed form on held-out training rows, without labels.

Two things can be measured on held-out pairs without knowing any class, both across views:

    partners     mean of -log(r / n), r the rank of the true partner among n: are the views aligned? The query is real
                 and the database binary, which is less noisy than two codes.
    neighbors    MAP@50, by Hamming distance, of finding items that are near in every view at once, from each view among
                 the codes of each other view and among the fused codes: do neighborhoods survive?

The score is log(partners) + log(neighbors) + log(share of live bits). The last sees a collapse: bits that are nearly
constant for held-out rows count as missing, and codes that are nearly all the same score as nothing.

The weight of the graph starts from how far the views agree on neighborhoods (`graph_agreement`): where they agree, the
pairs align the views without the help of a graph, which would blur them; where they do not, the graph of both is what
holds classes together. On 13 development sets this order was the same (docs/study.md).

The search changes one setting at a time, over a few values, and keeps a change only if it exceeds what noise, or the
difference between partners and classes, explains (`MIN_GAIN`). Last, if `feature_map` is free, it tries linear maps
with strong ridges, CCA and kernel CCA (no graph, all directions with equal weight, rotated by ITQ), so that what is
chosen never scores less than they do beyond noise. A trial that is hopeless on the first split is not run on others.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.errors import FusehashWarning
from fusehash.evaluation import Relevance, average_precision
from fusehash.hashers.fusehash.closed_form import InMemory, Preparations, Rng, exact, learn_means, solve
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Fitted, GraphMap, RowMaps
from fusehash.hashers.fusehash.spectrum import FeatureGram
from fusehash.numerics.anchors import neighbor_graph, squared_distances
from fusehash.numerics.arrays import Array, cast, convert, host, is_accelerated, load_linear_algebra, take_rows
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.numerics.parallel import map_blocks, n_cores
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats

MIN_TUNING_ROWS, TUNING_ROWS = 40, 1600
HELD_OUT = 0.3  # share of the tuning rows
N_SPLITS = 2
TRIAL_ANCHORS, TRIAL_BITS, TRIAL_ROTATION_STEPS = 160, 64, 15
# A trial that misses its margin by more than this on the first split is not run on the second. Gains on the
# two splits of a few development sets differed by .03 to .04, judged by eye.
HOPELESS = 0.05
NOTHING = 1e-3  # the least value of a measure; its logarithm is what a collapse scores
# A bit of held-out rows whose mean is beyond MAX_MEAN tells nothing apart. Codes collapse if no bit is left, or if the
# share of distinct codes among them is below MIN_DISTINCT of that among the rows that were learned from.
MAX_MEAN, MIN_DISTINCT = 0.8, 0.1
MIN_EVENNESS = 0.8  # of held-out codes relative to learned ones, below which `fit` warns
# With more rows per feature than this, training rows are as informative as held-out rows.
MIN_ROWS_PER_FEATURE = 20
# Views whose graphs correlate more than this need less of a graph, by the fourth power of the excess.
USUAL_AGREEMENT = 0.12
MANY_CORES = 8  # with this many, all remaining steps are tried at once
DEVICE_TRIALS = 4  # trials at once on a device; the host part of one overlaps with the device part of another

Change = dict[str, Any]
GRID: dict[str, list[Change]] = {
    "kernel_width": [{"kernel_width": w} for w in (0.5, 2.0)],
    "feature_map": [{"feature_map": "linear", "ridge": 0.1, "hash_ridge": 0.01}],
    "ridge": [{"ridge": r, "hash_ridge": r / 10} for r in (0.003, 0.01, 0.1, 0.3)],
    "graph_weight": [],  # none, a quarter, double, and without the latent graph; see `Walk`
    "view_weights": [],  # one view at a time with double weight; see `Walk`
    "spectral_power": [{"spectral_power": p} for p in (1.0, 1.5, 3.0)],
}
# What a change of a step must add to the score. On data with classes, a weaker graph and a linear map find partners
# better without finding classes better; a heavier view helps its own searches at the expense of fused codes.
MIN_GAIN = dict.fromkeys(GRID, 0.06) | {
    "kernel_width": 0.045,
    "feature_map": 0.15,
    "graph_weight": 0.15,
    "view_weights": 0.15,
}
# Settings that cannot collapse. One that scores higher than what the steps have chosen, beyond noise, is taken.
NOISE = 0.03
NO_GRAPH = {"graph_weight": 0.0, "latent_weight": 0.0, "spectral_power": 0.5}
REFERENCES: dict[str, Change] = {
    "linear, ridge 1": {"feature_map": "linear", "ridge": 1.0, "hash_ridge": 0.1},
    "linear, ridge 3": {"feature_map": "linear", "ridge": 3.0, "hash_ridge": 0.3},
    "CCA-ITQ": {"feature_map": "linear", **NO_GRAPH},
    "kernel CCA-ITQ": {"feature_map": "rbf", **NO_GRAPH},
}


@dataclass
class Trial:
    """Settings and how they did on held-out rows; `evenness` is that of held-out codes relative to learned ones."""

    choices: Choices
    score: float
    partners: float
    neighbors: float
    live_bits: float
    evenness: dict[str, float]
    fitted: Fitted = field(repr=False)
    splits: int = 1

    def as_dict(self) -> dict[str, Any]:
        measures = ("score", "partners", "neighbors", "live_bits", "splits")
        return {**self.choices.as_dict(), **{name: getattr(self, name) for name in measures}}


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
    arrays = {name: data.take(name, rows) for name in data.names}
    load_linear_algebra(data.like)
    n_threads = DEVICE_TRIALS if is_accelerated(data.like) else data.n_threads
    dtype = next(iter(preparations.values())).dtype
    splits = list(map_blocks(partial(HeldOut, kinds, dtype, arrays, n_bits), rng.spawn(N_SPLITS), n_threads))
    agreement = float(np.mean([split.agreement for split in splits]))
    if "graph_weight" in free:
        start = replace(start, graph_weight=min(1.0, (USUAL_AGREEMENT / max(agreement, 1e-9)) ** 4))
    walk = Walk(start, steps, free, len(arrays), ahead=(n_threads or n_cores()) >= MANY_CORES)
    while grids := walk.next_grids():
        report(walk.n_done, len(walk.steps) - 1, f"tuning {', '.join(grids)}")
        grid = [(name, choices) for name, candidates in grids.items() for choices in candidates]
        firsts = list(map_blocks(run_trial, [(splits[0], choices) for _, choices in grid], n_threads))
        names = (name for name, _ in grid)
        hopeful = [first.choices for name, first in zip(names, firsts, strict=True) if walk.is_hopeful(name, first)]
        others = list(map_blocks(run_trial, [(split, c) for c in hopeful for split in splits[1:]], n_threads))
        walk.decide(grids, firsts, others)
    tuned = {"chosen": walk.best.choices.as_dict(), "views": kinds, "tuned": sorted(free), "rows": len(rows)}
    return (
        walk.best.choices,
        {
            **tuned,
            "agreement": agreement,
            "evenness": walk.best.evenness,
            "trials": [trial.as_dict() for trial in walk.trials],
        },
        fusion_weights(walk.best.fitted, splits[-1].held),
    )


class Walk:
    """What is tried next, the best settings so far, and all that were tried."""

    def __init__(self, start: Choices, steps: list[str], free: set[str], n_views: int, *, ahead: bool) -> None:
        self._start, self._free, self._n_views, self._ahead = start, free, n_views, ahead
        self.steps = ["start", *steps, *(["references"] if steps else [])]
        self.n_done = 0
        self.trials: list[Trial] = []
        self._firsts: dict[Choices, float] = {}  # scores on the first split

    def next_grids(self) -> dict[str, list[Choices]]:
        """The candidates of the next step, or of all remaining steps on many cores; {} at the end."""
        if self.n_done == 0:
            return {"start": [self._start]}
        middle = self.steps[self.n_done : -1]
        names = middle if self._ahead and middle else self.steps[self.n_done : self.n_done + 1]
        return {name: self._candidates(name) for name in names}

    def is_hopeful(self, name: str, first: Trial) -> bool:
        """Whether a trial of a step does so well on the first split that it can be taken."""
        self._firsts[first.choices] = first.score
        if self.n_done == 0:
            return True
        return first.score > self._firsts[self.best.choices] + MIN_GAIN.get(name, NOISE) - HOPELESS

    def decide(self, grids: dict[str, list[Choices]], firsts: list[Trial], others: list[Trial]) -> None:
        """Take the best of the first step that gains; the steps after it come again."""
        by_choices: dict[Choices, list[Trial]] = {trial.choices: [trial] for trial in firsts}
        for trial in others:
            by_choices[trial.choices].append(trial)
        hopeful = {trial.choices for trial in others}
        tried = {choices: mean_trial(parts) for choices, parts in by_choices.items()}
        self.trials += tried.values()
        if self.n_done == 0:
            self.best = self.trials[0]
        before = self.best
        for name, grid in grids.items():
            self.n_done += 1
            for choices in grid:
                gain = tried[choices].score - self.best.score
                if choices in hopeful and gain > (MIN_GAIN.get(name, NOISE) if self.best is before else 0.0):
                    self.best = tried[choices]
            if self.best is not before:
                return

    def _candidates(self, name: str) -> list[Choices]:
        """The best settings with other values of one of them."""
        current, changes = self.best.choices, GRID.get(name, list(REFERENCES.values()))
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


class HeldOut:
    """One split of the tuning rows into kept and held-out rows, and which held-out rows are near each other.

    Preparations are learned from the kept rows, so that held-out rows are as new as rows after the fit.
    """

    def __init__(self, kinds: dict[str, str], dtype: str, arrays: Arrays, n_bits: int, rng: Rng) -> None:
        self.n_bits = min(n_bits, TRIAL_BITS)
        n = next(iter(arrays.values())).shape[0]
        order = rng.permutation(n)
        held, kept = order[: int(HELD_OUT * n)], order[int(HELD_OUT * n) :]
        raw = {name: take_rows(X, kept) for name, X in arrays.items()}
        self.preparations = {name: Preparation.learn(X, kinds[name], dtype) for name, X in raw.items()}
        self.kept = {name: self.preparations[name](X) for name, X in raw.items()}
        self.held = {name: self.preparations[name](take_rows(X, held)) for name, X in arrays.items()}
        rows = rng.choice(len(kept), min(TRIAL_ANCHORS, len(kept) // 2), replace=False)
        self.anchors = {name: take_rows(X, rows) for name, X in self.kept.items()}
        self.seed = int(rng.integers(2**31))
        self.near = NearItems(list(convert(self.held, host).values()))
        self.n_neighbors = max(min(45, len(rows) // 10), 1)
        self.raw_graphs = [neighbor_graph(X, self.anchors[name], self.n_neighbors) for name, X in self.kept.items()]
        self.held_graphs = [neighbor_graph(X, self.anchors[name], self.n_neighbors) for name, X in self.held.items()]
        self.agreement = graph_agreement([host(graph) for graph in self.held_graphs])
        # Of kept and of held-out rows, by feature map and kernel width: features are computed once for all trials.
        self.row_maps: dict[tuple[str, float], tuple[RowMaps, RowMaps, FeatureGram]] = {}


def graph_agreement(graphs: list[Floats]) -> float:
    """Mean correlation of the anchor graphs of two views, over pairs of views; 0 with one view."""
    centered = [graph - graph.mean(axis=0) for graph in graphs]
    lengths = [max(float(np.sqrt(np.sum(graph**2))), 1e-12) for graph in centered]
    pairs = list(combinations(range(len(graphs)), 2))
    products = [float(np.sum(centered[i] * centered[j])) / (lengths[i] * lengths[j]) for i, j in pairs]
    return float(np.mean(products)) if products else 0.0


def run_trial(job: tuple[HeldOut, Choices]) -> Trial:
    """Fit on the kept rows, score on the held-out ones."""
    split, choices = job
    data, new, rng = InMemory(split.kept), InMemory(split.held), np.random.default_rng(split.seed)  # equal every time
    kind = choices.feature_map, choices.kernel_width
    if kind not in split.row_maps:
        feature_maps = {
            name: FeatureMap.learn(split.preparations[name], X, *kind, TRIAL_ANCHORS, rng)
            for name, X in split.kept.items()
        }
        maps = RowMaps(feature_maps, None, n_rows=data.n_rows, is_prepared=True, raw_graphs=split.raw_graphs)
        maps = replace(maps, means=learn_means(data, maps))
        held_maps = replace(maps, n_rows=new.n_rows, raw_graphs=split.held_graphs, kept_features={})
        F = exact(maps.features(data.block).F)
        split.row_maps.setdefault(kind, (maps, held_maps, FeatureGram(cast(F.T @ F, "float64"), maps.spans)))
    graph = GraphMap.over(split.anchors, split.n_neighbors, choices) if choices.graph_weight else None
    maps, held_maps, gram = split.row_maps[kind]
    maps = replace(maps, graph=graph, kept_graphs={})
    rng, n_bits = np.random.default_rng(split.seed), split.n_bits
    fitted, _, _ = solve(data, data, maps, choices, n_bits, n_bits, TRIAL_ROTATION_STEPS, (), rng, gram=gram)
    held_maps = replace(held_maps, graph=fitted.graph, kept_graphs={})
    held = held_maps.features(new.block)
    projections = by_view(fitted, held.F, maps.spans)
    learned = {name: bits.pack(Y) for name, Y in by_view(fitted, maps.features(data.block).F, maps.spans).items()}
    codes = {name: bits.pack(Y) for name, Y in projections.items()}
    # Both kinds of search count: for items seen in one view, and for items seen in all (fused).
    fused = bits.pack(host(fitted.code_map(held.F, held_maps.graph_rows(held))))
    directions = list(permutations(codes, 2)) or [(name, name) for name in codes]
    partners = (
        float(np.mean([partner_rank(projections[a], codes[b]) for a, b in directions])) if len(codes) > 1 else 1.0
    )
    searches = [(codes[a], codes[b]) for a, b in directions] + [(query, fused) for query in codes.values()]
    precisions = []
    for query, database in searches:
        precisions.append(average_precision(query, database, split.near, k=min(50, len(fused))).mean())
    neighbors = float(np.mean(precisions))
    live_bits = min(live_share(codes[name], learned[name], n_bits) for name in codes)
    evenness = {
        name: evenness_of(codes[name], n_bits) / max(evenness_of(learned[name], n_bits), 1e-9) for name in codes
    }
    score = float(sum(np.log(max(measure, NOTHING)) for measure in (partners, neighbors, live_bits)))
    return Trial(choices, score, partners, neighbors, live_bits, evenness, fitted)


def by_view(fitted: Fitted, F: Array, spans: dict[str, slice]) -> dict[str, Floats]:
    """Real codes of rows from each view alone, from the features of all views."""
    return {name: host(cast(F[:, span], "float64") @ fitted.weights[name]) for name, span in spans.items()}


def partner_rank(queries: Floats, codes: bits.Codes) -> float:
    """Mean of -log(r / n), with r the rank of a row's partner for a real-valued query over binary codes."""
    scores = queries @ bits.unpack(codes, queries.shape[1]).T
    own = np.diagonal(scores)[:, None]
    ranks = np.sum(scores > own, axis=1) + 0.5 * np.sum(scores == own, axis=1)
    return float(-np.mean(np.log(ranks / len(ranks))))


def evenness_of(codes: bits.Codes, n_bits: int) -> float:
    """Mean variance of the bits: 1 if every bit divides the rows into halves, 0 if all codes are the same."""
    return float(np.mean(1.0 - np.mean(bits.unpack(codes, n_bits), axis=0, dtype=np.float64) ** 2))


def warn_if_uneven(owner: str, evenness: dict[str, float]) -> None:
    """Warn if rows that were held out get much less even codes than those that were learned from."""
    view = min(evenness, key=lambda name: evenness[name], default=None)
    if view is not None and evenness[view] < MIN_EVENNESS:
        warnings.warn(
            f"{owner} gives new rows of view '{view}' much less even codes than training rows "
            f"({evenness[view]:.0%} of their variance), so that they are hard to tell apart. "
            "Train on more rows, or reduce the features of that view.",
            FusehashWarning,
            stacklevel=4,
        )


def live_share(codes: bits.Codes, learned: bits.Codes, n_bits: int) -> float:
    """Share of the bits that tell held-out rows apart, relative to those that do for learned rows; 0 is a collapse."""

    def live(codes: bits.Codes) -> float:
        means = np.mean(bits.unpack(codes, n_bits), axis=0, dtype=np.float64)
        return float(np.mean(np.abs(means) <= MAX_MEAN))

    def distinct(codes: bits.Codes) -> float:
        return len(np.unique(codes, axis=0)) / len(codes)

    if distinct(codes) < MIN_DISTINCT * distinct(learned):
        return 0.0
    return min(live(codes) / max(live(learned), 1e-9), 1.0)


def mean_trial(parts: list[Trial]) -> Trial:
    """One trial from the same settings on several splits."""
    names = ("score", "partners", "neighbors", "live_bits")
    means: dict[str, Any] = {name: float(np.mean([getattr(part, name) for part in parts])) for name in names}
    evenness = {view: float(np.mean([part.evenness[view] for part in parts])) for view in parts[0].evenness}
    return replace(parts[-1], **means, evenness=evenness, splits=len(parts))


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
