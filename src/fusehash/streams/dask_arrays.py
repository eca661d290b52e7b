"""dask arrays, computed chunk by chunk: by the thread that asks, or by a cluster if a client is connected."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.errors import DataError
from fusehash.streams.chunked import in_chunks, joined_edges
from fusehash.streams.stored import Matrix, StoredMatrix, check_dtype
from fusehash.views import check_shape


def open_dask(array: Any) -> StoredMatrix:
    """A dask array, computed chunk by chunk: by the thread that asks, or by a cluster if a client is connected."""
    source = "The dask array"
    if any(np.isnan(size) for size in array.shape):
        raise DataError("A dask array must know its shape. Got unknown chunks; compute_chunk_sizes() finds it.")
    if isinstance(array._meta, np.ma.MaskedArray):
        raise DataError("A dask array must not be masked. Got a masked one; dask.array.ma.filled(x, nan) helps.")
    _, width = check_shape(source, array.shape)
    whole_rows = array.rechunk({1: -1})

    def load(start: int, stop: int) -> Matrix:
        chunk = whole_rows[start:stop].compute(**({} if active_client() else {"scheduler": "synchronous"}))
        return dense_chunk(chunk, (stop - start, width))

    edges = joined_edges(whole_rows.chunks[0], width * check_dtype(source, array.dtype).itemsize)
    return in_chunks(source, array, edges, load, recipe=(open_dask, (array,)), dask_array=array)


def dense_chunk(chunk: Any, shape: tuple[int, int]) -> Matrix:
    """A computed chunk of a dask array; raises if it does not have the shape that the array announces."""
    if chunk.shape != shape:
        raise DataError(f"A chunk of the dask array must have the announced shape {shape}. Got {chunk.shape} instead.")
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


def active_client() -> Any:
    """The client of a dask cluster that this process has opened, or None."""
    try:
        client = sys.modules["distributed"].default_client()
    except (KeyError, ValueError, AttributeError):
        return None
    return None if client.asynchronous or client.status in ("closing", "closed") else client
