"""An index file: what it keeps, and how processes and threads share it."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.errors import DataError, ParameterError
from fusehash.search import HammingIndex, IndexFileError, blocks
from hostile.scale import cases
from index_files import by_id, content, opened, random_codes


def test_what_was_added_is_there_after_reopening(path: Path) -> None:
    codes = random_codes(100_000)
    with opened(path, 64) as index:
        index.add(codes)
    assert sorted(file.name for file in path.parent.iterdir()) == ["codes.db"]
    with opened(path) as index:
        assert_array_equal(index.get(np.arange(100_000)), codes)
        assert index.stats()["blocks"] == 7
        assert index.stats()["file_bytes"] < 1.05 * 100_000 * 16


@pytest.mark.parametrize("n_bits", [8, 1032, 4096])
def test_by_id_every_width_are_there_after_reopening(path: Path, n_bits: int) -> None:
    codes = random_codes(600, n_bits)
    with opened(path, n_bits) as index:
        index.add(codes)
    with opened(path) as index:
        assert index.n_bits == n_bits
        assert_array_equal(index.get(np.arange(600)), codes)


def test_the_log_of_many_changes_is_merged_while_the_index_stays_open(path: Path) -> None:
    log, codes = path.with_name("codes.db-wal"), random_codes(10_000, 1024)
    with opened(path, 1024) as index, opened(path) as reader:
        lengths = []
        for _ in range(30):
            index.add(codes)
            lengths.append(log.stat().st_size)
        assert max(lengths) < 12e6 < path.stat().st_size
        assert len(reader) == 300_000
        assert_array_equal(reader.get(reader.ids[-10_000:]), codes)


def test_codes_added_one_by_one_stay_in_few_blocks(path: Path) -> None:
    codes = random_codes(300)
    with opened(path, 64) as index:
        for i in np.random.default_rng(1).permutation(300):
            index.add(codes[i : i + 1], [i])
        assert index.stats()["blocks"] <= 9
        assert index.stats()["revision"] == 300
    with opened(path) as index:
        assert_array_equal(index.get(np.arange(300)), codes)


def test_removed_ids_are_not_assigned_again(path: Path) -> None:
    with opened(path, 64) as index:
        assert index.add(random_codes(3)).tolist() == [0, 1, 2]
        index.remove([2])
    with opened(path) as index:
        assert index.add(random_codes(1)).tolist() == [3]
        index.add(random_codes(1), [2**63 - 1])
        with pytest.raises(DataError, match="no higher ids left"):
            index.add(random_codes(1))
        assert len(index) == 4


def test_a_call_that_raises_changes_nothing(path: Path) -> None:
    codes = random_codes(10)
    with opened(path, 64) as index:
        index.add(codes)
        before = path.read_bytes(), index.stats()["revision"]
        for wrong in (
            lambda: index.add(codes, range(5, 15)),
            lambda: index.add(codes, [20] * 10),
            lambda: index.add(codes[:, :4]),
            lambda: index.add(codes.astype(np.int64)),
            lambda: index.remove([3, 10]),
            lambda: index.replace(codes[:2], [3, 10]),
        ):
            with pytest.raises(DataError):
                wrong()
        assert (path.read_bytes(), index.stats()["revision"]) == before
        assert_array_equal(index.get(np.arange(10)), codes)


def test_width_is_checked(path: Path) -> None:
    opened(path, 32).close()
    with pytest.raises(ParameterError, match="must be 32, the width of"):
        opened(path, 64)
    with pytest.raises(ParameterError, match="a positive multiple of 8, at most 4096"):
        opened(path.with_name("other.db"), 0)
    with pytest.raises(IndexFileError, match="There is no index at"):
        opened(path.with_name("other.db"))
    assert not path.with_name("other.db").exists()


class Model:
    """A dictionary that goes through the same calls as an index."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "codes.db"
        self.writer = opened(self.path, 16)
        self.reader = opened(self.path)
        self.expected: dict[int, bytes] = {}

    def step(self, kind: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        ids = np.unique(rng.integers(0, 60, rng.integers(1, 20)))
        codes = rng.integers(0, 256, (len(ids), 2), dtype=np.uint8)
        here = np.array([id in self.expected for id in ids.tolist()])
        if kind == "add":
            self.writer.add(codes[~here], ids[~here])
            self.expected |= {int(id): code.tobytes() for id, code in zip(ids[~here], codes[~here], strict=True)}
        elif kind == "remove":
            self.writer.remove(ids[here])
            self.expected = {id: code for id, code in self.expected.items() if id not in ids[here]}
        elif kind == "replace":
            self.writer.replace(codes[here], ids[here])
            self.expected |= {int(id): code.tobytes() for id, code in zip(ids[here], codes[here], strict=True)}
        elif kind == "compact":
            self.writer.compact()
        elif kind == "swap":
            self.writer, self.reader = self.reader, self.writer
        elif kind == "reopen":
            self.writer.close()
            self.writer = opened(self.path)

    def check(self, index: HammingIndex) -> None:
        assert by_id(index) == self.expected
        assert index.ids.tolist() == sorted(self.expected)


STEPS = st.sampled_from(
    ["add", "add", "add", "remove", "remove", "replace", "compact", "swap", "reopen", "check reader"]
)


@settings(
    max_examples=cases(25, 600), deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 2**32)), max_size=25), room=st.sampled_from([64, 1 << 18]))
def test_a_reader_sees_what_a_writer_has_done(steps: Any, room: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK_BYTES", room)  # blocks of 6 codes, or of all
        patch.setattr(blocks, "_REMOVALS", 3)
        model = Model(Path(folder))
        for kind, seed in steps:
            model.step(kind, seed)
            model.check(model.writer)
            if kind == "check reader":
                model.check(model.reader)
        model.check(model.reader)
        model.writer.close()
        model.reader.close()
        model.check(opened(model.path))


def test_a_reader_catches_up_without_reading_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path, 64) as writer, opened(path) as reader:
        writer.add(random_codes(100_000))
        assert len(reader) == 100_000
        monkeypatch.setattr(blocks, "load", None)
        writer.add(random_codes(10))
        writer.remove([5, 70_000])
        writer.replace(random_codes(1, seed=5), [6])
        assert len(reader) == 100_008
        assert 5 not in reader
        assert_array_equal(reader.get([6]), random_codes(1, seed=5))


def test_a_second_writer_waits_and_then_raises(path: Path) -> None:
    opened(path, 64).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with opened(path, timeout=0.2) as index:
        assert len(index) == 0  # readers are not held up
        with pytest.raises(IndexFileError, match="another process has been writing it for"):
            index.add(random_codes(1))
        other.execute("ROLLBACK")
        index.add(random_codes(1))
    other.close()
    assert len(content(path)) == 1


def test_threads_may_share_an_index(path: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                index.add(random_codes(3, seed=number), [3000 * number + 3 * i + j for j in range(3)])
                index.search(random_codes(2), 5, threads=1)
        except BaseException as error:
            errors.append(error)

    with opened(path, 64) as index:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(index) == 240


def test_a_closed_index_raises(path: Path) -> None:
    index = opened(path, 64)
    index.close()
    index.close()
    with pytest.raises(IndexFileError, match="is closed"):
        index.search(random_codes(1), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"codes\xff.db")
    with opened(path, 64) as index:
        index.add(random_codes(3))
    with opened(path) as index:
        assert len(index) == 3
