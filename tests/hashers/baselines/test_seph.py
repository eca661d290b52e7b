"""SePH: its cost over pairs against a double loop, its classifiers against a solver, its numbers on Wiki."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines import seph
from fusehash.hashers.baselines.seph import SemanticPairs, k_means, logistic_regression
from fusehash.hashers.kernel import label_cosines
from fusehash.parameters import rng_for

DATA = datasets.make_paired(200, views={"image": 12, "text": 9}, n_classes=4, random_state=2)
VIEWS, LABELS = DATA.views.rows(DATA.train), DATA.labels[DATA.train]
NEW = DATA.views.rows(DATA.query)
N = len(VIEWS)
# MAP of the whole list on Wiki with k-means basis and fused database, as printed in the SDMCH paper (IJCAI 2018):
# bits -> (I->T, T->I).
PUBLISHED = {32: (0.2820, 0.6451)}


def some_labels(kind: str, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "one":
        return np.eye(4)[rng.integers(0, 4, n)]
    return (rng.random((n, 5)) < 0.3).astype(float)  # several labels, or none


def cost_by_loops(H: np.ndarray, labels: np.ndarray, alpha: float) -> float:
    n, K = H.shape
    P, T = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                norms = np.linalg.norm(labels[i]) * np.linalg.norm(labels[j])
                P[i, j] = labels[i] @ labels[j] / norms if norms else 0.0
                T[i, j] = 1 / (1 + 0.25 * np.sum((H[i] - H[j]) ** 2))
    P, Q = P / P.sum(), T / T.sum()
    positive = P > 0
    divergence = np.sum(P[positive] * np.log(P[positive] / Q[positive]))
    return float(divergence + alpha / (K * n) * np.sum((np.abs(H) - 1) ** 2))


# -- stage 1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("rows", [3, 16, 128])
def test_the_cost_is_that_of_the_double_loop(kind, rows, monkeypatch):
    monkeypatch.setattr(seph, "PAIR_ROWS", rows)
    labels = some_labels(kind, 40)
    H = np.random.default_rng(1).standard_normal((40, 8))
    cost, _ = SemanticPairs(label_cosines(labels), 0.3 / H.size).cost_and_gradient(H)
    assert cost == pytest.approx(cost_by_loops(H, labels, 0.3), rel=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 60), st.integers(1, 9), st.sampled_from(["one", "many"]), st.integers(0, 10**6))
def test_the_gradient_is_that_of_finite_differences(n, K, kind, seed):
    rng = np.random.default_rng(seed)
    pairs = SemanticPairs(label_cosines(some_labels(kind, n, seed)), 0.05)
    H, direction = rng.standard_normal((n, K)), rng.standard_normal((n, K))
    H[np.abs(H) < 1e-3] = 0.5  # |h| has a kink at 0
    step = 1e-6
    up, down = (pairs.cost_and_gradient(H + sign * step * direction)[0] for sign in (1, -1))
    slope = np.sum(pairs.cost_and_gradient(H)[1] * direction)
    assert (up - down) / (2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_the_gradient_has_the_printed_form():
    labels, H = some_labels("one", 30), np.random.default_rng(0).standard_normal((30, 8))
    T = 1 / (1 + 0.25 * np.sum((H[:, None] - H) ** 2, axis=2))
    np.fill_diagonal(T, 0.0)
    P = labels @ labels.T
    np.fill_diagonal(P, 0.0)
    Z = (P / P.sum() - T / T.sum()) * T
    expected = (np.diag(Z.sum(axis=1)) - Z) @ H + 2 * 0.1 * (np.abs(H) - 1) * np.sign(H)
    assert np.allclose(SemanticPairs(label_cosines(labels), 0.1).cost_and_gradient(H)[1], expected)


def test_single_precision_is_enough():
    pairs = SemanticPairs(label_cosines(some_labels("many", 300)), 1e-3)
    H = np.random.default_rng(0).standard_normal((300, 32))
    (cost, gradient), (rough, about) = (pairs.cost_and_gradient(H, kind) for kind in (np.float64, np.float32))
    assert rough == pytest.approx(cost, rel=1e-5)
    assert np.linalg.norm(about - gradient) < 1e-4 * np.linalg.norm(gradient)


def test_the_descent_follows_the_authors_rule():
    model = hashers.make("seph", n_bits=8, max_iter=12, random_state=5).fit(VIEWS, LABELS)
    pairs = SemanticPairs(np.eye(4)[LABELS], 0.01 / (N * 8))
    H = 1e-4 * rng_for(5, "H").standard_normal((N, 8))
    step, gains, costs = np.zeros_like(H), np.ones_like(H), []
    for _ in range(12):
        cost, g = pairs.cost_and_gradient(H)
        costs.append(cost)
        for i in range(N):
            for k in range(8):
                turned = (g[i, k] > 0) == (step[i, k] > 0)  # downhill is against the gradient
                gains[i, k] = max(gains[i, k] * 0.8 if turned else gains[i, k] + 0.2, 0.01)
                step[i, k] = 0.5 * step[i, k] - 500 * gains[i, k] * g[i, k]
        H = H + step
        H -= H.mean(axis=0)
    assert np.allclose(model.objective_, costs, rtol=1e-3)


def test_items_of_one_class_get_one_code_and_classes_differ():
    model = hashers.make("seph", n_bits=32, random_state=0)
    model._seed = 0
    C = np.where(model._semantic_embedding(np.eye(4)[LABELS]) > 0, 1, -1)
    assert model.objective_.min() < 0.2 * model.objective_[0]
    classes = [C[c == LABELS] for c in range(4)]
    centers = np.array([np.sign(rows.mean(axis=0)) for rows in classes])
    assert np.mean([np.mean(rows == center) for rows, center in zip(classes, centers, strict=True)]) > 0.99
    assert all(np.sum(a != b) >= 4 for i, a in enumerate(centers) for b in centers[:i])


def test_rows_that_share_no_label_only_push_each_other_away():
    pairs = SemanticPairs(np.eye(6), 0.0)
    H = np.random.default_rng(0).standard_normal((6, 8))
    cost, gradient = pairs.cost_and_gradient(H)
    assert np.isfinite(cost)
    assert pairs.cost_and_gradient(H - 0.1 * gradient)[0] < cost
    assert np.sum(gradient * H) < 0


# -- stage 2 ---------------------------------------------------------------------------------------------------------


def test_classifiers_minimize_the_penalized_kernel_logistic_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 5))
    points = X[:30]
    kernel = lambda A, B: np.exp(-np.sum((A[:, None] - B) ** 2, axis=2) / 10)  # noqa: E731
    K, K0 = kernel(X, points), kernel(points, points)
    C = np.where(X @ rng.standard_normal((5, 6)) + rng.standard_normal((120, 6)) > 0, 1.0, -1.0)
    values, V = np.linalg.eigh(K0)
    root = V / np.sqrt(values)
    W = root @ logistic_regression(K @ root, C, 0.01)
    for k in range(6):

        def loss(w, k=k):
            return np.logaddexp(0, -C[:, k] * (K @ w)).sum() + 0.01 * w @ K0 @ w

        def slope(w, k=k):
            return -K.T @ (C[:, k] / (1 + np.exp(C[:, k] * (K @ w)))) + 0.02 * K0 @ w

        best = minimize(loss, np.zeros(30), jac=slope, method="BFGS", options={"maxiter": 500}).fun
        assert loss(W[:, k]) <= best * 1.001
        assert np.abs(slope(W[:, k])).max() < 0.05


def test_the_fusion_is_that_of_the_authors():
    model = hashers.make("seph", n_bits=16, random_state=0).fit(VIEWS, LABELS)
    p, q = (1 / (1 + np.exp(-model.project(NEW[name], view=name))) for name in NEW)
    assert np.array_equal(model.encode_fused(NEW), bits.pack(p * q - (1 - p) * (1 - q)))


def test_codes_are_the_training_items_encoded_anew():
    model = hashers.make("seph", n_bits=16, random_state=0).fit(VIEWS, LABELS)
    assert np.array_equal(model.codes_, model.encode_fused(VIEWS))


@pytest.mark.parametrize("basis", ["km", "rnd"])
def test_the_kernel_is_that_of_the_basis_points(basis):
    model = hashers.make("seph", n_bits=8, basis=basis, n_anchors=25, random_state=3).fit(VIEWS, LABELS)
    places = []
    for name in VIEWS:
        X = VIEWS[name]
        features = model.features_[name]
        points = features.anchors + features.origin
        assert points.shape == (25, X.shape[1])
        s = np.mean(np.sum((X[:, None] - X) ** 2, axis=2))
        expected = np.exp(-np.sum((NEW[name][:, None] - points) ** 2, axis=2) / s)
        assert np.allclose(features(NEW[name]), expected)
        assert np.allclose(model.project(NEW[name], view=name), expected @ model.weights_[name])
        distances = np.sum((X[:, None] - points) ** 2, axis=2)
        if basis == "rnd":
            assert np.allclose(distances.min(axis=0), 0.0, atol=1e-18)
            places.append(distances.argmin(axis=0))
        else:
            nearest = distances.argmin(axis=1)
            for j in np.unique(nearest):
                assert np.allclose(points[j], X[nearest == j].mean(axis=0))
    assert all(np.array_equal(places[0], other) for other in places)


def test_k_means_never_gets_worse_and_bears_equal_rows():
    X = np.repeat(np.random.default_rng(0).standard_normal((10, 3)), 5, axis=0)
    assert np.isfinite(k_means(X, 30, np.random.default_rng(0))).all()
    X = np.random.default_rng(1).standard_normal((300, 3))
    spread = [
        np.sum(np.min(np.sum((X[:, None] - k_means(X, 12, rng_for(0, "a"), steps)) ** 2, axis=2), axis=1))
        for steps in (1, 2, 4, 8, 100)
    ]
    assert spread == sorted(spread, reverse=True)


# -- many rows -------------------------------------------------------------------------------------------------------


def test_too_many_rows_are_refused_with_one_sentence():
    with pytest.raises(DataError, match=r"takes at most 100 of them \(max_rows\)\. Got 180; subsample=True"):
        hashers.make("seph", n_bits=8, max_rows=100).fit(VIEWS, LABELS)


def test_a_subsample_learns_and_codes_all_rows():
    model = hashers.make("seph", n_bits=16, max_rows=100, subsample=True, random_state=0).fit(VIEWS, LABELS)
    assert model.codes_.shape == (N, 2)
    assert len(model.features_["text"].anchors) == 100
    assert np.array_equal(model.codes_, model.encode_fused(VIEWS))
    assert model.score(NEW) > 0.55


# -- Wiki ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wiki(data_file):
    return datasets.load("wiki", path=data_file("wiki.npz"))


@pytest.mark.slow
def test_the_published_numbers_on_wiki_are_reached(wiki):
    model = hashers.make("seph", n_bits=32)
    result = evaluate(model, wiki, k=None, ties="stable", protocols=("U",), seeds=(0,))
    for direction, expected in zip(("image->text", "text->image"), PUBLISHED[32], strict=True):
        assert result["U", direction].mean == pytest.approx(expected, abs=0.035)
