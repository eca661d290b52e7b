"""Multi-index hashing: exact after any changes, without building its tables again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.search import HammingIndex
from fusehash.search.engines.multi_index import MultiIndex, segments
from fusehash.search.rows import CodeRows


def clustered(rng: np.random.Generator, n: int, n_bytes: int) -> np.ndarray:
    pool = np.random.default_rng(n_bytes).integers(0, 256, (20, n_bytes), dtype=np.uint8)
    noise = np.packbits(rng.random((n, n_bytes * 8)) < 0.1, axis=1)
    return pool[rng.integers(0, len(pool), n)] ^ noise


def engine_of(index: HammingIndex) -> Any:
    return index._store.engine  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_changes_leave_results_as_brute_force(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_bytes = data.draw(st.sampled_from([1, 2, 5, 8, 12, 16, 40]))
    patch = pytest.MonkeyPatch()
    patch.setattr(segments, "LOOSE", data.draw(st.sampled_from([0, 10, 100])))
    index, other = (HammingIndex(n_bytes * 8, engine=engine) for engine in ("multi-index", "numpy"))
    try:
        for change in data.draw(st.lists(st.sampled_from(["add", "put", "remove", "replace", "compact"]), max_size=9)):
            some = rng.choice(other.ids, len(other) // data.draw(st.integers(1, 20)), replace=False)
            if change in ("add", "put"):
                codes, ids = clustered(rng, int(rng.integers(1, 120)), n_bytes), None
                if change == "put":
                    ids = np.setdiff1d(rng.integers(-(10**6), 10**6, len(codes)), other.ids)
                    codes = codes[: len(ids)]
                for each in (index, other):
                    each.add(codes, ids)
            elif change == "remove":
                for each in (index, other):
                    each.remove(some)
            elif change == "replace":
                codes = clustered(rng, len(some), n_bytes)
                for each in (index, other):
                    each.replace(codes, some)
            else:
                index.compact()
            queries = np.concatenate([clustered(rng, 3, n_bytes), other.get(other.ids[:3])])
            k, radius = int(rng.integers(1, 30)), int(rng.integers(0, n_bytes * 3 + 1))
            for result, expected in zip(index.search(queries, k), other.search(queries, k), strict=True):
                assert_array_equal(result, expected)
            for result, expected in zip(
                index.range_search(queries, radius), other.range_search(queries, radius), strict=True
            ):
                assert_array_equal(result, expected)
    finally:
        patch.undo()


def test_changes_do_not_build_the_tables_again() -> None:
    rng = np.random.default_rng(0)
    index = HammingIndex(64, engine="multi-index")
    index.add(clustered(rng, 50_000, 8))
    index.search(index.get([0]), 1)
    (first,) = engine_of(index)._tables.parts
    index.add(clustered(rng, 100, 8))
    index.remove(range(50, 90))
    index.replace(clustered(rng, 20, 8), range(20))
    assert index.search(index.get([3, 100, 50_050]), 1)[0].tolist() == [[0], [0], [0]]
    (part,) = engine_of(index)._tables.parts
    assert part.entries is first.entries
    assert part.stale.tolist() == list(range(20))
    assert index.stats()["segments"] == [50_000]
    index.add(clustered(rng, 17_000, 8))  # too many to compare one by one
    index.search(index.get([3]), 1)
    assert index.stats()["segments"] == [67_060]  # not much larger: merged
    index.remove(range(100, 40_000))
    index.search(index.get([3]), 1)
    assert index.stats()["segments"] == [27_160]  # more than half was gone


def test_another_index_and_an_earlier_state_are_answered_too() -> None:
    rng = np.random.default_rng(0)
    engine, plain = MultiIndex(always=True), HammingIndex(64)
    one, other = (CodeRows.numbered(clustered(rng, n, 8)) for n in (500, 300))
    queries = clustered(rng, 4, 8)
    later = None
    for rows in (one, other, one):
        later = rows
        plain = HammingIndex(64)
        plain.add(rows.codes)
        assert_array_equal(engine.search(rows, queries, 7, None, 1)[1], plain.search(queries, 7)[1])
    added = later.with_added(np.array([500]), queries[:1])
    assert engine.search(added, queries[:1], 1, None, 1)[0].tolist() == [[0]]
    tables = engine._tables
    assert_array_equal(engine.search(one, queries, 7, None, 1)[1], plain.search(queries, 7)[1])
    assert engine._tables is tables  # an earlier state is scanned, and the tables stay


def test_too_many_changes_without_a_search_end_the_notes() -> None:
    rng = np.random.default_rng(0)
    index = HammingIndex(64, engine="multi-index")
    index.add(clustered(rng, 1000, 8))
    index.search(index.get([0]), 1)
    changes = engine_of(index)._changes
    for _ in range(40):
        index.replace(clustered(rng, 1000, 8), range(1000))
        changes._noted += 50_000
    assert changes.is_over
    assert changes.ids == []
    assert index.search(index.get([7]), 1)[0].tolist() == [[0]]
    assert engine_of(index)._changes is not changes


@pytest.mark.parametrize("count", [2, 1000, 10**6, 10**8])
@pytest.mark.parametrize("n_bits", [8, 64, 256, 4096])
def test_tables_are_about_as_many_as_substrings_of_log2_n_bits(n_bits: int, count: int) -> None:
    n_tables, width = segments.shape(n_bits, count)
    assert 1 <= n_tables * width <= n_bits
    assert width <= np.log2(count) + 2
    if n_bits == 64 and count >= 10**6:
        assert n_tables in (3, 4)
