"""The engine "torch": exact search over packed codes with PyTorch, on a GPU if there is one (extra `gpu`).

`top_k` and `within` take packed codes as arrays of PyTorch, CuPy or NumPy and answer on the same device, with the same
results as scan.py. Distances come from one matrix product. With codes c and queries q in {-1, +1}^K,

    d(q, c) - K / 2 = -<q, c> / 2,

an integer of at most 512 for K <= 1024, hence exact in half precision, which accelerators multiply fastest. Longer
codes take single precision, in which partial sums are exact too. select.py takes the nearest k out of that matrix.
Queries and codes are cut into blocks, so that memory stays bounded. On CUDA with Triton, cascade.py answers without
that matrix.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from fusehash.bits import Codes, byte_signs
from fusehash.errors import ParameterError
from fusehash.extras import require
from fusehash.forks import new_lock
from fusehash.numerics.arrays import cast, is_accelerated, namespace, to_device_of
from fusehash.search.engines import weighted as processor
from fusehash.search.engines.torch import cascade, select, weighted
from fusehash.search.engines.torch.weighted import to_host
from fusehash.search.projections import Projections
from fusehash.search.rows import Allowed, CodeRows, InRange, Nearest, Threads

_CELLS = {True: 1 << 29, False: 1 << 24}  # distances in memory at a time: on an accelerator, and on a processor
_BITS = {True: 1 << 30, False: 1 << 26}  # bits unpacked at a time, and kept unpacked if all codes have no more
_ROUND = 64  # rows of a product come in multiples of this: unaligned ones are several times slower
_HALF_BITS = 1024  # codes up to this length are multiplied in half precision
_FEW = 64  # queries below which codes are cut into blocks before queries are


class TorchEngine:
    """Searches on `device`; by default the first CUDA device or, without one, the processor.

    Codes are sent to the device at the first search and stay there until the index changes or is deleted.
    """

    def __init__(self, device: str | None = None) -> None:
        self.name = "torch" if device is None else f"torch:{device}"
        self._device_name, self._device = device, None
        self._lock = new_lock()
        self._rows: weakref.ref[CodeRows] | None = None  # weak, so that rows that an index has dropped are freed
        self._resident: Resident | None = None
        if device is not None:
            self._find_device()  # raises for a wrong name now, not at the first search

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        distances, positions = top_k(self._sent(rows), self._send(queries), k, allowed=self._send(allowed))
        return to_host(distances), to_host(positions)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        offsets, distances, positions = within(
            self._sent(rows), self._send(queries), radius, allowed=self._send(allowed)
        )
        return to_host(offsets), to_host(distances), to_host(positions)

    @property
    def weighted(self) -> TorchWeighted | ModuleType:
        """For real-valued queries; the processor where the device has no double precision."""
        return processor if getattr(self._find_device(), "type", "") == "mps" else TorchWeighted(self)

    def stats(self) -> dict[str, Any]:
        resident, device = self._resident, self._device
        n_bytes = 0 if resident is None else resident.nbytes
        return {"device": None if device is None else str(device), "device_bytes": n_bytes}

    def _find_device(self) -> Any:
        if self._device is None:
            torch = _import()
            name = self._device_name or ("cuda" if torch.cuda.is_available() else "cpu")
            try:
                self._device = torch.empty(0, device=name).device
            except (RuntimeError, AssertionError) as error:  # unknown name, no such device, built without CUDA
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ParameterError(
                    "HammingIndex", "engine", f"'torch:' and a device that PyTorch has here ({reason})", self.name
                ) from None
        return self._device

    def _send(self, array: Any) -> Any:
        return None if array is None else _import().tensor(np.ascontiguousarray(array), device=self._find_device())

    def _sent(self, rows: CodeRows) -> Resident:
        """These rows on the device."""
        with self._lock:
            if self._resident is None or self._rows is None or self._rows() is not rows:
                self._resident = None  # frees its memory before more is allocated
                self._resident = Resident(self._send(rows.codes))
                self._rows = weakref.ref(rows, self._free)
            return self._resident

    def _free(self, reference: weakref.ref[CodeRows]) -> None:
        if reference is self._rows:
            self._resident = None


class TorchWeighted:
    """Answers real-valued queries on the device of an engine."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine

    def search(self, rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads) -> Any:
        return weighted.top_k(self._engine._sent(rows), queries, k, self._engine._send(allowed))

    def range_search(
        self, rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads
    ) -> Any:
        return weighted.within(self._engine._sent(rows).codes, queries, radius, self._engine._send(allowed))


def _import() -> Any:
    require("array_api_compat", "The torch engine")
    return require("torch", "The torch engine")


class Resident:
    """Packed codes on a device, and what searches derive from them, kept for the next search."""

    def __init__(self, codes: Any) -> None:
        self.codes = codes
        self._signs: Any = None
        self._words: Any = None

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    @property
    def n_bits(self) -> int:
        return 8 * int(self.codes.shape[1])

    @property
    def max_unpacked(self) -> int:
        """Codes that may be unpacked at a time."""
        return _BITS[is_accelerated(self.codes)] // self.n_bits

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        words = None if self.n_bits % 32 == 0 else self._words  # whole words are the codes themselves
        return sum(int(array.nbytes) for array in (self.codes, words, self._signs) if array is not None)

    def signs(self, start: int, stop: int) -> Any:
        """The codes from `start` to `stop` as rows of -1 and +1; rows that fill up a multiple may follow them."""
        if self._signs is None and len(self) <= self.max_unpacked:
            self._signs = _signs(self.codes, multiple=_ROUND)
        if self._signs is None:
            return _signs(self.codes[start:stop, :], multiple=_ROUND)
        n_rows = -(-(stop - start) // _ROUND) * _ROUND
        return self._signs[start : start + n_rows, :]

    def words(self) -> Any:
        """The codes as 32-bit words (PyTorch)."""
        if self._words is None:
            self._words = cascade.to_words(self.codes)
        return self._words

    def distances(self, queries: Any, start: int, stop: int) -> Any:
        """Distances of queries to the codes from `start` to `stop`, less half the bits, which saves a pass."""
        product = namespace(queries).matmul(_signs(queries) * -0.5, self.signs(start, stop).T)
        return product[:, : stop - start]


def top_k(
    codes: Any, queries: Any, k: int, *, allowed: Any = None, method: str = "auto", cells: int | None = None
) -> tuple[Any, Any]:
    """Distances (int32) and positions (int64), (queries, k) each, of the nearest codes by (distance, position).

    `codes` (or a `Resident`), `queries` and `allowed`, the positions to look at, are on one device. The method "fused"
    needs PyTorch on CUDA with Triton; "auto" uses it where possible. `cells` distances are in memory at a time.
    """
    resident = _resident(codes, allowed)
    cells, answer = cells or _CELLS[is_accelerated(queries)], None
    if k and queries.shape[0] and method != "product":
        answer = _fused(resident, queries, k, cells, must=method == "fused")
    if answer is None:
        values, positions = _by_blocks(resident, queries, k, cells)
        answer = cast(values, "int32") + resident.n_bits // 2, positions
    return answer[0], _positions(allowed, answer[1])


def within(
    codes: Any, queries: Any, radius: int, *, allowed: Any = None, cells: int | None = None
) -> tuple[Any, Any, Any]:
    """Offsets (int64, queries + 1), distances (int32) and positions (int64) of all codes at most `radius` away.

    Query q has `offsets[q]` to `offsets[q + 1]`, in order of (distance, position). Arguments as in `top_k`.
    """
    resident = _resident(codes, allowed)
    xp, n, n_queries, n_bits = namespace(queries), len(resident), int(queries.shape[0]), resident.n_bits
    cells = (cells or _CELLS[is_accelerated(queries)]) // 4  # every result takes several numbers
    middle = n_bits // 2
    # Every result becomes one number, (query, distance, position), whose order is that of the results.
    keys = [xp.zeros((0,), dtype=xp.int64, device=queries.device)]
    for rows, columns in _blocks(n_queries, n, resident.max_unpacked, cells):
        for start, stop in columns:
            values = resident.distances(queries[rows, :], start, stop)
            query, column = xp.nonzero(values <= min(int(radius), n_bits) - middle)
            distance = cast(values[query, column], "int64") + middle
            keys.append(((query + rows.start) * (n_bits + 1) + distance) * n + column + start)
    ordered = xp.sort(xp.concat(keys))
    levels, positions = (ordered // n, ordered % n) if n else (ordered, ordered)
    firsts = xp.arange(n_queries + 1, dtype=xp.int64, device=queries.device) * (n_bits + 1)
    offsets = cast(xp.searchsorted(levels, firsts), "int64")
    return offsets, cast(levels % (n_bits + 1), "int32"), _positions(allowed, positions)


def _resident(codes: Any, allowed: Any) -> Resident:
    resident = codes if isinstance(codes, Resident) else Resident(codes)
    if allowed is None:
        return resident
    return Resident(namespace(resident.codes).take(resident.codes, allowed, axis=0))


def _by_blocks(resident: Resident, queries: Any, k: int, cells: int) -> tuple[Any, Any]:
    """Nearest k of every block of codes, merged."""
    xp, n = namespace(queries), len(resident)
    if not k or not queries.shape[0]:
        shape = (int(queries.shape[0]), k)
        return tuple(xp.zeros(shape, dtype=dtype, device=queries.device) for dtype in (xp.float64, xp.int64))
    if not select.worth_grouping(n, k):
        cells //= 8  # every distance becomes a key of up to 64 bits
    parts = []
    for rows, columns in _blocks(int(queries.shape[0]), n, resident.max_unpacked, cells, k):
        best = None
        for start, stop in columns:
            distances = resident.distances(queries[rows, :], start, stop)
            values, positions = select.smallest(select.Held(distances), min(k, stop - start))
            best = (values, positions + start) if best is None else select.merge(best, (values, positions + start), k)
        parts.append(best)
    values, positions = (xp.concat(list(part), axis=0) for part in zip(*parts, strict=True))
    return values, positions


def _blocks(
    n_queries: int, n: int, max_unpacked: int, cells: int, k: int = 1
) -> Iterator[tuple[slice, list[tuple[int, int]]]]:
    """Stretches of queries, and for each the stretches of codes; no pair has more than so many cells."""
    height = max(1, min(n_queries, max(cells // max(1, n), _FEW), cells // (4 * max(1, k))))
    width = max(1, min(n, max(_ROUND, min(max_unpacked, cells // height) // _ROUND * _ROUND)))
    columns = [(start, min(start + width, n)) for start in range(0, n, width)]
    for start in range(0, n_queries, height):
        yield slice(start, min(start + height, n_queries)), columns


def _signs(codes: Any, multiple: int = 1) -> Any:
    """Codes as rows of -1 and +1, and rows of zeros up to a multiple, in a type whose products are exact and fast."""
    xp = namespace(codes)
    half = is_accelerated(codes) and hasattr(xp, "float16") and 8 * codes.shape[1] <= _HALF_BITS
    table = cast(to_device_of(byte_signs(), codes), "float16" if half else "float32")
    values = xp.reshape(cast(codes, "int32"), (-1,))
    signs = xp.reshape(xp.take(table, values, axis=0), (codes.shape[0], 8 * codes.shape[1]))
    gap = -signs.shape[0] % multiple
    if not gap:
        return signs
    return xp.concat([signs, xp.zeros((gap, signs.shape[1]), dtype=signs.dtype, device=codes.device)], axis=0)


def _positions(allowed: Any, positions: Any) -> Any:
    """Positions among all codes of positions among the allowed ones."""
    if allowed is None:
        return positions
    xp = namespace(allowed)
    return xp.reshape(xp.take(allowed, xp.reshape(positions, (-1,)), axis=0), positions.shape)


def _fused(resident: Resident, queries: Any, k: int, cells: int, *, must: bool) -> tuple[Any, Any] | None:
    """The result of the Triton kernels, or None where they cannot be used."""
    reason = cascade.missing(queries)
    if must and reason:
        raise ParameterError("top_k", "method", f"'auto' or 'product' ({reason})", "fused")
    if reason or not cascade.suits(len(resident), k):
        return None
    return cascade.attempt(lambda: cascade.top_k(resident.words(), cascade.to_words(queries), k, cells // 2), must=must)
