"""PairedDataset: what it checks, and a fingerprint that depends on content only."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fusehash.datasets import PairedDataset
from fusehash.datasets.base import tidy_labels, tidy_view
from fusehash.errors import DataError
from fusehash.views import PairedViews


def small(**changes: Any) -> PairedDataset:
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {
        "name": "small",
        "views": {"image": rng.random((8, 3)), "text": (rng.random((8, 2)) > 0.5).astype(float)},
        "labels": np.arange(8) % 3,
        "train": [0, 1, 2],
        "query": [6, 7],
        "database": [0, 1, 2, 3, 4],
        "split": "by hand",
    }
    return PairedDataset(**{**content, **changes})


def test_holds_what_was_given() -> None:
    data = small(label_names=["a", "b", "c"])
    assert isinstance(data.views, PairedViews)
    assert data.labels.dtype == data.train.dtype == np.int64
    assert data.label_names == ("a", "b", "c")
    for part in ("small", "8 pairs", "'image': 3", "train 3, query 2, database 5", "by hand"):
        assert part in data.describe()
    assert "small" in repr(data)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train": [0, 8]}, "between 0 and 7"),
        ({"train": [-1, 2]}, "between 0 and 7"),
        ({"query": []}, "non-empty list of row numbers"),
        ({"query": [0.5, 1.5]}, "non-empty list of row numbers"),
        ({"database": [3, 3]}, "named once each"),
        ({"query": [2, 7]}, "must not be among the rows of 'train'. Got 1 shared rows, first row 2"),
        ({"query": [4, 7]}, "must not be among the rows of 'database'"),
        ({"labels": np.arange(7)}, "one row for each of the 8 items. Got 7"),
        ({"labels": np.linspace(0, 1, 8)}, "whole class numbers"),
        ({"labels": np.full((8, 2), 3)}, "only 0 and 1"),
        ({"labels": np.array(["a"] * 8)}, "must be numbers"),
        ({"labels": np.zeros((8, 2, 2))}, "class numbers or a 0/1 matrix"),
        ({"views": {"image": np.ones((8, 2)), "text": np.ones((7, 2))}}, "pair one to one"),
    ],
)
def test_says_what_is_wrong(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence.replace("(", r"\(")):
        small(**changes)


def test_fingerprint_does_not_depend_on_storage() -> None:
    data = small()
    image, text = data.views["image"], data.views["text"]
    print_ = data.fingerprint
    assert len(print_) == 64
    assert print_ == small().fingerprint
    assert print_ == small(views={"text": sp.csr_array(text), "image": np.asfortranarray(image)}).fingerprint
    assert print_ == small(views={"image": image.astype(">f8"), "text": text.astype(np.uint8)}).fingerprint
    assert print_ == small(views={"image": image, "text": np.where(text == 0, -0.0, text)}).fingerprint
    assert print_ == small(labels=(np.arange(8) % 3).astype(np.float32), name="x", split="y").fingerprint


def test_fingerprint_of_known_content_never_changes() -> None:
    """The value is part of published protocol cards: a change here is a change of format."""
    assert small(views={"image": np.arange(24.0).reshape(8, 3), "text": np.eye(8)}).fingerprint == (
        "53c3c350eda9b3761b2faf8b3604adb4c03fbd9ed5e078975c2b6e95d9bace8a"
    )


@given(st.sampled_from(["image", "labels", "train", "query", "database", "names"]), st.integers(0, 2**31))
def test_fingerprint_sees_every_change(what: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = small()
    changed: Any
    if what == "image":
        changed = data.views["image"].copy()
        changed[rng.integers(8), rng.integers(3)] += 1e-9
        other = small(views={"image": changed, "text": data.views["text"]})
    elif what == "names":
        other = small(views={"picture": data.views["image"], "text": data.views["text"]})
    elif what == "labels":
        changed = data.labels.copy()
        changed[rng.integers(8)] += 1
        other = small(labels=changed)
    else:
        other = small(**{what: getattr(data, what)[::-1]})
    assert other.fingerprint != data.fingerprint


def test_missing_rows_are_kept_and_counted_in_the_fingerprint() -> None:
    image = np.random.default_rng(0).random((8, 3))
    text = np.ones((8, 2))
    text[3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = small(views=PairedViews({"image": image, "text": text}, allow_missing=True))
        assert data.fingerprint != small(views={"image": image, "text": np.nan_to_num(text)}).fingerprint
    assert not data.views.is_present("text")[3]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.float16, np.float32, np.float64, ">f4"])
def test_views_keep_their_values(dtype: Any) -> None:
    for density in (0.02, 0.5):
        matrix = (np.random.default_rng(1).random((40, 100)) < density).astype(dtype)
        tidy = tidy_view(matrix, "text")
        assert sp.issparse(tidy) == (density < 0.1)
        dense = tidy.toarray() if sp.issparse(tidy) else tidy
        assert dense.dtype in (np.float32, np.float64)
        assert dense.dtype.isnative
        np.testing.assert_array_equal(dense, np.asarray(matrix, dtype=np.float64))


def test_narrow_and_filled_matrices_stay_dense() -> None:
    assert not sp.issparse(tidy_view(np.zeros((50, 10)), "x"))
    assert not sp.issparse(tidy_view(sp.csr_array(np.ones((50, 100))), "x"))


def test_labels_in_every_form() -> None:
    numbers = np.array([3, 1, 2])
    assert tidy_labels(numbers[:, None].astype(float)).tolist() == [3, 1, 2]
    assert tidy_labels(sp.csc_array(numbers[:, None])).tolist() == [3, 1, 2]
    matrix = np.array([[1, 0], [0, 1], [1, 1]])
    assert tidy_labels(matrix.astype(float)).tolist() == matrix.tolist()
    wide = np.eye(100)
    assert sp.issparse(tidy_labels(wide))
    assert (tidy_labels(sp.csc_array(wide)).toarray() == wide).all()
