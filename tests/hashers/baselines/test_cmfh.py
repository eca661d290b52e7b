"""CMFH against dense lines with explicit inverses, its objective, its fusion, and the numbers of the authors' code."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.errors import ParameterError
from fusehash.evaluation import evaluate
from fusehash.numerics.linalg import solve_damped
from fusehash.parameters import rng_for

K = 16
VIEWS = datasets.make_paired(200, views={"image": 20, "sound": 9, "text": 14}, n_classes=5, random_state=2).views


def some(m: int) -> dict[str, np.ndarray]:
    return {name: VIEWS[name] for name in VIEWS.names[:m]}


def dense(views, shares, mu, g, iterations, as_released=False, seed=0):
    """V, U, W and the objective after every round, straight from the formulas."""
    X = [x - x.mean(axis=0) for x in views.values()]
    V = rng_for(seed, "start 0").random((len(X[0]), K))
    normal = rng_for(seed, "W")
    W = [normal.random((x.shape[1], K)) - (0.0 if as_released else 0.5) for x in X]
    eye, pulls, losses = np.eye(K), [mu * (s if as_released else 1.0) for s in shares], []
    ridges = [g * (s if as_released else 1.0) for s in shares]
    for _ in range(iterations):
        U = [x.T @ V @ np.linalg.inv(V.T @ V + r / s * eye) for x, s, r in zip(X, shares, ridges, strict=True)]
        top = sum(x @ (s * u + p * w) for x, s, u, p, w in zip(X, shares, U, pulls, W, strict=True))
        V = top @ np.linalg.inv(sum(s * u.T @ u for s, u in zip(shares, U, strict=True)) + (sum(pulls) + g) * eye)
        W = [mu * np.linalg.inv(mu * x.T @ x + g * np.eye(x.shape[1])) @ x.T @ V for x in X]
        if as_released:
            W = [w / mu**2 for w in W]
        losses.append(g * np.sum(V**2))
        for x, s, u, p, w, r in zip(X, shares, U, pulls, W, ridges, strict=True):
            losses[-1] += s * np.sum((x - V @ u.T) ** 2) + p * np.sum((V - x @ w) ** 2)
            losses[-1] += r * (np.sum(u**2) + np.sum(w**2))
    return V, W, losses


@pytest.mark.parametrize("as_released", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 10])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_loop_on_gram_matrices_is_the_dense_loop(m, iterations, as_released):
    weights = [3.0, 1.0, 2.0][:m]
    settings = {"mu": 20.0, "gamma": 0.3, "max_iter": iterations, "as_released": as_released, "view_weights": weights}
    model = hashers.make("cmfh", n_bits=K, random_state=0, **settings).fit(some(m))
    V, W, losses = dense(some(m), np.array(weights) / sum(weights), 20.0, 0.3, iterations, as_released)
    assert np.allclose(model.objective_, losses, rtol=1e-8)
    assert np.allclose(model.project_fused(some(m)), V, rtol=1e-6, atol=1e-9 * np.abs(V).max())
    assert np.array_equal(model.codes_, bits.pack(V))
    for name, w in zip(some(m), W, strict=True):
        assert np.allclose(model.weights_[name], w, rtol=1e-6, atol=1e-9 * np.abs(w).max())


@pytest.mark.parametrize("mu", [0.1, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_never_rises(mu, seed):
    loss = hashers.make("cmfh", n_bits=32, mu=mu, max_iter=60, random_state=seed).fit(some(3)).objective_
    assert len(loss) == 60
    assert np.diff(loss).max() <= 1e-9 * loss[0]
    assert loss[-1] < 0.9 * loss[0]


def test_bits_differ_where_the_sum_of_the_features_varies_most():
    """As in features after a ReLU: with W from U(0, 1) all bits were the sign of that sum."""
    rng = np.random.default_rng(0)
    latent, common = rng.standard_normal((600, 10)), 0.1 * rng.standard_normal((600, 1))
    views = {
        name: rng.random((600, width)) + common + 0.1 * latent @ rng.standard_normal((10, width))
        for name, width in (("image", 200), ("text", 150))
    }

    def likeness(model):
        codes = bits.unpack(model.codes_, 32).astype(float)
        return np.abs(np.corrcoef(codes.T) - np.eye(32)).mean()

    assert likeness(hashers.make("cmfh", n_bits=32, random_state=0).fit(views)) < 0.3


def test_items_of_every_view_are_coded_like_the_training_pairs():
    model = hashers.make("cmfh", n_bits=K, random_state=0).fit(some(2))
    assert np.array_equal(model.encode_fused(some(2)), model.codes_)
    assert not np.array_equal(model.encode(VIEWS["image"], view="image"), model.codes_)


def test_blocks_change_nothing_but_rounding():
    data = datasets.make_paired(2600, views={"a": 12, "b": 10}, random_state=0).views.rows(slice(0, 2500))
    models = [hashers.make("cmfh", n_bits=8, random_state=0, n_threads=n).fit(data) for n in (1, 2)]
    assert np.array_equal(models[0].codes_, models[1].codes_)
    assert np.array_equal(models[0].encode_fused(data), models[0].codes_)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], 3.0, [1.0, np.nan], "ab"])
def test_bad_view_weights_are_refused(weights):
    with pytest.raises(ParameterError, match=r"'view_weights' parameter of CMFH must be"):
        hashers.make("cmfh", n_bits=K, view_weights=weights).fit(some(2))


@pytest.mark.parametrize("ridge", [1e-3, 10.0])
def test_damped_systems(ridge):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((9, 5))
    b = rng.standard_normal((5, 2))
    assert np.allclose(solve_damped(A.T @ A, ridge, b), np.linalg.inv(A.T @ A + ridge * np.eye(5)) @ b)
    assert np.allclose(solve_damped(np.zeros((5, 5)), ridge, b), b / ridge)
    assert np.isfinite(solve_damped(1e20 * np.ones((5, 5)), ridge, b)).all()  # a ridge far below rounding


# MAP@50 of the authors' code: bits -> U I->T, U T->I, H I->T, H T->I.
REFERENCE = {16: (0.2486, 0.6141, 0.2446, 0.3952), 32: (0.2479, 0.6281, 0.2487, 0.4356)}


@pytest.mark.slow
@pytest.mark.parametrize("as_released", [False, True])
@pytest.mark.parametrize("n_bits", REFERENCE)
def test_the_numbers_on_wiki_are_those_of_the_authors(data_file, n_bits, as_released):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("cmfh", n_bits=n_bits, as_released=as_released)
    result = evaluate(model, wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(3))
    actual = [result[p, way].mean for p in "UH" for way in ("image->text", "text->image")]
    assert np.all(np.abs(np.subtract(actual, REFERENCE[n_bits])) < [0.02, 0.03, 0.02, 0.045])
