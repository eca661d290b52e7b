"""Every search engine: exact ones agree to the id, approximate ones report their recall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import servers
from fusehash.search import HammingIndex
from fusehash.search.engines import NAMES

EXACT = [
    *(name for name in NAMES if not name.startswith("faiss")),
    *("postgresql", "milvus-lite", pytest.param("milvus", marks=pytest.mark.slow)),
]
APPROXIMATE = [name for name in NAMES if name.startswith("faiss")]


@pytest.fixture(scope="module")
def clustered() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, ids and queries: 2,000 codes of 64 bits around 100 centers."""
    rng = np.random.default_rng(0)
    centers = rng.integers(0, 256, (100, 8), dtype=np.uint8)
    codes = centers[rng.integers(0, 100, 2050)] ^ np.packbits(rng.random((2050, 64)) < 0.05, axis=1)
    return codes[50:], rng.permutation(10**6)[:2000], codes[:50]


filled: dict[str, tuple[HammingIndex, HammingIndex]] = {}


def indexes(engine: str, data: Any) -> tuple[HammingIndex, HammingIndex]:
    """An index with this engine, and one that compares everything in NumPy; tests leave both as they were."""
    if engine in filled:
        return filled[engine]
    address = servers.server(engine).address() if engine in servers.NAMES else engine
    pair = HammingIndex(64, engine=address), HammingIndex(64, engine="numpy")
    for index in pair:
        index.add(data[0], data[1])
        index.remove(data[1][:200])
    filled[engine] = pair
    return pair


@pytest.mark.parametrize("engine", EXACT)
class TestExactEngine:
    """Equal to NumPy, to the id."""

    @pytest.fixture(autouse=True)
    def installed(self, engine: str, optional: Any) -> None:
        if engine == "torch":
            optional("torch")

    @pytest.mark.parametrize("k", [1, 50, 10_000])
    def test_search(self, engine: str, clustered: Any, k: int) -> None:
        index, exact = indexes(engine, clustered)
        on_server = engine in servers.NAMES  # every result travels: few queries are enough
        queries = clustered[2][:5] if on_server else clustered[2]
        for _ in range(1 if on_server else 2):
            for one, other in zip(index.search(queries, k), exact.search(queries, k), strict=True):
                assert_array_equal(one, other)

    @pytest.mark.parametrize("radius", [0, 12, 1000])
    def test_range_search(self, engine: str, clustered: Any, radius: int) -> None:
        index, exact = indexes(engine, clustered)
        queries = clustered[2][:5] if engine in servers.NAMES else clustered[2]
        found, expected = (each.range_search(queries, radius) for each in (index, exact))
        for one, other in zip(found, expected, strict=True):
            assert_array_equal(one, other)

    def test_filter(self, engine: str, clustered: Any) -> None:
        index, exact = indexes(engine, clustered)
        allowed = clustered[1][::3]
        for one, other in zip(
            index.search(clustered[2], 9, allowed=allowed), exact.search(clustered[2], 9, allowed=allowed), strict=True
        ):
            assert_array_equal(one, other)

    def test_changes_are_seen(self, engine: str, clustered: Any) -> None:
        index, _ = indexes(engine, clustered)
        index.search(clustered[2], 3)
        index.add(clustered[2][:1], [-5])
        assert index.search(clustered[2][:1], 1)[1].tolist() == [[-5]]
        index.replace(~clustered[2][:1], [-5])
        assert index.search(clustered[2][:1], 1)[1].tolist() != [[-5]]
        assert index.search(~clustered[2][:1], 1)[1].tolist() == [[-5]]
        index.remove([-5])


@pytest.mark.parametrize("engine", APPROXIMATE)
class TestApproximateEngine:
    """Only by name; real distances, in order, with the recall reported."""

    def test_results_and_recall(self, engine: str, clustered: Any, optional: Any) -> None:
        optional("faiss")
        index, exact = indexes(engine, clustered)
        distances, ids = index.search(clustered[2], 10)
        assert ids.shape == (50, 10)
        true = np.bitwise_count(index.get(ids.ravel()).reshape(50, 10, 8) ^ clustered[2][:, None]).sum(axis=2)
        assert_array_equal(distances, true)
        assert_array_equal(np.lexsort((ids, distances), axis=1), np.tile(np.arange(10), (50, 1)))
        stats = index.stats()
        assert stats["approximate"]
        assert stats["recall"] > 0.5
        assert stats["recall_queries"] == 32
        kth = exact.search(clustered[2][:32], 10)[0][:, -1:]
        assert stats["recall"] == pytest.approx(np.mean(distances[:32] <= kth))

    def test_filter_range_and_large_k_are_exact(self, engine: str, clustered: Any, optional: Any) -> None:
        optional("faiss")
        index, exact = indexes(engine, clustered)
        for one, other in zip(index.range_search(clustered[2], 9), exact.range_search(clustered[2], 9), strict=True):
            assert_array_equal(one, other)
        assert_array_equal(
            index.search(clustered[2], 9, allowed=clustered[1])[1],
            exact.search(clustered[2], 9, allowed=clustered[1])[1],
        )
        assert index.search(clustered[2][:2], 1800)[1].shape == (2, 1800)
