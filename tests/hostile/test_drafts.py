"""Files are written under a hidden name, then renamed: nothing of it stays, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusehash.files import remove_stale_drafts, replacing, write_atomically

WRITER = """
import sys
from pathlib import Path
from fusehash.files import replacing

with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writer_of(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is writing `path`; it finishes when its input is closed."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        yield writer


def test_the_draft_of_a_killed_writer_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with writer_of(path) as writer:
        writer.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1  # the draft
    (tmp_path / ".model.0123456789ab.draft-wal").touch()
    (tmp_path / ".model.0123456789ab.draft").touch()
    (tmp_path / ".model.ba9876543210.draft").mkdir()
    write_atomically(path, lambda file: file.write(b"whole"))
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    assert path.read_bytes() == b"whole"


def test_the_draft_of_a_living_writer_stays(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with writer_of(path) as writer:
        write_atomically(path, lambda file: file.write(b"meanwhile"))
        assert path.read_bytes() == b"meanwhile"
        writer.communicate()
    assert path.read_bytes() == b"half"
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_files_of_other_names_are_no_drafts(tmp_path: Path) -> None:
    names = [".model.draft", "model.0123456789ab.draft", ".other.0123456789ab.draft", ".model.0123456789ab.draft.txt"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".model.0123456789ab.draft").symlink_to(tmp_path / "model.0123456789ab.draft")
    remove_stale_drafts(tmp_path / "model")
    assert set(names) <= {file.name for file in tmp_path.iterdir()}


def test_the_umask_of_the_process_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to all threads: while it is 0, another thread would make files that everybody can write."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
        write_atomically(tmp_path / "model", lambda file: file.write(b"whole"))
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640


def test_content_and_folder_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before it gets its name, and the folder after."""
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace

    def record_sync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def record_rename(draft: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(draft, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    with replacing(tmp_path / "model") as file:
        file.write(b"whole")
    assert steps == ["file", "rename", "folder"]
