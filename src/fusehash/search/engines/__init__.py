"""Engines answer searches over rows in memory, in order of (distance, position).

scan         compares every code, compiled (default). Needs no memory beyond the codes.
numpy        the same in NumPy, for comparison.
multi-index  look-up tables, see multi_index. 8 bytes per code and table; the scan answers what they do not suit.
auto         the scan, and the tables where they are measured to be faster on your queries.
torch        compares every code with PyTorch, on a GPU if there is one ("torch:cuda:1" selects it).
faiss-ivf, faiss-hnsw   approximate, through faiss; see faiss.py. Never chosen automatically.

Real-valued queries (`projections.Projections`) are answered by the `weighted` of an engine, with the same two methods:
the modules of "numpy" and "torch" have one each, all others use weighted.py. The results are equal. Where codes have
factors, the same is true of `estimates` and estimates.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.search.rows import Allowed, CodeRows, InRange, Nearest, Threads

_ENGINES: dict[str, tuple[str, str, dict[str, Any]]] = {  # name: module, class, arguments
    "scan": ("scan", "Scan", {}),
    "numpy": ("numpy", "NumpyEngine", {}),
    "multi-index": ("multi_index", "MultiIndex", {"always": True}),
    "auto": ("multi_index", "MultiIndex", {"always": False}),
    "torch": ("torch", "TorchEngine", {}),
    "faiss-ivf": ("faiss", "FaissEngine", {"kind": "ivf"}),
    "faiss-hnsw": ("faiss", "FaissEngine", {"kind": "hnsw"}),
}
NAMES = tuple(_ENGINES)


class Engine(Protocol):
    """Answers searches. Positions are rows of `rows.codes`; `allowed` are the ones to look at, ascending.

    `search` returns distances and positions; at least `k` positions are to be looked at. `range_search` returns all
    codes at most `radius` away. Engines may have a `name` and `stats()`, a dictionary, for `HammingIndex.stats`, and
    `weighted` and `estimates`, objects with the same two methods for real-valued queries, without and with factors.
    """

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest: ...
    def range_search(
        self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads
    ) -> InRange: ...


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
