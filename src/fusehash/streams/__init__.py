"""Views larger than memory: matrices in files and streams, read in blocks, and files that are written in blocks."""

from __future__ import annotations

from fusehash.streams.base import StoredMatrix
from fusehash.streams.blocks import is_block_stream, open_blocks
from fusehash.streams.opening import open_view
from fusehash.streams.sinks import Sink, sink

__all__ = ["Sink", "StoredMatrix", "is_block_stream", "open_blocks", "open_view", "sink"]
