"""A folder of results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.errors import DataError, ModelFileError, warn
from fusehash.experiments.store.formats import DATASET_FILE, RUN_FILE, read_file, write_file
from fusehash.experiments.store.records import DatasetRecord, RunRecord
from fusehash.experiments.store.settings import RunSettings
from fusehash.files import FileFormat


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
        write_file(path, RUN_FILE, facts, arrays)

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
        write_file(self._dataset_file(record.fingerprint), DATASET_FILE, {**facts, "key": record.fingerprint}, arrays)
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
            return read_file(path, kind) if path.is_file() else None
        except ModelFileError as error:
            if path not in self._damaged:
                self._damaged.add(path)
                warn(f"{error} It counts as missing.")
            return None


def slug(text: str) -> str:
    """Text as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
