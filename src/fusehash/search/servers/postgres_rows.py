"""Rows in the binary format of PostgreSQL's COPY, whole blocks of them at a time.

A stream is a header of 19 bytes, a row after the other, and -1 as the end. A row is the number of its fields, then each
field's length and content, all integers with the highest byte first. A bit string is the number of its bits and its
bytes. All rows of an index are equally long, so a block of them is one array of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.search.rows import Ids

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_BLOCK = 1 << 16  # rows written at a time
_ID = np.dtype([("fields", ">i2"), ("id_bytes", ">i4"), ("id", ">i8")])


def _row(n_bytes: int) -> np.dtype[Any]:
    return np.dtype(
        [("fields", ">i2"), ("id_bytes", ">i4"), ("id", ">i8"), ("bytes", ">i4"), ("bits", ">i4"),
         ("code", "u1", n_bytes)]
    )  # fmt: skip


def stream(ids: Ids, codes: Codes) -> Iterator[bytes]:
    """What COPY FROM reads."""
    n_bytes = codes.shape[1]
    yield _HEADER
    for start in range(0, len(ids), _BLOCK):
        rows = np.empty(min(_BLOCK, len(ids) - start), _row(n_bytes))
        rows["fields"], rows["id_bytes"], rows["bytes"], rows["bits"] = 2, 8, 4 + n_bytes, 8 * n_bytes
        rows["id"], rows["code"] = ids[start : start + _BLOCK], codes[start : start + _BLOCK]
        yield rows.tobytes()
    yield _END


def rows(copied: bytes, n_bits: int) -> tuple[Ids, Codes]:
    """Ids and codes out of what COPY TO has written."""
    found = _parsed(copied, _row(n_bits // 8))
    return found["id"].astype(np.int64), np.ascontiguousarray(found["code"])


def ids(copied: bytes) -> Ids:
    """The same for ids alone."""
    return _parsed(copied, _ID)["id"].astype(np.int64)


def literals(some: Codes) -> list[str]:
    """Codes as PostgreSQL reads bit strings: an x and hexadecimal digits."""
    return ["x" + code.tobytes().hex() for code in some]


def _parsed(copied: bytes, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    extension = int.from_bytes(copied[15:19], "big")
    return np.frombuffer(copied[19 + extension : -2], kind)
