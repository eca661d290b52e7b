"""The file of vectors next to an index file: what is in it, what may go wrong with it, and what is left after that."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from full_disk import small_disk
from fusehash.errors import CorruptIndexError
from fusehash.search import HammingIndex, IndexFileError
from fusehash.search import file as index_file
from fusehash.search.rows import CodeRows, slot_bytes
from fusehash.search.vectors import KINDS, kernels
from hostile.scale import cases

DIM, N_BITS, HEADER = 6, 32, 64
EARLIER, WITHOUT_MARKS = (
    Path(__file__).parents[1] / "golden" / name for name in ("2026-11-with-references", "2026-11-vector-files")
)


def made(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, N_BITS // 8), dtype=np.uint8), rng.integers(1, 99, (n, DIM)).astype(np.float32)


def opened(path: Path, *, kind: str = "float32", **options: Any) -> HammingIndex:
    return HammingIndex.open(path, N_BITS, vectors=kind, dim=DIM, warm=False, **options)


def filled(path: Path, n: int = 30) -> np.ndarray:
    """The vectors of a new index, under the ids 0, 1, 2, ..."""
    codes, vectors = made(n)
    with opened(path) as index:
        index.add(codes, vectors=vectors)
    return vectors


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal")))


# -- what is in it --


@pytest.mark.parametrize("dim", [1, 3, 8, 33, 512])
@pytest.mark.parametrize("kind", KINDS)
def test_checksums_are_those_of_a_slow_reference(tmp_path: Path, kind: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    with HammingIndex.open(tmp_path / "a.db", 8, vectors=kind, dim=dim, warm=False) as index:
        index.add(np.zeros((5, 1), np.uint8), vectors=rng.standard_normal((5, dim)))
        stored = index.get_vectors(range(5))
        state: Any = index._store._current_vectors()[0].vectors  # type: ignore[attr-defined]
    data = (tmp_path / "a.db-vectors-1").read_bytes()
    assert len(data) == HEADER + 5 * state.stride
    keys = [int(key) for key in kernels.keys_of(-(-state.form.n_bytes // 4))]
    assert len(set(keys)) == len(keys)
    assert all(key % 2 for key in keys)
    for slot in range(5):
        record = data[HEADER + slot * state.stride :][: state.stride]
        vector = record[8 : 8 + state.form.n_bytes]
        numbers: Any = np.frombuffer(vector[state.form.head :], KINDS[kind])[:dim]
        if kind == "int8":
            scale, length = map(float, np.frombuffer(vector[:8], "<f4"))
            numbers = (state.center if scale >= 0 else 0) + scale * numbers.astype(float)
            assert length == pytest.approx(np.linalg.norm(numbers), rel=1e-6)
        assert_array_equal(np.asarray(numbers, stored.dtype), stored[slot])
        words = np.frombuffer(record[8 : 8 + 4 * len(keys)], "<u4").tolist()
        total = sum(word * key for word, key in zip(words, keys, strict=True))
        total += int(state.seed) + slot * 0x9E3779B97F4A7C15
        assert int.from_bytes(record[:8], "little") == total % 2**64


@settings(max_examples=40, deadline=None, database=None)
@given(bits=st.sets(st.integers(0, 8 * 32 - 1), min_size=1, max_size=6), place=st.integers(0, 3))
def test_every_change_of_a_record_is_noticed(bits: set[int], place: int) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 40), dtype=np.uint8)
    keys, seed, places = kernels.keys_of(8), np.uint64(7), np.arange(4)
    kernels.write_sums(rows.view(np.uint32), keys, seed, 0)
    assert kernels.first_damaged(rows.view(np.uint32), keys, seed, places) == -1
    for bit in bits:
        rows[place, 8 + bit // 8] ^= 1 << bit % 8
    assert kernels.first_damaged(rows.view(np.uint32), keys, seed, places) == place
    assert kernels.first_damaged(rows.view(np.uint32), keys, seed, np.delete(places, place)) == -1


def test_slots_take_memory_only_if_they_do_not_count_up() -> None:
    rows = CodeRows(4, has_slots=True)
    codes, _ = made(100)
    rows = rows.with_added(np.arange(100), np.hstack([codes, slot_bytes(np.arange(100))]))
    assert rows.nbytes == 400
    assert rows.has_ordered_slots
    moved = rows.with_codes(np.array([3]), np.hstack([codes[:1], slot_bytes(np.array([100]))]))
    assert moved.nbytes == 1200
    assert moved.slots_at(np.array([2, 3, 4])).tolist() == [2, 100, 4]
    assert rows.slots_at(np.array([2, 3, 4])).tolist() == [2, 3, 4]
    assert moved.without(np.array([0])).slots_at(np.array([1, 2])).tolist() == [2, 100]
    assert moved.with_slots().has_ordered_slots


STEPS = st.sampled_from(["add", "add at random", "remove", "replace", "replace codes", "compact", "reopen", "read"])


@settings(
    max_examples=cases(25, 600), deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 2**32)), max_size=25), unused=st.sampled_from([0, 1 << 24]))
def test_a_reader_gets_the_vectors_that_a_writer_has_stored(steps: Any, unused: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_UNUSED_BYTES", unused)  # written again when half is unused
        path, content = Path(folder) / "codes.db", dict[int, tuple[bytes, bytes]]()
        writer, reader = opened(path), opened(path)
        for step, seed in [*steps, ("read", 0)]:
            rng = np.random.default_rng(seed)
            count = int(rng.integers(1, 12))
            codes, vectors = made(count, seed)
            here = rng.permutation(sorted(content))[:count].astype(np.int64)
            if step.startswith("add"):
                random_ids = np.setdiff1d(rng.integers(-50, 500, count), list(content))
                ids = random_ids[rng.permutation(len(random_ids))] if step != "add" else None
                size = count if ids is None else len(ids)
                added = writer.add(codes[:size], ids, vectors[:size])
                for id, code, vector in zip(added.tolist(), codes, vectors, strict=False):
                    content[id] = code.tobytes(), vector.tobytes()
            elif step == "remove" and len(here):
                writer.remove(here)
                content = {id: value for id, value in content.items() if id not in here}
            elif step.startswith("replace") and len(here):
                size = len(here)
                writer.replace(codes[:size], here, vectors[:size] if step == "replace" else None)
                for id, code, vector in zip(here.tolist(), codes, vectors, strict=False):
                    content[id] = code.tobytes(), vector.tobytes() if step == "replace" else content[id][1]
            elif step == "compact":
                writer.compact()
                assert (Path(folder) / "codes.db").exists()
            elif step == "reopen":
                writer.close()
                writer = opened(path)
            elif step == "read":
                assert reader.ids.tolist() == sorted(content)
                kept = {int(i): v.tobytes() for i, v in zip(reader.ids, reader.get_vectors(reader.ids), strict=True)}
                assert kept == {id: vector for id, (_, vector) in content.items()}
                assert {i: reader.get([i])[0].tobytes() for i in content} == {i: c for i, (c, _) in content.items()}
                if content:
                    nearest = reader.search(codes[:1], 3, rescore=vectors[:1], candidates=1000)[1]
                    assert nearest.shape[1] == min(3, len(content))
            if unused == 0:
                slots = writer._store._current_vectors()[0].vectors.slots  # type: ignore[attr-defined]
                assert slots <= 2 * len(content) or step == "read"
        writer.close()
        reader.close()
        assert len(names(Path(folder))) <= 2


# -- what may go wrong with it --


def test_the_file_comes_with_the_first_vector_and_is_replaced_by_compaction(path: Path) -> None:
    codes, vectors = made(30)
    with opened(path) as index, opened(path) as reader:
        assert names(path.parent) == ["codes.db"]
        assert index.search(codes[:2], 3, rescore=vectors[:2])[1].shape == (2, 0)
        assert index.stats()["vector_file_bytes"] == 0
        index.add(codes, vectors=vectors)
        assert names(path.parent) == ["codes.db", "codes.db-vectors-1"]
        size = path.with_name("codes.db-vectors-1").stat().st_size
        assert index.stats()["vector_file_bytes"] == size == HEADER + 30 * 32
        index.compact()
        assert names(path.parent) == ["codes.db", "codes.db-vectors-1"]  # there was nothing to return
        index.remove(range(10))
        index.compact()
        assert names(path.parent) == ["codes.db", "codes.db-vectors-2"]
        assert index.stats()["vector_file_bytes"] == HEADER + 20 * 32
        assert_array_equal(reader.get_vectors(range(10, 30)), vectors[10:])
        assert index.stats()["memory_bytes"] == reader.stats()["memory_bytes"] == 20 * 4  # neither ids nor slots


def test_both_files_may_be_moved_and_opened_through_a_link(path: Path) -> None:
    vectors = filled(path)
    folder = path.parent / "elsewhere"
    folder.mkdir()
    path.rename(folder / "other.db")
    path.with_name("codes.db-vectors-1").rename(folder / "other.db-vectors-1")
    path.symlink_to(folder / "other.db")
    with opened(path) as index:
        assert_array_equal(index.get_vectors(range(30)), vectors)
        index.add(*made(1)[:1], vectors=vectors[:1])
    assert names(path.parent) == ["codes.db", "elsewhere"]


def test_a_missing_file_takes_one_sentence(path: Path) -> None:
    filled(path)
    file = path.with_name("codes.db-vectors-1")
    away = file.rename(path.with_name("away"))
    for _ in range(2):
        with pytest.raises(IndexFileError, match=r"The vector file .*codes\.db-vectors-1 is missing\. It belongs next"):
            opened(path)
    away.rename(file)
    with opened(path) as index:
        file.unlink()
        index.get_vectors([1])  # mapped before
        with pytest.raises(IndexFileError, match="is missing"):
            index.add(*made(1)[:1], vectors=made(1)[1])
        assert len(index) == 30


def test_a_file_that_is_missing_when_it_is_to_be_rewritten_takes_one_sentence(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    with opened(path) as index:
        index.remove([3])
        path.with_name("codes.db-vectors-1").unlink()
        monkeypatch.setattr("fusehash.search.file._UNUSED_BYTES", 0)
        for call in (index.compact, lambda: index.remove(np.arange(4, 30))):
            with pytest.raises(IndexFileError, match=r"The vector file .*-vectors-1 is missing\. It belongs next"):
                call()
        assert len(index) == 29
    assert names(path.parent) == ["codes.db"]


@pytest.mark.parametrize("size", [0, 10, HEADER, HEADER + 29 * 32, HEADER + 30 * 32 - 1])
def test_a_file_that_was_cut_off_takes_one_sentence(path: Path, size: int) -> None:
    filled(path)
    file = path.with_name("codes.db-vectors-1")
    with opened(path) as index:
        index.get_vectors([1])
        os.truncate(file, size)
        for call in (lambda: index.get_vectors([29]), lambda: index.add(*made(1)[:1], vectors=made(1)[1])):
            with pytest.raises(CorruptIndexError, match=rf"is cut off at {size} of 1024 bytes"):
                call()
    with pytest.raises(CorruptIndexError, match="is cut off"):
        opened(path)
    assert file.stat().st_size == size


def test_a_file_of_another_index_takes_one_sentence(path: Path) -> None:
    vectors, file = filled(path), path.with_name("codes.db-vectors-1")
    filled(path.with_name("b.db"))
    own = file.read_bytes()
    for content, words in [
        (path.with_name("b.db-vectors-1").read_bytes(), "it belongs to another index"),
        (b"x" * 2000, "it was not written by fusehash"),
        (bytes([*own[:20], own[20] ^ 1, *own[21:]]), "its header is damaged"),
    ]:
        file.write_bytes(content)
        with pytest.raises(CorruptIndexError, match=words):
            opened(path)
        assert file.read_bytes() == content
    file.unlink()
    file.symlink_to(path.with_name("b.db-vectors-1"))
    with pytest.raises(IndexFileError, match="must be a file of its own"):
        opened(path)
    file.unlink()
    file.write_bytes(own)
    with opened(path) as index:
        assert_array_equal(index.get_vectors(range(30)), vectors)


def test_the_file_of_a_copy_that_went_its_own_way_takes_one_sentence(path: Path) -> None:
    vectors, copies = filled(path), [path.parent / name for name in ("a", "b")]
    for copy in copies:
        copy.mkdir()
        for file in (path, path.with_name("codes.db-vectors-1")):
            shutil.copy(file, copy)
        with opened(copy / path.name) as index:
            index.add(*made(1)[:1], vectors=vectors[:1])  # equal numbers in both
    name = "codes.db-vectors-1"
    files = [(copy / name).read_bytes() for copy in copies]
    assert [len(file) for file in files] == [HEADER + 31 * 32] * 2
    with opened(copies[0] / path.name) as index:
        (copies[0] / name).write_bytes(files[1])
        with pytest.raises(CorruptIndexError, match="it belongs to another index, or to another state of this one"):
            index.add(*made(1)[:1], vectors=vectors[:1])
        with pytest.raises(CorruptIndexError, match="it belongs to another index, or to another state of this one"):
            opened(copies[0] / path.name)
        (copies[0] / name).write_bytes(files[0])
        assert_array_equal(index.get_vectors([30]), vectors[:1])
    for own, other in ((0, 1), (1, 0)):
        (copies[own] / name).write_bytes(files[own])
        with opened(copies[own] / path.name) as index:
            assert_array_equal(index.get_vectors(range(31)), [*vectors, vectors[0]])
            index.remove([5])
            index.compact()
        assert other != own


def test_a_reader_that_lags_behind_finds_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks change with every call; a reader that has read an earlier one reads again."""
    vectors = filled(path)
    with opened(path) as writer, opened(path) as reader:
        store: Any = reader._store
        current, changes = store._current_content, 3

        def lagging() -> Any:
            nonlocal changes
            content = current()
            while changes:  # after the content was read, before the file is opened
                changes -= 1
                writer.add(*made(1)[:1], vectors=vectors[:1])
            return content

        writer.add(*made(1)[:1], vectors=vectors[:1])
        monkeypatch.setattr(store, "_current_content", lagging)
        assert_array_equal(reader.get_vectors(range(34)), [*vectors, *[vectors[0]] * 4])


def test_a_call_that_was_interrupted_leaves_a_mark_that_does_not_matter(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = filled(path)
    with opened(path) as index:
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(index_file.blocks, "write_edit", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    index.add(*made(1)[:1], vectors=vectors[:1])
            with opened(path) as other:
                assert_array_equal(other.get_vectors(range(30)), vectors)
        index.add(*made(1)[:1], vectors=vectors[:1])
    with opened(path) as index:
        assert_array_equal(index.get_vectors([30]), vectors[:1])


def test_records_in_other_places_are_noticed(path: Path) -> None:
    filled(path)
    file = path.with_name("codes.db-vectors-1")
    data = file.read_bytes()
    file.write_bytes(data[:HEADER] + data[HEADER + 32 : HEADER + 64] + data[HEADER : HEADER + 32] + data[HEADER + 64 :])
    with opened(path) as index, pytest.raises(CorruptIndexError, match="the vector of id 0 is damaged"):
        index.get_vectors([5, 0])


def test_slots_beyond_the_file_are_refused(path: Path) -> None:
    filled(path)
    with opened(path) as index:
        state: Any = index._store._current_vectors()[0].vectors  # type: ignore[attr-defined]
    with sqlite3.connect(path) as database:
        index_file.replace(state, slots=29).write(database)
    database.close()
    with pytest.raises(CorruptIndexError, match="block 1 is damaged"):
        opened(path)


def test_what_an_interrupted_call_has_left_is_cut_off(path: Path) -> None:
    vectors, file = filled(path), path.with_name("codes.db-vectors-1")
    whole = file.read_bytes()
    with file.open("ab") as left:
        left.write(b"half a record" * 1000)
    path.with_name("codes.db-vectors-2").touch()  # killed while creating it
    with opened(path) as index:
        assert_array_equal(index.get_vectors(range(30)), vectors)
        index.add(*made(1)[:1], vectors=vectors[:1])
        assert file.stat().st_size == len(whole) + 32
        index.remove([3])
        index.compact()
        assert names(path.parent) == ["codes.db", "codes.db-vectors-2"]


def test_files_of_others_are_left_alone(path: Path) -> None:
    path.with_name("codes.db-vectors-1").write_bytes(b"mine")
    path.with_name("codes.db-vectors-3").mkdir()
    vectors = filled(path)
    with opened(path) as index:
        index.remove([0])
        index.compact()
        index.remove([1])
        index.compact()
        assert_array_equal(index.get_vectors(range(2, 30)), vectors[2:])
    assert names(path.parent) == ["codes.db", "codes.db-vectors-1", "codes.db-vectors-3", "codes.db-vectors-5"]
    assert path.with_name("codes.db-vectors-1").read_bytes() == b"mine"


def test_a_full_disk_leaves_nothing_half_written(path: Path) -> None:
    codes, vectors = made(8000)
    with opened(path) as index:
        index.add(codes[:4000], vectors=vectors[:4000])
        index.remove(range(10))
        before, file = names(path.parent), path.with_name("codes.db-vectors-1")
        size = file.stat().st_size
        for change in (
            lambda: index.add(codes[4000:], vectors=vectors[4000:]),
            lambda: index.replace(codes[10:4000], range(10, 4000), vectors[:3990]),
            index.compact,
        ):
            with small_disk(size - 4096), pytest.raises(IndexFileError, match="could not be written: File too large"):
                change()
            assert names(path.parent) == before
            assert file.stat().st_size == size
        with pytest.MonkeyPatch.context() as patch:  # full when SQLite writes
            patch.setattr(index_file.blocks, "write_all", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.compact()
        assert names(path.parent) == before
        assert_array_equal(index.get_vectors(range(10, 4000)), vectors[10:4000])
        index.add(codes[:1], vectors=vectors[:1])
    with opened(path) as index:
        assert_array_equal(index.get_vectors([3999, 4000]), vectors[[3999, 0]])


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_a_read_only_folder_is_searched(path: Path) -> None:
    vectors = filled(path)
    path.parent.chmod(0o555)
    try:
        with opened(path) as index:
            assert_array_equal(index.get_vectors(range(30)), vectors)
    finally:
        path.parent.chmod(0o755)


# -- indexes of earlier versions --


@pytest.mark.parametrize("change", ["remove", "replace", "compact", "add"])
def test_the_first_change_of_an_index_of_format_4_keeps_its_vectors(path: Path, change: str) -> None:
    """They stay as they are, without a center, and so are those that come later."""
    expected = np.load(WITHOUT_MARKS / "vectors.npz")
    for end in ("", "-vectors-1"):
        shutil.copy(WITHOUT_MARKS / f"vectors.fhi{end}", path.with_name(path.name + end))
    ids, kept, factors = expected["ids"], expected["vectors"], np.ones((1, 2), np.float32)
    new = np.array([[1.0, 2, 3, 4, 5, 127]])
    with HammingIndex.open(path, warm=False, vectors="int8", dim=6) as index, HammingIndex.open(path) as reader:
        assert_array_equal(reader.get_vectors(ids[::-1]), kept[::-1])
        if change == "remove":
            index.remove(ids[:1])
            ids, kept = ids[1:], kept[1:]
        elif change == "replace":
            index.replace(expected["codes"][:1], ids[:1], vectors=new, factors=factors)
            kept = np.vstack([new, kept[1:]])
        elif change == "add":
            ids = np.append(ids, index.add(expected["codes"][:1], vectors=new, factors=factors))
            kept = np.vstack([kept, new])
        else:
            index.compact()
        for each in (index, reader):
            assert_array_equal(each.get_vectors(ids), kept)
            assert each.get_vectors(ids).dtype == np.int8
    with HammingIndex.open(path, warm=False) as index:
        assert_array_equal(index.get_vectors(ids), kept)
        index.add(expected["codes"][:1], vectors=new, factors=factors)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (5,)
    file.close()


@pytest.mark.parametrize("change", ["remove", "replace", "compact", "add"])
def test_the_first_change_of_an_earlier_index_moves_its_vectors(path: Path, change: str) -> None:
    expected = np.load(EARLIER / "vectors.npz")
    shutil.copy(EARLIER / "vectors.fhi", path)
    ids, kept = expected["ids"], expected["vectors"]
    with HammingIndex.open(path, warm=False) as reader, HammingIndex.open(path, warm=False) as index:
        assert_array_equal(reader.get_vectors(ids[::-1]), kept[::-1])
        assert names(path.parent) == ["codes.db"]
        factors = np.ones((1, 2), np.float32)
        if change == "remove":
            index.remove(ids[:1])
            ids, kept = ids[1:], kept[1:]
        elif change == "replace":
            index.replace(expected["codes"][:1], ids[:1], factors=factors)
        elif change == "add":
            index.add(expected["codes"][:1], vectors=np.ones((1, 6)), factors=factors)
        else:
            index.compact()
        assert names(path.parent) == ["codes.db", "codes.db-vectors-1"]
        for each in (index, reader):
            assert_array_equal(each.get_vectors(ids), kept)
            assert_array_equal(each.get_factors(ids[1:]), expected["factors"][len(expected["ids"]) - len(ids) + 1 :])
            assert len(each) == len(ids) + (change == "add")
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (5,)
        assert file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'vector'").fetchone() == (0,)
    file.close()


def test_a_damaged_vector_of_an_earlier_index_stays_one(path: Path) -> None:
    expected = np.load(EARLIER / "vectors.npz")
    shutil.copy(EARLIER / "vectors.fhi", path)
    ids = expected["ids"]
    with sqlite3.connect(path) as other:
        other.execute("UPDATE vector SET data = zeroblob(6) WHERE id = ?", (int(ids[3]),))
        other.execute("DELETE FROM vector WHERE id = ?", (int(ids[9]),))
    other.close()
    with HammingIndex.open(path, warm=False) as index:
        for change in (lambda: None, lambda: index.remove(ids[:1])):
            change()
            for id in ids[[3, 9]]:
                with pytest.raises(CorruptIndexError, match=f"the vector of id {id} is (missing or )?damaged"):
                    index.get_vectors([ids[2], id])
            with pytest.raises(CorruptIndexError, match=r"the vector of id \d+ is"):
                index.search(expected["scores"], 5, rescore=expected["queries"], candidates=400)
            assert_array_equal(index.get_vectors(ids[10:]), expected["vectors"][10:])


def test_an_interrupted_move_leaves_the_earlier_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.load(EARLIER / "vectors.npz")
    shutil.copy(EARLIER / "vectors.fhi", path)
    with HammingIndex.open(path, warm=False) as index:
        with monkeypatch.context() as patch:
            patch.setattr(index_file.blocks, "write_edit", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.remove(expected["ids"][:1])
        assert names(path.parent) == ["codes.db"]
        assert_array_equal(index.get_vectors(expected["ids"]), expected["vectors"])
        index.remove(expected["ids"][:1])
        assert_array_equal(index.get_vectors(expected["ids"][1:]), expected["vectors"][1:])
