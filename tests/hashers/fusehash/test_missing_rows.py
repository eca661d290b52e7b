"""Rows that are missing in some views: what they cost, and that they change nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fusehash as fh
from fusehash.errors import DataError
from untuned import FIXED, SMALL
from wide_words import wide_words


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


def test_wide_bags_may_be_missing_in_most_rows() -> None:
    views, _ = wide_words(60, 600)
    present = {"abstract": np.arange(60) < 35, "title": np.arange(60) >= 25}  # 10 complete rows
    paired = fh.PairedViews(views, allow_missing=True, present=present)
    model = fh.FuseHash(n_bits=16, missing="allow", random_state=0).fit(paired)
    alone = model.encode_fused({"abstract": views["abstract"][:25]})
    assert np.array_equal(model.encode_fused(paired)[:25], alone)
