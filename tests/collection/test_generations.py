"""Generations: built next to the current one, switched to at once, switched back; never a mixture of two."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from fusehash.collection import Collection, CollectionError, CorruptCollectionError, NewItem, training
from fusehash.collection.encoding import load_encoder
from fusehash.collection.features import FeatureCache
from fusehash.collection.training import held_out_model, quality_of
from fusehash.errors import DataError, FusehashError, ParameterError
from hostile.scale import cases

HERE = Path(__file__).parent


def codes(collection: Collection) -> dict[str, bytes]:
    """The current code of every item, by key."""
    index = collection._now().index
    known = dict(zip(index.ids.tolist(), index.get(index.ids), strict=True))
    return {key: known[entry.id].tobytes() for key, entry in collection._stored().items() if entry.id in known}


def check(collection: Collection) -> None:
    """Every item has the code that the current model gives it."""
    state, entries = collection._now().state, list(collection._stored().values())
    model = training.load_model(collection.path, state.model)
    encoders = {view: load_encoder(collection.path, view, name) for view, name in state.encoder_names.items()}
    features = FeatureCache(collection.path / "features.db")
    expected = training.encode(model, training.matrices(entries, encoders, features))
    features.close()
    assert codes(collection) == dict(zip((entry.key for entry in entries), expected, strict=True))
    assert state.codes == len(entries)


def numbers(collection: Collection) -> list[tuple[int, bool]]:
    return [(each.number, each.current) for each in collection.generations()]


def test_the_current_generation_stays_until_the_switch(small, items, tmp_path):
    small.add(items(44)[40:])
    before, hits = codes(small), small.search("a red thing", k=50)
    shutil.copytree(small.path, tmp_path / "in place")
    report = small.build_generation()
    assert (report.generation, report.trained, report.unchanged) == (2, True, 44)
    assert codes(small) == before
    assert small.search("a red thing", k=50) == hits
    assert hits.generation == small.generation == 1
    assert numbers(small) == [(1, True), (2, False)]
    assert small.stats()["after_training"] == 4
    report = small.switch()
    assert (report.generation, report.changed, report.unchanged) == (2, 0, 44)
    assert small.stats()["after_training"] == 0
    assert small.search("a red thing", k=50).generation == small.generation == 2
    with Collection.open(tmp_path / "in place") as reference:  # the same training, done at once
        reference.reindex()
        assert codes(small) == codes(reference) != before
        assert small.search("a red thing", k=50) == reference.search("a red thing", k=50)
    check(small)


def test_going_back_and_forth(small):
    first = codes(small)
    small.build_generation(random_state=7)
    assert small.switch().generation == 2
    second = codes(small)
    assert second != first
    for number, expected in ((1, first), (2, second), (1, first)):
        assert small.switch(back=True).generation == number
        assert codes(small) == expected
        check(small)
    assert [(each.number, each.current, each.previous) for each in small.generations()] == [
        (1, True, False),
        (2, False, True),
    ]
    assert [each.random_state for each in small.generations()] == [0, 7]


def test_a_generation_brings_its_settings(small, items):
    small.build_generation(n_bits=64, text_params={"odd": 1})
    assert small.settings.n_bits == 32
    small.switch()
    assert (small.settings.n_bits, small.stats()["n_bits"], small.settings.text.params) == (64, 64, {"odd": 1})
    hits = small.search("a red thing", k=3)
    assert len(hits.code) == len(hits[0].code) == 8
    small.add([NewItem("new", None, "a red thing")])
    check(small)
    small.reindex()  # in place: the current generation is trained again, with its own settings
    assert (small.settings.n_bits, small.generation) == (64, 3)
    assert numbers(small) == [(1, False), (3, True)]
    with Collection.open(small.path) as again:
        assert again.settings == small.settings
        assert len(again.query_code(text="a red thing")) == 8
    small.switch(back=True)
    assert small.settings.n_bits == 32
    assert len(small.search("a red thing", k=50)) == 41
    check(small)
    assert small.build(items(100)).trained
    check(small)


def test_what_happens_meanwhile_is_in_it(small, draw):
    """Items come, change and go while the generation is built, from another process's point of view."""
    done = []

    def meanwhile(step, total, message):
        if message == "learning codes" and not done:
            done.append(message)
            with Collection.open(small.path) as other:
                other.add([NewItem("came", draw("blue", 90), "a blue thing"), NewItem("words", None, "a green thing")])
                red = next(item for item in other.items(0, 100) if item.key == "red0")
                other.update([NewItem("red0", draw("yellow", 91), "a yellow thing")])
                other.remove([other.items(0, 100)[5].id])
                assert red.id in {hit.id for hit in other.search("a yellow thing", k=50)}

    small.build_generation(meanwhile, n_bits=48)
    assert done
    report = small.switch()
    assert (report.changed, report.unchanged) == (3, 38)
    assert len(small) == len(codes(small)) == 41
    assert {"came", "words", "red0"} <= set(codes(small))
    check(small)
    assert small.stats()["after_training"] == 3
    small.add([NewItem("later", None, "a red thing")])
    assert small.switch(back=True).changed == 1
    assert set(codes(small)) == set(small._stored())
    check(small)


def test_a_reindex_meanwhile_leaves_the_builder_its_files(small):
    done = []

    def meanwhile(step, total, message):
        if message == "writing" and not done:
            done.append(message)
            with Collection.open(small.path) as other:
                other.add([NewItem("new", None, "quite another text")])
                other.reindex()

    small.build_generation(meanwhile, n_bits=16)
    assert small.switch().changed == 1
    check(small)
    assert small.search("quite another text", k=1)[0].item.key == "new"
    small.switch(back=True)
    check(small)


def test_writers_need_not_wait(small):
    """The lock of writers is free while a generation is built; only one is built at a time."""
    started, go_on = threading.Event(), threading.Event()

    def slow(step, total, message):
        started.set()
        assert go_on.wait(300)

    thread = threading.Thread(target=small.build_generation, args=(slow,))
    thread.start()
    try:
        assert started.wait(300)
        with Collection.open(small.path, timeout=0.2) as other:
            other.add([NewItem("new", None, "a red thing")])
            assert len(other.search("a red thing", k=50)) == 41
            with pytest.raises(CollectionError, match="Another process is building a generation"):
                other.build_generation()
    finally:
        go_on.set()
        thread.join()
    assert small.switch().changed == 1
    check(small)


def test_dropping(small):
    for seed in (1, 2):
        small.build_generation(random_state=seed, measure=False)
    size = sum(path.stat().st_size for path in small.path.glob("model-*"))
    small.switch(2)
    with pytest.raises(DataError, match="Generation 2 is current and cannot be dropped"):
        small.drop(2)
    with pytest.raises(DataError, match=r"must be one that is kept \(1, 3\)\. Got 9"):
        small.drop(9)
    small.drop(3)
    small.drop(1)
    assert numbers(small) == [(2, True)]
    assert len(list(small.path.glob("model-*"))) == 1
    assert sum(path.stat().st_size for path in small.path.glob("model-*")) < size
    for go in ({"back": True}, {}, {"to": 1}, {"to": 2}):
        with pytest.raises(DataError, match=r"[Gg]eneration"):
            small.switch(**go)
    check(small)
    assert small.build_generation(measure=False).generation == 4  # a number is never given again


def test_what_cannot_be_asked_for(small, tmp_path):
    with pytest.raises(ParameterError, match="n_bits"):
        small.build_generation(n_bits=12)
    with pytest.raises(FusehashError):
        small.build_generation(image_encoder="none such")
    with pytest.raises(DataError, match="Got both"):
        small.switch(1, back=True)
    with pytest.raises(DataError, match="current already"):
        small.switch(1)
    with Collection.create(tmp_path / "empty") as empty:
        with pytest.raises(DataError, match="at least 2 items"):
            empty.build_generation()
        assert numbers(empty) == [(1, True)]
    assert numbers(small) == [(1, True)]


def test_a_code_is_of_one_generation(small):
    hits = small.search("a red thing", k=5)
    assert small.search(code=hits.code, generation=hits.generation, k=5)
    small.build_generation(random_state=3, measure=False)
    small.switch()
    with pytest.raises(DataError, match="generation 1; generation 2 is current"):
        small.search(code=hits.code, generation=hits.generation, k=5)


def test_a_code_is_of_one_model(small, items):
    """A reindex in place, or a build that trains again, makes other codes; those that were kept are refused."""
    hits = small.search(code=small.query_code(text="a red thing"), k=5)
    small.reindex()  # of the same items: the same model, the same codes
    assert small.search(code=hits.code, generation=hits.generation, k=5) == hits
    small.add(items(44)[40:])
    assert small.generation == 1
    small.reindex()
    assert numbers(small) == [(2, True)]
    with pytest.raises(DataError, match="generation 1; generation 2 is current"):
        small.search(code=hits.code, generation=hits.generation, k=5)
    assert small.build(items(100)).trained
    assert numbers(small) == [(3, True)]
    assert small.build_generation(measure=False, random_state=3).generation == 4
    check(small)


@pytest.mark.parametrize("stage", ["learning codes", "measuring on held-out pairs", "encoding texts", "writing"])
def test_a_build_that_was_cut_off_leaves_nothing_but_caches(small, items, stage):
    small.add([NewItem("new", None, "other words")])
    before = codes(small)

    def stop(step, total, message):
        if message == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.build_generation(stop, n_bits=64)
    assert numbers(small) == [(1, True)]
    assert codes(small) == before
    assert small.build_generation(n_bits=64).generation == 2
    small.switch()
    check(small)
    small.drop(1)
    assert len(list(small.path.glob("model-*"))) == len(list(small.path.glob("text-*"))) == 1


def test_a_switch_that_was_cut_off_has_not_happened(small):
    small.build_generation(text_params={"odd": 1}, measure=False)
    small.add([NewItem("new", None, "other words")])
    before = codes(small)
    for stage in ("encoding texts", "writing"):

        def stop(step, total, message, stage=stage):
            if message == stage:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            small.switch(progress=stop)
        assert codes(small) == before
        assert numbers(small) == [(1, True), (2, False)]
    assert small.switch().changed == 1
    check(small)
    small.close()
    assert "32 bits" in repr(small)


def test_quality_is_measured_on_pairs_that_were_not_seen(small, items, draw):
    assert small.generations()[0].quality is None
    small.build(items(80))
    small.build_generation(n_bits=16)
    first, second = small.generations()  # the current one is measured too
    assert first.quality is not None
    assert 0.7 < first.quality <= 1.0
    assert second.quality is not None
    assert 0.7 < second.quality <= 1.0
    state, entries = small._now().state, list(small._stored().values())
    encoders = {
        "image": load_encoder(small.path, "image", state.image_encoder),
        "text": load_encoder(small.path, "text", state.text_encoder),
    }
    features = FeatureCache(small.path / "features.db")
    measured = quality_of(held_out_model(entries, encoders, features, small.settings, lambda *step: None))
    assert measured == first.quality
    rng, texts = np.random.default_rng(0), [entry.text for entry in entries]
    for entry, other in zip(entries, rng.permutation(len(entries)), strict=True):
        entry.text = texts[other]  # pairs that do not belong together
    torn = quality_of(held_out_model(entries, encoders, features, small.settings, lambda *step: None))
    assert torn is not None
    assert torn < measured - 0.1
    assert quality_of(held_out_model(entries[:30], encoders, features, small.settings, lambda *step: None)) is None
    features.close()


def test_damage_to_a_kept_generation_leaves_the_current_one_intact(small):
    small.build_generation(measure=False)
    small.close()
    with sqlite3.connect(small.path / "items.db") as database:
        database.execute("UPDATE generation_code SET code = x'00112233' WHERE id = 3")
    with Collection.open(small.path) as collection:
        with pytest.raises(CorruptCollectionError, match="codes of generation 2"):
            collection.switch()
        assert len(collection.search("a red thing", k=50)) == 40
        collection.drop(2)
        collection.build_generation(measure=False)
        collection.switch()
        check(collection)


@pytest.mark.slow
def test_a_reader_in_another_process_sees_one_generation_or_the_other(small):
    program = textwrap.dedent(f"""
        import json, sys, threading
        sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
        import fake_encoders; fake_encoders.install()
        from fusehash.collection import Collection
        collection, stop = Collection.open({str(small.path)!r}), threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
        while not stop.is_set():
            hits = collection.search("a red thing", k=50)
            codes = {{hit.id: hit.code.hex() for hit in hits}}
            print(json.dumps([hits.generation, hits.code.hex(), codes]), flush=True)
    """)
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    expected = {}

    def note() -> None:
        index, query = small._now().index, small.query_code(text="a red thing").hex()
        rows = dict(zip(index.ids.tolist(), (code.tobytes().hex() for code in index.get(index.ids)), strict=True))
        expected[small.generation] = (query, rows)

    note()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=one_thread,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = [process.stdout.readline()]
        drain = threading.Thread(target=lambda: lines.extend(process.stdout))
        drain.start()
        for settings in ({"n_bits": 64}, {"n_bits": 32, "random_state": 5}):
            small.build_generation(measure=False, **settings)
            small.switch()
            note()
            small.switch(back=True)
            small.switch(back=True)
        seen = len(lines)
        while len(lines) < seen + 5:  # the last generation is seen too
            assert process.poll() is None
            drain.join(0.01)
        process.stdin.close()
        drain.join(300)
        assert process.wait(300) == 0
    answers = [json.loads(line) for line in lines]
    assert {answer[0] for answer in answers} >= {1, 3}
    for number, query, hits in answers:
        assert query == expected[number][0]
        assert {int(id): code for id, code in hits.items()} == expected[number][1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")
def test_kill_9_while_building_switching_and_dropping(tmp_path):
    rounds = cases(12, 200)
    command = [sys.executable, "-W", "ignore", str(HERE / "generation_rounds.py"), str(tmp_path), str(rounds), "3"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["acknowledged"] > rounds
    assert min(outcome["kinds"]["switch"], outcome["kinds"]["generation"]) > (2 if rounds >= 16 else 1)
    assert not run.stderr
