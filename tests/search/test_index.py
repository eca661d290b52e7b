"""HammingIndex in memory: results, errors, memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fusehash as fh
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.search import HammingIndex
from index_files import random_codes


def test_a_small_example() -> None:
    index = fh.HammingIndex(n_bits=8)
    assert index.add(np.array([[0b0], [0b1], [0b11], [0b1]], np.uint8), ids=[40, 30, 20, 10]).tolist() == [
        40,
        30,
        20,
        10,
    ]
    distances, ids = index.search(np.array([[0b1]], np.uint8), k=3)
    assert distances.tolist() == [[0, 0, 1]]
    assert ids.tolist() == [[10, 30, 20]]  # ties by id, not by order of insertion
    offsets, distances, ids = index.range_search(np.array([[0b1], [0b11111]], np.uint8), radius=0)
    assert (offsets.tolist(), distances.tolist(), ids.tolist()) == ([0, 2, 2], [0, 0], [10, 30])


def test_ids_are_never_assigned_twice() -> None:
    index = HammingIndex(64)
    codes = random_codes(100)
    assert index.add(codes[:60]).tolist() == list(range(60))
    assert index.remove(range(0, 60, 2)) == 30
    assert index.add(codes[60:]).tolist() == list(range(60, 100))
    assert len(index) == 70
    assert 1 in index
    assert 2 not in index
    assert "1" not in index
    assert 2**70 not in index
    left = [*range(1, 60, 2), *range(60, 100)]
    assert index.ids.tolist() == left
    assert_array_equal(index.get(left[::-1]), codes[left[::-1]])
    distances, ids = index.search(codes[left], 1)
    assert not distances.any()
    assert_array_equal(ids[:, 0], left)


def test_replace_changes_codes_and_nothing_else() -> None:
    index = HammingIndex(64)
    index.add(random_codes(50))
    old = index.get(range(50))
    index.replace(random_codes(2, seed=1), [30, 4])
    assert_array_equal(index.get([30, 4]), random_codes(2, seed=1))
    others = [i for i in range(50) if i not in (4, 30)]
    assert_array_equal(index.get(others), old[others])


def test_iteration_is_in_blocks_and_in_order_of_id() -> None:
    index = HammingIndex(64)
    codes, ids = random_codes(25), np.random.default_rng(0).permutation(25) * 7
    index.add(codes, ids)
    blocks = list(index.blocks(10))
    assert [len(block) for block, _ in blocks] == [10, 10, 5]
    order = np.argsort(ids)
    assert_array_equal(np.concatenate([block for block, _ in blocks]), ids[order])
    assert_array_equal(np.concatenate([block for _, block in blocks]), codes[order])
    assert sum(len(block) for block, _ in index) == 25


def test_an_iteration_sees_the_codes_as_they_were_when_it_began() -> None:
    index = HammingIndex(64)
    index.add(random_codes(1000))
    blocks = index.blocks(100)
    next(blocks)
    index.remove(range(1000))
    index.add(random_codes(10, seed=2))
    assert sum(len(ids) for ids, _ in blocks) == 900


def test_fewer_codes_than_k_or_none() -> None:
    index = HammingIndex(64)
    assert [part.shape for part in index.search(random_codes(3), 5)] == [(3, 0), (3, 0)]
    assert index.range_search(random_codes(3), 64)[0].tolist() == [0, 0, 0, 0]
    assert index.add(random_codes(0)).tolist() == []
    index.add(random_codes(4))
    assert index.search(random_codes(3), 5)[1].shape == (3, 4)
    assert index.search(random_codes(0), 5)[1].shape == (0, 4)
    assert index.search(random_codes(3), 5, allowed=[])[1].shape == (3, 0)
    assert index.range_search(random_codes(0), 5)[0].tolist() == [0]


def test_filter_by_ids_or_mask() -> None:
    index = HammingIndex(64)
    index.add(random_codes(1000), np.arange(1000) * 3)
    query = random_codes(5, seed=1)
    _, ids = index.search(query, 1000)
    expected = ids[(ids % 2 == 0)].reshape(5, -1)[:, :20]
    assert_array_equal(index.search(query, 20, allowed=np.arange(0, 5000, 2))[1], expected)
    assert_array_equal(index.search(query, 20, allowed=index.ids % 2 == 0)[1], expected)
    with pytest.raises(DataError, match="A mask must have one entry for each of 1000 codes"):
        index.search(query, 20, allowed=np.ones(3, bool))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.add(random_codes(2), [1, 1]), "Got 1 more than once"),
        (lambda index: index.add(random_codes(2), [0, 9]), "Id 0 is in the index already"),
        (lambda index: index.add(random_codes(2), [9]), "one id for each of 2 codes"),
        (lambda index: index.add(random_codes(2), [0.5, 1.5]), "vector of integers"),
        (lambda index: index.add(random_codes(2), [True, False]), "vector of integers"),
        (lambda index: index.add(random_codes(2), np.array([2**63, 1], np.uint64)), "64-bit integers"),
        (lambda index: index.add(random_codes(2), [2**70, 1]), "64-bit integers"),
        (lambda index: index.add(random_codes(2), ["a", "b"]), "vector of integers"),
        (lambda index: index.add(random_codes(2, 32)), "must have 8 bytes per row. Got 4"),
        (lambda index: index.add(random_codes(2).astype(float)), "must be a uint8 matrix"),
        (lambda index: index.add(random_codes(2)[0]), "must be a uint8 matrix"),
        (lambda index: index.remove([7]), "Id 7 is not"),
        (lambda index: index.remove([7, 8, 0]), r"Id 7 \(and 1 more\) is not"),
        (lambda index: index.replace(random_codes(1), [7]), "Id 7 is not"),
        (lambda index: index.replace(random_codes(2), [0, 0]), "Got 0 more than once"),
        (lambda index: index.get([0, 7]), "Id 7 is not"),
        (lambda index: index.search(random_codes(1, 32), 1), "Query codes of 64 bits must have 8 bytes"),
        (lambda index: index.search(random_codes(1), 0), "'k' parameter"),
        (lambda index: index.search(random_codes(1), 1.0), "'k' parameter"),
        (lambda index: index.range_search(random_codes(1), -1), "'radius' parameter"),
        (lambda index: index.search(random_codes(1), 1, threads=0), "'threads' parameter"),
        (lambda index: HammingIndex(12), "'n_bits' parameter"),
        (lambda index: HammingIndex(4104), "'n_bits' parameter"),
        (lambda index: HammingIndex("64"), "'n_bits' parameter"),
        (lambda index: HammingIndex(64, engine="magic"), "'engine' parameter"),
        (lambda index: HammingIndex(64, engine=None), "'engine' parameter"),
    ],
)
def test_a_wrong_call_raises_and_changes_nothing(call: Any, message: str) -> None:
    index = HammingIndex(64)
    index.add(random_codes(3))
    with pytest.raises((DataError, ParameterError), match=message):
        call(index)
    assert index.ids.tolist() == [0, 1, 2]
    assert_array_equal(index.get([0, 1, 2]), random_codes(3))


def test_memory_is_codes_and_ids_plus_two_percent() -> None:
    n, bound = 200_000, 200_000 * 16 * 1.02
    codes = random_codes(n)
    tracemalloc.start()
    try:
        index = HammingIndex(64)
        index.add(codes)
        assert tracemalloc.get_traced_memory()[0] < bound
        index.search(codes[:5], 10)
        assert index.stats()["memory_bytes"] < bound / 2  # ids that count up are not stored
        index.add(codes[:1], [10**9])
        assert bound / 2 < index.stats()["memory_bytes"] < bound  # ids with a gap are
        assert index.ids[[0, -2, -1]].tolist() == [0, n - 1, 10**9]
        del index
        parts = HammingIndex(64)
        for start in range(0, n, 2000):
            parts.add(codes[start : start + 2000])
        assert parts.stats()["memory_bytes"] < bound
        parts.remove(range(0, n, 2))
        assert parts.stats()["memory_bytes"] < bound / 2
        parts.add(codes[::2], range(0, n, 2))
        assert tracemalloc.get_traced_memory()[0] < bound + (1 << 20)  # and what numba has loaded in the meantime
        assert_array_equal(parts.get(range(n)), codes)
    finally:
        tracemalloc.stop()


def test_ids_that_count_up_become_stored_ones_and_back() -> None:
    index, codes = HammingIndex(64), random_codes(100)
    index.add(codes[:50], range(-20, 30))
    assert index.stats()["memory_bytes"] == 50 * 8
    index.remove([-5, 29, -20])
    assert index.ids.tolist() == [*range(-19, -5), *range(-4, 29)]
    assert index.stats()["memory_bytes"] == 47 * 16
    index.add(codes[:1], [-5])
    assert index.stats()["memory_bytes"] == 48 * 8
    assert index.ids.tolist() == [*range(-19, 29)]
    assert [2**62 in index, -(2**63) in index, -20 in index, 28 in index] == [False, False, False, True]
    index.add(codes[:1], [-(2**63)])
    index.add(codes[:1], [2**63 - 1])
    assert index.search(codes[:1], 50)[1].shape == (1, 50)
    assert_array_equal(index.get([-(2**63), 2**63 - 1]), codes[[0, 0]])
    assert next(block.tolist() for block, _ in index.blocks(30))[:2] == [-(2**63), -19]


def test_large_k_takes_memory_for_k_and_not_for_k_times_bits() -> None:
    n, k = 30_000, 20_000
    index = HammingIndex(1024, threads=1)
    index.add(random_codes(n, 1024))
    index.search(random_codes(1, 1024), 5)
    tracemalloc.start()
    try:
        index.search(random_codes(4, 1024), k)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * k * 12 * 4  # four results of int32 and int64, a few times over; k x bits would be 2.6 GB


def test_codes_in_the_other_bit_order_are_reported_once_there_is_something_to_compare(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    share = rng.uniform(0.3, 0.7, 64)

    def bits_of(n: int) -> np.ndarray:
        return rng.random((n, 64)) < share

    with HammingIndex.open(tmp_path / "codes.db", 64, warm=False) as index, warnings.catch_warnings():
        warnings.simplefilter("error")
        index.add(np.packbits(bits_of(99), axis=1))  # too few to tell
        index.add(np.packbits(bits_of(400), axis=1, bitorder="little"))
        index.remove(np.arange(99))
        for _ in range(20):  # other samples of the right order are never reported
            index.add(np.packbits(bits_of(int(rng.integers(100, 600))), axis=1, bitorder="little"))
        index.add(rng.integers(0, 256, (500, 8), dtype=np.uint8))
        index.add(np.repeat(rng.integers(0, 256, (3, 8), dtype=np.uint8), 60, axis=0))  # a few codes many times
        before = len(index)
        with pytest.raises(FusehashWarning, match="look bit-reversed"):
            index.add(np.packbits(bits_of(400), axis=1))
        assert len(index) == before  # whoever turns warnings into errors has lost nothing
        warnings.simplefilter("always")
        with pytest.warns(FusehashWarning, match="lowest bit of a byte"):
            index.add(np.packbits(bits_of(400), axis=1))
        assert len(index) == before + 400


def test_importing_fusehash_loads_no_numba() -> None:
    script = (
        "import sys, fusehash; fusehash.HammingIndex(64); sys.exit('numba' in sys.modules or 'faiss' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
