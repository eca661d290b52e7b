"""CSGH against dense graphs, SciPy's Sylvester solver and a slow loop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve_sylvester

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import evaluate
from fusehash.hashers.linear import CenteredViews
from fusehash.hashers.reconstructed.csgh import SubspaceStep, graph_sums, shared_map
from fusehash.numerics.anchors import anchor_weights, choose_anchors, to_sparse
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import rng_for
from fusehash.views import PairedViews

VIEWS = datasets.make_paired(140, views={"image": 12, "text": 9}, n_classes=4, random_state=2).views
N = VIEWS.n_rows
SCALE = {name: np.sqrt(matrix.var(axis=0).sum()) for name, matrix in VIEWS.items()}
X = {name: (matrix - matrix.mean(axis=0)) / SCALE[name] for name, matrix in VIEWS.items()}


def dense_graph(matrix: np.ndarray, anchors: np.ndarray, k: int) -> np.ndarray:
    """S = Z Lambda^-1 Z' in full."""
    Z = to_sparse(anchor_weights(matrix, anchors, k), len(anchors)).toarray()
    return Z @ np.diag(1.0 / Z.sum(axis=0)) @ Z.T


@pytest.fixture(scope="module")
def anchors():
    return choose_anchors(VIEWS, 30, "random", rng_for(5, "anchors"))


@pytest.fixture(scope="module")
def S(anchors):
    return {name: dense_graph(VIEWS[name], anchors[name], 4) for name in VIEWS}


def test_the_sums_over_the_graphs_are_those_of_dense_graphs(anchors, S):
    within, across = graph_sums(CenteredViews.of(PairedViews(VIEWS), 1e-6), anchors, 4, SCALE)
    for name, x in X.items():
        assert np.allclose(within[name], x.T @ S[name] @ x / N, atol=1e-12)
    mean = (S["image"] + S["text"]) / 2
    assert np.allclose(across, X["image"].T @ mean @ X["text"] / N, atol=1e-12)


def test_rows_of_a_graph_sum_to_one_so_that_smoothness_is_a_squared_distance(S):
    rng = np.random.default_rng(0)
    Y = {name: rng.standard_normal((N, 3)) for name in X}
    for graph in S.values():
        assert np.allclose(graph.sum(axis=1), 1.0)
        assert np.allclose(graph, graph.T)
    mean = (S["image"] + S["text"]) / 2
    squares = np.sum((Y["image"][:, None] - Y["text"][None]) ** 2, axis=2)
    expected = 0.5 * sum(np.sum(y**2) for y in Y.values()) - np.sum(Y["image"] * (mean @ Y["text"]))
    assert 0.5 * np.sum(mean * squares) == pytest.approx(expected)


@pytest.mark.parametrize("r", [3, 8])
def test_the_subspace_step_is_a_sylvester_equation(S, r):
    rng = np.random.default_rng(r)
    x = X["image"]
    G, Q, R = x.T @ x / N, rng.standard_normal((r, 8)), rng.standard_normal((12, r))
    step = SubspaceStep.of(G, x.T @ S["image"] @ x / N, 0.7, 0.3, 1e-2)
    assert np.allclose(step.A, 0.7 * x.T @ (np.eye(N) - S["image"]) @ x / N + 0.15 * G + 1e-2 / 12 * np.eye(12))
    inverse = np.linalg.inv(G)
    assert np.allclose(step(R, Q), solve_sylvester(inverse @ step.A, Q @ Q.T, inverse @ R), atol=1e-8)


def test_the_shared_map_is_a_ridge_regression_on_both_subspaces():
    rng = np.random.default_rng(1)
    P = {name: rng.standard_normal((x.shape[1], 5)) for name, x in X.items()}
    B = rng.choice([-1.0, 1.0], (N, 8))
    G = {name: x.T @ x / N for name, x in X.items()}
    Q = shared_map(P, G, {name: x.T @ B / N for name, x in X.items()}, 0.05)
    stacked = np.vstack([*(x @ P[name] for name, x in X.items()), np.sqrt(0.05 * N) * np.eye(5)])
    target = np.vstack([B, B, np.zeros((5, 8))])
    assert np.allclose(Q, np.linalg.lstsq(stacked, target, rcond=None)[0])


def test_the_fit_follows_a_slow_loop(S):
    a, b, g, r = 0.4, 0.6, 1e-2, 6
    settings = {"graph_weight": a, "cross_weight": b, "ridge": g, "n_components": r, "n_anchors": 30, "n_neighbors": 4}
    model = hashers.make("csgh", n_bits=8, max_iter=4, tol=0.0, random_state=5, **settings).fit(VIEWS)
    rng = rng_for(5, "W")
    W = {name: rng.standard_normal((x.shape[1], 8)) for name, x in X.items()}
    Q = random_rotations(r, 8, rng_for(5, "Q"))
    P = {name: np.zeros((x.shape[1], r)) for name, x in X.items()}
    B = np.where(sum(x @ W[name] for name, x in X.items()) > 0, 1.0, -1.0)
    mean = (S["image"] + S["text"]) / 2
    losses = []
    for _ in range(4):
        for name, other in (("image", "text"), ("text", "image")):
            x, d = X[name], X[name].shape[1]
            A = a * x.T @ (np.eye(N) - S[name]) @ x / N + b / 2 * x.T @ x / N + g / d * np.eye(d)
            # The equation written out for vec(P), column by column.
            system = np.kron(Q @ Q.T, x.T @ x / N) + np.kron(np.eye(r), A)
            right = x.T @ B @ Q.T / N + b / 2 * x.T @ mean @ X[other] @ P[other] / N
            P[name] = np.linalg.solve(system, right.ravel(order="F")).reshape((d, r), order="F")
        Y = {name: x @ P[name] for name, x in X.items()}
        Q = np.linalg.solve(sum(y.T @ y for y in Y.values()) / N + g * np.eye(r), sum(Y.values()).T @ B / N)
        B = np.where(sum(Y.values()) @ Q > 0, 1.0, -1.0)
        apart = np.sum(mean * np.sum((Y["image"][:, None] - Y["text"][None]) ** 2, axis=2))
        fit = sum(np.sum((B - y @ Q) ** 2) + a * np.trace(y.T @ (y - S[name] @ y)) for name, y in Y.items())
        penalty = sum(np.sum(p**2) / len(p) for p in P.values()) + np.sum(Q**2)
        losses.append((fit + b / 2 * apart) / N + g * penalty)
    assert np.allclose(model.objective_, losses)
    assert np.array_equal(bits.unpack(model.codes_, 8), B)
    for name in X:
        assert np.allclose(model.project(VIEWS[name], view=name), X[name] @ P[name] @ Q, atol=1e-8)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (5.0, 5.0)])
def test_the_objective_never_rises(weights):
    a, b = weights
    model = hashers.make("csgh", n_bits=16, graph_weight=a, cross_weight=b, max_iter=30, tol=0.0, random_state=0)
    loss = model.fit(VIEWS).objective_
    assert np.diff(loss).max(initial=0.0) <= 1e-9 * loss[0]


def test_two_views_are_needed():
    with pytest.raises(DataError, match=r"CSGH needs 2 views\. Got 1"):
        hashers.make("csgh", n_bits=8).fit({"image": VIEWS["image"]})


@pytest.mark.parametrize("setting", [{"n_components": 0}, {"graph_weight": -1.0}, {"n_anchors": 0}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ParameterError, match=f"The '{next(iter(setting))}' parameter of CSGH must be"):
        hashers.make("csgh", n_bits=8, **setting).fit(VIEWS)


@pytest.mark.slow
def test_numbers_on_wiki(data_file):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    result = evaluate(hashers.make("csgh", n_bits=32), wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
    assert result["U", "image->text"].mean == pytest.approx(0.255, abs=0.02)
    assert result["U", "text->image"].mean == pytest.approx(0.600, abs=0.03)
    assert result["H", "text->image"].mean == pytest.approx(0.435, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", [16, 128])
def test_no_bit_collapses_on_wiki(data_file, n_bits):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("csgh", n_bits=n_bits, random_state=0).fit(wiki.views.rows(wiki.train))
    assert np.abs(bits.unpack(model.codes_, n_bits).mean(axis=0)).max() < 0.5
