"""Passes over the rows by the workers of a Dask cluster.

The rows are cut into partitions. A task passes over one partition in the same blocks as a pass in this process. Sums
are added pairwise by the workers, neighbor with neighbor, so that one small result comes back; arrays per row come back
partition by partition. Where partitions begin depends on the data alone, so the codes do not depend on the workers.

A worker gets the work (small matrices), the paths of the views, and per partition the rows of `given`. It reads the
rows itself, or has chunks of a dask array. Tasks change nothing, so others repeat the tasks of a worker that dies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import Array
from fusehash.numerics.parallel import map_blocks
from fusehash.streams.formats import dense_chunk
from fusehash.streams.row_passes import Block, PerRow, Result, RowPasses, Total, Work, concat
from fusehash.streams.stored import Recipe, RowReader, StoredMatrix
from fusehash.views import BLOCK_ROWS, PairedViews, to_dense

PARTITION_ROWS = 16_384  # enough for a second of work, so that starting a task costs nothing
MAX_PARTITIONS = 1024  # the scheduler looks at each of them: with more rows, partitions grow
DASK_BYTES = 2**27  # a worker holds its partition of a dask array as a whole, that of a file block by block
ATTEMPTS = 3  # a pass begins again if no worker is left that has the work
WAIT_SECONDS = 60

Pieces = dict[str, Any]
Files = dict[str, Recipe | None]  # in the order of the views; None: a dask array


def active_client() -> Any:
    """The client of a dask cluster that this process has opened, or None."""
    try:
        client = sys.modules["distributed"].default_client()
    except (KeyError, ValueError, AttributeError):
        return None
    return None if client.asynchronous or client.status in ("closing", "closed") else client


def is_reachable(view: Any) -> bool:
    """Whether other machines can read a view: a file that is not temporary, or a dask array."""
    is_whole = isinstance(view, StoredMatrix) and view.selection is None
    return is_whole and (view.is_shared or view.dask_array is not None)


class ClusterPasses(RowPasses):
    """Passes over stored views by the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    views : PairedViews
        Every view is reachable for the workers.
    n_threads : int, optional
        For what is done in this process (work on small samples).
    """

    def __init__(self, client: Any, views: PairedViews, n_threads: int | None = None) -> None:
        super().__init__(views, n_threads)
        self._client = client
        self._files = {name: None if view.dask_array is not None else view.__reduce__() for name, view in views.items()}
        self._spans: dict[int, list[Span]] = {}
        self._pieces: dict[int, list[Pieces]] = {}

    # -- passes --------------------------------------------------------------------------------------------------

    def take(self, name: str, rows: NDArray[np.intp]) -> Array:
        dense = to_dense(self._read([name], rows)[name])
        mask = self.views.present.get(name)
        return dense if mask is None else np.where(mask[rows][:, None], dense, 0.0)

    def _gather(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return self._read(self.names, rows)

    def each(self, work: Callable[..., Result], blocks: Iterable[slice]) -> Iterator[Result]:
        blocks = list(blocks)
        size = max((rows.stop - rows.start for rows in blocks), default=1)
        spans = self._partitions(size)
        owners = np.searchsorted([span.start for span in spans], [rows.start for rows in blocks], side="right") - 1
        if any(rows.stop > spans[k].stop for rows, k in zip(blocks, owners, strict=True)):
            return super().each(work, blocks)  # cut in another way than `blocks` cuts
        by_owner: dict[int, list[slice]] = {}
        for rows, k in zip(blocks, owners.tolist(), strict=True):
            by_owner.setdefault(k, []).append(rows)

        def tasks(delayed: Any, work: Any, files: Any) -> list[Any]:
            return [delayed(work_on_each)(work, files, *self._source(size, k), some) for k, some in by_owner.items()]

        results = chain(*self._compute(tasks, work))
        by_start = dict(zip((rows.start for some in by_owner.values() for rows in some), results, strict=True))
        return iter([by_start[rows.start] for rows in blocks])

    def total(self, work: Work, size: int, given: Sequence[Array] = ()) -> tuple[PerRow | None, Any]:
        size = self.rows_per_block(size)

        def tasks(delayed: Any, work: Any, files: Any) -> list[Any]:
            per_row, sums = [], []
            for k, span in enumerate(self._partitions(size)):
                rows = [array[span.start : span.stop] for array in given]
                arrays, part = delayed(pass_over, nout=2)(work, files, *self._source(size, k), rows)
                per_row.append(arrays)
                sums.append(part)
            while len(sums) > 1:  # a tree: neighbors, then neighbors of those
                pairs = zip(sums[::2], sums[1::2], strict=False)
                sums = [delayed(add_sums)(*pair) for pair in pairs] + (sums[-1:] if len(sums) % 2 else [])
            return [*per_row, *sums]

        *per_row, sums = self._compute(tasks, work)
        if any(arrays is None for arrays in per_row):
            return None, sums
        return tuple(concat(column) for column in zip(*per_row, strict=True)), sums

    def _read(self, names: list[str], rows: NDArray[np.intp]) -> dict[str, Any]:
        """Some rows of some views as they are stored, read by the workers."""
        ordered, back = np.unique(rows, return_inverse=True)
        size = self.rows_per_block(BLOCK_ROWS)
        parts = [ordered[slice(*np.searchsorted(ordered, (span.start, span.stop)))] for span in self._partitions(size)]

        def tasks(delayed: Any, names: Any, files: Any) -> list[Any]:
            return [
                delayed(take_from)(names, files, *self._source(size, k), some)
                for k, some in enumerate(parts)
                if len(some)
            ]

        blocks = self._compute(tasks, names)
        return {name: np.concatenate([block[name] for block in blocks])[back] for name in names}

    # -- partitions ----------------------------------------------------------------------------------------------

    def _partitions(self, size: int) -> list[Span]:
        """Where the partitions of passes in blocks of `size` rows begin and end; always between two blocks."""
        if size not in self._spans:
            step = self._rows_per_partition(size)
            starts = range(0, self.n_rows, step)
            self._spans[size] = [Span(start, min(start + step, self.n_rows), size) for start in starts]
        return self._spans[size]

    def _rows_per_partition(self, size: int) -> int:
        rows, unit = max(PARTITION_ROWS, -(-self.n_rows // MAX_PARTITIONS)), size
        for view in self.views.values():
            # Two partitions that share a chunk of a file would both decode it.
            if view.in_chunks and view.dask_array is None:
                chunk = view.chunk_rows
                if lcm(unit, chunk) > 8 * max(chunk, size):
                    rows = max(rows, 8 * chunk)
                else:
                    unit = lcm(unit, chunk)
        width = sum(view.row_bytes for view in self.views.values() if view.dask_array is not None)
        if width:
            rows = min(rows, max(DASK_BYTES // width, 1))
        return -(-rows // unit) * unit

    def _source(self, size: int, k: int) -> tuple[Pieces, Span]:
        """Partition k: its pieces of dask arrays, and the span with its masks."""
        span = self._partitions(size)[k]
        if size not in self._pieces:
            self._pieces[size] = self._cut_dask_arrays(self._partitions(size))
        masks = {name: mask[span.start : span.stop] for name, mask in self.views.present.items()}
        return self._pieces[size][k], replace(span, masks=masks)

    def _cut_dask_arrays(self, spans: list[Span]) -> list[Pieces]:
        """Per partition, its rows of every dask array, as tasks that are not done yet."""
        pieces: list[Pieces] = [{} for _ in spans]
        rows = tuple(span.stop - span.start for span in spans)
        for name, view in self.views.items():
            if (array := view.dask_array) is not None:
                # Rechunking through the disks of all workers would start again when one of them dies.
                cut = array.rechunk((rows, (array.shape[1],)), method="tasks").to_delayed()[:, 0]
                for piece, by_name in zip(cut, pieces, strict=True):
                    by_name[name] = piece
        return pieces

    # -- the cluster ---------------------------------------------------------------------------------------------

    def _compute(self, tasks: Callable[[Any, Any, Any], list[Any]], work: Any) -> list[Any]:
        """The results of tasks(delayed, work, files); every worker has work and files."""
        import dask
        from distributed.comm import CommClosedError

        for _ in range(ATTEMPTS):
            sent: list[Any] = []
            futures: list[Any] = []
            try:
                sent = self._broadcast([work, self._files])
                # Rows of `given` go with the tasks: sent before, they would be lost with their worker.
                with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                    futures = self._client.compute(tasks(dask.delayed, *sent))
                return list(self._client.gather(futures))
            except (CancelledError, CommClosedError):
                continue
            except BaseException:  # also Ctrl-C: nobody waits for the rest
                self._client.cancel(futures)
                raise
            finally:
                # An error may hold on to them. What workers hold is not cancelled: schedulers break the connection over
                # things with tasks left that nobody asked for (seen in distributed 2026.8).
                for future in (*sent, *futures):
                    future.release()
        raise DataError(
            f"The dask cluster must keep some of its workers. It lost all of them {ATTEMPTS} times in a pass."
        )

    def _broadcast(self, things: list[Any]) -> list[Any]:
        """Futures of small things that every worker has."""
        try:
            self._client.wait_for_workers(1, timeout=WAIT_SECONDS)
            # With hash=True, things that workers have dropped since an earlier pass would not be sent again.
            return list(self._client.scatter(things, broadcast=True, hash=False))
        except TimeoutError:
            raise DataError(
                f"The dask cluster must have at least one worker. None came within {WAIT_SECONDS} seconds."
            ) from None


# -- what a worker does with its partition; nothing below knows about Dask ------------------------------------------


@dataclass(frozen=True)
class Span:
    """The rows start to stop, in blocks of `size`, and where views are present (those that are not in all rows)."""

    start: int
    stop: int
    size: int
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def blocks(self) -> list[slice]:
        return [slice(start, min(start + self.size, self.stop)) for start in range(self.start, self.stop, self.size)]

    def inside(self, rows: slice) -> slice:
        """Rows of the data as rows of this span."""
        return slice(rows.start - self.start, rows.stop - self.start)


class Partition:
    """The rows of one partition where they are worked on: read from files, or pieces of dask arrays."""

    def __init__(self, files: Files, pieces: Pieces, span: Span) -> None:
        self.span, self.views = span, {}  # type: Span, dict[str, StoredMatrix]
        for name, recipe in files.items():
            if recipe is not None:
                self.views[name] = recipe[0](*recipe[1])  # opened in the task: its errors are raised as they are
                continue
            array = dense_chunk(pieces[name], (span.stop - span.start, pieces[name].shape[1]))
            reader = RowReader(lambda start, stop, array=array: array[start - span.start : stop - span.start])  # type: ignore[misc]
            matrix = StoredMatrix("The dask array", (span.stop, array.shape[1]), array.dtype, reader)
            self.views[name] = matrix.checked(name, allow_missing=name in span.masks)

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


def pass_over(work: Work, files: Files, pieces: Pieces, span: Span, given: list[Array]) -> tuple[PerRow | None, Any]:
    """Arrays per row and sums of one partition."""
    partition, total = Partition(files, pieces, span), Total()

    def work_on(rows: slice) -> tuple[PerRow | None, Any]:
        return work(partition.block(rows), *(array[span.inside(rows)] for array in given))

    for part in map_blocks(work_on, span.blocks(), 1):  # a worker has threads for several partitions
        total.add(*part)
    return total.result()


def work_on_each(
    work: Callable[[Block], Result], files: Files, pieces: Pieces, span: Span, blocks: list[slice]
) -> list[Result]:
    """work(block) for some blocks of one partition."""
    partition = Partition(files, pieces, span)
    return list(map_blocks(lambda rows: work(partition.block(rows)), blocks, 1))


def take_from(names: list[str], files: Files, pieces: Pieces, span: Span, rows: NDArray[np.intp]) -> dict[str, Any]:
    """Some rows of some views, as they are stored."""
    views = Partition({name: files[name] for name in names}, pieces, span).views
    return {name: views[name][rows] for name in names}


def add_sums(left: Any, right: Any) -> Any:
    """The sums of two partitions, as new ones: dask may use its arguments again."""
    if left is None or right is None:
        return right if left is None else left
    total = deepcopy(left)
    total.add(right)
    return total
