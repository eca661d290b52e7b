"""`fusehash quantize`: files of embeddings in, a folder of codes out, measured on pairs that were not learned from."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

import fusehash as fh
from fusehash import hashers
from fusehash.cli import app
from fusehash.commands.quantize import _paired
from fusehash.evaluation import evaluate_embeddings, nearest_by_cosine
from fusehash.streams import open_view
from joint import joint_embeddings

VIEWS = joint_embeddings(400)
FIXED = ("feature_map=linear", "ridge=1", "graph_weight=0", "latent_weight=0", "spectral_power=1", "view_weights=[1,1]")
QUICK = [word for setting in FIXED for word in ("--param", setting)]  # nothing is left to tune


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    for name, X in VIEWS.items():
        np.save(f"{name}.npy", X.astype(np.float32))
    return lambda *words: CliRunner().invoke(app, ["quantize", *map(str, words)])


def wrong(result, sentence, code=1):
    assert result.exit_code == code
    assert result.stdout == ""
    assert sentence in result.stderr


def test_floats_writes_model_codes_factors_and_a_report_of_new_pairs(run, tmp_path):
    result = run("image.npy", "text.npy", "--bits", 64, "--target", "floats", "--out", "codes", "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts == json.loads((tmp_path / "codes" / "report.json").read_text())
    assert (facts["n_learned"], facts["n_held_out"], facts["bytes_per_item"]) == (360, 40, 16)
    assert sorted(path.name for path in (tmp_path / "codes").iterdir()) == [
        "factors", "image.npy", "model.safetensors", "report.json", "text.npy",
    ]  # fmt: skip
    held = np.sort(np.random.default_rng(0).choice(400, 40, replace=False))
    rows = {name: X.astype(np.float32) for name, X in VIEWS.items()}
    model = fh.FuseHash(n_bits=64, target="floats", random_state=0)
    model.fit({name: np.delete(X, held, axis=0) for name, X in rows.items()})
    for name, X in rows.items():
        codes, factors = model.encode(X, view=name, with_factors=True)
        np.testing.assert_array_equal(np.load(tmp_path / "codes" / f"{name}.npy"), codes)
        np.testing.assert_array_equal(np.load(tmp_path / "codes" / "factors" / f"{name}.npy"), factors)
    new = {name: X[held] for name, X in rows.items()}
    for expected, score in zip(evaluate_embeddings(model, new), facts["scores"], strict=True):
        assert expected.row().items() <= score.items()
        nearest = nearest_by_cosine(new[expected.query_view], new[expected.item_view], 10)
        assert score["floats_pair_recall"] == np.mean([i in row for i, row in enumerate(nearest)])


def test_pairs_takes_views_of_different_widths_and_says_what_it_did(run, tmp_path):
    np.save("narrow.npy", VIEWS["text"][:, :20])
    result = run("image.npy", "text=narrow.npy", "--bits", 16, "--held-out", 50, "--out", "codes", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "Learned 16-bit codes for pairs from 350 pairs: image (48) + text (20)." in result.stdout
    assert "Measured on 50 pairs that were not learned from." in result.stdout
    assert "Wrote model.safetensors, image.npy, text.npy and report.json to codes: 2 bytes per item" in result.stdout
    model = hashers.load(tmp_path / "codes" / "model.safetensors")
    codes = {name: np.load(tmp_path / "codes" / f"{name}.npy") for name in ("image", "text")}
    np.testing.assert_array_equal(codes["text"], model.encode(VIEWS["text"][:, :20].astype(np.float32), view="text"))
    held = np.sort(np.random.default_rng(0).choice(400, 50, replace=False))
    score = json.loads((tmp_path / "codes" / "report.json").read_text())["scores"][0]
    expected = fh.evaluation.pair_recall(codes["image"][held], codes["text"][held], k=10)[0]
    assert (score["query_view"], score["pair_recall"]) == ("image", expected)


def test_only_the_first_rows_may_be_pairs(run, tmp_path):
    np.save("text.npy", VIEWS["text"][:250].astype(np.float32))
    result = run("image.npy", "text.npy", "--pairs", 220, "--target", "floats", "--bits", 64, "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert (facts["n_pairs"], facts["n_held_out"], facts["n_learned"]) == (198, 22, 198 + 180 + 30)
    assert [len(np.load(tmp_path / "codes" / f"{name}.npy")) for name in ("image", "text")] == [400, 250]
    held = np.sort(np.random.default_rng(0).choice(220, 22, replace=False))
    means = {
        name: np.delete(X[:n].astype(np.float32), held, axis=0).mean(axis=0, dtype=np.float64)
        for (name, X), n in zip(VIEWS.items(), (400, 250), strict=True)
    }
    model = hashers.load(tmp_path / "codes" / "model.safetensors")
    for name, mean in means.items():  # rows of length 1
        np.testing.assert_allclose(model.fitted_.maps[name].preparation.mean, mean, atol=1e-6)


def test_pairs_and_single_rows_stay_in_their_files(tmp_path):
    X = np.random.default_rng(0).standard_normal((100_000, 96), np.float32)
    np.save(tmp_path / "image.npy", X)
    np.save(tmp_path / "text.npy", X[:75_000])
    stored = {name: open_view(tmp_path / f"{name}.npy") for name in ("image", "text")}
    tracemalloc.start()
    views = _paired(stored, 50_000)
    for rows in views.blocks(1000):
        views.block("image", rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 2
    assert views.n_rows == 50_000 + 50_000 + 25_000
    np.testing.assert_array_equal(views["image"][:100_000], X)
    np.testing.assert_array_equal(views["text"][np.r_[:50_000, 100_000:125_000]], X[:75_000])
    np.testing.assert_array_equal(views.complete_rows(), np.arange(50_000))
    np.testing.assert_array_equal(np.flatnonzero(views.is_present("text")), np.r_[:50_000, 100_000:125_000])


def test_few_pairs_are_all_learned_from(run, tmp_path):
    np.save("image.npy", VIEWS["image"][:150])
    np.save("text.npy", VIEWS["text"][:150])
    result = run("image.npy", "text.npy", "--target", "floats", "--bits", 8)
    assert result.exit_code == 0, result.stderr
    assert "from 150 pairs" in result.stdout
    assert "Not measured: no pairs were held out" in result.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("image.npy", "nothing.npy"), "nothing.npy"),
        (("image.npy", "text.npy", "--bits", 5000), "--bits must be"),
        (("image.npy", "text.npy", "--pairs", 401), "'image' has 400, 'text' has 400"),
        (("image.npy", "text.npy", "--held-out", 399), "must leave at least 2 of the 400 pairs"),
        (("image.npy", "text.npy", "--out", "there"), "The folder to write must not exist. Got there."),
        (("image.npy", "text.npy", "--out", "no/where"), "must be in a folder that exists"),
        (("image.npy", "text=short.npy"), "Rows of the views must pair one to one"),
        (("image.npy", "text=hole.npy"), "NaN or infinity in 1 of the rows 0 to 399, first in row 7."),
        (
            ("image.npy", "text=nan.npy"),
            "Row 7 is all NaN; put rows without a partner after the pairs, and pass --pairs.",
        ),
        (("image.npy", "text=nan.npy", "--pairs", 5), "Row 7 is all NaN"),
        (("image.npy", "text=zero.npy"), "View 'text' must hold embeddings other than zero. Row 390 is all zeros."),
    ],
)
def test_wrong_input_is_one_sentence_and_nothing_is_written(run, tmp_path, words, sentence):
    (tmp_path / "there").mkdir()
    np.save("short.npy", VIEWS["text"][:-1])
    hole = VIEWS["text"].copy()
    hole[7, 3] = np.nan
    np.save("hole.npy", hole)
    np.save("nan.npy", np.where(np.arange(400)[:, None] == 7, np.nan, VIEWS["text"]))
    np.save("zero.npy", np.where(np.arange(400)[:, None] == 390, 0.0, VIEWS["text"]))
    before = sorted(tmp_path.iterdir())
    result = run(*words, "--target", "floats")
    wrong(result, sentence)
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("image.npy", "text.npy", "--param", "target=floats"),
        ("image.npy", "text.npy", "--param", "missing=allow"),
        ("data.npz",),
        ("image.npy", "--target", "x"),
    ],
)
def test_wrong_usage_is_exit_2(run, words):
    wrong(run(*words), "Usage:", code=2)


def test_nothing_is_left_if_writing_fails(run, tmp_path, monkeypatch):
    from fusehash.streams.writers import NpyWriter

    def fail(self, block):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NpyWriter, "write", fail)
    before = sorted(tmp_path.iterdir())
    wrong(run("image.npy", "text.npy", "--target", "floats", "--bits", 64), "No space left on device")
    assert sorted(tmp_path.iterdir()) == before
