"""What a Parquet file claims about its pages, checked before pyarrow takes memory for them."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from fusehash import trust

HEADER_BYTES = 2**12  # a page of numbers has a header of less than 200
VALUE_BYTES = 4
# Fields of a PageHeader and of its DataPageHeader (version 1 or 2), in the Thrift definition of Parquet.
UNCOMPRESSED, COMPRESSED, DATA_PAGES, N_VALUES = 2, 3, (5, 8), 1


def check_pages(file: BinaryIO, metadata: Any, names: list[str], subject: str) -> None:
    """Raise if the pages of some columns are not as the metadata says, or would take far too much memory."""
    size, schema, chosen = os.fstat(file.fileno()).st_size, metadata.schema, set(names)
    lists = tuple(f"{name}." for name in names)
    paths = [schema.column(i).path for i in range(len(schema))]
    columns = [i for i, path in enumerate(paths) if path in chosen or path.startswith(lists)]
    for number in range(metadata.num_row_groups):
        group, needed = metadata.row_group(number), 0
        for i in columns:
            column, is_list = group.column(i), schema.column(i).max_repetition_level > 0
            n_values, largest = _walk(file, column, size)
            if n_values != column.num_values or not (is_list or n_values == group.num_rows):
                raise ValueError(f"column {paths[i]} has {n_values} values in {group.num_rows} rows")
            needed += max(largest, n_values * VALUE_BYTES) if is_list else largest  # one list may hold all values
        trust.check_memory(f"A row group of {subject}", needed, size)


def _walk(file: BinaryIO, column: Any, size: int) -> tuple[int, int]:
    """Go through the pages of a column in a row group: all values, and the bytes of the largest page."""
    position = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        position = min(position, column.dictionary_page_offset)
    end, n_values, largest = position + column.total_compressed_size, 0, 0
    if not 0 < position <= end <= size:
        raise ValueError(f"column {column.path_in_schema} is not inside the file")
    while position < end and n_values < column.num_values:
        file.seek(position)
        header, length = _thrift_struct(file.read(HEADER_BYTES))
        uncompressed, compressed = header[UNCOMPRESSED], header[COMPRESSED]
        values = next((header[field][N_VALUES] for field in DATA_PAGES if field in header), None)
        position += length + compressed
        if uncompressed < 0 or compressed < 0 or position > end or (values is not None and values <= 0):
            raise ValueError(f"column {column.path_in_schema} has a page of impossible size")
        n_values, largest = n_values + (values or 0), max(largest, uncompressed)
    return n_values, largest


def _thrift_struct(data: bytes, position: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol by number of field, and where it ends; strings are left out."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[position]:
        kind, position = head & 15, position + 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _integer(data, position)
        if kind <= 2:  # true or false
            continue
        if kind == 3:
            position += 1
        elif kind <= 6:
            fields[number], position = _integer(data, position)
        elif kind == 7:
            position += 8
        elif kind == 8:
            length, position = _varint(data, position)
            position += length
        elif kind == 12 and depth < 8:
            fields[number], position = _thrift_struct(data, position, depth + 1)
        else:
            raise ValueError("a page has an unknown header")
    return fields, position + 1


def _integer(data: bytes, position: int) -> tuple[int, int]:
    value, position = _varint(data, position)
    return value >> 1 ^ -(value & 1), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position
