"""A pass over the rows: the only way in which FuseHash and AGSFH touch the data.

Work is given one block of rows at a time and gives back sums, which are merged, and one line for every row, which are
put together in order. Where the rows are (in memory, on a disk, on a GPU) and who computes (threads, a device, the
workers of a cluster) is known here and nowhere else, so that one fit serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import (
    HOST,
    Array,
    host,
    is_accelerated,
    is_foreign,
    namespace,
    place,
    real,
    take_rows,
    to_device,
    to_device_of,
)
from fusehash.numerics.parallel import map_blocks
from fusehash.views import PairedViews

# Rows of a block on a device, where starting a kernel costs as much as thousands of rows: as many as its memory holds
# several times over, within these limits.
DEVICE_ROWS = 16_384
MANY_DEVICE_ROWS = 262_144
DEVICE_BYTES_A_ROW = 2**18
# Entries of a dense block on the host; bounds memory whatever the width of a view.
BLOCK_ENTRIES = 2**21
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Some rows of every view, and where each view is present (None: in all of them).

    Arrays are dense and in double precision; on a GPU, single stays single.
    """

    rows: slice
    arrays: dict[str, Array]
    present: dict[str, Array | None]


Lines = tuple[Array, ...]
Work = Callable[..., tuple[Lines | None, Any]]


class RowPasses:
    """RowPasses over paired views on this machine: on threads, or on the device where the views are or shall go.

    Parameters
    ----------
    views : the rows
    n_threads : threads for blocks on the host; all cores by default
    device : where to compute on views of the host, such as "cuda"; views on a device are worked on where they are
    selection : only these rows, in this order
    """

    def __init__(
        self,
        views: PairedViews,
        n_threads: int | None = None,
        device: str | None = None,
        selection: NDArray[np.intp] | None = None,
    ) -> None:
        self.views, self.n_threads, self.device, self.selection = views, n_threads, device, selection
        self.like = self._place()

    def _place(self) -> Array:
        """An empty array where the work is done."""
        if self.device is not None:
            return to_device(np.zeros((0, 1)), self.device)
        foreign = {name: view[:0] for name, view in self.views.items() if is_foreign(view)}
        if not foreign:
            return np.zeros((0, 1))
        places = {name: place(view) if is_foreign(view) else ("numpy", HOST) for name, view in self.views.items()}
        if len(set(places.values())) > 1:
            listed = ", ".join(f"'{name}' is {library} on {where}" for name, (library, where) in places.items())
            raise DataError(f"All views must be in one place, or device= must name it. Got {listed}.")
        return real(next(iter(foreign.values())))

    # -- what there is -------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return self.views.names

    @property
    def n_rows(self) -> int:
        return self.views.n_rows if self.selection is None else len(self.selection)

    @property
    def n_features(self) -> dict[str, int]:
        return self.views.n_features

    @property
    def is_local(self) -> bool:
        """Whether all rows are in the memory of this process, in NumPy."""
        return isinstance(self.like, np.ndarray) and self.views.in_memory

    def select(self, rows: NDArray[np.intp]) -> RowPasses:
        """RowPasses over some rows only; those of stored views are read once, here, and kept in memory."""
        if self.selection is not None:
            rows = self.selection[rows]
        if self.views.in_memory:
            return RowPasses(self.views, self.n_threads, self.device, rows)
        kept = self.views.rows(rows)  # not checked anew: a view may be missing in all of these rows
        kept._views = self._gather(rows)
        return RowPasses(kept, self.n_threads, self.device)

    def _gather(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        """Some rows of every view in memory, as they are stored."""
        return {name: take_rows(view, rows) for name, view in self.views.items()}

    def take(self, name: str, rows: NDArray[np.intp]) -> Array:
        """A few rows of one view, dense, where the work is done; rows in which it is missing come as zeros."""
        return self._bring(self.views.dense(name, rows))

    def _bring(self, dense: Array) -> Array:
        if hasattr(dense, "detach"):
            dense = dense.detach()  # or all sums would keep the history of their blocks
        return dense if place(dense) == place(self.like) else to_device_of(host(dense), self.like)

    def present(self, name: str, rows: Any) -> Array | None:
        """Where a view is seen in some rows; None for all of them."""
        mask = self.views.present.get(name)
        if mask is None:
            return None
        here = mask[rows]
        return None if here.all() else self._bring(here)

    def block(self, rows: slice) -> Block:
        where = rows if self.selection is None else self.selection[rows]
        arrays = {name: self._bring(self.views.dense(name, where)) for name in self.names}
        return Block(rows, arrays, {name: self.present(name, where) for name in self.names})

    # -- passes --------------------------------------------------------------------------------------------------

    def rows_a_block(self, size: int) -> int:
        """Rows of a block; `size` is what suits the host."""
        if is_accelerated(self.like):
            return device_rows(self.like)
        return max(min(size, BLOCK_ENTRIES // max(self.n_features.values())), min(size, 256))

    def blocks(self, size: int) -> list[slice]:
        """Slices that cover the rows in order; `size` is what suits the host."""
        size = self.rows_a_block(size)
        return [slice(start, min(start + size, self.n_rows)) for start in range(0, self.n_rows, size)]

    def each(self, work: Callable[[Block], Result], blocks: Iterable[slice]) -> Iterator[Result]:
        """work(block) for some blocks, in order."""
        return map_blocks(lambda rows: work(self.block(rows)), blocks, self._block_threads)

    def total(self, work: Work, size: int, given: Sequence[Array] = ()) -> tuple[Lines | None, Any]:
        """One pass: what work(block, *rows of given) says of the rows, put together, and its sums, merged."""

        def of_block(rows: slice) -> tuple[Lines | None, Any]:
            return work(self.block(rows), *(take_rows(array, rows) for array in given))

        return merged(map_blocks(of_block, self.blocks(size), self._block_threads))

    @property
    def _block_threads(self) -> int | None:
        """A device has one queue of work, and PyTorch on the host has threads of its own."""
        return self.n_threads if isinstance(self.like, np.ndarray) else 1


def device_rows(array: Array) -> int:
    """Rows of a block where an array is."""
    library, device = place(array)
    if library == "torch" and device.startswith("cuda"):
        import torch

        _, total = torch.cuda.mem_get_info(array.device)
        return int(np.clip(total // DEVICE_BYTES_A_ROW, DEVICE_ROWS, MANY_DEVICE_ROWS))
    return 4 * DEVICE_ROWS


def merged(parts: Iterable[tuple[Lines | None, Any]]) -> tuple[Lines | None, Any]:
    """Lines put together and sums added up, in order."""
    lines: list[Lines] = []
    sums = None
    for line, part in parts:
        if line is not None:
            lines.append(line)
        if sums is None:
            sums = part
        elif part is not None:
            sums.add(part)
    return (tuple(concat(column) for column in zip(*lines, strict=True)) if lines else None), sums


def concat(parts: Sequence[Array]) -> Array:
    """Rows of several blocks as one array."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts), axis=0)


class RowSums(dict[str, Any]):
    """Sums over rows, by name; adding those of further rows adds them one by one, in place."""

    def add(self, other: RowSums) -> None:
        for name, value in other.items():
            self[name] += value

    def __iadd__(self, other: RowSums) -> RowSums:  # sums inside sums
        self.add(other)
        return self
