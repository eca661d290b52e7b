"""Look-ups in codes as they are in memory: tables and marks against NumPy, and searches for one query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.search import HammingIndex
from fusehash.search.engines import row_look_ups, weighted
from fusehash.search.engines.kernel import entry
from fusehash.search.engines.tiles import matrix
from fusehash.search.projections import check_projections
from search.test_projections import reference
from search.test_properties import cases

WIDTHS = [64, 128, 256, 512, 1024]


@entry
def made_tables(weights: Any, limit: int, n_words: int) -> Any:
    tables = matrix(n_words, row_look_ups.WORD_TABLES)
    return row_look_ups.fill_rows(weights, limit, tables), tables


@entry
def marked(codes: Any, start: int, stop: int, tables: Any, limit: int) -> Any:
    marks = np.zeros((len(codes) // 64 + 1, 2), np.int64)
    code, table, mark = np.intp(codes.ctypes.data), np.intp(tables.ctypes.data), np.intp(marks.ctypes.data)
    n_words, bound = codes.shape[1], np.uint64(limit)
    n_bytes = np.intp(8 * n_words)
    if n_words == 1:
        pairs = row_look_ups.mark_rows(code, n_bytes, start, stop, table, bound, mark, (0,))
    elif n_words == 2:
        pairs = row_look_ups.mark_rows(code, n_bytes, start, stop, table, bound, mark, (0, 0))
    elif n_words == 4:
        pairs = row_look_ups.mark_rows(code, n_bytes, start, stop, table, bound, mark, (0, 0, 0, 0))
    else:
        pairs = row_look_ups.mark_rows(code, n_bytes, start, stop, table, bound, mark, (0, 0, 0, 0, 0, 0, 0, 0))
    return marks[:pairs]


def entries_of(tables: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """What is looked up for both halves of every byte: (codes, bytes, 2)."""
    tables = tables.reshape(-1, 2, 8, 16)  # words, halves, places, values
    place = np.arange(codes.shape[1])
    halves = np.stack([codes & 15, codes >> 4], axis=2)
    return tables[place // 8, :, place % 8][place, np.arange(2)[:, None, None], halves.transpose(2, 0, 1)].transpose(
        1, 2, 0
    )


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_marks_are_the_codes_with_sums_below_the_limit(n_bits: int) -> None:
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 256, (640, n_bits // 8), dtype=np.uint8)
    weights = check_projections(rng.standard_normal((1, n_bits)), n_bits).weights[0]
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    exact = np.maximum(weights, 0).sum() - bits.astype(np.int64) @ weights
    limit = int(np.sort(exact)[8])
    step, tables = made_tables(weights, limit, n_bits // 64)
    entries = entries_of(tables, codes).astype(np.int64)
    assert np.all(entries.sum(axis=(1, 2)) * step <= exact)
    # Bytes are added up to 255: eight words at a time, every place for itself.
    sums = np.minimum(entries.sum(axis=2).reshape(len(codes), -1, min(8, n_bits // 64), 8).sum(axis=2), 255)
    bounds = sums.sum(axis=(1, 2))
    bound = (limit - 1) // step + 1
    assert np.all(exact[bounds < bound] < 1.15 * limit)  # none is far beyond
    if not row_look_ups.CAN_LOOK_UP_ROWS:
        pytest.skip("this processor has no look-ups in 128 bytes")
    words = codes.view(np.uint64)
    for level in (0, bound, int(np.median(bounds)), 1 << 40):
        for start, stop in ((0, 640), (128, 192)):
            pairs = marked(words, start, stop, tables, level)
            expected = np.packbits(bounds < level, bitorder="little").view("<i8")
            numbers = [i for i in range(start // 64, stop // 64) if expected[i]]
            assert_array_equal(pairs, np.stack([expected[numbers], 64 * np.array(numbers, int)], axis=1))


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_bits = draw(st.sampled_from(WIDTHS))
    pool = rng.integers(0, 256, (draw(st.sampled_from([1, 30, 400])), n_bits // 8), dtype=np.uint8)
    query = rng.standard_normal((1, n_bits))
    shape = draw(st.sampled_from(["plain", "signs", "one bit", "skewed"]))
    if shape == "signs":
        query = np.sign(query)
    elif shape == "one bit":
        query *= np.arange(n_bits) == rng.integers(n_bits)
    elif shape == "skewed":
        query *= np.exp(4 * rng.standard_normal(n_bits))
    return {
        "codes": pool[rng.integers(0, len(pool), draw(st.sampled_from([1, 63, 64, 65, 200, 400])))],
        "query": query,
        "k": draw(st.sampled_from([1, 10, 70, 400])),
        "threads": draw(st.integers(1, 3)),
    }


@cases(40)
@given(problem=problems())
def test_one_query_equals_brute_force(problem: dict[str, Any]) -> None:
    codes, query = problem["codes"], problem["query"]
    index = HammingIndex(8 * codes.shape[1], threads=problem["threads"])
    index.add(codes)
    (scores,) = reference(codes, query)
    order = np.argsort(scores, kind="stable")
    with pytest.MonkeyPatch.context() as small:
        small.setattr(weighted, "_CHUNK_BYTES", 1 << 11)
        small.setattr(weighted, "_SHARE_BYTES", 64)
        found, ids = index.search(query, problem["k"])
        radius = float(np.sort(scores)[len(scores) // 3])
        offsets, near, near_ids = index.range_search(query, radius)
    assert_array_equal(ids[0], order[: problem["k"]])
    assert_array_equal(found[0], scores[order][: problem["k"]])
    within = order[scores[order] <= radius]
    assert_array_equal(offsets, [0, len(within)])
    assert_array_equal(near_ids, within)
    assert_array_equal(near, scores[within])
