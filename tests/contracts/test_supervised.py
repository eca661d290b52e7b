"""What every method that learns from labels must show: which labels it takes, which it refuses, and that it needs none
to encode."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fusehash
from fusehash import bits, datasets, hashers
from fusehash.errors import DataError, FusehashWarning
from fusehash.evaluation import evaluate
from fusehash.hashers.base import CrossModalHasher
from untuned import DEEP

DATA = datasets.make_paired(140, views={"image": 24, "text": 19}, n_classes=4, random_state=3)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)
LABELS = DATA.labels[DATA.train]
N = len(TRAIN)


def build(name: str, **params: Any) -> CrossModalHasher:
    return hashers.make(name, **{"n_bits": 16, "random_state": 0, **DEEP.get(name, {}), **params})


def fit(name: str, labels: Any, views: Any = TRAIN, **params: Any) -> CrossModalHasher:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusehashWarning)
        return build(name, **params).fit(views, labels)


@pytest.fixture(params=hashers.names("supervised"))
def name(request: pytest.FixtureRequest, optional: Any) -> str:
    if hashers.info(request.param).is_deep:
        optional("torch")
    return str(request.param)


# -- what is refused -------------------------------------------------------------------------------------------------

ONE_HOT = np.eye(4)[LABELS]


def refuses(name: str, labels: Any, sentence: str) -> None:
    model = build(name)
    with pytest.raises(DataError) as caught:
        model.fit(TRAIN, labels)
    assert str(caught.value) == sentence.format(type(model).__name__)
    assert not hasattr(model, "codes_")


def test_no_labels_are_refused(name):
    refuses(name, None, "{} learns from labels and needs one row of them for each pair. Got none.")


@pytest.mark.parametrize("labels", [LABELS[:-1], ONE_HOT[:-1], np.append(LABELS, 0), sp.csr_matrix(ONE_HOT[1:])])
def test_another_number_of_labels_is_refused(name, labels):
    refuses(name, labels, f"{{}} needs a label row for each of {N} pairs. Got labels of shape {labels.shape}.")


def test_labels_of_another_shape_are_refused(name):
    for labels in (np.zeros((N, 2, 2)), np.array(3)):
        refuses(name, labels, f"{{}} needs a label row for each of {N} pairs. Got labels of shape {labels.shape}.")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_labels_that_are_no_numbers_are_refused(name, value):
    classes, matrix = LABELS.astype(float), ONE_HOT.copy()
    classes[3] = matrix[3, 1] = value
    refuses(name, classes, "{} needs a class for each row. Got NaN or infinity.")
    refuses(name, matrix, "A matrix of labels must hold 0 and 1 for {}. Got other values.")


@pytest.mark.parametrize("value", [2.0, -1.0, 0.5])
def test_a_matrix_that_is_not_0_and_1_is_refused(name, value):
    matrix = ONE_HOT.copy()
    matrix[3, 1] = value
    refuses(name, matrix, "A matrix of labels must hold 0 and 1 for {}. Got other values.")
    refuses(name, sp.csr_matrix(matrix), "A matrix of labels must hold 0 and 1 for {}. Got other values.")


# -- what is the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scm", "fdch"])  # the base class makes all of these the same matrix
def test_a_class_for_each_row_and_its_0_1_matrix_are_the_same(name, same, learned):
    expected = learned(fit(name, LABELS))
    empty = np.zeros((N, 1))
    for labels in (
        LABELS.tolist(),
        LABELS.astype(np.float32),
        LABELS * 10 - 7,
        np.array(["ant", "bee", "cat", "dog"])[LABELS],
        ONE_HOT,
        ONE_HOT.astype(bool),
        ONE_HOT.astype(np.uint8),
        sp.csr_matrix(ONE_HOT),
        sp.coo_array(ONE_HOT.astype(int)),
        np.hstack([empty, ONE_HOT, empty]),  # classes that no row has
    ):
        assert same(learned(fit(name, labels)), expected)


def test_labels_are_left_as_they_are(name):
    labels = ONE_HOT.copy()
    labels.setflags(write=False)
    fit(name, labels)
    assert np.array_equal(labels, ONE_HOT)


# -- what is learned -------------------------------------------------------------------------------------------------


def test_codes_follow_the_labels(name):
    """Items of one class are nearer than items of two, in the codes of training and in those of new items."""
    model = fit(name, LABELS, n_bits=32)
    for codes, labels in (
        (model.codes_, LABELS),
        (model.encode_fused(NEW), DATA.labels[DATA.query]),
    ):
        B = bits.unpack(codes, 32).astype(float)
        agree, alike = B @ B.T, labels[:, None] == labels
        np.fill_diagonal(alike, False)
        different = labels[:, None] != labels
        assert agree[alike].mean() > agree[different].mean()


def test_other_labels_give_other_codes(name):
    other = np.random.default_rng(0).permutation(LABELS)
    assert not np.array_equal(fit(name, LABELS).codes_, fit(name, other).codes_)


def awkward_labels() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    some = (rng.random((N, 6)) < 0.3).astype(int)
    some[:10] = 0
    return {
        "several labels, and rows without any": some,
        "all in one class": np.zeros(N, int),
        "each its own class": np.arange(N),
        "one row apart": (np.arange(N) == 5).astype(int),
        "every label for every row": np.ones((N, 3), int),
    }


@pytest.mark.parametrize("labels", awkward_labels().values(), ids=awkward_labels())
def test_awkward_labels_still_give_codes(name, labels):
    model = fit(name, labels, n_bits=32)
    assert model.codes_.shape == (N, 4)
    assert np.isfinite(model.project_fused(NEW)).all()


# -- where labels are not needed -------------------------------------------------------------------------------------


def test_no_labels_are_needed_to_encode_score_save_and_load(name, tmp_path):
    model = fit(name, LABELS)
    model.save(tmp_path / "m")
    again = fusehash.load(tmp_path / "m")
    for view in NEW:
        assert np.array_equal(again.encode(NEW[view], view=view), model.encode(NEW[view], view=view))
    assert np.array_equal(again.encode_fused(NEW), model.encode_fused(NEW))
    assert again.score(NEW) == model.score(NEW)


def test_evaluation_gives_the_labels_of_the_training_rows_only(name, monkeypatch):
    seen = []

    original = CrossModalHasher.fit

    def spy(self: CrossModalHasher, views: Any, y: Any = None) -> Any:
        seen.append((views, y))
        return original(self, views, y)

    monkeypatch.setattr(type(build(name)), "fit", spy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusehashWarning)
        evaluate(build(name), DATA, protocols=("U", "HN"), seeds=(0,), k=5)
    assert len(seen) == 2
    views, labels = seen[0]
    assert np.array_equal(labels, LABELS)
    assert np.array_equal(views["image"], TRAIN["image"])
    views, labels = seen[1]  # half of them, each row with its own label
    rows = [int(np.flatnonzero((TRAIN["image"] == row).all(axis=1))[0]) for row in views["image"]]
    assert len(rows) == -(-N // 2)
    assert np.array_equal(labels, LABELS[rows])
