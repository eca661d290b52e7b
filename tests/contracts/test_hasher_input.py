"""What a hasher refuses: every kind of bad input gets its one clear sentence, and the model stays as it was."""

from __future__ import annotations

import contextlib
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from fusehash import datasets, hashers
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.views import PairedViews
from hostile.scale import ATTACK

DATA = datasets.make_paired(80, views={"image": 24, "text": 19}, n_classes=3, random_state=1).views
IMAGE, TEXT = DATA["image"], DATA["text"]


def spoilt(value: float) -> np.ndarray:
    matrix = IMAGE.copy()
    matrix[7, 3] = value
    return matrix


def refuses(sentence: str):
    return pytest.raises(DataError, match=f"^{re.escape(sentence)}$")


NOT_FINITE = "View 'image' must hold finite numbers. Got NaN or infinity in 1 rows, first in row 7."
HINT = ' Rows that are all NaN are allowed with missing="allow".'
BAD_TRAINING_DATA = {
    "NaN": ({"image": spoilt(np.nan), "text": TEXT}, NOT_FINITE),
    "infinity": ({"image": spoilt(np.inf), "text": TEXT}, NOT_FINITE),
    "sparse NaN": ({"image": sp.csr_matrix(spoilt(np.nan)), "text": TEXT}, NOT_FINITE),
    "a missing row": (
        {"image": np.where(np.arange(80)[:, None] == 7, np.nan, IMAGE), "text": TEXT},
        NOT_FINITE + HINT,
    ),
    "unpaired rows": (
        {"image": IMAGE, "text": TEXT[:-1]},
        "Rows of the views must pair one to one. Got different numbers of rows: 'image' has 80, 'text' has 79.",
    ),
    "no rows": (
        {"image": IMAGE[:0], "text": TEXT[:0]},
        "View 'image' must have rows and features. Got shape (0, 24) instead.",
    ),
    "no features": (
        {"image": IMAGE, "text": TEXT[:, :0]},
        "View 'text' must have rows and features. Got shape (80, 0) instead.",
    ),
    "no views": ({}, "Views must hold at least one view. Got none."),
    "one matrix": (
        IMAGE,
        "Views must be a mapping from name to matrix, or a list of matrices. Got ndarray instead.",
    ),
    "a vector": (
        {"image": IMAGE, "text": TEXT[:, 0]},
        "View 'text' must be a matrix (rows, features). Got shape (80,) instead.",
    ),
    "ragged rows": (
        {"image": [[1.0], [1.0, 2.0]]},
        "View 'image' must be a matrix (rows, features). Got rows of unequal length.",
    ),
    "words": (
        {"image": np.full((80, 2), "cat"), "text": TEXT},
        "View 'image' must hold real numbers. Got dtype <U3 instead.",
    ),
    "a name that is no string": (
        {1: IMAGE, "text": TEXT},
        "The name of a view must be a non-empty string. Got 1 instead.",
    ),
}
DOES_NOT_VARY = {
    "a constant view": (
        {"image": np.full((80, 3), 0.1), "text": TEXT},
        "View 'image' must vary between rows. Every feature is constant.",
    ),
    "a view of zeros": (
        {"image": IMAGE, "text": np.zeros((80, 2))},
        "View 'text' must vary between rows. Every feature is constant.",
    ),
    "equal rows": (
        {"image": IMAGE[[4] * 80], "text": TEXT},
        "View 'image' must vary between rows. Every feature is constant.",
    ),
}


@pytest.mark.base_class
@pytest.mark.parametrize(("views", "sentence"), BAD_TRAINING_DATA.values(), ids=BAD_TRAINING_DATA)
def test_bad_training_data_is_refused_with_one_sentence(build, views, sentence, fit):
    model = build()
    with refuses(sentence):
        fit(model, views)
    assert not hasattr(model, "codes_")


@pytest.mark.parametrize(("views", "sentence"), DOES_NOT_VARY.values(), ids=DOES_NOT_VARY)
def test_views_that_do_not_vary_are_refused(build, views, sentence, fit):
    model = build()
    with refuses(sentence):
        fit(model, views)
    assert not hasattr(model, "codes_")


def test_numbers_whose_squares_overflow_are_refused_or_mastered(build, fit):
    views = {"image": IMAGE * 1e200, "text": TEXT}
    if build().method in ("fusehash", *hashers.names("quantizer")):  # these prepare their views first
        assert np.isfinite(fit(build(), views).project(views["image"], view="image")).all()
        return
    with refuses("View 'image' must hold numbers whose squares can be summed. Got numbers too large."):
        fit(build(), views)


def check_extremes(build, fit, n_rows, changes):
    """Finite projections, or DataError; pytest makes an error of every RuntimeWarning."""
    data = datasets.make_paired(n_rows, views={"image": 40, "text": 8}, n_classes=4, random_state=3).views
    usual = fit(build(), data)
    for change in changes:
        views = {name: change(name, matrix.copy()) for name, matrix in data.items()}
        with contextlib.suppress(DataError), warnings.catch_warnings():
            warnings.simplefilter("ignore", FusehashWarning)
            check_projections(fit(build(), views), views)
        with contextlib.suppress(DataError):
            check_projections(usual, views)


def check_projections(model, views):
    for name in views:
        assert np.isfinite(model.project(views[name], view=name)).all()
    assert np.isfinite(model.project_fused(views)).all()


def scaled_row(factor, names=("image", "text")):
    def change(name, matrix):
        matrix[7] *= factor if name in names else 1.0
        return matrix

    return change


@pytest.mark.base_class
def test_an_extreme_row_gives_finite_codes_or_one_sentence(build, fit):
    check_extremes(build, fit, 170, [scaled_row(1e12, ["image"]), scaled_row(1e300, ["image"])])


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [60, 170] if ATTACK else [170])
def test_extreme_rows_of_every_size_give_finite_codes_or_one_sentence(build, fit, n_rows):
    factors = (1e6, 1e12, 1e20, 1e150, 1e154, 1e300, 1e-300, 5e-324) if ATTACK else (1e6, 1e12, 1e150, 1e300)
    every = [scaled_row(factor, names) for factor in factors for names in (["image"], ["image", "text"])]
    constant = [lambda name, X, v=value: np.where(np.arange(len(X))[:, None] == 7, v, X) for value in factors]
    tiny = [lambda name, X, v=value: X * v for value in (1e-300, 1e-310)]
    check_extremes(build, fit, n_rows, every + constant + tiny)


@pytest.mark.base_class
def test_a_code_length_that_would_never_end_is_refused(build, fit):
    owner = type(build()).__name__
    sentence = f"The 'n_bits' parameter of {owner} must be a positive multiple of 8, at most 4096. Got 1000000 instead."
    with pytest.raises(ParameterError, match=f"^{re.escape(sentence)}$"):
        fit(build(n_bits=1_000_000), DATA)


@pytest.mark.base_class
def test_one_row_is_too_few(build, fit):
    name = type(build()).__name__
    with pytest.raises(DataError, match=rf"^{name} needs at least 2 paired rows to learn from\. Got 1\.$"):
        fit(build(), DATA.rows([0]))


@pytest.mark.base_class
def test_missing_rows_in_paired_views_are_refused_where_the_method_needs_all(build, fit):
    holed = PairedViews(
        {"image": np.where(np.arange(80)[:, None] == 7, np.nan, IMAGE), "text": TEXT}, allow_missing=True
    )
    model = build()
    if not model._allows_missing:
        with pytest.raises(DataError, match=r"'image'.*missing=.allow."):
            fit(model, holed)


def test_a_ridge_of_zero_works_or_is_refused(build, fit):
    if "ridge" in build().get_params():
        views = {"image": np.hstack([IMAGE, IMAGE]), "text": TEXT}
        if build().method == "fusehash":
            with pytest.raises(ParameterError, match=r"^The 'ridge' parameter of FuseHash must be .* greater than 0"):
                fit(build(ridge=0.0), views)
        else:
            model = fit(build(ridge=0.0), views)
            assert model.score(views) > 0.6 or not model.comparable


# -- asking a fitted model -------------------------------------------------------------------------------------------


@pytest.fixture
def fitted(trained):
    return trained(DATA)


@pytest.mark.base_class
@pytest.mark.parametrize("view", ["sound", "", 2, -1, None, 1.0, True, ["image"]])
def test_an_unknown_view_is_refused(fitted, view):
    with refuses(f"The view must be one of 'image', 'text'. Got {view!r} instead."):
        fitted.encode(IMAGE, view=view)


@pytest.mark.base_class
def test_an_unknown_view_is_refused_when_fusing_and_scoring(fitted):
    for ask in (fitted.encode_fused, fitted.project_fused, fitted.score):
        with refuses("The view must be one of 'image', 'text'. Got 'sound' instead."):
            ask({"image": IMAGE, "sound": TEXT})


@pytest.mark.base_class
def test_another_number_of_features_is_refused(fitted):
    with refuses("View 'text' must have 19 features, as in fit. Got 24 instead."):
        fitted.encode(IMAGE, view="text")
    with refuses("View 'text' must have 19 features, as in fit. Got 18 instead."):
        fitted.encode_fused({"image": IMAGE, "text": TEXT[:, :18]})
    with refuses("View 'text' must have 19 features, as in fit. Got 3 instead."):
        fitted.encode_fused({"image": IMAGE, "text": np.full((80, 3), np.nan)})


@pytest.mark.base_class
@pytest.mark.parametrize("ask", ["encode", "project"])
def test_bad_rows_are_refused(fitted, ask):
    method = getattr(fitted, ask)
    with refuses(NOT_FINITE):
        method(spoilt(np.nan), view="image")
    with refuses(NOT_FINITE):
        method(spoilt(-np.inf), view="image")
    with refuses("View 'image' must be a matrix (rows, features). Got shape (24,) instead."):
        method(IMAGE[0], view="image")
    with refuses("View 'image' must have rows and features. Got shape (0, 24) instead."):
        method(IMAGE[:0], view="image")
    with refuses("View 'image' must hold real numbers. Got dtype object instead."):
        method(np.full((2, 24), None), view="image")


@pytest.mark.base_class
def test_bad_rows_are_refused_when_fusing(fitted):
    with refuses(NOT_FINITE):
        fitted.encode_fused({"image": spoilt(np.nan), "text": TEXT})
    with refuses(
        "Rows of the views must pair one to one. Got different numbers of rows: 'image' has 80, 'text' has 3."
    ):
        fitted.encode_fused({"image": IMAGE, "text": TEXT[:3]})
    with refuses("Every row must be present in at least one view. Row 0 is in none."):
        fitted.encode_fused({"image": np.full((1, 24), np.nan)})
    with refuses("A list of views must have one matrix for each of ['image', 'text']. Got 1 instead."):
        fitted.encode_fused([IMAGE])
    with refuses("Views must be a mapping from name to matrix, or a list of matrices. Got ndarray instead."):
        fitted.encode_fused(IMAGE)


@pytest.mark.base_class
def test_the_view_must_be_named(fitted):
    with pytest.raises(TypeError):
        fitted.encode(IMAGE)
    with pytest.raises(TypeError):
        fitted.encode(IMAGE, "image")


@pytest.mark.base_class
def test_a_model_that_is_not_fitted_says_so(build, tmp_path):
    model = build()
    name = type(model).__name__
    asks = (
        lambda: model.encode(IMAGE, view="image"),
        lambda: model.project(IMAGE, view="image"),
        lambda: model.encode_fused(DATA),
        lambda: model.project_fused(DATA),
        lambda: model.score(DATA),
        lambda: model.save(tmp_path / "m.safetensors"),
    )
    for ask in asks:
        with pytest.raises(NotFittedError, match=rf"^This {name} is not fitted yet\. Call 'fit' first\.$"):
            ask()
    assert not list(tmp_path.iterdir())
