"""ADCH: every step is the best given the others, and the objective is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from fusehash import bits, datasets, hashers
from fusehash.evaluation import evaluate
from fusehash.hashers.reconstructed.adch import ADCHSteps, rotation

DATA = datasets.make_paired(220, views={"image": 12, "text": 9}, n_classes=5, random_state=2)
VIEWS, LABELS = DATA.views.rows(DATA.train), DATA.labels[DATA.train]
N, K, P = 40, 8, 6


@pytest.fixture(params=range(3))
def state(request):
    """A random point, and the factors at it."""
    rng = np.random.default_rng(request.param)
    Phi = [rng.standard_normal((N, P)) for _ in range(2)]
    L = rng.random((N, 4))
    factors = ADCHSteps(Phi, L - L.mean(axis=0), 0.3, 0.7, 0.05)
    V, B = rng.standard_normal((N, K)), np.where(rng.random((N, K)) < 0.5, 1.0, -1.0)
    U = [rng.standard_normal((K, P)) for _ in range(2)]
    R = np.linalg.qr(rng.standard_normal((K, K)))[0]
    return factors, U, R, V, B, rng


def written_out(factors, U, R, V, B):
    S = 2 * factors.L @ factors.L.T
    loss = factors.alpha * np.linalg.norm(K * S - B @ V.T) ** 2 + factors.beta * np.linalg.norm(B - V @ R) ** 2
    loss += factors.gamma * (np.sum(V**2) + sum(np.sum(u**2) for u in U))
    return loss + sum(np.linalg.norm(phi - V @ u) ** 2 for phi, u in zip(factors.Phi, U, strict=True))


def test_the_objective_is_the_one_written_out(state):
    factors, U, R, V, B, _ = state
    assert factors.objective(U, R, V, B) == pytest.approx(written_out(factors, U, R, V, B))


def test_similarities_are_those_of_the_labels(state):
    factors, _, _, V, _, _ = state
    assert np.allclose(factors.similarities(V), 2 * factors.L @ factors.L.T @ V)


def test_bases_and_latent_factor_are_stationary(state):
    factors, U, R, V, B, rng = state
    best = factors.bases(V)
    least = written_out(factors, best, R, V, B)
    latent = factors.latent(U, R, B)
    lowest = written_out(factors, U, R, latent, B)
    for _ in range(10):
        step = [1e-3 * rng.standard_normal((K, P)) for _ in range(2)]
        other = (written_out(factors, [u + s * d for u, d in zip(best, step, strict=True)], R, V, B) for s in (1, -1))
        up, down = other
        assert min(up, down) > least
        assert abs(up - down) < 1e-3 * (up + down - 2 * least) + 1e-7  # no slope
        move = 1e-3 * rng.standard_normal((N, K))
        up, down = (written_out(factors, U, R, latent + sign * move, B) for sign in (1, -1))
        assert min(up, down) > lowest
        assert abs(up - down) < 1e-3 * (up + down - 2 * lowest) + 1e-7


def test_the_rotation_is_that_of_procrustes(state):
    _, _, _, V, B, _ = state
    R = rotation(V, B)
    assert np.allclose(R, orthogonal_procrustes(V, B)[0])
    assert np.allclose(R.T @ R, np.eye(K))


def test_each_bit_is_the_best_given_the_others(state):
    factors, U, R, V, B, _ = state
    expected = B.copy()
    for k in range(K):
        for i in range(N):  # entries of one bit do not touch each other
            costs = []
            for value in (-1.0, 1.0):
                expected[i, k] = value
                costs.append(written_out(factors, U, R, V, expected))
            expected[i, k] = 1.0 if costs[1] < costs[0] else -1.0
    assert np.array_equal(factors.codes(V, R, B), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_the_objective_never_rises(seed, alpha):
    labels = (np.random.default_rng(seed).random((len(VIEWS), 8)) < 0.2) * 1.0
    model = hashers.make("adch", n_bits=24, alpha=alpha, max_iter=15, random_state=seed).fit(VIEWS, labels)
    assert np.all(np.diff(model.objective_) <= 1e-9 * model.objective_[0])
    assert len(model.objective_) > 1 or alpha < 1


def test_hash_functions_are_ridge_regressions_on_the_codes():
    model = hashers.make("adch", n_bits=16, n_anchors=30, random_state=0).fit(VIEWS, LABELS)
    B = bits.unpack(model.codes_, 16).astype(float)
    for name in VIEWS:
        phi = model.features_[name](VIEWS[name])
        W = np.linalg.solve(phi.T @ phi + 0.1 * np.eye(30), phi.T @ B)
        assert np.allclose(model.weights_[name], W, atol=1e-6)


def test_codes_of_one_class_are_close_and_no_bit_is_constant():
    for n_bits in (16, 64):
        model = hashers.make("adch", n_bits=n_bits, random_state=1).fit(VIEWS, LABELS)
        B = bits.unpack(model.codes_, n_bits).astype(float)
        cosines = B @ B.T / n_bits
        same = LABELS[:, None] == LABELS
        assert cosines[same].mean() > 0.8
        assert cosines[~same].mean() < 0.1
        assert np.abs(B.mean(axis=0)).max() < 0.95


@pytest.fixture(scope="module")
def wiki(data_file):
    return datasets.load("wiki", path=data_file("wiki.npz"))


@pytest.mark.slow
def test_labels_help_on_wiki(wiki):
    """No number is published for this protocol: it must beat the control without labels by far."""
    run = {"k": None, "ties": "stable", "protocols": ("U",), "seeds": (0,)}
    ours = evaluate(hashers.make("adch", n_bits=32), wiki, **run)
    control = evaluate(hashers.make("regression", n_bits=32), wiki, **run)
    for direction, gain in (("image->text", 0.05), ("text->image", 0.15)):
        assert ours["U", direction].mean > control["U", direction].mean + gain
