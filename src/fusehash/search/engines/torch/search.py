"""Exact search over packed codes where they lie: on a GPU, or wherever an array library computes.

`top_k` and `within` take packed codes as arrays of PyTorch, CuPy or NumPy (extra ``gpu``) and answer on the same
device, in order of (distance, position), to the position what scan.py answers.

Distances come from one matrix product. With codes c and queries q in {-1, +1}^K,

    d(q, c) - K / 2 = -<q, c> / 2,

an integer of at most 512 for K <= 1024, hence exact in half precision, which is what accelerators multiply fastest.
gpu_select.py takes the nearest k out of that matrix; where Triton is at hand the matrix is never written, see
gpu_fused.py. Queries and codes are cut into blocks, so that memory stays bounded whatever their numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fusehash.bits import unpack
from fusehash.errors import DataError, ParameterError
from fusehash.numerics.arrays import cast, is_accelerated, namespace, to_device_of
from fusehash.search.engines.torch.select import Held, merge, smallest, worth_grouping

logger = logging.getLogger(__name__)

Distances = Callable[[Any, int, int], Any]  # of queries to the codes from a start to a stop, a query a row

_CELLS = {True: 1 << 29, False: 1 << 24}  # distances held at a time: on an accelerator, and on a processor
_BITS = {True: 1 << 30, False: 1 << 26}  # bits unpacked at a time, and kept unpacked where all codes have no more
_ROUND = 64  # rows of a product come in multiples of this: unaligned ones are several times slower
_FEW = 64  # queries below which codes are cut into blocks before queries are
_fused_fails = False  # said once, then products answer


class Resident:
    """Packed codes on a device, with what searches make of them kept for the next one."""

    def __init__(self, codes: Any) -> None:
        self.codes = _check(codes, "Codes")
        self._signs: Any = None
        self._words: Any = None

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    @property
    def n_bits(self) -> int:
        return 8 * int(self.codes.shape[1])

    @property
    def most(self) -> int:
        """Codes that may be unpacked at a time."""
        return _BITS[is_accelerated(self.codes)] // self.n_bits

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        own_words = None if self.n_bits % 32 == 0 else self._words  # whole words are the codes themselves
        return sum(int(each.nbytes) for each in (self.codes, own_words, self._signs) if each is not None)

    def signs(self, start: int, stop: int) -> Any:
        """The codes from ``start`` to ``stop`` as rows of -1 and +1; rows that fill up a multiple may follow them."""
        if self._signs is None and len(self) <= self.most:
            self._signs = _signs(self.codes, multiple=_ROUND)
        if self._signs is None:
            return _signs(self.codes[start:stop, :], multiple=_ROUND)
        return self._signs[start : start + _rounded(stop - start), :]

    def words(self) -> Any:
        """The codes as 32-bit words (PyTorch)."""
        if self._words is None:
            from fusehash.search.engines.torch.fused import to_words

            self._words = to_words(self.codes)
        return self._words

    def only(self, positions: Any) -> Resident:
        """The codes at some positions."""
        return Resident(namespace(self.codes).take(self.codes, positions, axis=0))


def top_k(
    codes: Any, queries: Any, k: int, *, allowed: Any = None, method: str = "auto", cells: int | None = None
) -> tuple[Any, Any]:
    """Distances (int32) and positions (int64), (queries, k) each, of the nearest codes by (distance, position).

    Parameters
    ----------
    codes : uint8 array (n, bytes), or a `Resident` that holds one
    queries : uint8 array (m, bytes) on the same device
    k : from 0 to the number of codes looked at
    allowed : positions to look at, an ascending int64 array on the same device; None for all
    method : "product", "fused" (PyTorch on CUDA with Triton), or "auto": fused where that is possible
    cells : distances to hold in memory at a time
    """
    resident = codes if isinstance(codes, Resident) else Resident(codes)
    queries = _check(queries, "Query codes", resident.n_bits)
    if allowed is not None:
        resident = resident.only(allowed)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 0 <= k <= len(resident):
        raise ParameterError("top_k", "k", f"an integer from 0 to the {len(resident)} codes looked at", k)
    if method not in ("auto", "product", "fused"):
        raise ParameterError("top_k", "method", "'auto', 'product' or 'fused'", method)
    xp, k = namespace(queries), int(k)
    cells = cells or _CELLS[is_accelerated(queries)]
    found = None
    if k and queries.shape[0] and method != "product":
        found = _fused_top_k(resident, queries, k, cells, must=method == "fused")
    if found is None:
        values, positions = _by_blocks(resident, queries, k, cells, _products(resident))
        found = cast(values, "int32") + resident.n_bits // 2, positions
    distances, positions = found
    return distances, positions if allowed is None else _looked_up(xp, allowed, positions)


def within(
    codes: Any, queries: Any, radius: int, *, allowed: Any = None, cells: int | None = None
) -> tuple[Any, Any, Any]:
    """Offsets (int64, queries + 1), distances (int32) and positions (int64) of all codes at most ``radius`` away.

    Query q's lie from ``offsets[q]`` to ``offsets[q + 1]``, in order of (distance, position). Arguments as in `top_k`.
    """
    resident = codes if isinstance(codes, Resident) else Resident(codes)
    queries = _check(queries, "Query codes", resident.n_bits)
    if allowed is not None:
        resident = resident.only(allowed)
    xp, n, n_queries, n_bits = namespace(queries), len(resident), int(queries.shape[0]), resident.n_bits
    cells = (cells or _CELLS[is_accelerated(queries)]) // 4  # whoever is found takes several numbers
    middle, products = n_bits // 2, _products(resident)
    limit = min(int(radius), n_bits) - middle
    # Whoever is found becomes one number, (query, distance, position), whose order is the order wanted.
    keys = [xp.zeros((0,), dtype=xp.int64, device=queries.device)]
    for rows, columns in _blocks(n_queries, n, resident.most, cells):
        for start, stop in columns:
            values = products(queries[rows, :], start, stop)
            query, column = xp.nonzero(values <= limit)
            distance = cast(values[query, column], "int64") + middle
            keys.append(((query + rows.start) * (n_bits + 1) + distance) * n + column + start)
    ordered = xp.sort(xp.concat(keys))
    levels, positions = (ordered // n, ordered % n) if n else (ordered, ordered)
    firsts = xp.arange(n_queries + 1, dtype=xp.int64, device=queries.device) * (n_bits + 1)
    offsets = cast(xp.searchsorted(levels, firsts), "int64")
    distances = cast(levels % (n_bits + 1), "int32")
    return offsets, distances, positions if allowed is None else _looked_up(xp, allowed, positions)


def asymmetric_top_k(
    codes: Any, projections: Any, k: int, *, allowed: Any = None, cells: int | None = None
) -> tuple[Any, Any]:
    """The nearest codes by -<p, b>, b in {-1, +1}^K behind a code, for real-valued queries p (m, K).

    Distances are float64, ties in order of position. A code's distance is the sum, byte after byte, of one of 256
    sums a byte: the same additions in the same order as `fusehash.evaluation` makes, hence the same to the last bit on
    every device, and equal codes tie. A product would be quicker and promise neither.
    """
    resident = codes if isinstance(codes, Resident) else Resident(codes)
    if projections.ndim != 2 or projections.shape[1] != resident.n_bits:
        raise DataError(
            f"Projections must be a matrix (n, {resident.n_bits}), a column a bit. "
            f"Got shape {tuple(projections.shape)} instead."
        )
    if allowed is not None:
        resident = resident.only(allowed)
    if not 0 <= k <= len(resident):
        raise ParameterError("asymmetric_top_k", "k", f"an integer from 0 to the {len(resident)} codes looked at", k)
    xp, P = namespace(projections), cast(projections, "float64")
    cells = (cells or _CELLS[is_accelerated(P)]) // 8
    signs = to_device_of(_byte_signs().astype(np.float64), P)

    def distances(asked: Any, start: int, stop: int) -> Any:
        values = cast(resident.codes[start:stop, :], "int64")
        D = xp.zeros((asked.shape[0], stop - start), dtype=xp.float64, device=P.device)
        for byte in range(resident.n_bits // 8):
            table = xp.zeros((asked.shape[0], 256), dtype=xp.float64, device=P.device)
            for bit in range(8):
                table = table - asked[:, 8 * byte + bit, None] * signs[None, :, bit]
            D = D + xp.take(table, values[:, byte], axis=1)
        return D

    found, positions = _by_blocks(resident, P, k, cells, distances)
    return found, positions if allowed is None else _looked_up(xp, allowed, positions)


def _by_blocks(resident: Resident, queries: Any, k: int, cells: int, distances: Distances) -> tuple[Any, Any]:
    """Nearest k of every block of codes, merged; ``distances`` gives those of a block."""
    xp, n = namespace(queries), len(resident)
    if not k or not queries.shape[0]:
        shape = (int(queries.shape[0]), k)
        return tuple(xp.zeros(shape, dtype=dtype, device=queries.device) for dtype in (xp.float64, xp.int64))
    if not worth_grouping(n, k):
        cells //= 8  # every distance becomes a key of up to 64 bits
    done = []
    for rows, columns in _blocks(int(queries.shape[0]), n, resident.most, cells, k):
        asked, best = queries[rows, :], None
        for start, stop in columns:
            values, found = smallest(Held(distances(asked, start, stop)), min(k, stop - start))
            best = (values, found + start) if best is None else merge(best, (values, found + start), k)
        done.append(best)
    values, positions = (xp.concat(list(parts), axis=0) for parts in zip(*done, strict=True))
    return values, positions


def _blocks(n_queries: int, n: int, most: int, cells: int, k: int = 1) -> Iterator[tuple[slice, list[tuple[int, int]]]]:
    """Stretches of queries, and for each the stretches of at most ``most`` codes; no pair exceeds so many cells."""
    high = max(1, min(n_queries, max(cells // max(1, n), _FEW), cells // (4 * max(1, k))))
    wide = max(1, min(n, max(_ROUND, min(most, cells // high) // _ROUND * _ROUND)))
    columns = [(start, min(start + wide, n)) for start in range(0, n, wide)]
    for start in range(0, n_queries, high):
        yield slice(start, min(start + high, n_queries)), columns


def _products(resident: Resident) -> Distances:
    """Distances less half the bits, as they leave the product: one more pass over so large a matrix would show."""

    def distances(queries: Any, start: int, stop: int) -> Any:
        signs = resident.signs(start, stop)
        return namespace(queries).matmul(_signs(queries) * -0.5, signs.T)[:, : stop - start]

    return distances


def _signs(codes: Any, multiple: int = 1) -> Any:
    """Codes as rows of -1 and +1, and rows of zeros up to a multiple, in a type whose products are exact and fast."""
    xp = namespace(codes)
    half = is_accelerated(codes) and hasattr(xp, "float16")
    table = cast(to_device_of(_byte_signs(), codes), "float16" if half else "float32")
    values = xp.reshape(cast(codes, "int32"), (-1,))
    signs = xp.reshape(xp.take(table, values, axis=0), (codes.shape[0], 8 * codes.shape[1]))
    gap = -signs.shape[0] % multiple
    if not gap:
        return signs
    return xp.concat([signs, xp.zeros((gap, signs.shape[1]), dtype=signs.dtype, device=codes.device)], axis=0)


def _byte_signs() -> np.ndarray[Any, Any]:
    """The eight signs behind every byte; bits.py alone knows their order."""
    return unpack(np.arange(256, dtype=np.uint8)[:, None], 8)


def _rounded(count: int) -> int:
    return -(-count // _ROUND) * _ROUND


def _looked_up(xp: Any, allowed: Any, positions: Any) -> Any:
    return xp.reshape(xp.take(allowed, xp.reshape(positions, (-1,)), axis=0), positions.shape)


def _fused_top_k(resident: Resident, queries: Any, k: int, cells: int, *, must: bool) -> tuple[Any, Any] | None:
    """The answer of gpu_fused.py, or None where it has none."""
    global _fused_fails
    from fusehash.search.engines.torch import fused as gpu_fused

    reason = gpu_fused.missing(queries)
    if must and reason:
        raise ParameterError("top_k", "method", f"'auto' or 'product' ({reason})", "fused")
    if reason or not gpu_fused.suits(len(resident), k) or (_fused_fails and not must):
        return None
    try:
        return gpu_fused.top_k(resident.words(), gpu_fused.to_words(queries), k, cells)
    except Exception as error:  # compilers fail in ways of their own; what they were to compute is known anyhow
        if must or "OutOfMemory" in type(error).__name__:
            raise
        _fused_fails = True
        logger.warning("Triton could not run (%s): searches take matrix products, with the same results", error)
        return None


def _check(codes: Any, what: str, n_bits: int | None = None) -> Any:
    if str(codes.dtype).rsplit(".", 1)[-1] != "uint8" or codes.ndim != 2:
        raise DataError(
            f"{what} must be a uint8 matrix (n, bytes). Got {codes.dtype} of shape {tuple(codes.shape)} instead."
        )
    if not 1 <= codes.shape[1] <= 128:
        raise DataError(f"{what} must have 1 to 128 bytes a row. Got {codes.shape[1]} instead.")
    if n_bits is not None and 8 * codes.shape[1] != n_bits:
        raise DataError(f"{what} of {n_bits} bits must have {n_bits // 8} bytes a row. Got {codes.shape[1]} instead.")
    return codes
