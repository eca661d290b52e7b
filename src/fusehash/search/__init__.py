"""Search: `HammingIndex` over packed codes, exact, in memory, in a file or on a server, and the engines behind it."""

from __future__ import annotations

from fusehash.search.index import HammingIndex
from fusehash.search.server import IndexServerError
from fusehash.search.storage import IndexFileError

__all__ = ["HammingIndex", "IndexFileError", "IndexServerError"]
