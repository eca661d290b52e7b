"""What an index on Milvus writes down beside its rows, since Milvus has no transactions: NAME_journal.

    states    one row each, numbered; the one with the highest number is in force: which changes count (`generation`),
              how many codes there are, the highest id ever used
    tickets   who is writing. A writer puts a ticket down, then looks; it goes on only if it sees no other ticket. Of
              two who do so at once, at least one sees the other, since reads see all that was acknowledged before.
              A ticket that has not been renewed for its lease belongs to a writer that died, and is taken away.
    tombs     the rows that a change takes away, while it does

Rows carry the generation that brought them and are seen from the moment on at which a state with that generation is in
force. Changing the state is one row written, which Milvus does whole or not at all. So a change is:

    1. a state that says "writing", rows of the next generation, tombs        nobody sees any of it
    2. a state with the next generation, "clearing" if there are tombs        the change is done
    3. the rows under the tombs are deleted; a state without "clearing"       readers wait for this

A writer that finds "clearing" left behind carries it to its end. One that finds "writing" burns that generation: its
rows count never, even if a request that was thought lost still arrives, and neither does a state that comes so late,
since the number of the state that burns leaves a gap. Step 1 reserves the numbers of rows and tombs; none is reused.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from fusehash.errors import CorruptIndexError
from fusehash.search.rows import Ids
from fusehash.search.servers.address import IndexGoneError, IndexServerError
from fusehash.search.servers.milvus_calls import Calls, parts

_TICKETS = 1 << 62  # keys of tickets lie below the negative of this, those of states above it, those of tombs from 0 on
_LEASE = 60.0
_GAP = 1000  # states that a lost writer could at most still bring
_BURNT = 32  # burnt generations that are remembered


@dataclass(frozen=True)
class State:
    """What is in force."""

    n_bits: int
    revision: int = 0  # counts the states
    generation: int = 0  # counts the changes
    removals: int = 0  # counts those that took rows away
    count: int = 0
    last_id: int = -1
    next_row: int = 0
    tombs: tuple[int, int] = (0, 0)  # keys of the tombs, from and to, of the change under way
    writing: bool = False
    clearing: bool = False
    burnt: tuple[int, ...] = ()
    format: int = 1

    @property
    def key(self) -> int:
        return -1 - self.revision

    @property
    def seen(self) -> str:
        """The expression for rows that count."""
        seen = f"generation <= {self.generation}"
        return f"{seen} and generation not in [{','.join(map(str, self.burnt))}]" if self.burnt else seen


class Journal:
    """The journal of one index."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._rows, self._journal = calls, name, f"{name}_journal"
        self._mutex = threading.RLock()
        self._ticket: int | None = None
        self._renewed = 0.0
        self._lease = max(_LEASE, 3 * calls.timeout)

    def create(self, n_bits: int) -> None:
        """Make the journal and its first state; many may do so at a time."""
        schema, kinds = self._calls.schema()
        schema.add_field("key", kinds.INT64, is_primary=True)
        schema.add_field("generation", kinds.INT64)
        schema.add_field("row", kinds.INT64)
        schema.add_field("text", kinds.VARCHAR, max_length=2048)
        schema.add_field("nothing", kinds.BINARY_VECTOR, dim=8)  # a collection must have a vector
        self._calls.create(self._journal, schema, "nothing")
        with self.held():
            if self.read() is None:
                self._put(State(n_bits))

    def exists(self) -> bool:
        return self._calls.has(self._journal)

    def read(self) -> State | None:
        """The state in force; None where nothing has been written yet."""
        found = self._calls.rows(self._journal, f"key < 0 and key > {-_TICKETS}", ["key", "text"])
        if not found:
            return None
        newest = min(found, key=lambda row: row["key"])
        try:
            values: dict[str, Any] = json.loads(newest["text"])
            state = State(**{**values, "tombs": tuple(values["tombs"]), "burnt": tuple(values["burnt"])})
            if state.format != 1 or state.key != newest["key"]:
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise CorruptIndexError(f"What lies at {self._calls.shown} is not an index of this fusehash.") from None
        return state

    def now(self) -> State:
        """The state in force; an error where the index has been removed."""
        state = self.read()
        if state is None:
            raise IndexGoneError(f"The index at {self._calls.shown} was removed while it was open.")
        return state

    def write(self, state: State, *, gap: int = 1, **changes: Any) -> State:
        """Put another state in force; the one before is then taken away."""
        new = replace(state, revision=state.revision + gap, **changes)
        self.check_held()
        self._put(new)
        with contextlib.suppress(IndexServerError):  # an old state does no harm
            self._delete([state.key])
        return new

    def bury(self, state: State, rows: Ids) -> None:
        """Note the rows that a change takes away, under the numbers that it has reserved."""
        for part in parts(len(rows)):
            keys = range(state.tombs[0] + part.start, state.tombs[0] + part.stop)
            self._insert(
                [(key, state.generation + 1, row, "") for key, row in zip(keys, rows[part].tolist(), strict=True)]
            )
            self.renew()

    def recover(self, state: State) -> State:
        """Finish what is half done, or see to it that it never counts. Only for whoever holds the ticket."""
        if state.clearing:
            return self.clear(state)
        if not state.writing:
            return state
        burnt = (*state.burnt, state.generation + 1)[-_BURNT:]
        state = self.write(state, gap=_GAP, generation=state.generation + 1, burnt=burnt, writing=False, tombs=(0, 0))
        with contextlib.suppress(IndexServerError):  # what does not count does no harm, but takes room
            self._calls("delete", self._rows, filter=f"generation in [{','.join(map(str, burnt))}]")
        return state

    def clear(self, state: State) -> State:
        """Delete the rows under the tombs, then the tombs."""
        first, end = state.tombs
        for part in parts(end - first):
            keys = f"key >= {first + part.start} and key < {first + part.stop} and generation == {state.generation}"
            rows = [tomb["row"] for tomb in self._calls.rows(self._journal, keys, ["row"])]
            if len(rows) != part.stop - part.start:
                raise CorruptIndexError(f"The index at {self._calls.shown} has lost a part of its journal.")
            self._calls("delete", self._rows, ids=rows)
            self.renew()
        after = self.write(state, clearing=False, tombs=(0, 0))
        with contextlib.suppress(IndexServerError):
            for part in parts(end - first):
                self._delete(list(range(first + part.start, first + part.stop)))
        return after

    # -- tickets -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only writer, in this process and elsewhere."""
        with self._mutex:
            if self._ticket is not None:
                yield
                return
            self._acquire()
            try:
                yield
            finally:
                key, self._ticket = self._ticket, None
                if key is not None:
                    with contextlib.suppress(IndexServerError):  # it is then taken away when its lease is over
                        self._delete([key])

    def renew(self) -> None:
        """Show that this writer is alive: a new ticket, then the old one away."""
        if self._ticket is not None and time.monotonic() - self._renewed > self._lease / 6:
            self.check_held()
            old, self._ticket = self._ticket, self._put_down()
            self._delete([old])

    def check_held(self) -> None:
        """Nobody may have taken the ticket away meanwhile."""
        if self._ticket is not None and time.monotonic() - self._renewed > self._lease / 2:
            raise IndexServerError(f"The Milvus server at {self._calls.shown} was too slow; nothing was changed.")

    def _acquire(self) -> None:
        start, seen, since = time.monotonic(), set[int](), time.monotonic()
        while True:
            others = self._others(None)
            if not others:
                mine = self._put_down()
                others = self._others(mine)
                if not others:
                    self._ticket = mine
                    return
                self._delete([mine])
            if not others.keys() & seen:
                seen, since = set(others), time.monotonic()
            elif time.monotonic() - since > max(others.values()):
                self._delete(sorted(seen & others.keys()))
            if time.monotonic() - start > self._calls.timeout + (max(others.values()) if others else 0.0):
                raise IndexServerError(
                    f"The index at {self._calls.shown} could not be written: another writer has been at work for "
                    f"{time.monotonic() - start:.0f} s."
                )
            time.sleep(0.02 + secrets.randbelow(200) / 1000)

    def _others(self, mine: int | None) -> dict[int, float]:
        """Tickets of others and their leases."""
        found = self._calls.rows(self._journal, f"key <= {-_TICKETS}", ["key", "text"])
        return {row["key"]: float(row["text"]) for row in found if row["key"] != mine}

    def _put_down(self) -> int:
        self._renewed = time.monotonic()
        key = -_TICKETS - secrets.randbelow(_TICKETS - 1)
        self._insert([(key, 0, 0, str(self._lease))])
        return key

    def _put(self, state: State) -> None:
        self._insert([(state.key, state.generation, 0, json.dumps(asdict(state)))])

    def _insert(self, rows: list[tuple[int, int, int, str]]) -> None:
        names = ("key", "generation", "row", "text", "nothing")
        self._calls("insert", self._journal, [dict(zip(names, (*row, b"\0"), strict=True)) for row in rows])

    def _delete(self, keys: list[int]) -> None:
        self._calls("delete", self._journal, ids=keys)
