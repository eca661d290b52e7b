"""Raw results on disk, one file per run, found by their settings: codes, times, objective. Metrics come later.

    RESULTS/datasets/<fingerprint>.safetensors                           labels and rows of a data set
    RESULTS/runs/wiki/fusehash-64bits-seed0-<8 hex>.safetensors          the result of one fit

The hex digits start the key: the SHA-256 of everything that decides a run (`RunSettings`), so that equal runs are never
computed twice and a changed setting never finds an old result. Files are written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash import bits, trust
from fusehash.errors import DataError, ModelFileError, warn
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.protocols import ProtocolRows, StageName
from fusehash.experiments.methods import file_stem, settings_of
from fusehash.files import FileFormat, check_types, make_folder
from fusehash.views import Floats

Arrays: TypeAlias = dict[str, NDArray[Any]]

RUN_FILE = FileFormat("fusehash-run", 3, "run", checked_since=3)
DATASET_FILE = FileFormat("fusehash-dataset", 3, "data set record", checked_since=3)
# In files of format 1, AGSFH and FuseHash were one method with these defaults; preset "paper" was AGSFH.
FORMAT_1_AGSFH: dict[str, Any] = {
    "ablation": None, "affinity_weight": 0.01, "anchors": "random", "approximation_weight": 0.01, "as_printed": False,
    "device": None, "dtype": None, "exact_clusters": False, "feature_map": "auto", "fusion": "mean",
    "graph_weight": "auto", "hash_ridge": "auto", "inner_max_iter": 50, "inner_tol": 0.0001, "kernel_width": "auto",
    "latent_weight": "auto", "max_iter": 20, "missing": "error", "n_anchors": "auto", "n_clusters": "auto",
    "n_kernel_anchors": "auto", "n_neighbors": "auto", "n_refinements": 0, "n_rotation_steps": 50, "nested": None,
    "preset": None, "rank": "auto", "regression_weight": 300.0, "ridge": "auto", "smoothness": 10.0,
    "spectral_power": "auto", "spectrum_rows": 50000, "tol": 1e-05, "view_weights": "auto",
}  # fmt: skip
# Settings that came later, with what they were before: a run with that value has the key that it had.
ADDED_SETTINGS: dict[str, dict[str, Any]] = {"fusehash": {"target": "pairs", "hash_functions": "auto"}}
# Defaults that became "auto", with what they were: a run with "auto" has the key of that, and that another one.
ADDED_AUTO: dict[str, dict[str, Any]] = {"fusehash": {"n_rotation_steps": 50}}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides what a run computes.

    dataset : fingerprint of the data set
    method, params : the method by name and its settings; those that are left out are the method's defaults
    n_bits, seed : length of the codes, random_state of the method
    stage : "train" learns from all training rows, "half" from a seeded half of them (`evaluation.protocols`)
    """

    dataset: str
    method: str
    params: dict[str, Any]
    n_bits: int
    seed: int
    stage: StageName

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the settings, defaults included, so that spelling out a default finds the same run.

        If nothing is random, all seeds are one run; except for "half", whose rows are drawn with the seed.
        """
        defaults, _ = settings_of(self.method)
        return self._digest(self.method, {**defaults, **self.params})

    @property
    def format_1_key(self) -> str:
        """The key of the same run in files of format 1."""
        if self.method not in ("agsfh", "fusehash"):
            return self.key
        settings = {**settings_of(self.method)[0], **self.params}
        if self.method == "agsfh":
            settings["preset"] = "paper"
            settings["ridge"] = self.params.get("ridge", "auto")
        return self._digest("agsfh", {**FORMAT_1_AGSFH, **settings})

    @property
    def file_name(self) -> str:
        """As in fusehash-64bits-seed0-half-0a1b2c3d.safetensors."""
        seed = f"-seed{self.seed}" if self._depends_on_seed else ""
        half = "-half" if self.stage == "half" else ""
        return f"{file_stem(self.method)}-{self.n_bits}bits{seed}{half}-{self.key[:8]}.safetensors"

    @property
    def _depends_on_seed(self) -> bool:
        return self.stage == "half" or settings_of(self.method)[1]

    def _digest(self, method: str, params: dict[str, Any]) -> str:
        added = ADDED_SETTINGS.get(self.method, {})
        params = {name: value for name, value in params.items() if name not in added or value != added[name]}
        for name, value in ADDED_AUTO.get(self.method, {}).items():
            if name in params and params[name] in ("auto", value):
                params[name] = value if params[name] == "auto" else f"{value}, given"
        content = {**asdict(self), "method": method, "params": params}
        if not self._depends_on_seed:
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


@dataclass(frozen=True, eq=False, repr=False)
class RunRecord:
    """The result of one fit.

    codes : packed codes by name (see `evaluation.protocols.StageCodes`)
    objective : value after every iteration, if the method has one
    fit_seconds : of the fit alone, on one core
    encode_seconds : view -> seconds to encode all query rows from it, on one core
    versions : of fusehash and the packages that computed it
    created : ISO time
    warnings : sentences that the method warned of while fitting
    """

    settings: RunSettings
    codes: Arrays
    objective: Floats | None
    fit_seconds: float
    encode_seconds: dict[str, float]
    versions: dict[str, str]
    created: str
    warnings: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"RunRecord({self.settings.file_name})"


@dataclass(frozen=True, eq=False, repr=False)
class DatasetRecord:
    """What metrics need of a data set: labels and rows, not features.

    labels : int64 class numbers (1-d), or a uint8 0/1 matrix
    train, query, database : row numbers
    source, options : the arguments of `datasets.load`; stand_in : whether generated data replaced it
    texts, thumbnails, ends, label_names : for raw data, the caption of every row, JPEG files one after the other with
        the position where each ends, and the names of the labels
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

    def __repr__(self) -> str:
        return f"DatasetRecord({self.name}, {self.n_rows} rows)"

    def thumbnail(self, row: int) -> bytes:
        """The picture of a row as a JPEG file."""
        start = int(self.ends[row - 1]) if row else 0
        return self.thumbnails[start : int(self.ends[row])].tobytes()

    @property
    def views(self) -> list[str]:
        return list(self.n_features)

    @cached_property
    def rows(self) -> ProtocolRows:
        """The rows as the protocols use them."""
        return ProtocolRows(*(rows.astype(np.intp) for rows in (self.train, self.query, self.database)))


def searched(
    record: RunRecord, dataset: DatasetRecord, protocol: str, query_view: str, database_view: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[Any], NDArray[Any]]:
    """Query codes, database codes, query labels and database labels of one protocol and direction."""
    if protocol not in PROTOCOLS:
        raise DataError(f"The protocol must be one of {', '.join(PROTOCOLS)}. Got {protocol!r} instead.")
    settings, stage = record.settings, dataset.rows.stage(protocol)
    if settings.dataset != dataset.fingerprint:
        raise DataError(f"The run must be of data set {dataset.fingerprint[:12]}. It is of another one.")
    if settings.stage != stage:
        raise DataError(f"Protocol {protocol} needs a run of stage '{stage}' here. Got stage '{settings.stage}'.")
    names = (f"query:{query_view}", PROTOCOLS[protocol].code_name(stage, database_view))
    rows = [dataset.rows.coded(name, stage, settings.seed) for name in names]
    for name, expected in zip(names, rows, strict=True):
        if name not in record.codes:
            raise DataError(f"The run must hold the codes '{name}'. It holds: {', '.join(record.codes)}.")
        n_codes = len(record.codes[name])
        if n_codes != len(expected):
            raise DataError(f"The codes '{name}' must be of {len(expected)} rows. Got {n_codes} instead.")
    return record.codes[names[0]], record.codes[names[1]], dataset.labels[rows[0]], dataset.labels[rows[1]]


class ResultStore:
    """A folder of results. Damaged files are named in a warning and count as missing.

    Parameters
    ----------
    folder : str or Path
        Where the files are; created when the first is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The folder of results must be a folder. '{folder}' is a file.")
        for name in ("runs", "datasets"):
            if (self.folder / name).is_symlink():
                raise DataError(f"'{self.folder / name}' must be a folder of its own. It is a link.")
        self._damaged: set[Path] = set()
        self._subfolders: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"ResultStore('{self.folder}')"

    def put(self, record: RunRecord) -> None:
        """Write a run; an earlier one of the same settings stays until the new one is complete."""
        arrays = {f"codes/{name}": codes for name, codes in record.codes.items()}
        if record.objective is not None:
            arrays["objective"] = np.asarray(record.objective, dtype=np.float64)
        facts = {name: value for name, value in vars(record).items() if name not in ("codes", "objective")}
        facts |= {"key": record.settings.key, "settings": asdict(record.settings)}
        name = record.settings.file_name
        path = next(self._runs(name), self._folder_of(record.settings.dataset) / name)
        if path.parent.is_symlink():
            raise DataError(f"'{path.parent}' must be a folder of its own. It is a link.")
        _write(path, RUN_FILE, facts, arrays)

    def get(self, settings: RunSettings) -> RunRecord | None:
        """The run with these settings, or None."""
        names = (settings.file_name, f"{settings.key}.safetensors", f"{settings.format_1_key}.safetensors")
        record = next((self._run(file) for name in names for file in self._runs(name)), None)
        return record if record is not None and record.settings.key == settings.key else None

    def __iter__(self) -> Iterator[RunRecord]:
        yield from (record for record in map(self._run, self._run_files()) if record is not None)

    def __len__(self) -> int:
        return len(self._run_files())

    def _run(self, path: Path) -> RunRecord | None:
        record = self._read(path, RUN_FILE)
        return record if isinstance(record, RunRecord) else None

    def _run_files(self) -> list[Path]:
        files = self._runs("*.safetensors")
        return sorted(file for file in files if re.fullmatch("(.+-[0-9a-f]{8}|[0-9a-f]{64})", file.stem))

    def _runs(self, name: str) -> Iterator[Path]:
        """Files of a name in the folders of runs; what a link leads to does not belong to the store."""
        runs = self.folder / "runs"
        for folder in runs.iterdir() if runs.is_dir() else ():
            if folder.is_dir() and not folder.is_symlink():
                yield from folder.glob(name)

    def _folder_of(self, fingerprint: str) -> Path:
        """The folder of the runs on a data set, named after it."""
        if fingerprint not in self._subfolders:
            dataset = self._dataset(fingerprint)
            self._subfolders[fingerprint] = fingerprint[:12] if dataset is None else slug(dataset.name)
        return self.folder / "runs" / self._subfolders[fingerprint]

    def put_dataset(self, record: DatasetRecord) -> None:
        """Write the labels and rows of a data set."""
        content = {column.name: getattr(record, column.name) for column in fields(record)}
        arrays = {name: value for name, value in content.items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in content.items() if name not in arrays}
        _write(self._dataset_file(record.fingerprint), DATASET_FILE, {**facts, "key": record.fingerprint}, arrays)
        self._subfolders[record.fingerprint] = slug(record.name)

    def dataset(self, fingerprint: str) -> DatasetRecord:
        """The data set with this fingerprint; raise DataError if there is none."""
        record = self._dataset(fingerprint)
        if record is None:
            raise DataError(f"{self.folder} must hold the data set {fingerprint[:12]}. It does not.")
        return record

    def datasets(self) -> list[DatasetRecord]:
        """Every data set, the last used first."""
        files = sorted((self.folder / "datasets").glob("*.safetensors"))
        records = (self._dataset(file.stem) for file in files if re.fullmatch("[0-9a-f]{64}", file.stem))
        return sorted((record for record in records if record is not None), key=lambda record: record.created)[::-1]

    def find_dataset(self, source: str, options: dict[str, Any]) -> DatasetRecord | None:
        """The data set that a specification names: the last used one, real data before a stand-in; None if none."""
        matches = [record for record in self.datasets() if record.source == source and record.options == options]
        return min(matches, key=lambda record: record.stand_in, default=None)

    def _dataset(self, fingerprint: str) -> DatasetRecord | None:
        record = self._read(self._dataset_file(fingerprint), DATASET_FILE)
        return record if isinstance(record, DatasetRecord) else None

    def _dataset_file(self, fingerprint: str) -> Path:
        if not re.fullmatch(r"\w+", fingerprint):
            raise DataError(f"The fingerprint of a data set must be letters and digits. Got {fingerprint[:80]!r}.")
        return self.folder / "datasets" / f"{fingerprint}.safetensors"

    def _read(self, path: Path, kind: FileFormat) -> RunRecord | DatasetRecord | None:
        try:
            return _read(path, kind) if path.is_file() else None
        except ModelFileError as error:
            if path not in self._damaged:
                self._damaged.add(path)
                warn(f"{error} It counts as missing.")
            return None


def _write(path: Path, kind: FileFormat, facts: dict[str, Any], arrays: Arrays) -> None:
    make_folder(path.parent)
    kind.write(path, {"facts": json.dumps(facts, allow_nan=False), "arrays": arrays})


def _read(path: Path, kind: FileFormat) -> RunRecord | DatasetRecord:
    with kind.reading(path, follow_links=False) as (written_as, content):
        if written_as == 1:
            text, arrays = content.documents["facts"], content.arrays
        else:
            text, arrays = content["facts"], content["arrays"]
        facts = json.loads(text)
        trust.check_depth(facts, str(path), ModelFileError)
        key = facts.pop("key")
        if not path.stem.endswith((key, f"-{key[:8]}")):
            raise ValueError("The file is not what its name says.")
        if written_as < 3 and content["sha256"] != _checksum(text, arrays):
            raise ValueError("The file is not what was written.")
        if kind is DATASET_FILE:
            check_types(DatasetRecord, facts | arrays)
            return _checked_dataset(DatasetRecord(**facts | arrays))
        settings = facts.pop("settings")
        if written_as == 1 and settings["method"] == "agsfh" and settings["params"].pop("preset", None) is None:
            settings["method"] = "fusehash"
        check_types(RunSettings, settings)
        objective = arrays.pop("objective", None)
        codes = {name.removeprefix("codes/"): array for name, array in arrays.items()}
        values = {**facts, "settings": RunSettings(**settings), "codes": codes, "objective": objective}
        check_types(RunRecord, values)
        return _checked_run(RunRecord(**values))


def _checked_run(record: RunRecord) -> RunRecord:
    """Raise unless the codes of a run that was read can be compared."""
    _ = record.settings.key  # raises for an unknown method, and for values that JSON cannot hold
    for codes in record.codes.values():
        bits.check_codes(codes, record.settings.n_bits)
    return record


def _checked_dataset(record: DatasetRecord) -> DatasetRecord:
    """Raise unless the rows and labels of a data set that was read belong together."""
    rows = (record.train, record.query, record.database)
    if any(part.ndim != 1 or part.dtype.kind not in "iu" or (part.size and not part.min() >= 0) for part in rows):
        raise ValueError("not the rows of a data set")
    n_rows = len(record.labels)
    if record.labels.ndim not in (1, 2) or any(part.size and part.max() >= n_rows for part in rows):
        raise ValueError("rows that have no label")
    ends, texts = record.ends.astype(np.int64), record.texts
    if ends.ndim != 1 or record.thumbnails.ndim != 1 or record.thumbnails.dtype != np.uint8:
        raise ValueError("not the pictures of a data set")
    if len(ends) not in (0, n_rows) or len(texts) not in (0, n_rows) or (np.diff(ends, prepend=0) < 0).any():
        raise ValueError("texts or pictures of other rows")
    return record


def _checksum(text: str, arrays: Arrays) -> str:
    """Of files up to format 2, which had their own."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def slug(text: str) -> str:
    """Text as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@cache
def versions() -> dict[str, str]:
    """The versions that compute results here."""
    from fusehash.version import __version__

    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    system = {"python": platform.python_version(), "platform": platform.platform()}
    return {"fusehash": __version__, **packages, **system}


def now() -> str:
    """The time as ISO text, to the microsecond: what was written later sorts later."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
