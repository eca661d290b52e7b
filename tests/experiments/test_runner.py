"""The runner: stored codes are what `evaluate` would use, nothing is computed twice, and nothing that dies is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash import hashers
from fusehash.datasets import PairedDataset, load, make_paired
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.evaluation import average_precision, evaluate
from fusehash.experiments import runner
from fusehash.experiments.runner import RunState, Source, Summary, compute, describe, find_source, longest_first, run
from fusehash.experiments.spec import DatasetSpec, Spec, parse_spec, planned
from fusehash.experiments.store import ResultStore, RunSettings, searched

PROTOCOLS = ("U", "H", "HN", "FN")
unix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def tiny(**changes: Any) -> Spec:
    content = {"title": "Tiny", "dataset": "small.npz", "methods": ["regression", "random"], "bits": [16], "seeds": 2}
    return parse_spec({**content, **changes}, "tiny")


def write(made: PairedDataset, path: Path) -> None:
    rows = {"train_idx": made.train, "test_idx": made.query, "database_idx": made.database}
    np.savez(path, **made.views, labels=made.labels, **rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set whose database is its training rows, one with new rows, and one with several labels an item."""
    path = tmp_path_factory.mktemp("data")
    shape: dict[str, Any] = {"n_classes": 4, "n_query": 30, "views": {"image": 16, "text": 12}}
    made = make_paired(150, **shape)
    write(made, path / "small.npz")
    write(make_paired(200, n_train=100, **shape), path / "new.npz")
    labels = np.random.default_rng(0).integers(0, 2, (150, 5), dtype=np.uint8)
    np.savez(path / "multi.npz", **made.views, labels=labels, train_idx=made.train, test_idx=made.query)
    return path


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ResultStore, Summary, list[RunState]]:
    """One real run with two processes."""
    store, states = ResultStore(tmp_path_factory.mktemp("results")), []
    return store, run(tiny(), folder, store, workers=2, progress=states.append), states


def no_leftovers(store: ResultStore) -> None:
    files = [file for file in store.folder.rglob("*") if file.is_file()]
    assert all(file.suffix == ".safetensors" for file in files)


# ---- what is stored


def test_everything_is_computed_once(results):
    store, summary, states = results
    assert (summary.computed, summary.reused, summary.failed) == (8, 0, ())
    assert len(store) == 8
    assert summary.seconds > 0
    no_leftovers(store)
    assert (states[0].done, states[0].total, states[0].seconds_left) == (0, 8, None)
    assert states[-1].done == 8
    assert states[-1].running == ()
    assert max(len(state.running) for state in states) == 2
    assert "REG 16 bits, seed 0" in {entry for state in states for entry in state.running}


def test_a_second_run_computes_nothing(results, folder):
    store, _, _ = results
    before = {file: file.stat().st_mtime_ns for file in store.folder.glob("runs/*/*")}
    summary = run(tiny(), folder, store, workers=2)
    assert (summary.computed, summary.reused, summary.failed) == (0, 8, ())
    assert {file: file.stat().st_mtime_ns for file in store.folder.glob("runs/*/*")} == before


def check_against_evaluate(store: ResultStore, data: PairedDataset, method: str, seeds: range) -> None:
    """Stored codes give the AP of every query that `evaluate` gives, for all protocols and directions."""
    expected = evaluate(hashers.make(method, n_bits=16, n_threads=1), data, k=20, ties="stable", seeds=seeds)
    record = store.dataset(data.fingerprint)
    for protocol in PROTOCOLS:
        for views in permutations(record.views, 2):
            score = expected[protocol, f"{views[0]}->{views[1]}"]
            for i, seed in enumerate(seeds):
                settings = RunSettings(record.fingerprint, method, {}, 16, seed, record.rows.stage(protocol))
                run_record = store.get(settings)
                assert run_record is not None
                query, database, query_labels, labels = searched(run_record, record, protocol, *views)
                values = average_precision(query, database, (query_labels, labels), k=20, ties="stable")
                np.testing.assert_array_equal(values, score.per_query[i])


@pytest.mark.parametrize("method", ["regression", "random"])
def test_stored_codes_are_those_of_evaluate(results, folder, method):
    check_against_evaluate(results[0], load(folder / "small.npz"), method, range(2))


@pytest.mark.parametrize("name", ["new.npz", "multi.npz"])
def test_stored_codes_are_those_of_evaluate_on_other_data(folder, tmp_path, name):
    store, source = ResultStore(tmp_path), Source(DatasetSpec(name, {}), folder, stand_in=False)
    data, record = source.load(), describe(source)
    store.put_dataset(record)
    for entry in planned(tiny(methods=["regression"], seeds=1), record):
        store.put(compute(entry.settings, data))
    assert {record.settings.stage for record in store} == ({"train"} if name == "new.npz" else {"train", "half"})
    check_against_evaluate(store, data, "regression", range(1))


def test_a_record_tells_how_it_came_about(results):
    for record in results[0]:
        assert record.fit_seconds > 0
        assert record.encode_seconds.keys() == {"image", "text"}
        assert {"fusehash", "numpy", "scipy", "numba", "python", "platform"} == record.versions.keys()
        assert record.created.startswith("20")
        assert (record.objective is not None) == (record.settings.method == "regression")


def test_warnings_are_kept(folder):
    data = load(folder / "small.npz")
    record = compute(RunSettings(data.fingerprint, "regression", {}, 64, 0, "train"), data, warm_up=True)
    assert any("64 bits" in sentence for sentence in record.warnings)


def test_supervised_methods_learn_from_the_labels(folder, monkeypatch):
    data = load(folder / "small.npz")
    seen = []
    cls = hashers.get("regression")
    usual = cls._fit
    monkeypatch.setattr(cls, "supervised", True)
    monkeypatch.setattr(cls, "_fit", lambda self, views, labels: (seen.append(labels), usual(self, views, labels))[1])
    compute(RunSettings(data.fingerprint, "regression", {}, 16, 0, "train"), data)
    assert np.array_equal(seen[0].argmax(axis=1), data.labels[data.train])


def test_methods_without_randomness_train_once(folder, monkeypatch):
    from fusehash.experiments.store import settings as module

    monkeypatch.setattr(module, "settings_of", lambda method: ({}, False))
    record = describe(Source(DatasetSpec("small.npz", {}), folder, stand_in=False))
    keys = {(entry.settings.stage, entry.settings.key) for entry in planned(tiny(methods=["random"], seeds=3), record)}
    assert sorted(stage for stage, _ in keys) == ["half", "half", "half", "train"]


def test_long_codes_come_first(folder):
    record = describe(Source(DatasetSpec("small.npz", {}), folder, stand_in=False))
    order = [
        (entry.settings.n_bits, entry.settings.stage) for entry in longest_first(planned(tiny(bits=[8, 16]), record))
    ]
    assert order == [*[(16, "train")] * 4, *[(16, "half")] * 4, *[(8, "train")] * 4, *[(8, "half")] * 4]


# ---- what goes wrong


@pytest.mark.usefixtures("inline")
def test_a_damaged_result_is_computed_again(folder, tmp_path):
    spec, store = tiny(methods=["random"], seeds=1, protocols=["U"]), ResultStore(tmp_path)
    data = load(folder / "small.npz")
    good = compute(RunSettings(data.fingerprint, "random", {}, 16, 0, "train"), data)
    store.put(good)
    file = next(store.folder.glob("runs/*/*"))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.warns(FusehashWarning, match=file.name):
        summary = run(spec, folder, store, workers=1)
    assert (summary.computed, summary.reused) == (1, 0)
    again = ResultStore(tmp_path).get(good.settings)
    assert again is not None
    assert np.array_equal(again.codes["unified"], good.codes["unified"])


CUSTOM = "import os, stat, signal, sys, time\nfrom pathlib import Path\n"


def patch_processes(folder: Path, code: str) -> str:
    """A folder that, first on PYTHONPATH, runs some code in every Python process that starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CUSTOM + textwrap.dedent(code))
    return str(folder)


@unix
@pytest.mark.slow
def test_a_run_that_raises_and_one_that_is_killed_do_not_stop_the_others(folder, tmp_path, monkeypatch):
    code = """
        from fusehash.hashers.controls import RandomRotationHasher as Hasher
        usual = Hasher._fit
        def fit(self, views, labels):
            if self.n_bits == 24:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.n_bits == 32:
                raise ZeroDivisionError("one by nothing")
            return usual(self, views, labels)
        Hasher._fit = fit
    """
    monkeypatch.setenv("PYTHONPATH", patch_processes(tmp_path / "patch", code))
    bad = {"label": "bad", "method": "agsfh", "params": {"n_anchors": 10_000}, "bits": [16]}
    spec = tiny(methods=["random", bad], bits=[8, 16, 24, 32], seeds=1, protocols=["U"])
    store, states = ResultStore(tmp_path / "results"), []
    summary = run(spec, folder, store, workers=1, progress=states.append)
    assert (summary.computed, len(summary.failed)) == (2, 3)
    reasons = {(failure.label, failure.n_bits): failure.reason for failure in summary.failed}
    title = hashers.info("random").title
    assert reasons[title, 24] == "The process was killed by SIGKILL; perhaps the memory was not enough."
    assert reasons[title, 32].startswith("ZeroDivisionError: one by nothing (sitecustomize, line ")
    assert "'n_anchors' parameter of AGSFH" in reasons["bad", 16]
    assert str(summary.failed[0]).startswith(f"{title}, 32 bits, seed 0, train of small: ZeroDivisionError")
    assert [state.failure for state in states if state.failure] == list(summary.failed)
    assert sorted(record.settings.n_bits for record in store) == [8, 16]
    no_leftovers(store)

    monkeypatch.delenv("PYTHONPATH")
    summary = run(spec, folder, store, workers=1)
    assert (summary.computed, summary.reused, len(summary.failed)) == (2, 2, 1)


@unix
@pytest.mark.slow
def test_ctrl_c_leaves_no_half_written_file_and_the_next_run_goes_on(folder, tmp_path):
    # The second file that a process writes hangs on its way to the disk, when Ctrl-C comes.
    marker = tmp_path / "writing"
    code = f"""
        usual, calls = os.fsync, []
        def fsync(handle):
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)  # folders are flushed, too
            calls.extend([handle] * is_file)
            if is_file and len(calls) == 2:
                Path({str(marker)!r}).write_text(str(os.getpid()))
                time.sleep(100)
            usual(handle)
        os.fsync = fsync
    """
    spec = tmp_path / "tiny.yaml"
    spec.write_text(
        "{title: Tiny, dataset: small.npz, methods: [regression, random], bits: [16], seeds: 1, protocols: [U]}"
    )
    out = tmp_path / "results"
    words = ["bench", "run", str(spec), "--data", str(folder), "--out", str(out), "--workers", "1"]
    # A job started in the background ignores SIGINT, and so do its children: ask for the usual Ctrl-C.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom fusehash.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": patch_processes(tmp_path / "patch", code)}
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not (marker.exists() and marker.read_text()):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    last = stderr.splitlines()[-1]
    assert last == f"fusehash: interrupted; the 1 finished runs are kept in {out}, the same command continues."
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)
    store = ResultStore(out)
    no_leftovers(store)
    assert [record.settings.method for record in store] == ["regression"]

    summary = run(tiny(seeds=1, protocols=["U"]), folder, store, workers=1)
    assert (summary.computed, summary.reused) == (1, 1)


@pytest.mark.usefixtures("inline")
def test_data_that_changes_meanwhile_is_noticed(folder, tmp_path, monkeypatch):
    usual = runner.describe
    copy = tmp_path / "small.npz"
    copy.write_bytes((folder / "small.npz").read_bytes())

    def then_change(source: Source) -> Any:
        record = usual(source)
        copy.write_bytes((folder / "new.npz").read_bytes())
        return record

    monkeypatch.setattr(runner, "describe", then_change)
    summary = run(tiny(seeds=1, protocols=["U"], methods=["random"]), tmp_path, ResultStore(tmp_path / "r"), workers=1)
    assert summary.computed == 0
    assert "changed while it was used" in summary.failed[0].reason


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_counted_in_whole_numbers(folder, tmp_path, workers):
    with pytest.raises(ParameterError, match="'workers' parameter of run"):
        run(tiny(), folder, ResultStore(tmp_path), workers=workers)


# ---- data that is not here

STAND_IN = {"n_samples": 90, "n_query": 20, "n_classes": 3, "views": {"image": 9, "text": 8}}


@pytest.mark.parametrize("name", ["wiki", "MirFlickr25K", "missing.npz"])
def test_data_that_is_not_here_is_named(tmp_path, name):
    files = {"wiki": "wiki.npz, wiki.mat, wikiData.mat", "MirFlickr25K": "mirflickr25k.npz, "}.get(name, name)
    with pytest.raises(DataError, match=f"The data set {name} is not here: .*{files}.*--stand-in") as caught:
        find_source(DatasetSpec(name, {}, STAND_IN), tmp_path, stand_in=False)
    assert str(caught.value).count(". ") == 0
    with pytest.raises(DataError) as caught:
        find_source(DatasetSpec(name, {}), tmp_path, stand_in=True)
    assert "--stand-in" not in str(caught.value)


@pytest.mark.usefixtures("inline")
def test_a_stand_in_is_marked(tmp_path):
    spec = tiny(dataset={"name": "wiki", "options": {"n_train": 50}, "stand_in": STAND_IN}, seeds=1, protocols=["U"])
    store = ResultStore(tmp_path)
    summary = run(spec, tmp_path, store, workers=1, stand_in=True)
    assert summary.computed == 2
    record = store.find_dataset("wiki", {"n_train": 50})
    assert record is not None
    assert (record.stand_in, record.name, record.n_rows) == (True, "wiki (stand-in)", 90)
    assert record.n_features == {"image": 9, "text": 8}


def test_real_data_comes_before_a_stand_in(folder):
    source = find_source(DatasetSpec("small.npz", {}, STAND_IN), folder, stand_in=True)
    assert not source.stand_in
    assert find_source(DatasetSpec(str(folder / "small.npz"), {}), None, stand_in=False).load().name == "small"


# -- deep methods


def test_the_device_of_deep_methods_is_stored(optional, inline, folder, tmp_path):
    optional("torch")
    deep = {"method": "jdsh", "params": {"hidden": 4, "epochs": 2, "batch_size": 30}}
    spec, store = tiny(methods=[deep, "regression"], seeds=1, protocols=["U"]), ResultStore(tmp_path)
    assert not run(spec, folder, store, device="cpu").failed
    devices = {record.settings.method: record.versions.get("device") for record in store}
    assert devices == {"jdsh": "cpu", "regression": None}
    assert run(spec, folder, store).reused == 2
