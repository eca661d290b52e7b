"""Matrices that come in pieces which are costly to make: compressed chunks, lazy computations, row groups, streams.

A piece that was made is kept for a while, so that a pass in small blocks makes each piece once, and a piece that
several threads want at the same time is made by one of them.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import numpy as np

from fusehash.numerics.parallel import n_cores
from fusehash.streams.base import PIECE_BYTES, Block, Rows, StoredMatrix

KEPT_BYTES = 2**28


class PiecewiseMatrix(StoredMatrix):
    """A stored matrix whose rows are cut from pieces."""

    @abstractmethod
    def _piece(self, row: int) -> tuple[int, Block]:
        """The piece that holds a row, and the number of its first row; not to be changed."""

    def _read(self, start: int, stop: int) -> Block:
        block, position = self._empty(stop - start), start
        while position < stop:
            first, piece = self._piece(position)
            end = min(stop, first + len(piece))
            block[position - start : end - start] = piece[position - first : end - first]
            position = end
        return block

    def _take(self, rows: Rows) -> Block:
        taken, done = self._empty(len(rows)), 0
        while done < len(rows):
            first, piece = self._piece(int(rows[done]))
            until = int(np.searchsorted(rows, first + len(piece)))
            taken[done:until] = piece[rows[done:until] - first]
            done = until
        return taken


class ChunkedMatrix(PiecewiseMatrix):
    """Pieces that can be made one by one: piece k is the rows ``edges[k]`` to ``edges[k + 1]``."""

    def __init__(self, source: str, shape: tuple[int, ...], dtype: Any, edges: Any) -> None:
        self._edges = np.asarray(edges, dtype=np.int64)
        longest = int(np.diff(self._edges).max(initial=1))
        super().__init__(source, shape, dtype, longest)
        kept = KEPT_BYTES // max(1, longest * self.row_bytes)
        self._kept = Kept(self._make, max(2, min(n_cores() + 2, kept)))

    def _piece(self, row: int) -> tuple[int, Block]:
        k = int(np.searchsorted(self._edges, row, side="right")) - 1
        return int(self._edges[k]), self._kept.get(k)

    def _make(self, k: int) -> Block:
        return self._load(int(self._edges[k]), int(self._edges[k + 1]))

    @abstractmethod
    def _load(self, start: int, stop: int) -> Block:
        """Make one piece; several may be made at once."""


class Kept:
    """The last pieces that were asked for; each is made by the first who asks, and others wait for it."""

    def __init__(self, make: Callable[[int], Block], n_kept: int) -> None:
        self._make, self._n_kept = make, n_kept
        self._pieces: OrderedDict[int, Future[Block]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, k: int) -> Block:
        with self._lock:
            piece = self._pieces.get(k)
            mine = piece is None
            if piece is None:
                piece = self._pieces[k] = Future()
            self._pieces.move_to_end(k)
            while len(self._pieces) > self._n_kept:
                self._pieces.popitem(last=False)  # who waits for it still holds it
        if mine:
            try:
                piece.set_result(self._make(k))
            except BaseException as error:
                with self._lock:
                    if self._pieces.get(k) is piece:
                        del self._pieces[k]
                piece.set_exception(error)
                raise
        return piece.result()


def even_edges(n_rows: int, chunk_rows: int, row_bytes: int) -> Any:
    """Edges of pieces of whole chunks, several of them where chunks are small."""
    step = chunk_rows * max(1, PIECE_BYTES // max(1, chunk_rows * row_bytes))
    return np.append(np.arange(0, n_rows, step), n_rows)


def joined_edges(chunks: Iterable[int], row_bytes: int) -> Any:
    """The same for chunks of any length: small neighbors are joined, since each piece costs a walk through a graph."""
    most = max(1, PIECE_BYTES // max(1, row_bytes))
    edges = [0, 0]
    for rows in filter(None, chunks):
        if edges[-1] + rows - edges[-2] > most and edges[-1] > edges[-2]:
            edges.append(edges[-1])
        edges[-1] += rows
    return np.array(edges)
