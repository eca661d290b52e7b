"""pandas, polars and Arrow: tables as views, and codes as a table, `pip install "fusehash[dataframes]"` (narwhals)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.views import PairedViews

_PURPOSE = "Reading data frames"


def views_of(frame: Any, columns: Mapping[str, str | Sequence[str]], *, allow_missing: bool = False) -> PairedViews:
    """The views in a table of pandas, polars, Arrow or any library that narwhals knows.

    Parameters
    ----------
    frame : data frame or table
        One row per item. A lazy frame is collected.
    columns : mapping of str to str or sequence of str
        The columns of every view: several columns of numbers, or one column of lists (embeddings).
    allow_missing : bool, default False
        Whether a view may be missing in some rows: null instead of a list, or null in all its columns.

    Returns
    -------
    PairedViews

    Raises
    ------
    DataError
        If a column is not there, holds something else than numbers, or lists differ in length.

    Examples
    --------
    views = views_of(frame, {"image": "image_embedding", "text": ["tfidf_0", "tfidf_1"]})
    """
    table = _eager(frame)
    if not columns:
        raise DataError("The columns of at least one view must be named. Got none.")
    views = {name: _matrix(table, name, chosen) for name, chosen in columns.items()}
    return PairedViews(views, allow_missing=allow_missing)


def labels_of(frame: Any, column: str) -> NDArray[Any]:
    """A column of classes as an array, for methods that learn from labels and for evaluation."""
    return np.asarray(_column(_eager(frame), column).to_numpy())


def codes_table(codes: ArrayLike, ids: ArrayLike | None = None, *, backend: str = "pandas") -> Any:
    """Codes as a table with the columns id (int64) and code (bytes).

    Parameters
    ----------
    codes : uint8 array-like, shape (n, n_bits / 8)
    ids : array-like, shape (n,), optional
        By default 0, 1, 2, ...
    backend : {"pandas", "polars", "pyarrow"}, default "pandas"
        The library of the table.
    """
    narwhals = require("narwhals", _PURPOSE)
    if backend not in ("pandas", "polars", "pyarrow"):
        raise DataError(f"The backend must be one of 'pandas', 'polars', 'pyarrow'. Got {backend!r} instead.")
    packed = check_codes(codes)
    numbers = np.arange(len(packed)) if ids is None else np.asarray(ids)
    if numbers.shape != (len(packed),):
        raise DataError(f"There must be one id for each of {len(packed)} codes. Got shape {numbers.shape} instead.")
    content = {"id": numbers.tolist(), "code": [row.tobytes() for row in packed]}
    return narwhals.from_dict(content, backend=backend).to_native()


def codes_of(frame: Any, column: str = "code") -> Codes:
    """The codes in a column of bytes, as `codes_table` writes them."""
    values = _column(_eager(frame), column).to_list()
    if not values or not all(isinstance(value, bytes) and len(value) == len(values[0]) for value in values):
        raise DataError(f"Column '{column}' must hold codes, bytes of one length. It holds something else.")
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)


def _eager(frame: Any) -> Any:
    narwhals = require("narwhals", _PURPOSE)
    try:
        table = narwhals.from_native(frame)
    except TypeError as error:
        kind = type(frame).__name__
        raise DataError(f"A table must be of pandas, polars or Arrow, or known to narwhals. Got {kind}.") from error
    return table.collect() if isinstance(table, narwhals.LazyFrame) else table


def _column(table: Any, name: str) -> Any:
    if name not in table.columns:
        listed = ", ".join(map(repr, table.columns[:10])) + (", ..." if len(table.columns) > 10 else "")
        raise DataError(f"Columns must be in the table, which has {listed}. Got {name!r} instead.")
    return table[name]


def _matrix(table: Any, view: str, chosen: str | Sequence[str]) -> NDArray[np.float64]:
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    if not names:
        raise DataError(f"View '{view}' must have columns. Got none.")
    columns = [_column(table, name) for name in names]
    if len(columns) == 1 and not columns[0].dtype.is_numeric():
        return _rows_of_lists(columns[0].to_list(), names[0])
    for name, column in zip(names, columns, strict=True):
        if not (column.dtype.is_numeric() or column.dtype == require("narwhals", _PURPOSE).Boolean):
            raise DataError(f"Column '{name}' of view '{view}' must hold numbers. It holds {column.dtype}.")
    stacked = [
        np.array([np.nan if value is None else value for value in column.to_list()], np.float64)
        if column.null_count()
        else np.asarray(column.to_numpy(), dtype=np.float64)
        for column in columns
    ]
    return np.stack(stacked, axis=1)


def _rows_of_lists(values: Sequence[Any], name: str) -> NDArray[np.float64]:
    """A column of lists as a matrix; null is a row of NaN."""
    try:
        arrays = [None if value is None else np.asarray(value, dtype=np.float64) for value in values]
    except (TypeError, ValueError):
        raise DataError(f"Column '{name}' must hold numbers, or lists of numbers. It holds something else.") from None
    shapes = {array.shape for array in arrays if array is not None}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DataError(f"The lists in column '{name}' must have one length. Got {len(shapes)} different ones.")
    width = next(iter(shapes))[0]
    return np.stack([np.full(width, np.nan) if array is None else array for array in arrays])
