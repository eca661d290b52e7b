"""What answers a search. Every engine sees the same rows and gives positions in order of (distance, position).

scan         compares every code, compiled (default; NumPy where numba is not installed). No memory beyond the codes.
numpy        the same without numba.
multi-index  look-up tables, see multi_index.py; the scan answers what they do not suit. 4 bytes a code and table.
auto         the scan, and the tables where they have been measured to be faster on the queries that come.
torch        compares every code with PyTorch, on a GPU if there is one ("torch:cuda:1" names it); see gpu_engine.py.
faiss-ivf, faiss-hnsw   approximate, through faiss; see faiss.py. Never chosen unless named.
"""

from __future__ import annotations

import logging
import threading
import weakref
from importlib.util import find_spec
from time import perf_counter
from typing import Any, Protocol

from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.search.engines import numpy as numpy_kernel
from fusehash.search.engines import scan
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.rows import Rows
from fusehash.search.servers.address import SCHEMES, scheme_of

logger = logging.getLogger(__name__)

NAMES = ("scan", "numpy", "multi-index", "auto", "torch", "faiss-ivf", "faiss-hnsw")
_EXPECTED = f"one of {', '.join(NAMES)}, or an address that begins with one of {', '.join(SCHEMES)} and ://"


class Engine(Protocol):
    """Answers searches over rows. Positions are rows of ``rows.codes``; ``allowed`` are the positions to look at."""

    name: str

    def top_k(
        self, rows: Rows, queries: Codes, k: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        """The nearest ``k``, at most as many as there are positions to look at."""

    def within(
        self, rows: Rows, queries: Codes, radius: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]:
        """All at most ``radius`` away: offsets a query, distances, positions."""

    def stats(self) -> dict[str, Any]:
        """What there is to know beyond the name."""


def make(engine: str | Engine) -> Engine:
    """An engine by name; an engine is given back as it is."""
    if not isinstance(engine, str):
        if not hasattr(engine, "top_k"):
            raise ParameterError("HammingIndex", "engine", _EXPECTED, engine)
        return engine
    if "://" in engine:  # an address that is not known here; a password may be in it
        raise ParameterError("HammingIndex", "engine", _EXPECTED, scheme_of(engine))
    if engine in ("scan", "numpy"):
        return Scan(compiled=engine == "scan")
    if engine in ("multi-index", "auto"):
        return MultiIndex(always=engine == "multi-index")
    if engine.partition(":")[0] == "torch":
        from fusehash.search.engines.torch import TorchEngine

        return TorchEngine(engine.partition(":")[2] or None)
    if engine in NAMES:
        from fusehash.search.engines.faiss import FaissEngine

        return FaissEngine(engine.removeprefix("faiss-"))
    raise ParameterError("HammingIndex", "engine", _EXPECTED, engine)


def compiled_kernel() -> Any:
    """The scan where numba can be imported, else its twin in NumPy."""
    try:
        import numba  # noqa: F401
    except ImportError:
        logger.warning("numba is not installed: searches run in NumPy, with the same results, but slowly")
        return numpy_kernel
    return scan


class Scan:
    """Compares every code."""

    def __init__(self, *, compiled: bool = True) -> None:
        self.name = "scan" if compiled else "numpy"
        self._compiled = compiled
        self._kernel: Any = None

    @property
    def kernel(self) -> Any:
        """The module that computes; numba is looked for when it is first needed."""
        if self._kernel is None:
            self._kernel = compiled_kernel() if self._compiled else numpy_kernel
        return self._kernel

    def top_k(
        self, rows: Rows, queries: Codes, k: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        return self.kernel.top_k(rows.codes, queries, k, rows=allowed, threads=threads)

    def within(
        self, rows: Rows, queries: Codes, radius: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]:
        return self.kernel.within(rows.codes, queries, radius, rows=allowed, threads=threads)

    def stats(self) -> dict[str, Any]:
        return {"kernel": "numba" if self._compiled and find_spec("numba") else "numpy"}


class MultiIndex(Scan):
    """Look-up tables, where they pay.

    With ``always`` the tables are built at the first search and used for every one. Else ("auto") they are built once
    the time spent scanning the same rows exceeds what building them is expected to take, and a sample of queries then
    goes both ways; the faster way is kept for searches of that kind (k or radius) until the rows change.
    """

    _BUILD = 5e-8  # seconds a code and table, about
    _SAMPLE = 16
    _BUDGET = 16  # look-ups and comparisons that cost as much as scanning the database, as a fraction of its size

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.name = "multi-index" if always else "auto"
        self._always = always
        self._lock = threading.Lock()
        self._rows: weakref.ref[Rows] | None = None  # weak: what an index has let go of is not kept here
        self._tables: Any = None
        self._spent = 0.0
        self._faster: dict[tuple[str, int], bool] = {}
        self._given_up = 0

    def top_k(
        self, rows: Rows, queries: Codes, k: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        tables = self._prepared(rows) if allowed is None else None
        if tables is None:
            return self._timed(
                lambda: super(MultiIndex, self).top_k(rows, queries, k, allowed=allowed, threads=threads)
            )
        from fusehash.search.engines import tables as multi_index

        def look_up(asked: Codes) -> tuple[Distances, Ints]:
            budget = len(rows) if self._always else len(rows) // self._BUDGET
            distances, positions, given_up = multi_index.top_k(
                tables, rows.codes, asked, k, budget=budget, threads=threads
            )
            self._given_up += given_up
            return distances, positions

        def compare(asked: Codes) -> tuple[Distances, Ints]:
            return scan.top_k(rows.codes, asked, k, threads=threads)

        return (look_up if self._prefers(("k", k), look_up, compare, queries) else compare)(queries)

    def within(
        self, rows: Rows, queries: Codes, radius: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]:
        tables = self._prepared(rows) if allowed is None else None
        if tables is None:
            return self._timed(
                lambda: super(MultiIndex, self).within(rows, queries, radius, allowed=allowed, threads=threads)
            )
        from fusehash.search.engines import tables as multi_index

        def compare(asked: Codes) -> tuple[Ints, Distances, Ints]:
            return scan.within(rows.codes, asked, radius, threads=threads)

        def look_up(asked: Codes) -> tuple[Ints, Distances, Ints]:
            budget = len(rows) if self._always else len(rows) // self._BUDGET
            found = multi_index.within(tables, rows.codes, asked, radius, budget=budget, threads=threads)
            return compare(asked) if found is None else found

        return (look_up if self._prefers(("radius", radius), look_up, compare, queries) else compare)(queries)

    def stats(self) -> dict[str, Any]:
        chosen = {f"{kind} {value}": "tables" if faster else "scan" for (kind, value), faster in self._faster.items()}
        return {
            **super().stats(),
            "table_bytes": self._tables.nbytes if self._tables is not None else 0,
            "chosen": chosen,
            "given_up": self._given_up,
        }

    def _prepared(self, rows: Rows) -> Any:
        """The tables of these rows, or None where they are not (yet) worth building."""
        if self.kernel is not scan or not len(rows):
            return None
        from fusehash.search.engines.tables import Tables, table_count

        with self._lock:
            if self._rows is None or rows is not self._rows():
                self._rows, self._tables, self._spent, self._faster = weakref.ref(rows), None, 0.0, {}
            expected = self._BUILD * len(rows) * table_count(rows.codes)
            if self._tables is None and (self._always or self._spent > expected):
                self._tables = Tables(rows.codes)
            return self._tables

    def _timed(self, search: Any) -> Any:
        start = perf_counter()
        found = search()
        self._spent += perf_counter() - start
        return found

    def _prefers(self, kind: tuple[str, int], look_up: Any, compare: Any, queries: Codes) -> bool:
        """Whether the tables are faster for this kind of search, by trying both on a few of the queries."""
        if self._always:
            return True
        if kind not in self._faster:
            times = []
            for way in (look_up, compare):
                way(queries[:1])  # compiled and in the cache
                start = perf_counter()
                way(queries[: self._SAMPLE])
                times.append(perf_counter() - start)
            self._faster[kind] = times[0] < times[1]
        return self._faster[kind]
