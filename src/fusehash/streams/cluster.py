"""Passes over the rows by the workers of a Dask cluster.

A task passes over one partition of the rows in the same blocks as a pass in this process. It gets the work (small
matrices), the paths of the views or chunks of dask arrays, and its rows of `given`. Sums are added pairwise by the
workers, neighbor with neighbor; arrays per row come back partition by partition. Where partitions begin depends on the
data alone, so the codes do not depend on the workers. Tasks change nothing, so they can be repeated if a worker dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from copy import deepcopy
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import Array, mask_rows
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.streams.dask_arrays import dense_chunk
from fusehash.streams.row_passes import Block, PerRow, Result, RowPasses, Work, add_up, cut
from fusehash.streams.stored import Recipe, RowReader, StoredMatrix
from fusehash.views import BLOCK_ROWS, PairedViews, to_dense

PARTITION_ROWS = 16_384  # enough for a second of work, so that starting a task costs nothing
MAX_PARTITIONS = 1024  # the scheduler looks at each of them: with more rows, partitions grow
DASK_BYTES = 2**27  # a worker holds its partition of a dask array as a whole, that of a file block by block
ATTEMPTS = 3  # a pass begins again if no worker is left that has the work
WAIT_SECONDS = 60

Pieces = dict[str, Any]
Files = dict[str, Recipe | None]  # in the order of the views; None: a dask array


class ClusterPasses(RowPasses):
    """Passes over stored views by the workers of a cluster, which can reach every view.

    `n_threads` is for what is done in this process (work on small samples).
    """

    def __init__(self, client: Any, views: PairedViews, n_threads: int | None = None) -> None:
        super().__init__(views, n_threads)
        self._client = client
        self._files = {name: None if view.dask_array is not None else view.__reduce__() for name, view in views.items()}
        self._partitions: dict[int, list[tuple[Pieces, Span]]] = {}  # by rows per block

    def take(self, name: str, rows: NDArray[np.intp]) -> Array:
        dense, mask = to_dense(self._read([name], rows)[name]), self.views.present.get(name)
        return dense if mask is None else mask_rows(dense, mask[rows])

    def _gather(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return self._read(self.names, rows)

    def each(self, work: Callable[..., Result], blocks: Iterable[slice]) -> Iterator[Result]:
        blocks = list(blocks)
        partitions = self.partitions(max((rows.stop - rows.start for rows in blocks), default=1))
        owners = [partitions[rows.start // partitions[0][1].stop] for rows in blocks]
        if any(rows.stop > span.stop for rows, (_, span) in zip(blocks, owners, strict=True)):
            return super().each(work, blocks)  # cut in another way than `blocks` cuts

        def tasks(delayed: Any, work: Any, files: Any) -> list[Any]:
            return [delayed(work_on)(work, files, *part, rows) for part, rows in zip(owners, blocks, strict=True)]

        return iter(self._compute(tasks, work))

    def total(self, work: Work, size: int, given: Sequence[Array] = ()) -> tuple[PerRow | None, Any]:
        size = self.rows_per_block(size)

        def tasks(delayed: Any, work: Any, files: Any) -> list[Any]:
            per_row, sums = [], []
            for pieces, span in self.partitions(size):
                rows = [array[span.start : span.stop] for array in given]
                arrays, part = delayed(pass_over, nout=2)(work, files, pieces, span, rows)
                per_row.append(arrays)
                sums.append(part)
            while len(sums) > 1:  # a tree: neighbors, then neighbors of those
                pairs = zip(sums[::2], sums[1::2], strict=False)
                sums = [delayed(add_sums)(*pair) for pair in pairs] + (sums[-1:] if len(sums) % 2 else [])
            return [*per_row, *sums]

        *per_row, sums = self._compute(tasks, work)
        return add_up((arrays, None) for arrays in per_row)[0], sums

    def _read(self, names: list[str], rows: NDArray[np.intp]) -> dict[str, Any]:
        """Some rows of some views as they are stored, read by the workers."""
        ordered, back = np.unique(rows, return_inverse=True)
        partitions = self.partitions(self.rows_per_block(BLOCK_ROWS))
        parts = np.split(ordered, np.searchsorted(ordered, [span.start for _, span in partitions[1:]]))

        def tasks(delayed: Any, names: Any, files: Any) -> list[Any]:
            some = [(source, part) for source, part in zip(partitions, parts, strict=True) if len(part)]
            return [delayed(take_from)(names, files, *source, part) for source, part in some]

        blocks = self._compute(tasks, names)
        return {name: np.concatenate([block[name] for block in blocks])[back] for name in names}

    def partitions(self, size: int) -> list[tuple[Pieces, Span]]:
        """Partitions for passes in blocks of `size` rows, which end between two blocks; dask arrays are cut lazily."""
        if size not in self._partitions:
            cuts = cut(0, self.n_rows, self._rows_per_partition(size))
            masks = self.views.present.items()
            spans = [Span(rows.start, rows.stop, size, {name: mask[rows] for name, mask in masks}) for rows in cuts]
            pieces: list[Pieces] = [{} for _ in spans]
            for name, view in self.views.items():
                if (array := view.dask_array) is not None:
                    chunks = tuple(rows.stop - rows.start for rows in cuts), (array.shape[1],)
                    # Rechunking through the disks of all workers would start again when one of them dies.
                    for by_name, piece in zip(
                        pieces, array.rechunk(chunks, method="tasks").to_delayed()[:, 0], strict=True
                    ):
                        by_name[name] = piece
            self._partitions[size] = list(zip(pieces, spans, strict=True))
        return self._partitions[size]

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
                # What workers hold is released, not cancelled: the scheduler of distributed 2026.8 would break the
                # connection. An error may hold on to the futures.
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
            message = f"The dask cluster must have at least one worker. None came within {WAIT_SECONDS} seconds."
            raise DataError(message) from None


@dataclass(frozen=True)
class Span:
    """The rows start to stop, in blocks of `size`, and where views are present (those that are not in all rows)."""

    start: int
    stop: int
    size: int
    masks: dict[str, NDArray[np.bool_]]

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
        arrays: dict[str, Array] = {name: to_dense(view[rows]) for name, view in self.views.items()}
        present: dict[str, Array | None] = dict.fromkeys(arrays)
        for name, mask in self.span.masks.items():
            seen = mask[self.span.inside(rows)]
            if name in arrays and not seen.all():
                arrays[name], present[name] = mask_rows(arrays[name], seen), seen
        return Block(rows, arrays, present)


def pass_over(work: Work, files: Files, pieces: Pieces, span: Span, given: list[Array]) -> tuple[PerRow | None, Any]:
    """Arrays per row and sums of one partition."""
    partition = Partition(files, pieces, span)

    def of_block(rows: slice) -> tuple[PerRow | None, Any]:
        return work(partition.block(rows), *(array[span.inside(rows)] for array in given))

    blocks = cut(span.start, span.stop, span.size)
    return add_up(map_blocks(of_block, blocks, 1))  # a worker has threads for several partitions


def work_on(work: Callable[[Block], Result], files: Files, pieces: Pieces, span: Span, rows: slice) -> Result:
    """work(block) for one block of a partition."""
    with one_blas_thread():
        return work(Partition(files, pieces, span).block(rows))


def take_from(names: list[str], files: Files, pieces: Pieces, span: Span, rows: NDArray[np.intp]) -> dict[str, Any]:
    """Some rows of some views, as they are stored."""
    views = Partition({name: files[name] for name in names}, pieces, span).views
    return {name: views[name][rows] for name in names}


def add_sums(left: Any, right: Any) -> Any:
    """The sums of two partitions, as new ones: dask may use its arguments again."""
    if left is None or right is None:
        return right if left is None else left
    total = deepcopy(left)
    total += right
    return total
