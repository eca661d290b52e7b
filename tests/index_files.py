"""Index files in tests: random codes, an index without compilation ahead, and what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fusehash.search import HammingIndex


def random_codes(n: int, n_bits: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def opened(path: Path, n_bits: int | None = None, **options: Any) -> HammingIndex:
    return HammingIndex.open(path, n_bits, warm=False, **options)


def by_id(index: HammingIndex) -> dict[int, bytes]:
    return {int(id): code.tobytes() for ids, codes in index for id, code in zip(ids, codes, strict=True)}


def content(path: Path) -> dict[int, bytes]:
    with opened(path) as index:
        return by_id(index)
