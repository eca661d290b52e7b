"""Views larger than memory: matrices in files and streams, passes over their rows, and codes written in blocks."""

from __future__ import annotations

from fusehash import views
from fusehash.streams.blocks import is_block_stream, open_blocks
from fusehash.streams.dask_arrays import active_client
from fusehash.streams.formats import is_view_path, open_view
from fusehash.streams.row_passes import RowPasses
from fusehash.streams.stored import StoredMatrix, is_reachable
from fusehash.streams.writers import NpyWriter
from fusehash.views import PairedViews

__all__ = [
    "NpyWriter",
    "PairedViews",
    "StoredMatrix",
    "is_block_stream",
    "is_view_path",
    "open_blocks",
    "open_view",
    "passes_over",
]

views.OPENERS.update(view=open_view, blocks=open_blocks, is_stream=is_block_stream)


def passes_over(
    views: PairedViews, n_threads: int | None = None, device: str | None = None, *, keep_sparse: bool = False
) -> RowPasses:
    """Passes over the rows: by the dask cluster that this process is connected to, or in this process.

    Workers read files (under the same paths) and dask arrays. With anything else, or a `device`, it is this process.
    """
    client = active_client() if device is None else None
    if client is not None and all(is_reachable(view) for view in views.values()):
        from fusehash.streams.cluster import ClusterPasses

        return ClusterPasses(client, views, n_threads)
    return RowPasses(views, n_threads, device, keep_sparse=keep_sparse)
