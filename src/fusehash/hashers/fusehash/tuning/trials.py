"""A trial: fit on part of the tuning rows with given settings, and score on the others.

The score is log(partners) + log(neighbors) + log(share of live bits); see `measures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.evaluation.metrics import average_precisions
from fusehash.hashers.fusehash.closed_form import InMemory, Rng, feature_gram, learn_means, solve, weigh_words
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Fitted, GraphMap, RowMaps
from fusehash.hashers.fusehash.spectrum import FeatureGram
from fusehash.hashers.fusehash.tuning.agreement import graph_agreement
from fusehash.hashers.fusehash.tuning.measures import NearItems, count_distinct, evenness_of, live_share, partner_rank
from fusehash.numerics.anchors import neighbor_graph
from fusehash.numerics.arrays import Array, cast, convert, host, take_rows
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.views import Floats

TUNING_ROWS = 1600
HELD_OUT = 0.3  # share of the tuning rows
TRIAL_ANCHORS, TRIAL_BITS, TRIAL_ROTATION_STEPS = 160, 64, 15
NOTHING = 1e-3  # the least value of a measure; its logarithm is what a collapse scores


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


def mean_trial(parts: list[Trial]) -> Trial:
    """One trial from the same settings on several splits."""
    names = ("score", "partners", "neighbors", "live_bits")
    means: dict[str, Any] = {name: float(np.mean([getattr(part, name) for part in parts])) for name in names}
    evenness = {view: float(np.mean([part.evenness[view] for part in parts])) for view in parts[0].evenness}
    return replace(parts[-1], **means, evenness=evenness, splits=len(parts))


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
