"""The four protocols: what is learned from, what is searched, and what is reported."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

import fusehash
from fusehash.bits import pack
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import evaluate, mean_average_precision, protocols
from fusehash.evaluation.protocols import halves
from fusehash.evaluation.result import json_ready
from fusehash.views import PairedViews


@dataclass(frozen=True)
class Dataset:
    """What fusehash.datasets.PairedDataset promises, and no more."""

    name: str
    views: PairedViews
    labels: Any
    train: Any
    query: Any
    database: Any
    split: str = "fixed"
    fingerprint: str = "sha256:0"


class Hasher(BaseEstimator):
    """An honest small hasher: codes from a random projection of all views, one least-squares map per view."""

    def __init__(self, *, n_bits=16, random_state=0):
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, views):
        views = PairedViews(views, allow_missing=True)
        rng = np.random.default_rng(self.random_state)
        dense = {name: views.block(name, slice(None)) for name in views}
        signs = np.sign(sum(X @ rng.normal(size=(X.shape[1], self.n_bits)) for X in dense.values()))
        self.maps_ = {name: np.linalg.lstsq(X, signs, rcond=None)[0] for name, X in dense.items()}
        self.codes_ = pack(signs)
        self.n_learnt_ = views.n_rows
        return self

    def project(self, X, *, view):
        X = X.toarray() if sp.issparse(X) else X
        assert np.isfinite(X).all()
        return X @ self.maps_[view]

    def encode(self, X, *, view):
        return pack(self.project(X, view=view))

    def encode_fused(self, views):
        views = PairedViews(views, allow_missing=True)
        return pack(sum(views.block(name, slice(None)) @ self.maps_[name] for name in views))


def make(n=120, new=0, views=2, seed=0):
    """n pairs of 4 classes: 20 queries, the rest trained on, but for the last `new`."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 4, n)
    names = ("image", "text", "sound")[:views]
    made = PairedViews({name: np.eye(4)[classes] @ rng.normal(size=(4, 9)) + rng.normal(size=(n, 9)) for name in names})
    return Dataset("toy", made, classes, np.arange(20, n - new), np.arange(20), np.arange(20, n))


def by_hand(model, data, learn, searched, protocol, query_view, searched_view, **how):
    fitted = model.fit(data.views.rows(learn))
    query = fitted.encode(data.views[query_view][data.query], view=query_view)
    database = {
        "U": lambda: fitted.codes_,
        "H": lambda: fitted.encode(data.views[searched_view][searched], view=searched_view),
        "F": lambda: fitted.encode_fused(data.views.rows(searched)),
    }[protocol[0]]()
    return mean_average_precision(query, database, (data.labels[data.query], data.labels[searched]), **how)


@pytest.mark.parametrize("new", [0, 40])
def test_every_protocol_is_what_one_would_do_by_hand(new):
    data = make(new=new)
    result = evaluate(Hasher(), data, seeds=(3, 5), k=30)
    assert len(result.scores) == 8
    for score in result.scores:
        for seed, value in zip((3, 5), score.values, strict=True):
            learn, searched = data.train, data.train
            if score.protocol in ("HN", "FN"):
                learn, searched = (data.train, np.arange(120 - new, 120)) if new else halves(data.train, seed)
                assert not np.intersect1d(learn, searched).size
            model = Hasher(random_state=seed)
            want = by_hand(model, data, learn, searched, score.protocol, score.query_view, score.database_view, k=30)
            assert value == pytest.approx(want, abs=1e-12), score.row()
            assert score.n_database == len(searched)
        assert score.per_query.shape == (2, 20)
        assert score.mean == pytest.approx(score.per_query.mean())
        assert score.std == pytest.approx(np.std(score.values, ddof=1))
    assert result["U", "image->text"].mean > 0.4
    assert {name: len(seconds) for name, seconds in result.fit_seconds.items()} == (
        {"train": 2} if new else {"train": 2, "half": 2}
    )


def test_halves_are_seeded_disjoint_and_cover_the_training_rows():
    train = np.arange(100, 201)
    learn, searched = halves(train, 4)
    assert (len(learn), len(searched)) == (51, 50)
    np.testing.assert_array_equal(np.sort(np.r_[learn, searched]), train)
    order = np.random.default_rng(4).permutation(101)
    np.testing.assert_array_equal(learn, np.sort(train[order[:51]]))
    np.testing.assert_array_equal(halves(train, 4)[0], learn)
    assert (halves(train, 5)[0] != learn).any()


def test_the_template_is_not_touched():
    model = Hasher(random_state=9)
    evaluate(model, make(), seeds=[1])
    assert model.random_state == 9
    assert not hasattr(model, "codes_")


def test_only_the_fits_that_are_needed():
    result = evaluate(Hasher(), make(), protocols=["FN"], seeds=[0])
    assert set(result.fit_seconds) == {"half"}
    assert [score.protocol for score in result.scores] == ["FN", "FN"]
    assert np.isnan(result["FN", "image->text"].std)
    assert result.table()[0]["std"] is None


def test_three_views_give_six_directions():
    result = evaluate(Hasher(), make(views=3), protocols=("U", "HN"), seeds=range(1))
    assert len(result.scores) == 12
    assert len({score.direction for score in result.scores}) == 6
    assert result["U", "sound->image"].values == result["U", "sound->text"].values  # unified codes know no view


def test_a_fitted_model_is_taken_as_it_is():
    data = make()
    model = Hasher(random_state=6).fit(data.views.rows(data.train))
    result = evaluate(model, data, refit=False)
    fresh = evaluate(Hasher(), data, protocols=("U", "H"), seeds=[6])
    assert [score.mean for score in result.scores] == [score.mean for score in fresh.scores]
    assert set(result.skipped) == {"HN", "FN"}
    assert "need a refit" in result.skipped["HN"]
    assert result.card["seeds"] == [6]
    assert result.fit_seconds == {}
    assert "HN was not run" in str(result)

    data = make(new=40)
    model = Hasher(random_state=6).fit(data.views.rows(data.train))
    assert not evaluate(model, data, refit=False).skipped
    del model.codes_
    assert set(evaluate(model, data, refit=False).skipped) == {"U"}


def test_asymmetric_queries():
    data = make()
    result = evaluate(Hasher(), data, protocols=["H"], seeds=[2], asymmetric=True, ties="stable", k=None)
    fitted = Hasher(random_state=2).fit(data.views.rows(data.train))
    want = mean_average_precision(
        fitted.project(data.views["image"][data.query], view="image"),
        fitted.encode(data.views["text"][data.train], view="text"),
        (data.labels[data.query], data.labels[data.train]),
        k=None,
        ties="stable",
    )
    assert result["H", "image->text"].mean == pytest.approx(want, abs=1e-12)
    assert result.card["asymmetric"] is True
    assert "asymmetric" in str(result)


def test_label_matrices_dense_and_sparse():
    data = make()
    one_hot = np.eye(4, dtype=np.uint8)[data.labels]
    want = evaluate(Hasher(), data, seeds=[0]).table()
    assert evaluate(Hasher(), replace(data, labels=one_hot), seeds=[0]).table() == want
    assert evaluate(Hasher(), replace(data, labels=sp.coo_matrix(one_hot)), seeds=[0]).table() == want


def test_encoding_in_parts_changes_nothing(monkeypatch):
    data = make(new=40)
    want = evaluate(Hasher(), data, seeds=[0]).table()
    monkeypatch.setattr(protocols, "ROWS_AT_ONCE", 7)
    assert evaluate(Hasher(), data, seeds=[0]).table() == want


def test_rows_that_a_view_lacks_are_neither_asked_nor_searched_there():
    data = make(new=40)
    image = data.views["image"].copy()
    image[[0, 1, 2, 30, 115]] = np.nan
    data = replace(data, views=PairedViews({"image": image, "text": data.views["text"]}, allow_missing=True))
    result = evaluate(Hasher(), data, seeds=[0])
    assert result["U", "image->text"].per_query.shape == (1, 17)
    np.testing.assert_array_equal(result["U", "image->text"].query_rows, np.arange(3, 20))
    assert result["U", "text->image"].per_query.shape == (1, 20)
    assert result["H", "text->image"].n_database == 59
    assert result["HN", "text->image"].n_database == 39
    assert result["HN", "image->text"].n_database == 40
    assert result["FN", "text->image"].n_database == 40


def test_the_card_says_all_and_survives_json():
    data = make(new=40)
    result = evaluate(Hasher(n_bits=24), data, seeds=(0, 1), k=10, ties="stable")
    again = json.loads(json.dumps(result.to_dict(per_query=True), allow_nan=False))
    card = again["card"]
    assert card["dataset"] == "toy"
    assert card["data_hash"] == "sha256:0"
    assert card["split"] == "fixed"
    assert (card["n_train"], card["n_database"], card["n_query"]) == (60, 100, 20)
    assert card["protocols"]["HN"]["n_database"] == 40
    assert card["protocols"]["HN"]["database_rule"] == (
        "Items not seen in training, each hashed from the searched view alone; "
        "the database rows outside the training rows were searched."
    )
    assert (card["map_rule"], card["ties"], card["k"], card["seeds"]) == ("E1", "stable", 10, [0, 1])
    assert card["fusehash_version"] == fusehash.__version__
    assert (card["model"], card["model_params"]) == ("Hasher", {"n_bits": 24, "random_state": 0})
    assert np.shape(again["scores"][0]["per_query"]) == (2, 20)
    assert "per_query" not in result.to_dict()["scores"][0]
    text = str(result)
    assert text.startswith("Hasher on toy (fixed): MAP@10, rule E1, ties stable, seeds 0, 1\n")
    assert len(text.splitlines()) == 2 + 8 + 4
    half = evaluate(Hasher(), make(), seeds=[0]).card["protocols"]["FN"]
    assert (half["n_train"], half["n_database"]) == (50, 50)
    assert "a seeded half of the training rows was learned from" in half["database_rule"]


def test_parameters_that_json_cannot_hold():
    given = {"a": np.float32(0.5), "b": np.array([1.0, np.inf]), "c": (1, None), "d": {2: "x"}, "e": object, "f": True}
    want = {"a": 0.5, "b": [1.0, "inf"], "c": [1, None], "d": {"2": "x"}, "e": "<class 'object'>", "f": True}
    assert json_ready(given) == want


def test_progress_counts_up_to_its_total():
    steps = []
    evaluate(Hasher(), make(), seeds=(0, 1), progress=lambda step, total, message: steps.append((step, total, message)))
    assert [step for step, _, _ in steps] == list(range(len(steps)))
    assert {total for _, total, _ in steps} == {len(steps) - 1} == {2 * (2 + 8)}
    assert steps[0][2] == "seed 0: fit on 100 pairs"
    assert steps[-1][2] == "done"


def test_unknown_score():
    with pytest.raises(
        DataError, match=r"must hold the protocol and direction \('U', 'a->b'\). It holds: U image->text"
    ):
        evaluate(Hasher(), make(), seeds=[0])["U", "a->b"]


class Unprojected(Hasher):
    project = property()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": None}, "Data set 'toy' has none"),
        ({"labels": np.zeros(7)}, r"a label row for each of its 120 rows. Got labels of shape \(7,\)"),
        ({"query": np.arange(15, 25)}, "Query rows must not be training rows. Got 5 shared rows, first row 20"),
        (
            {"query": np.r_[0, 119], "train": np.arange(20, 90)},
            "Query rows must not be database rows. Got 1 shared rows",
        ),
        ({"train": np.array([], int)}, "Rows 'train' of toy must be a non-empty list of row numbers"),
        ({"train": np.array([20, 20])}, "Rows 'train' of toy must be named once each"),
        ({"database": np.array([20, 120])}, "Rows 'database' of toy must be between 0 and 119. Got 20 to 120"),
        ({"query": np.array([0.0])}, "Got float64"),
        (
            {"train": np.array([20]), "database": np.array([20])},
            "must split the training rows in two. Got 1 training rows",
        ),
    ],
)
def test_bad_data_sets(change, sentence):
    with pytest.raises(DataError, match=sentence):
        evaluate(Hasher(), replace(make(), **change), seeds=[0])


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"protocols": ["X"]}, "'protocols' parameter of evaluate must be different names out of 'U', 'H', 'HN', 'FN'"),
        ({"protocols": ["U", "U"]}, "different names"),
        ({"protocols": []}, "different names"),
        ({"protocols": None}, "different names .* Got None instead"),
        ({"protocols": [["U"]]}, "different names"),
        ({"seeds": []}, "'seeds' parameter of evaluate must be one or more integers of at least 0"),
        ({"seeds": [0.5]}, "integers of at least 0"),
        ({"ties": "none"}, "'ties' parameter of evaluate"),
        ({"k": -1}, "'k' parameter of evaluate"),
        ({"refit": False, "protocols": ["HN"]}, "need a refit on half of them"),
    ],
)
def test_bad_parameters(how, sentence):
    with pytest.raises(ParameterError, match=sentence):
        evaluate(Hasher(), make(), **how)


def test_a_model_that_cannot_project_and_one_view():
    with pytest.raises(ParameterError, match="False for a model without a method 'project'"):
        evaluate(Unprojected(), make(), asymmetric=True)
    with pytest.raises(DataError, match="at least two views"):
        evaluate(Hasher(), make(views=1))


def test_a_model_that_was_fitted_on_other_rows():
    data = make()

    class Forgetful(Hasher):
        def fit(self, views):
            super().fit(views)
            self.codes_ = self.codes_[1:]
            return self

    with pytest.raises(DataError, match=r"a code for each of 100 training rows. Got 99"):
        evaluate(Forgetful(), data, protocols=["U"], seeds=[0])
