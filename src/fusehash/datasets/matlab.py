"""MATLAB's .mat up to version 7, read without native code, which a damaged file could crash.

A file is a header of 128 bytes and one element per variable. An element is a tag (type and number of bytes) and its
content: numbers, or an array made of further elements (flags, sizes, name, numbers), or an array compressed by zlib.
The layout is in "MAT-File Format" by The MathWorks, 2024.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from fusehash import trust
from fusehash.errors import DataError

# Types of numbers; 16 is UTF-8 text.
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8", 16: "u1"}
ARRAY, COMPRESSED = 14, 15  # types of elements
SPARSE, NUMERIC, SIZED = 5, range(6, 16), range(1, 16)  # classes of arrays; further ones have no size
COMPLEX = 0x0800  # in the flags
HEAD_BYTES = 1 << 13  # of a variable: flags, sizes and name
MAX_AXES = 32


@dataclass(frozen=True)
class Variable:
    """A variable of a file: what it is, and where its content is."""

    name: str
    shape: tuple[int, ...]
    kind: int
    is_complex: bool
    order: str  # "<" or ">"
    start: int
    n_bytes: int
    is_compressed: bool


def list_variables(file: BinaryIO) -> dict[str, Variable]:
    """The variables of a file by name; raises ValueError if it is damaged."""
    end = os.fstat(file.fileno()).st_size
    header, start = _read(file, 0, 128), 128
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None:
        raise ValueError("its header names no byte order")
    variables: dict[str, Variable] = {}
    while start < end:
        kind, n_bytes = np.frombuffer(_read(file, start, 8), order + "u4").tolist()
        start += 8
        if kind not in (ARRAY, COMPRESSED) or n_bytes > end - start:
            raise ValueError("a variable in it is cut off or of no type")
        head = _read(file, start, min(n_bytes, HEAD_BYTES))
        if kind == COMPRESSED:
            head = zlib.decompressobj().decompress(head, HEAD_BYTES)[8:]
        flags, at = _numbers(head, 0, order)
        array_class = int(flags[0]) & 0xFF
        if array_class in SIZED:
            sizes, at = _numbers(head, at, order)
            name, _ = _numbers(head, at, order)
            shape = tuple(sizes.tolist())
            if not 2 <= len(shape) <= MAX_AXES or min(shape) < 0 or sizes.dtype.kind not in "iu":
                raise ValueError("the size of a variable in it is impossible")
            title = name.tobytes().decode("latin-1")
            is_complex = bool(int(flags[0]) & COMPLEX)
            content = Variable(title, shape, array_class, is_complex, order, start, n_bytes, kind == COMPRESSED)
            variables.setdefault(title, content)
        start += n_bytes
    variables.pop("", None)  # MATLAB's own
    return variables


def read_variable(file: BinaryIO, variable: Variable) -> Any:
    """The array of a variable, with the type that it is stored with; scipy.sparse if it is sparse."""
    if variable.is_complex or variable.kind not in (SPARSE, *NUMERIC):
        raise DataError(f"The variable {variable.name} must be a matrix of real numbers. It is not.")
    content, order = _read(file, variable.start, variable.n_bytes), variable.order
    if variable.is_compressed:
        content = _expanded(content, order, f"The variable {variable.name}")
    at = 0
    for _ in ("flags", "sizes", "name"):
        _, at = _numbers(content, at, order)
    if variable.kind == SPARSE:
        rows, at = _numbers(content, at, order)
        ends, at = _numbers(content, at, order)
        n_values = int(ends[-1]) if len(ends) else 0
        values = _numbers(content, at, order, n_values)[0] if n_values else np.zeros(0)
        return sparse_matrix(values, rows, ends, variable.shape)
    values, _ = _numbers(content, at, order)
    return np.require(values.reshape(variable.shape, order="F"), requirements="W")


def sparse_matrix(values: Any, rows: Any, ends: Any, shape: tuple[int, ...]) -> Any:
    """A matrix in compressed columns, as MATLAB stores it; wrong positions would crash the process in scipy."""
    if len(shape) != 2 or any(part.ndim != 1 for part in (values, rows, ends)) or values.dtype.kind not in "biuf":
        raise ValueError("its parts are not those of a sparse matrix")
    if rows.dtype.kind not in "iu" or ends.dtype.kind not in "iu" or len(ends) != shape[1] + 1:
        raise ValueError("its positions are not those of a sparse matrix")
    ends = ends.astype(np.int64)
    n_values = int(ends[-1])
    if ends[0] != 0 or (np.diff(ends) < 0).any() or n_values > min(len(rows), len(values)):
        raise ValueError("its columns have no places")
    rows = rows[:n_values].astype(np.int64)
    if n_values and not 0 <= rows.min() <= rows.max() < shape[0]:
        raise ValueError("its rows are outside of the matrix")
    return sp.csc_array((values[:n_values].copy(), rows, ends), shape=shape)


def _numbers(content: bytes, at: int, order: str, n_logical: int = -1) -> tuple[Any, int]:
    """The numbers of the element at a position, and the position of the next element.

    Logical values are bytes, whatever their type says; they are recognized by their number.
    """
    if at + 8 > len(content):
        raise ValueError("a variable in it is cut off")
    kind, n_bytes = np.frombuffer(content, order + "u4", 2, at).tolist()
    start, following = at + 8, at + 8 + n_bytes + -n_bytes % 8
    if kind >> 16:  # up to four bytes are stored inside the tag
        kind, n_bytes, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
    if kind not in NUMBERS or start + n_bytes > min(following, len(content)):
        raise ValueError("a variable in it is cut off or holds no numbers")
    dtype = np.dtype("u1" if n_bytes == n_logical else order + NUMBERS[kind])
    numbers = np.frombuffer(content, dtype, n_bytes // dtype.itemsize, start)
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False), following


def _expanded(content: bytes, order: str, subject: str) -> bytes:
    """The content of the only element of a compressed variable."""
    stream = zlib.decompressobj()
    tag = stream.decompress(content, 8)
    kind, n_bytes = np.frombuffer(tag, order + "u4").tolist() if len(tag) == 8 else (0, 0)
    if kind != ARRAY:
        raise ValueError("a variable in it is cut off or no array")
    trust.check_size(subject, n_bytes, len(content), compressed=True)
    expanded = stream.decompress(stream.unconsumed_tail, n_bytes) if n_bytes else b""
    if len(expanded) != n_bytes or stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
        raise ValueError("a variable in it is cut off")
    return expanded


def _read(file: BinaryIO, start: int, n_bytes: int) -> bytes:
    file.seek(start)
    content = file.read(n_bytes)
    if len(content) < n_bytes:
        raise ValueError("it is cut off")
    return content
