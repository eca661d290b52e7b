"""Specifications from YAML files, those that ship with fusehash among them; every key and value is checked."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fusehash import hashers, trust
from fusehash.datasets import load, make_paired
from fusehash.errors import DataError
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.ranking import TIES
from fusehash.experiments.methods import NOT_SETTINGS, check_method, label_of, title_of
from fusehash.experiments.spec.plan import DatasetSpec, EmbeddingOptions, Series, Spec, check_among
from fusehash.experiments.store import canonical_json
from fusehash.extras import require
from fusehash.parameters import MAX_BITS, Rule, between, integer, multiple_of, optional

MAX_SEEDS = 10_000
SHIPPED = Path(__file__).parents[1] / "specs"
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
    check_among("ties", [ties], TIES, name)
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
    check_among(what, _list(values, what, name), allowed, name)
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
