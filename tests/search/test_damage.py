"""Index files that are foreign, damaged, removed, on a full disk or in a read-only folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash.errors import CorruptIndexError
from fusehash.search import HammingIndex, IndexFileError


def random_codes(n: int, n_bits: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def opened(path: Path, n_bits: int | None = None, **options: Any) -> HammingIndex:
    return HammingIndex.open(path, n_bits, warm=False, **options)


def content(path: Path) -> dict[int, bytes]:
    with opened(path) as index:
        return {int(id): code.tobytes() for ids, codes in index for id, code in zip(ids, codes, strict=True)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codes.db"


# -- damaged and foreign files --


def refused(path: Path, match: str = "index") -> None:
    before, files = path.read_bytes(), sorted(path.parent.iterdir())
    with pytest.raises(CorruptIndexError, match=match) as error:
        opened(path, 64)
    assert str(path) in str(error.value)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == files


@pytest.mark.parametrize("foreign", [b"", b"x", b"\x93NUMPY\x01\x00" * 100, b"SQLite format 3\0", b"\0" * 8192])
def test_a_foreign_file_is_refused(path: Path, foreign: bytes) -> None:
    path.write_bytes(foreign)
    refused(path)


def test_another_database_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE block (number, ids, codes)")
    other.commit()
    other.close()
    refused(path, "was not written by fusehash")


def test_an_index_with_other_tables_is_refused(path: Path) -> None:
    opened(path, 64).close()
    other = sqlite3.connect(path)
    other.execute("CREATE TRIGGER more AFTER INSERT ON block BEGIN DELETE FROM block; END")
    other.commit()
    other.close()
    refused(path, "does not hold the tables of an index")


def test_a_later_format_is_refused(path: Path) -> None:
    opened(path, 64).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version=2")
    other.close()
    refused(path, "has format 2; this fusehash reads format 1")


def test_a_truncated_file_is_refused(path: Path) -> None:
    with opened(path, 64) as index:
        index.add(random_codes(5000))
    whole = path.read_bytes()
    for size in [*range(0, 4096, 512), *range(4096, len(whole), 4096), len(whole) - 1]:
        path.write_bytes(whole[:size])
        refused(path)


def interrupted(path: Path) -> None:
    """Leave a log next to the file, as a killed process does."""
    with opened(path, 64) as index:
        index.add(random_codes(2000))
    index = opened(path)
    index.add(random_codes(2000, seed=1))
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{path}{end}.copy")
    index.close()
    for end in ("", "-wal"):
        Path(f"{path}{end}.copy").rename(f"{path}{end}")


@pytest.mark.parametrize("with_log", [False, True])
def test_no_damaged_byte_goes_unnoticed(path: Path, with_log: bool, stress: bool) -> None:
    interrupted(path)
    whole = content_of_copy(path)
    if not with_log:
        opened(path).close()
    original, rng = path.read_bytes(), np.random.default_rng(3)
    spots = [*range(100), *rng.integers(0, len(original), 3000 if stress else 100).tolist()]
    noticed = 0
    for spot in spots:
        damaged = bytearray(original)
        damaged[spot] ^= 1 << int(rng.integers(8))
        target = path.with_name("damaged.db")
        target.write_bytes(damaged)
        if with_log:
            shutil.copy(f"{path}-wal", f"{target}-wal")
        try:
            found = content_of_copy(target)
        except CorruptIndexError:
            noticed += 1
            with pytest.raises(CorruptIndexError, match=r"damaged\.db"):
                opened(target)
            assert target.read_bytes() == bytes(damaged)
        else:
            assert found == whole
    assert noticed > (10 if with_log else len(spots) / 3)  # the log overlays most of the file


def content_of_copy(path: Path) -> dict[int, bytes]:
    """What a copy of an index (and its log) holds; the original is left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copy(path, copy)
        if Path(f"{path}-wal").exists():
            shutil.copy(f"{path}-wal", f"{copy}-wal")
        try:
            return content(copy)
        except CorruptIndexError as error:
            raise CorruptIndexError(str(error).replace(str(copy), str(path))) from error


# -- full disk, read-only folder, removed file --


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file may grow beyond ``size``."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_raises_and_loses_nothing(path: Path) -> None:
    index = opened(path, 64)
    index.add(random_codes(1000))
    before = {int(id): code.tobytes() for ids, codes in index for id, code in zip(ids, codes, strict=True)}
    for change in (
        lambda: index.add(random_codes(200_000)),
        lambda: index.replace(random_codes(1000, seed=9), range(1000)),
        lambda: index.compact(),
    ):
        with small_disk(8192), pytest.raises(IndexFileError, match=r"could not be (written|compacted)"):
            change()
        assert len(index) == 1000
        index.search(random_codes(1), 3)
    with small_disk(8192), pytest.raises(IndexFileError, match="could not be created"):
        opened(path.with_name("new.db"), 64)
    assert not path.with_name("new.db").exists()
    assert content_of_copy(path) == before
    index.add(random_codes(1))
    index.close()
    assert len(content(path)) == 1001


def test_a_full_database_raises(path: Path) -> None:
    with opened(path, 64) as index:
        index.add(random_codes(10))
        index._store._database.connection().execute("PRAGMA max_page_count=20")
        with pytest.raises(IndexFileError, match="full"):
            index.add(random_codes(100_000))
        assert len(index) == 10
    assert len(content(path)) == 10


def test_a_removed_or_replaced_file_raises(path: Path) -> None:
    index = opened(path, 64)
    index.add(random_codes(10))
    shutil.copy(path, path.with_name("copy.db"))
    path.unlink()
    for call in (lambda: index.add(random_codes(1)), lambda: index.search(random_codes(1), 1), lambda: len(index)):
        with pytest.raises(IndexFileError, match="cannot be reached"):
            call()
    path.with_name("copy.db").replace(path)
    with pytest.raises(IndexFileError, match="removed or replaced while it was open"):
        index.add(random_codes(1))
    index.close()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
@pytest.mark.parametrize("with_log", [False, True])
def test_a_read_only_folder_opens_and_refuses_to_write(with_log: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "codes.db"
        if with_log:
            interrupted(path)
            for file in folder.iterdir():
                file.chmod(0o444)
        else:
            with opened(path, 64) as index:
                index.add(random_codes(2000))
        folder.chmod(0o555)
        pid = os.fork()
        if pid == 0:
            os._exit(as_nobody(path, with_log))
        status = os.waitpid(pid, 0)[1]
        folder.chmod(0o755)
        assert os.waitstatus_to_exitcode(status) == 0


def as_nobody(path: Path, with_log: bool) -> int:
    """In a child process without rights: 0 if everything is as it should be."""
    try:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            index = opened(path)
        except IndexFileError as error:
            # SQLite cannot read a log if it cannot write an index of the log next to it.
            return 0 if with_log and str(path) in str(error) else 3
        if len(index) != (4000 if with_log else 2000):
            return 4
        for change in (lambda: index.add(random_codes(1)), lambda: index.remove([1]), index.compact):
            with pytest.raises(IndexFileError, match="read-only"):
                change()
        with pytest.raises(IndexFileError, match="could not be created"):
            opened(path.with_name("new.db"), 64)
        return 0
    except BaseException as error:
        os.write(2, repr(error).encode())
        return 1
