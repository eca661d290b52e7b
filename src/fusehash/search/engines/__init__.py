"""Engines answer searches over rows in memory, in order of (distance, position).

scan         compares every code, compiled (default). Needs no memory beyond the codes.
numpy        the same in NumPy, for comparison.
multi-index  look-up tables, see tables.py. 4 bytes per code and table; the scan answers what they do not suit.
auto         the scan, and the tables where they are measured to be faster on your queries.
torch        compares every code with PyTorch, on a GPU if there is one ("torch:cuda:1" selects it).
faiss-ivf, faiss-hnsw   approximate, through faiss; see faiss.py. Never chosen automatically.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.search.rows import CodeRows, Distances, Ints

_ENGINES: dict[str, tuple[str, str, dict[str, Any]]] = {  # name: module, class, arguments
    "scan": ("scan", "Scan", {}),
    "numpy": ("numpy", "NumpyEngine", {}),
    "multi-index": ("tables", "MultiIndex", {"always": True}),
    "auto": ("tables", "MultiIndex", {"always": False}),
    "torch": ("torch", "TorchEngine", {}),
    "faiss-ivf": ("faiss", "FaissEngine", {"kind": "ivf"}),
    "faiss-hnsw": ("faiss", "FaissEngine", {"kind": "hnsw"}),
}
NAMES = tuple(_ENGINES)


class Engine(Protocol):
    """Answers searches. Positions are rows of `rows.codes`; `allowed` are the ones to look at, ascending.

    `search` returns distances and positions, (queries, k) each; at least `k` positions are to be looked at.
    `range_search` returns offsets per query, distances and positions of all codes at most `radius` away.
    """

    name: str

    def search(
        self, rows: CodeRows, queries: Codes, k: int, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]: ...
    def range_search(
        self, rows: CodeRows, queries: Codes, radius: int, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]: ...
    def stats(self) -> dict[str, Any]: ...


def make(engine: str | Engine, expected: str = f"one of {', '.join(NAMES)}") -> Engine:
    """An engine by name; an engine is returned as it is."""
    if not isinstance(engine, str) and hasattr(engine, "range_search"):
        return engine
    name, _, device = engine.partition(":") if isinstance(engine, str) else ("", "", "")
    if name not in NAMES or (device and name != "torch"):
        raise ParameterError("HammingIndex", "engine", expected, engine)
    module, kind, arguments = _ENGINES[name]
    make_engine = getattr(import_module(f"fusehash.search.engines.{module}"), kind)
    made: Engine = make_engine(**arguments, **({"device": device} if device else {}))
    return made
