"""AGH against the dense graph it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.errors import FusehashWarning, ParameterError
from fusehash.evaluation import evaluate, mean_average_precision
from fusehash.hashers.baselines.agh import anchor_affinities, eigenfunctions, kmeans_anchors, second_layer
from fusehash.numerics.anchors import squared_distances

VIEWS = datasets.make_paired(160, views={"image": 8, "text": 6}, n_classes=4, random_state=2).views
X = VIEWS["image"] - VIEWS["image"].mean(axis=0)
N = len(X)


@pytest.fixture(scope="module")
def Z():
    D = squared_distances(X, kmeans_anchors(X, 40, np.random.default_rng(0)))
    return anchor_affinities(D, 3, 1.7)


@pytest.fixture(scope="module")
def S(Z):
    """The graph between rows, in full."""
    return Z @ np.diag(1.0 / Z.sum(axis=0)) @ Z.T


def test_affinities_are_gaussians_on_the_nearest_anchors():
    anchors = X[::7]
    D = squared_distances(X, anchors)
    Z = anchor_affinities(D, 2, 0.9)
    for i in range(N):
        near = np.argsort(D[i])[:2]
        weights = np.exp(-D[i, near] / 0.9**2)
        expected = np.zeros(len(anchors))
        expected[near] = weights / weights.sum()
        assert np.allclose(Z[i], expected)


def test_affinities_of_far_rows_do_not_vanish():
    D = np.array([[1e6, 2e6, 3e6], [0.0, 0.0, 1.0]])
    assert anchor_affinities(D, 2, 1.0).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]


def test_functions_are_eigenvectors_of_the_graph_between_rows(Z, S):
    W, values = eigenfunctions(Z, 12)
    Y = Z @ W
    assert np.allclose(S @ Y, Y * values, atol=1e-8)
    assert np.allclose(Y.T @ Y, N * np.eye(12), atol=1e-6)
    assert np.allclose(Y.sum(axis=0), 0.0, atol=1e-6)  # at right angles to the constant function
    expected = np.linalg.eigvalsh(S)[::-1]
    assert np.allclose(values, expected[expected < 1.0 - 1e-3][:12])


def test_second_thresholds_solve_the_constrained_problem(Z, S):
    Y = Z @ eigenfunctions(Z, 6)[0]
    T = second_layer(Z, Y)
    L = np.eye(N) - S
    for y, (above, below) in zip(Y.T, T.T, strict=True):
        e = (y > 0).astype(float)
        # yhat = |y| + A (T+, T-) with 1'yhat = 0, by the optimality conditions of the dense problem.
        A = np.column_stack([-e, 1.0 - e])
        system = np.block([[2.0 * A.T @ L @ A, (A.sum(axis=0))[:, None]], [A.sum(axis=0)[None], np.zeros((1, 1))]])
        right = np.concatenate([-2.0 * A.T @ L @ np.abs(y), [-np.abs(y).sum()]])
        assert np.allclose([above, below], np.linalg.solve(system, right)[:2], atol=1e-6)
        assert np.sum(np.where(y > 0, y - above, below - y)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_unseen_items_are_hashed_by_the_formula_of_the_training_rows(layers):
    model = hashers.make("agh", n_bits=16, layers=layers, n_anchors=40, random_state=0).fit(VIEWS)
    total = np.zeros((N, 16))
    for name, matrix in VIEWS.items():
        graph = model.graphs_[name]
        x = matrix - matrix.mean(axis=0)
        D = squared_distances(x, graph.anchors)
        assert graph.width == pytest.approx(np.mean(np.sqrt(np.sort(D, axis=1)[:, 1])))
        Z = anchor_affinities(D, 2, graph.width)
        W, _ = eigenfunctions(Z, 16 // layers)
        Y = Z @ W
        if layers == 2:
            above, below = second_layer(Z, Y)
            Y = np.hstack([Y, np.where(Y > 0, Y - above, below - Y)])
        assert np.allclose(model.project(matrix, view=name), Y, atol=1e-6)
        total += Y
    assert np.array_equal(model.codes_, bits.pack(total))
    assert np.array_equal(model.encode_fused(VIEWS), model.codes_)


def test_a_graph_with_too_few_functions_repeats_them_with_a_warning():
    with pytest.warns(FusehashWarning, match=r"AGH was asked for 32 functions on a graph that has \d+ in view"):
        model = hashers.make("agh", n_bits=32, n_anchors=12, random_state=0).fit(VIEWS)
    graph = model.graphs_["image"]
    r = graph.n_functions
    assert 0 < r < 12
    Y = model.project(VIEWS["image"], view="image")
    assert np.allclose(Y[:, r : 2 * r], Y[:, :r])


def test_separate_points_still_get_codes():
    views = {"a": np.repeat(np.eye(4), 5, axis=0) * 100.0}
    with pytest.warns(FusehashWarning):
        model = hashers.make("agh", n_bits=8, random_state=0).fit(views)
    assert np.isfinite(model.project(views["a"], view="a")).all()


@pytest.mark.parametrize("setting", [{"layers": 3}, {"n_anchors": 1}, {"n_neighbors": 0}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ParameterError, match=f"The '{next(iter(setting))}' parameter of AGH must be"):
        hashers.make("agh", n_bits=8, **setting).fit(VIEWS)


@pytest.mark.slow
def test_on_wiki_it_works_within_a_view_and_not_across(data_file):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("agh", n_bits=32, random_state=0).fit(wiki.views.rows(wiki.train))
    assert not model.comparable
    assert np.abs(bits.unpack(model.codes_, 32).mean(axis=0)).max() < 0.95
    result = evaluate(model, wiki, k=50, ties="stable", protocols=("H",), refit=False)
    assert max(result["H", pair].mean for pair in ("image->text", "text->image")) < 0.22  # chance is about .18
    texts = {rows: model.encode(wiki.views["text"][getattr(wiki, rows)], view="text") for rows in ("query", "train")}
    within = mean_average_precision(
        texts["query"], texts["train"], (wiki.labels[wiki.query], wiki.labels[wiki.train]), ties="stable"
    )
    assert within > 0.5
