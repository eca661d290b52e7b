"""Vectors next to codes: rescoring equals brute force over what is stored; nothing is lost or mixed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fusehash.errors import CorruptIndexError, DataError, ParameterError
from fusehash.search import HammingIndex

DIM, N_BITS = 24, 32


def made(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, N_BITS // 8), dtype=np.uint8), rng.standard_normal((n, DIM))


def brute(stored: np.ndarray, ids: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    stored, queries = stored.astype(np.float64), queries.astype(np.float64)
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(stored, axis=1)
    distances = (1 - queries @ stored.T / lengths).astype(np.float32)
    order = np.lexsort((np.broadcast_to(ids, distances.shape), distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, axis=1), ids[order]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = []

    def build(kind: str = "int8") -> HammingIndex:
        if request.param == "memory":
            return HammingIndex(N_BITS, vectors=kind, dim=DIM)
        opened.append(HammingIndex.open(tmp_path / f"{kind}.db", N_BITS, vectors=kind, dim=DIM, warm=False))
        return opened[-1]

    yield build
    for index in opened:
        index.close()


@pytest.mark.parametrize("kind", ["int8", "float16", "float32"])
def test_rescoring_equals_brute_force(make: Any, kind: str) -> None:
    index, (codes, vectors) = make(kind), made(900)
    vectors[1] *= 1e9  # lengths do not matter
    vectors[2] = vectors[3]
    ids = np.random.default_rng(1).permutation(5000)[:900] - 2500
    index.add(codes[:600], ids[:600], vectors[:600].astype(np.float32))
    index.add(codes[600:], ids[600:], vectors[600:])
    index.remove(ids[50:90])
    index.replace(codes[:20], ids[100:120], vectors[:20])
    vectors[100:120] = vectors[:20]
    index.replace(codes[5:9], ids[200:204])  # their vectors stay
    index.compact()
    kept = np.ones(900, bool)
    kept[50:90] = False
    stored = index.get_vectors(ids[kept])
    units = vectors[kept] / np.linalg.norm(vectors[kept], axis=1, keepdims=True)
    largest = np.abs(units).max(axis=1, keepdims=True)
    scaled = stored / (largest if kind == "int8" else np.abs(stored).max(axis=1, keepdims=True).astype(np.float64))
    tolerance = {"int8": 0.5 / 127 + 1e-6, "float16": 1e-3, "float32": 1e-6}[kind]
    assert_allclose(scaled, units / largest, atol=tolerance)
    queries, query_codes = made(7, seed=2)[1], codes[:7]
    for asked in (query_codes, made(7, seed=3)[1] @ np.ones((DIM, N_BITS)) + np.arange(N_BITS) - 15.5):
        distances, found = index.search(asked, 10, rescore=queries, candidates=10_000)
        expected, expected_ids = brute(stored, ids[kept], queries, 10)
        assert distances.dtype == np.float32
        assert_allclose(distances, expected, atol=2e-7)
        assert np.mean(found == expected_ids) > 0.97  # the last bit of a distance may order two items
        few = index.search(asked, 3, rescore=queries, candidates=40)[1]
        among = index.search(asked, 40)[1]
        for row, candidates, query in zip(few, among, queries, strict=True):
            assert_array_equal(row, brute(index.get_vectors(candidates), candidates, query[None], 3)[1][0])
    allowed = ids[300:340]
    assert np.isin(index.search(query_codes, 10, rescore=queries, allowed=allowed)[1], allowed).all()
    assert index.search(query_codes[:0], 3, rescore=queries[:0])[1].shape == (0, 3)
    assert index.stats()["vectors"] == kind


def around(center: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """What is stored of a vector, by the formula, one number after the other."""
    unit = vector / np.linalg.norm(vector)
    kept = [u - c for u, c in zip(unit, center, strict=True)]
    is_away = max(map(abs, unit)) < max(map(abs, kept))
    kept, base = (list(unit), 0 * center) if is_away else (kept, center)
    scale = float(np.float32(max(map(abs, kept)) / 127))
    return np.array([c + scale * round(x / scale) for c, x in zip(base, kept, strict=True)], np.float32)


def test_int8_vectors_are_rounded_around_the_mean_of_the_first(make: Any) -> None:
    """Also those that come later, however far away they are: the center stays until the index is empty."""
    index, (codes, vectors) = make(), made(200)
    vectors[:150] += 3.0
    vectors[150:] -= 2.0
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    center = (units[:80].sum(axis=0) / 90).astype(np.float32).astype(float)
    expected = np.array([around(center, vector) for vector in vectors])
    index.add(codes[:80], vectors=vectors[:80])
    index.add(codes[80:150], vectors=vectors[80:150])
    index.add(codes[150:], vectors=vectors[150:])
    assert_allclose(index.get_vectors(np.arange(200)), expected, atol=1e-7)
    index.replace(codes[:9], np.arange(9), vectors[120:129])
    index.remove([100])
    index.compact()
    expected[:9] = expected[120:129]
    stored = np.delete(expected, 100, axis=0)
    assert_allclose(index.get_vectors(index.ids), stored, atol=1e-7)
    queries = made(5, seed=3)[1] + 1.0
    distances, _ = index.search(codes[:5], 10, rescore=queries, candidates=200)
    assert_allclose(distances, brute(stored, index.ids, queries, 10)[0], atol=2e-7)
    errors = np.abs(expected - np.vstack([units[120:129], units[9:]]))
    plain = np.abs(units).max(axis=1) / 254
    assert errors[:150].max(axis=1).mean() < 0.75 * plain[:150].mean()
    assert np.all(errors[150:].max(axis=1) <= 1.001 * plain[150:])  # not worse than without a center
    index.remove(index.ids)
    index.add(codes[150:], vectors=vectors[150:])
    center = (units[150:].sum(axis=0) / 60).astype(np.float32).astype(float)
    assert_allclose(index.get_vectors(index.ids), [around(center, vector) for vector in vectors[150:]], atol=1e-7)


def test_single_vectors_and_equal_ones_are_exact(make: Any) -> None:
    index, (codes, vectors) = make(), made(3)
    assert index.get_vectors(np.empty(0, np.int64)).shape == (0, DIM)
    for code, vector in zip(codes, vectors, strict=True):
        index.add(code[None], vectors=np.array([vector, vector])[:1])
    for scale in (1e-30, 1.0, 1e30):
        index.add(codes[:1], vectors=scale * vectors[:1])
    stored = index.get_vectors(np.arange(6))
    assert_array_equal(stored[3:], stored[:1].repeat(3, axis=0))
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    assert_allclose(stored[:3], units, atol=np.abs(units).max() / 254 * 1.01)
    assert index.search(codes[:1], 6, rescore=vectors[:1])[0].max() < 2.1


def test_vectors_stay_in_the_file(tmp_path: Path) -> None:
    path, (codes, vectors) = tmp_path / "codes.db", made(300)
    with HammingIndex.open(path, N_BITS, vectors="int8", dim=DIM, warm=False) as writer:
        writer.add(codes, vectors=vectors)
        with HammingIndex.open(path, warm=False) as reader:
            assert reader.stats()["dim"] == DIM
            assert reader.stats()["memory_bytes"] < 300 * (8 + N_BITS // 8) * 1.2
            before = reader.search(codes[:4], 5, rescore=vectors[:4])
            assert_array_equal(before[1][:, 0], np.arange(4))
            writer.remove([0])
            writer.replace(codes[1:2], [1], -vectors[1:2])
            after = reader.search(codes[:4], 5, rescore=vectors[:4])[1]
            assert 0 not in after
            assert after[1, 0] != 1
            with pytest.raises(DataError, match="Id 0 is not"):
                reader.get_vectors([1, 0])
    for wrong in ({"vectors": "float32", "dim": DIM}, {"vectors": "int8", "dim": DIM + 1}):
        with pytest.raises(ParameterError, match=f"'int8' with dim={DIM}"):
            HammingIndex.open(path, warm=False, **wrong)


def test_a_reader_gets_vectors_of_the_codes_it_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, (codes, vectors) = tmp_path / "codes.db", made(200)
    with HammingIndex.open(path, N_BITS, vectors="float32", dim=DIM, warm=False) as writer:
        writer.add(codes, vectors=vectors)
        with HammingIndex.open(path, warm=False) as reader:
            expected = reader.search(codes[:20], 200, rescore=vectors[:20])
            store: Any = reader._store
            nearest, changes = store.engine.search, [writer.compact, lambda: writer.remove(range(50)), writer.compact]
            changes.append(lambda: writer.replace(codes[:9], range(9), -vectors[:9]))

            def interrupted(*arguments: Any) -> Any:
                answer = nearest(*arguments)
                if changes:
                    changes.pop()()  # after the codes were searched, before the vectors are read
                return answer

            monkeypatch.setattr(store.engine, "search", interrupted)
            first = reader.search(codes[:20], 200, rescore=vectors[:20])
            for one, other in zip(first, expected, strict=True):
                assert_array_equal(one, other)
            while changes:
                before = reader.get_vectors(reader.ids)
                ids, found = reader.ids, reader.search(codes[:20], 200, rescore=vectors[:20])
                assert_allclose(found[0], brute(before, ids, vectors[:20], 200)[0], atol=2e-7)
            assert reader.search(codes[:20], 200, rescore=vectors[:20])[1].shape == (20, 150)


def test_a_damaged_vector_is_reported(tmp_path: Path) -> None:
    path, (codes, vectors) = tmp_path / "codes.db", made(50)
    with HammingIndex.open(path, N_BITS, vectors="int8", dim=DIM, warm=False) as index:
        index.add(codes, vectors=vectors)
    file = tmp_path / "codes.db-vectors-1"
    data = bytearray(file.read_bytes())
    stride = (len(data) - 64) // 50
    data[64 + 3 * stride + 20] ^= 4
    file.write_bytes(data)
    for change in (lambda index: None, HammingIndex.compact):  # which does not make it whole
        with HammingIndex.open(path, warm=False) as index:
            change(index)
            assert index.get_vectors([4]).shape == (1, DIM)
            for k in (1, 50):
                with pytest.raises(CorruptIndexError, match="the vector of id 3 is damaged"):
                    index.search(codes[:1], k, rescore=vectors[:1], candidates=50)
            with pytest.raises(CorruptIndexError, match="the vector of id 3 is damaged"):
                index.get_vectors([48, 3])
            assert index.search(codes[3:4], 1)[1].tolist() == [[3]]
            if change is not HammingIndex.compact:
                index.remove([0])
    with HammingIndex.open(path, warm=False) as index:
        index.replace(codes[3:4], [3], vectors[3:4])
        assert index.search(codes[:1], 50, rescore=vectors[:1])[1].shape == (1, 49)


def test_indexes_without_vectors_have_the_old_format(tmp_path: Path) -> None:
    versions = {}
    for name, options in {"old": {}, "factors": {"factors": True}, "new": {"vectors": "int8", "dim": 4}}.items():
        HammingIndex.open(tmp_path / name, 64, warm=False, **options).close()
        with sqlite3.connect(tmp_path / name) as file:
            versions[name] = file.execute("PRAGMA user_version").fetchone()[0]
        file.close()
    assert versions == {"old": 1, "factors": 3, "new": 5}  # an earlier fusehash refuses the last


def test_wrong_calls_change_nothing(make: Any) -> None:
    index, (codes, vectors) = make(), made(10)
    index.add(codes, vectors=vectors)
    before = index.get_vectors(np.arange(10))
    bad = vectors.copy()
    bad[4, 2] = np.nan
    plain = HammingIndex(N_BITS)
    plain.add(codes)
    for call, sentence in [
        (lambda: index.add(codes), "pass one of 24 numbers for each code"),
        (lambda: index.add(codes, vectors=vectors[:9]), "one vector for each of 10 codes. Got 9"),
        (lambda: index.add(codes, vectors=vectors[:, :9]), r"floats of shape \(n, 24\)"),
        (lambda: index.add(codes, vectors=codes), "Got uint8"),
        (lambda: index.add(codes, vectors=vectors.astype(object)), "Got object"),
        (lambda: index.add(codes, vectors=vectors * 1j), "Got complex128"),
        (lambda: index.add(codes, vectors=[[1.0, 2.0], [3.0]]), "Got rows of unequal length"),
        (lambda: index.search(codes[:2], 3, rescore=[[1.0, 2.0], [3.0]]), "Got rows of unequal length"),
        (lambda: index.search(codes[:1], 3, rescore=np.zeros((1, DIM))), "Row 0 is, which has no direction"),
        (lambda: index.search(codes[:1], 3, rescore=np.full((1, DIM), np.inf)), "Row 0 has NaN, infinity"),
        (lambda: index.search(codes[:1], 3, rescore=vectors[:1, :9]), r"floats of shape \(n, 24\)"),
        (lambda: index.add(codes, vectors=bad), "Row 4 has NaN"),
        (lambda: index.add(codes, vectors=0 * vectors), "no direction"),
        (lambda: index.replace(codes, np.arange(10), bad), "Row 4 has NaN"),
        (lambda: index.search(codes, 3, rescore=vectors[:3]), "one vector for each of 10 queries. Got 3"),
        (lambda: plain.search(codes, 3, rescore=vectors), "create it with vectors='int8' and dim"),
        (lambda: plain.add(codes, vectors=vectors), "create it with vectors='int8' and dim"),
        (lambda: plain.get_vectors([1]), "create it with vectors='int8' and dim"),
    ]:
        with pytest.raises(DataError, match=sentence):
            call()
    for call in (
        lambda: index.search(codes, 3, candidates=9),
        lambda: index.search(codes, 3, rescore=vectors, candidates=0),
        lambda: HammingIndex(8, vectors="int4", dim=4),
        lambda: HammingIndex(8, vectors="int8"),
        lambda: HammingIndex(8, dim=4),
    ):
        with pytest.raises(ParameterError):
            call()
    assert len(index) == 10
    assert_array_equal(index.get_vectors(np.arange(10)), before)
