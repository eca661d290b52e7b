"""Near pairs and groups equal brute force, whatever plan is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fusehash.errors import ParameterError
from fusehash.search import HammingIndex
from fusehash.search.near import near_groups, near_pairs, pairs
from fusehash.search.near.passes import _plans, as_words, plan

Pairs = set[tuple[int, int, int]]


def clustered(rng: np.random.Generator, n: int, n_bytes: int, n_clusters: int, flips: float) -> np.ndarray:
    centers = rng.integers(0, 256, (max(1, n_clusters), n_bytes), dtype=np.uint8)
    noise = np.packbits(rng.random((n, n_bytes * 8)) < flips, axis=1)
    return centers[rng.integers(0, len(centers), n)] ^ noise


def all_pairs(codes: np.ndarray, radius: int) -> Pairs:
    distances = np.bitwise_count(codes[:, None, :] ^ codes[None]).sum(axis=2)
    first, second = np.nonzero(np.triu(distances <= radius, 1))
    return set(zip(first.tolist(), second.tolist(), distances[first, second].tolist(), strict=True))


def collected(blocks: Any) -> Pairs:
    listed = [pair for block in blocks for pair in zip(*(array.tolist() for array in block), strict=True)]
    assert len(listed) == len(set(listed))  # each pair once
    return set(listed)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_plan_equals_brute_force(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_bytes = data.draw(st.sampled_from([1, 3, 8, 9, 16, 40]))
    n, radius = data.draw(st.integers(0, 250)), data.draw(st.integers(0, n_bytes * 3))
    codes = clustered(
        rng, n, n_bytes, data.draw(st.sampled_from([1, 5, 300])), data.draw(st.sampled_from([0, 0.02, 0.2]))
    )
    expected = all_pairs(codes, radius)
    plans = list(_plans(as_words(codes).shape[1], n_bytes * 8, radius))
    for passes in [None, plans[data.draw(st.integers(0, len(plans) - 1))]]:
        assert collected(near_pairs(codes, radius, data.draw(st.integers(1, 3)), passes)) == expected
    graph = coo_array(
        (np.ones(len(expected)), tuple(np.array([pair[:2] for pair in expected], int).reshape(-1, 2).T)), shape=(n, n)
    )
    labels = connected_components(graph, directed=False)[1] if n else np.empty(0, int)
    groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    groups = sorted((group for group in groups if len(group) > 1), key=lambda group: (-len(group), group[0]))
    assert [group.tolist() for group in near_groups(codes, radius)] == groups


def test_small_pieces_and_full_results_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    codes = clustered(rng, 9000, 8, 2, 0.02)[rng.permutation(9000)]
    codes[:500] = codes[0]  # more pairs than fit into the results of a piece of work
    expected = [np.concatenate(arrays) for arrays in zip(*near_pairs(codes, 1, 1), strict=True)]
    for name, value in (("_PIECE", 5000), ("_CAPACITY", 5000), ("_BLOCK", 10)):
        monkeypatch.setattr(pairs, name, value)
    blocks = list(near_pairs(codes, 1, 2))
    assert len(blocks) > 100
    for whole, part in zip(expected, (np.concatenate(arrays) for arrays in zip(*blocks, strict=True)), strict=True):
        assert len(part) == len(whole) > 500 * 499 // 2
    order, other = (np.lexsort(arrays[1::-1]) for arrays in (expected, arrays_of(blocks)))
    for whole, part in zip(expected, arrays_of(blocks), strict=True):
        assert_array_equal(part[other], whole[order])


def arrays_of(blocks: list[Any]) -> list[np.ndarray]:
    return [np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]


def test_many_codes_are_not_compared_with_all_others() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (100_000, 8), dtype=np.uint8)
    codes[1::2] = codes[::2]
    codes[1::2, 0] ^= 3
    words = as_words(codes)
    assert len(plan(words, 64, 4)) > 1  # several passes over groups
    assert len(plan(words, 64, 30)) == 1  # nearly everything is near somewhere: one pass over all
    first, second, distances = arrays_of(list(near_pairs(codes, 4)))
    assert set(zip(first.tolist(), second.tolist(), strict=True)) == {(i, i + 1) for i in range(0, 100_000, 2)}
    assert (distances == 2).all()


def test_index_pairs_and_groups_are_ids(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    codes, ids = clustered(rng, 300, 8, 60, 0.02), rng.permutation(1000)[:300] - 500
    order = np.argsort(ids)
    expected = {(int(ids[order[a]]), int(ids[order[b]]), d) for a, b, d in all_pairs(codes[order], 5)}
    with HammingIndex.open(tmp_path / "codes.db", 64, warm=False) as index:
        index.add(codes, ids)
        blocks = index.pairs(5)
        groups = index.groups(5)
        index.remove(ids)  # an iteration sees the codes as they were
        assert collected(blocks) == expected
        assert {frozenset(pair[:2]) for pair in expected} <= {
            frozenset((int(a), int(b))) for group in groups for a in group for b in group if a != b
        }
        assert [len(group) for group in groups] == sorted((len(group) for group in groups), reverse=True)
        assert all((np.diff(group) > 0).all() for group in groups)
        assert list(index.pairs(5)) == []
        assert index.groups(5) == []


@pytest.mark.parametrize("radius", [-1, 1.5, "1", None])
def test_a_wrong_radius_raises_at_once(radius: Any) -> None:
    index = HammingIndex(64)
    for call in (index.pairs, index.groups):
        with pytest.raises(ParameterError, match="'radius' parameter"):
            call(radius)
    with pytest.raises(ParameterError, match="'threads' parameter"):
        index.pairs(1, threads=0)
