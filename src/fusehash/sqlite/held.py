"""The handles of this process on its SQLite files: one per file, however many connections use it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from fusehash.forks import new_lock
from fusehash.sqlite.kinds import FileKind
from fusehash.trust import open_file

Identity = tuple[int, int]  # device and inode


@dataclass(eq=False)
class HeldFile:
    """The handle of this process on a file, as long as a `Database` uses the file."""

    identity: Identity
    process: int = field(default_factory=os.getpid)  # the one whose connections SQLite counts; no other may connect
    handles: list[BinaryIO] = field(default_factory=list)
    inherited: list[Any] = field(default_factory=list)  # connections of a parent process, which are never closed here
    users: int = 0

    def read(self, size: int) -> tuple[bytes, int]:
        """The first bytes of the file, and its length."""
        with opening:
            self.handles[0].seek(0)
            return self.handles[0].read(size), os.fstat(self.handles[0].fileno()).st_size


opening = new_lock()  # held while a file is created, opened or closed
held_files: dict[Identity, HeldFile] = {}


def hold_file(path: Path, kind: FileKind) -> HeldFile:
    """The handle on a file; the caller holds `opening`."""
    held = None
    with contextlib.suppress(OSError, ValueError):  # opening it says what is wrong
        held = held_files.get(identity_of(path.stat() if kind.may_be_link else path.lstat()))
    if held is None:
        file = open_file(path, kind.name(path), kind.unavailable, follow_links=kind.may_be_link)
        identity = identity_of(os.fstat(file.fileno()))
        held = held_files.setdefault(identity, HeldFile(identity))
        held.handles.append(file)
    held.users += 1
    return held


def release_file(held: HeldFile) -> None:
    with opening:
        held.users -= 1
        if not held.users:
            del held_files[held.identity]
            for file in held.handles:
                file.close()


def identity_of(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
