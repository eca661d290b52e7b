"""`inspect_embeddings`: every number against a slow reference, and what it says in words."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

import fusehash as fh
from fusehash.cli import app
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import inspect_embeddings
from fusehash.numerics.rotation import random_rotations
from joint import joint_embeddings

VIEWS = joint_embeddings(130, width=24)
DIRECTIONS = (("image", "text"), ("text", "image"))


@pytest.fixture(scope="module")
def found():
    return inspect_embeddings(VIEWS, lengths=(16, 64), k=5, candidates=20)


def unit(name):
    return [row / np.sqrt(sum(x * x for x in row)) for row in VIEWS[name]]


def ranking(scores):
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def test_gap_and_cosines(found):
    a, b = unit("image"), unit("text")
    assert found.gap == pytest.approx(np.linalg.norm(np.mean(a, axis=0) - np.mean(b, axis=0)))
    assert found.partner_cosine == pytest.approx(np.mean([x @ y for x, y in zip(a, b, strict=True)]))
    others = [a[i] @ b[j] for i in range(130) for j in range(130) if i != j]
    assert found.other_cosine == pytest.approx(np.mean(others))
    assert (found.n_rows, found.n_used, found.width) == (130, 130, 24)


def test_spectra_and_dimensions(found):
    for name in VIEWS:
        X = np.array(unit(name))
        w = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2 / len(X)
        np.testing.assert_allclose(found.spectra[name], w, rtol=1e-9)
        assert found.dimensions[name] == pytest.approx(1 / np.sum((w / w.sum()) ** 2))


def test_hubness_counts_how_often_items_are_found(found):
    for (a, b), hub in zip(DIRECTIONS, found.hubness, strict=True):
        counts, partners, items = [0] * 130, 0, unit(b)
        for i, q in enumerate(unit(a)):
            nearest = ranking([q @ x for x in items])[:5]
            partners += i in nearest
            for j in nearest:
                counts[j] += 1
        assert (hub.query_view, hub.item_view, hub.most_found) == (a, b, max(counts))
        assert hub.skewness == pytest.approx(scipy.stats.skew(counts))
        assert hub.never_found == pytest.approx(counts.count(0) / 130)
        assert hub.pair_recall == pytest.approx(partners / 130)


@pytest.mark.parametrize("n_bits", [16, 64])
def test_recalls_follow_their_formulas(found, n_bits):
    R = random_rotations(24, n_bits, np.random.default_rng([0, n_bits]))
    for a, b in DIRECTIONS:
        queries, items = unit(a), unit(b)
        m_a, m_b = np.mean(queries, axis=0), np.mean(items, axis=0)
        sums = {}
        for q in queries:
            scores = {"sign": [], "own means": [], "two numbers": []}
            for x in items:
                r = x - m_b
                p = r @ R
                own = np.where(p > 0, 1.0, -1.0) @ ((q - m_a) @ R)
                scores["sign"].append(np.where(x @ R > 0, 1.0, -1.0) @ (q @ R))
                scores["own means"].append(own)
                scores["two numbers"].append(own * (r @ r) / np.abs(p).sum() + m_a @ r)
            exact = ranking([q @ x for x in items])
            place = {item: at for at, item in enumerate(exact)}
            for codes, values in scores.items():
                first = ranking(values)[:20]
                again = sorted(first, key=place.get)[:5]
                hits = [len(set(exact[:5]) & set(chosen)) / 5 for chosen in (first[:5], again)]
                sums[codes] = np.add(sums.get(codes, 0.0), hits)
        for codes, total in sums.items():
            [entry] = [
                e for e in found.recalls if (e.codes, e.n_bits, e.query_view, e.item_view) == (codes, n_bits, a, b)
            ]
            np.testing.assert_allclose([entry.recall, entry.rescored_recall], total / 130, atol=0.004)  # ties of codes


def test_what_bits_buy_grows_and_own_means_win_across_a_gap():
    found = inspect_embeddings(joint_embeddings(900), lengths=(48, 384))
    assert found.gap > 0.3
    for codes in ("sign", "own means", "two numbers"):
        assert found.recall(codes, 384) > found.recall(codes, 48)
    assert found.recall("two numbers", 48) > found.recall("sign", 48) + 0.1
    assert "which is large: center each view on its own mean" in found.summary
    assert "which is small." in inspect_embeddings(joint_embeddings(200, gap=0.0), lengths=(16,)).summary


def test_a_sample_of_rows_is_looked_at():
    found = inspect_embeddings(VIEWS, lengths=(16,), n_rows=50, n_queries=20)
    assert (found.n_rows, found.n_used, found.candidates) == (130, 50, 50)
    assert found.summary.startswith("50 of 130 pairs with 24 columns were looked at.")
    assert found.recall("sign", 16, is_rescored=True) == 1.0  # all items are rescored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": VIEWS["text"][:, :9]}, "must have one width"),
        ({"sound": VIEWS["text"]}, "must be two views of embeddings. Got 3"),
        ({"text": np.where(np.arange(130)[:, None] == 4, 0.0, VIEWS["text"])}, "Row 4 is all zeros"),
        ({"text": np.ones((130, 24))}, "View 'text' must vary"),
        ({"text": np.where(np.arange(130)[:, None] == 4, np.nan, VIEWS["text"])}, "NaN"),
    ],
)
def test_wrong_views_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        inspect_embeddings({**VIEWS, **change}, lengths=(16,))


def test_views_too_wide_for_memory_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("fusehash.numerics.memory.available_memory", lambda: 2**30)
    wide = np.ones((3, 8_000), np.float32)
    with pytest.raises(DataError, match=r"inspect_embeddings must fit .* covariances and rotations of 8,000 columns"):
        inspect_embeddings({"image": wide, "text": wide}, lengths=(16,))


@pytest.mark.parametrize(
    "params",
    [{"lengths": (12,)}, {"lengths": ()}, {"k": 0}, {"k": 9, "candidates": 8}, {"n_rows": 1}, {"n_queries": 0}],
)
def test_wrong_parameters_are_named(params):
    with pytest.raises(ParameterError, match=f"'{list(params)[-1]}'"):
        inspect_embeddings(VIEWS, **{"lengths": (16,), **params})


def test_the_command_prints_a_table_a_paragraph_and_draws(tmp_path, monkeypatch, optional):
    optional("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, X in VIEWS.items():
        np.save(f"{name}.npy", X)
    run = lambda *words: CliRunner().invoke(app, ["inspect", "image.npy", "text.npy", *words])  # noqa: E731
    result = run("--bits", "64,16", "--plot", "bits.svg", "--spectrum", "spectrum.svg")
    assert result.exit_code == 0, result.stderr
    expected = inspect_embeddings(VIEWS, lengths=(16, 64))
    assert expected.summary in result.stdout
    assert f"{expected.recalls[0].recall:.3f} {expected.recalls[0].rescored_recall:.3f}" in result.stdout
    assert fh.plots.recall_over_bits(expected).description in (tmp_path / "bits.svg").read_text(encoding="utf-8")
    assert fh.plots.spectra(expected).description in (tmp_path / "spectrum.svg").read_text(encoding="utf-8")
    printed = json.loads(run("--bits", "16,64", "--json").stdout)
    assert printed == json.loads(json.dumps(expected.row()))
    for words, code in ((("--bits", "x"), 2), (("--bits", "12"), 2), (("--plot", "a.txt"), 1), (("third.npy",), 2)):
        assert run(*words).exit_code == code
