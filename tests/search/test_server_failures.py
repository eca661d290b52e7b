"""What a server's client does when calls fail: a change is done or it is not, whichever step it was cut off at."""

from __future__ import annotations

import builtins
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import servers
from fusehash.errors import CorruptIndexError, DataError
from fusehash.search import HammingIndex, IndexServerError
from fusehash.search.servers import milvus_calls, milvus_search

N_BITS = 64
STRESS = os.environ.get("FUSEHASH_STRESS") == "1"


def content(index: HammingIndex) -> dict[int, bytes]:
    return {int(id): code.tobytes() for ids, codes in index for id, code in zip(ids, codes, strict=True)}


class FailingCalls:
    """Calls to Milvus of which the n-th fails, before or after it has had its effect; or all from there on."""

    def __init__(self, calls: Any, fail_at: int, *, after: bool, crash: bool) -> None:
        self._calls, self._left, self._after, self._crash = calls, fail_at, after, crash
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def __call__(self, name: str, *values: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._after:
            self._calls(name, *values, **options)
        if self._left == 0 or (self._left < 0 and self._crash):
            self.failed = True
            raise IndexServerError("The server went away.")
        return self._calls(name, *values, **options)

    def rows(self, *values: Any) -> Any:
        self("has_collection", "any")
        return self._calls.rows(*values)

    def count(self, *values: Any) -> Any:
        self("has_collection", "any")
        return self._calls.count(*values)


@pytest.mark.parametrize(
    ("crash", "after"), [(False, True), (True, False)] if not STRESS else itertools.product([False, True], repeat=2)
)
def test_a_change_on_milvus_is_cut_off_at_every_step(crash: bool, after: bool) -> None:
    address = servers.server("milvus-lite").address()
    watcher = HammingIndex(N_BITS, engine=address)
    rng = np.random.default_rng(0)
    watcher.add(rng.integers(0, 256, (6, 8), dtype=np.uint8))
    done = undone = 0
    for step in itertools.count(1):
        before = content(watcher)
        ids = [0, 2, 5] if step % 2 else [1, 2, 3]
        codes = rng.integers(0, 256, (3, 8), dtype=np.uint8)
        expected = {**before, **{id: code.tobytes() for id, code in zip(ids, codes, strict=True)}}
        writer = HammingIndex(N_BITS, engine=address)
        store: Any = writer._store
        failing = FailingCalls(store._calls, step, after=after, crash=crash)
        # Whoever waits for a dead writer does not wait long; this one takes its time all the same.
        store._journal._lease, store._journal.check_held = 0.2, lambda: None
        store._calls = store._journal._calls = failing
        outcome = "done"
        try:
            writer.replace(codes, ids)
        except IndexServerError as error:
            outcome = "unknown" if "not known" in str(error) else "undone"
        found = content(watcher)
        assert found in ({"done": [expected], "undone": [before], "unknown": [before, expected]}[outcome]), step
        # The next writer, here another one or that of the next step, finds the way clear however it was left.
        if step % 3 == 0:
            watcher.add(codes[:1], [1000 + step])
            watcher.remove([1000 + step])
            assert content(watcher) == found
        assert watcher.range_search(codes[:1], 0)[2].tolist() == ([ids[0]] if found == expected else [])
        done, undone = done + (found == expected), undone + (found == before)
        if not failing.failed:
            break
    assert undone > 4  # the steps before the change is in force
    assert done > 2  # and those behind it


def test_what_comes_too_late_does_not_count() -> None:
    """Rows and even the state of a change that was given up may still arrive; they stay unseen."""
    address = servers.server("milvus-lite").address()
    index, late = HammingIndex(N_BITS, engine=address), HammingIndex(N_BITS, engine=address)
    index.add(np.zeros((2, 8), np.uint8))
    store: Any = late._store
    with store._journal.held():
        before = store._journal.now()
        writing = store._journal.write(before, writing=True, next_row=before.next_row + 1, tombs=(0, 0))
    index.add(np.ones((1, 8), np.uint8), [7])  # finds "writing" and gives it up
    store._insert(writing, before.next_row, np.array([99]), np.zeros((1, 8), np.uint8))
    store._journal.write(writing, writing=False, generation=writing.generation + 1, count=3)
    assert index.ids.tolist() == [0, 1, 7]
    assert late.ids.tolist() == [0, 1, 7]
    assert index.search(np.zeros((1, 8), np.uint8), 9)[1].tolist() == [[0, 1, 7]]


@pytest.mark.parametrize("ready", [False, True])
def test_a_change_that_another_writer_gave_up_is_not_reported_as_done(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer is so slow that its ticket is taken away; the other one burns its change and makes its own."""
    address = servers.server("milvus-lite").address()
    other, slow = HammingIndex(N_BITS, engine=address), HammingIndex(N_BITS, engine=address)
    other.add(np.zeros((2, 8), np.uint8))
    store: Any = slow._store
    bury = store._journal.bury

    def overtaken(*values: Any) -> None:
        bury(*values)
        store._journal._delete([store._journal._ticket])
        other.add(np.ones((1, 8), np.uint8), [7])
        if not ready:
            raise IndexServerError("The server went away.")
        store._journal._renewed -= 1e6  # found out before the last step

    monkeypatch.setattr(store._journal, "bury", overtaken)
    with pytest.raises(IndexServerError, match="was too slow" if ready else "went away"):
        slow.add(np.zeros((1, 8), np.uint8), [99])
    monkeypatch.undo()
    assert other.ids.tolist() == slow.ids.tolist() == [0, 1, 7]
    assert len(slow) == 3
    slow.add(np.zeros((1, 8), np.uint8), [99])
    assert other.ids.tolist() == [0, 1, 7, 99]


def test_rows_that_somebody_deleted_are_missed() -> None:
    index = HammingIndex(N_BITS, engine=servers.server("milvus-lite").address())
    index.add(np.zeros((5, 8), np.uint8))
    store: Any = index._store
    store._calls("delete", store._name, ids=[2])
    with pytest.raises(CorruptIndexError, match=r"should have given 5 codes\. Got 4 instead"):
        index.search(np.zeros((1, 8), np.uint8), 9)
    with pytest.raises(CorruptIndexError, match=r"should have given 5 codes\. Got 4 instead"):
        content(index)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Milvus as if it gave 16 results at most."""
    monkeypatch.setattr(milvus_search, "MOST", 16)
    monkeypatch.setattr(milvus_search, "_EXTRA", 2)
    monkeypatch.setattr(milvus_calls, "_LISTED", 10)
    return 16


@pytest.mark.parametrize("n_values", [1, 2, 12])
def test_ties_and_cut_off_answers_are_resolved(narrow: int, n_values: int) -> None:
    rng = np.random.default_rng(n_values)
    index, memory = HammingIndex(16, engine=servers.server("milvus-lite").address()), HammingIndex(16)
    codes = rng.integers(0, 256, (n_values, 2), dtype=np.uint8)[rng.integers(0, n_values, 150)]
    ids = rng.permutation(1000)[:150] - 500
    for each in (index, memory):
        each.add(codes, ids)
    queries = np.concatenate([codes[:2], codes[:2] ^ 1])
    for k in (1, 3, 7, 15, 16, 40, 149, 150, 151):
        for one, other in zip(index.search(queries, k), memory.search(queries, k), strict=True):
            assert_array_equal(one, other)
        allowed = np.sort(ids)[::4]
        one, other = (each.search(queries, k, allowed=allowed) for each in (index, memory))
        assert_array_equal(one[1], other[1])
    for radius in (0, 5, 16):
        one, other = (each.range_search(queries, radius) for each in (index, memory))
        for found, expected in zip(one, other, strict=True):
            assert_array_equal(found, expected)


def test_more_equal_codes_than_milvus_answers() -> None:
    index = HammingIndex(N_BITS, engine=servers.server("milvus-lite").address())
    n = 40_000
    order = np.random.default_rng(0).permutation(n)
    index.add(np.zeros((n, 8), np.uint8), order)
    query = np.zeros((1, 8), np.uint8)
    assert_array_equal(index.search(query, 30)[1], np.arange(30)[None])
    assert_array_equal(index.search(query, 20_000)[1], np.arange(20_000)[None])
    assert_array_equal(index.range_search(query, 0)[2], np.arange(n))


@pytest.mark.parametrize("moment", ["idle", "first", "written", "committed"])
def test_a_connection_to_postgresql_that_breaks_is_made_anew(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off at any moment, a change is done once, whether its commit had been carried out or not."""
    server = servers.server("postgresql")
    index = HammingIndex(N_BITS, engine=server.address())
    index.add(np.zeros((3, 8), np.uint8))
    store: Any = index._store
    import psycopg

    killer = psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres", autocommit=True)
    cuts = []

    def cut() -> None:
        if not cuts:
            cuts.append(moment)
            killer.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'fusehash'"
            )

    def patched(name: str, *, before: bool) -> None:
        original = getattr(store, name)

        def work(*values: Any) -> Any:
            if before:
                cut()
            result = original(*values)
            if not before:
                cut()
            return result

        monkeypatch.setattr(store, name, work)

    if moment == "idle":
        cut()
    elif moment == "first":
        patched("_locked", before=True)
    elif moment == "written":
        patched("_note", before=False)
    else:
        commit = psycopg.Connection.commit

        def commit_and_cut(connection: Any) -> None:
            commit(connection)
            if not cuts:
                cut()
                connection.close()
                raise psycopg.OperationalError("the connection was lost")

        monkeypatch.setattr(psycopg.Connection, "commit", commit_and_cut)
    assert index.add(np.ones((2, 8), np.uint8)).tolist() == [3, 4]
    monkeypatch.undo()
    assert cuts == [moment]
    assert index.ids.tolist() == [0, 1, 2, 3, 4]
    assert len(index) == 5
    killer.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fusehash'")
    assert index.search(np.ones((1, 8), np.uint8), 1)[1].tolist() == [[3]]
    killer.close()


def test_a_writer_does_not_wait_for_ever() -> None:
    server = servers.server("postgresql")
    address = server.address()
    index = HammingIndex.open(address + "&timeout=0.3", N_BITS)
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute("SELECT * FROM fusehash_index FOR UPDATE")
        with pytest.raises(IndexServerError, match=r"another writer has been at work for 0\.3 s"):
            index.add(np.zeros((1, 8), np.uint8))
        other.rollback()
    assert index.add(np.zeros((1, 8), np.uint8)).tolist() == [0]


def test_rows_that_somebody_deleted_from_postgresql_are_missed() -> None:
    server = servers.server("postgresql")
    index = HammingIndex(N_BITS, engine=server.address("Capitals"))
    index.add(np.zeros((5, 8), np.uint8))
    stats = index.stats()  # of a name that is not what it would be without quotes
    assert (stats["count"], stats["generation"]) == (5, 1)
    assert stats["table_bytes"] > 0
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute('DELETE FROM "Capitals" WHERE id = 2')
    with pytest.raises(CorruptIndexError, match=r"should have given 10 codes\. Got 8 instead"):
        index.search(np.zeros((2, 8), np.uint8), 9)


def test_somebody_elses_table_is_left_alone() -> None:
    server = servers.server("postgresql")
    address, name = server.address("theirs"), "theirs"
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute(f"CREATE TABLE IF NOT EXISTS {name} (what text)")
    with pytest.raises(IndexServerError, match="has a table theirs that is not an index of fusehash"):
        HammingIndex(N_BITS, engine=address)


def test_an_approximate_index_over_the_table_changes_nothing() -> None:
    server = servers.server("postgresql")
    rng = np.random.default_rng(0)
    codes, queries = (rng.integers(0, 256, (n, 8), dtype=np.uint8) for n in (3000, 20))
    index, memory = HammingIndex(N_BITS, engine=server.address("indexed")), HammingIndex(N_BITS)
    for each in (index, memory):
        each.add(codes)
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute("CREATE INDEX ON indexed USING hnsw (code bit_hamming_ops) WITH (m = 2, ef_construction = 4)")
    assert_array_equal(index.search(queries, 50)[1], memory.search(queries, 50)[1])


@pytest.mark.parametrize(
    ("address", "package", "extra"),
    [("postgresql://h/d", "psycopg", "postgres"), ("milvus://h:1/n", "pymilvus", "milvus")],
)
def test_a_missing_package_is_said(address: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *values: Any, **options: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *values, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(DataError, match=rf"needs the package {package}; pip install 'fusehash\[{extra}\]'"):
        HammingIndex(N_BITS, engine=address)
