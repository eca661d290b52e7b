"""Anchors and anchor graphs, against a slow reference that follows Eq. 14 word by word."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.numerics import anchors as graph
from fusehash.views import PairedViews


def slow_row(x: np.ndarray, anchors: np.ndarray, k: int) -> np.ndarray:
    """One row of A_m: sort all distances (ties by number of the anchor), then Eq. 14."""
    d = np.array([np.sum((x - t) ** 2) for t in anchors])
    order = np.argsort(d, kind="stable")
    limit = d[order[k]] if k < len(d) else d[order[-1]]
    gaps = np.array([limit - d[j] for j in order[:k]])
    row = np.zeros(len(anchors))
    row[order[:k]] = gaps / gaps.sum() if gaps.sum() > 1e-12 * k * limit else 1.0 / k
    return row


def slow_graph(X: np.ndarray, anchors: np.ndarray, k: int) -> np.ndarray:
    return np.array([slow_row(x, anchors, k) for x in X])


def fast_graph(X: np.ndarray, anchors: np.ndarray, k: int) -> np.ndarray:
    return graph.to_sparse(graph.anchor_weights(X, anchors, k), len(anchors)).toarray()


@st.composite
def problems(draw):
    """Points on a small integer grid: distances are exact and full of ties and duplicates."""
    P = draw(st.integers(1, 12))
    d = draw(st.integers(1, 3))
    n = draw(st.integers(1, 5))
    coordinate = st.integers(-2, 2)
    X = draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=n, max_size=n))
    T = draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=P, max_size=P))
    return np.array(X, float), np.array(T, float), draw(st.integers(1, P))


@given(problems())
@settings(deadline=None, max_examples=300)
def test_weights_follow_equation_14_with_ties_and_duplicates(problem):
    X, T, k = problem
    assert np.abs(fast_graph(X, T, k) - slow_graph(X, T, k)).max() <= 1e-12


@pytest.mark.parametrize("k", [1, 5, 45, 99, 100])
def test_weights_follow_equation_14_on_real_numbers(k):
    rng = np.random.default_rng(0)
    X, T = rng.standard_normal((30, 7)), rng.standard_normal((100, 7))
    assert np.abs(fast_graph(X, T, k) - slow_graph(X, T, k)).max() <= 1e-10


@given(problems())
@settings(deadline=None)
def test_rows_sum_to_one_and_neighbors_are_distinct(problem):
    X, T, k = problem
    index, weights = graph.anchor_weights(X, T, k)
    assert np.abs(weights.sum(axis=1) - 1.0).max() <= 1e-14
    assert weights.min() >= 0.0
    assert all(len(set(row)) == k for row in index.tolist())


@given(problems())
@settings(deadline=None)
def test_neighbors_come_nearest_first_and_ties_by_number(problem):
    X, T, k = problem
    index, weights = graph.anchor_weights(X, T, k)
    D = graph.squared_distances(X, T)
    for i in range(len(X)):
        expected = np.argsort(D[i], kind="stable")[:k]
        assert np.array_equal(index[i], expected)
    assert np.all(np.diff(weights, axis=1) <= 1e-15)


def test_all_distances_equal_give_equal_weights():
    index, weights = graph.anchor_weights(np.zeros((2, 3)), np.vstack([np.eye(3), -np.eye(3)]), 4)
    assert np.array_equal(index, [[0, 1, 2, 3]] * 2)
    assert np.array_equal(weights, np.full((2, 4), 0.25))


def test_anchors_that_are_all_the_row_itself_give_equal_weights():
    x = np.array([[0.1, 0.7, -0.3]])
    for offset in (0.0, 0.3, 1e3):
        _, weights = graph.anchor_weights(x + offset, np.repeat(x + offset, 6, axis=0), 3)
        assert np.array_equal(weights, np.full((1, 3), 1 / 3))


def test_an_anchor_at_the_limit_gets_no_weight():
    _, weights = graph.anchor_weights(np.zeros((1, 1)), np.array([[1.0], [2.0], [2.0]]), 2)
    assert weights.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_far_origin_or_another_unit_changes_nothing(offset, scale):
    rng = np.random.default_rng(1)
    X, T = rng.standard_normal((20, 5)), rng.standard_normal((40, 5))
    expected = fast_graph(X, T, 6)
    assert np.abs(fast_graph((X + offset) * scale, (T + offset) * scale, 6) - expected).max() <= 1e-7


@given(problems())
@settings(deadline=None)
def test_squared_distances_are_the_obvious_ones(problem):
    X, T, _ = problem
    D = graph.squared_distances(X, T)
    assert np.abs(D - ((X[:, None] - T[None]) ** 2).sum(axis=2)).max() <= 1e-12
    assert D.min() >= 0.0


def test_inputs_are_left_alone():
    rng = np.random.default_rng(2)
    X, T = rng.standard_normal((5, 3)), rng.standard_normal((7, 3))
    X_before, T_before = X.copy(), T.copy()
    graph.anchor_weights(X, T, 3)
    assert np.array_equal(X, X_before)
    assert np.array_equal(T, T_before)


# -- fusion ----------------------------------------------------------------------------------------------------------


def test_hadamard_is_the_entrywise_product():
    graphs = [sp.random(20, 15, 0.4, format="csr", random_state=seed) for seed in range(3)]
    fused = graph.hadamard(graphs)
    assert np.array_equal(fused.toarray(), graphs[0].toarray() * graphs[1].toarray() * graphs[2].toarray())
    assert fused.nnz == np.count_nonzero(fused.toarray())


def test_hadamard_of_one_graph_is_that_graph():
    one = sp.random(5, 6, 0.5, format="csr", random_state=0)
    assert np.array_equal(graph.hadamard([one]).toarray(), one.toarray())


def test_hadamard_can_leave_rows_empty():
    a, b = sp.csr_matrix(np.eye(3)), sp.csr_matrix(np.roll(np.eye(3), 1, axis=1))
    fused = graph.hadamard([a, b])
    assert fused.nnz == 0
    assert fused.shape == (3, 3)


@pytest.mark.parametrize("size", [1, 7, 50, 2048])
def test_the_fused_graph_is_the_product_of_the_views_graphs_in_any_blocks(size):
    rng = np.random.default_rng(3)
    X = {"a": rng.standard_normal((50, 4)), "b": rng.standard_normal((50, 6))}
    T = {name: matrix[:20] for name, matrix in X.items()}
    fused = graph.fused_anchor_graph(PairedViews(X), T, 8, size)
    expected = slow_graph(X["a"], T["a"], 8) * slow_graph(X["b"], T["b"], 8)
    assert sp.issparse(fused)
    assert np.abs(fused.toarray() - expected).max() <= 1e-12


def test_the_mean_graph_keeps_every_edge_and_rows_that_sum_to_one():
    rng = np.random.default_rng(6)
    X = {"a": rng.standard_normal((50, 4)), "b": rng.standard_normal((50, 6)), "c": rng.standard_normal((50, 2))}
    T = {name: matrix[:20] for name, matrix in X.items()}
    fused = graph.fused_anchor_graph(PairedViews(X), T, 3, size=16, combine=graph.mean_graph)
    expected = sum(slow_graph(X[name], T[name], 3) for name in X) / 3
    assert np.abs(fused.toarray() - expected).max() <= 1e-12
    assert np.abs(fused.sum(axis=1) - 1.0).max() <= 1e-12


# -- anchors ---------------------------------------------------------------------------------------------------------


def paired(n: int = 60, seed: int = 0) -> PairedViews:
    rng = np.random.default_rng(seed)
    return PairedViews({"a": rng.standard_normal((n, 3)), "b": 100 * rng.standard_normal((n, 2))})


def rows_of(anchors: np.ndarray, matrix: np.ndarray) -> list[int]:
    return [int(np.flatnonzero((matrix == anchor).all(axis=1))[0]) for anchor in anchors]


def test_random_anchors_are_distinct_rows_and_the_same_in_every_view():
    views = paired()
    anchors = graph.choose_anchors(views, 25, "random", np.random.default_rng(0))
    rows = rows_of(anchors["a"], views["a"])
    assert len(set(rows)) == 25
    assert rows == rows_of(anchors["b"], views["b"])


def test_every_row_can_be_an_anchor():
    views = paired(12)
    anchors = graph.choose_anchors(views, 12, "random", np.random.default_rng(0))
    assert sorted(rows_of(anchors["a"], views["a"])) == list(range(12))


def test_random_anchors_follow_the_generator():
    first, again, other = (
        graph.choose_anchors(paired(), 10, "random", np.random.default_rng(seed))["a"] for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_anchors_avoid_rows_that_miss_a_view_while_there_are_enough():
    a = np.arange(20.0)[:, None]
    b = np.where(np.arange(20)[:, None] < 12, np.nan, a)
    views = PairedViews({"a": a, "b": b}, allow_missing=True)
    anchors = graph.choose_anchors(views, 8, "random", np.random.default_rng(0))
    assert sorted(anchors["a"][:, 0]) == list(range(12, 20))


def test_kmeans_anchors_sit_in_the_middle_of_the_clusters_of_all_views():
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(6), 50)
    middle = {"a": rng.standard_normal((6, 3)) * 20, "b": rng.standard_normal((6, 2)) * 2000}
    noise = {"a": 0.1, "b": 10.0}
    views = PairedViews({n: m[cluster] + noise[n] * rng.standard_normal((300, m.shape[1])) for n, m in middle.items()})
    anchors = graph.choose_anchors(views, 6, "kmeans", np.random.default_rng(0))
    for name, centers in middle.items():
        D = graph.squared_distances(anchors[name], centers)
        assert np.sqrt(D.min(axis=1)).max() < 5 * noise[name]
    nearest = {name: graph.squared_distances(anchors[name], middle[name]).argmin(axis=1) for name in middle}
    assert np.array_equal(nearest["a"], nearest["b"])  # row j is the same cluster in every view


def test_kmeans_does_not_depend_on_the_unit_of_a_view():
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((200, 3)), rng.standard_normal((200, 4))
    small = graph.choose_anchors(PairedViews({"a": a, "b": b}), 7, "kmeans", np.random.default_rng(0))
    large = graph.choose_anchors(PairedViews({"a": a, "b": 1024 * b}), 7, "kmeans", np.random.default_rng(0))
    assert np.allclose(small["a"], large["a"])
    assert np.allclose(small["b"] * 1024, large["b"])


def test_kmeans_on_constant_views_still_gives_anchors():
    views = PairedViews({"a": np.ones((30, 2)), "b": np.random.default_rng(0).standard_normal((30, 2))})
    anchors = graph.choose_anchors(views, 4, "kmeans", np.random.default_rng(0))
    assert np.allclose(anchors["a"], 1.0)
    assert anchors["b"].shape == (4, 2)
