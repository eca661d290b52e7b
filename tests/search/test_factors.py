"""Codes with factors: real-valued queries are ranked by the estimates, equal to brute force to the last bit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import fusehash as fh
from fusehash.errors import CorruptIndexError, DataError, ParameterError
from fusehash.search import HammingIndex
from fusehash.search.engines import bounds
from joint import joint_embeddings
from search.test_projections import ENGINES, _small_pieces, problems  # noqa: F401 (a fixture)
from search.test_properties import cases

LARGEST = np.finfo(np.float64).max


def reference(codes: np.ndarray, factors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Distances (queries, codes) as documented: whole numbers with Python's integers, then two roundings."""
    distances = np.empty((len(queries), len(codes)))
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    for q, query in enumerate(queries.astype(np.float64)):
        exponent = max(int(np.frexp(max(abs(float(value)) for value in query))[1]), -980) - 40
        whole = [round(float(np.ldexp(value, -exponent))) for value in query]
        sums = (2 * bits.astype(np.int64) - 1) @ np.array(whole)
        for i, total in enumerate(sums):
            estimate = float(factors[i, 0]) * float(np.ldexp(float(total), exponent)) + float(factors[i, 1])
            distances[q, i] = min(max(-estimate, -LARGEST), LARGEST)
    return distances


def factors_for(rng: np.random.Generator, n: int, shape: str) -> np.ndarray:
    scales, offsets = np.exp(0.2 * rng.standard_normal(n)), rng.standard_normal(n)
    if shape == "ones":
        scales, offsets = np.ones(n), np.zeros(n)
    elif shape == "ties":
        scales, offsets = rng.integers(0, 3, n), rng.integers(-1, 2, n)
    elif shape == "wild":
        scales = np.exp(20 * rng.standard_normal(n)) * (rng.random(n) < 0.9)
        offsets = offsets * np.exp(15 * rng.standard_normal(n))
    return np.stack([np.minimum(scales, 1e38), np.clip(offsets, -1e38, 1e38)], axis=1).astype(np.float32)


@cases(50)
@given(problem=problems(), shape=st.sampled_from(["plain", "ones", "ties", "wild"]))
def test_results_equal_brute_force(problem: dict[str, Any], shape: str) -> None:
    codes, ids, queries, k, rng = (problem[name] for name in ("codes", "ids", "queries", "k", "rng"))
    queries = queries[queries.any(axis=1)]
    index = HammingIndex(8 * codes.shape[1], engine=problem["engine"], threads=problem["threads"], factors=True)
    factors = factors_for(rng, len(ids), shape)
    half = len(ids) // 2
    index.add(codes[:half], ids[:half], factors=factors_for(rng, half, shape))
    index.add(codes[half:], ids[half:], factors=factors[half:])
    index.replace(codes[:half], ids[:half], factors=factors[:half])
    assert_array_equal(index.get_factors(ids), factors)
    allowed, kept = None, np.ones(len(ids), bool)
    if problem["filtered"] != "no" and len(ids):
        allowed = rng.choice(ids, rng.integers(0, len(ids) + 1))
        kept = np.isin(ids, allowed)
        allowed = np.isin(index.ids, allowed) if problem["filtered"] == "mask" else allowed
    distances = reference(codes[kept], factors[kept], queries)
    order = np.array([np.lexsort((ids[kept], row)) for row in distances], int).reshape(distances.shape)
    ordered = np.take_along_axis(distances, order, axis=1)
    found, found_ids = index.search(queries, k, allowed=allowed)
    assert_array_equal(found, ordered[:, :k])
    assert_array_equal(found_ids, ids[kept][order][:, :k])
    radius = float(rng.choice(distances.ravel())) if distances.size else -1.0
    offsets, found, found_ids = index.range_search(queries, radius, allowed=allowed)
    near = ordered <= radius
    assert_array_equal(np.diff(offsets), near.sum(axis=1))
    assert_array_equal(found, ordered[near])
    assert_array_equal(found_ids, ids[kept][order][near])


def test_estimates_beyond_the_largest_double_are_found_too() -> None:
    codes = np.array([[255] * 8, [0] * 8, [15] * 8], np.uint8)
    factors = np.array([[3e38, 0.0], [3e38, 1.0], [1.0, 0.5]], np.float32)
    queries = np.full((1, 64), 1e299)
    largest = np.finfo(np.float64).max
    for engine in ("scan", "numpy"):
        index = HammingIndex(64, engine=engine, factors=True)
        index.add(codes, factors=factors)
        distances, ids = index.search(queries, 3)
        assert_array_equal(distances, [[-largest, -0.5, largest]])
        assert_array_equal(ids, [[0, 2, 1]])
        assert_array_equal(index.range_search(queries, largest)[2], [0, 2, 1])
        assert_array_equal(index.range_search(queries, -largest)[2], [0])


def test_all_engines_agree_on_many_codes_and_factors_do_not_change_hamming_distances() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (5000, 32), dtype=np.uint8)
    codes[2500:] = codes[:2500]
    queries, factors = rng.standard_normal((21, 256)).astype(np.float32), factors_for(rng, 5000, "plain")
    plain = HammingIndex(256)
    plain.add(codes)
    expected = plain.search(codes[:9], 30)
    answers = []
    for engine in dict.fromkeys(ENGINES):
        index = HammingIndex(256, engine=engine, factors=True)
        index.add(codes, factors=factors)
        answers.append([*index.search(queries, 50), *index.range_search(queries, -60.0)])
        for one, other in zip(index.search(codes[:9], 30), expected, strict=True):
            assert_array_equal(one, other)
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            assert_array_equal(one, other)


def test_bounds_never_exclude_a_nearer_code_and_leave_few() -> None:
    """The bound in single precision is at least the exact one, whatever the factors, and not much more."""
    rng = np.random.default_rng(3)
    fill = bounds.entry(lambda *arguments: bounds._bounds(*arguments))
    for shape in ("plain", "ties", "wild"):
        factors = factors_for(rng, 2000, shape)
        with np.errstate(all="ignore"):
            inverse = np.float32(1) / factors[:, 0]
            ratio = factors[:, 1] * inverse
        step, total, table_step = 2.0**-38, 1 << 46, 1 << 36
        for limit in (-200.0, -3.0, 0.0, 5.0, np.inf):
            made = np.zeros(2000, np.uint16)
            fill(inverse, ratio, step, total, table_step, limit, made)
            s, o = factors.astype(np.float64).T
            with np.errstate(all="ignore"):
                exact = np.ceil((total + (limit + o) / (s * step)) / 2 / table_step)
            exact = np.where(np.isfinite(exact), np.clip(exact, 0, 65535), 65535)
            exact[s == 0] = 65535
            assert np.all(made >= exact)
            if shape == "plain" and np.isfinite(limit):
                assert np.all(made <= exact + 2 + 1e-4 * 65535)


def test_an_index_finds_what_the_evaluation_measures() -> None:
    """Recall of the float ranking through the index, with and without rescoring, is that of evaluate_embeddings."""
    views = joint_embeddings(700, 32)
    model = fh.FuseHash(n_bits=128, target="floats", random_state=0).fit({n: X[:350] for n, X in views.items()})
    new = {name: X[350:] for name, X in views.items()}
    for score in fh.evaluation.evaluate_embeddings(model, new, k=10, candidates=100):
        items, queries = new[score.item_view], new[score.query_view]
        index = HammingIndex(128, factors=True, vectors="float32", dim=32)
        codes, factors = model.encode(items, view=score.item_view, with_factors=True)
        index.add(codes, factors=factors, vectors=items)
        p, exact = model.project(queries, view=score.query_view), fh.evaluation.nearest_by_cosine(queries, items, k=10)
        assert fh.evaluation.recall_of(index.search(p, 10)[1], exact) == pytest.approx(score.recall, abs=2e-3)
        found = index.search(p, 10, rescore=queries, candidates=100)[1]
        assert fh.evaluation.recall_of(found, exact) == pytest.approx(score.rescored_recall, abs=2e-3)
        assert score.rescored_recall >= 0.985


def test_factors_in_a_file(tmp_path: Path) -> None:
    path, rng = tmp_path / "codes.db", np.random.default_rng(4)
    codes, factors = rng.integers(0, 256, (3000, 4), dtype=np.uint8), factors_for(rng, 3000, "plain")
    queries = rng.standard_normal((5, 32))

    def check(index: HammingIndex, ids: np.ndarray) -> None:
        memory = HammingIndex(32, factors=True)
        memory.add(codes[ids], ids, factors=factors[ids])
        assert_array_equal(index.get_factors(ids), factors[ids])
        for one, other in zip(index.search(queries, 70), memory.search(queries, 70), strict=True):
            assert_array_equal(one, other)

    with HammingIndex.open(path, 32, factors=True, warm=False) as writer:
        with HammingIndex.open(path, warm=False) as reader:
            assert reader.has_factors
            for start in range(0, 3000, 500):  # blocks merge
                part = np.arange(start, start + 500)
                writer.add(codes[part], part, factors=factors[part])
                check(reader, np.arange(start + 500))
            writer.remove(np.arange(100, 300))
            kept = np.setdiff1d(np.arange(3000), np.arange(100, 300))
            check(reader, kept)
            factors[40:60] = factors[50:70]  # the codes stay, only factors change
            writer.replace(codes[40:60], np.arange(40, 60), factors=factors[40:60])
            check(reader, kept)
            writer.compact()
            check(reader, kept)
        assert writer.stats()["factors"] is True
        assert writer.stats()["memory_bytes"] < 3000 * (4 + 8 + 8) * 1.05
    with HammingIndex.open(path, 32, factors=True, warm=False) as again:
        check(again, kept)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (3,)
        ((blob,),) = file.execute("SELECT codes FROM block WHERE number = (SELECT min(number) FROM block)").fetchall()
        file.execute("UPDATE block SET codes = ?", (blob[:-1] + bytes([blob[-1] ^ 1]),))  # one bit of a factor
    file.close()
    with pytest.raises(CorruptIndexError, match="is damaged"):
        HammingIndex.open(path, warm=False)


def test_files_without_factors_stay_as_they_are(tmp_path: Path) -> None:
    for name, options, version in [("plain", {}, 1), ("vectors", {"vectors": "int8", "dim": 4}, 5)]:
        path = tmp_path / name
        HammingIndex.open(path, 32, warm=False, **options).close()
        with sqlite3.connect(path) as file:
            assert file.execute("PRAGMA user_version").fetchone() == (version,)
        file.close()
        with pytest.raises(ParameterError, match=r"False: .* has none"):
            HammingIndex.open(path, factors=True, warm=False)
        with HammingIndex.open(path, warm=False) as index:
            assert not index.has_factors


def test_wrong_factors_change_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    codes, factors = rng.integers(0, 256, (6, 4), dtype=np.uint8), factors_for(rng, 6, "plain")
    plain = HammingIndex(32)
    plain.add(codes)
    with HammingIndex.open(tmp_path / "codes.db", 32, factors=True, warm=False) as index:
        index.add(codes, factors=factors)
        for bad, sentence in [
            (None, "pass two numbers for each code. Got none"),
            (factors[:5], r"floats of shape \(6, 2\), one row per code. Got float32 of shape \(5, 2\)"),
            (factors[:, :1], r"Got float32 of shape \(6, 1\)"),
            (np.ones((6, 2), int), "Got int64"),
            ([[1.0, 2.0], [3.0]], "Got rows of unequal length"),
            (np.where(np.arange(12).reshape(6, 2) == 3, np.nan, factors), "Got NaN, infinity or larger numbers"),
            (1e300 * factors.astype(float), "finite in single precision"),
            (-factors[:, :1] * [[1, 0]], "must not be negative"),
        ]:
            with pytest.raises(DataError, match=sentence):
                index.add(codes, factors=bad)
            with pytest.raises(DataError, match=sentence):
                index.replace(codes, np.arange(6), factors=bad)
        assert len(index) == 6
        assert_array_equal(index.get_factors(np.arange(6)), factors)
        with pytest.raises(DataError, match="Id 6 is not"):
            index.get_factors([6])
    for call in (lambda: plain.add(codes, factors=factors), lambda: plain.get_factors([0])):
        with pytest.raises(DataError, match="create it with factors=True"):
            call()
    with pytest.raises(ParameterError, match="'factors'"):
        HammingIndex(32, factors=2)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="'radius'"):
        plain.range_search(np.ones((1, 32)), -1.0)
