"""RowPasses over rows in memory and in files: sums and arrays per row against brute force, and samples read once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.streams import row_passes
from fusehash.streams.npy import FileReader
from fusehash.streams.row_passes import Block, RowPasses
from fusehash.views import PairedViews

RNG = np.random.default_rng(0)
X = {"a": RNG.standard_normal((700, 6)).astype(np.float32), "b": RNG.standard_normal((700, 3))}


@dataclass
class Total:
    value: np.ndarray

    def __iadd__(self, other: Total) -> Total:
        self.value = self.value + other.value
        return self


def products(block: Block, *given: np.ndarray):
    """A'[B, given] of a block, and the sum of every row."""
    right = np.hstack([block.arrays["b"], *given])
    return (block.arrays["a"].sum(axis=1), block.arrays["b"][:, :1]), Total(block.arrays["a"].T @ right)


@pytest.fixture
def files(tmp_path):
    for name, matrix in X.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    return PairedViews({name: tmp_path / f"{name}.npy" for name in X})


@given(size=st.integers(1, 900), n_threads=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_a_pass_is_the_product_of_the_matrices(size, n_threads):
    extra = np.arange(1400.0).reshape(700, 2)
    (row_sums, first), sums = RowPasses(PairedViews(X), n_threads).total(products, size, given=(extra,))
    np.testing.assert_allclose(sums.value, X["a"].astype(float).T @ np.hstack([X["b"], extra]), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(row_sums, X["a"].astype(float).sum(axis=1))
    np.testing.assert_array_equal(first, X["b"][:, :1])


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_selection_is_the_selected_rows(files, kind):
    rows = np.sort(RNG.choice(700, 120, replace=False))
    views = PairedViews(X) if kind == "memory" else files
    some = RowPasses(views).select(rows)
    assert some.n_rows == 120
    (row_sums, _), sums = some.total(products, 50)
    np.testing.assert_allclose(row_sums, X["a"][rows].astype(float).sum(axis=1))
    np.testing.assert_allclose(sums.value, X["a"][rows].astype(float).T @ X["b"][rows])
    fewer = some.select(np.array([3, 7, 100]))  # of the selected rows, not of all
    np.testing.assert_array_equal(fewer.total(products, 50)[0][1], X["b"][rows[[3, 7, 100]], :1])


def test_a_selection_of_files_is_read_once_and_one_of_arrays_is_not_copied(files, monkeypatch):
    rows = np.arange(0, 700, 7)
    in_memory = PairedViews(X)
    assert RowPasses(in_memory).select(rows).views is in_memory
    some = RowPasses(files).select(rows)
    assert some.is_local
    assert {name: view.dtype for name, view in some.views.items()} == {"a": np.float32, "b": np.float64}
    monkeypatch.setattr(FileReader, "_fill", lambda *_: pytest.fail("the file was read again"))
    some.total(products, 50)
    with pytest.raises(pytest.fail.Exception):
        RowPasses(files).total(products, 50)


def test_a_selection_knows_what_is_missing(tmp_path):
    holes = {name: matrix.copy() for name, matrix in X.items()}
    holes["b"][::3] = np.nan
    for name, matrix in holes.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    rows = np.arange(100, 200)
    stored = PairedViews({name: tmp_path / f"{name}.npy" for name in X}, allow_missing=True)
    blocks = [
        RowPasses(views).select(rows).block(slice(0, 50)) for views in (stored, PairedViews(holes, allow_missing=True))
    ]
    for name in X:
        np.testing.assert_array_equal(blocks[0].arrays[name], blocks[1].arrays[name])
    np.testing.assert_array_equal(blocks[0].present["b"], blocks[1].present["b"])
    np.testing.assert_array_equal(blocks[0].present["b"], np.arange(100, 150) % 3 != 0)


def test_blocks_of_a_device_have_fewer_rows_of_wide_views(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = row_passes.device_rows(np.zeros(0), 1500)
    assert usual == row_passes.device_rows(np.zeros(0), 10) == 4 * row_passes.MIN_DEVICE_ROWS
    for n_columns in (10_000, 1_000_000, 2**31 - 1):
        rows = row_passes.device_rows(np.zeros(0), n_columns)
        assert 1 <= rows <= max(2**34 // (row_passes.DEVICE_BYTES_PER_COLUMN * n_columns), 1)
    monkeypatch.setattr(row_passes, "is_accelerated", lambda array: True)
    narrow, wide = (PairedViews({"a": np.ones((4, 9)), "b": np.ones((4, d))}) for d in (9, 20_000))
    assert RowPasses(narrow).rows_per_block(64) == usual
    assert RowPasses(wide).rows_per_block(64) < usual / 5
