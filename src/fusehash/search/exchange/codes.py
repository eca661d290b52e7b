"""What all formats share: what is written and read, and the order of bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes, other_order
from fusehash.errors import DataError
from fusehash.search.rows import Ids

ORDERS = ("big", "little")


class ExportedRows(NamedTuple):
    """Some rows of an index; vectors and factors are None where it keeps none."""

    ids: Ids
    codes: Codes
    vectors: NDArray[Any] | None = None
    factors: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Export:
    """What to write, in blocks and already in the order of bits of the file."""

    n_bits: int
    count: int
    order: str
    blocks: Callable[[], Iterator[ExportedRows]]
    suffix: str  # of the file
    vector_kind: str | None = None  # "int8", "float16" or "float32"; None without vectors
    dim: int | None = None
    has_factors: bool = False


@dataclass(frozen=True)
class ImportedRows:
    """What was read. `order` is None if the file does not say; ids, vectors and factors are None if it has none."""

    codes: Codes
    ids: Ids | None = None
    order: str | None = None
    vectors: NDArray[Any] | None = None
    factors: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class CodesFormat:
    """How a kind of file is written and read."""

    suffixes: tuple[str, ...]
    write: Callable[[BinaryIO, Export], Any]
    read: Callable[[Path], ImportedRows]
    what: str
    holds_codes_alone: Callable[[str], bool] = lambda suffix: False  # no place for vectors and factors


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


def unreadable(path: Path, what: str, error: Exception) -> DataError:
    """The sentence for a file that is damaged or foreign."""
    return DataError(f"'{path}' must be {what}. It is damaged or something else ({type(error).__name__}).")
