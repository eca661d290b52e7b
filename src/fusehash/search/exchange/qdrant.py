"""Points for Qdrant, one JSON object per line: a vector of 0 and 1 per bit.

Create the collection with `VectorParams(size=n_bits, distance=Distance.MANHATTAN, datatype=Datatype.UINT8)`: the
Manhattan distance of such vectors is the Hamming distance of the codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fusehash.bits import Codes, pack, unpack
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, Imported, check_unsigned, reordered
from fusehash.search.exchange.rows import collected, numbers, read_lines, write_lines


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        for ids, codes in export.blocks():
            check_unsigned(ids, "Qdrant")
            ones = (unpack(reordered(codes, export.order), export.n_bits) > 0).astype(int)
            for id, vector in zip(ids.tolist(), ones.tolist(), strict=True):
                yield f'{{"id": {id}, "vector": {vector}}}'

    write_lines(file, lines())


def _read(path: Path) -> Imported:
    def rows() -> Iterator[tuple[str, object, Codes]]:
        for where, point in read_lines(path):
            bits = numbers(where, point.get("vector"), 0, 1)
            if len(bits) % 8:
                raise DataError(f"{where} must have a multiple of 8 bits. Got {len(bits)} instead.")
            yield where, point.get("id"), pack(bits[None])[0]

    return collected(path, rows(), "little")


QDRANT = CodesFormat((".qdrant.jsonl",), _write, _read, "points for Qdrant")
