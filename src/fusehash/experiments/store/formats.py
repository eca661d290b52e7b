"""Records as files, of this and all earlier formats; what is read is checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits, trust
from fusehash.errors import ModelFileError
from fusehash.experiments.store.records import Arrays, DatasetRecord, RunRecord
from fusehash.experiments.store.settings import RunSettings
from fusehash.files import FileFormat, check_types, make_folder

RUN_FILE = FileFormat("fusehash-run", 3, "run", checked_since=3)
DATASET_FILE = FileFormat("fusehash-dataset", 3, "data set record", checked_since=3)


def write_file(path: Path, kind: FileFormat, facts: dict[str, Any], arrays: Arrays) -> None:
    make_folder(path.parent)
    kind.write(path, {"facts": json.dumps(facts, allow_nan=False), "arrays": arrays})


def read_file(path: Path, kind: FileFormat) -> RunRecord | DatasetRecord:
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
