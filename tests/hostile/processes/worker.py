"""Processes that open, change and read an index or a collection as they are told: `python worker.py SOCKET KIND`.

The first process imports everything and then forks fresh workers on demand, which is faster than starting Python. Every
process connects to the socket by itself, says its pid, and from then on answers JSON lines. Keys and values are
strings: ids and codes of an index, keys and texts of a collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fusehash.collection.items import CollectionError, CorruptCollectionError
from fusehash.errors import CorruptIndexError, FusehashError
from fusehash.search import HammingIndex
from fusehash.search.file import IndexFileError

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "collection")]
import fake_encoders  # noqa: E402

fake_encoders.install()
from fusehash.collection import Collection, NewItem  # noqa: E402

PATIENCE = 300.0  # seconds to wait for a writer, however busy the computer is
Content = dict[str, str]


class OpenIndex:
    example: ClassVar = {"1": "00" * 8, "2": "ff" * 8}

    def __init__(self, folder: str, create: bool) -> None:
        if create:
            Path(folder).mkdir(exist_ok=True)
        width = 64 if create else None
        self._index = HammingIndex.open(Path(folder) / "codes.fhi", width, warm=False, timeout=PATIENCE)

    def add(self, entries: Content) -> None:
        self._index.add(codes_of(entries), [int(key) for key in entries])

    def remove(self, entries: Content) -> None:
        self._index.remove([int(key) for key in entries])

    def replace(self, entries: Content) -> None:
        self._index.replace(codes_of(entries), [int(key) for key in entries])

    def compact(self, entries: Content) -> None:
        self._index.compact()

    def read(self) -> Content:
        return {
            str(id): code.tobytes().hex() for ids, codes in self._index for id, code in zip(ids, codes, strict=True)
        }

    def search(self, value: str) -> list[str]:
        """The keys of all codes at distance 0."""
        _, _, ids = self._index.range_search(codes_of({"": value}), 0, threads=1)
        return [str(id) for id in ids]

    def close(self) -> None:
        self._index.close()


class OpenCollection:
    example: ClassVar = {"a": "a red house", "b": "a blue lake", "c": "green hills"}

    def __init__(self, folder: str, create: bool) -> None:
        if create and not Path(folder).exists():
            Collection.create(folder, n_bits=16, image_encoder="classical", text_encoder="tfidf").close()
        self._collection = Collection.open(folder, timeout=PATIENCE)

    def add(self, entries: Content) -> None:
        self._collection.add(items_of(entries))

    def remove(self, entries: Content) -> None:
        ids = {item.key: item.id for item in self._collection.items(0, 10_000)}
        self._collection.remove([ids[key] for key in entries])

    def replace(self, entries: Content) -> None:
        self._collection.update(items_of(entries))

    def compact(self, entries: Content) -> None:
        with contextlib.suppress(ValueError):  # there may be too few items to learn from
            self._collection.reindex()

    def read(self) -> Content:
        return {item.key: item.text or "" for item in self._collection.items(0, 10_000)}

    def search(self, value: str) -> list[str]:
        """The keys of all items that have this text."""
        if not self._collection.stats()["trained"]:
            return [item.key for item in self._collection.items(0, 10_000) if item.text == value]
        return [hit.item.key for hit in self._collection.search(value, k=10_000) if hit.item.text == value]

    def close(self) -> None:
        self._collection.close()


def codes_of(entries: Content) -> Any:
    return np.frombuffer(bytes.fromhex("".join(entries.values())), np.uint8).reshape(-1, 8)


def items_of(entries: Content) -> list[NewItem]:
    return [NewItem(key, text=text) for key, text in entries.items()]


KINDS: dict[str, Any] = {"index": OpenIndex, "collection": OpenCollection}


class Worker:
    """Serves one connection; returns when the other side has closed it."""

    def __init__(self, address: str, kind: str) -> None:
        self._address, self._kind = address, KINDS[kind]
        self._handles: dict[str, Any] = {}
        self._connect()

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        self._requests, self._answers = connection.makefile("r"), connection.makefile("w")
        connection.close()
        self._say(pid=os.getpid())

    def _say(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def serve(self) -> None:
        while line := self._requests.readline():
            request = json.loads(line)
            command = request.pop("do")
            if command == "exit":
                return
            if command == "fork":
                pid = os.fork()
                if pid == 0:
                    self._requests.close()
                    self._answers.close()
                    self._connect()
                else:
                    self._say(done=pid)
                continue
            try:
                self._say(done=getattr(self, command)(**request))
            except (IndexFileError, CollectionError) as error:
                self._say(error="unavailable", sentence=str(error))
            except (CorruptIndexError, CorruptCollectionError) as error:
                self._say(error="corrupt", sentence=str(error))
            except FusehashError as error:
                self._say(error="refused", sentence=str(error))
            except Exception as error:
                self._say(error="foreign", sentence=repr(error))

    def warm_up(self, folder: str) -> None:
        """Compile here what every child would compile."""
        other = self._kind(folder, True)
        other.add(self._kind.example)
        for value in self._kind.example.values():
            other.search(value)
        other.close()

    def open(self, handle: str, folder: str, create: bool = False) -> None:
        self._handles[handle] = self._kind(folder, create)

    def close(self, handle: str) -> None:
        self._handles.pop(handle).close()

    def close_all(self) -> None:
        while self._handles:
            self._handles.popitem()[1].close()

    def read(self, handle: str) -> Content:
        content: Content = self._handles[handle].read()
        return content

    def search(self, handle: str, value: str) -> list[str]:
        keys: list[str] = self._handles[handle].search(value)
        return keys

    def change(self, handle: str, calls: list[tuple[str, Content]]) -> int:
        """Carry out calls one after the other, saying so after each."""
        for name, entries in calls:
            getattr(self._handles[handle], name)(entries)
            self._say(acknowledged=name)
        return len(calls)

    def watch(self, folder: str, times: int) -> list[Content]:
        """What opening, reading and closing shows, many times."""
        contents = []
        for _ in range(times):
            other = self._kind(folder, False)
            contents.append(other.read())
            other.close()
        return contents


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(sys.argv[1], sys.argv[2]).serve()
