"""How codes are arranged for look-ups, and searches over enough codes and bits that all loops of the look-ups run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fusehash.search import HammingIndex
from fusehash.search.engines import tiles
from fusehash.search.engines.kernel import entry
from fusehash.search.projections import check_projections

N = 5000
SHAPES = ("plain", "signs", "one bit", "denormal", "huge", "skewed", "last word")


@entry
def arranged(codes: Any, rows: Any, first: int, count: int, n_quads: int) -> Any:
    room = tiles.room_for(codes, n_quads, 512)
    tiles.lay_out(codes, rows, first, count, room)
    return room[0].copy()


@pytest.mark.parametrize("n_bytes", [1, 3, 4, 5, 8, 12, 16, 24, 32, 40, 64, 72, 128, 136, 512])
def test_tiles_have_the_groups_of_every_code(n_bytes: int) -> None:
    rng = np.random.default_rng(n_bytes)
    codes = rng.integers(0, 256, (300, n_bytes), dtype=np.uint8)
    words = codes.view(f"u{next(size for size in (8, 4, 2, 1) if n_bytes % size == 0)}")
    n_quads = -(-n_bytes // tiles.QUAD_BYTES)
    n_groups = 4 * n_quads
    bits = np.pad(
        np.unpackbits(codes, axis=1, bitorder="little"), ((0, 0), (0, n_groups * tiles.GROUP_BITS - 8 * n_bytes))
    )
    expected = bits.reshape(300, n_groups, tiles.GROUP_BITS) @ (1 << np.arange(tiles.GROUP_BITS))
    some = np.sort(rng.choice(300, 200, replace=False))
    for rows in (np.empty(0, np.int64), some):
        order = rows if len(rows) else np.arange(300)
        for first, count in ((0, len(order)), (3, len(order) - 3), (10, 130)):
            made = arranged(words, rows, first, count, n_quads).reshape(-1, n_groups, tiles.LANES)
            groups = made.transpose(0, 2, 1).reshape(-1, n_groups)[:count] & ((1 << tiles.GROUP_BITS) - 1)
            assert_array_equal(groups, expected[order[first : first + count]])


def queries_of(shape: str, n_bits: int, rng: np.random.Generator) -> np.ndarray:
    queries = rng.standard_normal((6, n_bits))
    if shape == "signs":
        return np.sign(queries)
    if shape == "one bit":
        return queries * (np.arange(n_bits) == n_bits - 1)
    if shape == "denormal":
        return queries * 1e-310
    if shape == "huge":
        return queries * 1e299
    if shape == "skewed":
        return queries * np.exp(5 * rng.standard_normal(n_bits))
    if shape == "last word":
        return queries * (np.arange(n_bits) >= n_bits - 64) + 1e-3 * queries
    return queries


@pytest.mark.parametrize("n_bits", [64, 128, 192, 256, 320, 512, 1024, 4096])
def test_searches_equal_brute_force(n_bits: int) -> None:
    """One query and several, with ties across tiles and chunks, every k, filters and radii."""
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 256, (N, n_bits // 8), dtype=np.uint8)
    codes[N // 2 :] = codes[rng.integers(0, N // 2, N - N // 2)]  # duplicates
    codes[100:120] = codes[0]
    index = HammingIndex(n_bits, threads=1)
    index.add(codes)
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float64)
    allowed = np.sort(rng.choice(N, N // 3, replace=False))
    for shape in SHAPES:
        queries = queries_of(shape, n_bits, rng)
        queries[1] = np.abs(queries[1]) * (2 * bits[0] - 1)  # the code of twenty others
        queries = queries[queries.any(axis=1)]
        made = check_projections(queries, n_bits)
        # Whole numbers below 2^53: exact in double precision, whatever the order of summation.
        weights = made.weights.astype(np.float64)
        scores = (np.maximum(weights, 0).sum(axis=1)[:, None] - weights @ bits.T) * made.steps[:, None]
        for asked in (slice(0, 1), slice(1, 2), slice(0, len(queries))):
            k, rows = int(rng.choice([1, 7, 40, 900, N, 2 * N])), allowed if rng.random() < 0.4 else np.arange(N)
            exact = scores[asked][:, rows]
            order = np.argsort(exact, axis=1, kind="stable")
            got, ids = index.search(queries[asked], k, allowed=rows if len(rows) < N else None)
            assert_array_equal(ids, rows[order[:, :k]])
            assert_array_equal(got, np.take_along_axis(exact, order, axis=1)[:, :k])
            radius = float(np.sort(exact[0])[int(rng.choice([0, 5, 300]))])
            offsets, got, ids = index.range_search(queries[asked], radius, allowed=rows if len(rows) < N else None)
            near = np.take_along_axis(exact, order, axis=1) <= radius
            assert_array_equal(np.diff(offsets), near.sum(axis=1))
            assert_array_equal(ids, rows[order][near])
            assert_array_equal(got, np.take_along_axis(exact, order, axis=1)[near])
