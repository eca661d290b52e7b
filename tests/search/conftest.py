"""Brute force to compare with, and where an index file goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Found = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="session")
def brute_force() -> Callable[[Any, Any, Any], Found]:
    """`brute_force(codes, ids, queries)`: distances and ids of all codes, in order of (distance, id), a query a row."""

    def compare(codes: np.ndarray, ids: np.ndarray, queries: np.ndarray) -> Found:
        bits = np.unpackbits(codes, axis=1).astype(np.int32)
        asked = np.unpackbits(queries, axis=1).astype(np.int32)
        distances = (asked[:, None, :] != bits[None, :, :]).sum(axis=2)
        order = np.array([np.lexsort((ids, row)) for row in distances], int).reshape(len(queries), len(ids))
        return np.take_along_axis(distances, order, axis=1), ids[order]

    return compare


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codes.db"
