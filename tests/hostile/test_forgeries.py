"""Files whose checksums fit, made by somebody who knows how they are computed, and failures that look like damage."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import fusehash as fh
from fusehash.collection import Collection, CorruptCollectionError, NewItem
from fusehash.collection.features import FeatureCache
from fusehash.errors import CorruptIndexError, DataError
from fusehash.experiments.spec import parse_spec
from fusehash.experiments.store import ResultStore
from fusehash.files import atomic
from fusehash.search import blocks
from fusehash.search.file import IndexFileError

TEXTS = ["a red house", "a red barn", "a blue lake", "the blue sea"]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "codes.fhi"
    with fh.HammingIndex.open(path, n_bits=32, warm=False) as index:
        index.add(np.arange(12, dtype=np.uint8).reshape(3, 4))
    return path


@pytest.mark.parametrize("width", [8 * 10**12, 4104, 0, -64, 12])
def test_a_forged_width_of_an_index_is_refused(index: Path, width: int) -> None:
    with sqlite3.connect(index) as database:
        state = blocks.FileState.read(database)
        blocks.replace(state, n_bits=width).write(database)
    with pytest.raises(CorruptIndexError, match="state is damaged"):
        fh.HammingIndex.open(index, warm=False)


@pytest.mark.parametrize(
    ("ids", "codes"), [(24, 3), (24, 8), (25, 12), (16, 12)], ids=["3 bytes", "2 rows", "25 bytes of ids", "2 ids"]
)
def test_a_forged_block_of_an_index_is_refused(index: Path, ids: int, codes: int) -> None:
    blobs = bytes(ids), bytes(codes)
    with sqlite3.connect(index) as database:
        *head, checksum = database.execute(
            "SELECT generation, first_id, last_id, count, checksum FROM block"
        ).fetchone()
        forged = blocks._checksum(head, *blobs)
        database.execute("UPDATE block SET ids = ?, codes = ?, checksum = ?", (*blobs, forged))
        state = blocks.FileState.read(database)
        blocks.replace(state, digest=state.digest - checksum + forged, count=ids // 8).write(database)
    with pytest.raises(CorruptIndexError):
        fh.HammingIndex.open(index, warm=False)


def test_too_many_processes_at_a_file_are_not_called_damage(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("locking protocol")

    opened = fh.HammingIndex.open(index, warm=False)
    monkeypatch.setattr(blocks.FileState, "read", refused)
    with pytest.raises(IndexFileError, match="another process"):
        opened.add(np.zeros((1, 4), np.uint8))


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    with Collection.create(tmp_path / "c", image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build(NewItem(key=text, text=text) for text in TEXTS)
    return tmp_path / "c"


def test_a_trigger_under_a_reserved_name_is_refused(collection: Path) -> None:
    with sqlite3.connect(collection / "items.db") as database:
        database.execute("PRAGMA writable_schema=ON")
        sql = "CREATE TRIGGER sqlite_x AFTER INSERT ON code BEGIN DELETE FROM thumbnail; END"
        database.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, 0, ?)", ("trigger", "sqlite_x", "code", sql))
    with pytest.raises(CorruptCollectionError, match="tables of a collection"):
        Collection.open(collection)


def test_the_user_may_name_a_model_for_a_new_generation(collection: Path, tmp_path: Path) -> None:
    with Collection.open(collection) as opened, pytest.raises(Exception, match=r"missing\.onnx") as caught:
        opened.build_generation(image_encoder="onnx", image_params={"path": str(tmp_path / "missing.onnx")})
    assert "data may not choose" not in str(caught.value)


def test_damage_of_the_cache_after_a_commit_is_no_error(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FeatureCache(collection / "features.db")

    def damaged() -> None:
        raise CorruptCollectionError("damaged")

    monkeypatch.setattr(cache, "_open", damaged)
    cache.keep_only({"encoder"})
    cache.close()


def test_a_file_that_was_replaced_is_not_said_to_be_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(atomic, "sync_folder", fails)
    with pytest.raises(DataError, match="was written, but may not survive"):
        atomic.write_atomically(tmp_path / "x", lambda file: file.write(b"new"))
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan]], ids=str)
def test_a_parameter_that_is_no_number_is_refused_before_anything_runs(value: object) -> None:
    methods = [{"method": "fusehash", "params": {"ridge": value}}]
    with pytest.raises(DataError, match="must be finite numbers"):
        parse_spec({"title": "T", "dataset": "x.npz", "bits": [16], "methods": methods}, "tiny.yaml")


def test_a_fingerprint_does_not_lead_out_of_a_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="letters and digits"):
        ResultStore(tmp_path).dataset("../../elsewhere")


def test_links_among_stored_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="It is a link"):
        ResultStore(tmp_path / "store")


FORKED = """
import os, sys, threading, time
import numpy as np
from fusehash.numerics.parallel import one_blas_thread, _blas
started = threading.Event()
def inside():
    with one_blas_thread():
        started.set(); time.sleep(2)
before = [library.get_num_threads() for library in _blas(0)]
threading.Thread(target=inside).start(); started.wait()
pid = os.fork()
if pid == 0:
    with one_blas_thread():
        np.ones((50, 50)) @ np.ones((50, 50))
    os._exit([library.get_num_threads() for library in _blas(0)] != before)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_forked_child_gets_its_blas_threads_back() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=False, timeout=120).returncode == 0


def test_checksums_are_those_of_zlib() -> None:
    """What the forgeries above rely on."""
    assert blocks._checksum((1, 2), b"x") == zlib.crc32(b"x", zlib.crc32(b"(1, 2)"))
