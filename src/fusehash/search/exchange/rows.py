"""JSON with one object per code: what Milvus, Qdrant and Elasticsearch take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.exchange.codes import Imported


def write_lines(file: BinaryIO, lines: Iterable[str]) -> None:
    """Write lines of text."""
    text = TextIOWrapper(file, encoding="utf-8", newline="\n")
    for line in lines:
        text.write(line + "\n")
    text.flush()
    text.detach()


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, object) of every line that is not empty."""
    with trust.open_file(path, f"The file {path}") as file:
        for number, line in enumerate(TextIOWrapper(file, encoding="utf-8", errors="replace"), start=1):
            if line.strip():
                where = f"Line {number} of '{path}'"
                content = trust.parse_json(line, where)
                if not isinstance(content, dict):
                    raise DataError(f"{where} must be a JSON object. Got {type(content).__name__}.")
                yield where, content


def collected(path: Path, rows: Iterable[tuple[str, Any, Codes]], order: str | None = None) -> Imported:
    """Codes from (where, id, code) of every row."""
    ids: list[int] = []
    codes: list[Codes] = []
    for where, id, code in rows:
        if isinstance(id, bool) or not isinstance(id, int) or not -(1 << 63) <= id < 1 << 63:
            raise DataError(f"{where} must have a 64-bit integer as its id. Got {str(id)[:40]!r} instead.")
        if codes and len(code) != len(codes[0]):
            raise DataError(f"{where} must have a code of {len(codes[0])} bytes. Got {len(code)} instead.")
        ids.append(id)
        codes.append(code)
    if not codes:
        raise DataError(f"'{path}' must hold codes. It holds none.")
    return Imported(np.array(codes, np.uint8), np.array(ids, np.int64), order)


def numbers(where: str, values: Any, low: int, high: int) -> Codes:
    """Whole numbers from `low` to `high` as an array."""
    array = np.asarray(values if isinstance(values, list) else None)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or np.any(array != np.trunc(array)):
        raise DataError(f"{where} must have a list of whole numbers as its code. Got something else.")
    if not len(array) or array.min() < low or array.max() > high:
        raise DataError(f"{where} must have numbers from {low} to {high} as its code. Got others.")
    return array.astype(np.int64).astype(np.uint8)
