"""Parquet files, copied to a temporary `.npy` file once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.streams.npy import spool
from fusehash.streams.parquet.pages import check_pages
from fusehash.streams.stored import PIECE_BYTES, Matrix, StoredMatrix, check_exists, unreadable

PARQUET = (".parquet", ".pq")
INDEX_COLUMN = "__index_level_"  # what pandas calls an index without a name


def open_parquet(path: Path, columns: Sequence[str] | None = None) -> StoredMatrix:
    """One Parquet file, or a folder of them in the order of their names. A null is NaN."""
    files = _parquet_files(path)
    source = f"The Parquet {'file' if files == [path] else 'folder'} {path.name}"
    names = {file.name: _numeric_columns(file, columns) for file in files}
    for name, others in names.items():
        if others != names[files[0].name]:
            raise DataError(f"Every file of {source} must have the same columns. {name} differs from {files[0].name}.")
    matrix = spool(({"": batch} for batch in _batches(files, names[files[0].name], source)), source)[""]
    matrix.source = source
    return matrix


def _parquet_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder."""
    check_exists(path)
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in PARQUET and not file.is_dir())
    files = [file for file in files if not file.name.startswith((".", "_"))]
    if not files:
        raise DataError(f"The folder {path.name} must hold .parquet files. It has none.")
    for file in files:
        trust.open_file(file, f"The file {file.name} of {path.name}", follow_links=False).close()
    return files


@contextmanager
def _parquet_reader(path: Path, names: list[str] | None = None) -> Iterator[Any]:
    """A reader of a file, of which the pages of some columns are checked; whatever goes wrong is one sentence."""
    parquet = require("pyarrow.parquet", "Reading Parquet files")
    with trust.open_file(path, f"The file {path.name}") as file:
        try:
            with parquet.ParquetFile(path.absolute(), pre_buffer=False, buffer_size=2**20) as reader:
                if names is not None:
                    check_pages(file, names, path.name)
                yield reader
        except Exception as error:  # pyarrow raises all sorts of errors
            if isinstance(error, DataError):
                raise
            raise unreadable(f"{path.name} must be an intact Parquet file. It", error) from error


def _numeric_columns(path: Path, columns: Sequence[str] | None) -> list[str]:
    """The columns that make the matrix: numbers, or one column of lists of numbers."""
    from pyarrow import types

    with _parquet_reader(path) as reader:
        kinds = _column_types(reader)
        counts = Counter(reader.schema_arrow.names)
        names = [name for name in kinds if not name.startswith(INDEX_COLUMN)]
        names = names if columns is None else list(columns)
        missing = [name for name in names if name not in kinds]
        if missing or not names:
            listed = ", ".join(map(repr, list(kinds)[:20])) + (" and more" if len(kinds) > 20 else "")
            raise DataError(f"{path.name} must have the column {(missing or ['of numbers'])[0]!r}. Got {listed}.")
        if len(set(names)) < len(names) or any(counts[name] > 1 for name in names):
            raise DataError(f"{path.name} must have columns of different names. Some have the same.")
        for name in names:
            kind = kinds[name]
            kind = kind.value_type if len(names) == 1 and _is_list(kind) else kind
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise DataError(
                    f"{path.name} must hold columns of numbers, or one column of lists of numbers. "
                    f"Got the column {name!r} of type {kind}; open_view(path, columns=...) chooses columns."
                )
    return names


def _column_types(reader: Any) -> dict[str, Any]:
    """The types of the columns by name, which pyarrow makes again at every call."""
    schema = reader.schema_arrow
    return dict(zip(schema.names, schema.types, strict=True))


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _batches(files: list[Path], names: list[str], source: str) -> Iterator[Matrix]:
    """The rows of some files in batches: a row group may be as large as a file."""
    row, width, dtype = 0, 0, None
    for file in files:
        with _parquet_reader(file, names) as reader:
            column_types = _column_types(reader)
            kinds = [column_types[name] for name in names]
            kinds = [kind.value_type if _is_list(kind) else kind for kind in kinds]
            dtype = dtype or np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
            width = width or _width(reader, names)
            n_bytes = reader.metadata.num_rows * width * dtype.itemsize
            if n_bytes > trust.MODEST_BYTES:
                trust.check_size(source, n_bytes, file.stat().st_size, compressed=True)
            size = max(1, PIECE_BYTES // max(1, width * dtype.itemsize))
            for batch in reader.iter_batches(size, columns=names):
                yield _to_matrix(batch, width, dtype, source, row)
                row += batch.num_rows


def _width(reader: Any, names: list[str]) -> int:
    """Columns of the matrix; if they are lists, the length of the first that is not null."""
    if not _is_list(reader.schema_arrow.field(names[0]).type):
        return len(names)
    batches = (batch.column(0).drop_null() for batch in reader.iter_batches(1024, columns=names))
    return next((len(lists[0]) for lists in batches if len(lists)), 0)


def _to_matrix(batch: Any, width: int, dtype: np.dtype[Any], source: str, first_row: int) -> Matrix:
    """The rows of one batch."""
    matrix = np.full((batch.num_rows, width), np.nan if dtype.kind == "f" else 0, dtype)
    if not _is_list(batch.column(0).type):
        for j, column in enumerate(batch.columns):
            matrix[:, j] = _numbers(column, dtype, source)
        return matrix
    column = batch.column(0)
    lists, present = column.drop_null(), column.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.asarray(lists.value_lengths())
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        row, length = first_row + int(np.flatnonzero(present)[wrong[0]]), lengths[wrong[0]]
        raise DataError(f"{source} must hold lists of equal length, {width}. Got {length} in row {row}.")
    matrix[present] = _numbers(lists.flatten(), dtype, source).reshape(len(lists), width)
    return matrix


def _numbers(column: Any, dtype: np.dtype[Any], source: str) -> Matrix:
    if column.null_count and dtype.kind != "f":
        raise DataError(f"{source} must have no nulls among whole numbers. Got {column.null_count} of them.")
    return np.asarray(column.to_numpy(zero_copy_only=False))
