"""What a worker of a cluster does with its partition of the rows. Nothing here knows about Dask."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import Array
from fusehash.numerics.parallel import map_blocks
from fusehash.streams import StoredMatrix
from fusehash.streams.checked import CheckedView
from fusehash.streams.row_passes import Block, Lines, Result, Work, merged
from fusehash.views import to_dense

Pieces = dict[str, Any]


@dataclass(frozen=True)
class FileView:
    """A view in a file, not yet opened: that is done in the task, so that what is wrong is said in its own words."""

    open: Callable[..., StoredMatrix]
    arguments: tuple[Any, ...]
    name: str
    allow_missing: bool

    @classmethod
    def of(cls, matrix: StoredMatrix, name: str, *, allow_missing: bool) -> FileView:
        recipe: Any = matrix.__reduce__()  # how a stored matrix is opened again elsewhere
        return cls(recipe[0], recipe[1], name, allow_missing)

    def __call__(self) -> CheckedView:
        return CheckedView(self.open(*self.arguments), self.name, allow_missing=self.allow_missing)


Files = dict[str, FileView | None]  # in the order of the data; None stands for a dask array


@dataclass(frozen=True)
class Span:
    """The rows start to stop, in blocks of `size`, and in which of them a view is seen (where it is not in all)."""

    start: int
    stop: int
    size: int
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def seen(self, masks: dict[str, NDArray[np.bool_]]) -> Span:
        return replace(self, masks=masks)

    def blocks(self) -> list[slice]:
        return [slice(start, min(start + self.size, self.stop)) for start in range(self.start, self.stop, self.size)]

    def inside(self, rows: slice) -> slice:
        """Rows of the data as rows of this span."""
        return slice(rows.start - self.start, rows.stop - self.start)


class Piece(StoredMatrix):
    """The rows of one partition, by the numbers that they have in the whole."""

    def __init__(self, array: Any, span: Span) -> None:
        rows = span.stop - span.start
        if array.shape[0] != rows:
            raise DataError(
                f"A chunk of the dask array must have the shape {(rows, *array.shape[1:])} that it announces. "
                f"Got {array.shape} instead."
            )
        array = array.toarray() if sp.issparse(array) else np.asarray(array)
        super().__init__("The dask array", (span.stop, array.shape[1]), array.dtype)
        self._array, self._start = array, span.start

    def _read(self, start: int, stop: int) -> Any:
        return self._array[start - self._start : stop - self._start]

    def _take(self, rows: NDArray[np.intp]) -> Any:
        return self._array[rows - self._start]


class Partition:
    """The rows of one partition where they are worked on: read from files, or pieces of dask arrays."""

    def __init__(self, files: Files, pieces: Pieces, span: Span) -> None:
        self.span, self.views = span, {}  # type: Span, dict[str, CheckedView]
        for name, file in files.items():
            if file is not None:
                self.views[name] = file()
            elif name in pieces:
                self.views[name] = CheckedView(Piece(pieces[name], span), name, allow_missing=name in span.masks)

    def block(self, rows: slice) -> Block:
        arrays: dict[str, Array] = {}
        present: dict[str, Array | None] = {}
        for name, view in self.views.items():
            arrays[name], present[name] = to_dense(view[rows]), None
            mask = self.span.masks.get(name)
            if mask is not None and not mask[self.span.inside(rows)].all():
                present[name] = seen = mask[self.span.inside(rows)]
                arrays[name] = np.where(seen[:, None], arrays[name], 0.0)
        return Block(rows, arrays, present)


def pass_over(work: Work, files: Files, pieces: Pieces, span: Span, given: list[Array]) -> tuple[Lines | None, Any]:
    """Lines and sums of one partition."""
    partition = Partition(files, pieces, span)

    def of_block(rows: slice) -> tuple[Lines | None, Any]:
        return work(partition.block(rows), *(array[span.inside(rows)] for array in given))

    return merged(map_blocks(of_block, span.blocks(), 1))  # a worker has threads for several partitions


def work_on_each(
    work: Callable[[Block], Result], files: Files, pieces: Pieces, span: Span, blocks: list[slice]
) -> list[Result]:
    """work(block) for some blocks of one partition."""
    partition = Partition(files, pieces, span)
    return list(map_blocks(lambda rows: work(partition.block(rows)), blocks, 1))


def take_from(names: list[str], files: Files, pieces: Pieces, span: Span, rows: NDArray[np.intp]) -> dict[str, Any]:
    """Some rows of some views, as they are stored."""
    views = Partition(files, pieces, span).views
    return {name: views[name][rows] for name in names}


def add_sums(left: Any, right: Any) -> Any:
    """The sums of two partitions, as new ones: those that were given may be asked for again."""
    if left is None or right is None:
        return right if left is None else left
    total = deepcopy(left)
    total.add(right)
    return total
