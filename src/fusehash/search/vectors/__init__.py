"""Vectors next to codes: how they are stored, and exact cosine distances of the candidates that codes have found.

"float32" stores the numbers of a vector as they are, "float16" divided by its largest entry. The vectors of a view have
much in common, which would take up most of the eight bits of an "int8", so that those are numbers of what is left:

    x ~ c + s z    x: the vector at unit length; z: whole numbers from -127 to 127
    c = sum of the first vectors / (their number + 10),   s = max |x - c| / 127

with one center c per index, chosen by the first call that adds vectors and kept, and a scale s per vector. If x has
smaller entries than x - c, as vectors of another mean may have that come later, it is stored without the center: s is
negative then, and x ~ s z. Next to z a record has s and the length of the stored vector, in single precision. Files of
earlier versions keep int8 vectors without a center or lengths: divided by their largest entry, times 127, rounded.

The distance of a query to an item is 1 - cos(query, stored vector), summed in double precision and rounded to single
precision: nothing depends on the lengths of vectors, and the distance is exactly that of what is stored.

In memory vectors are rows of a matrix. An index in a file keeps them in a second file next to it (file.py), mapped into
memory: a search touches the vectors of its candidates and no others. Files of the first versions have them in a table
(earlier.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.engines.scan import cut_evenly, run, workers
from fusehash.search.projections import check_floats
from fusehash.search.rows import CodeRows, Ids, Ints, Reals
from fusehash.sqlite import DamageError

KINDS: dict[str, np.dtype[Any]] = {"int8": np.dtype("i1"), "float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MAX_DIM = 65536
Center = NDArray[np.float32]
_NUMBERS_AT_ONCE = 1 << 16
_HEAD_BYTES = 8  # of the scale and length of a vector around a center
_FIRST_ZEROS = 10  # zeros that count as first vectors, so that few vectors make no center of their own
_PAIRS_PER_THREAD = 1 << 13  # of a query and a candidate; a thread is started only if it has so many to compare


@dataclass(frozen=True)
class Records:
    """Stored vectors, one in each row of bytes; with a seed, each after its checksum (see kernels.py).

    `center` is that of formats with one; None before there are vectors.
    """

    rows: Codes
    seed: np.uint64 | None = None
    center: Center | None = None

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
    has_center: bool = False  # "int8" since format 5

    @classmethod
    def new(cls, kind: str, dim: int) -> VectorFormat:
        return cls(kind, dim, kind == "int8")

    @property
    def head(self) -> int:
        """Bytes before the numbers."""
        return _HEAD_BYTES * self.has_center

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector."""
        n_bytes = self.head + self.dim * KINDS[self.kind].itemsize
        return -(-n_bytes // 4) * 4 if self.has_center else n_bytes

    def checked(self, vectors: ArrayLike, count: int) -> Reals:
        """Vectors that can be stored; there must be `count`."""
        values = check_floats(vectors, self.dim, "Vectors")
        if len(values) != count:
            raise DataError(f"There must be one vector for each of {count} codes. Got {len(values)} instead.")
        if self.kind != "float32":
            return values
        with np.errstate(over="ignore"):
            single = values.astype(np.float32, copy=False)
        if not np.isfinite(single).all():
            raise DataError("Vectors must be finite in single precision. Got larger numbers.")
        if not single.any(axis=1).all():
            raise DataError("Vectors must not be zero in single precision. Got one that is, which has no direction.")
        return single

    def center_of(self, checked: Reals) -> Center | None:
        """The center of an index with these first vectors."""
        if not self.has_center:
            return None
        total = np.sum([_units(part).sum(axis=0) for part in self._parts(checked)], axis=0)
        return np.asarray(total / (len(checked) + _FIRST_ZEROS), np.float32)

    def encoded(self, checked: Reals, center: Center | None) -> Codes:
        """Vectors as rows of bytes."""
        rows = np.zeros((len(checked), self.n_bytes), np.uint8)
        for part, encoded in zip(self._parts(checked), self._parts(rows), strict=True):
            if center is not None:
                self._put_around(center.astype(np.float64), _units(part), encoded)
                continue
            numbers = part if self.kind == "float32" else _divided_by_largest(part)
            encoded.view(KINDS[self.kind])[:] = np.rint(127 * numbers) if self.kind == "int8" else numbers
        return rows

    def _put_around(self, center: Reals, units: Reals, rows: Codes) -> None:
        rest = units - center
        largest, largest_rest = np.abs(units).max(axis=1), np.abs(rest).max(axis=1)
        is_away = largest < largest_rest
        rest[is_away] = units[is_away]
        heads = np.zeros((len(units), 2), "<f4")
        heads[:, 0] = np.where(is_away, -largest, largest_rest) / 127
        heads[np.abs(heads[:, 0]) < np.finfo(np.float32).tiny, 0] = 0.0  # the vector is the center
        scales = heads[:, :1].astype(np.float64)
        numbers = np.clip(np.rint(rest / np.where(scales, scales, np.inf)), -127, 127)
        heads[:, 1] = np.linalg.norm(np.where(scales < 0, 0.0, center) + scales * numbers, axis=1)
        rows[:, : self.head] = heads.view(np.uint8)
        rows[:, self.head : self.head + self.dim] = numbers.astype(np.int8).view(np.uint8)

    def _parts(self, matrix: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Some rows at a time, so that what is computed from them stays in the cache."""
        height = max(1, _NUMBERS_AT_ONCE // self.dim)
        return (matrix[start : start + height] for start in range(0, len(matrix), height))

    def numbers(self, rows: Codes, center: Center | None) -> NDArray[Any]:
        """The vectors in rows of bytes: int8 without a center, else in single precision."""
        stored = np.ascontiguousarray(rows[:, self.head :]).view(KINDS[self.kind])[:, : self.dim]
        if self.has_center:
            scales = np.ascontiguousarray(rows[:, :4]).view("<f4").astype(np.float64)
            base = np.zeros(self.dim) if center is None else center
            return (np.where(scales < 0, 0.0, base) + scales * stored).astype(np.float32)
        return stored.astype(np.float32) if self.kind == "float16" else stored


def _divided_by_largest(vectors: Reals) -> Reals:
    real = vectors.astype(np.float64)
    real /= np.abs(real).max(axis=1, keepdims=True)
    return real


def _units(vectors: Reals) -> Reals:
    real = _divided_by_largest(vectors)  # squares must not overflow
    real /= np.sqrt(np.einsum("ij,ij->i", real, real))[:, None]
    return real


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
    head, center = np.empty((0, 2), np.float32), np.empty(0)
    head.flags.writeable = False
    if records.center is not None:
        head, center = records.rows.view(np.float32), records.center.astype(np.float64)
    first = (records.start + form.head) // item.itemsize
    stored = records.rows.view(item), first, head, records.start // 4, center, *_checked_by(form, records)

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


def gathered(form: VectorFormat, rows: CodeRows, locate: Locate, positions: Ints) -> NDArray[Any]:
    """The vectors of the rows at some positions. Raises DamageError."""
    from fusehash.search.vectors.kernels import first_damaged

    records, places = locate(positions)
    damaged = first_damaged(*_checked_by(form, records), places) if records.seed is not None else -1
    if damaged >= 0:
        _refuse(rows, positions[damaged])
    return form.numbers(records.rows[places, records.start : records.start + form.n_bytes], records.center)


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
