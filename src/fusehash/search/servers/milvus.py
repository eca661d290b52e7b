"""An index on a Milvus server (extra ``milvus``): binary vectors, compared one by one (BIN_FLAT, HAMMING), so exact.

    NAME           one row a code: its number, its id, the generation that brought it (milvus_journal.py), the code
    NAME_journal   what is in force, who is writing, what is being taken away

A change is seen whole or not at all, by readers and after a crash, and an id that exists is refused, whoever added it;
milvus_journal.py says how. A reader searches with the state that it knows and looks then whether that state is still in
force; if rows were taken away meanwhile, it searches again. Every read waits until the server has seen all that was
acknowledged before it (about 0.2 s with the server's settings as they come): Milvus likes large batches.

What has been acknowledged lies in the server's message queue and is as durable as that is; kill -9 of the server loses
nothing, loss of power may, depending on how the queue is set up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import CorruptIndexError
from fusehash.search.rows import NO_IDS, Distances, Ids, Ints, check_here, check_new, chosen_by_mask, count_on
from fusehash.search.servers.address import Address, IndexServerError, NoIndexError, check_name
from fusehash.search.servers.milvus_calls import Calls, any_of, code_of, matrix, parts
from fusehash.search.servers.milvus_journal import Journal, State
from fusehash.search.servers.milvus_search import Searches, merged

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TRIES = 8  # searches that removals may spoil before a reader asks the writers to wait


class MilvusStore:
    """One index on a Milvus server."""

    def __init__(self, address: Address, n_bits: int | None) -> None:
        self._name = check_name(address.path, address.shown)
        self._calls = Calls(address)
        self._journal = Journal(self._calls, self._name)
        self._known: State | None = None
        try:
            state = self._prepare(n_bits)
        except BaseException:
            self._calls.close()
            raise
        self.n_bits = state.n_bits
        self._searches = Searches(self._calls, self._name, self.n_bits)

    def __str__(self) -> str:
        return f"at {self._calls.shown}"

    # -- what is there -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._known = self._journal.now()
        return self._known.count

    def ids(self) -> Ids:
        ids = np.sort(self._reading(lambda state: self._all(state, ["id"])[0]))
        ids.flags.writeable = False
        return ids

    def here(self, ids: Ids) -> NDArray[Any]:
        wanted = np.unique(ids)
        return np.isin(ids, self._reading(lambda state: self._found(state, wanted)[0]))

    def get(self, ids: Ids) -> Codes:
        def read(state: State) -> tuple[Ids, Codes]:
            found: list[dict[str, Any]] = []
            for part in parts(len(wanted)):
                for filter, _ in any_of("id", wanted[part]):
                    found += self._calls.rows(self._name, f"{filter} and {state.seen}", ["id", "code"])
            numbers = np.fromiter((row["id"] for row in found), np.int64, len(found))
            return numbers, matrix([code_of(row["code"]) for row in found], self.n_bits)

        wanted = np.unique(ids)
        numbers, codes = self._reading(read)
        check_here(ids, np.isin(ids, numbers))
        order = np.argsort(numbers)
        return codes[order[np.searchsorted(numbers, ids, sorter=order)]]

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        """All of it is read first, since Milvus keeps no snapshots."""
        ids, codes = self._reading(lambda state: self._all(state, ["id", "code"]))
        order = np.argsort(ids)
        return ((ids[order[part]], codes[order[part]]) for part in parts(len(ids), size))

    # -- changes -------------------------------------------------------------------------------------------------

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        given = NO_IDS

        def plan(state: State) -> tuple[Ids, Codes, Ids]:
            nonlocal given
            given = count_on(state.last_id, len(codes)) if ids is None else ids
            if ids is not None:
                for filter, some in any_of("id", np.sort(ids)):
                    if self._calls.count(self._name, f"{filter} and {state.seen}"):
                        check_new(np.sort(self._found(state, some)[0]))
                    self._journal.renew()
            return given, codes, NO_IDS

        self._change(plan)
        return given

    def remove(self, ids: Ids) -> None:
        self._change(lambda state: (NO_IDS, np.empty((0, self.n_bits // 8), np.uint8), self._taken(state, ids)))

    def replace(self, ids: Ids, codes: Codes) -> None:
        self._change(lambda state: (ids, codes, self._taken(state, ids)))

    def _change(self, plan: Callable[[State], tuple[Ids, Codes, Ids]]) -> None:
        """Bring rows and take rows away, all at once; ``plan`` gives ids and codes that come, rows that go."""
        with self._journal.held():
            before = self._journal.recover(self._journal.now())
            ids, codes, gone = plan(before)
            first = before.next_row
            tombs = first + len(ids), first + len(ids) + len(gone)
            ready = False
            try:
                state = self._journal.write(before, writing=True, next_row=tombs[1], tombs=tombs)
                self._insert(state, first, ids, codes)
                self._journal.bury(state, gone)
                ready = True
                state = self._journal.write(
                    state, writing=False, clearing=len(gone) > 0, generation=state.generation + 1,
                    removals=state.removals + (len(gone) > 0), count=state.count + len(ids) - len(gone),
                    last_id=max([state.last_id, *ids.max(initial=state.last_id, keepdims=True).tolist()]),
                )  # fmt: skip
            except BaseException as error:
                state = self._undone(before, error, ready)
            if state.clearing:
                try:
                    state = self._journal.clear(state)
                except IndexServerError as error:  # the change is done; the next one who comes clears up
                    logger.warning("%s", error)
            self._known = state

    def _undone(self, before: State, error: BaseException, ready: bool) -> State:
        """After a failure: the state if the change is in force all the same, else the error once it surely is not.

        ``ready``: all that the change brings and takes away was written. What another writer has burnt is not in force.
        """
        try:
            state = self._journal.now()
            if ready and state.generation > before.generation and before.generation + 1 not in state.burnt:
                return state
            if state.generation == before.generation:
                self._journal.recover(state)
        except IndexServerError:
            if isinstance(error, IndexServerError):
                raise IndexServerError(
                    f"The Milvus server at {self._calls.shown} went away during a change, and it is not known whether "
                    f"it was done: {error}"
                ) from None
        raise error

    def _insert(self, state: State, first: int, ids: Ids, codes: Codes) -> None:
        generation = state.generation + 1
        for part in parts(len(ids)):
            numbers = range(first + part.start, first + part.stop)
            some = zip(numbers, ids[part].tolist(), codes[part], strict=True)
            self._calls(
                "insert",
                self._name,
                [{"row": row, "id": id, "generation": generation, "code": code.tobytes()} for row, id, code in some],
            )
            self._journal.renew()

    # -- searches ------------------------------------------------------------------------------------------------

    def search(
        self, queries: Codes, k: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Distances, Ids]:
        def read(state: State) -> tuple[Distances, Ids]:
            chosen = self._chosen(state, allowed)
            if not len(queries):
                columns = min(k, state.count if chosen is None else len(self._found(state, chosen)[0]))
                return np.empty((0, columns), np.int32), np.empty((0, columns), np.int64)
            if chosen is None:
                found = self._searches.top_k(queries, k, state.seen, state.next_row)
                self._check_whole(state, found[1].shape[1], min(k, state.count))
                return found
            filters = [f"{filter} and {state.seen}" for filter, _ in any_of("id", chosen)]
            results = [self._searches.top_k(queries, k, filter, state.next_row) for filter in filters]
            return merged(results, len(queries), k)

        return self._reading(read)

    def range_search(
        self, queries: Codes, radius: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Ints, Distances, Ids]:
        def read(state: State) -> tuple[Ints, Distances, Ids]:
            chosen = self._chosen(state, allowed)
            filters = [state.seen]
            if chosen is not None:
                filters = [f"{filter} and {state.seen}" for filter, _ in any_of("id", chosen)]
            return self._searches.within(queries, radius, filters, state.next_row if state.count else 0)

        return self._reading(read)

    def compact(self) -> None:
        with self._journal.held():
            self._known = self._journal.recover(self._journal.now())
        try:
            self._calls("flush", self._name)
            self._calls("compact", self._name)
        except IndexServerError as error:
            if "UNIMPLEMENTED" not in str(error):  # the small server in a file has nothing to compact
                raise

    def stats(self) -> dict[str, Any]:
        state = self._journal.now()
        known = {"n_bits": self.n_bits, "count": state.count, "memory_bytes": 0, "engine": "milvus"}
        return {**known, "address": self._calls.shown, "generation": state.generation, "revision": state.revision}

    def drop(self) -> None:
        # Rows first, since who opens a journal without rows makes them anew.
        self._calls("drop_collection", self._name)
        self._calls("drop_collection", f"{self._name}_journal")

    def close(self) -> None:
        self._calls.close()

    # -- parts ---------------------------------------------------------------------------------------------------

    def _prepare(self, n_bits: int | None) -> State:
        """Make the collections where they are not yet there; the state in force."""
        journal, rows = self._journal.exists(), self._calls.has(self._name)
        if rows and not journal:
            raise IndexServerError(
                f"The Milvus server at {self._calls.shown} has a collection of that name that is not an index of "
                "fusehash."
            )
        state = self._journal.read() if journal and rows else None
        if state is not None:
            return state
        if n_bits is None:
            raise NoIndexError(
                f"There is no index at {self._calls.shown}; to create one, say of how many bits (n_bits)."
            )
        self._journal.create(n_bits)
        state = self._journal.now()
        schema, kinds = self._calls.schema()
        schema.add_field("row", kinds.INT64, is_primary=True)
        schema.add_field("id", kinds.INT64)
        schema.add_field("generation", kinds.INT64)
        schema.add_field("code", kinds.BINARY_VECTOR, dim=state.n_bits)
        self._calls.create(self._name, schema, "code")
        return state

    def _reading(self, work: Callable[[State], T]) -> T:
        """Read what one state shows, the state that is in force now."""
        state, fresh = self._known, False
        for _ in range(_TRIES):
            if state is None or state.clearing:
                state, fresh = self._settled(), True
            result = work(state)
            now = self._known = self._journal.now()
            changed = now.generation != state.generation
            # What only others have added since the call began need not be seen.
            if not now.clearing and (not changed or (fresh and now.removals == state.removals)):
                return result
            state, fresh = now, True
        with self._journal.held():
            state = self._known = self._journal.recover(self._journal.now())
            return work(state)

    def _settled(self) -> State:
        """The state in force, once no removal is under way."""
        state = self._journal.now()
        if state.clearing:
            with self._journal.held():
                state = self._journal.recover(self._journal.now())
        self._known = state
        return state

    def _all(self, state: State, fields: list[str]) -> tuple[Ids, Codes]:
        """All rows, page by page in order of their numbers."""
        found: list[dict[str, Any]] = []
        for part in parts(state.next_row):
            page = f"row >= {part.start} and row < {part.stop} and {state.seen}"
            found += self._calls.rows(self._name, page, fields)
        ids = np.fromiter((row["id"] for row in found), np.int64, len(found))
        self._check_whole(state, len(found), state.count)
        return ids, matrix([code_of(row["code"]) for row in found] if "code" in fields else [], self.n_bits)

    def _check_whole(self, state: State, found: int, expected: int) -> None:
        """What was found must be as many as there are, unless some have been taken away meanwhile."""
        if found != expected and self._journal.now().removals == state.removals:
            raise CorruptIndexError(
                f"The index at {self._calls.shown} should have given {expected} codes. Got {found} instead."
            )

    def _found(self, state: State, ids: Ids) -> tuple[Ids, Ids]:
        """Those of some ids (ascending) that are there, and the numbers of their rows."""
        found: list[dict[str, Any]] = []
        for part in parts(len(ids)):
            for filter, _ in any_of("id", ids[part]):
                found += self._calls.rows(self._name, f"{filter} and {state.seen}", ["id", "row"])
        pairs = np.array([(row["id"], row["row"]) for row in found], np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _taken(self, state: State, ids: Ids) -> Ids:
        """The numbers of the rows of some ids (ascending), for whoever holds the ticket."""
        found = []
        for part in parts(len(ids)):
            found.append(self._found(state, ids[part]))
            self._journal.renew()
        check_here(ids, np.isin(ids, np.concatenate([some for some, _ in found])))
        return np.concatenate([rows for _, rows in found])

    def _chosen(self, state: State, allowed: NDArray[Any] | None) -> Ids | None:
        if allowed is None or allowed.dtype != bool:
            return allowed
        return chosen_by_mask(np.sort(self._all(state, ["id"])[0]), allowed)
