"""Servers that fail in the middle of a call, limits of the servers, and tables of other owners."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import servers
from fusehash.errors import CorruptIndexError, DataError, MissingPackageError
from fusehash.search import HammingIndex, IndexServerError
from fusehash.search.servers import milvus

N_BITS = 64


def lite(n_bits: int = N_BITS) -> HammingIndex:
    return HammingIndex(n_bits, engine=servers.server("milvus-lite").address())


def failing(client: Any, method: str, *, after: bool, times: int, error: Exception) -> Any:
    """A client of Milvus whose ``method`` raises ``times`` times, after or instead of its work."""
    original = getattr(client, method)
    left = times

    def work(*values: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0 or (left := left - 1) < 0:
            return original(*values, **options)
        if after:
            original(*values, **options)
        raise error

    return work


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["insert", "upsert", "delete"])
def test_a_request_to_milvus_that_is_repeated_changes_nothing_twice(
    method: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pymilvus

    index = lite()
    index.add(np.zeros((3, 8), np.uint8))
    lost = pymilvus.MilvusException(message="UNAVAILABLE: the connection was lost")
    monkeypatch.setattr(
        pymilvus.MilvusClient, method, failing(pymilvus.MilvusClient, method, after=after, times=1, error=lost)
    )
    if method == "insert":
        index.add(np.ones((2, 8), np.uint8), [-7, -5])  # lower ids: the note of the highest id needs no upsert
        assert index.ids.tolist() == [-7, -5, 0, 1, 2]
    elif method == "upsert":
        index.replace(np.ones((2, 8), np.uint8), [0, 2])
        assert index.get([0, 1, 2])[:, 0].tolist() == [1, 0, 1]
    else:
        index.remove([0, 2])
        assert index.ids.tolist() == [1]
    assert len(index) == len(index.ids)
    assert index.search(np.zeros((1, 8), np.uint8), 9)[1].shape[1] == len(index)


def test_a_change_on_milvus_that_fails_in_the_middle_says_that_a_part_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = lite()
    index.add(np.zeros((3, 8), np.uint8))
    monkeypatch.setattr(milvus, "_MAX_RESULTS", 4)
    call, sent = index._store._call, []  # type: ignore[attr-defined]

    def second_insert_fails(method: str, *values: Any, **options: Any) -> Any:
        sent.append(method)
        if sent.count("insert") == 2:
            raise IndexServerError("The Milvus server cannot be reached.")
        return call(method, *values, **options)

    monkeypatch.setattr(index._store, "_call", second_insert_fails)
    with pytest.raises(IndexServerError, match=r"A part of this change of 10 ids from 3 to 12 may be written\."):
        index.add(np.ones((10, 8), np.uint8))
    monkeypatch.undo()
    assert index.ids.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert index.add(np.ones((1, 8), np.uint8)).tolist() == [13]  # no id is counted out twice
    before = index.ids.tolist()
    with pytest.raises(DataError, match="Id 3 is in the index already"):
        index.add(np.ones((10, 8), np.uint8), range(3, 13))
    assert index.ids.tolist() == before


def test_ids_that_milvus_cannot_store() -> None:
    index = lite()
    index.add(np.zeros((2, 8), np.uint8), [1 - 2**63, 2**63 - 2])
    for id in (-(2**63), 2**63 - 1):
        with pytest.raises(DataError, match="Ids on Milvus must be from"):
            index.add(np.zeros((1, 8), np.uint8), [id])
        assert id not in index
        assert index.search(np.zeros((1, 8), np.uint8), 1, allowed=[id])[1].shape == (1, 0)
    assert index.ids.tolist() == [1 - 2**63, 2**63 - 2]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Milvus as if it gave 16 results at most."""
    monkeypatch.setattr(milvus, "_MAX_RESULTS", 16)
    monkeypatch.setattr(milvus, "_SPARE_RESULTS", 2)
    monkeypatch.setattr(milvus, "_MAX_LISTED", 10)
    return 16


@pytest.mark.parametrize("n_values", [1, 2, 12])
def test_ties_and_cut_off_answers_are_resolved(narrow: int, n_values: int) -> None:
    rng = np.random.default_rng(n_values)
    index, memory = lite(16), HammingIndex(16)
    codes = rng.integers(0, 256, (n_values, 2), dtype=np.uint8)[rng.integers(0, n_values, 90)]
    ids = rng.permutation(1000)[:90] - 500
    for each in (index, memory):
        each.add(codes, ids)
    queries = np.concatenate([codes[:1], codes[:1] ^ 1])
    for k in (1, 7, 15, 16, 91):
        for result, expected in zip(index.search(queries, k), memory.search(queries, k), strict=True):
            assert_array_equal(result, expected)
        allowed = np.sort(ids)[::3]
        result, expected = (each.search(queries, k, allowed=allowed)[1] for each in (index, memory))
        assert_array_equal(result, expected)
    for radius in (0, 16):
        results = [each.range_search(queries, radius) for each in (index, memory)]
        for result, expected in zip(*results, strict=True):
            assert_array_equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["milvus-lite", "milvus"])
def test_more_equal_codes_than_milvus_answers(name: str) -> None:
    index = HammingIndex(N_BITS, engine=servers.server(name).address())
    n = 40_000
    order = np.random.default_rng(0).permutation(n)
    index.add(np.zeros((n // 2, 8), np.uint8), order[: n // 2])
    index.compact()  # several segments, flushed and growing
    index.add(np.zeros((n // 2, 8), np.uint8), order[n // 2 :])
    query = np.zeros((1, 8), np.uint8)
    assert_array_equal(index.ids, np.arange(n))
    assert_array_equal(index.search(query, 30)[1], np.arange(30)[None])
    assert_array_equal(index.search(query, 20_000)[1], np.arange(20_000)[None])
    assert_array_equal(index.range_search(query, 0)[2], np.arange(n))


@pytest.mark.parametrize("moment", ["idle", "first", "written", "committed"])
def test_a_connection_to_postgresql_that_breaks_is_replaced(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
        patched("_state", before=True)
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


def test_a_writer_does_not_wait_forever() -> None:
    server = servers.server("postgresql")
    address = server.address()
    index = HammingIndex.open(address + "&timeout=0.3", N_BITS)
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute("SELECT * FROM fusehash_index FOR UPDATE")
        with pytest.raises(IndexServerError, match=r"another writer has held the lock for 0\.3 s"):
            index.add(np.zeros((1, 8), np.uint8))
        other.rollback()
    assert index.add(np.zeros((1, 8), np.uint8)).tolist() == [0]


def test_rows_that_somebody_deleted_from_postgresql_are_reported() -> None:
    server = servers.server("postgresql")
    index = HammingIndex(N_BITS, engine=server.address("Capitals"))
    index.add(np.zeros((5, 8), np.uint8))
    stats = index.stats()  # of a name that is not what it would be without quotes
    assert (stats["count"], stats["revision"]) == (5, 1)
    assert stats["table_bytes"] > 0
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute('DELETE FROM "Capitals" WHERE id = 2')
    with pytest.raises(CorruptIndexError, match="does not hold the 5 codes that it should"):
        index.search(np.zeros((2, 8), np.uint8), 9)


def test_a_table_of_another_owner_is_left_alone() -> None:
    server = servers.server("postgresql")
    address, name = server.address("theirs"), "theirs"
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres") as other:
        other.execute(f"CREATE TABLE IF NOT EXISTS {name} (what text)")
    with pytest.raises(IndexServerError, match=r"has a table that is not an index of fusehash: .*theirs"):
        HammingIndex(N_BITS, engine=address)


def test_a_database_without_pgvector_is_reported() -> None:
    server = servers.server("postgresql")
    import psycopg

    with psycopg.connect(f"postgresql://tester@127.0.0.1:{server.port}/postgres", autocommit=True) as other:
        other.execute("DROP DATABASE IF EXISTS bare")
        other.execute("DROP ROLE IF EXISTS guest")
        other.execute("CREATE DATABASE bare")
        other.execute("CREATE ROLE guest LOGIN")  # may not create the extension
    with pytest.raises(IndexServerError, match=r"needs the extension pgvector, 0\.7 or later: "):
        HammingIndex(N_BITS, engine=f"postgresql://guest@127.0.0.1:{server.port}/bare")


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


def test_a_collection_of_another_owner_is_left_alone() -> None:
    index = lite()
    with pytest.raises(IndexServerError, match="is not an index of fusehash"):
        HammingIndex(N_BITS, engine=index.stats()["address"] + "_last_id")


@pytest.mark.parametrize(
    ("address", "package", "extra"),
    [
        ("postgresql://h/d", "psycopg", "postgres"),
        ("postgresql://h/d", "psycopg_pool", "postgres"),
        ("milvus://h:1/n", "pymilvus", "milvus"),
    ],
)
def test_a_missing_package_is_reported(address: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf'needs the package {package}, .*"fusehash\[{extra}\]"'):
        HammingIndex(N_BITS, engine=address)
