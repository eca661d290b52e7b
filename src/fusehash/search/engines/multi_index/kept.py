"""Tables in a file next to an index file, so that they are not built again when the index is opened.

The file lists the blocks of the index file that the tables are of, with their checksums. Rows of blocks that are the
same now are listed as they are; the ids in all other blocks count as changed. So the tables may be older than the
index, by any number of changes and crashes. They are derived: if the file is missing, damaged or of something else,
tables are built again. It may be deleted at any time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.files import FileFormat
from fusehash.search.engines.multi_index.segments import Segment
from fusehash.search.rows import Ids, Ints

TABLES = FileFormat("fusehash-tables", 1, "file of tables", checked_since=1)
_FIELDS = ("n_tables", "width", "starts", "entries", "ids", "first_id", "first_row", "stale")
_CHUNK = 1 << 20


def path_of(index: Path) -> Path:
    """Where the tables of an index file are."""
    return index.with_name(index.name + "-tables")


def write(index: Path, parts: tuple[Segment, ...], loose_ids: Ids, blocks: Ints) -> None:
    """Write tables; `blocks` are number and checksum of the blocks that they, and the loose ids, are of."""
    segments = [{name: getattr(part, name) for name in _FIELDS} for part in parts]
    n_bits = parts[0].n_bits if parts else 0
    content = {"n_bits": n_bits, "segments": segments, "loose_ids": loose_ids, "blocks": blocks}
    TABLES.write(path_of(index), content)


def read(index: Path, n_bits: int) -> tuple[tuple[Segment, ...], Ids, Ints]:
    """The tables next to an index file, their loose ids and their blocks.

    Raises ModelFileError if the file is damaged, foreign or of codes of another width.
    """
    with TABLES.reading(path_of(index), follow_links=False) as (_, content):
        if content["n_bits"] != n_bits:
            raise ValueError("codes of another width")
        loose_ids, blocks = content["loose_ids"], content["blocks"]
        _check_array(loose_ids, np.int64, (len(loose_ids),))
        _check_array(blocks, np.int64, (len(blocks), 2))
        parts = tuple(_segment(n_bits, **segment) for segment in content["segments"])
    return parts, loose_ids, blocks


def _segment(n_bits: int, **fields: Any) -> Segment:
    """A segment whose look-ups stay inside its arrays; anything else raises ValueError."""
    if set(fields) != set(_FIELDS):
        raise ValueError("other fields")
    part = Segment(n_bits=n_bits, **fields)
    numbers = part.n_tables, part.width, part.first_id, part.first_row
    if not all(type(number) is int for number in numbers) or not 1 <= part.n_tables <= n_bits:
        raise ValueError("other numbers")
    count = part.entries.shape[-1]
    if not (1 <= part.width <= 28 and part.n_tables * part.width <= n_bits and 0 < count < 1 << 32):
        raise ValueError("other numbers")
    if not (-(1 << 63) <= part.first_id < (1 << 63) - count and 0 <= part.first_row < 1 << 40):
        raise ValueError("other numbers")
    _check_array(part.starts, np.uint32, (part.n_tables, (1 << part.width) + 1))
    _check_array(part.entries, np.uint64, (part.n_tables, count))
    for ids, length in ((part.ids, count if len(part.ids) else 0), (part.stale, len(part.stale))):
        _check_array(ids, np.int64, (length,))
        if np.any(ids[1:] <= ids[:-1]):
            raise ValueError("ids out of order")
    for starts, entries in zip(part.starts, part.entries, strict=True):
        if starts[0] != 0 or starts[-1] != count or np.any(starts[1:] < starts[:-1]):
            raise ValueError("starts out of order")
        for begin in range(0, count, _CHUNK):
            if int((entries[begin : begin + _CHUNK] & np.uint64(0xFFFFFFFF)).max()) >= count:
                raise ValueError("an entry of no code")
    return part


def _check_array(array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        raise ValueError("an array of another kind")
