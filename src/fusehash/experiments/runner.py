"""Run a specification: plan, skip what is stored, fit the rest in parallel, store each result when it is finished.

Every process fits on one core, so that times are comparable and codes are the same on every machine. Every process
loads the data set once, and its fingerprint must be the one of the plan.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.datasets import PairedDataset, PhotoDataset, load, make_paired
from fusehash.datasets.loading import BENCHMARKS
from fusehash.errors import DataError, FusehashWarning
from fusehash.evaluation.protocols import ProtocolRows, StageCodes, fit_rows
from fusehash.experiments.methods import label_of, versions_of
from fusehash.experiments.spec import DatasetSpec, Planned, Spec, planned
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, now, versions
from fusehash.experiments.workers import work_through
from fusehash.hashers.catalogue import allow, info, is_address
from fusehash.numerics.parallel import n_cores
from fusehash.parameters import integer, optional

WARM_UP_ROWS = 120
THUMBNAIL_SIDE = 128


@dataclass(frozen=True)
class Failure:
    """A run that gave no result, and why."""

    label: str
    n_bits: int
    seed: int
    stage: str
    dataset: str
    reason: str

    def __str__(self) -> str:
        return f"{self.label}, {self.n_bits} bits, seed {self.seed}, {self.stage} of {self.dataset}: {self.reason}"


@dataclass(frozen=True)
class Summary:
    """The outcome of running a specification."""

    computed: int
    reused: int
    failed: tuple[Failure, ...]
    seconds: float


@dataclass(frozen=True)
class RunState:
    """Progress of running a specification.

    done, total : runs, of those that were not stored already
    reused : runs that were
    running : what is being computed now
    seconds_left : estimated from the runs so far; None before the first
    failure : the run that has just failed
    """

    done: int
    total: int
    reused: int
    running: tuple[str, ...]
    seconds_left: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Source:
    """How a process gets a data set."""

    spec: DatasetSpec
    folder: Path | None
    stand_in: bool

    def load(self) -> PairedDataset:
        if not self.stand_in:
            return load(self.spec.name, self.folder, **self.spec.options)
        return make_paired(**(self.spec.stand_in or {}), name=f"{self.spec.name} (stand-in)")


def run(
    spec: Spec,
    data_folder: str | Path | None,
    store: ResultStore,
    workers: int | None = None,
    progress: Callable[[RunState], None] | None = None,
    stand_in: bool = False,
    again: bool = False,
    device: str | None = None,
) -> Summary:
    """Compute the runs of a specification that the store does not hold.

    Parameters
    ----------
    data_folder : the folder of the data sets; None as for `datasets.load`
    workers : processes, one core each; None for all cores
    progress : called whenever a run starts or ends
    stand_in : use generated data of the same shape for a data set that is not on this machine
    again : compute also what is stored
    device : where deep methods learn, such as "cuda"; None for the CPU. It is stored with the versions: codes of one
        seed can differ between devices in some bits

    After Ctrl-C, finished runs stay, nothing is half-written, and the same call continues from there.
    """
    optional(integer(1)).check("run", "workers", workers)
    started = time.monotonic()
    folder = None if data_folder is None else Path(data_folder)
    sources = [find_source(dataset, folder, stand_in=stand_in) for dataset in spec.datasets]  # all, before any is read
    jobs, reused = [], 0
    for source in sources:
        record = describe(source)
        store.put_dataset(record)
        runs: dict[str, Planned] = {}
        for entry in planned(spec, record):
            if not label_of(entry.settings.method):  # codes that were made elsewhere cannot be computed
                runs.setdefault(entry.settings.key, entry)
        missing = [entry for entry in runs.values() if again or store.get(entry.settings) is None]
        reused += len(runs) - len(missing)
        jobs += [_Job(entry.series.label, entry.settings, source, record.name) for entry in longest_first(missing)]
    watch = _Watch(len(jobs), reused, progress)
    addresses = tuple(sorted({job.settings.method for job in jobs if is_address(job.settings.method)}))
    n_workers = min(workers or n_cores(), max(len(jobs), 1))
    with closing(work_through(jobs, Bench, (store.folder, addresses, device), n_workers, watch.begin)) as outcomes:
        for outcome in outcomes:
            watch.end(outcome.job, outcome.error)
    return Summary(watch.computed, reused, tuple(watch.failed), time.monotonic() - started)


def find_source(spec: DatasetSpec, folder: Path | None, *, stand_in: bool) -> Source:
    """The data set, or its stand-in if `stand_in` and the data set is missing."""
    benchmark = BENCHMARKS.get(spec.name.lower())
    if benchmark is None:
        where = (folder or Path()) / spec.name
        exists, looked_for = where.exists() or spec.name == "paired", f"there is no {where}"
    else:
        where = folder or Path(os.environ.get("FUSEHASH_DATA", "."))
        there = {file.name.lower() for file in where.iterdir()} if where.is_dir() else set()
        exists = where.is_file() or any(file.lower() in there for file in benchmark.files)
        looked_for = f"{where} holds none of {', '.join(benchmark.files)}"
    if exists:
        return Source(spec, folder, stand_in=False)
    if stand_in and spec.stand_in is not None:
        return Source(spec, None, stand_in=True)
    hint = "; use --stand-in for generated data of the same shape" if spec.stand_in is not None else ""
    raise DataError(f"The data set {spec.name} is not here: {looked_for}{hint}.")


def describe(source: Source) -> DatasetRecord:
    """Load a data set and return what metrics need of it."""
    dataset = source.load()
    labels = dataset.labels
    if dataset.views.present:
        raise DataError(f"Every view of {dataset.name} must be present in every row here. Some are missing.")
    if labels is None:
        raise DataError(f"Experiments need labels to know what is relevant. Data set '{dataset.name}' has none.")
    return DatasetRecord(
        fingerprint=dataset.fingerprint,
        name=dataset.name,
        split=dataset.split,
        labels=labels.toarray() if sp.issparse(labels) else labels,
        train=dataset.train,
        query=dataset.query,
        database=dataset.database,
        n_features=dataset.views.n_features,
        n_rows=dataset.views.n_rows,
        stand_in=source.stand_in,
        options=source.spec.options,
        source=source.spec.name,
        created=now(),
        **_previews(dataset),
    )


def _previews(dataset: PairedDataset) -> dict[str, Any]:
    """Captions and thumbnails of raw data."""
    if not isinstance(dataset, PhotoDataset):
        return {}
    pictures = dataset.thumbnails(THUMBNAIL_SIDE)
    return {
        "texts": list(dataset.texts),
        "thumbnails": np.frombuffer(b"".join(pictures), np.uint8),
        "ends": np.cumsum([len(picture) for picture in pictures], dtype=np.int64),
        "label_names": list(dataset.label_names or ()),
    }


def longest_first(runs: Iterable[Planned]) -> list[Planned]:
    """Long codes and whole training sets first, so that no long run is left alone at the end."""
    return sorted(runs, key=lambda entry: (-entry.settings.n_bits, entry.settings.stage != "train"))


@dataclass(frozen=True)
class _Job:
    label: str
    settings: RunSettings
    source: Source
    dataset: str

    def __str__(self) -> str:
        return f"{self.label} {self.settings.n_bits} bits, seed {self.settings.seed}"


class _Watch:
    """Counts finished and running jobs, and estimates the time that is left."""

    def __init__(self, total: int, reused: int, progress: Callable[[RunState], None] | None) -> None:
        self.computed = 0
        self.failed: list[Failure] = []
        self._total, self._reused, self._progress = total, reused, progress
        self._running: list[_Job] = []
        self._started = time.monotonic()
        self._report()

    def begin(self, job: _Job) -> None:
        self._running.append(job)
        self._report()

    def end(self, job: _Job, error: str | None) -> None:
        self._running.remove(job)
        if error is None:
            self.computed += 1
            self._report()
        else:
            run = job.settings
            self.failed.append(Failure(job.label, run.n_bits, run.seed, run.stage, job.dataset, error))
            self._report(self.failed[-1])

    def _report(self, failure: Failure | None = None) -> None:
        if self._progress is not None:
            done = self.computed + len(self.failed)
            left = (time.monotonic() - self._started) / done * (self._total - done) if done else None
            running = tuple(str(job) for job in self._running)
            self._progress(RunState(done, self._total, self._reused, running, left, failure))


class Bench:
    """What a process keeps between runs: the data set, and the methods that are warmed up."""

    def __init__(self, folder: Path, addresses: Iterable[str] = (), device: str | None = None) -> None:
        """`addresses` are classes of other packages, which the user has allowed; deep methods learn on the device."""
        for address in addresses:
            allow(address)
        self._store, self._device = ResultStore(folder), device
        self._loaded: tuple[Source, PairedDataset] | None = None
        self._warm: set[str] = set()

    def __call__(self, job: _Job) -> None:
        """Do one run and store it."""
        from threadpoolctl import threadpool_limits

        dataset = self._load(job)
        with threadpool_limits(limits=1):
            is_new = job.settings.method not in self._warm
            record = compute(job.settings, dataset, warm_up=is_new, device=self._device)
        self._warm.add(job.settings.method)
        self._store.put(record)

    def _load(self, job: _Job) -> PairedDataset:
        if self._loaded is not None and self._loaded[0] == job.source:
            return self._loaded[1]
        self._loaded = None  # free the old one before loading the new one
        with warnings.catch_warnings():  # the planning process has shown them already
            warnings.simplefilter("ignore", FusehashWarning)
            dataset = job.source.load()
        if dataset.fingerprint != job.settings.dataset:
            raise DataError(f"The data set {dataset.name} changed while it was used. Run the command again.")
        self._loaded = job.source, dataset
        return dataset


def compute(
    settings: RunSettings, dataset: PairedDataset, *, warm_up: bool = False, device: str | None = None
) -> RunRecord:
    """Fit once and encode everything that protocols search; `warm_up` compiles first, so that times exclude it."""
    device = device if info(settings.method).is_deep else None
    model = _model(settings, device)
    if warm_up:
        _warm_up(settings, dataset, device)
    views, rows = dataset.views, ProtocolRows(dataset.train.astype(np.intp), dataset.query, dataset.database)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FusehashWarning)
        fit_seconds = fit_rows(model, views, dataset.labels, rows.learned(settings.stage, settings.seed))
    codes = StageCodes(model, views, rows, settings.stage, settings.seed)
    encode_seconds = {}
    for view in views.names:
        model.encode(views[view][dataset.query[:1]], view=view)
        started = time.perf_counter()
        codes[f"query:{view}"]
        encode_seconds[view] = time.perf_counter() - started
    objective = getattr(model, "objective_", None)
    return RunRecord(
        settings=settings,
        codes={name: codes[name] for name in codes.names()},
        objective=None if objective is None else np.asarray(objective, dtype=np.float64),
        fit_seconds=fit_seconds,
        encode_seconds=encode_seconds,
        versions={**versions(), **versions_of(settings.method), **({"device": device} if device else {})},
        created=now(),
        warnings=[str(entry.message) for entry in caught if issubclass(entry.category, FusehashWarning)],
    )


def _model(settings: RunSettings, device: str | None = None) -> Any:
    from fusehash import hashers

    model = hashers.make(settings.method, n_bits=settings.n_bits, **settings.params)
    fixed = {"random_state": settings.seed, "n_threads": 1, **({"device": device} if device else {})}
    return model.set_params(**{name: value for name, value in fixed.items() if name in model.get_params(deep=False)})


def _warm_up(settings: RunSettings, dataset: PairedDataset, device: str | None) -> None:
    some = dataset.train[:WARM_UP_ROWS]
    # An error means settings that need more rows than these; the run itself reports real errors.
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        model = _model(settings, device)
        if info(settings.method).is_deep:
            model.set_params(epochs=1)
        model.fit(dataset.views.rows(some), dataset.labels[some])
        model.encode_fused(dataset.views.rows(some[:1]))
