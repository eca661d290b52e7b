"""`fusehash bench run embeddings/table` over folders of .npy files: what is run, stored, reused and printed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fusehash import hashers
from fusehash.cli import app
from fusehash.evaluation import evaluate_embeddings
from fusehash.experiments.spec import load_spec
from joint import joint_embeddings

# 35 pairs are learned from, too few to tune with, so that every method of the specification is quick.
VIEWS = {name: X.astype(np.float32) for name, X in joint_embeddings(70, width=64).items()}
SPEC = load_spec("embeddings/table")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("embeddings")
    for name, views in (("whole", VIEWS), ("half", {name: X[:40] for name, X in VIEWS.items()})):
        (root / name).mkdir()
        for view, X in views.items():
            np.save(root / name / f"{view}.npy", X)
    return root


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["bench", *map(str, words)])


def parts():
    """The rows that are learned from, and those that are searched."""
    order = np.random.default_rng(0).permutation(70)
    return ({name: X[np.sort(rows)] for name, X in VIEWS.items()} for rows in (order[:35], order[35:]))


def test_every_method_runs_and_is_stored_printed_and_reused(bench, folder, tmp_path, optional):
    optional("faiss")
    first = bench("run", "embeddings/table", "--data", folder / "whole", "--bits", "64", "--seeds", "1", "--out", "r")
    assert first.exit_code == 0, first.stderr
    assert f"{len(SPEC.lines) + 1} runs computed, 0 found in r." in first.stdout
    rows = [json.loads(line) for line in (tmp_path / "r" / "embeddings" / "whole.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["floats", *(series.label for series in SPEC.lines)]
    learned, new = parts()
    for row in rows[1:]:
        model = hashers.make(row["method"], n_bits=64, random_state=0, **row["params"])
        scores = evaluate_embeddings(model.fit(learned), new)
        assert row["scores"]["floats"] == [score.row() for score in scores], row["label"]
        assert row["fit_seconds"] >= 0.0
        assert row["bytes"] == 8 + 8 * (row["method"] in ("fusehash", "rabitq"))
        for score in scores:
            assert f"{score.recall:.3f} {score.rescored_recall:.3f} {score.pair_recall:.3f}" in first.stdout
    again = bench("run", "embeddings/table", "--data", folder / "whole", "--bits", "64", "--seeds", "1", "--out", "r")
    assert f"0 runs computed, {len(rows)} found in r." in again.stdout
    shown = bench("report", "embeddings/table", "--results", "r", "--bits", "64", "--seeds", "1")
    assert shown.stdout.splitlines()[:-1] == again.stdout.splitlines()[:-2]


def test_what_the_vectors_find_is_counted(bench, folder, tmp_path):
    words = ("--only", "sign", "--bits", "64", "--seeds", "2", "--json")
    result = bench("run", "embeddings/table", "--data", folder, "--out", "r", *words)
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert (printed["computed"], printed["reused"]) == (2 * 3, 0)
    assert printed["files"] == ["r/embeddings/half.jsonl", "r/embeddings/whole.jsonl"]
    floats = json.loads((tmp_path / "r" / "embeddings" / "whole.jsonl").read_text().splitlines()[0])
    _, new = parts()
    units = {name: [x / np.linalg.norm(x) for x in X.astype(np.float64)] for name, X in new.items()}
    for score in floats["scores"]["floats"]:
        queries, items, hits = units[score["query_view"]], units[score["item_view"]], 0
        for i, q in enumerate(queries):
            hits += sum(q @ x > q @ items[i] for x in items) < 10
        assert score["pair_recall"] == pytest.approx(hits / 35)
        assert score["recall"] == 1.0
    means = [np.mean(units[name], axis=0) for name in units]
    assert floats["gap"] == pytest.approx(np.linalg.norm(means[0] - means[1]), abs=1e-6)
    assert (floats["n_learned"], floats["n_items"], floats["bytes"]) == (35, 35, 256)


def test_changed_vectors_are_other_runs(bench, tmp_path):
    (tmp_path / "set").mkdir()
    words = ("run", "embeddings/table", "--data", "set", "--only", "sign", "--bits", "64", "--seeds", "1", "--json")
    for scale, computed in ((1.0, 2), (1.0, 0), (1.5, 2)):
        for name, X in VIEWS.items():
            np.save(tmp_path / "set" / f"{name}.npy", X + scale)
        assert json.loads(bench(*words).stdout)["computed"] == computed


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "must hold one .npy file per view"),
        ({"image": VIEWS["image"]}, "must hold one .npy file per view"),
        ({"image": VIEWS["image"], "text": VIEWS["text"][:, :9]}, "must have one width"),
        ({"image": VIEWS["image"], "text": VIEWS["text"][:9]}, "must pair one to one"),
        ({"image": VIEWS["image"][:3], "text": VIEWS["text"][:3]}, "at least 2 pairs"),
    ],
)
def test_wrong_folders_are_one_sentence(bench, tmp_path, files, sentence):
    (tmp_path / "set").mkdir()
    for name, X in files.items():
        np.save(tmp_path / "set" / f"{name}.npy", X)
    result = bench("run", "embeddings/table", "--data", "set", "--bits", "64", "--seeds", "1")
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert list((tmp_path / "set").parent.glob("fusehash-results/**/*.jsonl")) == []


def test_a_folder_is_needed_and_runs_must_be_there_and_intact(bench, tmp_path):
    assert bench("run", "embeddings/table").exit_code == 2
    missing = bench("report", "embeddings/table", "--results", "nothing")
    assert missing.exit_code == 1
    assert "Run it first" in missing.stderr
    (tmp_path / "r" / "embeddings").mkdir(parents=True)
    (tmp_path / "r" / "embeddings" / "x.jsonl").write_text('{"key": 1}\n')
    damaged = bench("report", "embeddings/table", "--results", "r")
    assert damaged.exit_code == 1
    assert "must hold one run per line" in damaged.stderr
