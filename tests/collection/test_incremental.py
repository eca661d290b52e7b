"""Building again does only what is not done yet, and goes on where it was cut off."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.collection import Collection, NewItem, encoding, read_folder
from fusehash.collection.features import _packed, _unpacked
from fusehash.errors import DataError

LONG_AGO = 1_700_000_000


def work(fakes):
    """What the encoders have done since last asked."""
    done = dict(fakes.COUNTS)
    fakes.COUNTS.update(dict.fromkeys(fakes.COUNTS, 0))
    return done


@pytest.fixture
def collection(tmp_path, fakes):
    with Collection.create(tmp_path / "c", n_bits=16) as made:
        yield made


def test_nothing_changed_nothing_done(collection, photos, fakes):
    assert collection.build(read_folder(photos)).added == 24
    work(fakes)
    before = collection._now().state
    report = collection.build(read_folder(photos))
    assert (report.added, report.changed, report.removed, report.unchanged, report.trained) == (0, 0, 0, 24, False)
    assert work(fakes) == {"fit": 0, "image": 0, "text": 0}
    assert collection._now().state == before


def test_files_are_not_even_read_again(collection, photos, monkeypatch):
    collection.build(read_folder(photos))
    monkeypatch.setattr("fusehash.collection.items.Entry.read", lambda self: pytest.fail("read again"))
    assert collection.build(read_folder(photos)).unchanged == 24


def test_a_touched_file_is_read_but_not_encoded(collection, photos, fakes):
    collection.build(read_folder(photos))
    work(fakes)
    os.utime(photos / "red0.png", (LONG_AGO + 9, LONG_AGO + 9))
    assert collection.build(read_folder(photos)).unchanged == 24
    assert work(fakes)["image"] == 0


def test_only_what_changed_is_encoded(collection, photos, fakes, draw):
    collection.build(read_folder(photos))
    work(fakes)
    (photos / "red0.png").write_bytes(draw("blue", 50))
    (photos / "green1.txt").write_text("quite another text")
    (photos / "new.png").write_bytes(draw("green", 51))
    (photos / "blue2.png").unlink()
    report = collection.build(read_folder(photos))
    assert (report.added, report.changed, report.removed, report.unchanged) == (1, 2, 1, 21)
    assert work(fakes) == {"fit": 0, "image": 2, "text": 1}
    assert collection.items(0, 1)[0].key == "blue10.png"


def test_content_that_changed_within_the_clock_is_noticed(collection, photos, draw):
    path = photos / "red0.png"
    path.write_bytes(draw("red", 60))
    collection.build(read_folder(photos))  # the file is new: its time is not trusted
    seen = path.stat()
    path.write_bytes(draw("red", 60)[:-1] + b"\0")
    os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    report = collection.build(read_folder(photos))
    assert report.changed == 1


def test_items_that_came_by_add_stay(collection, photos):
    collection.build(read_folder(photos))
    collection.add([NewItem("by hand", None, "a red thing")])
    assert collection.build(read_folder(photos)).removed == 0
    assert len(collection) == 25


def test_an_image_that_breaks_leaves(collection, photos):
    collection.build(read_folder(photos))
    (photos / "red0.png").write_bytes(b"broken")
    (photos / "green1.png").write_bytes(b"broken")
    (photos / "green1.txt").unlink()
    report = collection.build(read_folder(photos))
    assert set(report.skipped) == {"red0.png", "green1.png"}
    assert (report.changed, report.removed) == (1, 1)
    assert "red0.png" in {hit.item.key for hit in collection.search("a red thing", k=24)}
    os.utime(photos / "red0.png", (LONG_AGO, LONG_AGO))
    collection.build(read_folder(photos))
    again = collection.build(read_folder(photos))
    assert again.changed == 0
    assert "red0.png" in again.skipped


def test_texts_that_come_later_are_learned_from(collection, photos):
    images = [NewItem(item.key, item.image) for item in read_folder(photos)]
    collection.build(images)
    with pytest.raises(DataError, match="made without texts"):
        collection.search("a red thing")
    assert collection.search(image=photos / "red0.png", k=1)[0].item.key == "red0.png"
    assert collection.build(read_folder(photos)).trained
    assert collection.search("a red thing", k=1)[0].item.text.startswith("a red")


def test_a_collection_that_has_outgrown_its_model_learns_anew(collection, items):
    collection.build(items(8))
    assert not collection.build(items(12)).trained
    assert collection.build(items(40)).trained
    assert collection.stats()["after_training"] == 0


@pytest.mark.parametrize("stage", ["encoding images", "encoding texts", "learning codes", "writing"])
def test_a_build_that_was_cut_off_goes_on(tmp_path, fakes, items, stage, monkeypatch):
    monkeypatch.setattr("fusehash.collection.encoding.BATCH_ITEMS", 4)

    def stop(step, total, message):
        if message == stage and (step or stage != "encoding images"):
            raise KeyboardInterrupt

    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        with pytest.raises(KeyboardInterrupt):
            collection.build(items(24), progress=stop)
        assert len(collection) == 0
        before = work(fakes)
        report = collection.build(items(24))
        after = work(fakes)
    assert report.added == 24
    assert after["fit"] == 0
    assert before["image"] + after["image"] == 24  # every image once
    with Collection.create(tmp_path / "whole", n_bits=16) as whole, Collection.open(tmp_path / "c") as resumed:
        whole.build(items(24))
        assert resumed.search("a red thing", k=24) == whole.search("a red thing", k=24)


def test_files_of_earlier_models_do_not_pile_up(collection, items):
    for count in (8, 30, 90):
        collection.build(items(count))
        collection.reindex()
    names = sorted(path.name.split("-")[0] for path in collection.path.iterdir() if not path.name.startswith("items"))
    assert names == ["collection.json", "features.db", "image", "model", "text", "writer.lock"]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1), st.sampled_from([1e-6, 1.0, 1e7]), st.integers(0, 2**32 - 1))
def test_features_come_back_from_the_cache(width: int, zeros: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = np.where(rng.random(width) < zeros, 0.0, scale * rng.normal(size=width)).astype(np.float32)
    blob = _packed(row)
    assert blob is not None
    assert len(blob) <= 4 * width
    again = _unpacked(blob, width)
    assert again is not None
    is_half = scale == 1.0 and (not row.any() or np.abs(row).max() > 1e-2)
    assert np.array_equal(again, row.astype(np.float16).astype(np.float32) if is_half else row)
    assert _unpacked(blob, width + 1) is None or len(blob) in (2 * (width + 1), 4 * (width + 1))
    assert _packed(np.full(3, np.nan, np.float32)) is None


def test_an_interrupted_build_goes_on_with_the_first_picture_that_is_not_encoded(
    collection, photos, fakes, monkeypatch
) -> None:
    """SIGINT, as from Ctrl-C, while the third batch of pictures is encoded."""
    monkeypatch.setattr(encoding, "BATCH_ITEMS", 5)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it

    def interrupt(step: int, total: int, message: str) -> None:
        if message == "encoding images" and step == 10:
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            collection.build(read_folder(photos), interrupt)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert collection.stats()["items"] == 0
    assert work(fakes)["image"] == 10
    assert collection.build(read_folder(photos)).added == 24
    assert work(fakes)["image"] == 14
    assert collection.search("a red thing", k=1)[0].item.text.startswith("a red")
