"""SQL for PostgreSQL with pgvector: a table with a column bit(n). The first bit of a code is the leftmost digit.

Search in it with `SELECT id FROM codes ORDER BY code <~> B'0101...' LIMIT 10`.
"""

from __future__ import annotations

import re
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fusehash import trust
from fusehash.bits import pack, unpack
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, Imported, reordered

_TABLE = "codes"
_ROWS = 500  # per statement
_ROW = re.compile(r"\(\s*(-?\d{1,19})\s*,\s*B'([01]+)'\s*\)|^(-?\d{1,19})[\t,]([01]+)$")


def _write(file: BinaryIO, export: Export) -> None:
    text = TextIOWrapper(file, encoding="ascii", newline="\n")
    text.write("CREATE EXTENSION IF NOT EXISTS vector;\n")
    text.write(f"CREATE TABLE {_TABLE} (id bigint PRIMARY KEY, code bit({export.n_bits}) NOT NULL);\n")
    for ids, codes in export.blocks():
        digits = (unpack(reordered(codes, export.order), export.n_bits) > 0).astype(np.uint8) + ord("0")
        for start in range(0, len(ids), _ROWS):
            part = slice(start, start + _ROWS)
            rows = (
                f"({id}, B'{row.tobytes().decode()}')" for id, row in zip(ids[part].tolist(), digits[part], strict=True)
            )
            text.write(f"INSERT INTO {_TABLE} (id, code) VALUES\n" + ",\n".join(rows) + ";\n")
    text.flush()
    text.detach()


def _read(path: Path) -> Imported:
    ids: list[int] = []
    digits: list[str] = []
    with trust.open_file(path, f"The file {path}") as file:
        for number, line in enumerate(TextIOWrapper(file, encoding="utf-8", errors="replace"), start=1):
            for match in _ROW.finditer(line.strip()):
                id, bits = (match[1], match[2]) if match[1] else (match[3], match[4])
                if digits and len(bits) != len(digits[0]):
                    raise DataError(
                        f"Codes in '{path}' must have {len(digits[0])} bits. Line {number} has {len(bits)}."
                    )
                ids.append(int(id))
                digits.append(bits)
    if not digits:
        raise DataError(f"'{path}' must have rows such as (1, B'0101...') or 1<tab>0101... It has none.")
    if len(digits[0]) % 8:
        raise DataError(f"Codes in '{path}' must have a multiple of 8 bits. They have {len(digits[0])}.")
    if max(ids) >= 1 << 63 or min(ids) < -(1 << 63):
        raise DataError(f"Ids in '{path}' must be 64-bit integers. Got larger ones.")
    ones = np.frombuffer("".join(digits).encode(), np.uint8).reshape(len(digits), -1) - ord("0")
    return Imported(pack(ones), np.array(ids, np.int64), "little")


PGVECTOR = CodesFormat((".sql",), _write, _read, "SQL for PostgreSQL with pgvector")
