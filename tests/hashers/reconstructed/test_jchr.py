"""JCHR against all choices of bits and a slow loop."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusehash import bits, datasets, hashers
from fusehash.errors import ParameterError
from fusehash.evaluation import evaluate
from fusehash.hashers.reconstructed.jchr import agreement, coupled_codes
from fusehash.parameters import rng_for

VIEWS = datasets.make_paired(150, views={"image": 14, "sound": 7, "text": 9}, n_classes=4, random_state=2).views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}


def cost(b: float, per_view: tuple[float, ...], u: list[float], a: float) -> float:
    return sum((each - value) ** 2 + a * (b - each) ** 2 for each, value in zip(per_view, u, strict=True))


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4), st.floats(0.01, 4.0))
def test_the_joint_step_is_the_best_of_all_choices(u, a):
    B, per_view = coupled_codes([np.array([[value]]) for value in u], a)
    best = min(cost(b, each, u, a) for b in (-1.0, 1.0) for each in product((-1.0, 1.0), repeat=len(u)))
    assert cost(B[0, 0], tuple(codes[0, 0] for codes in per_view), u, a) == pytest.approx(best, abs=1e-9)


def test_a_view_has_a_say_of_at_most_the_coupling():
    U = [np.array([[9.0, 0.2]]), np.array([[-0.3, -0.3]]), np.array([[-0.3, 0.2]])]
    assert agreement(U, 0.5) == pytest.approx(np.array([[-0.1, 0.1]]))
    B, per_view = coupled_codes(U, 0.5)
    assert B.tolist() == [[-1.0, 1.0]]
    assert per_view[0].tolist() == [[1.0, 1.0]]  # the first view is surer than 0.5 and keeps its own bit


def test_the_fit_follows_a_slow_loop():
    a, ridge = 0.6, 1e-2
    model = hashers.make("jchr", n_bits=8, coupling=a, ridge=ridge, max_iter=5, tol=0.0, random_state=3).fit(VIEWS)
    rng = rng_for(3, "W")
    W = {name: rng.standard_normal((x.shape[1], 8)) / np.sqrt(np.sum(x**2)) for name, x in X.items()}
    B = np.where(sum(x @ W[name] for name, x in X.items()) > 0, 1.0, -1.0)
    per_view = dict.fromkeys(X, B)
    losses = []
    for step in range(5):
        if step:
            U = {name: x @ W[name] for name, x in X.items()}
            totals = sum(np.abs(u + a) - np.abs(u - a) for u in U.values())
            B = np.where(totals > 0, 1.0, -1.0)
            per_view = {name: np.where(u + a * B > 0, 1.0, -1.0) for name, u in U.items()}
        loss = 0.0
        for name, x in X.items():
            r = ridge * np.sum(x**2) / x.shape[1]
            W[name] = np.linalg.solve(x.T @ x + r * np.eye(x.shape[1]), x.T @ per_view[name])
            loss += (
                np.sum((per_view[name] - x @ W[name]) ** 2)
                + a * np.sum((B - per_view[name]) ** 2)
                + r * np.sum(W[name] ** 2)
            )
        losses.append(loss)
    assert np.allclose(model.objective_, losses)
    assert np.array_equal(bits.unpack(model.codes_, 8), B)
    for name, x in X.items():
        assert np.allclose(model.project(VIEWS[name], view=name), x @ W[name], atol=1e-8)


@pytest.mark.parametrize("coupling", [0.05, 0.5, 3.0])
def test_the_objective_never_rises(coupling):
    model = hashers.make("jchr", n_bits=16, coupling=coupling, max_iter=40, tol=0.0, random_state=0).fit(VIEWS)
    loss = model.objective_
    assert np.diff(loss).max(initial=0.0) <= 1e-9 * loss[0]
    assert loss[-1] < loss[0]


def test_pairs_are_fused_by_the_formula_of_the_unified_codes():
    model = hashers.make("jchr", n_bits=16, coupling=0.3, random_state=0).fit(VIEWS)
    U = {name: model.project(VIEWS[name], view=name) for name in VIEWS}
    assert np.allclose(model.project_fused(VIEWS), agreement(list(U.values()), 0.3))
    some = {name: VIEWS[name] for name in ("image", "text")}
    assert np.allclose(model.project_fused(some), U["image"] + U["text"])  # not seen in every view: the plain sum


def test_a_coupling_of_zero_is_refused():
    with pytest.raises(ParameterError, match=r"The 'coupling' parameter of JCHR must be .* greater than 0"):
        hashers.make("jchr", n_bits=8, coupling=0.0).fit(VIEWS)


@pytest.mark.slow
def test_numbers_on_wiki(data_file):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    result = evaluate(hashers.make("jchr", n_bits=32), wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
    assert result["U", "image->text"].mean == pytest.approx(0.255, abs=0.02)
    assert result["U", "text->image"].mean == pytest.approx(0.605, abs=0.03)
    assert result["H", "text->image"].mean == pytest.approx(0.475, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", [16, 128])
def test_no_bit_collapses_on_wiki(data_file, n_bits):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("jchr", n_bits=n_bits, random_state=0).fit(wiki.views.rows(wiki.train))
    assert np.abs(bits.unpack(model.codes_, n_bits).mean(axis=0)).max() < 0.5
