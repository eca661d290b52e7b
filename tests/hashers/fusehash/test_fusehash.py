"""FuseHash() as every user gets it: any features, any views, tuned without labels, better than its controls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fusehash as fh
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.hashers.fusehash import tuning as tuning_module
from fusehash.hashers.fusehash.fitted import Choices
from fusehash.numerics.sparse import SparseRows
from untuned import UNTUNED

FIXED: dict[str, Any] = {
    "feature_map": "rbf",
    "kernel_width": 1.0,
    "ridge": 0.03,
    "graph_weight": 1.0,
    "latent_weight": 1.0,
    "spectral_power": 2.0,
}
SMALL: dict[str, Any] = {**FIXED, "n_anchors": 100, "n_kernel_anchors": 100}


@pytest.fixture(scope="module")
def made() -> Any:
    return fh.datasets.make_paired(n_samples=1500, n_train=700, random_state=3)


@pytest.fixture(scope="module")
def model(made: Any) -> fh.FuseHash:
    return fh.FuseHash(n_bits=32, random_state=0).fit(made.views.rows(made.train))


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


def test_tuning_is_reported_and_needs_no_labels(model: fh.FuseHash) -> None:
    tuning = model.tuning_
    assert set(tuning["chosen"]) >= {"feature_map", "kernel_width", "ridge", "graph_weight", "spectral_power"}
    assert len(tuning["trials"]) > 10
    assert all(trial["partners"] > 0.0 and 0.0 <= trial["live_bits"] <= 1.0 for trial in tuning["trials"])
    assert set(tuning["evenness"]) == {"image", "text"}
    assert set(tuning["fusion_weights"]) == {"image", "text"}
    best = max(trial["score"] for trial in tuning["trials"])
    assert chosen_trial(tuning)["score"] >= best - 6 * 0.06  # never more than a margin below, step by step


def chosen_trial(tuning: dict[str, Any]) -> dict[str, Any]:
    """The trial of the chosen settings whose score is that of the model."""
    trials = [t for t in tuning["trials"] if all(t[k] == v for k, v in tuning["chosen"].items())]
    return next(t for t in trials if t["score"] == tuning["score"])


def test_fixed_parameters_stay_fixed(made: Any) -> None:
    model = fh.FuseHash(n_bits=16, random_state=0, view_weights=(1.0, 3.0), **FIXED).fit(
        made.views.rows(made.train[:300])
    )
    assert len(model.tuning_["trials"]) == 1
    chosen = model.tuning_["chosen"]
    assert {name: chosen[name] for name in FIXED} == FIXED
    assert chosen["view_weights"] == [1.0, 3.0]
    assert chosen["hash_ridge"] == pytest.approx(0.003)


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


def missing(views: Any, share: float, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    gone = rng.random((len(views), len(views.names))) < share
    gone[gone.all(1), 0] = False
    out = {name: np.array(views[name], dtype=float) for name in views}
    for j, X in enumerate(out.values()):
        X[gone[:, j]] = np.nan
    return out


@pytest.mark.slow
def test_missing_rows_cost_little(made: Any) -> None:
    train = made.views.rows(made.train)
    new = np.setdiff1d(made.database, made.train)
    relevant = (made.labels[made.query], made.labels[new])
    scores = []
    for share in (0.0, 0.3):
        model = fh.FuseHash(n_bits=32, missing="allow", random_state=0, **FIXED).fit(missing(train, share))
        query = model.encode(made.views["text"][made.query], view="text")
        scores.append(
            fh.evaluation.mean_average_precision(query, model.encode(made.views["image"][new], view="image"), relevant)
        )
    chance = 0.2
    assert scores[1] > chance + 0.6 * (scores[0] - chance)


def test_a_mask_says_the_same_as_nan(made: Any) -> None:
    train = missing(made.views.rows(made.train[:400]), 0.2)
    masks = {name: ~np.isnan(X).any(1) for name, X in train.items()}
    filled = {name: np.nan_to_num(X) for name, X in train.items()}
    by_nan = fh.FuseHash(n_bits=16, missing="allow", random_state=0, **SMALL).fit(train)
    by_mask = fh.FuseHash(n_bits=16, missing="allow", random_state=0, **SMALL).fit(
        fh.PairedViews(filled, present=masks)
    )
    np.testing.assert_array_equal(by_nan.codes_, by_mask.codes_)


def test_semi_paired_data_trains(made: Any) -> None:
    train = {name: np.array(made.views[name][made.train], dtype=float) for name in made.views}
    n = len(made.train)
    train["image"][: n // 3] = np.nan
    train["text"][n // 3 : n // 2] = np.nan
    model = fh.FuseHash(n_bits=16, missing="allow", random_state=0, **SMALL).fit(train)
    assert model.codes_.shape == (n, 2)


def test_rows_without_a_partner_get_codes_and_change_nothing_else(made: Any) -> None:
    """They hurt when they were learned from: what they add to the sums holds nothing that links the views."""
    train = {name: np.array(made.views[name][made.train], dtype=float) for name in made.views}
    order = np.random.default_rng(0).permutation(len(made.train))
    pairs, images, texts = np.sort(order[:200]), order[200:330], order[330:]
    train["text"][images], train["image"][texts] = np.nan, np.nan
    model = fh.FuseHash(n_bits=16, missing="allow", random_state=0, **SMALL).fit(train)
    without = fh.FuseHash(n_bits=16, random_state=0, **SMALL).fit({name: X[pairs] for name, X in train.items()})
    np.testing.assert_array_equal(model.codes_[pairs], without.codes_)
    for name, alone in (("image", images), ("text", texts)):
        np.testing.assert_array_equal(model.codes_[alone], without.encode(train[name][alone], view=name))
    new = {name: X[made.query] for name, X in made.views.items()}
    for name, X in new.items():
        np.testing.assert_array_equal(model.project(X, view=name), without.project(X, view=name))
    np.testing.assert_array_equal(model.project_fused(new), without.project_fused(new))
    assert (model.n_samples_, without.n_samples_) == (len(made.train), 200)


def test_rows_of_two_of_three_views_are_learned_from() -> None:
    views = fh.datasets.make_paired(n_samples=300, views={"a": 10, "b": 9, "c": 8}, random_state=0).views
    train = {name: np.array(X, dtype=float) for name, X in views.items()}
    train["c"][200:280] = np.nan  # in a and b
    train["a"][280:], train["b"][280:] = np.nan, np.nan  # alone in c
    models = [
        fh.FuseHash(n_bits=16, missing="allow", random_state=0, **SMALL).fit({name: X[:n] for name, X in train.items()})
        for n in (300, 280, 200)
    ]
    X = views["a"][:50]
    codes = [model.encode(X, view="a") for model in models]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert not np.array_equal(codes[0], codes[2])
    np.testing.assert_array_equal(models[0].codes_[280:], models[0].encode(views["c"][280:300], view="c"))


def test_missing_rows_are_refused_unless_allowed(made: Any) -> None:
    train = missing(made.views.rows(made.train[:100]), 0.2)
    with pytest.raises(DataError, match="finite numbers"):
        fh.FuseHash(n_bits=16).fit(train)
    with pytest.raises(DataError, match="missing"):
        fh.FuseHash(n_bits=16).fit(fh.PairedViews(train, allow_missing=True))
    train["image"][0] = train["text"][0] = np.nan
    with pytest.raises(DataError, match="at least one view"):
        fh.FuseHash(n_bits=16, missing="allow").fit(train)


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


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_view_that_hardly_any_row_has_is_no_trouble(tmp_path, stored: bool, seed: int) -> None:
    rng = np.random.default_rng(0)
    views = {"a": rng.standard_normal((200, 12)), "b": np.full((200, 9), np.nan)}
    views["b"][[17, 130]] = rng.standard_normal((2, 9))
    given = dict(views)
    if stored:
        for name, X in views.items():
            np.save(tmp_path / f"{name}.npy", X)
            given[name] = str(tmp_path / f"{name}.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"n_bits": 16, "missing": "allow", "spectrum_rows": 60, "n_anchors": 30, "random_state": seed}
        model = fh.FuseHash(**settings).fit(given)
    assert model.codes_.shape == (200, 2)
    assert np.isfinite(model.project(views["b"][[17]], view="b")).all()


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


# -- wide views ------------------------------------------------------------------------------------------------------


def wide_words(n_rows: int, n_words: int = 2000, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Two views of words about one of ten topics, sparse, and the topics."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 10, n_rows)
    views = {}
    for name in ("abstract", "title"):
        words = rng.dirichlet(np.full(n_words, 0.02), 10)
        views[name] = sp.csr_array(np.array([rng.multinomial(30, words[topic]) > 0 for topic in topics], float))
    return views, topics


@pytest.fixture(scope="module")
def wide() -> tuple[dict[str, Any], Any, fh.FuseHash]:
    views, topics = wide_words(700)
    return views, topics, fh.FuseHash(n_bits=32, random_state=0).fit({n: X[:300] for n, X in views.items()})


def test_new_rows_of_wide_views_do_not_collapse(wide: Any) -> None:
    views, topics, model = wide
    codes = {name: model.encode(X[300:], view=name) for name, X in views.items()}
    score = fh.evaluation.mean_average_precision
    for a, b in (("abstract", "title"), ("title", "abstract")):
        assert (
            score(codes[a][:100], codes[b][100:], (topics[300:400], topics[400:])) > 0.95
        )  # .43 with a cut to components
    for packed in codes.values():
        means = np.abs(2.0 * np.unpackbits(packed, axis=1).mean(axis=0) - 1.0)
        assert means.max() < 0.8
        assert means.mean() < 0.25


def test_the_default_is_as_good_as_a_linear_map_on_few_rows_of_many_words(wide: Any) -> None:
    """300 rows of 2,000 words per view, where the default once had .41 and the linear map 1."""
    views, topics, model = wide
    linear = fh.FuseHash(n_bits=32, feature_map="linear", random_state=0).fit({n: X[:300] for n, X in views.items()})
    score, scores = fh.evaluation.mean_average_precision, []
    for fitted in (model, linear):
        codes = {name: fitted.encode(X[300:], view=name) for name, X in views.items()}
        scores.append(score(codes["title"][:100], codes["abstract"][100:], (topics[300:400], topics[400:])))
    assert scores[0] > scores[1] - 0.02


def test_one_view_wide_and_sparse_the_other_narrow() -> None:
    views, topics = wide_words(500, 3000)
    rng = np.random.default_rng(1)
    mixed = {"words": views["abstract"], "image": 3.0 * rng.standard_normal((10, 6))[topics]}
    mixed["image"] = mixed["image"] + rng.standard_normal((500, 6))
    model = fh.FuseHash(n_bits=32, random_state=0).fit({name: X[:300] for name, X in mixed.items()})
    codes = {name: model.encode(X[300:], view=name) for name, X in mixed.items()}
    for a, b in (("words", "image"), ("image", "words")):
        relevant = topics[300:350], topics[350:]
        assert fh.evaluation.mean_average_precision(codes[a][:50], codes[b][50:], relevant) > 0.8
    assert max(np.abs(2.0 * np.unpackbits(packed, axis=1).mean(axis=0) - 1.0).max() for packed in codes.values()) < 0.9


def test_a_fit_that_collapses_warns_and_reports_it() -> None:
    """With so narrow a kernel, new rows are near no anchor."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((200, 5))
    views = {"a": latent @ rng.standard_normal((5, 40)), "b": latent @ rng.standard_normal((5, 30))}
    views = {name: X + rng.standard_normal(X.shape) for name, X in views.items()}
    with pytest.warns(FusehashWarning, match="much less even codes than training rows.*Train on more rows"):
        model = fh.FuseHash(n_bits=16, random_state=0, **{**UNTUNED, "kernel_width": 0.01}).fit(views)
    assert max(model.tuning_["evenness"].values()) < 0.5
    assert model.tuning_["live_bits"] == 0.0
    assert model.tuning_["score"] < np.log(tuning_module.NOTHING) + 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        even = fh.FuseHash(n_bits=16, random_state=0, **UNTUNED).fit(views)
    assert even.tuning_["live_bits"] == 1.0


def test_fixed_settings_are_checked_on_held_out_rows_also_if_rows_are_many() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((400, 3))
    views = {"a": latent @ rng.standard_normal((3, 8)), "b": latent @ rng.standard_normal((3, 8))}
    model = fh.FuseHash(n_bits=8, random_state=0, **UNTUNED).fit(views)
    assert model.tuning_["note"] == "every setting was given"
    assert min(model.tuning_["evenness"].values()) > 0.8
    assert len(model.tuning_["trials"]) == 1
    few = fh.FuseHash(n_bits=8, random_state=0).fit({name: X[:39] for name, X in views.items()})
    assert "no held-out rows were checked" in few.tuning_["note"]


def test_sparse_and_dense_rows_get_equal_codes(wide: Any) -> None:
    views, _, model = wide
    for name, X in views.items():
        codes = model.encode(X[300:420], view=name)
        assert np.array_equal(model.encode(X[300:420].toarray(), view=name), codes)
        assert np.array_equal(model.encode(X[305:306], view=name), codes[5:6])
    some = {name: X[300:370] for name, X in views.items()}
    dense = {name: X.toarray() for name, X in some.items()}
    assert np.array_equal(model.encode_fused(some), model.encode_fused(dense))


def test_a_model_of_a_million_sparse_columns_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = (400, 1_000_000)
    wide = sp.csr_array((np.ones(4000), rng.integers(0, 300, 4000) * 3000, np.arange(0, 4001, 10)), shape)
    views = {"words": wide, "image": rng.standard_normal((400, 12)) + wide[:, :36_000:3000].toarray()}
    model = fh.FuseHash(n_bits=16, random_state=0).fit(views)
    model.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 2_000_000
    loaded = fh.load(tmp_path / "model")
    assert np.array_equal(loaded.encode(wide, view="words"), model.encode(wide, view="words"))


def test_settings_under_which_held_out_rows_collapse_score_as_nothing() -> None:
    even = np.random.default_rng(0).integers(0, 256, (200, 2), dtype=np.uint8)
    constant = np.zeros_like(even)
    assert tuning_module.live_share(even, 16, 200) == 1.0
    assert tuning_module.live_share(constant, 16, 200) == tuning_module.live_share(constant, 16, 1) == 0.0
    half = even.copy()
    half[:, 0] = 255
    assert tuning_module.live_share(half, 16, 200) == pytest.approx(0.5)
    few = even[np.arange(200) % 8]  # as many codes as rows, or one for 25 rows
    assert tuning_module.live_share(few, 16, 8) > 0.0 == tuning_module.live_share(few, 16, 200)
    rows = np.repeat(np.eye(4), 3, axis=0)
    assert tuning_module.count_distinct(rows) == tuning_module.count_distinct(SparseRows.of(rows)) == 4


def test_uneven_codes_of_new_rows_warn_with_what_to_do() -> None:
    with pytest.warns(
        FusehashWarning, match="view 'b' much less even codes than training rows .40%.*Train on more rows"
    ):
        tuning_module.warn_if_uneven("FuseHash", {"a": 0.95, "b": 0.4})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning_module.warn_if_uneven("FuseHash", {"a": 0.95, "b": 0.9})


def test_what_is_chosen_is_no_worse_than_cca_and_strong_ridges(wide: Any, model: fh.FuseHash) -> None:
    for tuning in (wide[2].tuning_, model.tuning_):
        finals = [t for t in tuning["trials"] if t["n_anchors"] > tuning_module.TRIAL_ANCHORS]
        chosen = next(t for t in finals if all(t[k] == v for k, v in tuning["chosen"].items()))
        strong = [t for t in tuning["trials"] if t["feature_map"] == "linear" and t["ridge"] >= 1.0]
        cca = [t for t in finals if t["hash_functions"] == "canonical"]
        assert {t["ridge"] for t in strong} == {1.0, 3.0, 10.0}
        assert {t["feature_map"] for t in cca} == {"linear", "rbf"}
        assert {t["splits"] for t in finals} <= {1, 2}
        for trial in finals:
            if trial["splits"] == chosen["splits"]:  # tried on the same rows
                assert chosen["score"] >= trial["score"] - tuning_module.MIN_REFERENCE_GAIN


def correlated(n: int, widths: tuple[int, int]) -> dict[str, np.ndarray]:
    """Gaussian views whose weak directions are shared and whose strong ones are not: CCA is made for them."""
    rng = np.random.default_rng(0)
    shared, views = rng.standard_normal((n, 20)), {}
    for name, width in zip("ab", widths, strict=True):
        own = 6.0 * rng.standard_normal((n, 20)) @ rng.standard_normal((20, width))
        views[name] = shared @ rng.standard_normal((20, width)) + own + 0.5 * rng.standard_normal((n, width))
    return views


@pytest.mark.parametrize("widths", [(60, 80), (560, 80)])  # columns as they are, and products with anchors
def test_held_out_pairs_are_no_worse_than_by_cca_itq(widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark method, fitted to the raw kept rows of a split, has the score of the trial of that name."""
    splits = []

    class Seen(tuning_module.HeldOut):
        def __init__(self, kinds: Any, dtype: str, arrays: Any, n_bits: int, rng: np.random.Generator) -> None:
            order = deepcopy(rng).permutation(len(next(iter(arrays.values()))))
            super().__init__(kinds, dtype, arrays, n_bits, rng)
            held = int(tuning_module.HELD_OUT * len(order))
            raw = [{name: X[rows] for name, X in arrays.items()} for rows in (order[held:], order[:held])]
            splits.append((self, *raw))

    monkeypatch.setattr(tuning_module, "HeldOut", Seen)
    model = fh.FuseHash(n_bits=32, random_state=0, n_threads=1).fit(correlated(600, widths))
    split, kept, held = splits[0]
    method = fh.hashers.CCAITQ(n_bits=32, random_state=0).fit(kept)
    projections = {name: method.project(X, view=name) for name, X in held.items()}
    score = tuning_module.measures_of(split, projections, method.encode_fused(held))[0]
    start, chosen = (Choices(**{**x, "view_weights": ()}) for x in (Choices().as_dict(), model.tuning_["chosen"]))
    reference = replace(start, **tuning_module.REFERENCES["CCA-ITQ"])
    trials = [tuning_module.run_trial((split, choices, 1000)) for choices in (start, chosen, reference)]
    assert trials[2].score == pytest.approx(score, abs=0.25)  # prepared views, and a softer rotation
    assert trials[1].score > score - tuning_module.MIN_REFERENCE_GAIN
    assert trials[0].score < score - 0.5  # without tuning it is much worse


def test_views_that_agree_on_neighborhoods_need_less_of_a_graph() -> None:
    rng = np.random.default_rng(0)
    graph = rng.random((50, 20))
    assert tuning_module.graph_agreement([graph, 3.0 * graph + 1.0]) == pytest.approx(1.0)
    assert abs(tuning_module.graph_agreement([graph, rng.random((50, 20))])) < 0.1
    assert tuning_module.graph_agreement([graph]) == 0.0
    X = rng.standard_normal((200, 6))
    same = fh.FuseHash(n_bits=16, random_state=0).fit({"a": X, "b": X @ rng.standard_normal((6, 8))})
    assert same.tuning_["agreement"] > 0.3
    assert same.tuning_["trials"][0]["graph_weight"] < 0.1


def test_wide_bags_may_be_missing_in_most_rows() -> None:
    views, _ = wide_words(60, 600)
    present = {"abstract": np.arange(60) < 35, "title": np.arange(60) >= 25}  # 10 complete rows
    paired = fh.PairedViews(views, allow_missing=True, present=present)
    model = fh.FuseHash(n_bits=16, missing="allow", random_state=0).fit(paired)
    alone = model.encode_fused({"abstract": views["abstract"][:25]})
    assert np.array_equal(model.encode_fused(paired)[:25], alone)


def test_several_entries_of_one_cell_are_their_sum(wide: Any) -> None:
    _, _, model = wide
    width = model.n_features_["title"]
    entries = np.array([1.0, 1.0, 1.0, 1.0, 3.0]), (np.zeros(5, int), np.array([7, 7, 7, 7, 40]))
    coordinates = sp.coo_array(entries, (1, width))
    doubled = sp.csr_array((entries[0], entries[1][1], [0, 5]), (1, width))
    ours = model.project(doubled, view="title")
    np.testing.assert_array_equal(ours, model.project(coordinates.toarray(), view="title"))


def test_tensors_of_wide_bags_are_encoded_on_the_host(wide: Any) -> None:
    torch = pytest.importorskip("torch")
    views, _, model = wide
    tensors = {name: torch.as_tensor(X[:70].toarray()) for name, X in views.items()}
    for name, X in tensors.items():
        assert np.array_equal(np.asarray(model.encode(X, view=name)), model.encode(views[name][:70], view=name))
    fused = model.encode_fused(tensors)
    assert isinstance(fused, torch.Tensor)
    assert np.array_equal(np.asarray(fused), model.encode_fused({name: X[:70] for name, X in views.items()}))
    started = fh.FuseHash(n_bits=16, random_state=0).partial_fit({name: X[:100] for name, X in views.items()})
    again = deepcopy(started)
    more = {name: X[100:160] for name, X in views.items()}
    started.partial_fit(more)
    again.partial_fit({name: torch.as_tensor(X.toarray()) for name, X in more.items()})
    assert np.array_equal(started.codes_, again.codes_)


def test_sparse_views_that_are_no_bags_are_learned_like_dense_ones() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 700)) * (rng.random((120, 700)) < 0.3)
    views = {"a": X, "b": X[:, :40] + 0.1 * rng.standard_normal((120, 40))}
    dense = fh.FuseHash(n_bits=16, random_state=0).fit(views)
    sparse = fh.FuseHash(n_bits=16, random_state=0).fit({**views, "a": sp.csr_array(X)})
    assert np.array_equal(dense.codes_, sparse.codes_)


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
