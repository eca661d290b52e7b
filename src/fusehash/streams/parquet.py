"""Parquet files as matrices: numeric columns in their order, or one column of lists of equal length.

Row groups may be as large as a file. They are therefore decoded in batches, one after the other; rows far away are
reached from the beginning of their row group. A null is NaN, so an item without features can be a row of nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.errors import DataError
from fusehash.streams.base import PIECE_BYTES, Block, check_shape, reopen
from fusehash.streams.rewinding import Piece, Rewinding, RewindingView

INDEX_COLUMN = "__index_level_"  # what pandas calls an index without a name


@dataclass(frozen=True)
class Layout:
    """Which columns make the matrix."""

    names: tuple[str, ...]
    width: int
    dtype: np.dtype[Any]
    of_lists: bool


class ParquetMatrix(RewindingView):
    """One Parquet file, or a folder of them in the order of their names.

    Parameters
    ----------
    path : a file, or a folder
    columns : the columns to use, where the file holds others too
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        self.path, self._columns = path.absolute(), None if columns is None else list(columns)
        source = f"The Parquet file {path.name}" if path.is_file() else f"The Parquet folder {path.name}"
        files = parquet_files(self.path)
        self._groups: list[tuple[Path, int, int]] = []  # file, row group, first row
        layouts, n_rows = {}, 0
        for file in files:
            reader = open_parquet(file)
            with reader:
                layouts[file] = find_layout(reader, file, self._columns)
                for group in range(reader.metadata.num_row_groups):
                    if reader.metadata.row_group(group).num_rows:
                        self._groups.append((file, group, n_rows))
                        n_rows += reader.metadata.row_group(group).num_rows
        self._layout = layout = next(iter(layouts.values()))
        for file, other in layouts.items():
            if (other.names, other.width) != (layout.names, layout.width):
                raise DataError(
                    f"Every file of {source} must have the same columns. {file.name} differs from {files[0].name}."
                )
        dtype = np.result_type(*(other.dtype for other in layouts.values()))
        self._starts = np.array([first for _, _, first in self._groups], dtype=np.int64)
        shape = check_shape(source, (n_rows, layout.width))
        super().__init__(source, shape, dtype, "", Rewinding(self._begin, self._start_of, n_rows, source))

    def __reduce__(self) -> Any:
        return reopen, (ParquetMatrix, (self.path, self._columns), self.shape)

    def _group_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _start_of(self, row: int) -> int:
        return int(self._starts[self._group_of(row)])

    def _begin(self, row: int) -> tuple[int, Iterator[Piece]]:
        group = self._group_of(row)
        return int(self._starts[group]), self._walk(group)

    def _walk(self, group: int) -> Iterator[Piece]:
        """Batches from one row group on to the end of all files."""
        size = max(1, PIECE_BYTES // self.row_bytes)
        while group < len(self._groups):
            file, _, row = self._groups[group]
            here = [number for other, number, _ in self._groups[group:] if other == file]
            group += len(here)
            with open_parquet(file) as reader:
                columns = reader.schema_arrow.names
                if here[-1] >= reader.metadata.num_row_groups or not set(self._layout.names) <= set(columns):
                    raise DataError(f"{file.name} must stay as it is while it is read. It has changed.")
                try:
                    for batch in reader.iter_batches(size, row_groups=here, columns=list(self._layout.names)):
                        if batch.num_rows:
                            yield {"": to_matrix(batch, self._layout, self.dtype, self.source, row)}
                            row += batch.num_rows
                except OSError as error:
                    reason = str(error).splitlines()[0].rstrip(".")
                    raise DataError(f"{file.name} must be an intact Parquet file. It ends with: {reason}.") from error


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"The matrix was looked for at {path}, where there is no file and no folder.")
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in (".parquet", ".pq") and file.is_file())
    found = [file for file in found if not file.name.startswith((".", "_"))]
    if not found:
        raise DataError(f"The folder {path.name} must hold .parquet files. None was found.")
    return found


def open_parquet(path: Path) -> Any:
    pq = import_parquet()
    try:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path.name} must be an intact Parquet file. It could not be read: {reason}.") from error


def import_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow; pip install 'fusehash[parquet]' brings it.") from error
    return pyarrow.parquet


def find_layout(reader: Any, path: Path, columns: Sequence[str] | None) -> Layout:
    """Which columns make the matrix of a file, and what they hold."""
    from pyarrow import types

    schema = reader.schema_arrow
    names = [name for name in schema.names if not name.startswith(INDEX_COLUMN)] if columns is None else list(columns)
    missing = [name for name in names if name not in schema.names]
    if missing or not names:
        raise DataError(f"{path.name} must have the column {(missing or ['of numbers'])[0]!r}. Got {schema.names}.")
    kinds = [schema.field(name).type for name in names]
    if len(kinds) == 1 and (types.is_fixed_size_list(kinds[0]) or _is_list(kinds[0])):
        _check_number(path, names[0], kinds[0].value_type)
        width = kinds[0].list_size if types.is_fixed_size_list(kinds[0]) else _first_length(reader, names[0])
        return Layout(tuple(names), width, _dtype(kinds[0].value_type), of_lists=True)
    for name, kind in zip(names, kinds, strict=True):
        _check_number(path, name, kind)
    return Layout(tuple(names), len(names), np.result_type(*map(_dtype, kinds)), of_lists=False)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def _check_number(path: Path, name: str, kind: Any) -> None:
    from pyarrow import types

    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise DataError(
            f"{path.name} must hold columns of numbers, or one column of lists of numbers. "
            f"Got the column {name!r} of type {kind}; open_view(path, columns=...) chooses columns."
        )


def _dtype(kind: Any) -> np.dtype[Any]:
    return np.dtype(kind.to_pandas_dtype())


def _first_length(reader: Any, name: str) -> int:
    """The length of the first list that is not null."""
    for batch in reader.iter_batches(1024, columns=[name]):
        lengths = batch.column(0).value_lengths().drop_null()
        if len(lengths):
            return int(lengths[0].as_py())
    return 0


def to_matrix(batch: Any, layout: Layout, dtype: np.dtype[Any], source: str, first_row: int) -> Block:
    """The rows of one batch."""
    if layout.of_lists:
        return _from_lists(batch.column(0), layout, dtype, source, first_row)
    matrix = np.empty((batch.num_rows, layout.width), dtype)
    for j in range(layout.width):
        column = batch.column(j)
        _check_nulls(column, dtype, source)
        matrix[:, j] = column.to_numpy(zero_copy_only=False)
    return matrix


def _from_lists(column: Any, layout: Layout, dtype: np.dtype[Any], source: str, first_row: int) -> Block:
    present = np.ones(len(column), dtype=bool)
    if column.null_count:
        _check_nulls(column, dtype, source)
        present = column.is_valid().to_numpy(zero_copy_only=False)
    kept = column.drop_null() if column.null_count else column
    if _is_list(column.type):
        lengths = kept.value_lengths().to_numpy(zero_copy_only=False)
        if bool((lengths != layout.width).any()):
            wrong = int(np.argmax(lengths != layout.width))
            raise DataError(
                f"{source} must hold lists of equal length, {layout.width}. "
                f"Got {lengths[wrong]} in row {first_row + int(np.flatnonzero(present)[wrong])}."
            )
    values = kept.flatten()
    _check_nulls(values, dtype, source)
    rows = values.to_numpy(zero_copy_only=False).reshape(len(kept), layout.width)
    if present.all():
        return np.asarray(rows, dtype=dtype)
    matrix = np.full((len(column), layout.width), np.nan, dtype)
    matrix[present] = rows
    return matrix


def _check_nulls(column: Any, dtype: np.dtype[Any], source: str) -> None:
    if column.null_count and dtype.kind != "f":
        raise DataError(f"{source} must have no nulls among whole numbers. Got {column.null_count} of them.")
