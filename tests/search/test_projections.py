"""Real-valued queries: results equal brute force, to the id and to the last bit of the score, on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.errors import DataError, ParameterError
from fusehash.extras import is_installed
from fusehash.search import HammingIndex
from fusehash.search.engines import kernel, look_ups, tiles, weighted
from fusehash.search.projections import check_projections
from search.test_properties import cases

ENGINES = ["scan", "scan", "numpy", "multi-index", "auto"] + (["torch"] if is_installed("torch") else [])


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(weighted, "_CHUNK_BYTES", 1 << 11)
    patch.setattr(weighted, "_BLOCK", 6)
    patch.setattr(weighted, "_SHARE_BYTES", 64)
    yield
    patch.undo()


def reference(codes: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Scores (queries, codes) with Python's integers, as documented."""
    scores = np.empty((len(queries), len(codes)))
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    for q, query in enumerate(queries.astype(np.float64)):
        largest = max(abs(float(value)) for value in query)
        exponent = max(int(np.frexp(largest)[1]), -980) - 40
        whole = [round(float(np.ldexp(abs(value), -exponent))) for value in query]
        for i, row in enumerate(bits):
            total = sum(w for w, value, bit in zip(whole, query, row, strict=True) if (value > 0) != bool(bit))
            scores[q, i] = np.ldexp(float(total), exponent)
    return scores


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_bits = draw(st.sampled_from([8, 16, 24, 40, 64, 72, 128, 200]))
    n = draw(st.one_of(st.integers(0, 20), st.integers(100, 300)))
    pool = rng.integers(0, 256, (draw(st.sampled_from([1, 3, 300])), n_bits // 8), dtype=np.uint8)
    queries = rng.standard_normal((draw(st.integers(1, 9)), n_bits))
    shape = draw(st.sampled_from(["plain", "signs", "few", "skewed", "tiny", "huge", "levels"]))
    if shape == "signs":
        queries = np.sign(queries)
    elif shape == "few":
        queries[:, 1:] *= rng.random(queries[:, 1:].shape) < 0.1
    elif shape == "skewed":
        queries *= np.exp(4 * rng.standard_normal(n_bits))
    elif shape == "tiny":
        queries *= 1e-310
    elif shape == "huge":
        queries *= 1e299
    elif shape == "levels":
        queries = np.rint(2 * queries) / 2
        queries[:, 0] = 1
    ids = np.unique(rng.integers(-(2**63), 2**63 - 1, n))
    rng.shuffle(ids)
    return {
        "engine": draw(st.sampled_from(ENGINES)),
        "codes": pool[rng.integers(0, len(pool), len(ids))],
        "ids": ids,
        "queries": queries.astype(draw(st.sampled_from([np.float64, np.float32])))
        if shape not in ("tiny", "huge")
        else queries,
        "k": draw(st.one_of(st.integers(1, 12), st.integers(1, 400))),
        "threads": draw(st.integers(1, 3)),
        "filtered": draw(st.sampled_from(["no", "ids", "mask"])),
        "rng": rng,
    }


@cases(60)
@given(problem=problems())
def test_results_equal_brute_force(problem: dict[str, Any]) -> None:
    codes, ids, queries, k, rng = (problem[name] for name in ("codes", "ids", "queries", "k", "rng"))
    queries = queries[queries.any(axis=1)]
    index = HammingIndex(8 * codes.shape[1], engine=problem["engine"], threads=problem["threads"])
    index.add(codes, ids)
    allowed, kept = None, np.ones(len(ids), bool)
    if problem["filtered"] != "no" and len(ids):
        allowed = rng.choice(ids, rng.integers(0, len(ids) + 1))
        kept = np.isin(ids, allowed)
        allowed = np.isin(index.ids, allowed) if problem["filtered"] == "mask" else allowed
    scores = reference(codes[kept], queries)
    order = np.array([np.lexsort((ids[kept], row)) for row in scores], int).reshape(scores.shape)
    ordered = np.take_along_axis(scores, order, axis=1)
    found, found_ids = index.search(queries, k, allowed=allowed)
    assert found.dtype == np.float64
    assert_array_equal(found, ordered[:, :k])
    assert_array_equal(found_ids, ids[kept][order][:, :k])
    radius = float(rng.choice(scores.ravel())) if scores.size else 1.0
    offsets, found, found_ids = index.range_search(queries, radius, allowed=allowed)
    near = ordered <= radius
    assert_array_equal(np.diff(offsets), near.sum(axis=1))
    assert_array_equal(found, ordered[near])
    assert_array_equal(found_ids, ids[kept][order][near])


def test_all_engines_agree_on_many_codes() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (5000, 32), dtype=np.uint8)
    codes[2500:] = codes[:2500]
    queries = rng.standard_normal((20, 256)).astype(np.float32)
    answers = []
    for engine in dict.fromkeys(ENGINES):
        index = HammingIndex(256, engine=engine)
        index.add(codes)
        answers.append([*index.search(queries, 50), *index.range_search(queries, 70.0)])
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            assert_array_equal(one, other)


def test_queries_of_plus_and_minus_one_give_hamming_distances() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (3000, 8), dtype=np.uint8)
    index = HammingIndex(64)
    index.add(codes)
    signs = 2.0 * np.unpackbits(codes[:5], axis=1, bitorder="little") - 1
    for one, other in zip(index.search(codes[:5], 40), index.search(signs, 40), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("n_bits", [256, 512])
def test_bounds_leave_few_codes(n_bits: int) -> None:
    """What makes it fast: on random codes the look-ups leave about a hundredth to be scored exactly."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (10000, n_bits // 8), dtype=np.uint8)
    weights = check_projections(rng.standard_normal((1, n_bits)), n_bits).weights[0]
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    exact = (bits != (weights > 0)) @ np.abs(weights)
    n_quads = -(-n_bits // 8 // tiles.QUAD_BYTES)
    limit, is_narrow = np.sort(exact)[10], n_quads <= look_ups.NARROW
    per_sum = 4 * n_quads if is_narrow else 8
    n_groups = -(-n_bits // (tiles.GROUP_BITS * per_sum)) * per_sum
    coarse = np.zeros((n_groups, 1 << tiles.GROUP_BITS), np.uint8)
    fill = kernel.entry(lambda *arguments: look_ups.fill(*arguments))
    step = fill(weights, limit, coarse, is_narrow)
    padded = np.pad(bits, ((0, 0), (0, n_groups * tiles.GROUP_BITS - n_bits)))
    values = padded.reshape(len(codes), n_groups, -1) @ (1 << np.arange(tiles.GROUP_BITS))
    looked_up = coarse[np.arange(n_groups), values].reshape(len(codes), -1, per_sum).sum(axis=2, dtype=np.int64)
    bounds = np.minimum(looked_up, 255).sum(axis=1)
    assert np.all(bounds * step <= exact)
    assert np.mean(bounds < (limit - 1) // step + 1) < 0.015


def test_wrong_queries(tmp_path: Path) -> None:
    index = HammingIndex(16)
    index.add(np.zeros((3, 2), np.uint8))
    for wrong, sentence in [
        (np.zeros((1, 16)), "Row 0 is, which has no direction"),
        (np.array([[1.0] * 16, [np.nan] + [1.0] * 15]), "Row 1 has NaN, infinity"),
        (np.array([[np.inf] * 16]), "Row 0 has NaN"),
        (np.ones((2, 15)), r"floats of shape \(n, 16\). Got float64 of shape \(2, 15\)"),
        (np.ones(16), r"Got float64 of shape \(16,\)"),
        (np.ones((1, 2), np.int64), "Query codes must be a uint8 matrix"),
    ]:
        with pytest.raises(DataError, match=sentence):
            index.search(wrong, 1)
        with pytest.raises(DataError, match=sentence):
            index.range_search(wrong, 1)
    with pytest.raises(ParameterError, match="'radius'"):
        index.range_search(np.ones((1, 16)), -1.0)
    with pytest.raises(ParameterError, match="'radius'"):
        index.range_search(np.ones((1, 2), np.uint8), 1.5)
    assert index.search(np.ones((0, 16)), 2)[1].shape == (0, 2)
    assert HammingIndex(16).search(np.ones((2, 16)), 2)[0].shape == (2, 0)
