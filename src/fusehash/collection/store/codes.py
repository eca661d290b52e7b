"""The codes of all items; the state has their number and the sum of their checksums."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fusehash.bits import Codes
from fusehash.collection.store.state import CollectionState
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError

_DIGEST = (1 << 62) - 1


def read_codes(database: Connection, state: CollectionState) -> tuple[Ids, Codes]:
    """All ids, ascending, and their codes, checked."""
    width, rows = state.n_bits // 8, database.execute("SELECT id, code FROM code ORDER BY id").fetchall()
    codes = b"".join(code for _, code in rows if isinstance(code, bytes))
    digest = digest_of((id, code) for id, code in rows if isinstance(code, bytes))
    if len(rows) != state.codes or len(codes) != width * len(rows) or digest != state.digest:
        raise DamageError("codes are missing from it or damaged")
    ids = np.fromiter((id for id, _ in rows), np.int64, len(rows))
    return ids, np.frombuffer(codes, np.uint8).reshape(-1, width)


def write_codes(
    database: Connection, state: CollectionState, gone: Iterable[int], codes: dict[int, bytes]
) -> CollectionState:
    """Remove the codes of some ids and write others; returns the next state."""
    digest, count = state.digest, state.codes
    for id in {*gone, *codes}:
        old = database.execute("SELECT code FROM code WHERE id = ?", (id,)).fetchone()
        if old is not None:
            digest, count = digest - digest_of([(id, old[0])]), count - 1
            database.execute("DELETE FROM code WHERE id = ?", (id,))
    database.executemany("INSERT INTO code VALUES (?, ?)", codes.items())
    digest = (digest + digest_of(codes.items())) & _DIGEST
    return replace(state, revision=state.revision + 1, codes=count + len(codes), digest=digest)


def digest_of(codes: Iterable[tuple[int, bytes]]) -> int:
    """The sum of the checksums of codes, in any order."""
    return sum(zlib.crc32(code, id & 0xFFFFFFFF) for id, code in codes) & _DIGEST
