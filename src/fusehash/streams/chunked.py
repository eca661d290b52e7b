"""Matrices whose chunks must be decoded: which chunks are read together, and how many decoded ones are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from fusehash.errors import FusehashError
from fusehash.numerics.parallel import n_cores
from fusehash.streams.stored import PIECE_BYTES, Matrix, PieceReader, StoredMatrix, check_dtype, unreadable
from fusehash.views import check_shape

KEPT_BYTES = 2**28  # of decoded chunks


def in_chunks(source: str, array: Any, edges: Any, load: Callable[[int, int], Matrix], **options: Any) -> StoredMatrix:
    """A matrix whose chunks `load(start, stop)` decodes."""
    longest = int(np.diff(edges).max(initial=1))
    n_kept = KEPT_BYTES // max(1, longest * array.shape[1] * array.dtype.itemsize)
    reader = PieceReader(edges, load, max(2, min(n_cores() + 2, n_kept)))
    return StoredMatrix(source, array.shape, array.dtype, reader, chunk_rows=longest, in_chunks=True, **options)


def in_regular_chunks(array: Any, source: str, **options: Any) -> StoredMatrix:
    """An array with regular chunks, read by cutting it."""
    edges = even_edges(source, array, array.chunks[0])
    return in_chunks(source, array, edges, partial(read_rows, array, source=source), **options)


def even_edges(source: str, array: Any, chunk_rows: int) -> Any:
    """Edges of pieces of whole chunks, several chunks per piece if they are small."""
    n_rows, width = check_shape(source, array.shape)
    chunk_bytes = chunk_rows * width * check_dtype(source, array.dtype).itemsize
    step = chunk_rows * max(1, PIECE_BYTES // max(1, chunk_bytes))
    return np.append(np.arange(0, n_rows, step), n_rows)


def joined_edges(chunks: Iterable[int], row_bytes: int) -> Any:
    """The same for chunks of any length: small neighbors are joined."""
    most = max(1, PIECE_BYTES // max(1, row_bytes))
    edges = [0, 0]
    for rows in filter(None, chunks):
        if edges[-1] + rows - edges[-2] > most and edges[-1] > edges[-2]:
            edges.append(edges[-1])
        edges[-1] += rows
    return np.array(edges)


def read_rows(array: Any, start: int, stop: int, source: str) -> Matrix:
    try:
        return np.asarray(array[start:stop])
    except FusehashError:
        raise
    except Exception as error:  # readers of foreign bytes raise all sorts of errors
        raise unreadable(source, error) from error
