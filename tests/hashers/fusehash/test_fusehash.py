"""FuseHash() as every user gets it: any features, any views, tuned without labels, better than its controls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fusehash as fh
from fusehash.errors import DataError, ParameterError
from untuned import FIXED, SMALL, UNTUNED


def mean_map(model: Any, data: Any, protocols: tuple[str, ...] = ("HN", "FN"), seeds: Any = (0, 1)) -> float:
    result = fh.evaluation.evaluate(model, data, protocols=protocols, seeds=seeds)
    return float(np.mean([score.mean for score in result.scores]))


@pytest.mark.slow
def test_wiki_reaches_what_was_promised(data_file: Callable[[str], Path]) -> None:
    """The floors of new database items, 64 bits, five seeds, parameters untouched."""
    data = fh.datasets.load("wiki", path=data_file("wiki.npz"))
    result = fh.evaluation.evaluate(fh.FuseHash(n_bits=64), data, protocols=("HN", "FN"), ties="stable")
    scores = {(s.protocol, s.direction): s.mean for s in result.scores}
    assert scores["HN", "image->text"] >= 0.270
    assert scores["HN", "text->image"] >= 0.340
    assert scores["FN", "image->text"] >= 0.270
    assert scores["FN", "text->image"] >= 0.625


@pytest.mark.slow
def test_it_beats_its_controls_and_its_linear_variant(made: Any) -> None:
    ours = mean_map(fh.FuseHash(n_bits=32), made)
    assert ours > mean_map(fh.RegressionHasher(n_bits=32), made) + 0.02
    assert ours > mean_map(fh.hashers.make("random", n_bits=32), made) + 0.05
    assert ours > mean_map(fh.FuseHash(n_bits=32, feature_map="linear"), made)


def test_training_codes_are_the_fused_codes_of_the_training_items(made: Any, model: fh.FuseHash) -> None:
    train = made.views.rows(made.train)
    agree = np.unpackbits(model.codes_ ^ model.encode_fused(train)).mean()
    assert agree < 1e-4


def any_features(kind: str, latent: np.ndarray, rng: np.random.Generator) -> Any:
    n = len(latent)
    mixed = latent @ rng.standard_normal((latent.shape[1], 24))
    if kind == "histogram":
        return np.exp(mixed) / np.exp(mixed).sum(1, keepdims=True)
    if kind == "bag":
        return (mixed > 1.0).astype(np.int8)
    if kind == "sparse":
        return sp.csr_matrix(np.maximum(mixed - 1.0, 0.0))
    if kind == "wild scales":
        return mixed * np.logspace(-8, 8, 24) + np.logspace(10, -3, 24)
    if kind == "constant columns":
        return np.hstack([mixed, np.ones((n, 5)), np.zeros((n, 3))])
    if kind == "duplicate columns":
        return np.hstack([mixed, mixed])
    if kind == "very wide":
        return latent @ rng.standard_normal((latent.shape[1], 900)) + 0.1 * rng.standard_normal((n, 900))
    if kind == "very narrow":
        return latent[:, :2]
    return mixed.astype(np.float32)


@pytest.mark.parametrize(
    "kind",
    [
        "histogram",
        "bag",
        "sparse",
        "wild scales",
        "constant columns",
        "duplicate columns",
        "very wide",
        "very narrow",
        "float32",
    ],
)
def test_any_features_are_taken_as_they_are(kind: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    latent = rng.standard_normal((5, 6))[labels] * 2 + 0.5 * rng.standard_normal((400, 6))
    X, Z = any_features(kind, latent, rng), latent @ rng.standard_normal((6, 10))
    model = fh.FuseHash(n_bits=32, random_state=0, **FIXED).fit({"x": X[:300], "z": Z[:300]})
    signs = fh.bits.unpack(model.codes_, 32)
    assert np.all(np.abs(signs.mean(0)) < 0.95), "a bit collapsed"
    precision = fh.evaluation.mean_average_precision(
        model.encode(X[300:], view="x"), model.encode(Z[:300], view="z"), (labels[300:], labels[:300]), k=50
    )
    assert precision > 0.5  # chance is about .25


@pytest.mark.parametrize("n_views", [1, 3, 4])
def test_any_number_of_views(n_views: int) -> None:
    data = fh.datasets.make_paired(n_samples=300, views=n_views, random_state=0)
    model = fh.FuseHash(n_bits=16, random_state=0, **({} if n_views == 3 else FIXED))
    model.fit(data.views.rows(data.train))
    assert model.encode_fused({name: data.views[name][:7] for name in data.views}).shape == (7, 2)
    some = list(data.views)[: max(n_views - 1, 1)]
    assert model.encode_fused({name: data.views[name][:7] for name in some}).shape == (7, 2)


@pytest.mark.slow
def test_longer_codes_do_not_get_worse(made: Any) -> None:
    scores = [mean_map(fh.FuseHash(n_bits=bits, **FIXED), made, seeds=(0,)) for bits in (16, 64, 256)]
    assert scores[1] > scores[0]
    assert scores[2] > scores[1] - 0.01


def test_the_spectrum_of_a_sample_serves_all_rows(made: Any) -> None:
    views = made.views.rows(made.database)
    model = fh.FuseHash(n_bits=32, random_state=0, spectrum_rows=500, **SMALL).fit(views)
    assert len(model.codes_) == len(made.database)
    agree = np.unpackbits(model.codes_ ^ model.encode_fused(views)).mean()
    assert agree < 1e-4


@pytest.mark.slow
def test_asymmetric_ranking_helps(made: Any) -> None:
    model = fh.FuseHash(n_bits=16, **FIXED)
    plain = fh.evaluation.evaluate(model, made, protocols=("HN",), seeds=(0, 1))
    real = fh.evaluation.evaluate(model, made, protocols=("HN",), seeds=(0, 1), asymmetric=True)
    assert np.mean([s.mean for s in real.scores]) > np.mean([s.mean for s in plain.scores])


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"feature_map": "cubic"}, "'feature_map' parameter of FuseHash must be one of"),
        (
            {"kernel_width": 0.0},
            "'kernel_width' parameter of FuseHash must be 'auto' or a finite number greater than 0",
        ),
        ({"view_weights": (1.0,)}, "'view_weights' parameter of FuseHash must be 2 numbers"),
        (
            {"view_weights": "equal"},
            "'view_weights' parameter of FuseHash must be 'auto' or one number greater than 0 per view",
        ),
        ({"fusion": "sum"}, "'fusion' parameter of FuseHash must be one of"),
        ({"missing": "drop"}, "'missing' parameter of FuseHash must be one of"),
    ],
)
def test_wrong_parameters_get_one_sentence(made: Any, params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        fh.FuseHash(n_bits=16, **params).fit(made.views.rows(made.train[:60]))


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [900, 12])
def test_few_features_and_few_different_rows_are_no_obstacle(distinct: int) -> None:
    rng = np.random.default_rng(0)
    angles = rng.uniform(0.0, 2.0 * np.pi, distinct)[np.arange(900) % distinct]
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    model = fh.FuseHash(**FIXED, random_state=0).fit({"place": places, "height": places[:, :1]})
    same = model.encode(places[:distinct], view="place")
    assert len(np.unique(same, axis=0)) >= min(distinct, 100)
    assert np.isfinite(model.project(places[:, :1], view="height")).all()
    np.testing.assert_array_equal(model.codes_[:distinct], model.codes_[-distinct:])


@pytest.mark.slow
def test_the_order_of_views_decides_nothing_when_tuning_learning_on_or_reading_files(tmp_path):
    views = fh.datasets.make_paired(160, views={"a": 12, "b": 9, "c": 7}, random_state=2).views
    for name, matrix in views.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    models = []
    for names in ("abc", "cab"):
        model = fh.FuseHash(n_bits=16, random_state=0)
        model.partial_fit({name: tmp_path / f"{name}.npy" for name in names})
        model.partial_fit({name: views[name][:50] for name in reversed(names)})
        models.append(model)
    assert models[0].tuning_ == models[1].tuning_
    assert models[0].sums_.parts == models[1].sums_.parts
    assert np.array_equal(models[0].codes_, models[1].codes_)
    assert np.array_equal(*(model.project_fused(views) for model in models))


def test_canonical_hash_functions_are_saved_continued_and_learned_from_gaps(tmp_path: Path) -> None:
    data = fh.datasets.make_paired(n_samples=500, random_state=0)
    views = {name: np.array(X, dtype=float) for name, X in data.views.items()}
    train, new = {n: X[:400] for n, X in views.items()}, {n: X[400:] for n, X in views.items()}
    params = {**UNTUNED, "hash_functions": "canonical", "feature_map": "linear", "n_bits": 32, "random_state": 0}

    def recall(model: fh.FuseHash) -> float:
        codes = [model.encode(X, view=name) for name, X in new.items()]
        return float(np.mean(fh.evaluation.pair_recall(*codes, k=10)))

    model = fh.FuseHash(**params).fit(train)
    model.save(tmp_path / "model")
    assert recall(fh.load(tmp_path / "model")) == recall(model) > 0.4
    first, second = ({n: X[rows] for n, X in train.items()} for rows in (slice(0, 250), slice(250, 400)))
    assert recall(fh.FuseHash(**params).partial_fit(first).partial_fit(second)) > 0.3
    train["image"][:50] = np.nan
    assert recall(fh.FuseHash(missing="allow", **params).fit(train)) > 0.35
    with pytest.raises(DataError, match="at least two views"):
        fh.FuseHash(hash_functions="canonical").fit({"image": new["image"]})
