"""Search: `HammingIndex` over packed codes, exact, in memory or in a file, and the engines behind it."""

from __future__ import annotations

from fusehash.search.index import HammingIndex
from fusehash.search.storage import IndexFileError

__all__ = ["HammingIndex", "IndexFileError"]
