"""Multi-index hashing: exact after any changes, without building its tables again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.errors import ModelFileError
from fusehash.search import HammingIndex
from fusehash.search.engines.multi_index import MultiIndex, kept, segments
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


def same_answers(index: HammingIndex, seed: int = 0) -> None:
    """Results equal those of the scan over the same codes."""
    plain = HammingIndex(index.n_bits)
    plain.add(index.get(index.ids), index.ids)
    queries = np.concatenate([clustered(np.random.default_rng(seed), 30, 8), index.get(index.ids[:5])])
    for result, expected in zip(index.search(queries, 9), plain.search(queries, 9), strict=True):
        assert_array_equal(result, expected)
    for result, expected in zip(index.range_search(queries, 6), plain.range_search(queries, 6), strict=True):
        assert_array_equal(result, expected)


def opened(path: Path, engine: str = "multi-index") -> HammingIndex:
    return HammingIndex.open(path, 64, engine=engine, warm=False)


def test_tables_are_kept_next_to_the_file_and_follow_what_happened_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    with opened(tmp_path / "codes.db") as index:
        for _ in range(6):  # several blocks
            index.add(clustered(rng, 17_000, 8))
        index.search(index.get([0]), 1)
        index.replace(clustered(rng, 3, 8), [5, 6, 7])
    with opened(tmp_path / "codes.db", "scan") as index:  # an engine that keeps no tables
        index.add(clustered(rng, 10, 8))
        index.remove([1, 2, 50_000])
        index.replace(clustered(rng, 2, 8), [3, 20_000])
    with monkeypatch.context() as patch:
        patch.setattr(segments, "LOOSE", 10**9)
        patch.setattr(segments, "fill", lambda *_: pytest.fail("built again"))
        with opened(tmp_path / "codes.db") as index:
            same_answers(index)
            assert index.stats()["segments"] == [102_000]
    before = (tmp_path / "codes.db-tables").stat()
    with opened(tmp_path / "codes.db") as index:
        same_answers(index)
    changed = (tmp_path / "codes.db-tables").stat()
    with opened(tmp_path / "codes.db") as index:
        same_answers(index)
    assert (tmp_path / "codes.db-tables").stat().st_mtime_ns == changed.st_mtime_ns >= before.st_mtime_ns


def test_damaged_or_foreign_tables_are_built_again(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "codes.db"
    tables = tmp_path / "codes.db-tables"
    with opened(path) as index:
        index.add(clustered(rng, 2000, 8))
        index.search(index.get([0]), 1)
    good = tables.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    for content in (b"", good[:5000], bytes(damaged), b"x" * 100):
        tables.write_bytes(content)
        with opened(path) as index:
            same_answers(index)
    tables.unlink()
    tables.mkdir()  # cannot be written either
    with opened(path) as index:
        same_answers(index)
    tables.rmdir()
    tables.write_bytes(good)
    path.rename(tmp_path / "other.db")
    with opened(path) as index:  # the tables of another index
        index.add(clustered(rng, 500, 8))
    with opened(path) as index:
        same_answers(index)


def forged(part: segments.Segment, **changes: Any) -> segments.Segment:
    return dataclasses.replace(part, **changes)


def test_tables_that_lead_out_of_their_arrays_are_refused(tmp_path: Path) -> None:
    rows = CodeRows.numbered(clustered(np.random.default_rng(0), 300, 8))
    part, none, path = segments.Segment.of(rows), np.empty(0, np.int64), tmp_path / "codes.db"
    kept.write(path, (part,), none, none.reshape(-1, 2))
    assert_array_equal(kept.read(path, 64)[0][0].entries, part.entries)
    far, back = part.entries.copy(), part.starts.copy()
    far[1, 5] |= np.uint64(0xFFFFFF)
    back[0, 3] = 200
    for changes in (
        {"entries": far}, {"starts": back}, {"width": 40}, {"n_tables": 2}, {"ids": np.arange(5)}, {"width": 1.0},
        {"stale": np.array([3, 1])}, {"first_id": 2**63 - 5}, {"entries": part.entries[:, :9].copy()},
        {"starts": part.starts.astype(np.int64)},
    ):  # fmt: skip
        kept.write(path, (forged(part, **changes),), none, none.reshape(-1, 2))
        with pytest.raises(ModelFileError):
            kept.read(path, 64)
    with pytest.raises(ModelFileError):
        kept.read(path, 128)
