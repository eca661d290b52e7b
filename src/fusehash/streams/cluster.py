"""RowPasses over the rows by the workers of a Dask cluster.

The rows are cut into partitions. A task passes over one partition in the same blocks as a pass on this machine, and
gives back the lines of its rows and their sums. Sums are added pairwise by the workers, neighbor with neighbor, so
that one small result comes back; lines come back partition by partition. Where partitions begin depends on the data
alone, so the codes are the same whatever the number of workers and whoever was fastest.

To a worker go the work (small matrices), the paths of the views, and for each partition what is given of its rows. The
rows themselves are read by the workers, or are chunks of a dask array that the cluster has or makes. Tasks change
nothing, so the tasks of a worker that dies are done again by others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import chain
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import Array
from fusehash.streams import StoredMatrix
from fusehash.streams.checked import CheckedView
from fusehash.streams.pieces import ChunkedMatrix
from fusehash.streams.row_passes import Lines, Result, RowPasses, Work, concat
from fusehash.streams.tasks import FileView, Span, add_sums, pass_over, take_from, work_on_each
from fusehash.views import BLOCK_ROWS, PairedViews, to_dense

# Rows of a partition: enough for a second of work, in which telling a worker about it costs nothing.
PARTITION_ROWS = 16_384
# Of large data partitions grow instead of becoming more: the scheduler looks at each of them.
MOST_PARTITIONS = 1024
# A partition of a dask array is held by a worker as a whole, of a file only block by block.
PIECE_BYTES = 2**27
# A pass is begun again where no worker is left that holds the work.
ATTEMPTS = 3
WAIT_SECONDS = 60


def passes_over(views: PairedViews, n_threads: int | None = None, device: str | None = None) -> RowPasses:
    """RowPasses by the cluster that this process is connected to, where it can reach the rows; else on this machine.

    The workers can reach files (they must see them under the same paths) and dask arrays. Arrays in memory, streams and
    cuts of stored views stay here also where there is a cluster, and so does all that shall run on a `device`.
    """
    client = active_client()
    if client is None or device is not None or not all(is_reachable(view) for view in views.values()):
        return RowPasses(views, n_threads, device)
    return ClusterPasses(client, views, n_threads)


def active_client() -> Any:
    """The client of a dask cluster that this process has opened, or None."""
    distributed = sys.modules.get("distributed")  # who has a client has imported it
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except (ValueError, AttributeError):
        return None
    return None if client.asynchronous or client.status in ("closing", "closed") else client


def stored(view: Any) -> Any:
    """The stored matrix behind a checked view."""
    return view.matrix if isinstance(view, CheckedView) else view


def is_reachable(view: Any) -> bool:
    """Whether other machines can read a view: a file that is not temporary, or a dask array."""
    matrix = stored(view)
    is_file = hasattr(matrix, "path") and getattr(matrix, "owner", None) is None
    return isinstance(matrix, StoredMatrix) and (is_file or is_dask(matrix))


def is_dask(view: Any) -> bool:
    return type(stored(view)).__name__ == "DaskMatrix"


class ClusterPasses(RowPasses):
    """RowPasses over stored views by the workers of a cluster.

    Parameters
    ----------
    client : of the cluster, a distributed.Client
    views : the rows; every view is a file that the workers can read, or a dask array
    n_threads : for what is done on this machine (work on small samples)
    """

    def __init__(self, client: Any, views: PairedViews, n_threads: int | None = None) -> None:
        super().__init__(views, n_threads)
        self._client = client
        self._files = {
            name: None if is_dask(view) else FileView.of(stored(view), name, allow_missing=name in views.present)
            for name, view in views.items()
        }
        self._spans: dict[int, list[Span]] = {}
        self._pieces: dict[int, list[dict[str, Any]]] = {}

    # -- passes --------------------------------------------------------------------------------------------------

    def take(self, name: str, rows: NDArray[np.intp]) -> Array:
        dense = to_dense(self._rows([name], rows)[name])
        mask = self.views.present.get(name)
        return dense if mask is None else np.where(mask[rows][:, None], dense, 0.0)

    def _gather(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return self._rows(self.names, rows)

    def each(self, work: Callable[..., Result], blocks: Iterable[slice]) -> Iterator[Result]:
        blocks = list(blocks)
        size = max((rows.stop - rows.start for rows in blocks), default=1)
        starts = np.array([span.start for span in self._partitions(size)])
        owners = np.searchsorted(starts, [rows.start for rows in blocks], side="right") - 1
        wanted = [(k, [rows for rows, owner in zip(blocks, owners, strict=True) if owner == k]) for k in
                  dict.fromkeys(owners.tolist())]  # fmt: skip
        if any(rows.stop > self._partitions(size)[k].stop for k, some in wanted for rows in some):
            return super().each(work, blocks)  # cut in another way than `blocks` cuts

        def tasks(delayed: Any, sent: Any, files: Any) -> list[Any]:
            return [delayed(work_on_each)(sent, files, *self._source(size, k), some) for k, some in wanted]

        found: list[list[Result]] = self._compute(tasks, work)
        by_block = dict(zip((rows.start for _, some in wanted for rows in some), chain(*found), strict=True))
        return iter([by_block[rows.start] for rows in blocks])

    def total(self, work: Work, size: int, given: Sequence[Array] = ()) -> tuple[Lines | None, Any]:
        size = self.rows_a_block(size)

        def tasks(delayed: Any, sent: Any, files: Any) -> list[Any]:
            lines, sums = [], []
            for k, span in enumerate(self._partitions(size)):
                here = [array[span.start : span.stop] for array in given]
                line, part = delayed(pass_over, nout=2)(sent, files, *self._source(size, k), here)
                lines.append(line)
                sums.append(part)
            while len(sums) > 1:  # a tree: neighbors, then neighbors of those
                pairs = zip(sums[::2], sums[1::2], strict=False)
                sums = [delayed(add_sums)(*pair) for pair in pairs] + (sums[-1:] if len(sums) % 2 else [])
            return [*lines, *sums]

        *lines, sums = self._compute(tasks, work)
        if any(line is None for line in lines):
            return None, sums
        return tuple(concat(column) for column in zip(*lines, strict=True)), sums

    def _rows(self, names: list[str], rows: NDArray[np.intp]) -> dict[str, Any]:
        """Some rows of some views as they are stored, read by the workers."""
        wanted, back = np.unique(rows, return_inverse=True)
        size = self.rows_a_block(BLOCK_ROWS)
        parts = [(k, wanted[slice(*np.searchsorted(wanted, (span.start, span.stop)))]) for k, span in
                 enumerate(self._partitions(size))]  # fmt: skip

        def tasks(delayed: Any, sent: Any, files: Any) -> list[Any]:
            return [
                delayed(take_from)(sent, files, *self._source(size, k, names), some) for k, some in parts if len(some)
            ]

        found = self._compute(tasks, names)
        return {name: np.concatenate([part[name] for part in found])[back] for name in names}

    # -- partitions ----------------------------------------------------------------------------------------------

    def _partitions(self, size: int) -> list[Span]:
        """Where the partitions of passes in blocks of `size` rows begin and end; always between two blocks."""
        if size not in self._spans:
            step = self._step(size)
            starts = range(0, self.n_rows, step)
            self._spans[size] = [Span(start, min(start + step, self.n_rows), size) for start in starts]
        return self._spans[size]

    def _step(self, size: int) -> int:
        rows, unit = max(PARTITION_ROWS, -(-self.n_rows // MOST_PARTITIONS)), size
        for matrix in map(stored, self.views.values()):
            # A chunk of a file that two partitions share is unpacked twice.
            if isinstance(matrix, ChunkedMatrix) and not is_dask(matrix):
                chunk = matrix.chunk_rows
                shared = lcm(unit, chunk) > 8 * max(chunk, size)
                unit, rows = (unit, max(rows, 8 * chunk)) if shared else (lcm(unit, chunk), rows)
        width = sum(stored(view).row_bytes for view in self.views.values() if is_dask(view))
        if width:
            rows = min(rows, max(PIECE_BYTES // width, 1))
        return -(-rows // unit) * unit

    def _source(self, size: int, k: int, names: list[str] | None = None) -> tuple[dict[str, Any], Span]:
        """Partition k: its pieces of dask arrays, and the span with its masks."""
        span = self._partitions(size)[k]
        if size not in self._pieces:
            self._pieces[size] = self._cut_dask_arrays(self._partitions(size))
        pieces = {name: piece for name, piece in self._pieces[size][k].items() if names is None or name in names}
        masks = {name: mask[span.start : span.stop] for name, mask in self.views.present.items()}
        return pieces, span.seen(masks)

    def _cut_dask_arrays(self, spans: list[Span]) -> list[dict[str, Any]]:
        """For every partition, its rows of every dask array, as tasks that are not done yet."""
        pieces: list[dict[str, Any]] = [{} for _ in spans]
        rows = tuple(span.stop - span.start for span in spans)
        for name, view in self.views.items():
            if is_dask(view):
                array = stored(view).array
                # Not the rechunking that goes through the disks of all workers: it starts anew when one of them dies.
                cut = array.rechunk((rows, (array.shape[1],)), method="tasks").to_delayed()[:, 0]
                for piece, by_name in zip(cut, pieces, strict=True):
                    by_name[name] = piece
        return pieces

    # -- the cluster ---------------------------------------------------------------------------------------------

    def _compute(self, tasks: Callable[[Any, Any, Any], list[Any]], work: Any) -> list[Any]:
        """The results of tasks(delayed, work, files), with work and files held by every worker."""
        import dask
        from distributed.comm import CommClosedError

        for _ in range(ATTEMPTS):
            held: list[Any] = []
            futures: list[Any] = []
            try:
                held = self._broadcast([work, self._files])
                # What is given of the rows goes with the tasks: sent ahead, it would be lost with its worker.
                with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                    futures = self._client.compute(tasks(dask.delayed, *held))
                return list(self._client.gather(futures))
            except (CancelledError, CommClosedError):
                continue
            except BaseException:  # also Ctrl-C: nobody waits for the rest
                self._client.cancel(futures)
                raise
            finally:
                # An error may hold on to them. What workers hold is not cancelled: schedulers break the connection over
                # things with tasks left that nobody asked for (seen in distributed 2026.8).
                for future in (*held, *futures):
                    future.release()
        raise DataError(
            f"The dask cluster must keep some of its workers. It lost all of them {ATTEMPTS} times in a pass."
        )

    def _broadcast(self, things: list[Any]) -> list[Any]:
        """Futures of small things that every worker has."""
        try:
            self._client.wait_for_workers(1, timeout=WAIT_SECONDS)
            # By their hash, things of an earlier pass would be taken for known that workers have given up since.
            return list(self._client.scatter(things, broadcast=True, hash=False))
        except TimeoutError:
            raise DataError(
                f"The dask cluster must have at least one worker. None came within {WAIT_SECONDS} seconds."
            ) from None
