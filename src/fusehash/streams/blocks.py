"""Streams of paired blocks as views: any iterable of {name: (rows, d) array}.

Training reads its rows more than once, so a stream is copied to a temporary folder in one pass (`npy.spool`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from fusehash.errors import DataError
from fusehash.numerics.arrays import host, unmasked
from fusehash.streams.npy import spool
from fusehash.streams.stored import Matrix, StoredMatrix, check_dtype
from fusehash.views import check_paired

SOURCE = "The stream of blocks"


def is_block_stream(source: Any) -> bool:
    """Whether something is a stream of paired blocks, and not a matrix or a set of views."""
    if isinstance(source, list):
        return bool(source) and all(isinstance(block, Mapping) for block in source)
    if isinstance(source, Mapping | str | bytes | Path | tuple) or sp.issparse(source):
        return False
    if hasattr(source, "shape") or hasattr(source, "__array__") or isinstance(source, type):
        return False
    return callable(source) or hasattr(source, "__iter__")


def open_blocks(source: Any) -> dict[str, StoredMatrix]:
    """Open the views of a stream of paired blocks.

    The stream is copied to a temporary folder with one `.npy` file per view, which is removed with the last of the
    views. Set the environment variable TMPDIR to choose its disk.

    Parameters
    ----------
    source : iterable, or function that returns one
        Yields blocks: mappings from name to (rows, d) matrix, dense or scipy.sparse, or tuples of matrices (named
        "view0", "view1", ...). They may differ in their number of rows, and you may fill one buffer again and again.

    Returns
    -------
    dict of str to StoredMatrix
        The views, by name.

    Raises
    ------
    DataError
        If blocks differ in their views, widths or dtypes, if their rows do not pair, or if there are no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fusehash.streams import open_blocks
    >>> views = open_blocks({"image": np.ones((2, 3)), "text": np.zeros((2, 4))} for _ in range(5))
    >>> {name: view.shape for name, view in views.items()}
    {'image': (10, 3), 'text': (10, 4)}
    """
    views = spool(_named_blocks(source), SOURCE)
    for name, view in views.items():
        view.source = f"{SOURCE}, view '{name}',"
    return views


def _named_blocks(source: Any) -> Iterator[dict[str, Matrix]]:
    """Every block that has rows, as {name: dense array}, with the names and widths of the first."""
    iterable: Iterable[Any] = source() if callable(source) else source
    try:
        blocks = iter(iterable)
    except TypeError:
        raise DataError(f"{SOURCE} must be iterable. Got {type(iterable).__name__} instead.") from None
    row, widths = 0, {}  # type: int, dict[str, int]
    for unnamed in blocks:
        block = _named_block(unnamed, row)
        block_widths = {name: part.shape[1] for name, part in block.items()}
        widths = widths or block_widths
        if block_widths != widths:
            raise DataError(f"{SOURCE} must give blocks of {widths} features. Got {block_widths} at row {row}.")
        n_rows = check_paired(block, "a block", f"at row {row}")
        if n_rows:
            yield {name: block[name] for name in widths}
        row += n_rows


def _named_block(block: Any, row: int) -> dict[str, Matrix]:
    if isinstance(block, Mapping):
        parts = dict(block)
    elif isinstance(block, Sequence) and not isinstance(block, str | bytes):
        parts = {f"view{i}": part for i, part in enumerate(block)}
    else:
        kind = type(block).__name__
        raise DataError(f"{SOURCE} must give mappings from name to matrix, or tuples. Got {kind} at row {row}.")
    if not parts or not all(isinstance(name, str) and name for name in parts):
        raise DataError(f"{SOURCE} must give blocks with named views. Got the names {list(parts)} at row {row}.")
    return {name: _dense(part, name, row) for name, part in parts.items()}


def _dense(part: Any, name: str, row: int) -> Matrix:
    """One block of one view as an array of numbers."""
    block = part.toarray() if sp.issparse(part) else unmasked(host(part))
    if block.ndim != 2 or not block.shape[1]:
        raise DataError(f"{SOURCE} must give matrices. Got shape {block.shape} for '{name}' at row {row}.")
    dtype = check_dtype(f"{SOURCE}, view '{name}',", block.dtype)
    return block.astype(dtype, copy=False)
