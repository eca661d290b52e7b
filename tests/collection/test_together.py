"""Several readers, one writer, many threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fusehash.collection import Collection, CollectionError, NewItem

HERE = Path(__file__).parent


def test_a_second_writer_gets_a_sentence(small, items):
    with Collection.open(small.path, timeout=0.1) as other, small._writer:
        with pytest.raises(CollectionError, match="Another process is writing"):
            other.add([NewItem("new", None, "text")])
        assert other.search("a red thing", k=3)  # readers go on
    with Collection.open(small.path, timeout=0.1) as other:
        other.add([NewItem("new", None, "text")])


def test_a_writer_in_another_process_is_noticed(small, tmp_path):
    program = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
        import fake_encoders; fake_encoders.install()
        from fusehash.collection import Collection, NewItem
        collection = Collection.open({str(small.path)!r})
        with collection._writer:
            print("held", flush=True)
            sys.stdin.readline()
        collection.add([NewItem("theirs", None, "a red thing")])
        collection.reindex()
        print("done", flush=True)
    """)
    before = small.search("a red thing", k=50)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        with (
            Collection.open(small.path, timeout=0.1) as impatient,
            pytest.raises(CollectionError, match="Another process is writing"),
        ):
            impatient.remove([1])
        assert small.search("a red thing", k=50) == before
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    after = small.search("a red thing", k=50)  # the reader sees the new items, with the new model
    assert "theirs" in {hit.item.key for hit in after}
    with Collection.open(small.path) as fresh:
        assert fresh.search("a red thing", k=50) == after


def test_a_reader_survives_reindexes_between_its_steps(small, items):
    with Collection.open(small.path) as reader:
        for count in (41, 42, 43):
            reader._now()
            small.add([NewItem(f"n{count}", None, f"a red thing {count}")])
            small.reindex()  # the files that the reader knows of are gone now
            assert len(reader.search("a red thing", k=100)) == count


def test_threads_read_while_one_writes(small, draw):
    stop, seen = threading.Event(), []

    def read(number: int) -> None:
        while not stop.is_set():
            hits = small.search("a red thing", k=100) if number % 2 else small.search(image=draw("red", 1), k=100)
            ids = [hit.id for hit in hits]
            assert len(ids) == len(set(ids))
            seen.append(len(ids))

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, number) for number in range(4)]
        try:
            for i in range(10):
                small.add([NewItem(f"n{i}", None, f"a red thing {i}")])
            small.remove([1])
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert min(seen) >= 39
    assert len(small.search("a red thing", k=100)) == 49


def test_writers_on_threads_take_turns(small):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: small.add([NewItem(f"n{i}", None, f"text {i}")]), range(12)))
    assert len(small) == 52
