"""What a Parquet file claims about its pages, checked before pyarrow takes memory for them.

The metadata is parsed by code of our own: pyarrow ends the process if Python asks for some that is damaged.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from fusehash import trust

HEADER_BYTES = 2**12  # a page of numbers has a header of less than 200
VALUE_BYTES = 4  # of numbers in lists, which are float32 as a rule
# Numbers of fields in the Thrift definition of Parquet.
ROW_GROUPS = 4  # of FileMetaData
COLUMNS, N_ROWS = 1, 3  # of RowGroup
FILE_PATH, COLUMN_METADATA = 1, 3  # of ColumnChunk
PATH, COLUMN_VALUES, COLUMN_BYTES, DATA_OFFSET, DICTIONARY_OFFSET = 3, 5, 7, 9, 11  # of ColumnMetaData
UNCOMPRESSED, COMPRESSED, DATA_PAGES = 2, 3, (5, 8)  # of PageHeader: two versions of DataPageHeader
PAGE_VALUES = 1  # of DataPageHeader


def check_pages(file: BinaryIO, names: list[str], subject: str) -> None:
    """Raise if the pages of some columns are not as the metadata says, or would take far too much memory."""
    size, chosen = os.fstat(file.fileno()).st_size, {name.encode() for name in names}
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    trust.check_size(f"The metadata of {subject}", length + 8, size)
    file.seek(size - 8 - length)
    metadata, _ = _struct(file.read(length))
    for group in metadata[ROW_GROUPS]:
        needed = 0
        for chunk in group[COLUMNS]:
            column = chunk[COLUMN_METADATA]
            if column[PATH][0] not in chosen:
                continue
            if FILE_PATH in chunk:
                raise ValueError("a column is in another file")
            is_list = len(column[PATH]) > 1
            n_values, largest = _walk(file, column, size)
            if n_values != column[COLUMN_VALUES] or not (is_list or n_values == group[N_ROWS]):
                raise ValueError(f"a column has {n_values} values in {group[N_ROWS]} rows")
            needed += max(largest, n_values * VALUE_BYTES) if is_list else largest  # one list may hold all values
        trust.check_expansion(f"A row group of {subject}", needed, size)


def _walk(file: BinaryIO, column: dict[int, Any], size: int) -> tuple[int, int]:
    """Go through the pages of a column in a row group: all values, and the bytes of the largest page."""
    position = min(column[DATA_OFFSET], column.get(DICTIONARY_OFFSET) or column[DATA_OFFSET])
    end, n_values, largest = position + column[COLUMN_BYTES], 0, 0
    if not 0 < position <= end <= size:
        raise ValueError("a column is not inside the file")
    while position < end and n_values < column[COLUMN_VALUES]:
        file.seek(position)
        header, length = _struct(file.read(HEADER_BYTES))
        uncompressed, compressed = header[UNCOMPRESSED], header[COMPRESSED]
        values = next((header[field][PAGE_VALUES] for field in DATA_PAGES if field in header), None)
        position += length + compressed
        if uncompressed < 0 or compressed < 0 or position > end or (values is not None and values <= 0):
            raise ValueError("a page has an impossible size")
        n_values, largest = n_values + (values or 0), max(largest, uncompressed)
    return n_values, largest


# -- Thrift's compact protocol ---------------------------------------------------------------------------------------


def _struct(data: bytes, position: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _integer(data, position)
        if head & 15 <= 2:  # the kind is the value
            fields[number] = head & 15 == 1
        else:
            fields[number], position = _value(data, position, head & 15, depth)
    return fields, position + 1


def _value(data: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _integer(data, position)
    if kind == 8:  # bytes
        length, position = _varint(data, position)
        return data[position : position + length], position + length
    if kind == 12 and depth < trust.MAX_DEPTH:
        return _struct(data, position, depth + 1)
    if kind == 9 and depth < trust.MAX_DEPTH:
        length, kind, position = data[position] >> 4, data[position] & 15, position + 1
        if length == 15:
            length, position = _varint(data, position)
        if length > len(data) - position:
            raise ValueError("a list in it is too long")
        values = []
        for _ in range(length):
            value, position = _value(data, position, kind, depth + 1)
            values.append(value)
        return values, position
    if kind in (1, 2, 3, 7):  # truth values in a list, a byte, a double
        return None, position + (8 if kind == 7 else 1)
    raise ValueError("it has unknown metadata")


def _integer(data: bytes, position: int) -> tuple[int, int]:
    value, position = _varint(data, position)
    return value >> 1 ^ -(value & 1), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    if value < 128:
        return value, position + 1
    value, shift = value & 127, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number in it is too long")
