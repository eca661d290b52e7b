"""Results of runs and what metrics need of a data set, in memory."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.protocols import ProtocolRows
from fusehash.experiments.store.settings import RunSettings
from fusehash.views import Floats

Arrays: TypeAlias = dict[str, NDArray[Any]]


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
