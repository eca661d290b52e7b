"""Streams of paired blocks as views: whatever yields {name: (rows, d) array}, block after block, the same every time.

Training reads its rows more than once, so the stream must be one that can begin again: an object that can be iterated
anew, or a function that returns a new iterator. A first pass counts the rows and checks the widths. A generator that
can be walked through only once is copied to a temporary folder first (one `.npy` file for each view, removed when the
views are no longer used).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.errors import DataError
from fusehash.numerics.arrays import host, unmasked
from fusehash.streams.base import Block, StoredMatrix, check_dtype
from fusehash.streams.npy import RawMatrix, open_npy
from fusehash.streams.rewinding import Piece, Rewinding, RewindingView
from fusehash.streams.sinks import NpySink, Sink

SOURCE = "The stream of blocks"


def is_block_stream(source: Any) -> bool:
    """Whether something is a stream of paired blocks (and no matrix, and no set of views)."""
    if isinstance(source, list):
        return bool(source) and all(isinstance(block, Mapping) for block in source)
    if isinstance(source, Mapping | str | bytes | Path | tuple) or sp.issparse(source):
        return False
    if hasattr(source, "shape") or hasattr(source, "__array__") or isinstance(source, type):
        return False
    return callable(source) or hasattr(source, "__iter__")


def open_blocks(source: Any, *, spool: bool | None = None) -> dict[str, StoredMatrix]:
    """The views of a stream of paired blocks; one pass over the stream serves all of them.

    Parameters
    ----------
    source : an iterable of blocks, or a function that returns an iterator over them. A block is a mapping from name
        to (rows, d) array, dense or scipy.sparse, or a tuple of such arrays (named "view0", "view1", ...).
    spool : copy the stream to a temporary folder in one pass and read from there. By default only what cannot be
        iterated twice is copied; True pays for streams that are slow to make.
    """
    once = not callable(source) and iter(source) is source
    if spool is False and once:
        raise DataError(f"{SOURCE} must be one that can be iterated again. Got a {type(source).__name__}.")
    if spool or once:
        return _spooled(_named_blocks(source))
    stream = BlockStream(source)
    return {name: BlockView(stream, name) for name in stream.widths}


class BlockStream:
    """A stream that can begin again: its rows, widths and dtypes, and the walks through it."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.n_rows, self.widths, self.dtypes = 0, {}, {}  # type: int, dict[str, int], dict[str, np.dtype[Any]]
        for block in _named_blocks(source):
            if not self.widths:
                self.widths = {name: part.shape[1] for name, part in block.items()}
            for name, part in block.items():
                self.dtypes[name] = np.result_type(self.dtypes.get(name, part.dtype), part.dtype)
            self.n_rows += len(next(iter(block.values())))
        if not self.n_rows:
            raise DataError(f"{SOURCE} must hold rows. It was empty; a function that returns a new iterator helps.")
        self._start()

    def _start(self) -> None:
        self.reader = Rewinding(self._begin, lambda row: 0, self.n_rows, SOURCE)

    def _begin(self, row: int) -> tuple[int, Iterator[Piece]]:
        # Copies: pieces are kept for a while, and whoever gave a block may fill it anew.
        blocks = _named_blocks(self.source, self.widths)
        return 0, ({name: part.copy() for name, part in block.items()} for block in blocks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()


class BlockView(RewindingView):
    """One view of a stream of blocks."""

    def __init__(self, stream: BlockStream, name: str) -> None:
        shape = (stream.n_rows, stream.widths[name])
        super().__init__(f"{SOURCE}, view '{name}',", shape, stream.dtypes[name], name, stream.reader)
        self._stream = stream

    def __reduce__(self) -> Any:
        return BlockView, (self._stream, self._name)


def _named_blocks(source: Any, widths: Mapping[str, int] | None = None) -> Iterator[dict[str, Block]]:
    """Every block that has rows, as {name: dense array}, with the names and widths of the first."""
    iterable: Iterable[Any] = source() if callable(source) else source
    try:
        blocks = iter(iterable)
    except TypeError:
        raise DataError(f"{SOURCE} must be iterable. Got {type(iterable).__name__} instead.") from None
    row = 0
    for given in blocks:
        block = _named_block(given, row)
        found = {name: part.shape[1] for name, part in block.items()}
        widths = widths or found
        if found != widths:
            raise DataError(f"{SOURCE} must give blocks of {dict(widths)} features. Got {found} at row {row}.")
        n_rows = {name: len(part) for name, part in block.items()}
        if len(set(n_rows.values())) > 1:
            listed = ", ".join(f"'{name}' has {n}" for name, n in n_rows.items())
            raise DataError(f"Rows of a block must pair one to one. Got different numbers at row {row}: {listed}.")
        if next(iter(n_rows.values())):
            yield {name: block[name] for name in widths}
        row += next(iter(n_rows.values()))


def _named_block(given: Any, row: int) -> dict[str, Block]:
    if isinstance(given, Mapping):
        parts = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        parts = {f"view{i}": part for i, part in enumerate(given)}
    else:
        raise DataError(
            f"{SOURCE} must give mappings from name to matrix, or tuples. Got {type(given).__name__} at row {row}."
        )
    if not parts or not all(isinstance(name, str) and name for name in parts):
        raise DataError(f"{SOURCE} must give blocks with named views. Got the names {list(parts)} at row {row}.")
    return {name: dense_block(part, name, row) for name, part in parts.items()}


def dense_block(part: Any, name: str, row: int) -> Block:
    """One block of one view as an array of numbers."""
    block = part.toarray() if sp.issparse(part) else unmasked(host(part))
    if block.ndim != 2 or not block.shape[1]:
        raise DataError(f"{SOURCE} must give matrices. Got shape {block.shape} for '{name}' at row {row}.")
    check_dtype(f"View '{name}' of the stream", block.dtype)
    return block


def _spooled(blocks: Iterator[dict[str, Block]]) -> dict[str, StoredMatrix]:
    """Copy a stream to a temporary folder, in one pass."""
    folder = Path(tempfile.mkdtemp(prefix="fusehash-"))
    try:
        sinks: dict[str, Sink] = {}
        with ExitStack() as stack:
            for block in blocks:
                for number, (name, part) in enumerate(block.items()):
                    if name not in sinks:
                        sink = NpySink(folder / f"{number}.npy", None, part.shape[1], part.dtype)
                        sinks[name] = stack.enter_context(sink)
                    sinks[name].write(part)
        if not sinks:
            raise DataError(f"{SOURCE} must hold rows. It was empty.")
        owner = SpoolFolder(folder)
        return {name: _spooled_view(sink.path, owner) for name, sink in sinks.items()}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class SpoolFolder:
    """A temporary folder that lives as long as somebody holds this."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remove: Callable[[], Any] = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


def _spooled_view(path: Path, owner: SpoolFolder) -> RawMatrix:
    matrix = open_npy(path)
    matrix.owner = owner
    return matrix
