"""A specification that was read: its methods, data sets and settings, a part of it, and the runs that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from fusehash import hashers
from fusehash.errors import DataError
from fusehash.experiments.methods import label_of, made_elsewhere
from fusehash.experiments.store import DatasetRecord, ResultStore, RunSettings


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: the name and options of `datasets.load`.

    stand_in : arguments of `datasets.make_paired` for generated data of the same shape, used only with --stand-in
    """

    name: str
    options: dict[str, Any]
    stand_in: dict[str, Any] | None = None


@dataclass(frozen=True)
class Series:
    """One line of a table, or one point of a sweep.

    label : its name in tables
    method, params : the method by name, and settings that are not the defaults
    group, x : in a sweep, the setting as the file names it ("lambda") and its value; else "" and None
    printed : the row of the printed table to compare it with; "" for none
    bits : only these code lengths; () for those of the specification
    """

    label: str
    method: str
    params: dict[str, Any]
    group: str = ""
    x: float | None = None
    printed: str = ""
    bits: tuple[int, ...] = ()


@dataclass(frozen=True)
class EmbeddingOptions:
    """How codes of embeddings are compared.

    k, candidates : length of a ranking, and how many items are rescored
    queries : how many rows are asked; None for all
    learn : share of the pairs to learn from; the others are searched
    """

    k: int = 10
    candidates: int = 100
    queries: int | None = 2000
    learn: float = 0.5


@dataclass(frozen=True)
class Spec:
    """A checked specification; see the top of this file.

    runs : the lines of its tables, then the points of its sweeps
    """

    name: str
    title: str
    notes: str
    datasets: tuple[DatasetSpec, ...]
    runs: tuple[Series, ...]
    bits: tuple[int, ...]
    seeds: tuple[int, ...]
    protocols: tuple[str, ...]
    k: int | None
    ties: str
    sections: tuple[str, ...]
    paper: int | str | None
    more_k: tuple[int | None, ...] = ()
    embeddings: EmbeddingOptions | None = None
    options: tuple[str, ...] = ()  # of the command line that changed it, as words: what repeats it needs them too

    def each_k(self) -> list[Spec]:
        """The same specification once for every k; what does not depend on k is with the first."""
        more = tuple(section for section in self.sections if section in ("map", "ablation"))
        return [replace(self, more_k=()), *(replace(self, k=k, more_k=(), sections=more) for k in self.more_k)]

    @property
    def chosen(self) -> bool:
        """Whether some methods were chosen, so that others have no place in its tables."""
        return "--only" in self.options

    @property
    def lines(self) -> tuple[Series, ...]:
        """The lines of tables: everything but the points of sweeps."""
        return tuple(series for series in self.runs if not series.group)

    @property
    def sweeps(self) -> dict[str, list[Series]]:
        """The points of every sweep, by the setting that it changes."""
        points = (series for series in self.runs if series.group)
        return {group: list(series) for group, series in groupby(points, key=lambda series: series.group)}

    def bits_of(self, series: Series) -> tuple[int, ...]:
        """The code lengths that a series runs with."""
        return series.bits or self.bits

    def points(self) -> list[tuple[Series, int, int]]:
        """Every (series, bits, seed)."""
        return [(series, b, seed) for series in self.runs for b in self.bits_of(series) for seed in self.seeds]

    def narrowed(
        self,
        only: Sequence[str] = (),
        bits: Sequence[int] = (),
        n_seeds: int | None = None,
        n_epochs: int | None = None,
    ) -> Spec:
        """The same with some methods (by name or label), some bits, the first seeds, other epochs of deep methods."""
        chosen = {name.lower() for name in only}
        _check_only(only, self)
        check_among("--bits", bits, sorted({b for series in self.runs for b in self.bits_of(series)}), self.name)
        if n_seeds is not None and not 1 <= n_seeds <= len(self.seeds):
            raise DataError(f"{self.name} has {len(self.seeds)} seeds. Got {n_seeds} instead.")
        runs = [series for series in self.runs if not chosen or {series.label.lower(), series.method} & chosen]
        if bits:
            runs = [replace(series, bits=tuple(b for b in self.bits_of(series) if b in bits)) for series in runs]
            runs = [series for series in runs if series.bits]
        if not runs:
            raise DataError(f"Nothing of {self.name} is left with these methods and bits.")
        if n_epochs is not None:
            runs = _with_epochs(runs, n_epochs, self.name)
        left = tuple(b for b in self.bits if not bits or b in bits) or tuple(sorted({b for r in runs for b in r.bits}))
        words = [word for name in only for word in ("--only", name)]
        words += ["--bits", ",".join(map(str, bits))] if bits else []
        words += ["--seeds", str(n_seeds)] if n_seeds is not None else []
        words += ["--epochs", str(n_epochs)] if n_epochs is not None else []
        words = [*self.options, *words]
        return replace(self, runs=tuple(runs), bits=left, seeds=self.seeds[:n_seeds], options=tuple(words))

    def with_codes(self, labels: Sequence[str], store: ResultStore) -> Spec:
        """The same with lines for codes that were made elsewhere, which `bench score` has stored."""
        runs, words = list(self.runs), list(self.options)
        for label in labels:
            names = (made_elsewhere(label), made_elsewhere(label, supervised=True))
            there = [name for name in names if any(_holds(store, name, dataset, self) for dataset in self.datasets)]
            if not there:
                problem = f"No codes of {self.name} are stored under the label {label!r} in '{store.folder}'"
                raise DataError(f"{problem}; bench score stores them.")
            runs += [Series(label, name, {}) for name in there]
            words += ["--add", label]
        return replace(self, runs=tuple(runs), options=tuple(words))


@dataclass(frozen=True)
class Planned:
    """One run of a specification."""

    series: Series
    settings: RunSettings


def planned(spec: Spec, dataset: DatasetRecord) -> list[Planned]:
    """Every run that the specification asks for on one of its data sets; several can have the same key."""
    stages = dataset.rows.stages(spec.protocols)
    return [
        Planned(series, RunSettings(dataset.fingerprint, series.method, series.params, n_bits, seed, stage))
        for series, n_bits, seed in spec.points()
        for stage in stages
    ]


def _check_only(only: Sequence[str], spec: Spec) -> None:
    """Raise unless every name is a label or a method of a specification."""
    labels = list(dict.fromkeys(series.label for series in spec.runs))
    known = {name.lower(): name for series in spec.runs for name in (series.method, series.label)}
    for name in only:
        if name.lower() not in known:
            near = [known[match] for match in get_close_matches(name.lower(), known, cutoff=0.5)]
            quoted = "; ".join(map(repr, near or labels[:8]))
            rest = f"; and {len(labels) - 8} more" if not near and len(labels) > 8 else ""
            hint = "Did you mean" if near else "It has"
            problem = f"--only must name a method or a label of {spec.name}. Got {name!r} instead."
            raise DataError(f"{problem} {hint}: {quoted}{rest}{'?' if near else '.'}")


def _with_epochs(runs: list[Series], n_epochs: int, name: str) -> list[Series]:
    """The same series, the deep methods among them with other epochs."""
    deep = {series.method for series in runs if not label_of(series.method) and hashers.info(series.method).is_deep}
    if not deep:
        raise DataError(f"No method of {name} learns in epochs, which only deep methods do.")
    epochs = {"epochs": n_epochs}
    return [replace(run, params={**run.params, **epochs}) if run.method in deep else run for run in runs]


def _holds(store: ResultStore, method: str, dataset: DatasetSpec, spec: Spec) -> bool:
    """Whether a store has codes of a method that were made elsewhere for a data set of a specification."""
    record = store.find_dataset(dataset.name, dataset.options)
    if record is None:
        return False
    bits = sorted({b for series in spec.runs for b in spec.bits_of(series)})
    entries = planned(replace(spec, runs=(Series(method, method, {}, bits=tuple(bits)),)), record)
    return any(store.get(entry.settings) is not None for entry in entries)


def check_among(what: str, values: Iterable[Any], allowed: Sequence[Any], name: str) -> None:
    for value in values:
        if value not in allowed:
            raise DataError(f"'{what}' of {name} must be among {', '.join(map(str, allowed))}. Got {value!r} instead.")
