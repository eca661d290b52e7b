"""Rows for Milvus as JSON, as `MilvusClient.insert` and its bulk import take them: a BINARY_VECTOR as its bytes.

rows = json.load(open("codes.milvus.json"))["rows"]
client.insert("codes", [{"id": row["id"], "code": bytes(row["code"])} for row in rows])
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fusehash import trust
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, Imported
from fusehash.search.exchange.rows import collected, numbers, write_lines


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        yield '{"rows": ['
        written = 0
        for ids, codes in export.blocks():
            for id, code in zip(ids.tolist(), codes.tolist(), strict=True):
                written += 1
                yield f'{{"id": {id}, "code": {code}}}' + ("," if written < export.count else "")
        yield "]}"

    write_lines(file, lines())


def _read(path: Path) -> Imported:
    with trust.open_file(path, f"The file {path}") as file:
        content = trust.parse_json(file.read(), f"'{path}'")
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"'{path}' must be a JSON object with a list 'rows' of objects. It is something else.")
    places = ((f"Row {number} of '{path}'", row) for number, row in enumerate(rows))
    return collected(path, ((at, row.get("id"), numbers(at, row.get("code"), 0, 255)) for at, row in places))


MILVUS = CodesFormat((".milvus.json",), _write, _read, "rows for Milvus")
