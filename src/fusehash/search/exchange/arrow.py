"""Arrow and Parquet: columns `id` and `code`, a fixed number of bytes. The metadata says the order of bits.

DuckDB: SELECT id, bit_count(xor(code::BIT, '...'::BIT)) AS distance FROM 'codes.parquet' ORDER BY distance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, Imported, as_ids, unreadable

_KEY = b"fusehash.bit_order"


def _write(kind: str, file: BinaryIO, export: Export) -> None:
    pa = require("pyarrow", "Writing Arrow and Parquet files")
    code = pa.binary(export.n_bits // 8)
    schema = pa.schema([("id", pa.int64()), ("code", code)], {_KEY: export.order.encode()})
    writer: Callable[..., Any]
    if kind == "parquet":
        writer = require("pyarrow.parquet", "Writing Parquet files").ParquetWriter
    else:
        writer = require("pyarrow.ipc", "Writing Arrow files").new_file
    with writer(file, schema) as target:
        for ids, codes in export.blocks():
            content = pa.FixedSizeBinaryArray.from_buffers(code, len(ids), [None, pa.py_buffer(codes.tobytes())])
            target.write_batch(pa.record_batch([pa.array(ids), content], schema=schema))


def _read(kind: str, path: Path) -> Imported:
    pa = require("pyarrow", "Reading Arrow and Parquet files")
    what = "a Parquet file" if kind == "parquet" else "an Arrow file"
    with trust.open_file(path, f"The file {path}") as file:
        try:
            if kind == "parquet":
                table = require("pyarrow.parquet", "Reading Parquet files").read_table(file)
            else:
                table = require("pyarrow.ipc", "Reading Arrow files").open_file(file).read_all()
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, what, error) from error
    if "code" not in table.column_names:
        raise DataError(f"'{path}' must have a column 'code'. It has {', '.join(table.column_names) or 'none'}.")
    order = (table.schema.metadata or {}).get(_KEY, b"").decode("ascii", "replace")
    if order and order not in ORDERS:
        raise DataError(f"The bit order in '{path}' must be big or little. Got {order[:20]!r} instead.")
    ids = None
    if "id" in table.column_names:
        if table.column("id").null_count or not pa.types.is_integer(table.column("id").type):
            raise DataError(f"Ids in '{path}' must be whole numbers. Got {table.column('id').type}, or empty ones.")
        ids = as_ids(table.column("id").to_numpy(), path)
    return Imported(_codes(pa, table.column("code"), path), ids, order or None)


def _codes(pa: Any, column: Any, path: Path) -> Any:
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if not (is_bytes or pa.types.is_fixed_size_binary(column.type)) or column.null_count:
        raise DataError(f"Codes in '{path}' must be bytes. Got {column.type}, or empty ones.")
    values = column.to_pylist() if is_bytes else []
    if is_bytes and len({len(value) for value in values}) > 1:
        raise DataError(f"Codes in '{path}' must have the same number of bytes. They differ.")
    width = len(values[0]) if values else getattr(column.type, "byte_width", 1)
    if is_bytes:
        return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
    parts = [np.empty((0, width), np.uint8)]
    for chunk in column.chunks:
        content = np.frombuffer(chunk.buffers()[1], np.uint8)
        parts.append(content[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(-1, width))
    return np.concatenate(parts)


PARQUET = CodesFormat((".parquet",), partial(_write, "parquet"), partial(_read, "parquet"), "a Parquet file")
ARROW = CodesFormat((".arrow", ".feather"), partial(_write, "arrow"), partial(_read, "arrow"), "an Arrow file")
