"""From stored runs to numbers: every run is read once, and everything that the report shows is computed then.

`collect` reads the runs of a specification. Runs that are not in the store are reported as missing, never refitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations, product
from typing import Any, TypeAlias

import numpy as np

from fusehash.errors import DataError, FusehashError
from fusehash.evaluation import METRICS, Score
from fusehash.evaluation.protocols import StageName
from fusehash.experiments.methods import label_of
from fusehash.experiments.spec import DatasetSpec, Planned, Series, Spec, planned
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, searched
from fusehash.parameters import Progress
from fusehash.views import Floats

Search: TypeAlias = tuple[str, str, str]  # protocol, query view, database view
Direction: TypeAlias = tuple[str, str]  # query view, database view

TOP_N = tuple(range(50, 1001, 50))
CURVE_BITS, CONVERGENCE_BITS = 32, 64  # as in the paper's figures, where the specification has them
NOT_IMPORTABLE = (ImportError, AttributeError, FusehashError)  # of a method of another version of fusehash


@dataclass(frozen=True, eq=False)
class RunMetrics:
    """Metrics of one run: `precision` of the first N, `curve` recall and precision by radius; `record` has no codes."""

    ap: dict[Search, Floats]
    n_items: dict[Search, int]
    precision: dict[Search, Floats]
    curve: dict[Search, tuple[Floats, Floats]]
    record: RunRecord


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """The numbers of a specification on one of its data sets.

    requested : the data set as the specification names it
    dataset : what the store holds of it; None if it holds no run on it
    plan : the runs that the specification asks for, with their keys
    runs : key -> metrics of the run, for those that are in the store
    """

    spec: Spec
    requested: DatasetSpec
    dataset: DatasetRecord | None = None
    plan: tuple[tuple[Planned, str], ...] = ()
    runs: dict[str, RunMetrics] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Results({self.spec.name} on {self.name}, {len(self.runs)} of {len(self.planned)} runs)"

    @property
    def name(self) -> str:
        """The data set, with a warning where it is generated."""
        if self.dataset is None:
            return self.requested.name
        marked = not self.dataset.stand_in or "stand-in" in self.dataset.name
        return self.dataset.name if marked else f"{self.dataset.name} (stand-in data)"

    @property
    def stand_in(self) -> bool:
        return self.dataset is not None and self.dataset.stand_in

    @property
    def directions(self) -> list[Direction]:
        """Every ordered pair of views."""
        return [] if self.dataset is None else list(permutations(self.dataset.views, 2))

    @cached_property
    def planned(self) -> dict[str, Planned]:
        """Every different run that the specification asks for, by its key."""
        runs: dict[str, Planned] = {}
        for entry, key in self.plan:
            runs.setdefault(key, entry)
        return runs

    @property
    def missing(self) -> list[Planned]:
        """Runs that are asked for and not there, each once; codes that were made elsewhere cannot be computed."""
        absent = [entry for key, entry in self.planned.items() if key not in self.runs]
        return [entry for entry in absent if not label_of(entry.settings.method)]

    @cached_property
    def _by_point(self) -> dict[tuple[str, int, int, StageName], RunMetrics]:
        entries = [(entry.series.label, entry.settings, self.runs[key]) for entry, key in self.plan if key in self.runs]
        return {(label, run.n_bits, run.seed, run.stage): metrics for label, run, metrics in entries}

    def of(self, series: Series, n_bits: int, stage: StageName = "train") -> dict[int, RunMetrics]:
        """seed -> run, for the seeds that are there."""
        runs = {seed: self._by_point.get((series.label, n_bits, seed, stage)) for seed in self.spec.seeds}
        return {seed: run for seed, run in runs.items() if run is not None}

    def _searches(self, series: Series, n_bits: int, search: Search) -> dict[int, RunMetrics]:
        if self.dataset is None:
            return {}
        runs = self.of(series, n_bits, self.dataset.rows.stage(search[0]))
        return {seed: run for seed, run in runs.items() if search in run.ap}

    def score(self, series: Series, n_bits: int, protocol: str, direction: Direction) -> Score | None:
        """Average precision of every seed and query; None where there is no run."""
        search = (protocol, *direction)
        runs = self._searches(series, n_bits, search)
        if not runs or self.dataset is None:
            return None
        per_query = np.stack([run.ap[search] for run in runs.values()])
        n_database = next(iter(runs.values())).n_items[search]
        return Score(*search, tuple(runs), per_query, self.dataset.query.astype(np.intp), n_database)

    def top_n(self, series: Series, n_bits: int, protocol: str, direction: Direction) -> Floats | None:
        """Precision (seeds, N) of the first N for N in `TOP_N`, up to the number of items; None without runs."""
        search = (protocol, *direction)
        values = [run.precision[search] for run in self._searches(series, n_bits, search).values() if run.precision]
        return np.stack(values) if values else None

    def curve(self, series: Series, n_bits: int, protocol: str, direction: Direction) -> tuple[Floats, Floats] | None:
        """Recall and precision by Hamming radius, each the mean over the seeds that retrieve something."""
        search = (protocol, *direction)
        curves = [run.curve[search] for run in self._searches(series, n_bits, search).values() if run.curve]
        if not curves:
            return None
        recall, precision = np.ma.masked_invalid(curves).mean(axis=0).filled(np.nan)
        return recall, precision

    def objectives(self, series: Series, n_bits: int) -> list[Floats]:
        """The objective of every seed, where the method has one."""
        return [run.record.objective for run in self.of(series, n_bits).values() if run.record.objective is not None]

    def fit_seconds(self, series: Series, n_bits: int) -> Floats:
        """Seconds of the fit on all training rows, one value per seed."""
        known = {} if label_of(series.method) else self.of(series, n_bits)
        return np.array([run.record.fit_seconds for run in known.values()])

    def encode_seconds(self, series: Series, n_bits: int, view: str) -> Floats:
        """Seconds to encode all queries from one view, one value per seed."""
        runs = self.of(series, n_bits).values()
        return np.array([run.record.encode_seconds[view] for run in runs if view in run.record.encode_seconds])

    def notes(self) -> dict[str, list[str]]:
        """label -> the warnings of its runs, each sentence once."""
        runs = [(entry.series.label, self.runs[key].record) for entry, key in self.plan if key in self.runs]
        return unique((label, sentence) for label, record in runs for sentence in record.warnings)


def collect(spec: Spec, store: ResultStore, progress: Progress | None = None) -> list[Results]:
    """Read every run of a specification that is in the store, and compute what its report needs."""
    out = []
    for requested in spec.datasets:
        dataset = store.find_dataset(requested.name, requested.options)
        plan = [] if dataset is None else [(entry, _key(entry.settings)) for entry in planned(spec, dataset)]
        out += [Results(one, requested, dataset, tuple(plan)) for one in spec.each_k()]
    entries = [(results, *item) for results in out for item in results.planned.items()]
    for step, (results, key, entry) in enumerate(entries):
        if progress is not None:
            progress(step, len(entries), f"{entry.series.label}, {entry.settings.n_bits} bits")
        try:
            record = store.get(entry.settings)
        except NOT_IMPORTABLE:
            continue
        if record is not None and results.dataset is not None:
            curves = not entry.series.group and entry.settings.n_bits == bits_for(spec, entry.series, CURVE_BITS)
            results.runs[key] = measure(record, results.dataset, results.spec, curves=curves)
    return out


def measure(record: RunRecord, dataset: DatasetRecord, spec: Spec, *, curves: bool = False) -> RunMetrics:
    """Everything of one run, under each protocol that its fit serves."""
    ap: dict[Search, Floats] = {}
    n_items: dict[Search, int] = {}
    precision: dict[Search, Floats] = {}
    curve: dict[Search, tuple[Floats, Floats]] = {}
    ties: Any = spec.ties
    protocols = [protocol for protocol in spec.protocols if dataset.rows.stage(protocol) == record.settings.stage]
    for protocol, direction in product(protocols, permutations(dataset.views, 2)):
        search = (protocol, *direction)
        try:
            queries, items, *labels = searched(record, dataset, *search)
        except DataError:  # the method gave no such codes
            continue
        codes = (queries, items, tuple(labels))
        ap[search] = METRICS["map"].compute(*codes, k=spec.k, ties=ties)
        n_items[search] = len(items)
        ranks = [n for n in TOP_N if n <= len(items)]
        if curves and "topn" in spec.sections and ranks:
            precision[search] = METRICS["precision"].compute(*codes, n=ranks, ties=ties)
        if curves and "pr" in spec.sections:
            points = METRICS["precision_recall"].compute(*codes, n_bits=record.settings.n_bits)
            curve[search] = points.recall, points.precision
    return RunMetrics(ap, n_items, precision, curve, replace(record, codes={}))


def bits_for(spec: Spec, series: Series, preferred: int) -> int:
    """The preferred code length where the series has it, else its longest one below, else its shortest."""
    have = sorted(spec.bits_of(series))
    return max((b for b in have if b <= preferred), default=have[0])


def _key(settings: RunSettings) -> str:
    """The key of a run; a description if its method cannot be imported."""
    try:
        return settings.key
    except NOT_IMPORTABLE:
        return json.dumps([settings.method, settings.params, settings.n_bits, settings.seed, settings.stage])


def unique(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """First -> the seconds of its pairs, each once."""
    groups: dict[str, list[str]] = {}
    for first, second in dict.fromkeys(pairs):
        groups.setdefault(first, []).append(second)
    return groups
