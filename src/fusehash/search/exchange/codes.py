"""What all formats share: what is written and read, the order of bits, and whether codes look reversed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes, other_order, unpack
from fusehash.errors import DataError
from fusehash.search.rows import Ids

ORDERS = ("big", "little")
_SAMPLE = 20_000  # codes whose bits are compared


@dataclass(frozen=True)
class Export:
    """Codes to write, in blocks and already in the order of bits of the file."""

    n_bits: int
    count: int
    order: str
    blocks: Callable[[], Iterator[tuple[Ids, Codes]]]
    suffix: str  # of the file

    def all(self) -> tuple[Ids, Codes]:
        """Everything in two arrays."""
        ids, codes = np.empty(self.count, np.int64), np.empty((self.count, self.n_bits // 8), np.uint8)
        filled = 0
        for block_ids, block in self.blocks():
            ids[filled : filled + len(block)], codes[filled : filled + len(block)] = block_ids, block
            filled += len(block)
        return ids, codes


@dataclass(frozen=True)
class Imported:
    """Codes that were read. `order` is None if the file does not say; ids are None if it has none."""

    codes: Codes
    ids: Ids | None = None
    order: str | None = None


@dataclass(frozen=True)
class CodesFormat:
    """How a kind of file is written and read."""

    suffixes: tuple[str, ...]
    write: Callable[[BinaryIO, Export], Any]
    read: Callable[[Path], Imported]
    what: str


def reordered(codes: Codes, order: str) -> Codes:
    """From fusehash's order of bits to another one, or back."""
    return codes if order == "little" else other_order(codes)


def as_ids(numbers: Any, path: Path) -> Ids:
    """Numbers from a file as ids."""
    array = np.asarray(numbers)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        raise DataError(f"Ids in '{path}' must be below 2^63. Got {array.max()} instead.")
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DataError(f"Ids in '{path}' must be whole numbers. Got {array.dtype} of shape {array.shape} instead.")
    return array.astype(np.int64)


def check_unsigned(ids: Ids, what: str) -> None:
    """Some libraries know no negative ids."""
    if len(ids) and ids.min() < 0:
        raise DataError(f"{what} has no ids below 0. Got {ids.min()}; export to another format.")


def looks_reversed(codes: Codes, like: Codes) -> bool:
    """Whether codes resemble others only if the bits of every byte are reversed.

    Compares how often each bit is 1, and how often two bits of a code agree. Codes of the same model have the same
    pattern; if both patterns are flat there is nothing to tell, and the answer is False.

    Parameters
    ----------
    codes, like : uint8 arrays, shapes (n, bytes) and (m, bytes)
        Codes in question, and codes in the right order.
    """
    if min(len(codes), len(like)) < 100 or codes.shape[1] != like.shape[1]:
        return False
    expected, straight, reversed_ = _pattern(like), _pattern(codes), _pattern(other_order(codes[_some(codes)]))
    # What two samples of the same codes differ by: entries scatter by 1 / sqrt(n).
    noise = expected.size * (1 / min(len(codes), _SAMPLE) + 1 / min(len(like), _SAMPLE))
    far, near = float(np.sum((straight - expected) ** 2)), float(np.sum((reversed_ - expected) ** 2))
    return far > 2 * near and far > 3 * noise


def _some(codes: Codes) -> NDArray[np.int64]:
    return np.linspace(0, len(codes) - 1, min(len(codes), _SAMPLE)).astype(np.int64)


def _pattern(codes: Codes) -> NDArray[np.float32]:
    """The mean of every bit, and the mean product of bits of one code, as signs; at most 128 bits are looked at."""
    chosen = codes[_some(codes)][:, :16]
    signs = unpack(chosen, chosen.shape[1] * 8).astype(np.float32)
    products = signs.T @ signs / len(signs)
    return np.concatenate([signs.mean(axis=0), products[np.triu_indices(len(products), 1)]])


def unreadable(path: Path, what: str, error: Exception) -> DataError:
    """The sentence for a file that is damaged or foreign."""
    return DataError(f"'{path}' must be {what}. It is damaged or something else ({type(error).__name__}).")
