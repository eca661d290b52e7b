"""FDCH against its formulas, line by line, and what its objective promises."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.evaluation import evaluate
from fusehash.hashers.kernel import anchor_features, balanced_codes
from fusehash.numerics.linalg import damped_solver, solve_ridge
from fusehash.parameters import rng_for
from fusehash.views import PairedViews

DATA = datasets.make_paired(220, views={"image": 12, "text": 9}, n_classes=5, random_state=2)
VIEWS, LABELS = DATA.views.rows(DATA.train), DATA.labels[DATA.train]
NEW = DATA.views.rows(DATA.query)
N = len(VIEWS)


def features(name: str, rows: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Centered RBF similarities of X to some training rows."""
    train, anchors = VIEWS[name], VIEWS[name][rows]
    squares = lambda A: np.sum((A[:, None] - anchors) ** 2, axis=2)  # noqa: E731
    sigma = squares(train).mean()
    return np.exp(-squares(X) / (2 * sigma)) - np.exp(-squares(train) / (2 * sigma)).mean(axis=0)


def by_formulas(labels, n_bits, seed, max_iter, mu=1e-2, label_ridge=1.0, ridge=0.1, n_anchors=40):
    rows = np.sort(rng_for(seed, "anchors").choice(N, n_anchors, replace=False))
    Phi = {name: features(name, rows, VIEWS[name]) for name in VIEWS}
    B = balanced_codes(N, n_bits, rng_for(seed, "B"))
    t, losses = np.zeros(n_bits), []
    for _ in range(max_iter):
        G = np.linalg.inv(labels.T @ labels + label_ridge * np.eye(labels.shape[1])) @ labels.T @ (B - t)
        t = np.mean(B - labels @ G, axis=0)
        W = {name: np.linalg.inv(p.T @ p + ridge * np.eye(n_anchors)) @ p.T @ B for name, p in Phi.items()}
        B = np.where(labels @ G + t + mu * sum(Phi[name] @ W[name] for name in Phi) > 0, 1.0, -1.0)
        loss = np.sum((B - labels @ G - t) ** 2) + label_ridge * np.sum(G**2)
        loss += mu * sum(np.sum((B - p @ W[name]) ** 2) + ridge * np.sum(W[name] ** 2) for name, p in Phi.items())
        losses.append(loss)
    W = {name: np.linalg.inv(p.T @ p + ridge * np.eye(n_anchors)) @ p.T @ B for name, p in Phi.items()}
    return B, W, losses, rows


@pytest.mark.parametrize("mu", [1e-2, 3.0])
@pytest.mark.parametrize("kind", ["one label", "many labels"])
def test_it_follows_its_formulas(kind, mu):
    labels = np.eye(5)[LABELS] if kind == "one label" else (np.random.default_rng(0).random((N, 6)) < 0.3) * 1.0
    model = hashers.make("fdch", n_bits=16, n_anchors=40, mu=mu, max_iter=4, random_state=7).fit(VIEWS, labels)
    B, W, losses, rows = by_formulas(labels, 16, 7, len(model.objective_), mu)
    assert np.array_equal(bits.unpack(model.codes_, 16), B)
    assert np.allclose(model.objective_, losses)
    for name in VIEWS:
        assert np.allclose(model.weights_[name], W[name], atol=1e-6)
        assert np.allclose(model.project(NEW[name], view=name), features(name, rows, NEW[name]) @ W[name], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mu", [0.0, 1e-2, 1.0, 30.0])
def test_the_objective_never_rises(seed, mu):
    labels = (np.random.default_rng(seed).random((N, 8)) < 0.2) * 1.0
    loss = hashers.make("fdch", n_bits=32, mu=mu, random_state=seed).fit(VIEWS, labels).objective_
    assert np.all(np.diff(loss) <= 1e-9 * loss[0])


def test_it_stops_when_no_bit_changes():
    model = hashers.make("fdch", n_bits=16, max_iter=100, random_state=0).fit(VIEWS, LABELS)
    assert len(model.objective_) < 20


def test_equal_labels_get_equal_codes_and_no_bit_is_constant():
    for seed in range(5):
        model = hashers.make("fdch", n_bits=64, random_state=seed).fit(VIEWS, LABELS)
        B = bits.unpack(model.codes_, 64)
        for c in np.unique(LABELS):
            rows = B[np.flatnonzero(c == LABELS)]
            assert np.all(rows == rows[0])
        assert np.abs(B.mean(axis=0)).max() < 0.95


def test_a_large_weight_of_the_views_lets_them_speak():
    model = hashers.make("fdch", n_bits=16, mu=30.0, random_state=0).fit(VIEWS, LABELS)
    assert len(np.unique(model.codes_, axis=0)) > 5


@pytest.mark.parametrize("n", [2, 3, 10, 11])
def test_first_codes_are_balanced(n):
    B = balanced_codes(n, 24, np.random.default_rng(0))
    assert set(np.unique(B)) == {-1.0, 1.0}
    assert np.all(B.sum(axis=0) == (0 if n % 2 == 0 else -1))


def test_features_are_centered_and_one_choice_of_rows_serves_all_views():
    maps, Phi = anchor_features(PairedViews(VIEWS), 30, np.random.default_rng(1))
    rows = np.sort(np.random.default_rng(1).choice(N, 30, replace=False))
    for name in VIEWS:
        assert np.allclose(Phi[name].mean(axis=0), 0.0)
        assert np.allclose(Phi[name], features(name, rows, VIEWS[name]))
        assert np.allclose(maps[name](NEW[name]), features(name, rows, NEW[name]))


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 10.0])
def test_the_ridge_is_in_units_of_the_features(ridge):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((50, 6)) * 3, rng.standard_normal((50, 2))
    expected = np.linalg.solve(X.T @ X + ridge * np.eye(6), X.T @ Y)
    assert np.allclose(solve_ridge(damped_solver(X.T @ X, ridge), X.T @ Y), expected)


@pytest.fixture(scope="module")
def wiki(data_file):
    return datasets.load("wiki", path=data_file("wiki.npz"))


@pytest.mark.slow
def test_labels_help_on_wiki(wiki):
    """No number is published for this protocol: it must beat the control without labels by far."""
    run = {"k": None, "ties": "stable", "protocols": ("U",), "seeds": range(2)}
    ours = evaluate(hashers.make("fdch", n_bits=32), wiki, **run)
    control = evaluate(hashers.make("regression", n_bits=32), wiki, **run)
    for direction, gain in (("image->text", 0.05), ("text->image", 0.15)):
        assert ours["U", direction].mean > control["U", direction].mean + gain
