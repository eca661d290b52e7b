"""Rotations that turn real embeddings into signs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.numerics.rotation import groups, learned_rotation, learned_rotations, random_orthogonal, random_rotations


@pytest.mark.parametrize("r", [1, 2, 16, 64])
def test_a_random_orthogonal_matrix_is_orthogonal(r):
    Q = random_orthogonal(r, np.random.default_rng(0))
    assert Q.shape == (r, r)
    assert np.abs(Q.T @ Q - np.eye(r)).max() <= 1e-13


def test_random_orthogonal_matrices_have_no_preferred_sign():
    rng = np.random.default_rng(0)
    corners = np.array([random_orthogonal(3, rng)[0, 0] for _ in range(2000)])
    assert abs(corners.mean()) < 0.06  # QR without the correction gives -1/2
    assert abs((corners**2).mean() - 1 / 3) < 0.03


@given(st.integers(1, 70), st.integers(1, 140))
@settings(deadline=None)
def test_groups_make_all_bits_as_evenly_as_possible(r, n_bits):
    widths = list(groups(r, n_bits))
    assert sum(widths) == n_bits
    assert max(widths) <= r
    assert max(widths) - min(widths) <= 1
    assert len(widths) == -(-n_bits // r)


@pytest.mark.parametrize(("r", "n_bits"), [(8, 8), (8, 5), (3, 8), (10, 64), (1, 8)])
def test_rotations_stand_side_by_side(r, n_bits):
    R = random_rotations(r, n_bits, np.random.default_rng(0))
    assert R.shape == (r, n_bits)
    start = 0
    for width in groups(r, n_bits):
        part = R[:, start : start + width]
        assert np.abs(part.T @ part - np.eye(width)).max() <= 1e-13
        start += width


def test_rotations_side_by_side_are_different():
    R = random_rotations(4, 8, np.random.default_rng(0))
    assert np.abs(R[:, :4] - R[:, 4:]).max() > 0.1


def test_every_step_of_itq_brings_the_embedding_closer_to_its_signs():
    rng = np.random.default_rng(1)
    Y = rng.standard_normal((500, 8)) * np.linspace(3, 0.5, 8)
    start = random_orthogonal(8, rng)
    closeness = [np.abs(Y @ learned_rotation(Y, start, steps)).sum() for steps in range(15)]
    assert np.all(np.diff(closeness) >= -1e-9 * closeness[0])
    assert closeness[-1] > 1.01 * closeness[0]


def test_a_learned_rotation_is_orthogonal_and_without_steps_its_start():
    rng = np.random.default_rng(2)
    Y, start = rng.standard_normal((200, 6)), random_orthogonal(6, rng)
    R = learned_rotation(Y, start, 20)
    assert np.abs(R.T @ R - np.eye(6)).max() <= 1e-12
    assert np.array_equal(learned_rotation(Y, start, 0), start)


def test_itq_finds_a_hidden_cube():
    rng = np.random.default_rng(3)
    corners = np.where(rng.standard_normal((400, 4)) > 0, 1.0, -1.0)
    hidden = random_orthogonal(4, rng)
    best = max(
        np.abs(corners @ hidden.T @ learned_rotation(corners @ hidden.T, random_orthogonal(4, rng), 100)).sum()
        for _ in range(10)
    )
    assert best == pytest.approx(np.abs(corners).sum())


@pytest.mark.parametrize(("r", "n_bits"), [(8, 8), (8, 24), (5, 16)])
def test_learned_rotations_stand_side_by_side(r, n_bits):
    Y = np.random.default_rng(4).standard_normal((300, r))
    R = learned_rotations(Y, n_bits, np.random.default_rng(0), 10)
    again = learned_rotations(Y, n_bits, np.random.default_rng(0), 10)
    assert R.shape == (r, n_bits)
    assert np.abs(np.linalg.norm(R, axis=0) - 1.0).max() <= 1e-12
    assert np.array_equal(R, again)
