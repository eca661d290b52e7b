"""Approximate engines from faiss (extra ``faiss``): inverted lists and neighbor graphs over the same codes.

They answer from an index that faiss builds anew when the codes have changed, and miss some neighbors. How many is
measured on real queries: the first ones of every search, until 256 have been checked, are also searched exactly, and
``HammingIndex.stats()["recall"]`` gives the fraction of exact neighbors (by distance, ties all count) that was found.
Filtered and range searches, and queries for which faiss finds fewer than k, are answered exactly.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import DataError, ParameterError
from fusehash.search.engines import Scan
from fusehash.search.engines.scan import Distances, Ints, workers
from fusehash.search.rows import Rows

_CHECKED = 256  # queries on which the recall is measured
_CHECKED_A_CALL = 32


class FaissEngine(Scan):
    """``kind`` "ivf" (``n_lists`` lists, of which ``n_probes`` are searched) or "hnsw" (``n_links`` a code)."""

    def __init__(
        self, kind: str, *, n_lists: int | None = None, n_probes: int | None = None, n_links: int = 32
    ) -> None:
        if kind not in ("ivf", "hnsw"):
            raise ParameterError("FaissEngine", "kind", "'ivf' or 'hnsw'", kind)
        super().__init__()
        self.name = f"faiss-{kind}"
        self._kind, self._n_lists, self._n_probes, self._n_links = kind, n_lists, n_probes, n_links
        self._rows: weakref.ref[Rows] | None = None
        self._index: Any = None
        self._checked, self._found, self._wanted = 0, 0, 0

    def top_k(
        self, rows: Rows, queries: Codes, k: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        if allowed is not None or not len(queries):
            return super().top_k(rows, queries, k, allowed=allowed, threads=threads)
        faiss = _import()
        faiss.omp_set_num_threads(workers(threads))
        found, positions = self._built(faiss, rows).search(queries, k)
        distances = found.astype(np.int32)
        order = np.lexsort((positions, distances), axis=1)
        distances, positions = np.take_along_axis(distances, order, 1), np.take_along_axis(positions, order, 1)
        short = np.flatnonzero((positions < 0).any(axis=1))
        if len(short):
            distances[short], positions[short] = super().top_k(rows, queries[short], k, threads=threads)
        self._check(rows, queries, distances, threads)
        return distances, positions

    def stats(self) -> dict[str, Any]:
        recall = self._found / self._wanted if self._wanted else None
        return {**super().stats(), "approximate": True, "recall": recall, "recall_queries": self._checked}

    def _check(self, rows: Rows, queries: Codes, distances: Distances, threads: int | None) -> None:
        """Measure the recall on the first queries: a neighbor counts if it is no farther than the exact k-th."""
        count = min(_CHECKED_A_CALL, _CHECKED - self._checked, len(queries))
        if count > 0:
            exact, _ = super().top_k(rows, queries[:count], distances.shape[1], threads=threads)
            self._found += int(np.count_nonzero(distances[:count] <= exact[:, -1:]))
            self._wanted += exact.size
            self._checked += count

    def _built(self, faiss: Any, rows: Rows) -> Any:
        if self._rows is None or rows is not self._rows():
            n_bits = rows.codes.shape[1] * 8
            if self._kind == "hnsw":
                index = faiss.IndexBinaryHNSW(n_bits, self._n_links)
            else:
                n_lists = min(len(rows), self._n_lists or max(1, int(4 * np.sqrt(len(rows)))))
                self._quantizer = faiss.IndexBinaryFlat(n_bits)
                index = faiss.IndexBinaryIVF(self._quantizer, n_bits, n_lists)
                index.nprobe = self._n_probes or max(1, n_lists // 16)
                index.cp.min_points_per_centroid = 1
                index.train(rows.codes)
            index.add(rows.codes)
            self._rows, self._index = weakref.ref(rows), index
            self._checked = self._found = self._wanted = 0
        return self._index


def _import() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise DataError(
            "The faiss engines need the package faiss-cpu; pip install 'fusehash[faiss]' brings it."
        ) from error
    return faiss
