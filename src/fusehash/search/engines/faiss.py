"""Approximate engines from faiss (extra `faiss`): inverted lists and neighbor graphs over the same codes.

They use an index that faiss builds again when the codes have changed, and miss some neighbors. How many is measured on
your queries: the first ones of every search, until 256 have been checked, are also searched exactly. The fraction of
the exact neighbors that was returned (by distance, all ties count) is `HammingIndex.stats()["recall"]`. Filtered and
range searches, and queries for which faiss returns fewer than k, are answered exactly.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.extras import require
from fusehash.search.engines.scan import Scan, workers
from fusehash.search.rows import Allowed, CodeRows, Distances, Nearest, Threads

_CHECKED = 256  # queries on which the recall is measured
_CHECKED_PER_CALL = 32


class FaissEngine(Scan):
    """`kind` "ivf" (`n_lists` lists, of which `n_probes` are searched) or "hnsw" (`n_links` per code)."""

    def __init__(
        self, kind: str, *, n_lists: int | None = None, n_probes: int | None = None, n_links: int = 32
    ) -> None:
        if kind not in ("ivf", "hnsw"):
            raise ParameterError("FaissEngine", "kind", "'ivf' or 'hnsw'", kind)
        self.name = f"faiss-{kind}"
        self._kind, self._n_lists, self._n_probes, self._n_links = kind, n_lists, n_probes, n_links
        self._rows: weakref.ref[CodeRows] | None = None
        self._index: Any = None
        self._checked, self._returned, self._expected = 0, 0, 0

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        if allowed is not None:
            return super().search(rows, queries, k, allowed, threads)
        faiss = require("faiss", "The faiss engine")
        faiss.omp_set_num_threads(workers(threads))
        raw_distances, positions = self._built(faiss, rows).search(queries, k)
        distances = raw_distances.astype(np.int32)
        order = np.lexsort((positions, distances), axis=1)
        distances, positions = np.take_along_axis(distances, order, 1), np.take_along_axis(positions, order, 1)
        short = np.flatnonzero((positions < 0).any(axis=1))
        if len(short):
            distances[short], positions[short] = super().search(rows, queries[short], k, None, threads)
        self._measure_recall(rows, queries, distances, threads)
        return distances, positions

    def stats(self) -> dict[str, Any]:
        recall = self._returned / self._expected if self._expected else None
        return {"approximate": True, "recall": recall, "recall_queries": self._checked}

    def _measure_recall(self, rows: CodeRows, queries: Codes, distances: Distances, threads: int | None) -> None:
        """Measure the recall on the first queries: a neighbor counts if it is no farther than the exact k-th."""
        count = min(_CHECKED_PER_CALL, _CHECKED - self._checked, len(queries))
        if count > 0:
            exact, _ = super().search(rows, queries[:count], distances.shape[1], None, threads)
            self._returned += int(np.count_nonzero(distances[:count] <= exact[:, -1:]))
            self._expected += exact.size
            self._checked += count

    def _built(self, faiss: Any, rows: CodeRows) -> Any:
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
            self._checked = self._returned = self._expected = 0
        return self._index
