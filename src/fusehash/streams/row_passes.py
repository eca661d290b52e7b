"""A pass over the rows: the only way in which FuseHash and AGSFH touch the data.

Work gets one block of rows at a time. It returns sums, which are added up, and arrays with one entry per row, which are
put together in order. Only passes know where the rows are (in memory, on disk, on a GPU) and what computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fusehash.errors import DataError
from fusehash.numerics.arrays import (
    HOST,
    Array,
    cast,
    device_of,
    host,
    is_accelerated,
    is_foreign,
    namespace,
    take_rows,
    to_device,
    to_device_of,
)
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.sparse import stays_sparse
from fusehash.streams.stored import Rows
from fusehash.views import PairedViews

# Rows per block on a device, where starting a kernel costs as much as thousands of rows.
MIN_DEVICE_ROWS = 16_384
MAX_DEVICE_ROWS = 262_144
DEVICE_BYTES_PER_ROW = 2**18
DEVICE_BYTES_PER_COLUMN = 128  # of a row of wide views: some copies in double precision
# Entries of a dense block on the host; bounds memory whatever the width of a view.
BLOCK_ENTRIES = 2**21
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Some rows of every view, and where each view is present (None: in all of them).

    Arrays are dense and in double precision; on a GPU, single stays single. Sparse views of the host stay sparse in
    passes that `keep_sparse`.
    """

    rows: slice
    arrays: dict[str, Array]
    present: dict[str, Array | None]


PerRow = tuple[Array, ...]
Work = Callable[..., tuple[PerRow | None, Any]]


class RowPasses:
    """Passes over paired views in this process: on threads, or on a device.

    Parameters
    ----------
    views : PairedViews
    n_threads : int, optional
        Threads for blocks on the host; all cores by default.
    device : str, optional
        Where to compute on views of the host, such as "cuda". Views on a device stay where they are.
    selection : (n,) array of int, optional
        Only these rows, in this order.
    keep_sparse : bool
        Whether rows of sparse matrices come as csr_array, for work that knows them.

    Attributes
    ----------
    like : array
        An empty array where the work is done; its library and device are those of every block.
    """

    def __init__(
        self,
        views: PairedViews,
        n_threads: int | None = None,
        device: str | None = None,
        selection: Rows | None = None,
        keep_sparse: bool = False,
    ) -> None:
        self.views, self.n_threads, self.device, self.selection = views, n_threads, device, selection
        self.keep_sparse = keep_sparse
        self._sparse: dict[str, bool] = {}
        self.like = self._empty_like()

    def _empty_like(self) -> Array:
        """An empty array where the work is done."""
        if self.device is not None:
            return to_device(np.zeros((0, 1)), self.device)
        foreign = [view[:0] for view in self.views.values() if is_foreign(view)]
        if not foreign:
            return np.zeros((0, 1))
        devices = {name: device_of(view) if is_foreign(view) else ("numpy", HOST) for name, view in self.views.items()}
        if len(set(devices.values())) > 1:
            listed = ", ".join(f"'{name}' is {library} on {device}" for name, (library, device) in devices.items())
            raise DataError(f"All views must be on one device, or device= must name one. Got {listed}.")
        return cast(foreign[0], "float64")

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

    def select(self, rows: Rows) -> RowPasses:
        """Passes over some rows only; rows of stored views are read once, here, and kept in memory."""
        rows = rows if self.selection is None else self.selection[rows]
        if self.views.in_memory:
            return RowPasses(self.views, self.n_threads, self.device, rows, self.keep_sparse)
        kept = self.views.rows(rows)  # not checked again: a view may be missing in all of these rows
        kept._views = self._gather(rows)
        return RowPasses(kept, self.n_threads, self.device, keep_sparse=self.keep_sparse)

    def stays_sparse(self, name: str) -> bool:
        """Whether rows of a view come as csr_array."""
        if name not in self._sparse:
            is_local = isinstance(self.like, np.ndarray)
            self._sparse[name] = self.keep_sparse and is_local and stays_sparse(self.views[name])
        return self._sparse[name]

    def _gather(self, rows: Rows) -> dict[str, Any]:
        """Some rows of every view in memory, as they are stored."""
        return {name: take_rows(view, rows) for name, view in self.views.items()}

    def take(self, name: str, rows: Rows) -> Array:
        """A few rows of one view where the work is done; rows in which it is missing come as zeros."""
        return self._rows(name, rows)

    def _rows(self, name: str, rows: slice | Rows) -> Array:
        if self.stays_sparse(name):
            return self.views.sparse(name, rows)
        return self._bring(self.views.dense(name, rows))

    def _bring(self, dense: Array) -> Array:
        if hasattr(dense, "detach"):
            dense = dense.detach()  # or all sums would keep the history of their blocks
        return dense if device_of(dense) == device_of(self.like) else to_device_of(host(dense), self.like)

    def present(self, name: str, rows: Any) -> Array | None:
        """Where a view is present in some rows; None: in all of them."""
        mask = self.views.present.get(name)
        return None if mask is None or mask[rows].all() else self._bring(mask[rows])

    def block(self, rows: slice) -> Block:
        where = rows if self.selection is None else self.selection[rows]
        arrays = {name: self._rows(name, where) for name in self.names}
        return Block(rows, arrays, {name: self.present(name, where) for name in self.names})

    def rows_per_block(self, size: int) -> int:
        """Rows per block; `size` is what suits the host."""
        if is_accelerated(self.like):
            return device_rows(self.like, sum(self.n_features.values()))
        dense = [d for name, d in self.n_features.items() if not self.stays_sparse(name)]
        return max(min(size, BLOCK_ENTRIES // max([*dense, 1])), min(size, 256))

    def blocks(self, size: int) -> list[slice]:
        """Slices that cover the rows in order; `size` is what suits the host."""
        return cut(0, self.n_rows, self.rows_per_block(size))

    def each(self, work: Callable[[Block], Result], blocks: Iterable[slice]) -> Iterator[Result]:
        """work(block) for some blocks, in order."""
        return map_blocks(lambda rows: work(self.block(rows)), blocks, self._threads)

    def total(self, work: Work, size: int, given: Sequence[Array] = ()) -> tuple[PerRow | None, Any]:
        """One pass: the arrays per row that work(block, *rows of given) returns, put together, and the total sums."""

        def work_on(rows: slice) -> tuple[PerRow | None, Any]:
            return work(self.block(rows), *(take_rows(array, rows) for array in given))

        total = Total()
        for part in map_blocks(work_on, self.blocks(size), self._threads):
            total.add(*part)
        return total.result()

    @property
    def _threads(self) -> int | None:
        # A device has one queue of work, and PyTorch on the host has threads of its own.
        return self.n_threads if isinstance(self.like, np.ndarray) else 1


def cut(start: int, stop: int, size: int) -> list[slice]:
    """Slices of `size` rows that cover the rows from start to stop."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def device_rows(array: Array, n_columns: int) -> int:
    """Rows per block on the device of an array, fewer the more columns all views have together."""
    library, device = device_of(array)
    bytes_per_row = max(DEVICE_BYTES_PER_ROW, DEVICE_BYTES_PER_COLUMN * n_columns)
    memory = 4 * MIN_DEVICE_ROWS * DEVICE_BYTES_PER_ROW
    if library == "torch" and device.startswith("cuda"):
        import torch

        _, memory = torch.cuda.mem_get_info(array.device)
    least = MIN_DEVICE_ROWS * DEVICE_BYTES_PER_ROW // bytes_per_row
    return max(int(np.clip(memory // bytes_per_row, least, MAX_DEVICE_ROWS)), 1)


class Total:
    """Arrays per row, put together, and sums, added up, in the order of the blocks."""

    def __init__(self) -> None:
        self.per_row: list[PerRow] = []
        self.sums: Any = None

    def add(self, per_row: PerRow | None, sums: Any) -> None:
        if per_row is not None:
            self.per_row.append(per_row)
        if self.sums is None:
            self.sums = sums
        elif sums is not None:
            self.sums += sums

    def result(self) -> tuple[PerRow | None, Any]:
        columns = tuple(concat(column) for column in zip(*self.per_row, strict=True))
        return columns or None, self.sums


def add_up(parts: Iterable[tuple[PerRow | None, Any]]) -> tuple[PerRow | None, Any]:
    """The total of the results of several blocks."""
    total = Total()
    for part in parts:
        total.add(*part)
    return total.result()


def concat(parts: Sequence[Array]) -> Array:
    """Rows of several blocks as one array."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts), axis=0)


class RowSums(dict[str, Any]):
    """Sums over rows, by name; `+=` adds the sums of further rows in place. Sums may contain sums."""

    def __iadd__(self, other: RowSums) -> RowSums:
        for name, value in other.items():
            self[name] += value
        return self
