"""Index files that are foreign, damaged, removed, on a full disk or in a read-only folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from full_disk import small_disk
from fusehash.errors import CorruptIndexError
from fusehash.search import IndexFileError
from fusehash.sqlite import log_size
from hostile.scale import cases
from index_files import by_id, content, opened, random_codes

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
    other.execute("PRAGMA user_version=6")
    other.close()
    refused(path, "has format 6; this fusehash reads format 5")


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
def test_no_damaged_byte_goes_unnoticed(path: Path, with_log: bool) -> None:
    interrupted(path)
    whole = content_of_copy(path)
    if not with_log:
        opened(path).close()
    original, rng = path.read_bytes(), np.random.default_rng(3)
    spots = [*range(100), *rng.integers(0, len(original), cases(100, 3000)).tolist()]
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


def test_a_full_disk_raises_and_loses_nothing(path: Path) -> None:
    index = opened(path, 64)
    index.add(random_codes(1000))
    before = by_id(index)
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
        with pytest.raises(IndexFileError, match="removed or replaced while it was open"):
            call()
    path.with_name("copy.db").replace(path)
    with pytest.raises(IndexFileError, match="removed or replaced while it was open"):
        index.add(random_codes(1))
    index.close()


READ_ONLY = """
import os, sys
import numpy as np
from fusehash.search import HammingIndex, IndexFileError

path, expected = sys.argv[1], int(sys.argv[2])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)

def fails(call, words):
    try:
        call()
    except IndexFileError as error:
        return words in str(error)

codes = np.zeros((1, 8), np.uint8)
if expected < 0:  # SQLite cannot read a log if it cannot write an index of the log next to it
    assert fails(lambda: HammingIndex.open(path, warm=False), path)
else:
    index = HammingIndex.open(path, warm=False)
    assert len(index) == len(index) == expected
    for change in (lambda: index.add(codes), lambda: index.remove([1]), index.compact):
        assert fails(change, "read-only")
    assert fails(lambda: HammingIndex.open(path + ".new", 64, warm=False), "could not be created")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("with_log", [False, True])
def test_a_read_only_folder_opens_and_refuses_to_write(with_log: bool, through_link: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "folder"
        folder.mkdir()
        path, link = folder / "codes.db", Path(name) / "link.db"
        if with_log:
            interrupted(path)
            for file in folder.iterdir():
                file.chmod(0o444)
        else:
            with opened(path, 64) as index:
                index.add(random_codes(2000))
        link.symlink_to(path)
        Path(name).chmod(0o555)
        folder.chmod(0o555)
        arguments = [str(link if through_link else path), "-1" if with_log else "2000"]
        run = subprocess.run([sys.executable, "-c", READ_ONLY, *arguments], capture_output=True, text=True, check=False)
        Path(name).chmod(0o755)
        folder.chmod(0o755)
        assert run.returncode == 0, run.stderr


# -- what lies beside a file --


def test_a_new_index_is_not_made_beside_the_log_of_another_one(path: Path) -> None:
    interrupted(path)
    log, moved = Path(f"{path}-wal"), path.with_name("moved.db")
    path.rename(moved)
    before = log.read_bytes()
    with pytest.raises(IndexFileError, match=r"codes.db-wal is the log of a file that was moved or removed"):
        opened(path, 64)
    assert not path.exists()
    assert log.read_bytes() == before
    moved.rename(path)  # nothing is lost
    assert len(content(path)) == 4000
    path.unlink()
    log.write_bytes(b"")  # holds nothing
    with opened(path, 64) as index:
        assert len(index) == 0
    path.unlink()
    Path(f"{path}-journal").write_bytes(b"x" * 600)
    with pytest.raises(IndexFileError, match=r"codes.db-journal is the log"):
        opened(path, 64)


def test_a_journal_beside_an_index_cannot_make_sqlite_delete_other_files(path: Path) -> None:
    """A rollback journal may name a file that SQLite deletes once the journal has been played back."""
    with opened(path, 64) as index:
        index.add(random_codes(5))
    victim = path.with_name("victim.txt")
    victim.write_text("not yours")
    magic, name = bytes([0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7]), os.fsencode(victim)
    header = magic + struct.pack(">5I", 0, 1, path.stat().st_size // 4096, 512, 4096)
    end = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    Path(f"{path}-journal").write_bytes(header.ljust(512, b"\0") + end)
    refused(path, "fusehash does not write .*codes.db-journal")
    assert victim.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes")
@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_log_that_is_a_link_is_refused(path: Path, end: str) -> None:
    opened(path, 64).close()
    target = path.with_name("target")
    target.write_bytes(b"not yours")
    Path(f"{path}{end}").symlink_to(target)
    refused(path, "is a link, a folder, a pipe or a device")
    assert target.read_bytes() == b"not yours"


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes")
def test_a_pipe_or_a_folder_in_place_of_an_index_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(IndexFileError, match="must be a regular file"):
        opened(path, 64)
    with pytest.raises(IndexFileError, match="regular file"):
        opened(path.parent, 64)


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_an_index_may_be_a_link_and_its_log_is_beside_the_file_itself(path: Path) -> None:
    interrupted(path)
    link = path.with_name("folder") / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    assert log_size(link) == log_size(path) > 0
    with opened(link) as index:
        assert len(index) == 4000
        index.add(random_codes(1))
        assert index.stats()["log_bytes"] > 0
    assert len(content(path)) == 4001
