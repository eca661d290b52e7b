"""The codes of a collection on a server, where searches find them; items.db stays the truth about them.

    engine.json     the address of the server, without its password, and what the server held when it was last written:
                    the name of the index there, how often that had changed, the count and digest of its codes
    mirror-*.db     the same codes as the server has, so that a change sends only what has changed

Codes of different models have different indexes on the server, so that nobody searches for a query of one among codes
of another. The one before is kept for those who still search it, and removed when the next one comes.

A change is committed to items.db first and then sent. A process that dies in between leaves the server behind; who
opens the collection next, or writes to it, sends what is missing. If the server does not hold what engine.json says,
because somebody else has changed it, the next change or `reindex` reads all that it holds and sets it right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.collection.database import CollectionError, CorruptCollectionError
from fusehash.collection.items import Progress
from fusehash.collection.store import State
from fusehash.errors import FusehashError
from fusehash.files import write_atomically
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.search.servers import address as server

FILE = "engine.json"
_BATCH = 100_000  # codes sent by one call


@dataclass(frozen=True)
class Record:
    """The content of engine.json."""

    engine: str
    index: str = ""  # what is added to the name in the address
    before: str = ""  # the same of the index that was searched before
    changes: int = -1  # how often the index on the server has changed
    count: int = 0
    digest: int = 0


class Mirror:
    """The server of one collection. Whoever writes holds the lock of the collection's writers."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder, self._engine = folder, engine
        self.shown = server.without_secrets(engine)
        self._open: dict[str, HammingIndex] = {}  # those of former models too: somebody may be searching them
        self._gone: list[HammingIndex] = []  # removed from the server, but a thread may still hold them

    def record(self) -> Record:
        """What the server held when it was last written; nothing, if that was another server."""
        found = read(self._folder)
        return found if found is not None and found.engine == self.shown else Record(self.shown)

    def fits(self, state: State) -> bool:
        """Whether what was last sent is what is in force."""
        record = self.record()
        return (record.index, record.count, record.digest) == (_name(state), state.codes, state.digest)

    def index(self, state: State) -> HammingIndex:
        """The index on the server that holds the codes in force, or why there is none."""
        record = self.record()
        if not self.fits(state):
            raise CollectionError(
                f"The server at {self.shown} does not hold the codes of the collection {self._folder} yet; a writer "
                "sends them now, or was cut off, and a reindex does it."
            )
        index, changes = self._reached(record.index, state.n_bits)
        if changes != record.changes:
            raise CollectionError(
                f"The server at {self.shown} does not hold what the collection {self._folder} has sent it; somebody "
                "else has changed it, and a reindex sets it right."
            )
        return index

    def send(self, state: State, ids: Ids, codes: Codes, progress: Progress | None = None) -> None:
        """Make the server hold these codes, all at once for those who search them by another model."""
        record, name = self.record(), _name(state)
        index, changes = self._reached(name, state.n_bits)
        told = progress or (lambda step, total, message: None)
        with HammingIndex.open(self._folder / f"mirror-{name}.db", state.n_bits, warm=False) as held:
            # The file may have been lost; without it, nothing tells what the server has.
            if record.index != name or changes != record.changes or len(held) != record.count:
                _copy(index, held)
            steps = _steps(held, ids, codes)
            for number, step in enumerate(steps, start=1):
                step(index)
                step(held)
                told(number, len(steps), "sending codes")
        before = record.before if record.index == name else record.index
        sent = Record(self.shown, name, before, index.stats()["generation"], state.codes, state.digest)
        write(self._folder, sent)
        self._tidy(record, sent)

    def remember(self) -> None:
        """Note which server it is, where there are no codes to send."""
        write(self._folder, self.record())

    def check(self) -> None:
        """Say that the server is away before anything is changed."""
        server.exists(server.beside(self._engine, self.record().index or "codes"))

    def close(self) -> None:
        """Let go of the server."""
        for index in (*self._open.values(), *self._gone):
            index.close()
        self._open, self._gone = {}, []

    def forget(self, name: str) -> None:
        """Connect anew when this index is next asked for."""
        if name in self._open:
            self._gone.append(self._open.pop(name))

    def _connected(self, name: str, n_bits: int) -> HammingIndex:
        if name not in self._open:
            self._open[name] = HammingIndex(n_bits, engine=server.beside(self._engine, name))
        return self._open[name]

    def _reached(self, name: str, n_bits: int) -> tuple[HammingIndex, int]:
        """An index on the server and how often it has changed; made anew where somebody has removed it."""
        index = self._connected(name, n_bits)
        try:
            return index, index.stats()["generation"]
        except server.IndexGoneError:
            self.forget(name)
        index = self._connected(name, n_bits)
        return index, index.stats()["generation"]

    def _tidy(self, former: Record, sent: Record) -> None:
        for file in self._folder.glob("mirror-*.db*"):  # with -wal and -shm, which SQLite may have left
            if not file.name.startswith(f"mirror-{sent.index}.db"):
                file.unlink(missing_ok=True)
        if former.before and former.before not in (sent.index, sent.before):
            with suppress(FusehashError):  # it takes room, and nothing else
                server.drop(server.beside(self._engine, former.before))


def read(folder: Path) -> Record | None:
    """engine.json; None where the codes of the collection are searched in memory."""
    try:
        content: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Record(**content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CorruptCollectionError(f"The collection {folder} is corrupt: {FILE} is damaged.") from error
    except OSError as error:
        raise CollectionError(f"The collection {folder} could not be read: {error.strerror}.") from error


def write(folder: Path, record: Record) -> None:
    """Write engine.json, whole or not at all."""
    text = json.dumps(asdict(record), indent=2)
    write_atomically(folder / FILE, lambda file: file.write(text.encode()))


def _name(state: State) -> str:
    """Codes of one model have one name."""
    made_by = f"{state.number} {state.n_bits} {state.model}"
    return hashlib.sha256(made_by.encode()).hexdigest()[:8]


def _steps(held: HammingIndex, ids: Ids, codes: Codes) -> list[Callable[[HammingIndex], Any]]:
    """The calls that turn what is held into these ids (ascending) and codes."""
    gone, here = np.setdiff1d(held.ids, ids), np.isin(ids, held.ids)
    there = np.flatnonzero(here)
    changed = there[(held.get(ids[there]) != codes[there]).any(axis=1)]
    removes = [lambda each, part=part: each.remove(part) for part in _cut(gone)]
    replaces = [lambda each, part=part: each.replace(codes[part], ids[part]) for part in _cut(changed)]
    adds = [lambda each, part=part: each.add(codes[part], ids[part]) for part in _cut(np.flatnonzero(~here))]
    return [*removes, *replaces, *adds]


def _cut(rows: Ids) -> list[Ids]:
    return [rows[i : i + _BATCH] for i in range(0, len(rows), _BATCH)]


def _copy(index: HammingIndex, held: HammingIndex) -> None:
    """Take over what the server holds."""
    held.remove(held.ids)
    for ids, codes in index:
        held.add(codes, ids)
