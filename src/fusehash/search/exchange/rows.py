"""JSON with one object per code: what Milvus, Qdrant and Elasticsearch take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusehash import trust
from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.exchange.codes import ExportedRows, ImportedRows


def write_lines(file: BinaryIO, lines: Iterable[str]) -> None:
    """Write lines of text."""
    text = TextIOWrapper(file, encoding="utf-8", newline="\n")
    for line in lines:
        text.write(line + "\n")
    text.flush()
    text.detach()


def read_text(path: Path) -> Iterator[str]:
    """The lines of a file."""
    with (
        trust.open_file(path, f"The file {path}") as file,
        TextIOWrapper(file, encoding="utf-8", errors="replace") as text,  # closed also if not all lines are asked for
    ):
        yield from text


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, object) of every line that is not empty."""
    for number, line in enumerate(read_text(path), start=1):
        if line.strip():
            where = f"Line {number} of '{path}'"
            content = trust.parse_json(line, where)
            if not isinstance(content, dict):
                raise DataError(f"{where} must be a JSON object. Got {type(content).__name__}.")
            yield where, content


class ImportedRow(NamedTuple):
    """One row that was read; `where` begins sentences about it."""

    where: str
    id: Any
    code: Codes
    vector: NDArray[Any] | None = None
    factors: NDArray[Any] | None = None


def collected(path: Path, rows: Iterable[ImportedRow], order: str | None = None) -> ImportedRows:
    """The rows of a file as arrays; all of them have vectors and factors, or none."""
    ids: list[int] = []
    codes: list[Codes] = []
    vectors: list[NDArray[Any] | None] = []
    factors: list[NDArray[Any] | None] = []
    for where, id, code, vector, pair in rows:
        if isinstance(id, bool) or not isinstance(id, int) or not -(1 << 63) <= id < 1 << 63:
            raise DataError(f"{where} must have a 64-bit integer as its id. Got {str(id)[:40]!r} instead.")
        if codes and len(code) != len(codes[0]):
            raise DataError(f"{where} must have a code of {len(codes[0])} bytes. Got {len(code)} instead.")
        for values, others, name in ((vector, vectors, "vector"), (pair, factors, "factors")):
            _check_alike(where, name, values, others)
            others.append(values)
        ids.append(id)
        codes.append(code)
    if not codes:
        raise DataError(f"'{path}' must hold codes. It holds none.")
    return ImportedRows(np.array(codes, np.uint8), np.array(ids, np.int64), order, _joined(vectors), _joined(factors))


def _check_alike(where: str, name: str, values: NDArray[Any] | None, others: list[NDArray[Any] | None]) -> None:
    """Raise if a row has something that the first one has not, or numbers of another count."""
    lengths = [None if v is None else len(v) for v in (*others[:1], values)]
    if lengths[0] != lengths[-1]:
        expected = f"{lengths[0] or 'no'} numbers as its {name}, as the rows before it"
        raise DataError(f"{where} must have {expected}. Got {lengths[-1] or 'none'} instead.")


def _joined(rows: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Rows as a matrix in single precision; None if there are none."""
    present = [row for row in rows if row is not None]
    return np.array(present, np.float32) if present else None


def extras(block: ExportedRows, pattern: str) -> list[str]:
    """What follows a code in the text of a row: its vector and its factors, each put into `pattern` with its name."""
    texts = [""] * len(block.ids)
    for name, matrix in (("vector", block.vectors), ("factors", block.factors)):
        if matrix is not None:
            number = "%d" if matrix.dtype.kind == "i" else "%.9g"  # nine digits are all of single precision
            row = pattern.replace("NAME", name).replace("NUMBERS", ",".join([number] * matrix.shape[1]))
            texts = [text + row % tuple(values) for text, values in zip(texts, matrix.tolist(), strict=True)]
    return texts


def reals(where: str, values: Any, name: str) -> NDArray[Any] | None:
    """A list of finite numbers as an array of whole numbers or of floats in single precision; None if there is none."""
    if values is None:
        return None
    array = np.asarray(values if isinstance(values, list) and set(map(type, values)) <= {int, float} else None)
    if array.ndim != 1 or array.dtype.kind not in "if" or not len(array):
        raise DataError(f"{where} must have a list of numbers as its {name}. Got something else.")
    if not (np.abs(array, dtype=np.float64) <= np.finfo(np.float32).max).all():
        raise DataError(f"{where} must have finite numbers in single precision as its {name}. Got others.")
    return array


def numbers(where: str, values: Any, low: int, high: int) -> Codes:
    """Whole numbers from `low` to `high` as an array."""
    array = np.asarray(values if isinstance(values, list) else None)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or np.any(array != np.trunc(array)):
        raise DataError(f"{where} must have a list of whole numbers as its code. Got something else.")
    if not len(array) or array.min() < low or array.max() > high:
        raise DataError(f"{where} must have numbers from {low} to {high} as its code. Got others.")
    return array.astype(np.int64).astype(np.uint8)
