"""Points for Qdrant, one JSON object per line: a vector of 0 and 1 per bit.

Create the collection with `VectorParams(size=n_bits, distance=Distance.MANHATTAN, datatype=Datatype.UINT8)`: the
Manhattan distance of such vectors is the Hamming distance of the codes.

If the index keeps vectors, a point has two with names: "code", as above, and "vector", `VectorParams(size=dim,
distance=Distance.COSINE)`, which Qdrant stores with length 1. Factors are in the payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fusehash.bits import pack, unpack
from fusehash.errors import DataError
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows, check_unsigned, reordered
from fusehash.search.exchange.rows import ImportedRow, collected, extras, numbers, read_lines, reals, write_lines


def _write(file: BinaryIO, export: Export) -> None:
    def lines() -> Iterator[str]:
        for block in export.blocks():
            check_unsigned(block.ids, "Qdrant")
            ones = (unpack(reordered(block.codes, export.order), export.n_bits) > 0).astype(int)
            named = extras(block._replace(factors=None), ', "vector": [NUMBERS]')
            payloads = extras(block._replace(vectors=None), ', "payload": {"NAME": [NUMBERS]}')
            for id, code, vector, payload in zip(block.ids.tolist(), ones.tolist(), named, payloads, strict=True):
                vectors = f'{{"code": {code}{vector}}}' if vector else code
                yield f'{{"id": {id}, "vector": {vectors}{payload}}}'

    write_lines(file, lines())


def _read(path: Path) -> ImportedRows:
    def rows() -> Iterator[ImportedRow]:
        for where, point in read_lines(path):
            vectors, payload = point.get("vector"), point.get("payload")
            if not isinstance(vectors, dict):
                vectors = {"code": vectors}
            bits = numbers(where, vectors.get("code"), 0, 1)
            if len(bits) % 8:
                raise DataError(f"{where} must have a multiple of 8 bits. Got {len(bits)} instead.")
            vector = reals(where, vectors.get("vector"), "vector")
            factors = reals(where, payload.get("factors") if isinstance(payload, dict) else None, "factors")
            yield ImportedRow(where, point.get("id"), pack(bits[None])[0], vector, factors)

    return collected(path, rows(), "little")


QDRANT = CodesFormat((".qdrant.jsonl",), _write, _read, "points for Qdrant")
