"""LSSH: each step against a slow or an exact counterpart, and the published values."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso

from fusehash import bits, datasets, hashers
from fusehash.errors import ParameterError
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines.lssh import lasso, principal_directions, step_length, unit_rows, update_atoms

VIEWS = datasets.make_paired(150, views={"image": 20, "text": 14}, n_classes=5, random_state=2).views
RNG = np.random.default_rng(0)


def soft(v: np.ndarray, limit: float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - limit, 0.0)


# -- Lasso -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 2, 7, 30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lasso_is_fista_row_by_row(n_steps, dtype):
    X, D = RNG.standard_normal((9, 6)), RNG.standard_normal((15, 6))
    step = step_length(D)
    S, weights = lasso(X.astype(dtype), D.astype(dtype), 0.2, step, n_steps)
    assert S.dtype == dtype
    for x, found, weight in zip(X, S, weights, strict=True):
        assert weight == pytest.approx(0.2 * np.abs(D @ x).max(), rel=1e-5)
        s, y, t = np.zeros(15), np.zeros(15), 1.0
        for _ in range(n_steps):
            new = soft(y - step * D @ (y @ D - x), step * float(weight))
            after = (1 + np.sqrt(1 + 4 * t * t)) / 2
            s, y, t = new, new + (t - 1) / after * (new - s), after
        assert np.allclose(found, s, atol=1e-4 if dtype is np.float32 else 1e-10)


def test_many_steps_reach_the_minimum_of_scikit_learn():
    X, D = RNG.standard_normal((5, 8)), RNG.standard_normal((12, 8))
    S, weights = lasso(X, D, 0.3, step_length(D), 5000)
    for x, s, weight in zip(X, S, weights, strict=True):
        exact = Lasso(alpha=weight / 8, fit_intercept=False, tol=1e-12, max_iter=10**6).fit(D.T, x).coef_
        assert np.allclose(s, exact, atol=1e-6)


def test_the_sparse_path_of_the_lasso_gives_the_same_codes():
    X = RNG.standard_normal((40, 60)).astype(np.float32)
    D = unit_rows(RNG.standard_normal((90, 60))).astype(np.float32)
    plain, _ = lasso(X, D, 0.3, step_length(D), 30)
    through_gram, _ = lasso(X, D, 0.3, step_length(D), 30, gram=D @ D.T)
    assert (plain != 0).mean() < 0.3
    assert np.allclose(plain, through_gram, atol=1e-5)


def test_a_row_of_zeros_has_no_atoms():
    D = RNG.standard_normal((12, 8))
    assert not lasso(np.zeros((1, 8)), D, 0.3, step_length(D), 30)[0].any()


def test_the_step_is_one_over_the_squared_norm():
    for shape in ((12, 5), (5, 12)):
        D = RNG.standard_normal(shape)
        assert step_length(D) == pytest.approx(1.0 / np.linalg.norm(D, 2) ** 2)


# -- dictionaries ----------------------------------------------------------------------------------------------------


def test_many_sweeps_reach_the_exact_minimum():
    """At the minimum over a ball the gradient is 0 inside and points straight inwards on the rim."""
    S = RNG.standard_normal((50, 10)) * (RNG.random((50, 10)) < 0.4)
    X = S @ (RNG.standard_normal((10, 6)) * RNG.uniform(0.05, 1.0, (10, 1))) + 0.1 * RNG.standard_normal((50, 6))
    D = update_atoms(S.T @ S, S.T @ X, RNG.standard_normal((10, 6)), 3000)
    gradient = S.T @ (S @ D - X)
    norms = np.linalg.norm(D, axis=1)
    inside = norms < 1 - 1e-9
    assert inside.any()
    assert not inside.all()
    assert norms.max() <= 1 + 1e-12
    assert np.allclose(gradient[inside], 0.0, atol=1e-8)
    pull = -np.sum(gradient * D, axis=1)[~inside]
    assert (pull >= 0).all()
    assert np.allclose(gradient[~inside], -pull[:, None] * D[~inside], atol=1e-8)


def test_a_sweep_never_makes_it_worse():
    S, X = RNG.standard_normal((40, 8)), 3.0 * RNG.standard_normal((40, 5))
    D = update_atoms(S.T @ S, S.T @ X, RNG.standard_normal((8, 5)), 1)
    losses = []
    for _ in range(20):
        losses.append(np.sum((X - S @ D) ** 2))
        D = update_atoms(S.T @ S, S.T @ X, D, 1)
    assert np.diff(losses).max() <= 1e-9


def test_an_atom_that_nobody_uses_is_only_shortened():
    S = np.hstack([RNG.standard_normal((20, 2)), np.zeros((20, 1))])
    D = RNG.standard_normal((3, 4)) * 5.0
    new = update_atoms(S.T @ S, S.T @ RNG.standard_normal((20, 4)), D, 2)
    assert np.allclose(new[2], D[2] / np.linalg.norm(D[2]))


# -- the rest --------------------------------------------------------------------------------------------------------


def test_principal_directions_are_those_of_scikit_learn():
    X = VIEWS["image"] - VIEWS["image"].mean(axis=0)
    expected = PCA(6).fit(X).components_.T
    assert np.allclose(np.abs(np.sum(principal_directions(X, 6) * expected, axis=0)), 1.0)
    assert principal_directions(X[:, [0, 1, 0]], 8).shape == (3, 2)


def test_the_latent_codes_are_a_stationary_point():
    model = hashers.make("lssh", n_bits=8, mu=0.3, lam=0.7)
    SR, T, A = RNG.standard_normal((20, 8)), RNG.standard_normal((20, 5)), RNG.standard_normal((8, 5))
    Z = model._latent(SR, T @ A.T, A)

    def loss(Z: np.ndarray) -> float:
        return float(0.3 * np.sum((T - Z @ A) ** 2) + 0.7 * np.sum((Z - SR) ** 2))

    for i, j in ((0, 0), (7, 3), (19, 7)):
        bump = np.zeros_like(Z)
        bump[i, j] = 1e-5
        assert abs(loss(Z + bump) - loss(Z - bump)) / 2e-5 < 1e-6


@pytest.fixture(scope="module")
def model():
    return hashers.make("lssh", n_bits=16, mu=0.3, lam=0.7, random_state=0).fit(VIEWS)


def test_atoms_links_and_topics_have_norm_at_most_one(model):
    for matrix in (model.atoms_, model.links_, model.topics_["text"]):
        assert np.linalg.norm(matrix, axis=1).max() <= 1 + 1e-9


def test_hash_functions_are_the_printed_ones(model):
    x = unit_rows((VIEWS["image"] - VIEWS["image"].mean(axis=0)) @ model.components_)
    t = unit_rows(VIEWS["text"] - VIEWS["text"].mean(axis=0))
    A, R, r = model.topics_["text"], model.links_, 0.7 / 0.3
    s, _ = lasso(x, model.atoms_, 0.2, step_length(model.atoms_), 30)
    inverse = np.linalg.inv(A @ A.T + r * np.eye(16))
    assert np.allclose(model.project(VIEWS["image"], view="image"), s @ R)
    assert np.allclose(model.project(VIEWS["text"], view="text"), t @ A.T @ inverse)
    assert np.allclose(model.project_fused(VIEWS), (r * s @ R + t @ A.T) @ inverse)
    assert np.array_equal(model.codes_, model.encode_fused(VIEWS))


def test_the_objective_falls_on_the_whole(model):
    assert len(model.objective_) == 20
    assert model.objective_[-1] < 0.8 * model.objective_[0]


def test_several_texts_stand_side_by_side():
    views = {"image": VIEWS["image"], "title": VIEWS["text"][:, :6], "body": VIEWS["text"][:, 6:]}
    model = hashers.make("lssh", n_bits=16, random_state=0).fit(views)
    assert {name: A.shape for name, A in model.topics_.items()} == {"title": (16, 6), "body": (16, 8)}
    assert model.score(views) > 0.6
    assert np.array_equal(model.codes_, model.encode_fused(views))


def test_it_learns_from_some_rows_and_gives_codes_to_all():
    first, again, other = (
        hashers.make("lssh", n_bits=8, max_rows=80, max_iter=3, random_state=seed).fit(VIEWS) for seed in (0, 0, 1)
    )
    assert len(first.codes_) == 150
    assert len(first.atoms_) == 80
    assert np.array_equal(first.codes_, again.codes_)
    assert not np.array_equal(first.codes_, other.codes_)


@pytest.mark.parametrize("rho", [0.0, 1.0, 1.5, np.nan, "a"])
def test_a_share_is_between_0_and_1(rho):
    with pytest.raises(ParameterError, match="'rho' parameter of LSSH"):
        hashers.make("lssh", n_bits=8, rho=rho).fit(VIEWS)


@pytest.mark.slow
def test_wiki_agrees_with_published_values(data_file):
    """32 bits, unified codes, MAP over the whole list: SDMCH (IJCAI 2018) prints .2109 / .5220, for random splits."""
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("lssh", n_bits=32, random_state=0).fit(wiki.views.rows(wiki.train))
    result = evaluate(model, wiki, k=None, ties="stable", protocols=["U"], refit=False)
    assert result["U", "image->text"].mean == pytest.approx(0.2109, abs=0.025)
    assert result["U", "text->image"].mean == pytest.approx(0.5220, abs=0.025)
    assert np.abs(bits.unpack(model.codes_, 32).mean(axis=0)).max() < 0.8
