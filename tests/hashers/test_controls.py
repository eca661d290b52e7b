"""The two controls against a few dense lines each."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cross_decomposition import CCA

from fusehash import bits, datasets, hashers
from fusehash.hashers.canonical import canonical_directions
from fusehash.hashers.linear import CenteredViews
from fusehash.parameters import rng_for
from fusehash.views import PairedViews

VIEWS = datasets.make_paired(300, views={"image": 20, "text": 14}, n_classes=5, random_state=2).views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}


def ridge_inverse(G: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.inv(G + ridge * np.trace(G) / len(G) * np.eye(len(G)))


# -- regression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 2, 5, 20])
@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_regression_follows_ten_dense_lines(iterations, ridge):
    model = hashers.make("regression", n_bits=16, ridge=ridge, max_iter=iterations, tol=0.0, random_state=4).fit(VIEWS)
    normal = rng_for(4, "W")
    W = {name: normal.standard_normal((x.shape[1], 16)) for name, x in X.items()}
    losses = []
    for _ in range(len(model.objective_)):
        B = np.where(sum(x @ W[name] for name, x in X.items()) > 0, 1.0, -1.0)
        W = {name: ridge_inverse(x.T @ x, ridge) @ x.T @ B for name, x in X.items()}
        losses.append(sum(np.sum((B - x @ W[name]) ** 2) for name, x in X.items()))
    assert np.array_equal(bits.unpack(model.codes_, 16), B)
    assert np.allclose(model.objective_, losses)
    for name, x in X.items():
        assert np.allclose(model.weights_[name], W[name], rtol=1e-6, atol=1e-8)
        assert np.allclose(model.project(VIEWS[name], view=name), x @ W[name], atol=1e-7)


def test_the_loss_of_regression_never_rises():
    loss = hashers.make("regression", n_bits=32, max_iter=30, tol=0.0, random_state=0).fit(VIEWS).objective_
    assert np.diff(loss).max() <= 1e-9 * loss[0]
    assert loss[-1] < 0.9 * loss[0]


def test_regression_stops_when_the_loss_settles():
    lengths = [
        len(hashers.make("regression", n_bits=16, max_iter=100, tol=tol, random_state=0).fit(VIEWS).objective_)
        for tol in (0.5, 1e-3, 0.0)
    ]
    assert lengths[0] == 2
    assert lengths[0] < lengths[1] < lengths[2] < 100  # it reaches a fixed point, where even tol = 0 stops


def test_regression_starts_where_agsfh_starts():
    control = hashers.make("regression", n_bits=16, max_iter=1, random_state=7).fit(VIEWS)
    model = hashers.make("agsfh", n_bits=16, max_iter=1, random_state=7).fit(VIEWS)
    assert np.mean(bits.unpack(model.codes_, 16) == bits.unpack(control.codes_, 16)) > 0.999


# -- random ----------------------------------------------------------------------------------------------------------


def directions(views, n_directions: int, ridge: float):
    return canonical_directions(CenteredViews.of(PairedViews(views), ridge), n_directions)


def test_canonical_directions_are_those_of_cca():
    A = directions(VIEWS, 8, 1e-9)
    a, b = (X[name] @ A[name] for name in ("image", "text"))
    # Directly: singular vectors of the whitened cross-covariance.
    roots = {}
    for name, x in X.items():
        w, Q = np.linalg.eigh(x.T @ x)
        roots[name] = (Q / np.sqrt(w)) @ Q.T
    U, s, Vt = np.linalg.svd(roots["image"] @ X["image"].T @ X["text"] @ roots["text"])
    correlation = np.array([np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(8)])
    assert np.allclose(correlation, s[:8], atol=1e-6)
    assert np.allclose(a.var(axis=0), 1.0)
    assert np.allclose(b.var(axis=0), 1.0)
    for j in range(8):
        assert abs(np.corrcoef(a[:, j], X["image"] @ roots["image"] @ U[:, j])[0, 1]) > 1 - 1e-6
        assert abs(np.corrcoef(b[:, j], X["text"] @ roots["text"] @ Vt[j])[0, 1]) > 1 - 1e-6


def test_the_first_canonical_correlation_is_that_of_scikit_learn():
    A = directions(VIEWS, 8, 1e-9)
    x, y = CCA(n_components=1, max_iter=5000).fit(X["image"], X["text"]).transform(X["image"], X["text"])
    expected = np.corrcoef(x[:, 0], y[:, 0])[0, 1]
    ours = np.corrcoef(X["image"] @ A["image"][:, 0], X["text"] @ A["text"][:, 0])[0, 1]
    assert ours == pytest.approx(expected, abs=1e-4)


def test_variates_of_different_directions_are_uncorrelated():
    A = directions(VIEWS, 8, 1e-9)
    for name in X:
        C = np.corrcoef((X[name] @ A[name]).T)
        assert np.abs(C - np.eye(8)).max() < 1e-5


def test_three_views_share_the_eigenvectors_of_their_projections():
    views = datasets.make_paired(200, views={"a": 9, "b": 8, "c": 7}, random_state=0).views
    A = directions(views, 5, 1e-9)
    centered = {name: x - x.mean(axis=0) for name, x in views.items()}
    M = sum(x @ np.linalg.pinv(x) for x in centered.values())  # the MAXVAR criterion
    U = np.linalg.eigh(M)[1][:, ::-1][:, :5]
    for name, x in centered.items():
        shown = x @ np.linalg.pinv(x) @ U  # what the view sees of each shared direction
        for j in range(5):
            assert abs(np.corrcoef(x @ A[name][:, j], shown[:, j])[0, 1]) > 1 - 1e-6


def test_codes_are_signs_of_rotated_variates():
    model = hashers.make("random", n_bits=8, random_state=3).fit(VIEWS)
    A = directions(VIEWS, 8, 1e-3)
    rotations = {name: np.linalg.lstsq(A[name], W, rcond=None)[0] for name, W in model.weights_.items()}
    R = rotations["image"]
    assert np.allclose(R, rotations["text"])
    assert np.allclose(R.T @ R, np.eye(8))
    expected = bits.pack(sum(X[name] @ A[name] @ R for name in X))
    assert np.array_equal(model.codes_, expected)


def test_more_bits_than_directions_are_several_rotations_side_by_side():
    views = {"a": X["text"][:, :3], "b": X["image"][:, :4]}
    with pytest.warns(match="vary in 7 directions"):
        model = hashers.make("random", n_bits=16, random_state=0).fit(views)
    assert np.linalg.matrix_rank(np.vstack(list(model.weights_.values()))) <= 7
    assert len(np.unique(np.round(model.weights_["a"], 12), axis=1).T) == 16


def test_a_direction_that_a_view_cannot_see_gets_no_weight():
    rng = np.random.default_rng(0)
    views = {"a": rng.standard_normal((100, 10)), "b": rng.standard_normal((100, 1))}
    A = directions(views, 8, 1e-6)
    assert np.isfinite(A["a"]).all()
    assert np.isfinite(A["b"]).all()
