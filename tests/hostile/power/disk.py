"""What may be on a disk after a loss of power, computed from recorded calls.

Of a file, everything up to its last fsync is there. Of what was written since, anything may be: nothing, all of it, or
some of its sectors. Of a folder, all entries up to its last fsync are there, and of the later changes (create, rename,
link, unlink) those up to some moment. Nobody is told by an fsync of a file that its name is in the folder.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

from recorder import Call

SECTOR = 512
Survival = Literal["everything", "nothing", "something"]  # of what was not flushed


@dataclass(eq=False)
class File:
    """Content as of the last fsync, and what was done since: (offset, data), or (size, None) for a truncation."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def flush(self) -> None:
        self.durable, self.pending = self.content("everything"), []

    def content(self, survival: Survival, rng: random.Random | None = None) -> bytearray:
        content = bytearray(self.durable)
        if survival == "nothing":
            return content
        share = rng.choice((0.1, 0.5, 0.9)) if rng else 1.0
        torn = rng.random() < 0.5 if rng else False
        for position, data in self.pending:
            if data is None:
                if rng is None or rng.random() < share:
                    del content[position:]
                    content.extend(bytes(position - len(content)))
                continue
            for start, part in _sectors(position, data) if torn else [(position, data)]:
                if rng is None or rng.random() < share:
                    content.extend(bytes(max(0, start - len(content))))
                    content[start : start + len(part)] = part
        return content


@dataclass(eq=False)
class Folder:
    """Entries as of the last fsync, as they are now, and the changes since: names with what they name (None: gone)."""

    durable: dict[str, Node] = field(default_factory=dict)
    entries: dict[str, Node] = field(default_factory=dict)
    pending: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, changes: dict[str, Node | None]) -> None:
        _apply(self.entries, changes)
        self.pending.append(changes)

    def flush(self) -> None:
        self.durable, self.pending = dict(self.entries), []

    def surviving(self, survival: Survival, rng: random.Random | None = None) -> dict[str, Node]:
        count = {"everything": len(self.pending), "nothing": 0, "something": 0}[survival]
        if rng is not None:
            count = rng.choice((0, len(self.pending), rng.randint(0, len(self.pending))))
        entries = dict(self.durable)
        for changes in self.pending[:count]:
            _apply(entries, changes)
        return entries


Node = File | Folder


class Disk:
    """The part of a disk below one folder, after the calls that were played."""

    def __init__(self) -> None:
        self._root = Folder()
        self._nodes: dict[int, Node] = {0: self._root}

    def play(self, call: Call) -> None:
        match call:
            case ("create", path, inode):
                folder, name = self._at(path)
                if name not in folder.entries:
                    self._nodes[inode] = File()  # an inode number may come again when its file is gone
                    folder.change({name: self._nodes[inode]})
            case ("mkdir", path, inode):
                folder, name = self._at(path)
                self._nodes[inode] = Folder()
                folder.change({name: self._nodes[inode]})
            case ("write", inode, offset, data):
                self._file(inode).pending.append((offset, data))
            case ("truncate", inode, size):
                self._file(inode).pending.append((size, None))
            case ("extend", inode, size):
                file = self._file(inode)
                if len(file.content("everything")) < size:
                    file.pending.append((size, None))
            case ("sync", inode):
                self._nodes[inode].flush()
            case ("sync all",):
                for node in self._nodes.values():
                    node.flush()
            case ("rename", old, new):
                (folder, name), (target, new_name) = self._at(old), self._at(new)
                if folder is not target:
                    raise NotImplementedError(f"{old} was moved to another folder")
                folder.change({name: None, new_name: folder.entries[name]})
            case ("link", old, new):
                (folder, name), (target, new_name) = self._at(old), self._at(new)
                target.change({new_name: folder.entries[name]})
            case ("unlink", path):
                folder, name = self._at(path)
                if name in folder.entries:  # files that need not survive are not recorded
                    folder.change({name: None})
            case _:
                raise NotImplementedError(call[0])

    def lose_power(self, target: Path, survival: Survival, rng: random.Random) -> None:
        """Write what may be left into a new folder."""
        chance, contents = rng if survival == "something" else None, dict[File, bytearray]()

        def write(folder: Folder, path: Path) -> None:
            path.mkdir()
            for name, node in folder.surviving(survival, chance).items():
                if isinstance(node, Folder):
                    write(node, path / name)
                else:
                    if node not in contents:
                        contents[node] = node.content(survival, chance)
                    (path / name).write_bytes(contents[node])

        write(self._root, target)

    def _at(self, path: str) -> tuple[Folder, str]:
        """The folder of a path, and the name in it."""
        folder, (*parents, name) = self._root, Path(path).parts
        for parent in parents:
            node = folder.entries[parent]
            assert isinstance(node, Folder)
            folder = node
        return folder, name

    def _file(self, inode: int) -> File:
        node = self._nodes[inode]
        assert isinstance(node, File)
        return node


def _apply(entries: dict[str, Node], changes: dict[str, Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            del entries[name]
        else:
            entries[name] = node


def _sectors(position: int, data: bytes) -> list[tuple[int, bytes]]:
    """A write cut where the sectors of the disk are."""
    first = SECTOR - position % SECTOR
    cuts = [0, *range(first, len(data), SECTOR), len(data)]
    return [(position + begin, data[begin:end]) for begin, end in pairwise(cuts)]
