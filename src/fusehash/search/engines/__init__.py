"""Engines answer searches over rows in memory, in order of (distance, position).

scan         compares every code, compiled (default). Needs no memory beyond the codes.
numpy        the same in NumPy, for comparison.
multi-index  look-up tables, see tables.py. 4 bytes per code and table; the scan answers what they do not suit.
auto         the scan, and the tables where they are measured to be faster on your queries.
torch        compares every code with PyTorch, on a GPU if there is one ("torch:cuda:1" selects it).
faiss-ivf, faiss-hnsw   approximate, through faiss; see faiss.py. Never chosen automatically.
"""

from __future__ import annotations

from typing import Any, Protocol

from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.search.rows import CodeRows, Distances, Ints

NAMES = ("scan", "numpy", "multi-index", "auto", "torch", "faiss-ivf", "faiss-hnsw")


class Engine(Protocol):
    """Answers searches. Positions are rows of `rows.codes`; `allowed` are the ones to look at, ascending."""

    name: str

    def search(
        self, rows: CodeRows, queries: Codes, k: int, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        """Distances and positions, (queries, k) each; at least `k` positions are to be looked at."""

    def range_search(
        self, rows: CodeRows, queries: Codes, radius: int, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]:
        """Offsets per query, distances and positions of all codes at most `radius` away."""

    def stats(self) -> dict[str, Any]:
        """Numbers about the engine, in addition to its name."""


def make(engine: str | Engine, expected: str = f"one of {', '.join(NAMES)}") -> Engine:
    """An engine by name; an engine is returned as it is."""
    if not isinstance(engine, str):
        if not hasattr(engine, "range_search"):
            raise ParameterError("HammingIndex", "engine", expected, engine)
        return engine
    name, _, device = engine.partition(":")
    if engine not in NAMES and name != "torch":
        raise ParameterError("HammingIndex", "engine", expected, engine)
    if name == "scan":
        from fusehash.search.engines.scan import Scan

        return Scan()
    if name == "numpy":
        from fusehash.search.engines.numpy import NumpyEngine

        return NumpyEngine()
    if name == "torch":
        from fusehash.search.engines.torch import TorchEngine

        return TorchEngine(device or None)
    if name in ("multi-index", "auto"):
        from fusehash.search.engines.tables import MultiIndex

        return MultiIndex(always=name == "multi-index")
    from fusehash.search.engines.faiss import FaissEngine

    return FaissEngine(name.removeprefix("faiss-"))
