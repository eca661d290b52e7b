"""JIMFH against dense lines with explicit inverses, its objective, its fusion, its queries, and the known numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.errors import ParameterError
from fusehash.evaluation import evaluate
from fusehash.parameters import rng_for

VIEWS = datasets.make_paired(180, views={"image": 20, "text": 14}, n_classes=5, random_state=2).views
X1, X2 = (VIEWS[name] - VIEWS[name].mean(axis=0) for name in VIEWS)
KS, KI = 4, 12


def inv(A, ridge):
    return np.linalg.inv(A + ridge * np.eye(len(A)))


def dense(a, b, g, iterations, tol=0.0, seed=0):
    """V, V1, V2, the bases and both objectives, in the column convention of the paper (samples are columns)."""
    A, B = X1.T, X2.T
    rng = rng_for(seed, "start 0")
    V, V1, V2 = (rng.random((len(X1), k)).T for k in (KS, KI, KI))
    losses, rough = [], []
    for _ in range(iterations):
        R = V2 @ V1.T @ inv(V1 @ V1.T, g / b)
        U1, U2 = A @ V.T @ inv(V @ V.T, g / a), B @ V.T @ inv(V @ V.T, g / (1 - a))
        Q1, Q2 = A @ V1.T @ inv(V1 @ V1.T, g / a), B @ V2.T @ inv(V2 @ V2.T, g / (1 - a))
        V = inv(a * U1.T @ U1 + (1 - a) * U2.T @ U2, g) @ (a * U1.T @ A + (1 - a) * U2.T @ B)
        V1 = inv(a * Q1.T @ Q1 + b * R.T @ R, g) @ (a * Q1.T @ A + b * R.T @ V2)
        V2 = inv((1 - a) * Q2.T @ Q2, b + g) @ ((1 - a) * Q2.T @ B + b * R @ V1)
        terms = [(a, A - U1 @ V), (1 - a, B - U2 @ V), (a, A - Q1 @ V1), (1 - a, B - Q2 @ V2), (b, V2 - R @ V1)]
        terms += [(g, part) for part in (U1, U2, V, Q1, Q2, V1, V2, R)]
        losses.append(sum(w * np.sum(part**2) for w, part in terms))
        rough.append(sum(w * np.linalg.norm(part) for w, part in terms))
        if len(rough) > 1 and abs(rough[-1] - rough[-2]) < tol:
            break
    return V, V2, (U1, U2, Q1, Q2, R), losses


@pytest.mark.parametrize(("balance", "beta"), [(0.5, 1e-3), (0.3, 2.0)])
@pytest.mark.parametrize("iterations", [1, 2, 10])
def test_the_loop_on_gram_matrices_is_the_dense_loop(balance, beta, iterations):
    settings = {"balance": balance, "beta": beta, "gamma": 0.01, "max_iter": iterations, "tol": 0.0}
    model = hashers.make("jimfh", n_bits=16, random_state=0, **settings).fit(VIEWS)
    V, V2, _, losses = dense(balance, beta, 0.01, iterations)
    latent = np.vstack([V, V2]).T
    assert np.allclose(model.objective_, losses, rtol=1e-8)
    assert np.array_equal(model.codes_, bits.pack(latent - latent.mean(axis=0)))
    for name, x in zip(VIEWS, (X1, X2), strict=True):
        W = inv(x.T @ x, 0.01) @ x.T @ latent
        assert np.allclose(model.weights_[name], W, rtol=1e-5, atol=1e-8 * np.abs(W).max())
        assert np.allclose(model.project(VIEWS[name], view=name), x @ W, atol=1e-6)


def test_it_stops_where_the_plain_norms_settle():
    for tol in (1.0, 0.01):
        model = hashers.make("jimfh", n_bits=16, random_state=0, gamma=0.01, tol=tol).fit(VIEWS)
        assert len(model.objective_) == len(dense(0.5, 1e-3, 0.01, 100, tol)[-1]) < 100


@pytest.mark.parametrize("seed", range(3))
def test_the_objective_never_rises(seed):
    loss = hashers.make("jimfh", n_bits=32, max_iter=50, tol=0.0, random_state=seed).fit(VIEWS).objective_
    assert len(loss) == 50
    assert np.diff(loss).max() <= 1e-9 * loss[0]
    assert loss[-1] < loss[0]


def test_items_of_both_views_minimize_the_objective():
    a, b, g = 0.4, 0.5, 0.1
    settings = {"balance": a, "beta": b, "gamma": g, "max_iter": 5, "tol": 0.0}
    model = hashers.make("jimfh", n_bits=16, random_state=0, **settings).fit(VIEWS)
    U1, U2, Q1, Q2, R = dense(a, b, g, 5)[2]
    x, t = X1[3], X2[3]
    # All residuals of one item are linear in [v v1 v2]: least squares without any of the formulas.
    zero = np.zeros
    rows = [
        np.sqrt(a) * np.hstack([U1, zero((20, 2 * KI))]),
        np.sqrt(1 - a) * np.hstack([U2, zero((14, 2 * KI))]),
        np.sqrt(a) * np.hstack([zero((20, KS)), Q1, zero((20, KI))]),
        np.sqrt(1 - a) * np.hstack([zero((14, KS + KI)), Q2]),
        np.sqrt(b) * np.hstack([zero((KI, KS)), -R, np.eye(KI)]),
        np.sqrt(g) * np.eye(KS + 2 * KI),
    ]
    sides = [np.sqrt(a) * x, np.sqrt(1 - a) * t, np.sqrt(a) * x, np.sqrt(1 - a) * t, zero(KI + KS + 2 * KI)]
    best = np.linalg.lstsq(np.vstack(rows), np.concatenate(sides), rcond=None)[0]
    actual = model.project_fused(VIEWS.rows([3]))[0]
    assert np.allclose(actual, np.concatenate([best[:KS], best[KS + KI :]]), atol=1e-8)


def test_queries_as_released_are_not_centered():
    shifted = {name: VIEWS[name] + 1.0 for name in VIEWS}
    fixed, released = (
        hashers.make("jimfh", n_bits=16, random_state=0, max_iter=5, as_released=flag).fit(shifted)
        for flag in (False, True)
    )
    assert np.array_equal(fixed.codes_, released.codes_)
    latent = np.vstack(dense(0.5, 1e-3, 1e-4, 5)[:2]).T
    for name in VIEWS:
        assert np.array_equal(fixed.weights_[name], released.weights_[name])
        expected = shifted[name] @ fixed.weights_[name] - latent.mean(axis=0)
        assert np.allclose(released.project(shifted[name], view=name), expected, atol=1e-6)
    assert np.array_equal(fixed.project_fused(shifted), released.project_fused(shifted))


@pytest.mark.parametrize("balance", [0.0, 1.0, -1, 2, np.nan, None])
def test_a_balance_beyond_the_views_is_refused(balance):
    with pytest.raises(ParameterError, match=r"'balance' parameter of JIMFH must be"):
        hashers.make("jimfh", n_bits=16, balance=balance).fit(VIEWS)


# MAP@50 of the authors' code, queries centered: bits -> U I->T, U T->I, H I->T, H T->I.
REFERENCE = {16: (0.2422, 0.6182, 0.2436, 0.3701), 32: (0.2534, 0.6332, 0.2520, 0.4059)}


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", REFERENCE)
def test_the_numbers_on_wiki_are_those_of_the_authors(data_file, n_bits):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    ways = [(protocol, way) for protocol in "UH" for way in ("image->text", "text->image")]
    actual = {}
    for as_released in (False, True):
        model = hashers.make("jimfh", n_bits=n_bits, as_released=as_released)
        result = evaluate(model, wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
        actual[as_released] = np.array([result[way].mean for way in ways])
    assert np.all(np.abs(actual[False] - REFERENCE[n_bits]) < [0.02, 0.03, 0.02, 0.03])
    # What the slip costs: image queries, whatever is searched.
    assert np.all((actual[False] - actual[True])[[0, 2]] > 0.025)
    assert abs(actual[False][1] - actual[True][1]) < 0.02
