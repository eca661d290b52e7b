"""Choose the settings of the closed form on held-out training rows, without labels.

Two things can be measured on held-out pairs without knowing any class, both across views:

    partners     mean of -log(r / n), r the rank of the true partner among n: are the views aligned? The query is real
                 and the database binary, which is less noisy than two codes.
    neighbors    MAP@50, by Hamming distance, of finding items that are near in every view at once, from each view among
                 the codes of each other view and among the fused codes: do neighborhoods survive?

The score is log(partners) + log(neighbors) + log(share of live bits). The last sees a collapse: bits that are nearly
constant for held-out rows count as missing, and codes that are nearly all the same, for rows that are not, score as
nothing.

The weight of the graph starts from how far the views agree on neighborhoods (`graph_agreement`): where they agree, the
pairs align the views without the help of a graph, which would blur them; where they do not, the graph of both is what
holds classes together. On 13 development sets this order was the same (docs/study.md). Weights of words
(`fusehash.numerics.word_weights`), which help to find partners, grow as the weight of the graph falls.

The search changes one setting at a time, over a few values, and keeps a change only if it exceeds what noise, or the
difference between partners and classes, explains (`MIN_GAIN`). All trials use the same splits of the rows, so that most
of what the draw of a split does cancels from a gain. Another map changes codes most: a gain of one that is too near to
its margin to tell is measured on more splits. Trials have few anchors; the last step is a linear map with a strong
ridge. In the final round, what it has chosen meets `REFERENCES`, all with more anchors: CCA-ITQ and kernel CCA-ITQ.
One that gains more than `MIN_REFERENCE_GAIN` is taken, so that the chosen settings never score less than a reference by
more than that on the held-out rows on which both were tried. A trial that is hopeless on the first split is not run on
others.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.errors import FusehashWarning
from fusehash.evaluation import Relevance
from fusehash.evaluation.metrics import average_precisions
from fusehash.hashers.fusehash.closed_form import (
    InMemory,
    Preparations,
    Rng,
    feature_gram,
    learn_means,
    solve,
    weigh_words,
)
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Fitted, GraphMap, RowMaps
from fusehash.hashers.fusehash.spectrum import FeatureGram
from fusehash.numerics.anchors import neighbor_graph, squared_distances
from fusehash.numerics.arrays import Array, cast, convert, host, is_accelerated, load_linear_algebra, take_rows
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.numerics.parallel import map_blocks, n_cores
from fusehash.numerics.rotation import signs_of
from fusehash.numerics.sparse import SparseRows
from fusehash.numerics.word_weights import are_words
from fusehash.parameters import Progress
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats

MIN_TUNING_ROWS, TUNING_ROWS = 40, 1600
HELD_OUT = 0.3  # share of the tuning rows
# A gain of another map within CLOSE of its margin on the first splits is measured on the others too. On emoji, where
# the right map gains .05 and needs .03, and a wrong one .11 and needs .15, gains on one split spread by .02 to .03.
N_SPLITS, MAX_SPLITS, CLOSE = 2, 4, 0.04
TRIAL_ANCHORS, TRIAL_BITS, TRIAL_ROTATION_STEPS = 160, 64, 15
FINAL_ANCHORS, CANONICAL_ANCHORS = 400, 1000  # of the final round; more than rows of a split are not needed
# A trial that misses its margin by more than this on the first split is not run on the second. Gains on the
# two splits of a few development sets differed by .03 to .04, judged by eye.
HOPELESS = 0.05
NOTHING = 1e-3  # the least value of a measure; its logarithm is what a collapse scores
# A bit of held-out rows whose mean is beyond MAX_MEAN tells nothing apart. Codes collapse if no bit is left, or if they
# have less than this share of distinct codes per distinct row.
MAX_MEAN, MIN_DISTINCT = 0.8, 0.1
MIN_EVENNESS = 0.8  # of held-out codes relative to learned ones, below which `fit` warns
# With more rows per feature than this, training rows are as informative as held-out rows.
MIN_ROWS_PER_FEATURE = 20
# Views whose graphs correlate more than this need less of a graph, by the fourth power of the excess.
USUAL_AGREEMENT = 0.12
MIN_GRAPH_WEIGHT = 0.01  # a graph of less weight changes hardly a bit, and is most of the work
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
# What other methods are. One that scores higher than what the steps have chosen, beyond noise, is taken. CCA-ITQ has
# the ridge of `fusehash.hashers.CCAITQ`, on prepared views. On made data, where neighbors of one class are hard to see,
# CCA-ITQ gains .04 to .07 and finds classes worse.
MIN_REFERENCE_GAIN = 0.1
CANONICAL: Change = {"hash_functions": "canonical", "spectral_power": 2.0}
REFERENCES: dict[str, Change] = {
    "CCA-ITQ": {**CANONICAL, "feature_map": "linear", "ridge": 0.001},
    "CCA-ITQ, ridge 1": {**CANONICAL, "feature_map": "linear", "ridge": 1.0},
    "CCA-ITQ, ridge 10": {**CANONICAL, "feature_map": "linear", "ridge": 10.0},
    "kernel CCA-ITQ": {**CANONICAL, "feature_map": "rbf", "ridge": 1.0},
}


@dataclass
class Trial:
    """Settings and how they did on held-out rows; `evenness` is that of held-out codes relative to learned ones."""

    choices: Choices
    n_anchors: int  # of a view at most
    score: float
    partners: float
    neighbors: float
    live_bits: float
    evenness: dict[str, float]
    fitted: Fitted = field(repr=False)
    splits: int = 1

    def as_dict(self) -> dict[str, Any]:
        measures = ("score", "partners", "neighbors", "live_bits", "splits", "n_anchors")
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
    if len(rows) < MIN_TUNING_ROWS:
        note = f"only {len(rows)} rows are present in every view: nothing was tuned, and no held-out rows were checked"
        untuned = {"chosen": start.as_dict(), "views": kinds, "tuned": [], "rows": 0, "trials": [], "note": note}
        return start, untuned, dict.fromkeys(data.names, 1.0)
    width = sum(preparation.width for preparation in preparations.values())
    steps = steps_of(start, free)
    # With so many rows and nothing to choose, one split shows whether new rows collapse, and training rows the weights.
    is_check = not steps and len(rows) >= MIN_ROWS_PER_FEATURE * width
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    arrays = {name: data.take(name, rows) for name in data.names}
    load_linear_algebra(data.like)
    n_threads = DEVICE_TRIALS if is_accelerated(data.like) else data.n_threads
    dtype = next(iter(preparations.values())).dtype
    streams = rng.spawn(1 if is_check else MAX_SPLITS)
    make_split = partial(HeldOut, kinds, dtype, arrays, n_bits)
    splits = list(map_blocks(make_split, streams[:N_SPLITS], n_threads))
    agreement = float(np.mean([split.agreement for split in splits]))
    weight = min(1.0, (USUAL_AGREEMENT / max(agreement, 1e-9)) ** 4)
    if "graph_weight" in free:
        start = replace(start, graph_weight=weight if weight >= MIN_GRAPH_WEIGHT else 0.0)
    if "word_weights" in free and len(arrays) > 1 and any(are_words(rows) for rows in splits[0].kept.values()):
        start = replace(start, word_weights=1.0 - weight**2)
    for split in splits:
        split.weigh_words(start.word_weights)
    more_splits: list[HeldOut] = []
    walk = Walk(start, steps, free, len(arrays), ahead=(n_threads or n_cores()) >= MANY_CORES)
    has_final = bool(steps and references_of(start, free, len(arrays)))
    n_steps = len(walk.steps) - 1 + has_final
    while grids := walk.next_grids():
        report(walk.n_done, n_steps, f"tuning {', '.join(grids)}")
        grid = [(name, choices) for name, candidates in grids.items() for choices in candidates]
        firsts = list(map_blocks(run_trial, [(splits[0], choices, TRIAL_ANCHORS) for _, choices in grid], n_threads))
        names = (name for name, _ in grid)
        hopeful = [first.choices for name, first in zip(names, firsts, strict=True) if walk.is_hopeful(name, first)]
        jobs = [(split, choices, TRIAL_ANCHORS) for choices in dict.fromkeys(hopeful) for split in splits[1:]]
        walk.add(firsts, list(map_blocks(run_trial, jobs, n_threads)))
        if close := walk.close(grids):
            if not more_splits:
                more_splits += map_blocks(make_split, streams[N_SPLITS:], n_threads)
                for split in more_splits:
                    split.weigh_words(start.word_weights)
            jobs = [(split, choices, TRIAL_ANCHORS) for choices in close for split in more_splits]
            walk.extend(list(map_blocks(run_trial, jobs, n_threads)))
        walk.decide(grids)
    best, trials = walk.best, walk.trials
    if has_final:
        report(n_steps, n_steps, "tuning, final round")
        candidates = dict.fromkeys([best.choices, *references_of(best.choices, free, len(arrays))])
        finals = [(splits[0], choices, final_anchors(choices)) for choices in candidates]
        firsts = list(map_blocks(run_trial, finals, n_threads))
        limit = firsts[0].score + MIN_REFERENCE_GAIN - HOPELESS
        likely = [job for job, first in zip(finals, firsts, strict=True) if first.score > limit]
        again = [(split, *job[1:]) for job in [finals[0], *likely] for split in splits[1:]] if likely else []
        tried = final_trials(firsts, list(map_blocks(run_trial, again, n_threads)))
        trials += tried
        best = best_reference(tried, len(splits)) or best
    tuning = {
        "chosen": best.choices.as_dict(),
        "views": kinds,
        "tuned": sorted(free),
        "rows": len(rows),
        "agreement": agreement,
        "score": best.score,
        "live_bits": best.live_bits,
        "evenness": best.evenness,
        "trials": [trial.as_dict() for trial in trials],
    }
    if is_check:
        return best.choices, {**tuning, "note": "every setting was given"}, {}
    return best.choices, tuning, fusion_weights(best.fitted, splits[-1].held)


def steps_of(start: Choices, free: set[str]) -> list[str]:
    """The free settings that matter: the width not to linear maps, most others not to canonical hash functions."""
    idle = {"kernel_width"} if start.feature_map == "linear" else set()
    idle |= {"graph_weight", "view_weights"} if start.is_canonical else set()
    steps = [name for name in GRID if name in free - idle]
    return [*steps, LINEAR] if "feature_map" in steps else steps


def final_anchors(choices: Choices) -> int:
    """Anchors of a view in the final round, at most; canonical linear maps see wide views in full."""
    return CANONICAL_ANCHORS if choices.is_canonical and choices.feature_map == "linear" else FINAL_ANCHORS


def final_trials(firsts: list[Trial], others: list[Trial]) -> list[Trial]:
    """One trial of each choice, on as many splits as it was run on."""
    by_choices = {first.choices: [first] for first in firsts}
    for trial in others:
        by_choices[trial.choices].append(trial)
    return [mean_trial(parts) for parts in by_choices.values()]


def best_reference(finals: list[Trial], n_splits: int) -> Trial | None:
    """The best on all splits if it gains enough on the first, which is what the steps have chosen."""
    best = max(
        (trial for trial in finals if trial.splits == n_splits), key=lambda trial: trial.score, default=finals[0]
    )
    return best if best.score > finals[0].score + MIN_REFERENCE_GAIN else None


def references_of(chosen: Choices, free: set[str], n_views: int) -> list[Choices]:
    """The references that no fixed setting forbids; the canonical ones need two views."""
    allowed = []
    for change in REFERENCES.values():
        choices = replace(chosen, **change)
        changed = {name for name, value in choices.as_dict().items() if value != chosen.as_dict()[name]}
        if changed <= free and (n_views > 1 or not choices.is_canonical):
            allowed.append(choices)
    return allowed


class Walk:
    """What is tried next, the best settings so far, and all that were tried."""

    def __init__(self, start: Choices, steps: list[str], free: set[str], n_views: int, *, ahead: bool) -> None:
        self._free, self._n_views, self._ahead = free, n_views, ahead
        self._best = start
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


class HeldOut:
    """One split of the tuning rows into kept and held-out rows, and which held-out rows are near each other.

    Preparations are learned from the kept rows, so that held-out rows are as new as rows after the fit. Rows are near
    each other without weights of words, so that the measure does not depend on what it is to judge.
    """

    def __init__(self, kinds: dict[str, str], dtype: str, arrays: Arrays, n_bits: int, rng: Rng) -> None:
        self.n_bits = min(n_bits, TRIAL_BITS)
        n = next(iter(arrays.values())).shape[0]
        order = rng.permutation(n)
        held, kept = order[: int(HELD_OUT * n)], order[int(HELD_OUT * n) :]
        raw = {name: take_rows(X, kept) for name, X in arrays.items()}
        self.preparations = {name: Preparation.learn(X, kinds[name], dtype) for name, X in raw.items()}
        self._anchor_rows = rng.choice(len(kept), min(TRIAL_ANCHORS, len(kept) // 2), replace=False)
        self.seed = int(rng.integers(2**31))
        self._raw = raw, {name: take_rows(X, held) for name, X in arrays.items()}
        self._prepare()
        self.near = NearItems(list(convert(self.held, host).values()))
        self.agreement = graph_agreement([host(graph) for graph in self.held_graphs])
        self.distinct = {name: count_distinct(X) for name, X in convert(self.held, host).items()}
        # Of kept and of held-out rows, by feature map, kernel width and anchors: computed once for all trials.
        self.row_maps: dict[tuple[str, float, int], tuple[RowMaps, RowMaps, FeatureGram]] = {}

    def weigh_words(self, power: float) -> None:
        """From now on, words count by what they say about the other views of the kept rows."""
        if power:
            self.preparations = weigh_words(self.preparations, self._raw[0], power)
            self._prepare()

    def _prepare(self) -> None:
        kept, held = self._raw
        self.kept = {name: prepare(kept[name]) for name, prepare in self.preparations.items()}
        self.held = {name: prepare(held[name]) for name, prepare in self.preparations.items()}
        self.anchors = {name: take_rows(X, self._anchor_rows) for name, X in self.kept.items()}
        self.n_neighbors = max(min(45, len(self._anchor_rows) // 10), 1)
        self.raw_graphs = [neighbor_graph(X, self.anchors[name], self.n_neighbors) for name, X in self.kept.items()]
        self.held_graphs = [neighbor_graph(X, self.anchors[name], self.n_neighbors) for name, X in self.held.items()]


def graph_agreement(graphs: list[Floats]) -> float:
    """Mean correlation of the anchor graphs of two views, over pairs of views; 0 with one view."""
    centered = [graph - graph.mean(axis=0) for graph in graphs]
    lengths = [max(float(np.sqrt(np.sum(graph**2))), 1e-12) for graph in centered]
    pairs = list(combinations(range(len(graphs)), 2))
    products = [float(np.sum(centered[i] * centered[j])) / (lengths[i] * lengths[j]) for i, j in pairs]
    return float(np.mean(products)) if products else 0.0


def run_trial(job: tuple[HeldOut, Choices, int]) -> Trial:
    """Fit on the kept rows, score on the held-out ones."""
    split, choices, n_anchors = job
    data, new, rng = InMemory(split.kept), InMemory(split.held), np.random.default_rng(split.seed)  # equal every time
    kind = choices.feature_map, choices.kernel_width
    if (*kind, n_anchors) not in split.row_maps:
        feature_maps = {
            name: FeatureMap.learn(split.preparations[name], X, *kind, n_anchors, rng) for name, X in split.kept.items()
        }
        maps = RowMaps(feature_maps, None, n_rows=data.n_rows, is_prepared=True, raw_graphs=split.raw_graphs)
        maps = replace(maps, means=learn_means(data, maps))
        held_maps = replace(maps, n_rows=new.n_rows, raw_graphs=split.held_graphs, kept_features={})
        F = maps.exact(maps.features(data.block).F)
        gram = feature_gram(cast(F.T @ F, "float64"), maps, data.n_rows)
        split.row_maps.setdefault((*kind, n_anchors), (maps, held_maps, gram))
    graph = GraphMap.over(split.anchors, split.n_neighbors, choices) if choices.has_graph else None
    maps, held_maps, gram = split.row_maps[*kind, n_anchors]
    maps = replace(maps, graph=graph, kept_graphs={})
    rng, n_bits = np.random.default_rng(split.seed), split.n_bits
    fitted, _, _ = solve(data, data, maps, choices, n_bits, n_bits, TRIAL_ROTATION_STEPS, (), rng, gram=gram)
    held_maps = replace(held_maps, graph=fitted.graph, kept_graphs={})
    held = held_maps.features(new.block)
    projections = by_view(fitted, held.F, maps.spans)
    learned = {name: bits.pack(Y) for name, Y in by_view(fitted, maps.features(data.block).F, maps.spans).items()}
    codes = {name: bits.pack(Y) for name, Y in projections.items()}
    fused = bits.pack(host(fitted.code_map(held.F, held_maps.graph_rows(held))))
    evenness = {
        name: evenness_of(codes[name], n_bits) / max(evenness_of(learned[name], n_bits), 1e-9) for name in codes
    }
    return Trial(choices, n_anchors, *measures_of(split, projections, fused), evenness, fitted)


def measures_of(split: HeldOut, projections: dict[str, Floats], fused: bits.Codes) -> tuple[float, float, float, float]:
    """The score of held-out rows, and what it is made of: partners, neighbors, live bits."""
    codes = {name: bits.pack(P) for name, P in projections.items()}
    directions = list(permutations(codes, 2)) or [(name, name) for name in codes]
    partners = (
        float(np.mean([partner_rank(projections[a], codes[b]) for a, b in directions])) if len(codes) > 1 else 1.0
    )
    # Both kinds of search count: for items seen in one view, and for items seen in all (fused).
    searches = [(codes[a], codes[b]) for a, b in directions] + [(query, fused) for query in codes.values()]
    precisions = []
    for query, database in searches:
        values, _ = average_precisions("FuseHash", query, database, split.near, min(50, len(fused)), "expected", "E1")
        precisions.append(values.mean())
    neighbors = float(np.mean(precisions))
    live_bits = min(live_share(codes[name], split.n_bits, split.distinct[name]) for name in codes)
    measures = partners, neighbors, live_bits
    return float(sum(np.log(max(measure, NOTHING)) for measure in measures)), *measures


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


def live_share(codes: bits.Codes, n_bits: int, n_distinct: int) -> float:
    """Share of the bits that tell rows apart, `n_distinct` of which are different; 0 is a collapse."""
    if len(np.unique(codes, axis=0)) < MIN_DISTINCT * n_distinct:
        return 0.0
    means = np.mean(bits.unpack(codes, n_bits), axis=0, dtype=np.float64)
    return float(np.mean(np.abs(means) <= MAX_MEAN))


def count_distinct(X: Array) -> int:
    """How many different rows there are."""
    if isinstance(X, SparseRows):
        rows = (slice(a, b) for a, b in pairwise(X.starts))
        return len({(X.columns[row].tobytes(), X.values[row].tobytes()) for row in rows})
    return len({row.tobytes() for row in X})


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
