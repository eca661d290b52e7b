"""Codes of many rows, some thousands at a time, so that a database is never copied as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.views import PairedViews

ROWS_AT_ONCE = 8192


def hashed(encode: Callable[..., Any], views: PairedViews, rows: NDArray[Any], view: str) -> NDArray[Any]:
    """What `encode` (a model's encode or project) makes of rows seen in one view."""
    return np.concatenate([encode(views[view][part], view=view) for part in _parts(rows)])


def fused(model: Any, views: PairedViews, rows: NDArray[Any]) -> NDArray[Any]:
    """Codes of rows seen in all views."""
    return np.concatenate([model.encode_fused(views.rows(part)) for part in _parts(rows)])


def _parts(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
