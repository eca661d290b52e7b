"""Foreign, damaged, read-only, full: one sentence each, and what was there is unharmed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from fusehash.collection import Collection, CollectionError, CorruptCollectionError, NewItem
from fusehash.collection.features import FEATURES, FeatureCache
from fusehash.errors import FusehashError
from hostile.scale import cases

HERE = Path(__file__).parent


@pytest.fixture
def copy(small, tmp_path):
    """A closed collection that may be damaged."""
    small.close()
    shutil.copytree(small.path, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": "other"}', '{"format": "fusehash-collection", "version": 99}']
)
def test_a_foreign_or_damaged_description(copy, content):
    (copy / "collection.json").write_text(content)
    with pytest.raises(CorruptCollectionError, match="collection"):
        Collection.open(copy)


@pytest.mark.parametrize("content", [b"", b"x" * 50, b"x" * 5000])
def test_a_foreign_database(copy, content):
    (copy / "items.db").write_bytes(content)
    with pytest.raises(CorruptCollectionError):
        Collection.open(copy)
    assert (copy / "items.db").read_bytes() == content


def test_a_missing_database(copy):
    (copy / "items.db").unlink()
    with pytest.raises(CollectionError, match="could not be read"):
        Collection.open(copy)


def test_other_tables(copy):
    with sqlite3.connect(copy / "items.db") as database:
        database.execute("CREATE TABLE other (x)")
    with pytest.raises(CorruptCollectionError, match="tables"):
        Collection.open(copy)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE code SET code = x'00112233' WHERE id = 3",
        "UPDATE code SET code = 'text' WHERE id = 3",
        "UPDATE code SET code = zeroblob(3) WHERE id = 3",
        "DELETE FROM code WHERE id = 3",
        "UPDATE state SET content = '{}'",
        "UPDATE state SET checksum = 1",
        "DELETE FROM state",
    ],
)
def test_content_that_contradicts_itself(copy, statement):
    with sqlite3.connect(copy / "items.db") as database:
        database.execute(statement)
    with pytest.raises(CorruptCollectionError, match="corrupt"):
        Collection.open(copy)


def test_random_damage_gives_a_sentence_or_intact_codes(copy, tmp_path):
    """Bytes anywhere in items.db: refused, or everything that is read is right."""
    whole, rng = (copy / "items.db").read_bytes(), np.random.default_rng(0)
    with Collection.open(copy) as collection:
        codes = {hit.id: hit.code for hit in collection.search("a red thing", k=40)}
    refused = 0
    for _ in range(cases(40, 500)):
        damaged = bytearray(whole)
        start = int(rng.integers(0, len(whole)))
        damaged[start : start + 64] = rng.bytes(min(64, len(whole) - start))
        (copy / "items.db").write_bytes(damaged)
        try:
            with Collection.open(copy) as collection:
                found = collection.search(code=b"\0\0\0\0", k=100)
            assert {hit.id: hit.code for hit in found}.items() <= codes.items()
        except (FusehashError, json.JSONDecodeError):
            refused += 1
    assert refused


def test_a_lost_model_is_reported_and_made_again(copy):
    for path in copy.glob("model-*"):
        path.unlink()
    with Collection.open(copy) as collection:
        assert len(collection.search(like=1, k=3)) == 3  # codes alone are enough
        with pytest.raises(CorruptCollectionError, match="reindex"):
            collection.search("a red thing")
        collection.reindex()
        assert collection.search("a red thing", k=3)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_a_lost_encoder_is_reported_and_made_again(copy, kind):
    for path in copy.glob(f"{kind}-*"):
        path.unlink()
    with Collection.open(copy) as collection:
        with pytest.raises(FusehashError):
            collection.add([NewItem("new", None, "a red thing")])
        assert len(collection) == 40
        collection.reindex()
        collection.add([NewItem("new", None, "a red thing")])


@pytest.mark.parametrize("content", [b"", b"x" * 5000, None])
def test_a_damaged_cache_is_made_again(copy, content):
    if content is None:
        whole = bytearray((copy / "features.db").read_bytes())
        whole[4096:] = bytes(len(whole) - 4096)
        content = bytes(whole)
    (copy / "features.db").write_bytes(content)
    with Collection.open(copy) as collection:
        collection.reindex()
        assert collection.search("a red thing", k=3)


@pytest.mark.parametrize("version", [1, 2])
def test_a_cache_of_an_earlier_format_gets_the_current_one_and_keeps_its_features(copy, version):
    with sqlite3.connect(copy / "features.db") as database:
        before = database.execute("SELECT encoder, content, row FROM feature ORDER BY number").fetchall()
        if version == 1:
            database.execute("ALTER TABLE feature DROP COLUMN checksum")
        database.execute(f"PRAGMA user_version = {version}")
    database.close()
    with contextlib.closing(FeatureCache(copy / "features.db")) as cache:
        assert not cache.missing(before[0][0], [before[0][1]])
    with sqlite3.connect(copy / "features.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (FEATURES.format,)
        assert database.execute("SELECT encoder, content, row FROM feature ORDER BY number").fetchall() == before
    database.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_can_be_searched(copy):
    for path in copy.iterdir():
        path.chmod(0o444)
    copy.chmod(0o555)
    try:
        with Collection.open(copy) as collection:
            assert collection.search("a red thing", k=3)
            with pytest.raises(CollectionError, match="cannot be written"):
                collection.remove([1])
    finally:
        copy.chmod(0o755)


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path, fakes):
    with pytest.raises(CollectionError, match="could not be created"):
        Collection.create(tmp_path / "missing" / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("limit", [20_000, 150_000])
def test_a_full_disk_takes_one_sentence_and_leaves_what_was_there(copy, limit):
    """A limit on the size of files stands in for a full disk."""
    program = textwrap.dedent(f"""
        import resource, signal, sys, io
        sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
        import fake_encoders; fake_encoders.install()
        import numpy as np
        from PIL import Image
        from fusehash.collection import Collection, NewItem
        from fusehash.errors import FusehashError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        collection = Collection.open({str(copy)!r})
        rng, items = np.random.default_rng(0), []
        for i in range(300):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file, "PNG")
            items.append(NewItem(f"new{{i}}", file.getvalue(), "x" * 500))
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        try:
            collection.add(items)
        except FusehashError as error:
            print(type(error).__name__, str(error).count("\\n"), len(collection), len(collection.search(like=1, k=50)))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["CollectionError", "0", "40", "39"], done.stdout + done.stderr
    with Collection.open(copy) as collection:
        assert len(collection) == 40
        assert collection.add([NewItem("new0", None, "now there is room")]).added == 1
