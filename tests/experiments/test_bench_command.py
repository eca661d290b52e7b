"""`fusehash bench`: what is printed where, and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fusehash import hashers
from fusehash.cli import app
from fusehash.datasets import make_paired
from fusehash.experiments.store import ResultStore
from refusals import wrong

Run = Callable[..., Result]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["bench", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    made = make_paired(120, n_classes=4, n_query=20, views={"image": 16, "text": 12})
    np.savez(path / "small.npz", **made.views, labels=made.labels, train_idx=made.train, test_idx=made.query)
    good = "title: Tiny\ndataset: small.npz\nbits: [16, 32]\nseeds: 2\nprotocols: [U]\n"
    (path / "tiny.yaml").write_text(f"{good}methods: [regression, random]\n")
    failing = "{method: agsfh, params: {n_anchors: 9999}}"
    (path / "failing.yaml").write_text(f"{good}methods: [random, {failing}]\n")
    return path


@pytest.mark.parametrize("command", ["run", "report", "methods"])
def test_help_shows_an_example(bench, command):
    result = bench(command, "--help")
    assert result.exit_code == 0
    assert f"Example: fusehash bench {command}" in result.stdout


def test_the_help_of_bench_shows_an_example(bench):
    assert "Example: fusehash bench run" in bench("--help").stdout


@pytest.mark.parametrize("command", ["run", "report"])
def test_results_in_a_file_are_refused(bench, folder, tmp_path, command):
    option, file = {"run": "--out", "report": "--results"}[command], tmp_path / "afile"
    file.write_text("old")
    wrong(bench(command, folder / "tiny.yaml", option, file), f"must be a folder. '{file}' is a file.")
    assert file.read_text() == "old"


def test_a_report_of_nothing_leaves_the_old_one_alone(bench, folder, tmp_path):
    old = tmp_path / "report" / "tiny.html"
    old.parent.mkdir()
    old.write_text("old")
    (tmp_path / "empty").mkdir()
    for results in ("missing", "empty"):
        words = ("report", folder / "tiny.yaml", "--results", tmp_path / results)
        wrong(bench(*words, "--out", old.parent), f"None of tiny is in '{tmp_path / results}'")
        wrong(bench(*words, "--out", tmp_path / "new"), "to compute them: fusehash bench run tiny.yaml --data DATA")
    assert [file.name for file in old.parent.iterdir()] == ["tiny.html"]
    assert old.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "report"]


def test_data_without_labels_is_refused(bench, folder, tmp_path):
    with np.load(folder / "small.npz") as made:
        np.savez(tmp_path / "small.npz", image=made["image"], text=made["text"])
    result = bench("run", folder / "tiny.yaml", "--data", tmp_path, "--out", tmp_path / "r")
    assert result.exit_code == 1
    assert "Experiments need labels to know what is relevant. Data set 'small' has none." in result.stderr
    assert not (tmp_path / "r").exists()


def test_methods(bench):
    listed = json.loads(bench("methods", "--json").stdout)
    assert [entry["name"] for entry in listed] == hashers.names()
    assert all(entry["reference"] and entry["basis"] for entry in listed)
    table = bench("methods").stdout
    assert all(name in table for name in hashers.names())


@pytest.mark.usefixtures("inline")
def test_run_and_run_again(bench, folder, tmp_path):
    words = ("run", folder / "tiny.yaml", "--data", folder, "--out", tmp_path / "r", "--workers", 1)
    narrow = ("--only", "Random", "--bits", "16", "--seeds", 1)
    first = bench(*words, *narrow)
    assert first.exit_code == 0, first.stderr
    assert "tiny: 1 runs computed, 0 found in" in first.stdout
    assert "Next: fusehash bench report" in first.stdout
    second = json.loads(bench(*words, *narrow, "--json").stdout)
    assert (second["computed"], second["reused"], second["failed"]) == (0, 1, [])
    third = json.loads(bench(*words, *narrow, "--again", "--json").stdout)
    assert (third["computed"], third["reused"]) == (1, 0)
    assert len(ResultStore(tmp_path / "r")) == 1


@pytest.mark.usefixtures("inline")
def test_a_failure_is_said_and_is_exit_1(bench, folder, tmp_path):
    words = ("run", folder / "failing.yaml", "--data", folder, "--out", tmp_path / "r", "--workers", 1)
    result = bench(*words, "--bits", "16", "--seeds", 1, "--json")
    assert result.exit_code == 1
    (failure,) = json.loads(result.stdout)["failed"]
    assert (failure["label"], failure["n_bits"], failure["seed"]) == ("AGSFH", 16, 0)
    assert "fusehash: failed: AGSFH, 16 bits, seed 0, train of small: The 'n_anchors' parameter" in result.stderr
    assert len(ResultStore(tmp_path / "r")) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing",), "or one of embeddings/table, frozen/dcmh"),
        (("tiny.yaml", "--only", "wings"), "Got 'wings' instead"),
        (("tiny.yaml", "--bits", "24"), "Got 24 instead"),
        (("tiny.yaml", "--seeds", "3"), "has 2 seeds"),
        (("paper/table2",), "mirflickr25k.npz, mirflickr25k.mat, mirflickr.mat, FLICKR-25K.mat; use --stand-in"),
    ],
)
def test_wrong_words_are_said_before_anything_runs(bench, folder, tmp_path, words, sentence):
    name = folder / words[0] if words[0].endswith(".yaml") else words[0]
    wrong(bench("run", name, *words[1:], "--data", folder, "--out", tmp_path / "r"), sentence)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "words", [("run",), ("run", "x", "--bits", "many"), ("run", "x", "--workers", 0), ("nonsense",)]
)
def test_wrong_usage_is_exit_2(bench, words):
    result = bench(*words)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_report_hands_over_to_the_report(bench, folder, tmp_path, monkeypatch):
    calls = []

    def write_report(spec, store, out, *, formats, progress=None, results=None, examples=()):
        calls.append((spec.name, spec.bits, store.folder, out, list(formats)))
        return [out / "report.html"]

    fake = ModuleType("fusehash.experiments.report")
    fake.terminal_table = lambda spec, store, results: f"table of {spec.name}"
    fake.write_report = write_report
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    result = bench("report", folder / "tiny.yaml", "--results", tmp_path, "--out", tmp_path / "o", "--bits", "16")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"table of tiny\nWrote {tmp_path / 'o' / 'report.html'}.\n"
    assert calls == [("tiny", (16,), tmp_path, tmp_path / "o", ["html", "csv", "latex"])]
    bench("report", folder / "tiny.yaml", "--results", tmp_path, "--format", "csv")
    assert calls[-1][-1] == ["csv"]
