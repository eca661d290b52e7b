"""The best bits of a frame: against a slow search, all codes of few bits, and what they do for float queries."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fusehash as fh
from fusehash import bits
from fusehash.hashers.fusehash.best_bits import SWEEPS, nearest_bits, projector_of
from fusehash.hashers.fusehash.floats import tight_frame


def slow_search(x: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Turn one bit after the other where the angle between x and F b gets smaller, by the definition."""
    b = np.where(x @ F > 0, 1.0, -1.0)
    for _ in range(SWEEPS):
        for j in range(len(b)):
            turned = b.copy()
            turned[j] = -b[j]
            if cosine(x, F @ turned) > cosine(x, F @ b) + 1e-10:
                b = turned
    return b


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@settings(max_examples=40, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), rank=st.integers(2, 6), more=st.integers(1, 10))
def test_bits_are_those_of_a_slow_search_by_the_definition(seed: int, rank: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    F, X = tight_frame(rank, rank + more, rng), rng.standard_normal((9, rank))
    found = nearest_bits(X @ F, F.T @ F * (rank / (rank + more)))
    for x, b in zip(X, found, strict=True):
        assert set(b) <= {-1.0, 1.0}
        assert cosine(x, F @ b) == pytest.approx(cosine(x, F @ slow_search(x, F)), abs=1e-7)
        assert cosine(x, F @ b) >= cosine(x, F @ np.sign(x @ F)) - 1e-9


def test_the_search_comes_near_the_best_of_all_codes() -> None:
    rng = np.random.default_rng(0)
    F, X = tight_frame(5, 10, rng), rng.standard_normal((200, 5))
    found, every = nearest_bits(X @ F, F.T @ F / 2), np.array(list(product((-1.0, 1.0), repeat=10)))
    directions = every @ F.T
    best = (X @ (directions / np.linalg.norm(directions, axis=1)[:, None]).T).max(axis=1) / np.linalg.norm(X, axis=1)
    reached = np.array([cosine(x, F @ b) for x, b in zip(X, found, strict=True)])
    signs = np.array([cosine(x, F @ np.sign(x @ F)) for x in X])
    assert np.all(reached <= best + 1e-12)
    assert np.mean(best - reached) < 0.5 * np.mean(best - signs)


def test_as_many_directions_as_bits_keep_their_signs_and_rows_of_zeros_are_fine() -> None:
    rng = np.random.default_rng(1)
    F, X = tight_frame(8, 8, rng), rng.standard_normal((50, 8))
    assert_array_equal(nearest_bits(X @ F, F.T @ F), np.sign(X @ F))
    assert_array_equal(nearest_bits(np.zeros((2, 8)), F.T @ F), -np.ones((2, 8)))


def test_the_projector_is_that_of_the_frame() -> None:
    rng = np.random.default_rng(2)
    F = tight_frame(6, 16, rng)
    weights = {"image": rng.standard_normal((30, 6)) @ F, "text": 1e-3 * rng.standard_normal((9, 6)) @ F}
    assert_allclose(projector_of(weights, 6), F.T @ F * (6 / 16), atol=1e-12)


@pytest.mark.parametrize("target", ["pairs", "floats"])
def test_items_with_factors_are_found_better_and_codes_alone_stay_signs(target: str) -> None:
    rng = np.random.default_rng(3)
    latent = rng.standard_normal((1200, 24)) * np.linspace(2, 0.4, 24)
    views = {name: latent + 0.5 * rng.standard_normal(latent.shape) + shift for name, shift in (("a", 1.0), ("b", -1))}
    model = fh.FuseHash(n_bits=64, target=target, random_state=0).fit({n: X[:800] for n, X in views.items()})
    assert 0 < model.fitted_.frame_rank < 64
    items, p = views["b"][800:], model.project(views["a"][800:], view="a")
    P = model.project(items, view="b")
    assert_array_equal(model.encode(items, view="b"), bits.pack(P))
    codes, factors = model.encode(items, view="b", with_factors=True)
    for rows in (slice(0, 1), slice(7, 300)):
        assert_array_equal(model.encode(items[rows], view="b", with_factors=True)[0], codes[rows])
    exact = model.fitted_.frame_projector
    assert_allclose(P @ exact, P, atol=1e-6 * np.abs(P).max())
    errors = []
    for b in (bits.unpack(codes, 64), bits.unpack(bits.pack(P), 64)):
        scales = np.sum(P * P, axis=1) / np.sum(P * b, axis=1)
        errors.append(np.linalg.norm((p @ b.T) * scales - p @ P.T))
    assert errors[0] < 0.8 * errors[1]
    assert (factors[:, 0] > 0).all()
