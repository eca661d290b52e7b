"""What to run, as a YAML file: data set, methods, bits, seeds, protocols; checked before anything runs.

title: One line
notes: What a reader should know.                     (optional, as everything below that has a default)
dataset: wiki                                         or {name: ..., options: {...}, stand_in: {...}}, or a list
methods: [fsh, {label: mine, method: agsfh, params: {max_iter: 40}, printed: AGSFH, bits: [64]}, my_package:MyHasher]
sweep: {method: agsfh, bits: [32], over: {lambda: [1, 10], n_anchors: [100, 300]}}
bits: [16, 32, 64, 128]
seeds: 5                                              0 to 4, or a list
protocols: [U, H, HN, FN]
k: 50                                                 or all, or a list of both: a table for each
ties: stable                                          default: expected
sections: [map, times]                                parts of the report
paper: 1                                              the printed table to compare with, or its name (ucch)
embeddings: {k: 10, candidates: 100, queries: 2000, learn: 0.5}     for joint embeddings, see embeddings.py
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any

from fusehash import hashers, trust
from fusehash.datasets import load, make_paired
from fusehash.errors import DataError
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.ranking import TIES
from fusehash.experiments.methods import NOT_SETTINGS, check_method, label_of, made_elsewhere, title_of
from fusehash.experiments.store import DatasetRecord, ResultStore, RunSettings, canonical_json
from fusehash.extras import require
from fusehash.parameters import MAX_BITS, Rule, between, integer, multiple_of, optional

MAX_SEEDS = 10_000
SHIPPED = Path(__file__).parent / "specs"
PAPER_TABLES = (1, 2, 3, 4, 5, 6, 7)
OTHER_TABLES = ("ucch", "dcmh", "djsrh")  # printed in other papers
SECTIONS = ("map", "topn", "pr", "convergence", "sensitivity", "times", "ablation", "examples")
KEYS = (
    "title", "notes", "dataset", "methods", "sweep", "bits", "seeds", "protocols", "k", "ties", "sections", "paper",
    "embeddings",
)  # fmt: skip
METHOD_KEYS = ("label", "method", "params", "printed", "bits")
SWEEP_KEYS = ("method", "params", "bits", "over")
DATASET_KEYS = ("name", "options", "stand_in")
EMBEDDING_KEYS = ("k", "candidates", "queries", "learn")
EMBEDDING_RULES = (integer(1), integer(1), optional(integer(1)), between(0.0, 1.0))
# The paper's symbols of the settings of its method; a sweep can use these or the names of the constructor.
SYMBOLS = {
    "agsfh": {
        "lambda": "regression_weight",
        "gamma_1": "approximation_weight",
        "gamma_2": "smoothness",
        "gamma_3": "affinity_weight",
        "C": "n_clusters",
        "k": "n_neighbors",
        "P": "n_anchors",
    }
}


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
        _among("--bits", bits, sorted({b for series in self.runs for b in self.bits_of(series)}), self.name)
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


def shipped() -> list[str]:
    """Names of the specifications that come with fusehash."""
    return sorted(file.relative_to(SHIPPED).with_suffix("").as_posix() for file in SHIPPED.rglob("*.yaml"))


def load_spec(name_or_path: str | Path, *, allow: Sequence[str] = ()) -> Spec:
    """Read and check a specification: a shipped one by name ("paper/table1"), or a file.

    allow : packages, modules or classes outside fusehash that it may name, as in my_package:MyHasher; they are imported
    """
    require("yaml", "Reading a specification")
    name = str(name_or_path)
    file = SHIPPED / f"{name}.yaml" if name in shipped() else Path(name_or_path)
    if not file.is_file():
        names = ", ".join(shipped())
        raise DataError(f"A specification must be a file, or one of {names}. Got {name!r}, which is neither.")
    subject = f"The specification {name}"
    with trust.open_file(file, subject) as stream:
        text = stream.read(4 * trust.MAX_YAML_BYTES + 1)  # characters have up to four bytes
    try:
        content = trust.parse_yaml(text.decode(), subject)
    except UnicodeDecodeError as error:
        raise DataError(f"{subject} must be a YAML file in UTF-8. It is in another encoding.") from error
    spec = parse_spec(content, name if name in shipped() else file.stem, allow=allow)
    return replace(spec, options=tuple(word for package in allow for word in ("--allow", package)))


def parse_spec(content: Any, name: str, *, allow: Sequence[str] = ()) -> Spec:
    """A specification from plain dictionaries and lists; `allow` as for `load_spec`."""
    entries = _mapping(content, KEYS, f"The specification {name}", needed=("title", "dataset", "bits"))
    methods, datasets = entries.get("methods") or [], entries["dataset"]
    may = tuple(allow)
    runs = [_series(entry, name, may) for entry in _list(methods, "methods", name)] if methods else []
    runs += _sweep(entries["sweep"], name, may) if "sweep" in entries else []
    if not runs:
        raise DataError(f"The specification {name} must list 'methods', or a 'sweep'. It has neither.")
    for label, count in Counter(series.label for series in runs).items():
        if count > 1:
            raise DataError(f"Labels of the specification {name} must differ. Got {label!r} {count} times.")
    datasets = _list(datasets if isinstance(datasets, list) else [datasets], "dataset", name)
    seeds, k = entries.get("seeds", 5), entries.get("k", 50)
    ties, paper = entries.get("ties", "expected"), entries.get("paper")
    first, *more = [_k(value, name) for value in (_list(k, "k", name) if isinstance(k, list) else [k])]
    if paper is not None and paper not in OTHER_TABLES:
        paper = _number(paper, "paper", integer(1, max(PAPER_TABLES), why=f", or {', '.join(OTHER_TABLES)}"), name)
    if not isinstance(seeds, list):
        seeds = list(range(_number(seeds, "seeds", integer(1, MAX_SEEDS, why=", or a list of seeds"), name)))
    _among("ties", [ties], TIES, name)
    return Spec(
        name=name,
        title=_line(entries["title"], "title", name),
        notes=_line(entries.get("notes") or "", "notes", name),
        datasets=tuple(_dataset(entry, name) for entry in datasets),
        runs=tuple(runs),
        bits=_bits(entries["bits"], name),
        seeds=_numbers(seeds, "seeds", integer(), name),
        protocols=_names(entries.get("protocols", list(PROTOCOLS)), "protocols", list(PROTOCOLS), name),
        k=first,
        ties=ties,
        sections=_names(entries.get("sections", ["map"]), "sections", SECTIONS, name),
        paper=paper,
        more_k=tuple(k for k in dict.fromkeys(more) if k != first),
        embeddings=None if "embeddings" not in entries else _embeddings(entries["embeddings"], name),
    )


def _embeddings(entry: Any, name: str) -> EmbeddingOptions:
    what = f"'embeddings' of {name}"
    options = EmbeddingOptions(**_mapping(entry, EMBEDDING_KEYS, what))
    for key, rule in zip(EMBEDDING_KEYS, EMBEDDING_RULES, strict=True):
        if not rule.accepts(getattr(options, key)):
            raise DataError(f"'{key}' of {what} must be {rule.expected}. Got {getattr(options, key)!r} instead.")
    if options.candidates < options.k:
        raise DataError(f"'candidates' of {what} must be at least k, {options.k}. Got {options.candidates} instead.")
    return options


def _series(entry: Any, name: str, allow: tuple[str, ...]) -> Series:
    what = f"A method of {name}"
    entries = {"method": entry} if isinstance(entry, str) else _mapping(entry, METHOD_KEYS, what, needed=("method",))
    method, params, bits = _method(entries, name, allow)
    title = title_of(method)
    printed = entries.get("printed", "" if params else title) or ""
    return Series(str(entries.get("label") or title), method, params, printed=str(printed), bits=bits)


def _sweep(entry: Any, name: str, allow: tuple[str, ...]) -> list[Series]:
    """One series for every value of every swept setting; the others are held."""
    entries = _mapping(entry, SWEEP_KEYS, f"The sweep of {name}", needed=("method", "over"))
    method, params, bits = _method(entries, name, allow)
    if not isinstance(entries["over"], dict) or not entries["over"]:
        raise DataError(f"The sweep of {name} must name settings and their values. Got {entries['over']!r} instead.")
    points = []
    for group, values in entries["over"].items():
        param = SYMBOLS.get(method, {}).get(str(group), str(group))
        _check_params(method, {param: None}, name)
        for value in _list(values, f"values of {group}", name):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise DataError(f"Values of the swept '{group}' in {name} must be numbers. Got {value!r} instead.")
            _check_params(method, {param: value}, name)
            label = f"{title_of(method)}, {group} = {value:g}"
            points.append(Series(label, method, {**params, param: value}, str(group), float(value), bits=bits))
    return points


def _dataset(entry: Any, name: str) -> DatasetSpec:
    what = f"A data set of {name}"
    entries: dict[str, Any] = {"name": entry} if isinstance(entry, str) else _mapping(entry, DATASET_KEYS, what)
    if not isinstance(entries.get("name"), str):
        raise DataError(f"{what} must have a 'name'. It has: {', '.join(entries) or 'nothing'}.")
    for key, function in (("options", load), ("stand_in", make_paired)):
        allowed = [param for param in inspect.signature(function).parameters if param not in ("name", "path")]
        _mapping(entries.get(key) or {}, allowed, f"'{key}' of data set {entries['name']} in {name}")
    return DatasetSpec(entries["name"], dict(entries.get("options") or {}), entries.get("stand_in"))


def _method(entries: dict[str, Any], name: str, allow: tuple[str, ...]) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    """The method, settings and bits of an entry."""
    method, params = check_method(entries["method"], allow, name), entries.get("params") or {}
    if params and label_of(method):
        raise DataError(f"Codes that were made elsewhere have no 'params'. {name} has some for {method!r}.")
    if params:  # without any, the class need not be imported
        _check_params(method, params, name)
    return method, dict(params), _bits(entries["bits"], name) if "bits" in entries else ()


def _check_params(method: str, params: Any, name: str) -> None:
    cls, what = hashers.get(method), f"'params' of {method} in {name}"
    allowed = [param for param in cls._get_param_names() if param not in NOT_SETTINGS]
    for param in _mapping(params, [*allowed, *cls.REMOVED], what):
        if param in cls.REMOVED:
            raise DataError(f"{what} has no key {param!r} any more: {cls.REMOVED[param]}.")
    try:
        canonical_json(params)
    except ValueError as error:
        raise DataError(f"{what} must be finite numbers, text or lists of them. Got {params!r} instead.") from error


def _k(value: Any, name: str) -> int | None:
    return None if value in (None, "all") else _number(value, "k", integer(1, why=", or all"), name)


def _bits(values: Any, name: str) -> tuple[int, ...]:
    return _numbers(values, "bits", multiple_of(8, MAX_BITS), name)


def _numbers(values: Any, what: str, rule: Rule, name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_number(value, what, rule, name) for value in _list(values, what, name)))


def _number(value: Any, what: str, rule: Rule, name: str) -> int:
    if not rule.accepts(value):
        raise DataError(f"'{what}' of {name} must be {rule.expected}. Got {value!r} instead.")
    return int(value)


def _names(values: Any, what: str, allowed: Sequence[str], name: str) -> tuple[str, ...]:
    _among(what, _list(values, what, name), allowed, name)
    return tuple(dict.fromkeys(values))


def _line(value: Any, what: str, name: str) -> str:
    if not isinstance(value, str | int | float):
        raise DataError(f"'{what}' of {name} must be text. Got {value!r} instead.")
    return " ".join(str(value).split())


def _mapping(entries: Any, allowed: Sequence[str], what: str, needed: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(entries, dict):
        raise DataError(f"{what} must be a list of keys and values. Got {entries!r} instead.")
    for key in entries:
        if key not in allowed:
            raise DataError(f"{what} may have the keys {', '.join(allowed)}. Got {key!r} instead.")
    for key in needed:
        if key not in entries:
            raise DataError(f"{what} must have the key '{key}'. It has: {', '.join(entries)}.")
    return entries


def _list(values: Any, what: str, name: str) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise DataError(f"'{what}' of {name} must be a list that is not empty. Got {values!r} instead.")
    return values


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


def _among(what: str, values: Iterable[Any], allowed: Sequence[Any], name: str) -> None:
    for value in values:
        if value not in allowed:
            raise DataError(f"'{what}' of {name} must be among {', '.join(map(str, allowed))}. Got {value!r} instead.")
