"""Exactly C connected components: counted by somebody else, and clusters where there are clusters."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score

import fusehash
from fusehash.errors import FusehashWarning
from fusehash.hashers.agsfh import paper
from fusehash.hashers.agsfh.clusters import ClusterStep, StructureWeight, components, unit_rows


def clustered(n_clusters: int, seed: int, separation: float, n: int = 400) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(n_clusters, size=n)
    views = {}
    for name, d in (("a", 12), ("b", 9)):
        middle = separation * rng.standard_normal((n_clusters, d))
        views[name] = middle[label] + rng.standard_normal((n, d))
    return views, label


def agsfh(**params):
    settings = {"n_bits": 8, "n_anchors": 80, "n_neighbors": 8, "exact_clusters": True, "max_iter": 100}
    return fusehash.AGSFH(**{**settings, **params})


@pytest.fixture
def learned_graph(monkeypatch):
    """The S of the last fit, as one sparse matrix."""
    steps = []
    choose = ClusterStep.choose_first_weight
    monkeypatch.setattr(ClusterStep, "choose_first_weight", lambda step, k: steps.append(step) or choose(step, k))
    return lambda: sp.vstack([rows for _, rows in sorted(steps[-1].blocks.items())], format="csr")


def bipartite_components(S: sp.csr_matrix) -> tuple[int, np.ndarray]:
    """Components of the graph of rows and anchors with mass, and the component of every row."""
    S = S[:, np.asarray(S.sum(axis=0)).ravel() > 0]
    count, label = connected_components(sp.bmat([[None, S], [S.T, None]]), directed=False)
    return count, label[: S.shape[0]]


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 15])
@pytest.mark.parametrize("separation", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_learned_graph_has_exactly_c_components(learned_graph, n_clusters, separation, seed):
    views, _ = clustered(max(n_clusters, 2), seed, separation)
    model = agsfh(n_clusters=n_clusters, random_state=seed).fit(views)
    S = learned_graph()
    count, of_row = bipartite_components(S)
    assert count == n_clusters
    assert model.n_components_ == n_clusters
    assert len(np.unique(model.labels_)) == n_clusters
    assert partition(model.labels_) == partition(of_row)
    assert S.min() >= 0
    assert np.allclose(S.sum(axis=1), 1.0)


def test_the_eigenvalue_one_has_multiplicity_c(learned_graph):
    views, _ = clustered(5, 0, 1.0)
    agsfh(n_clusters=5, random_state=0).fit(views)
    S = learned_graph().toarray()
    root = paper.l_step(S.sum(axis=0))
    w = np.linalg.eigvalsh(root[:, None] * (S.T @ S) * root)[::-1]
    assert np.allclose(w[:5], 1.0)
    assert w[5] < 1 - 1e-6


def test_without_the_option_the_graph_stays_in_one_piece():
    views, _ = clustered(5, 0, 1.0)
    model = agsfh(n_clusters=5, random_state=0, exact_clusters=False).fit(views)
    assert model.n_components_ == 1
    assert np.array_equal(model.labels_, np.zeros(400))


def test_too_few_iterations_are_admitted_with_a_warning():
    views, _ = clustered(7, 0, 0.0)
    with pytest.warns(
        FusehashWarning, match=r"^AGSFH was asked for exactly 70 clusters and has \d+ after 1 iterations"
    ):
        model = agsfh(n_clusters=70, random_state=0, max_iter=1).fit(views)
    assert model.n_components_ != 70


@pytest.mark.parametrize("n_clusters", [2, 3, 7, 15])
@pytest.mark.parametrize("seed", [0, 1])
def test_well_separated_clusters_are_found(n_clusters, seed):
    views, label = clustered(n_clusters, seed, 6.0)
    model = agsfh(n_clusters=n_clusters, random_state=seed).fit(views)
    assert adjusted_rand_score(label, model.labels_) > 0.9


def test_components_ignore_anchors_without_mass():
    S = np.array([[0.5, 0.5, 0, 0, 0], [0, 1.0, 0, 0, 0], [0, 0, 0, 1.0, 0]])
    count, of_anchor = components(S.T @ S)
    assert count == 2
    assert of_anchor[0] == of_anchor[1] != of_anchor[3]
    assert of_anchor[2] == of_anchor[4] == -1


def test_unit_rows_sum_to_one_and_empty_rows_stay_empty():
    rows = unit_rows(sp.csr_matrix(np.array([[1.0, 3.0], [0.0, 0.0]])))
    assert rows.toarray().tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_the_weight_closes_in_on_a_threshold():
    weight = StructureWeight(3, value=1.0)
    for _ in range(60):
        if weight.adapt(2 if weight.value < 37.0 else 4):
            assert weight.high >= 37.0
        if 36.5 < weight.value < 37.5:
            return
    pytest.fail(f"ended at {weight.value}")


def test_the_weight_falls_while_there_are_too_many_from_the_start():
    weight = StructureWeight(3, value=1e6)
    values = []
    for _ in range(5):
        assert weight.adapt(9)
        values.append(weight.value)
    assert np.all(np.diff(values) < 0)
