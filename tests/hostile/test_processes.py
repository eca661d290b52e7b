"""Processes that fork, open, write, move and die: nothing acknowledged is lost, and nothing is a false alarm."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from fusehash.collection import Collection, CollectionError, NewItem
from fusehash.search import HammingIndex, IndexFileError
from hostile.scale import cases

posix = pytest.mark.skipif(sys.platform == "win32", reason="fork, SIGKILL and open files that are moved")

# What every script below begins with. `forked(work)` runs `work` in a forked child, which ends without any cleanup.
BEGINNING = """
import os, sys, threading, time
import numpy as np
from pathlib import Path
from fusehash.collection import Collection, CollectionError, NewItem
from fusehash.search import HammingIndex, IndexFileError

path, codes = Path(sys.argv[1]), np.arange(80, dtype=np.uint8).reshape(10, 8)

def forked(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(status)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run(script: str, path: Path, *arguments: object) -> str:
    """Run a script in an interpreter of its own, which may fork; returns what it prints."""
    command = [sys.executable, "-c", BEGINNING + dedent(script), str(path), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stderr
    return process.stdout


def started(script: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGINNING + dedent(script), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def random_codes(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8), dtype=np.uint8)


def opened(path: Path, n_bits: int | None = None) -> HammingIndex:
    return HammingIndex.open(path, n_bits, warm=False)


def small_collection(path: Path, name: str = "red") -> Collection:
    collection = Collection.create(path, image_encoder="classical", text_encoder="tfidf")
    collection.add(NewItem(key=f"{name} {i}", text=f"a {name} house of {i} floors") for i in range(6))
    return collection


# -- forks --


@posix
def test_what_a_forked_child_adds_to_an_index_stays_when_the_parent_closes_first(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    run(
        """
        index = HammingIndex.open(path, 64, warm=False)
        other = HammingIndex.open(path, warm=False)
        index.add(codes)
        (ready, closed), (reading, told) = os.pipe(), os.pipe()

        def work():
            os.close(closed)
            len(index), len(other)
            os.write(told, b".")
            os.read(ready, 1)  # until the parent has closed the index
            index.add(codes)
            assert index.search(codes, 1)[0].max() == 0
            assert len(other) == 21, len(other)

        pid = forked(work)
        index.add(codes[:1])
        os.read(reading, 1)
        index.close()
        other.close()
        os.close(closed)
        assert ended(pid)
        """,
        path,
    )
    with opened(path) as index:
        assert len(index) == 21


@pytest.mark.slow
@posix
def test_forks_while_other_threads_add_and_search_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    added = run(
        """
        index = HammingIndex.open(path, 64, warm=False)
        index.add(codes)
        index.search(codes, 1, threads=1)
        added, stop = [10], threading.Event()

        def add():
            while not stop.is_set():
                added.append(len(index.add(codes[:3])))

        def search():
            while not stop.is_set():
                index.search(codes, 3, threads=2)

        def work():
            index.add(codes)
            index.search(codes, 3)

        threads = [threading.Thread(target=target) for target in (add, search)]
        for thread in threads:
            thread.start()
        while len(added) < 3:
            time.sleep(0.01)
        for _ in range(int(sys.argv[2])):
            assert ended(forked(work))
            added.append(10)
        stop.set()
        for thread in threads:
            thread.join()
        assert len(index) == sum(added), (len(index), added)
        print(sum(added))
        """,
        path,
        cases(5, 100),
    )
    with opened(path) as index:
        assert len(index) == int(added)


@posix
@pytest.mark.slow
def test_what_a_forked_child_adds_to_a_collection_stays_when_the_parent_closes_first(tmp_path: Path) -> None:
    small_collection(tmp_path / "c").close()
    run(
        """
        collection = Collection.open(path)
        collection.search("red house")
        (ready, closed), (reading, told) = os.pipe(), os.pipe()

        def work():
            os.close(closed)
            len(collection)
            os.write(told, b".")
            os.read(ready, 1)
            collection.add([NewItem(key="child", text="a blue lake")])
            assert collection.search("blue lake", k=1)[0].item.key == "child"

        pid = forked(work)
        collection.add([NewItem(key="parent", text="a green tree")])
        os.read(reading, 1)
        collection.close()
        os.close(closed)
        assert ended(pid)
        """,
        tmp_path / "c",
    )
    with Collection.open(tmp_path / "c") as collection:
        assert [item.key for item in collection.items()][6:] == ["parent", "child"]
        assert collection.search("green tree", k=1)[0].item.key == "parent"


@posix
def test_a_child_that_is_forked_in_the_middle_of_a_call_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    run(
        """
        index = HammingIndex.open(path, 64, warm=False)
        other = HammingIndex.open(path, warm=False)
        index.add(codes)

        def refused(call):
            try:
                call()
            except IndexFileError as error:
                assert "was in use when this process was forked" in str(error), error
                return True

        def work():
            assert refused(lambda: index.add(codes)) and refused(lambda: len(index)) and refused(lambda: len(other))
            assert refused(lambda: HammingIndex.open(path, warm=False))
            index.close()

        database = index._store._database
        with database.writing() as connection:
            pid = os.fork()
            if pid:
                assert ended(forked(work))
        if pid:
            assert not ended(pid)  # it did not commit what its parent began
            index.add(codes)
            assert len(index) == len(other) == 20
        else:
            os._exit(0)
        """,
        path,
    )
    with opened(path) as index:
        assert len(index) == 20


@posix
@pytest.mark.slow
def test_a_child_that_is_forked_during_a_change_of_a_collection_cannot_spoil_it(tmp_path: Path) -> None:
    small_collection(tmp_path / "c").close()
    run(
        """
        collection = Collection.open(path)
        children = []

        def progress(step, total, message):
            if message == "writing" and not children:
                children.append(os.fork())

        try:
            collection.add([NewItem(key="new", text="a blue lake")], progress)
            outcome = 0
        except CollectionError as error:
            outcome = 0 if "Another process has changed" in str(error) else 1
        if children == [0]:
            os._exit(outcome)
        assert ended(children[0]) and outcome == 0
        """,
        tmp_path / "c",
    )
    with Collection.open(tmp_path / "c") as collection:
        assert len(collection) == 7
        collection.check()
        collection.add([NewItem(key="later", text="a green tree")])


@posix
@pytest.mark.slow
def test_the_lock_of_a_writer_belongs_to_the_parent_of_a_fork(tmp_path: Path) -> None:
    run(
        """
        from fusehash.collection.changes import lock_of
        import subprocess

        def is_free():
            script = "import sys, pathlib; from fusehash.collection.changes import lock_of; lock = lock_of("
            script += "pathlib.Path(sys.argv[1]), 'writer'); lock.__enter__(); lock.__exit__()"
            return subprocess.run([sys.executable, "-c", script, path], stderr=subprocess.DEVNULL).returncode == 0

        ready, over = os.pipe()
        lock = lock_of(path, "writer", 5.0)
        with lock:
            assert ended(forked(lambda: None))
            assert not is_free()

            def work():
                os.close(over)
                os.read(ready, 1)

            pid = forked(work)
        assert is_free()
        with lock:
            assert not is_free()
        os.close(over)
        assert ended(pid)

        def again():
            with lock:
                assert not is_free()

        assert ended(forked(again))
        """,
        tmp_path,
    )


@posix
@pytest.mark.slow
def test_no_lock_stays_locked_in_a_forked_child(tmp_path: Path) -> None:
    small_collection(tmp_path / "c").close()
    run(
        """
        from contextlib import ExitStack
        index, collection = HammingIndex(64, engine="multi-index"), Collection.open(path)
        index.add(codes)
        collection.search("red house")
        locks = [index._store._lock, index._store.engine._lock, collection._snapshot._lock]
        locked, over = threading.Event(), threading.Event()

        def hold():
            with ExitStack() as stack:
                for lock in locks:
                    stack.enter_context(lock)
                locked.set()
                over.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        locked.wait()

        def work():
            index.add(codes)
            index.search(codes, 1)
            collection.search("red house")

        pid = forked(work)
        over.set()
        thread.join()
        assert ended(pid)
        """,
        tmp_path / "c",
    )


# -- several handles and processes --


@posix
def test_an_index_that_is_open_twice_keeps_its_log_when_another_process_closes(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    run(
        """
        import subprocess
        index = HammingIndex.open(path, 64, warm=False)
        index.add(codes)
        HammingIndex.open(path, warm=False).close()
        again = HammingIndex.open(path, warm=False)
        script = "import sys; from fusehash.search import HammingIndex; HammingIndex.open(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", script, path], check=True)
        index.add(codes)
        os._exit(0)
        """,
        path,
    )
    with opened(path) as index:
        assert len(index) == 20


# Another process opens and closes the file, which deletes its log if nobody else has it open; then it adds ten codes
# and dies, so that they are in the log alone.
OTHERS_COMMIT = """
import gc, subprocess
gc.disable()

def others_commit():
    script = "import os, sys, numpy as np; from fusehash.search import HammingIndex; "
    script += "HammingIndex.open(sys.argv[1], warm=False).close(); index = HammingIndex.open(sys.argv[1], warm=False); "
    script += "index.add(np.zeros((10, 8), np.uint8)); os._exit(0)"
    subprocess.run([sys.executable, "-c", script, path], check=True)

index = HammingIndex.open(path, 64, warm=False)
index.add(codes)
database = index._store._database
"""


@posix
@pytest.mark.parametrize(
    "leave",
    [
        "del index, database",
        "cursor = database.connection().execute('SELECT * FROM block'); index.close()",
        "cursor = database.connection().execute('SELECT * FROM block'); del index, database",
    ],
    ids=["forgotten", "closed with a cursor", "forgotten with a cursor"],
)
def test_a_connection_that_outlives_its_index_deletes_no_log_of_others(tmp_path: Path, leave: str) -> None:
    path = tmp_path / "codes.db"
    run(f"{OTHERS_COMMIT}\n{leave}\nothers_commit()\ncursor = None\ngc.collect()", path)
    with opened(path) as index:
        assert len(index) == 20


@posix
def test_a_connection_that_a_child_inherits_deletes_no_log_of_others(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    script = """
        (ready, over), pid = os.pipe(), 0
        with database.writing():
            pid = os.fork()
            if pid == 0:
                os.close(over)
                os.read(ready, 1)
                sys.exit()  # as Python ends: all that is left is collected
        index.close()
        others_commit()
        os.close(over)
        os.waitpid(pid, 0)
        """
    run(OTHERS_COMMIT + dedent(script), path)
    with opened(path) as index:
        assert len(index) == 20


WRITER = """
index = HammingIndex.open(path, 64, warm=False)
print("open", flush=True)
while True:
    ids = index.add(np.repeat(codes, 20, axis=0))
    if len(index) > 2000:
        index.remove(index.ids)
    if ids[0] % 7 == 0:
        index.close()
        index = HammingIndex.open(path, warm=False)
"""


@posix
@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_opening_while_another_process_writes_is_never_a_false_alarm(tmp_path: Path, kills: bool) -> None:
    path = tmp_path / "codes.db"
    opened(path, 64).close()
    writer = started(WRITER, path)
    assert writer.stdout is not None
    try:
        writer.stdout.readline()
        for number in range(cases(150 if not kills else 600, 2000)):
            if kills and number % 20 == 19:
                writer.send_signal(signal.SIGKILL)
                writer.communicate()
                writer = started(WRITER, path)
            with opened(path) as index:
                assert len(index) % 200 == 0
            assert kills or writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()


# -- folders and files that are moved, removed or replaced --

READS: dict[str, Callable[[Collection], object]] = {
    "search": lambda c: c.search("red house"),
    "like": lambda c: c.search(like=1),
    "check": lambda c: c.check(),
    "len": len,
    "item": lambda c: c.item(1),
    "items": lambda c: c.items(),
    "labels": lambda c: c.labels(),
    "thumbnail": lambda c: c.thumbnail(1),
    "stats": lambda c: c.stats(),
    "clusters": lambda c: c.clusters(),
    "code stats": lambda c: c.code_stats(),
    "settings": lambda c: c.settings,
    "revision": lambda c: c.revision,
    "generations": lambda c: c.generations(),
    "query code": lambda c: c.query_code(text="red house"),
}
WRITES: dict[str, Callable[[Collection], object]] = {
    "add": lambda c: c.add([NewItem(key="new", text="a new house")]),
    "build": lambda c: c.build([NewItem(key="new", text="a new house")]),
    "update": lambda c: c.update([NewItem(key="red 1", text="another house")]),
    "remove": lambda c: c.remove([1]),
    "reindex": lambda c: c.reindex(),
    "generation": lambda c: c.build_generation(measure=False),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@posix
@pytest.mark.parametrize("place", ["replaced", "moved", "removed", "a file"])
def test_a_collection_whose_folder_is_no_longer_there_says_so_for_every_call(tmp_path: Path, place: str) -> None:
    path, away = tmp_path / "c", tmp_path / "away"
    small_collection(tmp_path / "other", "blue").close()
    collection = small_collection(path)
    collection.search("red house")
    path.rename(away)
    if place == "replaced":
        (tmp_path / "other").rename(path)
    elif place == "removed":
        shutil.rmtree(away)
    elif place == "a file":
        path.write_bytes(b"x")
    before = contents(tmp_path)
    for call in (READS | WRITES).values():
        with pytest.raises(CollectionError, match="was removed or replaced while it was open"):
            call(collection)
    assert contents(tmp_path) == before
    if place == "moved":  # and back
        away.rename(path)
        for call in (READS | WRITES).values():
            call(collection)
    collection.close()
    if place == "replaced":
        assert contents(tmp_path) == before
        with Collection.open(path) as other:
            assert other.search("blue house", k=1)[0].item.key.startswith("blue")


@posix
def test_closing_a_replaced_index_leaves_the_log_of_the_other_one(tmp_path: Path) -> None:
    path, other = tmp_path / "codes.db", tmp_path / "other.db"
    script = """
    index = HammingIndex.open(path, 64, warm=False)
    index.add(codes)
    os._exit(0)
    """
    run(script, other)
    with opened(path, 64) as index:
        index.add(random_codes(5))
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").rename(f"{tmp_path / 'away.db'}{end}")
            Path(f"{other}{end}").rename(f"{path}{end}")
        before = contents(tmp_path)
        for call in (lambda: len(index), lambda: index.add(random_codes(1)), index.stats, index.compact):
            with pytest.raises(IndexFileError, match="was removed or replaced while it was open"):
                call()
    assert contents(tmp_path) == before
    with opened(path) as index:
        assert len(index) == 10


@posix
@pytest.mark.parametrize("moment", ["INSERT", "COMMIT"])
def test_a_change_to_a_file_that_is_moved_meanwhile_is_never_reported_as_done(tmp_path: Path, moment: str) -> None:
    path, away = tmp_path / "codes.db", tmp_path / "away.db"
    with opened(path, 64) as index:
        index.add(random_codes(5))

        def move(statement: str) -> None:
            if statement.startswith(moment) and path.exists():
                path.rename(away)

        index._store._database.connection().set_trace_callback(move)
        consequence = "; the change is in the file that was there before" if moment == "COMMIT" else ""
        with pytest.raises(IndexFileError, match=re.escape(f"while it was open{consequence}; open it again.")):
            index.add(random_codes(3))
        away.rename(path)
        assert len(index) == (8 if moment == "COMMIT" else 5)


# -- drafts of killed processes --


@posix
@pytest.mark.slow
def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    script = """
    import signal
    kills = ("os.link", "os.rename")
    sys.addaudithook(lambda event, arguments: event in kills and os.kill(os.getpid(), signal.SIGKILL))
    if path.suffix:
        HammingIndex.open(path, 64)
    Collection.create(path, image_encoder="classical", text_encoder="tfidf")
    """
    for name in ("codes.db", "c"):
        process = started(script, tmp_path / name)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    opened(tmp_path / "codes.db", 64).close()
    Collection.create(tmp_path / "c", image_encoder="classical", text_encoder="tfidf").close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c", "codes.db"]


@pytest.mark.slow
@posix
def test_a_child_that_is_forked_while_kernels_are_compiled_can_search(tmp_path: Path) -> None:
    run(
        """
        index = HammingIndex.open(path, 64)  # compiles in the background
        index.add(codes)
        pid = forked(lambda: index.search(codes, 1))
        assert ended(pid)
        """,
        tmp_path / "codes.db",
    )


@posix
def test_a_lock_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "c", tmp_path / "elsewhere"
    Collection.create(path, image_encoder="classical", text_encoder="tfidf").close()
    with Collection.open(path) as collection:
        (path / "writer.lock").unlink(missing_ok=True)
        (path / "writer.lock").symlink_to(elsewhere)
        with pytest.raises(CollectionError, match="cannot be written"):
            collection.add([NewItem(key="new", text="a red house")])
    assert not elsewhere.exists()
