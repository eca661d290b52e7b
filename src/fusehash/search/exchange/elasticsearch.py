"""Documents for the bulk API of Elasticsearch: a `dense_vector` with `"element_type": "bit"`, as hexadecimal digits.

The mappings of the fields; documents have `vector` and `factors` if the index keeps them:

    code     {"type": "dense_vector", "element_type": "bit", "dims": n_bits, "similarity": "l2_norm"}
    vector   {"type": "dense_vector", "dims": dim, "similarity": "cosine"}
    factors  {"type": "float"}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows
from fusehash.search.exchange.rows import ImportedRow, collected, extras, numbers, read_lines, reals, write_lines


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        for block in export.blocks():
            rows = zip(block.ids.tolist(), block.codes, extras(block, ', "NAME": [NUMBERS]'), strict=True)
            for id, code, more in rows:
                yield f'{{"index": {{"_id": "{id}"}}}}'
                yield f'{{"code": "{code.tobytes().hex()}"{more}}}'

    write_lines(file, lines())


def _read(path: Path) -> ImportedRows:
    def rows() -> Iterator[ImportedRow]:
        id: Any = None
        for where, content in read_lines(path):
            if "index" in content or "create" in content:
                action = content.get("index", content.get("create"))
                id = _number(where, action.get("_id") if isinstance(action, dict) else None)
                continue
            if "_source" in content:  # a hit of a search or an export
                id, content = _number(where, content.get("_id")), content["_source"]
            fields = content if isinstance(content, dict) else {}
            numbers_of = {name: reals(where, fields.get(name), name) for name in ("vector", "factors")}
            yield ImportedRow(where, id, _code(where, fields.get("code")), **numbers_of)
            id = None

    return collected(path, rows())


def _number(where: str, id: Any) -> int:
    try:
        return int(id)
    except (TypeError, ValueError):
        raise DataError(f"{where} must have a whole number as its _id. Got {str(id)[:40]!r} instead.") from None


def _code(where: str, value: Any) -> Codes:
    if isinstance(value, str):
        try:
            return np.frombuffer(bytes.fromhex(value), np.uint8)
        except ValueError:
            raise DataError(f"{where} must have hexadecimal digits as its code. Got others.") from None
    return numbers(where, value, -128, 255)  # signed bytes, as Elasticsearch also writes them


ELASTICSEARCH = CodesFormat((".ndjson",), _write, _read, "documents for Elasticsearch")
