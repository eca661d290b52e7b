"""SQL for PostgreSQL with pgvector: a table with a column bit(n). The first bit of a code is the leftmost digit.

Search in it with `SELECT id FROM codes ORDER BY code <~> B'0101...' LIMIT 10`. If the index keeps vectors and factors,
there are columns `vector vector(dim)` and `factors real[2]`; order candidates by `vector <=> '[...]'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fusehash import trust
from fusehash.bits import pack, unpack
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows, reordered
from fusehash.search.exchange.rows import ImportedRow, collected, extras, read_text, reals

_TABLE = "codes"
_ROWS = 500  # per statement
_MAX_DIM = 16_000  # of a column `vector`
_ROW = re.compile(
    r"\(\s*(-?\d{1,19})\s*,\s*B'([01]+)'\s*(?:,\s*'\[([^\]]*)\]'\s*)?(?:,\s*'\{([^}]*)\}'\s*)?\)"
    r'|^(-?\d{1,19})[\t,]([01]+)(?:[\t,]"?\[([^\]]*)\]"?)?(?:[\t,]"?\{([^}]*)\}"?)?$'
)


def _write(file: BinaryIO, export: Export) -> None:
    columns = {"id": "bigint PRIMARY KEY", "code": f"bit({export.n_bits}) NOT NULL"}
    if export.dim is not None:
        if export.dim > _MAX_DIM:
            raise DataError(f"pgvector stores vectors of at most {_MAX_DIM:,} numbers. Those here have {export.dim:,}.")
        columns["vector"] = f"vector({export.dim}) NOT NULL"
    if export.has_factors:
        columns["factors"] = "real[2] NOT NULL"
    text = TextIOWrapper(file, encoding="ascii", newline="\n")
    text.write("CREATE EXTENSION IF NOT EXISTS vector;\n")
    text.write(f"CREATE TABLE {_TABLE} ({', '.join(f'{name} {kind}' for name, kind in columns.items())});\n")
    for block in export.blocks():
        digits = (unpack(reordered(block.codes, export.order), export.n_bits) > 0).astype(np.uint8) + ord("0")
        vectors = extras(block._replace(factors=None), ", '[NUMBERS]'")
        factors = extras(block._replace(vectors=None), ", '{NUMBERS}'")
        rows = [
            f"({id}, B'{row.tobytes().decode()}'{vector}{pair})"
            for id, row, vector, pair in zip(block.ids.tolist(), digits, vectors, factors, strict=True)
        ]
        for start in range(0, len(rows), _ROWS):
            values = ",\n".join(rows[start : start + _ROWS])
            text.write(f"INSERT INTO {_TABLE} ({', '.join(columns)}) VALUES\n{values};\n")
    text.flush()
    text.detach()


def _read(path: Path) -> ImportedRows:
    def rows() -> Iterator[ImportedRow]:
        for number, line in enumerate(read_text(path), start=1):
            where = f"Line {number} of '{path}'"
            for match in _ROW.finditer(line.strip()):
                id, digits, vector, factors = match.groups()[:4] if match[1] else match.groups()[4:]
                if len(digits) % 8:
                    raise DataError(f"{where} must have a code of a multiple of 8 bits. Got {len(digits)} instead.")
                ones = np.frombuffer(digits.encode(), np.uint8) - ord("0")
                code = pack(ones[None])[0]
                yield ImportedRow(
                    where, int(id), code, _list(where, vector, "vector"), _list(where, factors, "factors")
                )

    return collected(path, rows(), "little")


def _list(where: str, text: str | None, name: str) -> NDArray[Any] | None:
    return None if text is None else reals(where, trust.parse_json(f"[{text}]", where), name)


PGVECTOR = CodesFormat((".sql",), _write, _read, "SQL for PostgreSQL with pgvector")
