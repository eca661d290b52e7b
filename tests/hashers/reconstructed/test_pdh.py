"""PDH against brute force, SciPy's minimizer and singular values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError
from fusehash.evaluation import evaluate
from fusehash.hashers.reconstructed.pdh import decorrelated, hinge, margin_targets, predicted_bits
from fusehash.numerics.linalg import ridge_solver, solve_ridge

VIEWS = datasets.make_paired(150, views={"image": 12, "text": 9}, n_classes=4, random_state=2).views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}


def classifiers(x: np.ndarray, target: np.ndarray, own: np.ndarray, s: float, ridge: float, steps: int):
    """Many of the regressions that the classifier step takes a few of."""
    factor = ridge_solver(x.T @ x, ridge)
    W, c = np.zeros((x.shape[1], target.shape[1])), np.zeros(target.shape[1])
    losses = []
    for _ in range(steps):
        T = margin_targets(x @ W + c, target, own, s)
        W, c = solve_ridge(factor, x.T @ T), T.mean(axis=0)
        losses.append(loss_of(x, W, c, target, own, s, ridge))
    return W, c, np.array(losses)


def loss_of(x, W, c, target, own, s, ridge) -> float:
    U = x @ W + c
    penalty = (1.0 + s) * ridge * np.sum(x * x) / x.shape[1] * np.sum(W * W)
    return float(hinge(target * U).sum() + s * hinge(own * U).sum() + penalty)


def test_the_classifier_step_ends_where_the_squared_hinge_ends():
    rng = np.random.default_rng(0)
    x = X["image"]
    target = np.where(x @ rng.standard_normal((12, 2)) + rng.standard_normal((len(x), 2)) > 0, 1.0, -1.0)
    own = np.where(rng.random(target.shape) < 0.1, -target, target)
    W, c, losses = classifiers(x, target, own, 0.5, 1e-2, 400)
    assert np.diff(losses).max() <= 1e-9 * losses[0]
    for k in range(2):
        column = slice(k, k + 1)

        def value(v, column=column):
            return loss_of(x, v[:-1, None], v[-1:], target[:, column], own[:, column], 0.5, 1e-2)

        solution = minimize(value, np.zeros(13), method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14})
        ours = loss_of(x, W[:, column], c[column], target[:, column], own[:, column], 0.5, 1e-2)
        assert ours == pytest.approx(solution.fun, rel=1e-5)
        assert np.allclose([*W[:, k], c[k]], solution.x, atol=1e-2)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-2, 2), st.floats(0, 2), st.floats(0, 2))
def test_bits_are_the_better_of_both_choices(other, own, y, s, rho):
    def cost(b: float) -> float:
        return float(hinge(np.array(b * other)) + s * hinge(np.array(b * own)) - 2.0 * rho * b * y)

    b = predicted_bits(np.array([[other]]), np.array([[own]]), np.array([[y]]), s, rho)[0, 0]
    assert cost(b) <= cost(-b) + 1e-9


def test_decorrelated_codes_are_the_polar_factor():
    B = np.random.default_rng(3).choice([-1.0, 1.0], (80, 6), p=[0.3, 0.7])
    Y = decorrelated(B)
    U, s, Vt = np.linalg.svd(B - B.mean(axis=0), full_matrices=False)
    assert np.allclose(Y, np.sqrt(80) * U @ Vt)
    assert np.allclose(Y.T @ Y, 80 * np.eye(6))
    assert np.allclose(Y.sum(axis=0), 0.0)
    assert np.sum(B * Y) == pytest.approx(np.sqrt(80) * s.sum())  # the nuclear norm: no such Y does better


@pytest.mark.parametrize("shape", [(4, 8), (30, 3)])
def test_decorrelated_codes_of_dependent_bits_stay_bounded(shape):
    B = np.random.default_rng(4).choice([-1.0, 1.0], shape)
    B = np.hstack([B, B[:, :1], np.ones((len(B), 1))])  # a repeated and a constant bit
    Y = decorrelated(B)
    assert np.linalg.norm(Y, 2) <= np.sqrt(len(B)) * (1 + 1e-6)
    assert np.allclose(Y[:, -1], 0.0)
    assert np.allclose(Y.sum(axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize(("s", "rho"), [(0.0, 0.0), (0.5, 0.3), (2.0, 1.0)])
def test_the_objective_never_rises(s, rho):
    model = hashers.make("pdh", n_bits=16, self_weight=s, decorrelation=rho, max_iter=25, tol=0.0, random_state=0).fit(
        VIEWS
    )
    loss = model.objective_
    assert np.diff(loss).max(initial=0.0) <= 1e-9 * loss[0]
    assert loss[-1] < loss[0]


@pytest.mark.filterwarnings("ignore:.*tell nothing apart")  # which is what happens without it
def test_decorrelation_keeps_bits_apart_and_balanced():
    worst = {}
    for rho in (0.0, 0.3):
        model = hashers.make("pdh", n_bits=16, decorrelation=rho, max_iter=30, tol=0.0, random_state=0).fit(VIEWS)
        B = bits.unpack(model.codes_, 16).astype(float)
        C = B.T @ B / len(B)
        worst[rho] = np.abs(B.mean(axis=0)).max(), np.abs(C - np.diag(np.diagonal(C))).max()
    assert worst[0.0][0] > 0.95 > 0.8 > worst[0.3][0]
    assert worst[0.3][1] < 0.95


def test_hash_functions_have_offsets_and_pairs_are_fused_by_their_sum():
    model = hashers.make("pdh", n_bits=16, random_state=0).fit(VIEWS)
    for name, x in X.items():
        expected = x @ model.weights_[name] + model.offsets_[name]
        assert np.allclose(model.project(VIEWS[name], view=name), expected)
    assert np.array_equal(model.encode_fused(VIEWS), model.codes_)


def test_two_views_are_needed():
    with pytest.raises(DataError, match=r"PDH needs 2 views\. Got 3"):
        hashers.make("pdh", n_bits=8).fit([VIEWS["image"]] * 3)


@pytest.mark.slow
def test_numbers_on_wiki(data_file):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    result = evaluate(hashers.make("pdh", n_bits=32), wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
    assert result["U", "image->text"].mean == pytest.approx(0.259, abs=0.02)
    assert result["U", "text->image"].mean == pytest.approx(0.601, abs=0.03)
    assert result["H", "text->image"].mean == pytest.approx(0.449, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", [16, 128])
def test_no_bit_collapses_on_wiki(data_file, n_bits):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("pdh", n_bits=n_bits, random_state=0).fit(wiki.views.rows(wiki.train))
    assert np.abs(bits.unpack(model.codes_, n_bits).mean(axis=0)).max() < 0.7
