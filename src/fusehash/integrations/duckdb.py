"""DuckDB: views out of queries, codes into tables, and Hamming search in SQL, `pip install "fusehash[duckdb]"`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fusehash.bits import Codes, check_codes
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.search.ids import check_different, check_ids
from fusehash.search.rows import Ids
from fusehash.views import PairedViews

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_ROWS_AT_ONCE = 65536


def views_of(connection: Any, query: str, columns: Mapping[str, str | Sequence[str]]) -> PairedViews:
    """The views in the result of a query: each from several columns of numbers, or from one of lists.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    query : str
        SQL. Order the rows if their order matters.
    columns : mapping of str to str or sequence of str
        The columns of every view.

    Examples
    --------
    views = views_of(connection, "FROM items ORDER BY id", {"image": "image_vector", "text": ["a", "b"]})
    """
    result = connection.execute(query)
    names = [entry[0] for entry in result.description]
    rows = result.fetchnumpy()
    views = {}
    for view, chosen in columns.items():
        listed = [chosen] if isinstance(chosen, str) else list(chosen)
        for name in listed:
            if name not in names:
                raise DataError(f"Columns must be in the result, which has {', '.join(names)}. Got {name!r} instead.")
        views[view] = _matrix([rows[name] for name in listed], view)
    return PairedViews(views)


def write_codes(connection: Any, table: str, codes: ArrayLike, ids: ArrayLike | None = None) -> int:
    """Write codes into a table (id BIGINT, code BIT), which is made if it is not there, and return how many.

    A code with an id that is in the table replaces it. All codes are written, or none.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    table : str
        A name, or schema.name.
    codes : uint8 array-like, shape (n, n_bits / 8)
    ids : array-like of int, shape (n,), optional
        By default 0, 1, 2, ...
    """
    packed = check_codes(codes)
    numbers = np.arange(len(packed)) if ids is None else check_ids(ids, len(packed))
    check_different(numbers)
    name = _checked(table)
    connection.begin()
    try:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (id BIGINT PRIMARY KEY, code BIT)")
        (other,) = connection.execute(f"SELECT max(bit_length(code)) FROM {name}").fetchone()
        if other is not None and len(packed) and other != 8 * packed.shape[1]:
            raise DataError(
                f"The table {table} holds codes of {other} bits. Got codes of {8 * packed.shape[1]} instead."
            )
        for start in range(0, len(packed), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows = [[int(number), _text(code)] for number, code in zip(numbers[part], packed[part], strict=True)]
            ids_, texts = [row[0] for row in rows], [row[1] for row in rows]
            values = "SELECT unnest($1::BIGINT[]), unnest($2::VARCHAR[])::BIT"
            connection.execute(f"INSERT OR REPLACE INTO {name} {values}", [ids_, texts])
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return len(packed)


def read_codes(connection: Any, table: str) -> tuple[Ids, Codes]:
    """The ids (ascending) and codes of a table that `write_codes` wrote, for `HammingIndex.add`."""
    rows = connection.execute(f"SELECT id, code::VARCHAR FROM {_checked(table)} ORDER BY id").fetchall()
    texts = [text for _, text in rows]
    if any(text is None or len(text) != len(texts[0]) or len(text) % 8 for text in texts):
        raise DataError(f"The table {table} must hold codes of one length. It holds something else.")
    width = len(texts[0]) // 8 if texts else 0
    joined = b"".join(int(text, 2).to_bytes(width, "big") for text in texts)
    return np.array([number for number, _ in rows], np.int64), np.frombuffer(joined, np.uint8).reshape(-1, width)


def search(connection: Any, table: str, code: ArrayLike, k: int, where: str = "true") -> list[tuple[int, int]]:
    """The k nearest codes of a table as (id, distance), in order of (distance, id); DuckDB computes the distances.

    Parameters
    ----------
    code : uint8 array-like, shape (1, n_bits / 8)
    where : str, default "true"
        A condition in SQL, which you write yourself: it is not checked.
    """
    (query,) = check_codes(np.atleast_2d(np.asarray(code)))
    statement = f"SELECT id, bit_count(xor(code, $1::VARCHAR::BIT)) AS distance FROM {_checked(table)} WHERE {where} "
    rows = connection.execute(statement + "ORDER BY distance, id LIMIT $2", [_text(query), int(k)]).fetchall()
    return [(int(number), int(distance)) for number, distance in rows]


def connect(path: str = ":memory:") -> Any:
    """A connection to a database file, or to one in memory."""
    return require("duckdb", "The tables of DuckDB").connect(path)


def _text(code: Any) -> str:
    """A code as 0 and 1, byte by byte."""
    return format(int.from_bytes(code.tobytes(), "big"), f"0{8 * len(code)}b")


def _checked(table: str) -> str:
    if not _NAME.fullmatch(table):
        raise DataError(f"A table must be named by letters, digits and _, or as schema.name. Got {table!r} instead.")
    return table


def _matrix(columns: Sequence[Any], view: str) -> Any:
    try:
        if len(columns) == 1 and columns[0].dtype == object:
            return np.stack([np.asarray(row, dtype=np.float64) for row in columns[0]])
        if any(np.ma.is_masked(column) for column in columns):
            raise DataError(f"View '{view}' must have a number in every row. Some are NULL.")
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"View '{view}' must hold numbers, or lists of one length. It holds something else.") from error
