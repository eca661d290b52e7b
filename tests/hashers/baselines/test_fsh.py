"""FSH against double loops and explicit inverses, its objective, its weights, and the numbers of its authors."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines.fsh import FSH, crossed_tables, neighbor_matrix
from fusehash.parameters import rng_for

VIEWS = datasets.make_paired(90, views={"image": 12, "text": 9}, n_classes=4, random_state=2).views
X = []
for matrix in VIEWS.values():
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    X.append(unit - unit.mean(axis=0))


def nearest(x, anchors, k):
    return [np.argsort([np.linalg.norm(row - a) for a in anchors], kind="stable")[:k] for row in x]


def looped_graphs(x, anchors, k):
    """A_m entry by entry: over the anchors near the row in one view and near the anchor in the other."""
    graphs = []
    for m in (0, 1):
        of_rows, of_anchors = nearest(x[m], anchors[m], k), nearest(anchors[1 - m], anchors[1 - m], k)
        A = np.zeros((len(x[m]), len(anchors[m])))
        for i, near in enumerate(of_rows):
            for j, around in enumerate(of_anchors):
                for p in near:
                    for q in around:
                        A[i, j] += np.exp(-np.linalg.norm(anchors[m][p] - anchors[m][q]) / 2) / k**2
        graphs.append(A)
    return graphs


@pytest.mark.parametrize(("n_anchors", "k"), [(20, 5), (12, 1), (6, 6)])
def test_the_graph_is_that_of_the_loops(n_anchors, k):
    anchors = [x[:n_anchors] for x in X]
    tables = crossed_tables(anchors, k)
    expected = looped_graphs([x[:40] for x in X], anchors, k)
    for x, t, table, A in zip(X, anchors, tables, expected, strict=True):
        assert np.allclose(neighbor_matrix(x[:40], t, k) @ table, A, atol=1e-12)


@pytest.mark.parametrize("as_released", [False, True])
@pytest.mark.parametrize("penalty", [30.0, 300.0])
@pytest.mark.parametrize("iterations", [1, 6])
def test_it_follows_dense_lines(as_released, penalty, iterations):
    settings = {"n_anchors": 20, "n_neighbors": 5, "penalty": penalty, "as_released": as_released}
    model = hashers.make("fsh", n_bits=8, max_iter=iterations, random_state=3, **settings).fit(VIEWS)
    rows = rng_for(3, "anchors").choice(len(VIEWS), 20, replace=False)
    anchors = [x[rows] for x in X]
    A = looped_graphs(X, anchors, 5)
    normal = rng_for(3, "W")
    W = [normal.standard_normal((x.shape[1], 8)) for x in X]
    B_s, eta, losses = anchors[1] @ W[1], 0.5, []
    for _ in range(len(model.objective_)):
        S = eta * A[0] + (1 - eta) * A[1]
        B = np.where(S @ B_s + 2 * penalty * sum(x @ w for x, w in zip(X, W, strict=True)) > 0, 1.0, -1.0)
        B_s = np.where(S.T @ B > 0, 1.0, -1.0)
        W = [np.linalg.inv(x.T @ x) @ x.T @ B for x in X]
        missed = sum(np.sum((B - x @ w) ** 2) for x, w in zip(X, W, strict=True))
        losses.append(penalty * missed - np.trace(B.T @ S @ B_s))
        p = [20 - np.trace(B_s @ B.T @ a) for a in A]
        eta = (p[0] / sum(p)) ** 2 if as_released else p[0] ** 2 / (p[0] ** 2 + p[1] ** 2)
    assert np.array_equal(bits.unpack(model.codes_, 8), B)
    assert np.allclose(model.objective_, losses)
    assert model.eta_ == pytest.approx(eta)
    for name, x, w in zip(VIEWS, X, W, strict=True):
        assert np.allclose(model.project(VIEWS[name], view=name), x @ w, atol=1e-8)


def test_equal_graphs_get_equal_weights_unless_as_released():
    assert FSH()._weight(-7.0, -7.0) == 0.5
    assert FSH(as_released=True)._weight(-7.0, -7.0) == 0.25
    assert FSH()._weight(-9.0, -3.0) == pytest.approx(0.9)
    assert FSH(power=2 / 3)._weight(2.0, 1.0) == pytest.approx(8 / 9)
    assert FSH()._weight(0.0, 0.0) == FSH(as_released=True)._weight(1.0, -1.0) == 0.5


@pytest.mark.parametrize("penalty", [30.0, 100.0, 300.0])
def test_the_objective_never_rises_while_eta_stays(monkeypatch, penalty):
    monkeypatch.setattr(FSH, "_weight", lambda self, p_1, p_2: 0.5)
    loss = hashers.make("fsh", n_bits=16, penalty=penalty, random_state=0).fit(VIEWS).objective_
    assert 2 < len(loss) < 100  # it ends where nothing changes
    assert np.diff(loss).max() <= 1e-9 * abs(loss[0])
    assert loss[-1] < loss[0]


def test_items_of_both_views_go_through_the_graph():
    model = hashers.make("fsh", n_bits=16, n_neighbors=5, penalty=30.0, max_iter=200, random_state=0).fit(VIEWS)
    assert len(model.objective_) < 200
    # At the fixed point the formula of B gives back B, graph included.
    assert np.array_equal(model.encode_fused(VIEWS), model.codes_)
    plain = sum(model.project(VIEWS[name], view=name) for name in VIEWS)
    assert not np.array_equal(bits.pack(plain), model.codes_)


def test_the_length_of_rows_does_not_matter_unless_asked():
    factor = np.linspace(1, 9, len(VIEWS))[:, None]
    longer = {name: matrix * factor for name, matrix in VIEWS.items()}
    for normalize in (True, False):
        codes = [
            hashers.make("fsh", n_bits=16, normalize=normalize, random_state=0).fit(v).codes_ for v in (VIEWS, longer)
        ]
        assert (np.mean(codes[0] == codes[1]) > 0.99) == normalize


def test_rows_of_zeros_are_no_trouble():
    views = {name: np.where(np.arange(len(VIEWS))[:, None] < 3, 0.0, matrix) for name, matrix in VIEWS.items()}
    model = hashers.make("fsh", n_bits=8, random_state=0).fit(views)
    assert np.isfinite(model.project(views["text"], view="text")).all()


def test_a_view_that_varies_only_in_length_is_refused():
    views = {"image": VIEWS["image"], "text": np.abs(VIEWS["text"][:, :1]) + 1.0}
    with pytest.raises(DataError, match="View 'text' must vary between rows"):
        hashers.make("fsh", n_bits=8).fit(views)


@pytest.mark.parametrize("params", [{"power": 1.0}, {"power": 0.0}, {"n_anchors": 0}, {"n_neighbors": 1.5}])
def test_bad_settings_are_refused(params):
    with pytest.raises(ParameterError, match=rf"'{next(iter(params))}' parameter of FSH must be"):
        hashers.make("fsh", n_bits=8, **params).fit(VIEWS)


# MAP@50 of the authors' code: bits -> U I->T, U T->I, H I->T, H T->I.
REFERENCE = {16: (0.2438, 0.5908, 0.2421, 0.4393), 32: (0.2532, 0.6032, 0.2560, 0.4382)}


@pytest.mark.slow
@pytest.mark.parametrize("as_released", [False, True])
@pytest.mark.parametrize("n_bits", REFERENCE)
def test_the_numbers_on_wiki_are_those_of_the_authors(data_file, n_bits, as_released):
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("fsh", n_bits=n_bits, as_released=as_released)
    result = evaluate(model, wiki, k=50, ties="stable", protocols=("U", "H"), seeds=range(2))
    actual = [result[p, way].mean for p in "UH" for way in ("image->text", "text->image")]
    # The reference is the mean of two runs; at 16 bits they lie above nearly all of ours for text queries under H.
    assert np.all(np.abs(np.subtract(actual, REFERENCE[n_bits])) < [0.02, 0.03, 0.02, 0.06 if n_bits == 16 else 0.04])
