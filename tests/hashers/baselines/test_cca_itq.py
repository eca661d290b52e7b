"""CCA-ITQ: the rotation is the best one for its signs, the loss falls, and codes are signs of rotated variates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash import bits, datasets, hashers
from fusehash.errors import FusehashWarning
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines.cca_itq import rotation_step
from fusehash.hashers.canonical import joint_sums, shared_directions
from fusehash.hashers.linear import CenteredViews
from fusehash.numerics.rotation import random_orthogonal
from fusehash.parameters import rng_for
from fusehash.views import PairedViews

VIEWS = datasets.make_paired(300, views={"image": 20, "text": 14}, n_classes=5, random_state=2).views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}


def directions(ridge: float):
    data = CenteredViews.of(PairedViews(VIEWS), ridge)
    return shared_directions(data, *joint_sums(data))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_a_step_finds_the_best_rotation_for_the_signs(seed, r):
    rng = np.random.default_rng(seed)
    Z, R = rng.standard_normal((30, r)), random_orthogonal(r, rng)
    new, loss = rotation_step(Z, R)
    B = np.where(Z @ R > 0, 1.0, -1.0)
    assert np.allclose(new.T @ new, np.eye(r))
    assert loss == pytest.approx(sum((b - z @ R) @ (b - z @ R) for b, z in zip(B, Z, strict=True)))
    best = np.sum((B - Z @ new) ** 2)
    assert best <= loss + 1e-9
    for _ in range(20):
        assert best <= np.sum((B - Z @ random_orthogonal(r, rng)) ** 2) + 1e-9


@pytest.mark.parametrize("n_bits", [8, 16, 40])
@pytest.mark.filterwarnings("ignore::fusehash.errors.FusehashWarning")
def test_the_loss_never_rises(n_bits):
    loss = hashers.make("cca_itq", n_bits=n_bits, random_state=0).fit(VIEWS).objective_
    assert len(loss) == 50
    assert np.diff(loss).max() <= 1e-9 * loss[0]
    assert loss[-1] < loss[0]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_projections_are_rotated_weighted_variates(power):
    model = hashers.make("cca_itq", n_bits=8, ridge=1e-3, power=power, random_state=3).fit(VIEWS)
    shared = directions(1e-3)
    rho = shared.agreement[:8]
    assert np.allclose(model.correlations_, rho)
    rotations = [
        np.linalg.lstsq(shared.maps[name][:, :8] * rho**power, model.weights_[name], rcond=None)[0] for name in X
    ]
    assert np.allclose(rotations[0], rotations[1])
    assert np.allclose(rotations[0].T @ rotations[0], np.eye(8))
    assert np.array_equal(model.codes_, bits.pack(sum(X[name] @ model.weights_[name] for name in X)))


def test_the_rotation_follows_the_printed_loop():
    model = hashers.make("cca_itq", n_bits=8, max_iter=7, random_state=5).fit(VIEWS)
    shared = directions(1e-3)
    A = {name: shared.maps[name][:, :8] * shared.agreement[:8] for name in X}
    Z = np.vstack([X[name] @ A[name] for name in X])
    R = random_orthogonal(8, rng_for(5, "rotation"))
    for _ in range(7):
        B = np.where(Z @ R > 0, 1.0, -1.0)
        U, _, Vt = np.linalg.svd(B.T @ Z)  # as printed: svd(B'Z) = U S V', R = V U'
        R = Vt.T @ U.T
    assert np.allclose(model.weights_["image"], A["image"] @ R)


def test_more_bits_than_directions_are_several_rotations_side_by_side():
    with pytest.warns(FusehashWarning, match="32 bits of views that share 14 directions"):
        model = hashers.make("cca_itq", n_bits=32, random_state=0).fit(VIEWS)
    W = model.weights_["image"]
    assert np.linalg.matrix_rank(W) == 14
    assert np.abs(np.corrcoef(bits.unpack(model.codes_, 32).T) - np.eye(32)).max() < 0.999


def test_a_rotation_from_some_of_the_rows_is_seeded_and_every_row_gets_a_code():
    first, again, other = (
        hashers.make("cca_itq", n_bits=8, max_rows=50, random_state=seed).fit(VIEWS) for seed in (0, 0, 1)
    )
    assert len(first.codes_) == 300
    assert np.array_equal(first.codes_, again.codes_)
    assert not np.array_equal(first.codes_, other.codes_)
    assert np.array_equal(first.codes_, first.encode_fused(VIEWS))


@pytest.mark.slow
@pytest.mark.parametrize(("n_bits", "expected"), [(16, (0.2567, 0.5902, 0.4180)), (64, (0.2672, 0.6107, 0.4613))])
@pytest.mark.filterwarnings("ignore::fusehash.errors.FusehashWarning")
def test_wiki(data_file, n_bits, expected):
    """No table prints it for these features; these are our means over 5 seeds: U I->T, U T->I, H T->I."""
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    result = evaluate(
        hashers.make("cca_itq", n_bits=n_bits), wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2)
    )
    assert result["U", "image->text"].mean == pytest.approx(expected[0], abs=0.015)
    assert result["U", "text->image"].mean == pytest.approx(expected[1], abs=0.02)
    assert result["H", "text->image"].mean == pytest.approx(expected[2], abs=0.04)
    codes = hashers.make("cca_itq", n_bits=n_bits, random_state=0).fit(wiki.views.rows(wiki.train)).codes_
    assert np.abs(bits.unpack(codes, n_bits).mean(axis=0)).max() < 0.8
