"""For any width, codes, ids, k, removals and ties, results equal brute force, to the id.

700 cases in `make test`, 4,000 in `make test-all`, 12,000 in `make attack`. The search is cut into tiny chunks, blocks
and stretches here, so that a few dozen codes cross every boundary that millions would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.search import HammingIndex
from fusehash.search.engines import scan
from hostile.scale import ATTACK

SCALE = 3 if ATTACK else 1
# Each width costs seconds of compilation on a fresh machine; the engine "numpy" takes all of them.
FEW_WIDTHS = [16, 64, 128]
# Every kind of layout: one word of each size, padded words, an even and an odd number of words, the widest.
WIDTHS = (
    [*range(8, 1032, 8), 2048, 4088, 4096]
    if SCALE > 1
    else [8, 16, 24, 32, 40, 64, 72, 128, 192, 256, 512, 1000, 1024, 4096]
)
ENGINES = ["scan", "scan", "scan", "numpy", "multi-index"]


def cases(count: int) -> Callable[[Any], Any]:
    """Settings for `count` cases, three times as many by `make attack`."""
    slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count * SCALE, deadline=None, suppress_health_check=slow, database=None)


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(scan, "_CHUNK_BYTES", 1 << 11)
    patch.setattr(scan, "_BLOCK", 6)
    patch.setattr(scan, "_NARROW_BLOCK", 6)
    patch.setattr(scan, "_SHARE_BYTES", 64)
    yield
    patch.undo()


@st.composite
def problems(draw: Any, widths: Sequence[int] = FEW_WIDTHS) -> dict[str, Any]:
    """Codes with many ties, ids from all of 64 bits, some of them removed, queries that are codes and others."""
    engine = draw(st.sampled_from(ENGINES))
    n_bits = draw(st.integers(1, 128)) * 8 if engine == "numpy" else draw(st.sampled_from(widths))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.one_of(st.integers(0, 20), st.integers(0, 300)))
    n_values = draw(st.sampled_from([1, 2, 4, 256]))
    pool = rng.integers(0, 256, (max(1, n_values), n_bits // 8), dtype=np.uint8)
    noise = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8) & rng.integers(0, 256, (n, 1), dtype=np.uint8)
    codes = pool[rng.integers(0, len(pool), n)] ^ (noise if n_values > 1 else 0)
    spread = draw(st.sampled_from([n or 1, 10 * n + 1, 2**63 - 1]))
    ids = rng.choice(spread, n, replace=False) if spread < 2**62 else rng.integers(-(2**63), 2**63 - 1, n)
    ids = np.unique(ids.astype(np.int64))
    rng.shuffle(ids)
    n = len(ids)
    queries = np.concatenate(
        [codes[:n][:2], pool[:2], rng.integers(0, 256, (draw(st.integers(0, 8)), n_bits // 8), np.uint8)]
    )
    return {
        "engine": engine,
        "n_bits": n_bits,
        "codes": codes[:n],
        "ids": ids,
        "removed": ids[rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))],
        "queries": queries,
        "k": draw(st.one_of(st.integers(1, 12), st.integers(1, 400))),
        "radius": draw(st.integers(0, n_bits)),
        "threads": draw(st.integers(1, 3)),
        "rng": rng,
    }


def filled(problem: dict[str, Any], codes: np.ndarray, ids: np.ndarray) -> HammingIndex:
    index = HammingIndex(problem["n_bits"], engine=problem["engine"], threads=problem["threads"])
    index.add(codes, ids)
    return index


@cases(300)
@given(problem=problems())
def test_results_equal_brute_force(problem: dict[str, Any], brute_force: Any) -> None:
    check_against_brute_force(problem, brute_force)


@pytest.mark.slow
@cases(3000)
@given(problem=problems(WIDTHS))
def test_results_equal_brute_force_for_every_layout(problem: dict[str, Any], brute_force: Any) -> None:
    check_against_brute_force(problem, brute_force)


def check_against_brute_force(problem: dict[str, Any], brute_force: Any) -> None:
    codes, ids, queries, k, radius = (problem[name] for name in ("codes", "ids", "queries", "k", "radius"))
    index = filled(problem, codes, ids)
    index.remove(problem["removed"])
    kept = ~np.isin(ids, problem["removed"])
    if problem["rng"].random() < 0.3:
        allowed = problem["rng"].choice(ids, problem["rng"].integers(0, len(ids) + 1)) if len(ids) else ids
        kept &= np.isin(ids, allowed)
        if problem["rng"].random() < 0.5:
            allowed = np.isin(index.ids, allowed)
    else:
        allowed = None
    all_distances, all_ids = brute_force(codes[kept], ids[kept], queries)
    distances, found = index.search(queries, k, allowed=allowed)
    assert distances.dtype == np.int32
    assert found.dtype == np.int64
    assert_array_equal(distances, all_distances[:, :k])
    assert_array_equal(found, all_ids[:, :k])
    offsets, distances, found = index.range_search(queries, radius, allowed=allowed)
    near = all_distances <= radius
    assert_array_equal(np.diff(offsets), near.sum(axis=1))
    assert_array_equal(distances, all_distances[near])
    assert_array_equal(found, all_ids[near])


@cases(100)
@given(problem=problems())
def test_xor_with_a_constant_changes_nothing(problem: dict[str, Any]) -> None:
    constant = problem["rng"].integers(0, 256, problem["n_bits"] // 8, dtype=np.uint8)
    same_results(problem, problem["codes"] ^ constant, problem["ids"], problem["queries"] ^ constant)


@cases(100)
@given(problem=problems())
def test_permuting_the_bits_changes_nothing(problem: dict[str, Any]) -> None:
    order = problem["rng"].permutation(problem["n_bits"])

    def permuted(codes: np.ndarray) -> np.ndarray:
        return np.packbits(np.unpackbits(codes, axis=1)[:, order], axis=1)

    same_results(problem, permuted(problem["codes"]), problem["ids"], permuted(problem["queries"]))


@cases(100)
@given(problem=problems())
def test_order_of_insertion_changes_nothing(problem: dict[str, Any]) -> None:
    order = problem["rng"].permutation(len(problem["ids"]))
    same_results(problem, problem["codes"][order], problem["ids"][order], problem["queries"])


@cases(100)
@given(problem=problems())
def test_splitting_and_merging_changes_nothing(problem: dict[str, Any]) -> None:
    codes, ids, queries, k = (problem[name] for name in ("codes", "ids", "queries", "k"))
    whole = filled(problem, codes, ids)
    here = problem["rng"].random(len(ids)) < 0.5
    halves = filled(problem, codes[here], ids[here]), filled(problem, codes[~here], ids[~here])
    merged = HammingIndex(problem["n_bits"], engine=problem["engine"])
    for half in halves:
        for block_ids, block_codes in half.blocks(7):
            merged.add(block_codes, block_ids)
    assert_array_equal(merged.ids, whole.ids)
    for one, other in zip(merged.search(queries, k), whole.search(queries, k), strict=True):
        assert_array_equal(one, other)
    # The nearest k of the whole are the nearest k of the nearest k of the halves.
    parts = [half.search(queries, k) for half in halves]
    distances, found = (np.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
    order = np.lexsort((found, distances), axis=1)[:, :k]
    assert_array_equal(np.take_along_axis(found, order, axis=1), whole.search(queries, k)[1])


def same_results(problem: dict[str, Any], codes: np.ndarray, ids: np.ndarray, queries: np.ndarray) -> None:
    one, other = filled(problem, problem["codes"], problem["ids"]), filled(problem, codes, ids)
    for a, b in zip(one.search(problem["queries"], problem["k"]), other.search(queries, problem["k"]), strict=True):
        assert_array_equal(a, b)
    radius = problem["radius"]
    for a, b in zip(one.range_search(problem["queries"], radius), other.range_search(queries, radius), strict=True):
        assert_array_equal(a, b)
