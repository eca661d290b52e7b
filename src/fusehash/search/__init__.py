"""Search: `HammingIndex` over packed codes, exact, in memory, in a file or on a server, and the engines behind it."""

from __future__ import annotations

from fusehash.search.file import IndexFileError
from fusehash.search.index import HammingIndex
from fusehash.search.servers.address import IndexServerError

__all__ = ["HammingIndex", "IndexFileError", "IndexServerError"]
