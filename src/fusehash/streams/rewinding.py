"""Rows that can only be walked through from certain starts: streams of blocks, row groups of Parquet files.

A walk goes on from where an earlier one has come to, as long as it need not go back. A few walks are held at once:
threads that work on blocks side by side do not ask in order, and without a walk for each they would begin again and
again. What was just passed stays in a window for those who ask a little later.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fusehash.errors import DataError
from fusehash.numerics.parallel import n_cores
from fusehash.streams.base import PIECE_BYTES, Block
from fusehash.streams.pieces import PiecewiseMatrix

Piece = Mapping[str, Block]


@dataclass(eq=False)
class Walk:
    """An iterator over pieces, and the row that comes next."""

    pieces: Iterator[Piece]
    position: int


class Rewinding:
    """Pieces of paired rows by row number.

    Parameters
    ----------
    begin : row -> (start, iterator): an iterator over pieces {name: (rows, d) array} from row ``start`` <= row on
    start_of : row -> the start that `begin` would choose for it
    n_rows : how many rows there are; an iterator that ends before or goes on is an error
    source : what it is, for messages
    """

    def __init__(
        self,
        begin: Callable[[int], tuple[int, Iterator[Piece]]],
        start_of: Callable[[int], int],
        n_rows: int,
        source: str,
    ) -> None:
        self._begin, self._start_of, self._n_rows, self._source = begin, start_of, n_rows, source
        self._walks: list[Walk] = []  # least recently used first
        self._window: OrderedDict[int, Piece] = OrderedDict()
        self._window_bytes = 0
        self._lock = threading.Lock()

    def piece(self, row: int) -> tuple[int, Piece]:
        """The piece that holds a row, and its first row."""
        with self._lock:
            for first, piece in reversed(self._window.items()):
                if first <= row < first + n_rows_of(piece):
                    return first, piece
            walk = self._walk_to(row)
            while True:
                first, piece = self._advance(walk)
                if row < walk.position:
                    return first, piece

    def _walk_to(self, row: int) -> Walk:
        """The walk that has come nearest to a row, or a new one where that is nearer."""
        start = self._start_of(row)
        near = [walk for walk in self._walks if start <= walk.position <= row]
        if near:
            walk = max(near, key=lambda walk: walk.position)
            self._walks.remove(walk)
        else:
            while len(self._walks) > n_cores():
                self._end(self._walks[0])
            position, pieces = self._begin(row)
            walk = Walk(pieces, position)
        self._walks.append(walk)
        return walk

    def _advance(self, walk: Walk) -> tuple[int, Piece]:
        first = walk.position
        try:
            piece = next(walk.pieces)
        except StopIteration:
            self._end(walk)
            raise self._changed(first) from None
        except BaseException:
            self._end(walk)
            raise
        walk.position += n_rows_of(piece)
        if walk.position > self._n_rows:
            self._end(walk)
            raise self._changed(walk.position)
        if walk.position == self._n_rows:
            self._end(walk)
        self._keep(first, piece)
        return first, piece

    def _changed(self, n_rows: int) -> DataError:
        return DataError(f"{self._source} must give the same {self._n_rows} rows each time. Got {n_rows} now.")

    def _keep(self, first: int, piece: Piece) -> None:
        old = self._window.pop(first, None)
        self._window_bytes += n_bytes_of(piece) - (n_bytes_of(old) if old is not None else 0)
        self._window[first] = piece
        most = PIECE_BYTES * len(piece) * (n_cores() + 3)
        while self._window_bytes > most and len(self._window) > 2:
            self._window_bytes -= n_bytes_of(self._window.popitem(last=False)[1])

    def _end(self, walk: Walk) -> None:
        if walk in self._walks:
            self._walks.remove(walk)
        close = getattr(walk.pieces, "close", None)
        if close is not None:
            with suppress(Exception):  # what it says when it is left early is of no use
                close()

    def close(self) -> None:
        """End every walk and forget what was kept."""
        with self._lock:
            for walk in list(self._walks):
                self._end(walk)
            self._window.clear()
            self._window_bytes = 0


class RewindingView(PiecewiseMatrix):
    """One view of rows that are walked through; the views of one stream share its walks."""

    def __init__(self, source: str, shape: tuple[int, ...], dtype: Any, name: str, reader: Rewinding) -> None:
        super().__init__(source, shape, dtype)
        self._name, self._reader = name, reader

    def _piece(self, row: int) -> tuple[int, Block]:
        first, piece = self._reader.piece(row)
        return first, piece[self._name]


def n_rows_of(piece: Piece) -> int:
    return len(next(iter(piece.values())))


def n_bytes_of(piece: Piece) -> int:
    return sum(block.nbytes for block in piece.values())
