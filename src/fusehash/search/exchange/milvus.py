"""Rows for Milvus as JSON, as `MilvusClient.insert` and its bulk import take them: a BINARY_VECTOR as its bytes.

rows = json.load(open("codes.milvus.json"))["rows"]
client.insert("codes", [{**row, "code": bytes(row["code"])} for row in rows])

If the index keeps them, rows also have `vector`, a FLOAT_VECTOR, and `factors`, an ARRAY of two FLOAT.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fusehash import trust
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows
from fusehash.search.exchange.rows import ImportedRow, collected, extras, numbers, read_text, reals, write_lines

_FIRST, _LAST = '{"rows": [', "]}"  # lines of the files that are written here; between them is a row per line


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        yield _FIRST
        written = 0
        for block in export.blocks():
            texts = extras(block, ', "NAME": [NUMBERS]')
            for id, code, more in zip(block.ids.tolist(), block.codes.tolist(), texts, strict=True):
                written += 1
                yield f'{{"id": {id}, "code": {code}{more}}}' + ("," if written < export.count else "")
        yield _LAST

    write_lines(file, lines())


def _read(path: Path) -> ImportedRows:
    def rows() -> Iterator[ImportedRow]:
        for where, row in _rows(path):
            if not isinstance(row, dict):
                raise DataError(f"{where} must be a JSON object. Got {type(row).__name__}.")
            numbers_of = {name: reals(where, row.get(name), name) for name in ("vector", "factors")}
            yield ImportedRow(where, row.get("id"), numbers(where, row.get("code"), 0, 255), **numbers_of)

    return collected(path, rows())


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Line by line if the file was written here, since a whole document must be small; else at once."""
    lines = read_text(path)
    if next(lines, "").strip() == _FIRST:
        for number, line in enumerate(lines):
            where = f"Row {number} of '{path}'"
            if line.strip() == _LAST:
                return
            yield where, trust.parse_json(line.strip().removesuffix(","), where)
        raise DataError(f"'{path}' must end with a line {_LAST}. It was cut off.")
    with trust.open_file(path, f"The file {path}") as file:
        content = trust.parse_json(file.read(), f"'{path}'")
    found = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise DataError(f"'{path}' must be a JSON object with a list 'rows' of objects. It is something else.")
    yield from ((f"Row {number} of '{path}'", row) for number, row in enumerate(found))


MILVUS = CodesFormat((".milvus.json",), _write, _read, "rows for Milvus")
