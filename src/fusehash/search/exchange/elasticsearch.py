"""Documents for the bulk API of Elasticsearch: a `dense_vector` with `"element_type": "bit"`, as hexadecimal digits.

The mapping of the field: {"type": "dense_vector", "element_type": "bit", "dims": n_bits, "similarity": "l2_norm"}.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, Imported
from fusehash.search.exchange.rows import collected, numbers, read_lines, write_lines


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        for ids, codes in export.blocks():
            for id, code in zip(ids.tolist(), codes, strict=True):
                yield f'{{"index": {{"_id": "{id}"}}}}'
                yield f'{{"code": "{code.tobytes().hex()}"}}'

    write_lines(file, lines())


def _read(path: Path) -> Imported:
    def rows() -> Iterator[tuple[str, object, Codes]]:
        id: Any = None
        for where, content in read_lines(path):
            if "index" in content or "create" in content:
                action = content.get("index", content.get("create"))
                id = _number(where, action.get("_id") if isinstance(action, dict) else None)
                continue
            if "_source" in content:  # a hit of a search or an export
                id, content = _number(where, content.get("_id")), content["_source"]
            yield where, id, _code(where, content.get("code") if isinstance(content, dict) else None)
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
