"""Arrow and Parquet: columns `id` and `code`, a fixed number of bytes. The metadata says the order of bits.

If the index keeps them, columns `vector` (lists of int8 or float) and `factors` (two floats).

DuckDB: SELECT id, bit_count(xor(code::BIT, '...'::BIT)) AS distance FROM 'codes.parquet' ORDER BY distance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, ImportedRows, as_ids, unreadable

_KEY, _KIND = b"fusehash.bit_order", b"fusehash.vectors"


def _write(kind: str, file: BinaryIO, export: Export) -> None:
    pa = require("pyarrow", "Writing Arrow and Parquet files")
    code = pa.binary(export.n_bits // 8)
    fields, metadata = [("id", pa.int64()), ("code", code)], {_KEY: export.order.encode()}
    if export.vector_kind is not None:  # float16 as float32, which every reader knows
        fields.append(("vector", pa.list_(pa.int8() if export.vector_kind == "int8" else pa.float32(), export.dim)))
        metadata[_KIND] = export.vector_kind.encode()
    if export.has_factors:
        fields.append(("factors", pa.list_(pa.float32(), 2)))
    schema = pa.schema(fields, metadata)
    writer: Callable[..., Any]
    if kind == "parquet":
        writer = require("pyarrow.parquet", "Writing Parquet files").ParquetWriter
    else:
        writer = require("pyarrow.ipc", "Writing Arrow files").new_file
    with writer(file, schema) as target:
        for block in export.blocks():
            buffers = [None, pa.py_buffer(block.codes.tobytes())]
            columns = [pa.array(block.ids), pa.FixedSizeBinaryArray.from_buffers(code, len(block.ids), buffers)]
            columns += [
                pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
                for matrix in (block.vectors, block.factors)
                if matrix is not None
            ]
            target.write_batch(pa.record_batch(columns, schema=schema))


def _read(kind: str, path: Path) -> ImportedRows:
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
    vectors, factors = (_numbers(pa, table, name, path) for name in ("vector", "factors"))
    if vectors is not None and (table.schema.metadata or {}).get(_KIND) == b"float16":
        vectors = vectors.astype(np.float16)
    return ImportedRows(_codes(pa, table.column("code"), path), ids, order or None, vectors, factors)


def _numbers(pa: Any, table: Any, name: str, path: Path) -> NDArray[Any] | None:
    """A column of lists of equal length as a matrix; None if the table has no such column."""
    if name not in table.column_names:
        return None
    column = table.column(name).combine_chunks()
    types = pa.types
    is_list = any(test(column.type) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list))
    kind = column.type.value_type if is_list else column.type
    if not (is_list and (types.is_floating(kind) or types.is_int8(kind))) or column.null_count:
        expected = f"The column '{name}' in '{path}' must have lists of floats or int8."
        raise DataError(f"{expected} Got {column.type}, or empty ones.")
    values, compute = column.flatten(), require("pyarrow.compute", "Reading Arrow and Parquet files")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or values.null_count:
        raise DataError(f"Lists in the column '{name}' of '{path}' must have one length and no gaps. They differ.")
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0] if lengths else 0)
    return matrix if matrix.dtype == np.int8 else matrix.astype(np.float32)


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
