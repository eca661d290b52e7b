"""HammingIndex on real servers: the same results as in memory, and no acknowledged change lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import servers
from fusehash.errors import DataError, ParameterError
from fusehash.search import HammingIndex, IndexServerError
from fusehash.search.servers import address as addresses
from hostile.scale import cases
from index_files import by_id, random_codes
from killing import told_before_kill

HERE = Path(__file__).parent

#: milvus-lite and the standalone Milvus run the same client code; the standalone server is slow to start.
QUICK = ("postgresql", "milvus-lite")
ALL = (*QUICK, pytest.param("milvus", marks=pytest.mark.slow))


@pytest.fixture(params=QUICK)
def server(request: pytest.FixtureRequest) -> servers.Server:
    return servers.server(request.param)


@pytest.fixture(params=ALL)
def any_server(request: pytest.FixtureRequest) -> servers.Server:
    return servers.server(request.param)


def assert_same(results: Any, expected: Any) -> None:
    for result, reference in zip(results, expected, strict=True):
        assert result.dtype == reference.dtype
        assert_array_equal(result, reference)


@pytest.mark.parametrize(
    ("name", "n_bits"),
    [
        *((name, 64) for name in QUICK),
        *(pytest.param(name, n_bits, marks=pytest.mark.slow) for name in QUICK for n_bits in (8, 1000)),
        pytest.param("milvus", 64, marks=pytest.mark.slow),
    ],
)
def test_random_operations_give_what_memory_gives(name: str, n_bits: int) -> None:
    rng = np.random.default_rng(n_bits)
    index, memory = HammingIndex(n_bits, engine=servers.server(name).address()), HammingIndex(n_bits)
    pool = rng.integers(0, 256, (5, n_bits // 8), dtype=np.uint8)
    extremes = [-(2**63), 2**63 - 1, -1, 0] if name == "postgresql" else [1 - 2**63, 2**63 - 2, -1, 0]
    for step in range(cases(8, 60)):
        count = int(rng.integers(1, 40))
        codes = pool[rng.integers(0, 5, count)] ^ (rng.random((count, 1)) < 0.5).astype(np.uint8)
        here = memory.ids
        kind = rng.choice(["add", "count", "remove", "replace"]) if len(here) > 20 else "add"
        if kind == "count" and here[-1] < 2**62:
            assert_array_equal(index.add(codes), memory.add(codes))
        elif kind == "remove":
            gone = rng.permutation(here)[:count]
            assert index.remove(gone) == memory.remove(gone)
        elif kind == "replace":
            changed = rng.permutation(here)[:count]
            index.replace(codes[: len(changed)], changed)
            memory.replace(codes[: len(changed)], changed)
        else:
            ids = np.setdiff1d(rng.integers(-(10**6), 10**6, count), here)
            ids = np.append(ids, extremes[step]) if step < 4 and step != 1 else ids
            ids = rng.permutation(np.setdiff1d(ids, here))
            codes = pool[rng.integers(0, 5, len(ids))]
            assert_array_equal(index.add(codes, ids), memory.add(codes, ids))
        assert len(index) == len(memory)
        queries = np.concatenate([pool[:2], codes[:1] ^ 3])
        k, radius = int(rng.integers(1, 60)), int(rng.integers(0, n_bits))
        assert_same(index.search(queries, k), memory.search(queries, k))
        assert_same(index.range_search(queries, radius), memory.range_search(queries, radius))
        allowed = rng.permutation(np.append(memory.ids, 12345))[:15]
        assert_same(index.search(queries, k, allowed=allowed), memory.search(queries, k, allowed=allowed))
        mask = rng.random(len(memory)) < 0.5
        assert_same(
            index.range_search(queries, radius, allowed=mask), memory.range_search(queries, radius, allowed=mask)
        )
    assert_array_equal(index.ids, memory.ids)
    assert by_id(index) == by_id(memory)
    some = rng.permutation(np.append(memory.ids, memory.ids[:3]))
    assert_array_equal(index.get(some), memory.get(some))
    index.compact()
    assert [len(ids) for ids, _ in index.blocks(7)][:-1] == [7] * ((len(memory) - 1) // 7)
    index.close()


@pytest.fixture(params=QUICK, scope="module")
def three(request: pytest.FixtureRequest) -> HammingIndex:
    """An index with the ids 0, 1, 2."""
    index = HammingIndex(64, engine=servers.server(request.param).address())
    index.add(random_codes(3))
    return index


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.add(random_codes(2), [1, 1]), "Got 1 more than once"),
        (lambda index: index.add(random_codes(2), [9, 0]), "Id 0 is in the index already"),
        (lambda index: index.add(random_codes(2), [9]), "one id for each of 2 codes"),
        (lambda index: index.add(random_codes(2, 32)), "must have 8 bytes per row. Got 4"),
        (lambda index: index.remove([7, 8, 0]), r"Id 7 \(and 1 more\) is not"),
        (lambda index: index.replace(random_codes(2), [0, 7]), "Id 7 is not"),
        (lambda index: index.get([0, 7]), "Id 7 is not"),
        (lambda index: index.search(random_codes(1), 0), "'k' parameter"),
        (lambda index: index.search(random_codes(1), 1, allowed=np.ones(2, bool)), "one entry for each of 3 codes"),
        (
            lambda index: HammingIndex(32, engine=index.stats()["address"]),
            "'n_bits' parameter .* must be 64, the width",
        ),
    ],
)
def test_a_wrong_call_raises_and_changes_nothing(three: HammingIndex, call: Any, message: str) -> None:
    with pytest.raises((DataError, ParameterError), match=message):
        call(three)
    assert three.ids.tolist() == [0, 1, 2]
    assert_array_equal(three.get([0, 1, 2]), random_codes(3))


def test_empty_index_and_fewer_codes_than_k(server: servers.Server) -> None:
    index = HammingIndex(64, engine=server.address())
    assert [part.shape for part in index.search(random_codes(3), 5)] == [(3, 0), (3, 0)]
    assert index.range_search(random_codes(3), 64)[0].tolist() == [0, 0, 0, 0]
    assert index.add(random_codes(0)).tolist() == []
    assert index.ids.tolist() == []
    assert list(index) == []
    index.add(random_codes(4))
    assert index.search(random_codes(3), 5)[1].shape == (3, 4)
    assert index.search(random_codes(0), 5)[1].shape == (0, 4)
    assert index.search(random_codes(0), 5, allowed=[1, 2, 99])[1].shape == (0, 2)
    assert index.search(random_codes(3), 5, allowed=[])[1].shape == (3, 0)
    assert index.search(random_codes(3), 5, allowed=[77])[1].shape == (3, 0)
    assert index.range_search(random_codes(0), 5)[0].tolist() == [0]
    assert (2 in index, 4 in index, "2" in index) == (True, False, False)


def test_opened_again_by_its_address_alone(server: servers.Server) -> None:
    address = server.address()
    with pytest.raises(IndexServerError, match=r"There is no index at .* pass n_bits"):
        HammingIndex.open(address)
    with HammingIndex.open(address, 128) as index:
        index.add(random_codes(5, 128))
        index.remove([4])
    with pytest.raises(IndexServerError, match="is closed; open it again"):
        len(index)
    with HammingIndex.open(address) as again:
        assert again.n_bits == 128
        assert again.add(random_codes(1, 128)).tolist() == [5]  # 4 is not counted out again
        assert repr(again) == f"<HammingIndex of 128 bits at {address}>"
        assert again.stats()["count"] == 5
    with pytest.raises(ParameterError, match="pass the address of a server as `path`"):
        HammingIndex.open("codes.db", engine=address)


def test_kill_9_of_the_server_loses_nothing_and_is_reported(any_server: servers.Server) -> None:
    address = any_server.address()
    index, memory = HammingIndex(64, engine=address), HammingIndex(64)
    for each in (index, memory):
        each.add(random_codes(3000))
        each.remove(range(0, 3000, 3))
        each.replace(random_codes(500, seed=1), range(1, 1501, 3))
        each.add(random_codes(10, seed=2))
    impatient = HammingIndex.open(address, timeout=3)
    any_server.kill()
    for call in (
        lambda: impatient.add(random_codes(1)),
        lambda: HammingIndex(64, engine=address),
        lambda: HammingIndex(64, engine=address.replace("tester@", "").replace("://", "://someone:s3cr%2Ft@")),
    ):
        with pytest.raises(IndexServerError, match="cannot be reached") as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "s3cr" not in f"{caught.value!r} {caught.value.__cause__!r}"
    any_server.start()
    assert len(index) == len(memory)  # the index connects again by itself
    assert by_id(index) == by_id(memory)
    assert_same(index.search(random_codes(20, seed=3), 50), memory.search(random_codes(20, seed=3), 50))
    assert (
        index.add(random_codes(1))[0] >= memory.add(random_codes(1))[0]
    )  # 3010, or higher if Milvus has noted the lost call
    assert len(HammingIndex.open(address).ids) == len(memory)


def test_two_writers_never_count_out_the_same_id(any_server: servers.Server) -> None:
    address = any_server.address()
    reader = HammingIndex(32, engine=address)
    command = [sys.executable, str(HERE / "writers.py"), address, "30" if "postgres" in address else "6"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    kept = [json.loads(writer.communicate()[0]) for writer in running]
    assert sorted(kept[0] + kept[1]) == reader.ids.tolist()
    assert len(set(kept[0]) & set(kept[1])) == 0


def test_readers_of_postgresql_see_a_change_whole_or_not_at_all() -> None:
    address = servers.server("postgresql").address()
    index, other = HammingIndex(64, engine=address), HammingIndex(64, engine=address)
    zeros, ones = np.zeros((40, 8), np.uint8), np.full((40, 8), 255, np.uint8)
    index.add(zeros)
    seen, done, errors = set(), threading.Event(), []

    def watch() -> None:
        try:
            while not done.is_set():
                distances, ids = other.search(zeros[:1], 100)
                seen.add((ids.shape[1], *np.unique(distances).tolist()))
                assert len(other.ids) in (20, 40)
        except BaseException as error:
            errors.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    rounds, until = 0, time.monotonic() + 40.0
    while rounds < 4 or (len(seen) < 2 and not errors and time.monotonic() < until):  # until a change was seen
        index.replace(ones, range(40))
        index.remove(range(0, 40, 2))
        index.add(zeros[:20], range(0, 40, 2))
        index.replace(zeros, range(40))
        rounds += 1
    done.set()
    watcher.join()
    assert not errors
    assert seen <= {(40, 0), (40, 64), (20, 64), (40, 0, 64)}
    assert len(seen) > 1


def test_an_index_that_is_removed_while_open(server: servers.Server) -> None:
    address = server.address()
    assert not addresses.exists(address)
    index: Any = HammingIndex(64, engine=address)
    index.add(random_codes(3))
    assert addresses.exists(address)
    store = index._store
    if "milvus" in index.stats()["engine"]:
        store._call("drop_collection", store._name)
    else:
        store._run(lambda cursor: cursor.execute(store._text("DROP TABLE {}")), write=True)
        store._run(
            lambda cursor: cursor.execute("DELETE FROM fusehash_index WHERE name = %s", [store._name]), write=True
        )
    assert not addresses.exists(address)
    with pytest.raises(IndexServerError, match="was removed while it was open"):
        index.search(random_codes(1), 1)


def test_a_forked_process_connects_again(server: servers.Server) -> None:
    index = HammingIndex(64, engine=server.address())
    index.add(random_codes(3))
    if "milvus" in index.stats()["engine"]:
        pytest.skip("gRPC itself does not support a fork after its first call")
    assert told_before_kill(lambda pipe: os.write(pipe, b"." * len(index)) and None, 0.0, told_first=3) == 3
    assert len(index) == 3


def test_many_threads_search_at_the_same_time(server: servers.Server) -> None:
    index, memory = HammingIndex(64, engine=server.address()), HammingIndex(64)
    for each in (index, memory):
        each.add(random_codes(200))
    wrong = []

    def ask(number: int) -> None:
        results = [each.search(random_codes(2, seed=number), 7) for each in (index, memory)]
        wrong.extend(not np.array_equal(result, expected) for result, expected in zip(*results, strict=True))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 24
    assert not any(wrong)
