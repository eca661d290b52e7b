"""Exact searches on Milvus, in order of (distance, id), out of answers of at most 16,384 results.

Milvus orders by distance alone. More is asked for than is wanted: if the last result is farther than the k-th, all
that tie with the k-th are there, and sorting them by id is all that is left. If not, the codes at exactly that distance
are asked for; and where even these are too many, those of them with ids below the highest one still wanted, until the
answer has an end. Searches by radius whose answer is cut off are asked again in two halves of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.rows import Distances, Ids, Ints
from fusehash.search.servers.milvus_calls import MOST, Calls, parts

_RESULTS = 1 << 18  # of one request, over all its queries
_EXTRA = 64  # results asked for beyond twice what is wanted

Answer = NDArray[Any]
_ANSWER = np.dtype([("distance", np.int32), ("id", np.int64)])


class Searches:
    """Searches in one collection."""

    def __init__(self, calls: Calls, name: str, n_bits: int) -> None:
        self._calls, self._name, self._n_bits = calls, name, n_bits

    def top_k(self, queries: Codes, k: int, filter: str, rows: int) -> tuple[Distances, Ids]:
        """The nearest min(k, codes there are); ``rows`` is an upper bound of the numbers of rows."""
        found: list[Answer] = []
        if k >= MOST:
            for i in range(len(queries)):
                whole = self._near(queries[i : i + 1], self._n_bits, filter, 0, rows)[0]
                found.append(np.sort(whole, order=["distance", "id"])[:k])
        else:
            limit = min(MOST, 2 * k + _EXTRA)
            for part in parts(len(queries), max(1, _RESULTS // limit)):
                for i, answer in enumerate(self._ask(queries[part], limit, filter, {}), part.start):
                    found.append(self._completed(queries[i : i + 1], answer, k, limit, filter))
        columns = min((len(answer) for answer in found), default=0)
        table = np.array([answer[:columns] for answer in found], _ANSWER).reshape(len(queries), columns)
        return table["distance"].copy(), table["id"].copy()

    def within(self, queries: Codes, radius: int, filters: Sequence[str], rows: int) -> tuple[Ints, Distances, Ids]:
        """All at most ``radius`` away that meet one of the filters, which exclude each other."""
        found: list[list[Answer]] = [[] for _ in range(len(queries))]
        for filter in filters if rows else ():
            for part in parts(len(queries), max(1, _RESULTS // MOST)):
                for i, answer in enumerate(self._near(queries[part], radius, filter, 0, rows), part.start):
                    found[i].append(answer)
        whole = [np.sort(np.concatenate([*own, np.empty(0, _ANSWER)]), order=["distance", "id"]) for own in found]
        offsets = np.concatenate([[0], np.cumsum([len(own) for own in whole])]).astype(np.int64)
        flat = np.concatenate([*whole, np.empty(0, _ANSWER)])
        return offsets, flat["distance"].copy(), flat["id"].copy()

    def _completed(self, query: Codes, answer: Answer, k: int, limit: int, filter: str) -> Answer:
        """The first k in order, where ``answer`` may have been cut off among those at the k-th distance."""
        answer = np.sort(answer, order=["distance", "id"])
        if len(answer) < limit or answer["distance"][-1] > answer["distance"][k - 1]:
            return answer[:k]
        kth = int(answer["distance"][k - 1])
        nearer = answer[answer["distance"] < kth]
        wanted, tied, narrowed = k - len(nearer), answer[answer["distance"] == kth], filter
        while True:
            # Whoever comes before the last one wanted has a lower id.
            bound = int(np.partition(tied["id"], wanted - 1)[wanted - 1])
            more = self._ask(query, MOST, f"{narrowed} and id < {bound}", self._at(kth, kth))[0]
            tied = np.unique(np.concatenate([tied, more]))
            if len(more) < MOST:
                return np.concatenate([nearer, np.sort(tied, order=["distance", "id"])[:wanted]])

    def _near(self, queries: Codes, radius: int, filter: str, low: int, high: int) -> list[Answer]:
        """All at most ``radius`` away among the rows ``low`` to ``high``, to which the filter is narrowed already."""
        answers = self._ask(queries, MOST, filter, self._at(0, radius))
        cut = [i for i, answer in enumerate(answers) if len(answer) >= MOST and high - low > MOST]
        if cut:
            middle = (low + high) // 2
            lower = self._near(queries[cut], radius, f"{filter} and row < {middle}", low, middle)
            upper = self._near(queries[cut], radius, f"{filter} and row >= {middle}", middle, high)
            for i, one, other in zip(cut, lower, upper, strict=True):
                answers[i] = np.concatenate([one, other])
        return answers

    def _at(self, low: int, high: int) -> dict[str, Any]:
        """Distances from low to high. Milvus takes a limit that no distance reaches, and one that may be reached."""
        return {"radius": min(high, self._n_bits) + 1, "range_filter": low}

    def _ask(self, queries: Codes, limit: int, filter: str, params: dict[str, Any]) -> list[Answer]:
        found = self._calls(
            "search", self._name, data=[code.tobytes() for code in queries], limit=limit, filter=filter,
            output_fields=["id"], search_params={"metric_type": "HAMMING", "params": params}, anns_field="code",
            consistency_level="Strong",
        )  # fmt: skip
        return [
            np.array([(hit["distance"], hit["entity"]["id"]) for hit in hits], _ANSWER).reshape(-1) for hits in found
        ]


def merged(results: Sequence[tuple[Distances, Ids]], n_queries: int, k: int) -> tuple[Distances, Ids]:
    """The nearest k out of the nearest of several parts."""
    distances = np.concatenate([np.empty((n_queries, 0), np.int32), *(one for one, _ in results)], axis=1)
    ids = np.concatenate([np.empty((n_queries, 0), np.int64), *(other for _, other in results)], axis=1)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)
