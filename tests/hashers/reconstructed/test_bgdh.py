"""BGDH against loops over hyperedges, all balanced choices, and SciPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fusehash import bits, datasets, hashers
from fusehash.errors import FusehashWarning, ParameterError
from fusehash.evaluation import evaluate
from fusehash.hashers.reconstructed.bgdh import Hyperedges, balanced, edge_weights
from fusehash.numerics.anchors import choose_anchors, squared_distances
from fusehash.parameters import rng_for

VIEWS = datasets.make_paired(120, views={"image": 12, "text": 9}, n_classes=4, random_state=2).views
N = VIEWS.n_rows
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}


@pytest.fixture(scope="module")
def anchors():
    return choose_anchors(VIEWS, 20, "random", rng_for(5, "anchors"))


@pytest.fixture(scope="module")
def edges(anchors):
    return Hyperedges.around(VIEWS, anchors, 3)


def test_a_hyperedge_holds_the_rows_that_have_its_anchor_among_their_nearest(anchors, edges):
    columns = []
    for name in VIEWS:
        nearest = np.argsort(squared_distances(VIEWS[name], anchors[name]), axis=1)[:, :3]
        columns += [[float(e in nearest[i]) for i in range(N)] for e in range(20)]
    H = np.array(columns).T
    H = H[:, H.any(axis=0)]
    assert np.array_equal(edges.H.toarray(), H)
    assert np.array_equal(edges.sizes, H.sum(axis=0))
    assert edges.sizes.sum() == 2 * 3 * N


def test_variation_is_the_mean_squared_distance_to_the_mean_of_the_hyperedge(edges):
    B = np.random.default_rng(0).choice([-1.0, 1.0], (N, 8))
    for e, value in enumerate(edges.variation(B)):
        inside = B[edges.H.toarray()[:, e] > 0]
        assert value == pytest.approx(np.mean(np.sum((inside - inside.mean(axis=0)) ** 2, axis=1)))


def test_smoothing_is_the_slope_of_the_hypergraph_term(edges):
    rng = np.random.default_rng(1)
    B, w = rng.standard_normal((N, 4)), rng.dirichlet(np.ones(len(edges.sizes)))
    slope = np.zeros_like(B)
    for i, k in ((0, 0), (7, 3), (50, 2)):
        step = np.zeros_like(B)
        step[i, k] = 1e-6
        slope[i, k] = (w @ edges.variation(B + step) - w @ edges.variation(B - step)) / 2e-6
        assert slope[i, k] == pytest.approx(-2.0 * edges.smooth(B, w)[i, k], rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("spread", [0.01, 0.5])
def test_edge_weights_are_the_minimizer_on_the_simplex(spread):
    V = np.random.default_rng(2).uniform(0.0, 8.0, 10)

    def value(w):
        return w @ V + spread * 8 * 10 * (w @ w)

    w = edge_weights(V, spread, 8)
    solution = minimize(
        value,
        np.full(10, 0.1),
        bounds=[(0.0, 1.0)] * 10,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert w.sum() == pytest.approx(1.0)
    assert w.min() >= 0.0
    assert np.allclose(w, solution.x, atol=1e-4)
    assert value(w) <= solution.fun + 1e-9
    assert np.all(np.diff(w[np.argsort(V)]) <= 0.0)  # hyperedges that agree weigh more


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=7))
def test_balanced_signs_are_the_best_of_all_balanced_choices(column):
    F = np.array(column)
    B = balanced(F[:, None])[:, 0]
    n = len(F)
    assert np.sum(B > 0) == n // 2
    best = max(2.0 * F[list(rows)].sum() - F.sum() for rows in combinations(range(n), n // 2))
    assert np.dot(B, F) == pytest.approx(best)


def objective(model, W, B, w, edges, beta, ridge):
    loss = 0.0
    for name, x in X.items():
        loss += np.sum((B - x @ W[name]) ** 2) + ridge * np.sum(x**2) / x.shape[1] * np.sum(W[name] ** 2)
    return loss + beta * N * (w @ edges.variation(B) + model.spread * B.shape[1] * len(w) * (w @ w))


def test_the_fit_follows_a_slow_loop(edges):
    beta, ridge = 0.8, 1e-2
    settings = {"hypergraph_weight": beta, "ridge": ridge, "n_anchors": 20, "n_neighbors": 3}
    model = hashers.make("bgdh", n_bits=8, max_iter=4, tol=0.0, random_state=5, **settings).fit(VIEWS)
    rng = rng_for(5, "W")
    B = balanced(sum(x @ rng.standard_normal((x.shape[1], 8)) / np.sqrt(np.sum(x**2)) for x in X.values()))
    H = edges.H.toarray()

    def regress(B):
        inverses = {
            n: np.linalg.inv(x.T @ x + ridge * np.sum(x**2) / x.shape[1] * np.eye(x.shape[1])) for n, x in X.items()
        }
        return {name: inverses[name] @ x.T @ B for name, x in X.items()}

    losses = []
    for _ in range(4):
        W = regress(B)
        w = edge_weights(edges.variation(B), model.spread, 8)
        M = H @ np.diag(w / H.sum(axis=0) ** 2) @ H.T
        B = balanced(sum(x @ W[name] for name, x in X.items()) + beta * N * M @ B)
        losses.append(objective(model, W, B, w, edges, beta, ridge))
    assert np.allclose(model.objective_, losses)
    assert np.array_equal(bits.unpack(model.codes_, 8), B)
    assert np.allclose(model.edge_weights_, w)
    for name, weights in regress(B).items():
        assert np.allclose(model.weights_[name], weights, atol=1e-8)


@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("spread", [0.02, 0.5])
def test_the_objective_never_rises(weight, spread):
    model = hashers.make(
        "bgdh", n_bits=16, hypergraph_weight=weight, spread=spread, max_iter=30, tol=0.0, random_state=0
    ).fit(VIEWS)
    loss = model.objective_
    assert np.diff(loss).max(initial=0.0) <= 1e-9 * loss[0]


def test_codes_are_balanced_and_bits_differ():
    with pytest.warns(FusehashWarning, match="vary in 21 directions"):
        model = hashers.make("bgdh", n_bits=32, random_state=0).fit(VIEWS)
    B = bits.unpack(model.codes_, 32)
    assert np.all(B.sum(axis=0) == 0)
    assert len(np.unique(B, axis=1).T) == 32
    three = {**dict(VIEWS.items()), "sound": VIEWS["text"][:, ::-1] ** 2}
    more = bits.unpack(hashers.make("bgdh", n_bits=16, random_state=0).fit(three).codes_, 16)
    assert np.all(more.sum(axis=0) == 0)


def test_a_spread_of_zero_is_refused():
    with pytest.raises(ParameterError, match=r"The 'spread' parameter of BGDH must be .* greater than 0"):
        hashers.make("bgdh", n_bits=8, spread=0.0).fit(VIEWS)


@pytest.mark.slow
def test_numbers_on_wiki(data_file):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    result = evaluate(hashers.make("bgdh", n_bits=32), wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
    assert result["U", "image->text"].mean == pytest.approx(0.258, abs=0.02)
    assert result["U", "text->image"].mean == pytest.approx(0.612, abs=0.03)
    assert result["H", "text->image"].mean == pytest.approx(0.440, abs=0.04)
