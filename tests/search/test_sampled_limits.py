"""Searches for many neighbors begin with limits of a sample: whatever the sample says, results stay exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fusehash.bits import pack
from fusehash.search import HammingIndex
from fusehash.search.engines import weighted


@pytest.fixture(params=[False, True], ids=["plain", "factors"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An index that samples, and a slow one with the same codes."""
    monkeypatch.setattr(weighted, "_SAMPLED_ROWS", 64)
    monkeypatch.setattr(weighted, "_MANY", 1)
    asked = []
    limits_of = weighted._limits_of_sample

    def noted(*arguments: Any) -> Any:
        asked.append(limits_of(*arguments))
        return asked[-1]

    monkeypatch.setattr(weighted, "_limits_of_sample", noted)

    def build(codes: np.ndarray) -> tuple[HammingIndex, HammingIndex, list[Any]]:
        factors = np.random.default_rng(1).random((len(codes), 2), np.float32) if request.param else None
        indexes = []
        for engine in ("scan", "numpy"):
            indexes.append(HammingIndex(codes.shape[1] * 8, engine=engine, factors=request.param, threads=1))
            indexes[-1].add(codes, factors=factors)
        return *indexes, asked

    return build


def compare(one: HammingIndex, other: HammingIndex, queries: np.ndarray, k: int) -> None:
    for found, expected in zip(one.search(queries, k), other.search(queries, k), strict=True):
        assert_array_equal(found, expected)


@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize("n_bits", [16, 72, 256])
def test_results_are_those_without_a_sample(pair: Any, n_bits: int, k: int) -> None:
    rng = np.random.default_rng(k)
    fast, slow, asked = pair(rng.integers(0, 256, (6000, n_bits // 8), dtype=np.uint8))
    compare(fast, slow, rng.standard_normal((9, n_bits)), k)
    assert len(asked) == 1


def test_a_sample_that_is_too_small_for_so_many_neighbors_says_nothing(pair: Any) -> None:
    rng = np.random.default_rng(0)
    fast, slow, asked = pair(rng.integers(0, 256, (400, 8), dtype=np.uint8))
    compare(fast, slow, rng.standard_normal((3, 64)), 395)  # the 30th of the 13 codes of the sample
    assert len(asked) == 1
    assert np.isin(asked[0], [np.inf, 1 << 62]).all()


@pytest.mark.parametrize("near", ["in the sample", "outside of it", "all alike"])
def test_a_sample_that_misleads_changes_nothing(pair: Any, near: str) -> None:
    rng = np.random.default_rng(3)
    query = rng.standard_normal((1, 64))
    bits = np.broadcast_to(query < 0, (4000, 64)).copy()  # far away
    in_sample = np.arange(4000) % weighted._SAMPLE == 0
    if near != "all alike":
        bits[in_sample if near == "in the sample" else ~in_sample] = query > 0
    fast, slow, asked = pair(pack(np.where(bits, 1.0, -1.0)))
    for k in (5, 60, 130):
        compare(fast, slow, np.vstack([query, rng.standard_normal((3, 64)), -query]), k)
    assert len(asked) == 3
