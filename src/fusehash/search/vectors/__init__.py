"""Vectors next to codes: how they are stored, and exact cosine distances of the candidates that codes have found.

A vector is stored in as many numbers as it has, as "int8" (divided by its largest entry, times 127, rounded), "float16"
(divided by its largest entry) or "float32" (as it is). The distance of a query to an item is 1 - cos(query, stored
numbers), summed in double precision and rounded to single precision: nothing depends on the lengths of vectors, and the
distance is exactly that of what is stored.

In memory vectors are rows of a matrix. An index in a file keeps them in a second file next to it (file.py), mapped into
memory: a search touches the vectors of its candidates and no others. Files of earlier versions have them in a table
(earlier.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.engines.scan import cut_evenly, run, workers
from fusehash.search.projections import check_real
from fusehash.search.rows import CodeRows, Ids, Ints
from fusehash.sqlite import DamageError

KINDS: dict[str, np.dtype[Any]] = {"int8": np.dtype("i1"), "float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MAX_DIM = 65536
_PAIRS_PER_THREAD = 1 << 13  # of a query and a candidate; a thread is started only if it has so many to compare


@dataclass(frozen=True)
class Records:
    """Stored vectors, one in each row of bytes; with a seed, each after its checksum (see kernels.py)."""

    rows: Codes
    seed: np.uint64 | None = None

    @property
    def start(self) -> int:
        """The byte at which a vector begins."""
        from fusehash.search.vectors.kernels import SUM_BYTES

        return 0 if self.seed is None else SUM_BYTES


Locate = Callable[[Ints], tuple[Records, Ints]]  # positions of rows -> records, and which of them are theirs


@dataclass(frozen=True)
class VectorFormat:
    """How the vectors of an index are stored."""

    kind: str
    dim: int

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector."""
        return self.dim * KINDS[self.kind].itemsize

    def encoded(self, vectors: ArrayLike, count: int) -> Codes:
        """Vectors as rows of bytes; there must be `count`."""
        real = check_real(vectors, self.dim, "Vectors")
        if len(real) != count:
            raise DataError(f"There must be one vector for each of {count} codes. Got {len(real)} instead.")
        if self.kind != "float32":
            real = real / np.abs(real).max(axis=1, keepdims=True, initial=np.finfo(float).tiny)
        elif np.any(np.abs(real) > np.finfo(np.float32).max):
            raise DataError("Vectors must be finite in single precision. Got larger numbers.")
        stored = (np.rint(127 * real) if self.kind == "int8" else real).astype(KINDS[self.kind])
        if not stored.any(axis=1).all():
            raise DataError("Vectors must not be zero in single precision. Got one that is, which has no direction.")
        return np.ascontiguousarray(stored).view(np.uint8)

    def numbers(self, rows: Codes) -> NDArray[Any]:
        """The stored numbers of rows of bytes; half precision as single precision."""
        stored = np.ascontiguousarray(rows).view(KINDS[self.kind])
        return stored.astype(np.float32) if self.kind == "float16" else stored


def rescored(
    form: VectorFormat,
    rows: CodeRows,
    locate: Locate,
    queries: NDArray[np.floating[Any]],
    candidates: Ints,
    k: int,
    threads: int | None,
) -> tuple[NDArray[np.float32], Ids]:
    """Distances and ids of the nearest k of the candidates, which are positions (queries, candidates).

    In order of (distance, id). Raises DamageError.
    """
    from fusehash.search.vectors.kernels import nearest

    k = min(k, candidates.shape[1])
    distances, found = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    records, places = locate(candidates)
    item = np.dtype(np.uint16) if form.kind == "float16" else KINDS[form.kind]  # numba knows no half precision
    stored = records.rows.view(item), records.start // item.itemsize, *_checked_by(form, records)

    def compare(start: int, stop: int) -> None:
        some = slice(start, stop)
        asked = queries[some].astype(np.float64, order="C")
        asked /= np.abs(asked).max(axis=1, keepdims=True)  # squares must not overflow
        damaged = nearest(*stored, places[some], candidates[some], asked, distances[some], found[some])
        if damaged >= 0:
            _refuse(rows, candidates[some].reshape(-1)[damaged])

    share = min(workers(threads), max(1, candidates.size // _PAIRS_PER_THREAD))
    run(compare, cut_evenly(len(queries), share), share)
    return distances, rows.ids_at(found)


def gathered(form: VectorFormat, rows: CodeRows, locate: Locate, positions: Ints) -> Codes:
    """The vectors of the rows at some positions, as bytes. Raises DamageError."""
    from fusehash.search.vectors.kernels import first_damaged

    if not len(positions):
        return np.empty((0, form.n_bytes), np.uint8)
    records, places = locate(positions)
    damaged = first_damaged(*_checked_by(form, records), places) if records.seed is not None else -1
    if damaged >= 0:
        _refuse(rows, positions[damaged])
    return records.rows[places, records.start : records.start + form.n_bytes]


def _checked_by(form: VectorFormat, records: Records) -> tuple[Any, ...]:
    """Records as words, keys and seed of their checksums."""
    from fusehash.search.vectors.kernels import keys_of

    if records.seed is None:
        nothing = np.empty((0, 2), np.uint32)
        nothing.flags.writeable = False
        return nothing, keys_of(0), np.uint64(0)
    return records.rows.view(np.uint32), keys_of(-(-form.n_bytes // 4)), records.seed


def _refuse(rows: CodeRows, position: int) -> None:
    raise DamageError(f"the vector of id {rows.ids_at(np.array([position]))[0]} is damaged")
