"""Generations of codes: a model, its encoders and the codes of all items. One is in force; others are kept beside it.

In items.db, `state` and `code` are what is in force. `generation` holds the state of each one that is kept, and
`generation_code` its codes with what every code was made from, so that items which came, changed or went since can be
told from the others when it comes into force. A switch exchanges the two inside one transaction: whoever reads sees
either all of the one generation or all of the other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fusehash.collection.database import CorruptCollectionError
from fusehash.collection.entries import Entry
from fusehash.collection.store import GENERATIONS, State, digest_of


@dataclass(frozen=True)
class Generation:
    """What `Collection.generations` tells.

    number : counts up; what `switch` and `drop` take.
    in_force : searches are answered from it.
    before : was in force before the one that is; `switch(back=True)` goes there.
    made : when it was learned, ISO 8601.
    codes : items that have a code in it.
    quality : pair AUC on held-out pairs, learned without labels (see `quality.py`); None where it was not measured.
    bytes : of its codes, and of its model and encoders (which generations may share).
    """

    number: int
    in_force: bool
    before: bool
    made: str
    codes: int
    n_bits: int
    random_state: int
    image_encoder: str
    text_encoder: str
    quality: float | None
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold."""
        return asdict(self)


@dataclass(frozen=True)
class Code:
    """The code of an item in a generation (None: it has none), what it was made from, and if the model has seen it."""

    content: bytes
    code: bytes | None
    trained: bool


def builder_lock(folder: Path) -> Path:
    """The file that is locked by who builds a generation; there from the first time on."""
    return folder / "builder.lock"


def content_of(entry: Entry) -> bytes:
    """A short name for what the code of an entry is made from."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (entry.image, entry.text_content):
        digest.update(b"-" if part is None else b"+" + part)
    return digest.digest()


def kept(database: sqlite3.Connection, where: Path) -> list[State]:
    """The states of all that is kept beside what is in force, by number."""
    if not _there(database):
        return []
    rows = database.execute("SELECT content, checksum FROM generation ORDER BY number").fetchall()
    return [State.unpacked(row, where) for row in rows]


def codes_of(database: sqlite3.Connection, state: State, where: Path) -> dict[int, Code]:
    """The codes of a kept generation by id, checked."""
    query = "SELECT id, content, code, trained FROM generation_code WHERE number = ?"
    found = {id: Code(content, code, bool(trained)) for id, content, code, trained in
             database.execute(query, (state.number,))}  # fmt: skip
    codes = [(id, row.code) for id, row in found.items() if isinstance(row.code, bytes)]
    whole = len(codes) == state.codes and all(len(code) == state.n_bits // 8 for _, code in codes)
    if not whole or digest_of(codes) != state.digest:
        raise CorruptCollectionError(
            f"The collection {where} is corrupt: codes of generation {state.number} are missing or damaged; "
            "what is in force is not touched by it."
        )
    return found


def keep(database: sqlite3.Connection, state: State, codes: dict[int, Code]) -> None:
    """Keep a generation beside what is in force."""
    if not _there(database):
        for table in GENERATIONS:
            database.execute(table)
    database.execute("INSERT OR REPLACE INTO generation VALUES (?, ?, ?)", (state.number, *state.packed()))
    rows = ((state.number, id, row.content, row.code, row.trained) for id, row in codes.items())
    database.executemany("INSERT INTO generation_code VALUES (?, ?, ?, ?, ?)", rows)


def forget(database: sqlite3.Connection, number: int) -> None:
    """Keep a generation no longer."""
    database.execute("DELETE FROM generation_code WHERE number = ?", (number,))
    database.execute("DELETE FROM generation WHERE number = ?", (number,))


def put_in_force(database: sqlite3.Connection, codes: dict[int, Code], before: dict[int, Code]) -> None:
    """Write codes in the place of those that were in force before."""
    database.execute("DELETE FROM code")
    written = ((id, row.code) for id, row in codes.items() if row.code is not None)
    database.executemany("INSERT INTO code VALUES (?, ?)", written)
    marks = ((row.trained, id) for id, row in codes.items() if row.trained != before[id].trained)
    database.executemany("UPDATE item SET trained = ? WHERE id = ?", marks)


def counted(codes: dict[int, Code]) -> tuple[int, int]:
    """How many items have a code, and the digest of these codes."""
    there = [(id, row.code) for id, row in codes.items() if row.code is not None]
    return len(there), digest_of(there)


def _there(database: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'generation'"
    return bool(database.execute(query).fetchone()[0])
