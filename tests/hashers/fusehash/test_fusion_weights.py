"""Weights of the views in a fusion: least squares, and equal where least squares cannot tell the views apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import fusehash as fh
from fusehash.hashers.fusehash.tuning.fusion import RIDGE, near_equal


@settings(max_examples=50, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), n_views=st.integers(1, 4), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_weights_are_least_squares_with_a_ridge_around_equal_ones(seed: int, n_views: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    P = scale * (rng.standard_normal((200, 1)) + rng.standard_normal((200, n_views)))
    b = np.sign(P @ rng.random(n_views) + scale * rng.standard_normal(200))
    together = P.sum(axis=1, keepdims=True)
    (equal,), *_ = np.linalg.lstsq(together, b, rcond=None)
    root = np.sqrt(RIDGE) * np.linalg.norm(P) * np.eye(n_views)
    expected, *_ = np.linalg.lstsq(np.vstack([P, root]), np.concatenate([b, equal * root.sum(axis=1)]), rcond=None)
    assert_allclose(near_equal(P, b), expected, rtol=1e-6, atol=1e-9 / scale)
    free, *_ = np.linalg.lstsq(P, b, rcond=None)
    assert_allclose(near_equal(P, b), free, rtol=0.01, atol=0.01 / scale)


def test_views_that_say_the_same_count_the_same() -> None:
    rng = np.random.default_rng(0)
    p = rng.standard_normal((500, 1))
    P = p + 1e-7 * rng.standard_normal((500, 2))
    assert_allclose(near_equal(P, np.sign(p[:, 0])), np.full(2, np.abs(p).mean() / (2 * np.mean(p**2))), rtol=1e-3)
    assert_allclose(near_equal(np.zeros((5, 2)), np.ones(5)), [0.0, 0.0])


@pytest.mark.parametrize("seed", [0, 2])
def test_two_equal_views_get_equal_weights(seed: int) -> None:
    X = fh.datasets.make_paired(n_samples=1500, views={"image": 32, "text": 24}, random_state=seed).views["image"]
    model = fh.FuseHash(n_bits=32, random_state=seed).fit({"a": X, "b": X.copy()})
    assert model.tuning_["fusion_weights"] == pytest.approx({"a": 1.0, "b": 1.0}, abs=0.05)
