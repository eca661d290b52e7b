"""Paired views: what is accepted, the one sentence for what is not, cutting by rows, and missing rows."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, train_test_split

from fusehash.errors import DataError
from fusehash.views import BLOCK_ROWS, PairedViews, check_view, named, to_dense

X = np.arange(12.0).reshape(4, 3)
Y = np.arange(8.0).reshape(4, 2)


def with_value(value: float, row: int = 2) -> np.ndarray:
    bad = X.copy()
    bad[row, 1] = value
    return bad


def with_missing_rows(*rows: int) -> np.ndarray:
    holed = X.copy()
    holed[list(rows)] = np.nan
    return holed


def refuses(sentence: str):
    return pytest.raises(DataError, match=f"^{re.escape(sentence)}$")


# -- what is accepted ------------------------------------------------------------------------------------------------


def test_a_mapping_keeps_its_names_and_order():
    views = PairedViews({"text": Y, "image": X})
    assert views.names == ["text", "image"]
    assert views.n_features == {"text": 2, "image": 3}
    assert views.shape == (4, 5)
    assert len(views) == 4
    assert "image" in views
    assert "sound" not in views
    assert repr(views) == "PairedViews(4 rows; text: 2, image: 3)"


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_sequence_is_named_by_position(kind):
    assert PairedViews(kind([X, Y])).names == ["view0", "view1"]


def test_paired_views_can_be_made_of_paired_views():
    again = PairedViews(PairedViews({"a": X, "b": Y}))
    assert again.names == ["a", "b"]
    assert again["a"] is X


def test_it_walks_like_a_mapping():
    views = PairedViews({"a": X, "b": Y})
    assert list(views) == ["a", "b"]
    assert {name: matrix.shape for name, matrix in views.items()} == {"a": (4, 3), "b": (4, 2)}
    assert [matrix.shape[1] for matrix in views.values()] == [3, 2]
    with pytest.raises(KeyError):
        views["c"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64, bool])
def test_blocks_are_dense_float64_for_every_kind_of_number(dtype):
    block = PairedViews({"a": X.astype(dtype)}).block("a", slice(0, 4))
    assert block.dtype == np.float64
    assert np.array_equal(block, X.astype(dtype).astype(float))


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.lil_matrix])
def test_sparse_views_stay_sparse_and_give_dense_blocks(form):
    views = PairedViews({"a": form(X), "b": Y})
    assert sp.issparse(views["a"])
    assert np.array_equal(views.block("a", slice(1, 3)), X[1:3])
    assert np.array_equal(views.rows([3, 0]).block("a", slice(None)), X[[3, 0]])


def test_nested_lists_are_matrices():
    assert np.array_equal(PairedViews([X.tolist()])["view0"], X)


def test_a_dense_view_is_not_copied():
    assert np.shares_memory(PairedViews({"a": X})["a"], X)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_finite_numbers_whose_sum_overflows_are_fine(dtype):
    huge = np.full((3, 4), np.finfo(dtype).max, dtype)
    matrix, mask = check_view(huge, "a")
    assert matrix is huge
    assert mask is None


# -- what is not -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, np.float32, sp.csr_matrix])
def test_a_number_that_is_not_finite_is_refused_with_its_row(value, form):
    with refuses("View 'image' must hold finite numbers. Got NaN or infinity in 1 rows, first in row 2."):
        PairedViews({"image": form(with_value(value)), "text": Y})


def test_infinities_that_would_cancel_are_seen():
    bad = with_value(np.inf)
    bad[3, 0] = -np.inf
    with refuses("View 'a' must hold finite numbers. Got NaN or infinity in 2 rows, first in row 2."):
        PairedViews({"a": bad})


def test_the_first_bad_row_is_named_in_later_blocks_too():
    bad = np.zeros((2 * BLOCK_ROWS + 5, 2))
    bad[[BLOCK_ROWS + 3, 2 * BLOCK_ROWS + 4], 0] = np.nan
    with refuses(f"View 'a' must hold finite numbers. Got NaN or infinity in 2 rows, first in row {BLOCK_ROWS + 3}."):
        PairedViews({"a": bad})


def test_a_missing_row_is_refused_with_a_hint():
    sentence = (
        "View 'a' must hold finite numbers. Got NaN or infinity in 1 rows, first in row 1. "
        'Rows that are all NaN are allowed with missing="allow".'
    )
    with refuses(sentence):
        PairedViews({"a": with_missing_rows(1)})


def test_rows_that_do_not_pair_are_refused():
    sentence = "Rows of the views must pair one to one. Got different numbers of rows: 'image' has 4, 'text' has 3."
    with refuses(sentence):
        PairedViews({"image": X, "text": Y[:3]})


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("form", [np.zeros, sp.csr_matrix])
def test_an_empty_view_is_refused(shape, form):
    with refuses(f"View 'a' must have rows and features. Got shape {shape} instead."):
        PairedViews({"a": form(shape)})


@pytest.mark.parametrize("shape", [(), (4,), (4, 3, 2)])
def test_what_is_no_matrix_is_refused(shape):
    with refuses(f"View 'a' must be a matrix (rows, features). Got shape {shape} instead."):
        PairedViews({"a": np.ones(shape)})


def test_rows_of_unequal_length_are_refused():
    with refuses("View 'a' must be a matrix (rows, features). Got rows of unequal length."):
        PairedViews({"a": [[1.0, 2.0], [3.0]]})


@pytest.mark.parametrize(
    ("matrix", "dtype"),
    [([["a", "b"]], "<U1"), (np.array([[1, None]]), "object"), (np.ones((2, 2), complex), "complex128")],
)
def test_what_is_no_number_is_refused(matrix, dtype):
    with refuses(f"View 'a' must hold real numbers. Got dtype {dtype} instead."):
        PairedViews({"a": matrix})


@pytest.mark.parametrize("views", [{}, [], ()])
def test_no_views_are_refused(views):
    with refuses("Views must hold at least one view. Got none."):
        PairedViews(views)


@pytest.mark.parametrize("views", [X, None, "text", 3, sp.csr_matrix(X)])
def test_what_is_no_set_of_views_is_refused(views):
    with refuses(
        f"Views must be a mapping from name to matrix, or a list of matrices. Got {type(views).__name__} instead."
    ):
        PairedViews(views)


@pytest.mark.parametrize("name", ["", 3, None, ("a",)])
def test_a_name_that_is_no_string_is_refused(name):
    with refuses(f"The name of a view must be a non-empty string. Got {name!r} instead."):
        named({name: X})


# -- missing rows ----------------------------------------------------------------------------------------------------


def test_missing_rows_are_known_and_come_as_zeros():
    views = PairedViews({"a": with_missing_rows(1, 3), "b": Y}, allow_missing=True)
    assert views.is_present("a").tolist() == [True, False, True, False]
    assert views.is_present("b").all()
    assert np.array_equal(views.block("a", slice(0, 4)), X * [[1], [0], [1], [0]])
    assert np.array_equal(views.block("a", np.array([3, 2])), [[0, 0, 0], X[2]])
    cut = views.rows([3, 2])
    assert cut.is_present("a").tolist() == [False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_masked_numbers_are_missing_ones(dtype):
    masked = np.ma.masked_array(X.astype(dtype), mask=np.zeros_like(X, dtype=bool))
    assert np.array_equal(PairedViews({"a": masked})["a"], X)
    masked[2] = np.ma.masked
    with pytest.raises(DataError, match=r"Got NaN or infinity in 1 rows, first in row 2\."):
        PairedViews({"a": masked, "b": Y})
    views = PairedViews({"a": masked, "b": Y}, allow_missing=True)
    assert views.is_present("a").tolist() == [True, True, False, True]
    assert np.array_equal(views.block("a", slice(None)), X * [[1], [1], [0], [1]])


def test_a_mask_may_be_a_series(optional):
    mask = optional("pandas").Series([True, False, True, True])
    assert PairedViews({"a": X, "b": Y}, present={"a": mask}).is_present("a").tolist() == mask.tolist()


def test_a_view_may_be_missing_in_every_row_it_was_asked_about():
    views = PairedViews({"a": np.full((1, 3), np.nan), "b": Y[:1]}, allow_missing=True)
    assert not views.is_present("a").any()


def test_a_row_with_some_nan_is_not_a_missing_row():
    bad = with_missing_rows(1)
    bad[3, 0] = np.nan
    with refuses("View 'a' must hold finite numbers. Got NaN or infinity in 1 rows, first in row 3."):
        PairedViews({"a": bad}, allow_missing=True)


def test_a_row_of_infinities_is_not_a_missing_row():
    with refuses("View 'a' must hold finite numbers. Got NaN or infinity in 1 rows, first in row 0."):
        PairedViews({"a": np.full((1, 2), np.inf)}, allow_missing=True)


def test_a_row_that_is_nowhere_is_refused():
    holed = np.where(np.arange(4)[:, None] == 2, np.nan, Y)
    with refuses("Every row must be present in at least one view. Row 2 is in none."):
        PairedViews({"a": with_missing_rows(2), "b": holed}, allow_missing=True)


# -- cutting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [slice(1, 3), [2, 0], np.array([3, 3, 1]), np.array([True, False, False, True]), np.array([], int), range(2)],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_cutting_by_rows_cuts_every_view_alike(index, form):
    cut = PairedViews({"a": form(X), "b": Y})[index]
    rows = np.arange(4)[np.asarray(index) if isinstance(index, range) else index]
    assert isinstance(cut, PairedViews)
    assert len(cut) == len(rows)
    assert np.array_equal(to_dense(cut["a"]), X[rows])
    assert np.array_equal(cut["b"], Y[rows])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("index", [2, -2, np.int64(2)])
def test_one_row_is_cut_as_a_row(form, index):
    cut = PairedViews({"a": form(X), "b": Y})[index]
    assert cut.shape == (1, 5)
    assert np.array_equal(cut.block("a", slice(None)), X[2:3])


def test_scikit_learn_can_split_it():
    views = PairedViews({"a": X, "b": sp.csr_matrix(Y)})
    for train, test in KFold(2).split(views):
        assert sorted([*train, *test]) == [0, 1, 2, 3]
    train, test = train_test_split(views, test_size=1, shuffle=False)
    assert isinstance(test, PairedViews)
    assert np.array_equal(test["a"], X[3:])
    assert len(train) == 3


@given(n_rows=st.integers(1, 50), size=st.integers(1, 60))
@settings(deadline=None)
def test_blocks_cover_every_row_once_and_in_order(n_rows, size):
    views = PairedViews([np.arange(float(n_rows))[:, None]])
    blocks = [views.block("view0", rows) for rows in views.blocks(size)]
    assert np.array_equal(np.vstack(blocks)[:, 0], np.arange(n_rows))
    assert all(len(block) == size for block in blocks[:-1])
    assert 1 <= len(blocks[-1]) <= size
