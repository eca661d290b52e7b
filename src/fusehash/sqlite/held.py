"""The handles of this process on its SQLite files: one per file, however many connections use it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from fusehash.forks import new_lock
from fusehash.sqlite.connections import keep_forever
from fusehash.sqlite.kinds import Connection, FileKind
from fusehash.trust import open_descriptor

Identity = tuple[int, int]  # device and inode


@dataclass(eq=False)
class HeldFile:
    """The handle of this process on a file, as long as a `Database` uses the file."""

    identity: Identity
    process: int = field(default_factory=os.getpid)  # the one whose connections SQLite counts; no other may connect
    descriptors: list[int] = field(default_factory=list)  # plain numbers, which Python does not close when it ends
    is_inherited: bool = False  # a connection of a parent process is open on it
    users: int = 0

    def read(self, size: int) -> tuple[bytes, int]:
        """The first bytes of the file, and its length."""
        with opening:
            os.lseek(self.descriptors[0], 0, os.SEEK_SET)
            return os.read(self.descriptors[0], size), os.fstat(self.descriptors[0]).st_size


@dataclass(eq=False)
class FileUse:
    """What one `Database` has open on a file. The connection always ends before the handle."""

    file: HeldFile
    connection: Connection | None = None

    def disconnect(self) -> None:
        if self.connection is not None and self.file.process == os.getpid():
            self.connection.close()
            self.connection = None

    def leave_to_parent(self) -> None:
        """Neither use nor close a connection that was in use when this process was forked."""
        if self.connection is not None:
            keep_forever(self.connection)
        self.file.is_inherited = True
        self.file.users += 1  # forever
        self.connection = None

    def end(self) -> None:
        if self.connection is not None and self.file.process != os.getpid():
            self.leave_to_parent()
        self.disconnect()
        with opening:
            self.file.users -= 1
            if not self.file.users:
                del held_files[self.file.identity]
                while self.file.descriptors:
                    os.close(self.file.descriptors.pop())


opening = new_lock()  # held while a file is created, opened or closed
held_files: dict[Identity, HeldFile] = {}


def use_file(path: Path, kind: FileKind) -> FileUse:
    """Hold a file; the caller holds `opening`."""
    held = None
    with contextlib.suppress(OSError, ValueError):  # opening it says what is wrong
        held = held_files.get(identity_of(path.stat() if kind.may_be_link else path.lstat()))
    if held is None:
        name, error = kind.name(path), kind.unavailable
        descriptor = open_descriptor(path, name, error, follow_links=kind.may_be_link)
        identity = identity_of(os.fstat(descriptor))
        held = held_files.setdefault(identity, HeldFile(identity))
        held.descriptors.append(descriptor)
    held.users += 1
    return FileUse(held)


def identity_of(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
