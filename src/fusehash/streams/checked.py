"""Stored views that are checked while they are read: no pass over the data is spent on looking for NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.streams.base import Block, Rows, StoredMatrix


class CheckedView(StoredMatrix):
    """A stored matrix as the view ``name``: whatever is read from it is finite, or an error names the row.

    With ``allow_missing``, rows that are all NaN may be read too; ``mask`` says which they are, once that is known.
    """

    def __init__(
        self, matrix: StoredMatrix, name: str, *, allow_missing: bool = False, mask: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(matrix.source, matrix.shape, matrix.dtype, matrix.chunk_rows)
        self.matrix, self.name, self.allow_missing, self.mask = matrix, name, allow_missing, mask

    def select(self, index: Any) -> StoredMatrix:
        mask = None if self.mask is None else self.mask[index]
        return CheckedView(self.matrix.select(index), self.name, allow_missing=self.allow_missing, mask=mask)

    def _read(self, start: int, stop: int) -> Block:
        block = self.matrix._read(start, stop)
        if not is_finite(block):
            self._refuse(block, np.arange(start, stop))
        return block

    def _take(self, rows: Rows) -> Block:
        block = self.matrix._take(rows)
        if not is_finite(block):
            self._refuse(block, rows)
        return block

    def find_mask(self) -> NDArray[np.bool_]:
        """Which rows are present, found in one pass that also checks them."""
        if self.mask is None:
            mask = np.ones(self.shape[0], dtype=bool)
            for rows, block in self.blocks() if self.dtype.kind == "f" else ():
                mask[rows] = ~np.isnan(block).all(axis=1)
            self.mask = mask
        return self.mask

    def _refuse(self, block: Block, rows: Rows) -> None:
        bad, absent = ~np.isfinite(block).all(axis=1), np.isnan(block).all(axis=1)
        if self.allow_missing:
            bad &= ~absent
        if not bad.any():
            return
        hint = ' Rows that are all NaN are allowed with missing="allow".' if (bad & absent).any() else ""
        raise DataError(
            f"View '{self.name}' must hold finite numbers. "
            f"Got NaN or infinity in {int(bad.sum())} of the rows {int(rows[0])} to {int(rows[-1])}, "
            f"first in row {int(rows[np.argmax(bad)])}.{hint}"
        )


def is_finite(block: Block) -> bool:
    """Whether every number is finite; a finite sum says so at once."""
    if block.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(block.sum())) or bool(np.isfinite(block).all())


def check_stored(
    matrix: StoredMatrix, name: str, *, allow_missing: bool = False
) -> tuple[CheckedView, NDArray[np.bool_] | None]:
    """A stored matrix as a checked view, and which rows are present (None: all).

    Only ``allow_missing`` costs a pass: rows that are all NaN must be known before training.
    """
    if isinstance(matrix, CheckedView):
        if (matrix.name, matrix.allow_missing) != (name, allow_missing):
            matrix = CheckedView(matrix.matrix, name, allow_missing=allow_missing)
        checked = matrix
    else:
        checked = CheckedView(matrix, name, allow_missing=allow_missing)
    if not allow_missing:
        return checked, None
    mask = checked.find_mask()
    return checked, None if mask.all() else mask
