"""Raw results on disk, one file a run, found by what was run: codes, times, objective; metrics come later.

    RESULTS/datasets/<fingerprint>.safetensors    labels and rows of a data set
    RESULTS/runs/<key[:2]>/<key>.safetensors      what one fit gave

A key is the SHA-256 of everything that decides a run (`RunSettings`), so that equal runs are never computed twice and a
changed setting never finds an old result. Files are written whole or not at all; no code is ever loaded from them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError, warn
from fusehash.evaluation.protocols import PROTOCOLS, Split, halves
from fusehash.files import write_atomically

Arrays: TypeAlias = dict[str, NDArray[Any]]
Stage: TypeAlias = Literal["train", "half"]

VERSION = 1
# Constructor arguments that are no settings of the method: the run has fields for them, or they do not change codes.
NOT_SETTINGS = ("n_bits", "random_state", "n_threads", "callback")


@cache
def _settings_of(method: str) -> tuple[dict[str, Any], bool]:
    """The default settings of a method, and whether its codes can depend on the seed."""
    from fusehash import hashers

    cls = hashers.get(method)
    defaults = {name: value for name, value in cls().get_params(deep=False).items() if name not in NOT_SETTINGS}
    return defaults, cls.seeded is not False


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides what a run computes.

    dataset : fingerprint of the data set
    method, params : the method by name and its settings; those that are left out are the method's defaults
    n_bits, seed : length of the codes, random_state of the method
    stage : "train" learns from all training rows, "half" from a seeded half of them (`evaluation.protocols.halves`)
    """

    dataset: str
    method: str
    params: dict[str, Any]
    n_bits: int
    seed: int
    stage: Stage

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the settings, defaults included: who writes out a default finds the same run.

        Where nothing is random, all seeds are one run; not so for "half", whose rows are drawn with the seed.
        """
        defaults, seeded = _settings_of(self.method)
        content = {**asdict(self), "params": {**defaults, **self.params}}
        if self.stage == "train" and not seeded:
            del content["seed"]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """JSON that is the same for equal content: sorted keys, and 10.0 is 10."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What one fit gave.

    codes : packed codes by what they are codes of. Stage "train": "unified" (the training rows, as learned),
        "hashed:<view>" (the training rows from one view), "query:<view>"; where the database has rows outside training,
        also "new:fused" and "new:hashed:<view>". Stage "half": "fused" and "hashed:<view>" (the searched half),
        "query:<view>".
    objective : value after every iteration, where the method has one
    fit_seconds : of the fit alone, on one core
    encode_seconds : view -> seconds to encode all query rows from it, on one core
    versions : of what computed it
    created : ISO time
    warnings : sentences that the method said while fitting
    """

    settings: RunSettings
    codes: Arrays
    objective: NDArray[np.float64] | None
    fit_seconds: float
    encode_seconds: dict[str, float]
    versions: dict[str, str]
    created: str
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class DatasetRecord:
    """What metrics need of a data set: labels and rows, not features.

    labels : int64 class numbers (1-d), or a uint8 0/1 matrix
    train, query, database : row numbers
    source, options : what `datasets.load` was asked for; stand_in : generated data took its place
    texts, thumbnails, ends, label_names : of raw data, what a reader can look at: the caption of every row, JPEG files
        one after the other with the place where each ends, and the labels in words
    """

    fingerprint: str
    name: str
    split: str
    labels: NDArray[Any]
    train: NDArray[np.int64]
    query: NDArray[np.int64]
    database: NDArray[np.int64]
    n_features: dict[str, int]
    n_rows: int
    stand_in: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    created: str = ""
    texts: Sequence[str] = ()
    thumbnails: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    ends: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    label_names: Sequence[str] = ()

    def thumbnail(self, row: int) -> bytes:
        """The picture of a row as a JPEG file."""
        start = int(self.ends[row - 1]) if row else 0
        return self.thumbnails[start : int(self.ends[row])].tobytes()

    @property
    def views(self) -> list[str]:
        return list(self.n_features)

    @cached_property
    def new(self) -> NDArray[np.intp]:
        """Database rows that training does not see."""
        return Split(*(rows.astype(np.intp) for rows in (self.train, self.query, self.database))).new

    def searched(self, protocol: str, seed: int) -> NDArray[np.intp]:
        """The rows that a protocol searches; the seed draws the halves of the training rows."""
        train = self.train.astype(np.intp)
        if not PROTOCOLS[protocol].new_items:
            return train
        return self.new if self.new.size else halves(train, seed)[1]

    def stages(self, protocols: Iterable[str]) -> tuple[Stage, ...]:
        """The fits that protocols need: new items need one of their own where the database is the training rows."""
        wanted: set[Stage] = {self.stage(protocol) for protocol in protocols}
        return tuple(stage for stage in ("train", "half") if stage in wanted)

    def stage(self, protocol: str) -> Stage:
        """The fit that a protocol searches."""
        return "half" if PROTOCOLS[protocol].new_items and not self.new.size else "train"


def searched(
    record: RunRecord, dataset: DatasetRecord, protocol: str, query_view: str, database_view: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[Any], NDArray[Any]]:
    """Query codes, database codes, query labels and database labels of one protocol and direction."""
    if protocol not in PROTOCOLS:
        raise DataError(f"The protocol must be one of {', '.join(PROTOCOLS)}. Got {protocol!r} instead.")
    if record.settings.dataset != dataset.fingerprint:
        raise DataError(f"The run must be of data set {dataset.fingerprint[:12]}. It is of another one.")
    rule, stage = PROTOCOLS[protocol], dataset.stage(protocol)
    if record.settings.stage != stage:
        raise DataError(
            f"Protocol {protocol} needs a run of stage '{stage}' here. Got stage '{record.settings.stage}' instead."
        )
    name = f"hashed:{database_view}" if rule.codes == "hashed" else rule.codes
    if rule.new_items and stage == "train":
        name = f"new:{name}"
    rows = dataset.searched(protocol, record.settings.seed)
    codes = [record.codes.get(f"query:{query_view}"), record.codes.get(name)]
    for wanted, found, n_rows in zip(
        (f"query:{query_view}", name), codes, (dataset.query.size, rows.size), strict=True
    ):
        if found is None:
            raise DataError(f"The run must hold the codes '{wanted}'. It holds: {', '.join(record.codes)}.")
        if len(found) != n_rows:
            raise DataError(f"The codes '{wanted}' must be of {n_rows} rows. Got {len(found)} instead.")
    return codes[0], codes[1], dataset.labels[dataset.query], dataset.labels[rows]  # type: ignore[return-value]


class ResultStore:
    """A folder of results. Damaged files are named in a warning and count as missing.

    Parameters
    ----------
    folder : where the files are; made when the first is written
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The folder of results must be a folder. '{folder}' is a file.")
        self._told: set[Path] = set()

    # -- runs ----------------------------------------------------------------------------------------------------

    def put(self, record: RunRecord) -> None:
        """Write a run; an older one of the same settings stays until the new one is complete."""
        arrays = {f"codes/{name}": codes for name, codes in record.codes.items()}
        if record.objective is not None:
            arrays["objective"] = np.asarray(record.objective, dtype=np.float64)
        facts = {
            "key": record.settings.key,
            "settings": asdict(record.settings),
            "fit_seconds": record.fit_seconds,
            "encode_seconds": record.encode_seconds,
            "versions": record.versions,
            "created": record.created,
            "warnings": record.warnings,
        }
        _write(self._run_file(record.settings.key), "fusehash-run", facts, arrays)

    def get(self, key: str) -> RunRecord | None:
        """The run with this key, or None."""
        found = self._read(self._run_file(key), "fusehash-run", key)
        if found is None:
            return None
        facts, arrays = found
        return RunRecord(
            settings=RunSettings(**facts["settings"]),
            codes={name.removeprefix("codes/"): codes for name, codes in arrays.items() if name.startswith("codes/")},
            objective=arrays.get("objective"),
            **{name: facts[name] for name in ("fit_seconds", "encode_seconds", "versions", "created", "warnings")},
        )

    def has(self, key: str) -> bool:
        """Whether there is an intact run with this key."""
        return self.get(key) is not None

    def keys(self) -> list[str]:
        """The keys of all run files."""
        return sorted(file.stem for file in self.folder.glob("runs/*/*.safetensors") if _is_digest(file.stem))

    def __iter__(self) -> Iterator[RunRecord]:
        for key in self.keys():
            record = self.get(key)
            if record is not None:
                yield record

    def __len__(self) -> int:
        return len(self.keys())

    # -- data sets -----------------------------------------------------------------------------------------------

    def put_dataset(self, record: DatasetRecord) -> None:
        """Write the labels and rows of a data set."""
        names = ("labels", "train", "query", "database", "thumbnails", "ends")
        facts = {name: value for name, value in vars(record).items() if name not in (*names, "new")}
        facts["key"] = record.fingerprint
        _write(
            self._dataset_file(record.fingerprint),
            "fusehash-dataset",
            facts,
            {name: getattr(record, name) for name in names},
        )

    def dataset(self, fingerprint: str) -> DatasetRecord:
        """The data set with this fingerprint; DataError where there is none."""
        record = self._dataset(fingerprint)
        if record is None:
            raise DataError(f"{self.folder} must hold the data set {fingerprint[:12]}. It does not.")
        return record

    def datasets(self) -> list[DatasetRecord]:
        """Every data set, the last used first."""
        files = self.folder.glob("datasets/*.safetensors")
        found = [self._dataset(file.stem) for file in sorted(files) if _is_digest(file.stem)]
        return sorted((record for record in found if record is not None), key=lambda record: record.created)[::-1]

    def find_dataset(self, source: str, options: dict[str, Any]) -> DatasetRecord | None:
        """The data set that a specification names: the last used one, real data before a stand-in; None if none."""
        fit = [one for one in self.datasets() if one.source == source and one.options == options]
        return min(fit, key=lambda one: one.stand_in, default=None)

    def _dataset(self, fingerprint: str) -> DatasetRecord | None:
        found = self._read(self._dataset_file(fingerprint), "fusehash-dataset", fingerprint)
        if found is None:
            return None
        facts, arrays = found
        content: dict[str, Any] = {name: value for name, value in facts.items() if name != "key"} | arrays
        return DatasetRecord(**content)

    # -- files ---------------------------------------------------------------------------------------------------

    def _run_file(self, key: str) -> Path:
        return self.folder / "runs" / key[:2] / f"{key}.safetensors"

    def _dataset_file(self, fingerprint: str) -> Path:
        return self.folder / "datasets" / f"{fingerprint}.safetensors"

    def _read(self, path: Path, kind: str, key: str) -> tuple[dict[str, Any], Arrays] | None:
        if not path.is_file():
            return None
        try:
            return _read(path, kind, key)
        except Exception:  # foreign bytes can go wrong in any way
            if path not in self._told:
                self._told.add(path)
                warn(f"{path} is damaged or foreign and counts as missing; it may be deleted.")
            return None


def _write(path: Path, kind: str, facts: dict[str, Any], arrays: Arrays) -> None:
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(facts, allow_nan=False)
    metadata = {"format": kind, "version": str(VERSION), "facts": text, "sha256": _digest(text, whole)}
    content = save(whole, metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(content))


def _read(path: Path, kind: str, key: str) -> tuple[dict[str, Any], Arrays]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts = json.loads(metadata["facts"])
    good = metadata["format"] == kind and int(metadata["version"]) <= VERSION and facts["key"] == key
    if not good or metadata["sha256"] != _digest(metadata["facts"], arrays):
        raise ValueError("not what was written")
    return facts, arrays


def _digest(text: str, arrays: Arrays) -> str:
    """Over everything in a file: a safetensors header alone does not notice a flipped bit."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def _is_digest(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


@cache
def versions() -> dict[str, str]:
    """What computes results here."""
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    from fusehash import __version__

    return {
        "fusehash": __version__,
        **packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def now() -> str:
    """The time as ISO text, to the microsecond: what was written later sorts later."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
