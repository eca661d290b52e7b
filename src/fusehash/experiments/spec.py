"""What to run, as a file of YAML: data set, methods, bits, seeds, protocols; checked before anything runs.

title: One line
notes: What a reader should know.                     (optional, as everything below that has a default)
dataset: wiki                                         or {name: ..., options: {...}, stand_in: {...}}, or a list
methods: [fsh, {label: mine, method: agsfh, params: {max_iter: 40}, printed: AGSFH, bits: [64]}]
sweep: {method: agsfh, bits: [32], over: {lambda: [1, 10], n_anchors: [100, 300]}}
bits: [16, 32, 64, 128]
seeds: 5                                              0 to 4, or a list
protocols: [U, H, HN, FN]
k: 50                                                 or all
ties: stable                                          default: expected
sections: [map, times]                                parts of the report that make sense
paper: 1                                              the printed table to compare with
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusehash.errors import DataError
from fusehash.experiments.store import NOT_SETTINGS, DatasetRecord, RunSettings

SHIPPED = Path(__file__).parent / "specs"
SECTIONS = ("map", "topn", "pr", "convergence", "sensitivity", "times", "ablation", "examples")
KEYS = (
    "title", "notes", "dataset", "methods", "sweep", "bits", "seeds", "protocols", "k", "ties", "sections", "paper",
)  # fmt: skip
METHOD_KEYS = ("label", "method", "params", "printed", "bits")
SWEEP_KEYS = ("method", "params", "bits", "over")
DATASET_KEYS = ("name", "options", "stand_in")
# What the paper calls the settings of its method; a sweep may use these names or the constructor's.
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
    """A data set by what `datasets.load` calls it (a name, or a file in the data folder) and its options.

    stand_in : arguments of `datasets.make_paired` for generated data of the same shape, used only when asked for
    """

    name: str
    options: dict[str, Any]
    stand_in: dict[str, Any] | None = None


@dataclass(frozen=True)
class Series:
    """One line of a table, or one point of a sweep.

    label : what tables call it
    method, params : the method by name, its settings where they are not the defaults
    group, x : of a sweep, the swept setting as the file names it ("lambda") and its value; else "" and None
    printed : the row of the printed table that it is to be compared with; "" for none
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
class Spec:
    """A checked specification; the top of this file says what its parts mean.

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
    paper: int | None

    @property
    def dataset(self) -> DatasetSpec:
        """The data set, or the first of several."""
        return self.datasets[0]

    @property
    def lines(self) -> tuple[Series, ...]:
        """The lines of tables: everything but the points of sweeps."""
        return tuple(series for series in self.runs if not series.group)

    def bits_of(self, series: Series) -> tuple[int, ...]:
        """The code lengths that a series runs with."""
        return series.bits or self.bits

    def points(self) -> Iterator[tuple[Series, int, int]]:
        """Every (series, bits, seed)."""
        for series in self.runs:
            for n_bits in self.bits_of(series):
                for seed in self.seeds:
                    yield series, n_bits, seed

    def narrowed(self, only: Sequence[str] = (), bits: Sequence[int] = (), n_seeds: int | None = None) -> Spec:
        """The same with some methods (by name or label), some bits, the first seeds."""
        known = {name.lower() for series in self.runs for name in (series.label, series.method)}
        _known("--only", [name.lower() for name in only], sorted(known), self.name)
        _known("--bits", bits, sorted({b for series in self.runs for b in self.bits_of(series)}), self.name)
        if n_seeds is not None and not 1 <= n_seeds <= len(self.seeds):
            raise DataError(f"{self.name} has {len(self.seeds)} seeds. Got {n_seeds} instead.")
        wanted = {name.lower() for name in only}
        runs = [one for one in self.runs if not wanted or {one.label.lower(), one.method.lower()} & wanted]
        if bits:
            runs = [replace(one, bits=tuple(b for b in self.bits_of(one) if b in bits)) for one in runs]
        runs = [one for one in runs if self.bits_of(one) and (one.bits or not bits)]
        if not runs:
            raise DataError(f"Nothing of {self.name} is left with these methods and bits.")
        left = tuple(b for b in self.bits if not bits or b in bits) or tuple(sorted({b for r in runs for b in r.bits}))
        return replace(self, runs=tuple(runs), bits=left, seeds=self.seeds[:n_seeds])


@dataclass(frozen=True)
class Planned:
    """One run of a specification."""

    series: Series
    settings: RunSettings


def planned(spec: Spec, dataset: DatasetRecord) -> list[Planned]:
    """Every run that the specification asks for on one of its data sets; several can have the same key."""
    stages = dataset.stages(spec.protocols)
    return [
        Planned(series, RunSettings(dataset.fingerprint, series.method, series.params, n_bits, seed, stage))
        for series, n_bits, seed in spec.points()
        for stage in stages
    ]


def shipped() -> list[str]:
    """Names of the specifications that come with fusehash."""
    return sorted(file.relative_to(SHIPPED).with_suffix("").as_posix() for file in SHIPPED.rglob("*.yaml"))


def load_spec(name_or_path: str | Path) -> Spec:
    """Read and check a specification: a shipped one by name ("paper/table1"), or a file."""
    try:
        import yaml
    except ImportError as error:
        raise DataError(
            "Reading a specification needs the package PyYAML. Install it with: pip install 'fusehash[bench]'"
        ) from error
    given = str(name_or_path)
    file = SHIPPED / f"{given}.yaml" if given in shipped() else Path(name_or_path)
    if not file.is_file():
        raise DataError(
            f"A specification must be a file, or one of {', '.join(shipped())}. Got {given!r}, which is neither."
        )
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise DataError(f"The specification {given} must be a file of YAML. It cannot be read{where}.") from error
    return parse_spec(content, given if given in shipped() else file.stem)


def parse_spec(content: Any, name: str) -> Spec:
    """A specification from plain dictionaries and lists."""
    given = _mapping(content, KEYS, f"The specification {name}")
    for needed in ("title", "dataset", "bits"):
        if needed not in given:
            raise DataError(f"The specification {name} must have the key '{needed}'. It has: {', '.join(given)}.")
    bits = _bits(given["bits"], name)
    runs = [_series(entry, name) for entry in _list(given.get("methods", []), "methods", name)]
    runs += _sweep(given["sweep"], name) if "sweep" in given else []
    if not runs:
        raise DataError(f"The specification {name} must list 'methods', or a 'sweep'. It has neither.")
    labels = [series.label for series in runs]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"Labels of the specification {name} must differ. Got {twice!r} twice.")
    sets = given["dataset"] if isinstance(given["dataset"], list) else [given["dataset"]]
    if not sets:
        raise DataError(f"The specification {name} must name a data set. The list is empty.")
    return Spec(
        name=name,
        title=_line(given["title"], "title", name),
        notes=_line(given.get("notes") or "", "notes", name),
        datasets=tuple(_dataset(entry, name) for entry in sets),
        runs=tuple(runs),
        bits=bits,
        seeds=_seeds(given.get("seeds", 5), name),
        protocols=_protocols(given.get("protocols", ["U", "H", "HN", "FN"]), name),
        k=_k(given.get("k", 50), name),
        ties=_ties(given.get("ties", "expected"), name),
        sections=_sections(given.get("sections", ["map"]), name),
        paper=_paper(given.get("paper"), name),
    )


def _series(entry: Any, name: str) -> Series:
    given = {"method": entry} if isinstance(entry, str) else _mapping(entry, METHOD_KEYS, f"A method of {name}")
    if "method" not in given:
        raise DataError(f"A method of {name} must have the key 'method'. It has: {', '.join(given)}.")
    method = _method(given["method"], name)
    params = _params(method, given.get("params") or {}, name)
    title = _title(method)
    return Series(
        label=str(given.get("label") or title),
        method=method,
        params=params,
        printed=str(given.get("printed", "" if params else title) or ""),
        bits=_bits(given["bits"], name) if "bits" in given else (),
    )


def _sweep(entry: Any, name: str) -> list[Series]:
    """One series for every value of every swept setting; all else as given."""
    given = _mapping(entry, SWEEP_KEYS, f"The sweep of {name}")
    for needed in ("method", "over"):
        if needed not in given:
            raise DataError(f"The sweep of {name} must have the key '{needed}'. It has: {', '.join(given)}.")
    method = _method(given["method"], name)
    params = _params(method, given.get("params") or {}, name)
    bits = _bits(given["bits"], name) if "bits" in given else ()
    if not isinstance(given["over"], dict) or not given["over"]:
        raise DataError(f"The sweep of {name} must name settings and their values. Got {given['over']!r} instead.")
    points = []
    for group, values in given["over"].items():
        param = SYMBOLS.get(method, {}).get(str(group), str(group))
        _params(method, {param: None}, name)
        for value in _list(values, f"values of {group}", name):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise DataError(f"Values of the swept '{group}' in {name} must be numbers. Got {value!r} instead.")
            label = f"{_title(method)}, {group} = {value:g}"
            points.append(Series(label, method, {**params, param: value}, str(group), float(value), bits=bits))
    return points


def _dataset(entry: Any, name: str) -> DatasetSpec:
    from fusehash.datasets import load, make_paired

    given: dict[str, Any]
    given = {"name": entry} if isinstance(entry, str) else _mapping(entry, DATASET_KEYS, f"A data set of {name}")
    if not isinstance(given.get("name"), str):
        raise DataError(f"A data set of {name} must have a 'name'. It has: {', '.join(given) or 'nothing'}.")
    taken = {
        key: list(inspect.signature(call).parameters) for key, call in (("options", load), ("stand_in", make_paired))
    }
    for key in ("options", "stand_in"):
        allowed = [word for word in taken[key] if word not in ("name", "path")]
        _mapping(given.get(key) or {}, allowed, f"'{key}' of data set {given['name']} in {name}")
    return DatasetSpec(given["name"], dict(given.get("options") or {}), given.get("stand_in"))


def _method(given: Any, name: str) -> str:
    from fusehash import hashers

    if given not in hashers.names():
        raise DataError(f"Methods of {name} must be among {', '.join(hashers.names())}. Got {given!r} instead.")
    return str(given)


def _title(method: str) -> str:
    from fusehash import hashers

    return hashers.info(method).title


def _params(method: str, given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise DataError(f"'params' of {method} in {name} must be names and values. Got {given!r} instead.")
    if given:  # without any, the class need not be imported
        from fusehash import hashers

        known = [param for param in hashers.get(method)._get_param_names() if param not in NOT_SETTINGS]
        _mapping(given, known, f"'params' of {method} in {name}")
    return dict(given)


def _bits(given: Any, name: str) -> tuple[int, ...]:
    found = _list(given, "bits", name)
    if not found or any(isinstance(b, bool) or not isinstance(b, int) or b <= 0 or b % 8 for b in found):
        raise DataError(f"'bits' of {name} must be positive multiples of 8. Got {given!r} instead.")
    return tuple(dict.fromkeys(found))


def _seeds(given: Any, name: str) -> tuple[int, ...]:
    seeds = list(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given
    if (
        not isinstance(seeds, list)
        or not seeds
        or any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in seeds)
    ):
        raise DataError(f"'seeds' of {name} must be a number of seeds, or a list of seeds >= 0. Got {given!r} instead.")
    return tuple(dict.fromkeys(seeds))


def _protocols(given: Any, name: str) -> tuple[str, ...]:
    from fusehash.evaluation import PROTOCOLS

    _known("protocols", _list(given, "protocols", name), list(PROTOCOLS), name)
    return tuple(dict.fromkeys(given))


def _sections(given: Any, name: str) -> tuple[str, ...]:
    _known("sections", _list(given, "sections", name), SECTIONS, name)
    return tuple(dict.fromkeys(given))


def _k(given: Any, name: str) -> int | None:
    if given is None or given == "all":
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise DataError(f"'k' of {name} must be a whole number of at least 1, or all. Got {given!r} instead.")
    return given


def _ties(given: Any, name: str) -> str:
    from fusehash.evaluation.checks import TIES

    _known("ties", [given], TIES, name)
    return str(given)


def _paper(given: Any, name: str) -> int | None:
    from fusehash.experiments.published import TABLES

    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int):
        raise DataError(f"'paper' of {name} must be the number of a printed table. Got {given!r} instead.")
    _known("paper", [given], TABLES, name)
    return given


def _line(given: Any, what: str, name: str) -> str:
    if not isinstance(given, str | int | float):
        raise DataError(f"'{what}' of {name} must be text. Got {given!r} instead.")
    return " ".join(str(given).split())


def _mapping(given: Any, allowed: Iterable[str], what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise DataError(f"{what} must be a list of keys and values. Got {given!r} instead.")
    for key in given:
        if key not in allowed:
            raise DataError(f"{what} may have the keys {', '.join(allowed)}. Got {key!r} instead.")
    return given


def _list(given: Any, what: str, name: str) -> list[Any]:
    if not isinstance(given, list):
        raise DataError(f"'{what}' of {name} must be a list. Got {given!r} instead.")
    return given


def _known(what: str, given: Sequence[Any], allowed: Sequence[Any], name: str) -> None:
    for entry in given:
        if entry not in allowed:
            raise DataError(f"'{what}' of {name} must be among {', '.join(map(str, allowed))}. Got {entry!r} instead.")
    if not given and what in ("protocols", "sections"):
        raise DataError(f"'{what}' of {name} must not be empty.")
