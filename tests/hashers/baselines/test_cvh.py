"""CVH without and with labels against the eigenproblems in print."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.linalg import block_diag, eigh

from fusehash import bits, datasets, hashers
from fusehash.errors import FusehashWarning
from fusehash.evaluation import evaluate
from fusehash.hashers.canonical import joint_sums, shared_directions, white_basis
from fusehash.hashers.linear import CenteredViews
from fusehash.views import PairedViews

DATA = datasets.make_paired(300, views={"image": 20, "text": 14}, n_classes=5, random_state=2)
VIEWS = DATA.views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}
LABELS = np.random.default_rng(0).integers(0, 2, (len(VIEWS), 6))


def damped(gram: np.ndarray, ridge: float) -> np.ndarray:
    return gram + ridge * np.trace(gram) / len(gram) * np.eye(len(gram))


def by_the_paper(similar: np.ndarray, ridge: float, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlations and directions of both views from Cxy Cyy^-1 Cyx a = rho^2 Cxx a."""
    a, b = X["image"], X["text"]
    Cxx, Cyy, Cxy = damped(a.T @ a, ridge), damped(b.T @ b, ridge), a.T @ similar @ b
    M = Cxy @ np.linalg.inv(Cyy) @ Cxy.T
    w, V = eigh((M + M.T) / 2, Cxx)
    w, V = w[::-1][:k], V[:, ::-1][:, :k]
    return np.sqrt(w), V, np.linalg.inv(Cyy) @ Cxy.T @ V / np.sqrt(w)


def parallel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Cosine of the columns."""
    return np.sum(A * B, axis=0) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)


def label_similarity(labels: np.ndarray) -> np.ndarray:
    cosine = labels @ labels.T / np.maximum(np.sqrt(np.outer((labels**2).sum(axis=1), (labels**2).sum(axis=1))), 1e-12)
    return cosine + np.eye(len(labels))


# -- the eigenproblem ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_directions_and_correlations_are_those_of_the_printed_eigenproblem(ridge):
    model = hashers.make("cvh", n_bits=8, ridge=ridge).fit(VIEWS)
    rho, A1, A2 = by_the_paper(np.eye(len(VIEWS)), ridge, 8)
    assert np.allclose(model.agreement_, rho)
    first, second = (parallel(model.weights_[n], A) for n, A in (("image", A1), ("text", A2)))
    assert np.allclose(first * second, 1.0)  # the same sign in both views
    for name in X:
        assert np.allclose((X[name] @ model.weights_[name]).var(axis=0), 1.0)


def test_unified_codes_are_signs_of_the_sum_of_the_variates():
    model = hashers.make("cvh", n_bits=8).fit(VIEWS)
    assert np.array_equal(model.codes_, bits.pack(sum(X[name] @ model.weights_[name] for name in X)))


def test_supervised_directions_are_those_of_the_eigenproblem_with_similarities():
    model = hashers.make("scvh", n_bits=8, ridge=1e-3).fit(VIEWS, LABELS)
    rho, A1, A2 = by_the_paper(label_similarity(LABELS), 1e-3, 8)
    assert np.allclose(model.agreement_, rho)
    assert np.allclose(parallel(model.weights_["image"], A1) * parallel(model.weights_["text"], A2), 1.0)


def test_a_label_that_all_share_changes_nothing():
    plain, labeled = (hashers.make(name, n_bits=8).fit(VIEWS, np.ones((len(VIEWS), 1))) for name in ("cvh", "scvh"))
    assert np.array_equal(plain.codes_, labeled.codes_)


def test_labels_lead_the_first_directions():
    labels = np.asarray(DATA.labels).reshape(len(VIEWS), -1)
    labels = np.eye(labels.max() + 1)[labels[:, 0]] if labels.shape[1] == 1 else labels
    ratio = {}
    for name in ("cvh", "scvh"):
        W = hashers.make(name, n_bits=8).fit(VIEWS, labels).weights_["image"]
        variates = X["image"] @ W[:, :2]
        ratio[name] = np.var([variates[column > 0].mean(axis=0) for column in labels.T], axis=0).sum()
    assert ratio["scvh"] > ratio["cvh"]


def test_three_views_solve_the_joint_problem():
    views = datasets.make_paired(200, views={"a": 9, "b": 8, "c": 7}, random_state=0).views
    x = {name: m - m.mean(axis=0) for name, m in views.items()}
    joint = np.hstack(list(x.values()))
    within = block_diag(*[damped(m.T @ m, 1e-3) for m in x.values()])
    cross = joint.T @ joint - block_diag(*[m.T @ m for m in x.values()])
    w, V = eigh(cross, within)
    model = hashers.make("cvh", n_bits=8, ridge=1e-3).fit(views)
    n = int(np.sum(w > 0))
    assert np.allclose(model.agreement_, w[::-1][:8][: min(n, 8)] / 2.0)
    actual = np.vstack([model.weights_[name] for name in views])
    for k in range(4):
        parts = zip(np.split(actual[:, k], [9, 17]), np.split(V[:, -1 - k], [9, 17]), strict=True)
        assert len({round(float(parallel(a[:, None], b[:, None])[0]), 6) for a, b in parts}) == 1


def test_views_never_contradict_each_other():
    data = CenteredViews.of(PairedViews(VIEWS), 1e-6)
    shared = shared_directions(data, *joint_sums(data))
    assert shared.n_shared == 14
    for k in range(14):
        a, b = (X[name] @ shared.maps[name][:, k] for name in X)
        assert np.corrcoef(a, b)[0, 1] > 0


def test_a_white_basis_spans_the_features_and_no_more():
    x = np.hstack([X["text"], X["text"][:, :3] * 2.0, np.zeros((len(VIEWS), 1))])
    T = white_basis(x.T @ x, 0.0)
    assert T.shape == (18, 14)
    assert np.allclose(T.T @ x.T @ x @ T, np.eye(14), atol=1e-8)


# -- more bits than directions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cvh", "scvh"])
@pytest.mark.parametrize("n_bits", [16, 48])
def test_bits_beyond_the_shared_directions_are_noise_with_a_warning(name, n_bits):
    with pytest.warns(FusehashWarning, match=f"asked for {n_bits} bits of views that share 14 directions"):
        model = hashers.make(name, n_bits=n_bits, random_state=0).fit(VIEWS, LABELS)
    few = hashers.make(name, n_bits=8).fit(VIEWS, LABELS)
    assert len(model.agreement_) == 14
    for view in X:
        assert np.array_equal(model.weights_[view][:, :8], few.weights_[view])
        codes = bits.unpack(model.encode(VIEWS[view], view=view), n_bits)
        assert np.abs(codes.mean(axis=0)).max() < 0.5
        assert np.allclose((X[view] @ model.weights_[view]).var(axis=0), 1.0)
    noise = [np.corrcoef(*(X[view] @ model.weights_[view][:, k] for view in X))[0, 1] for k in range(14, n_bits)]
    assert abs(np.mean(noise)) < 0.15


def test_the_larger_view_goes_on_with_its_own_eigenvectors():
    with pytest.warns(FusehashWarning):
        first, second = (hashers.make("cvh", n_bits=24, ridge=1e-6, random_state=seed).fit(VIEWS) for seed in (0, 1))
    same = {name: np.all(first.weights_[name] == second.weights_[name], axis=0) for name in X}
    assert same["image"].tolist() == [True] * 20 + [False] * 4  # 20 features, then random directions
    assert same["text"].tolist() == [True] * 14 + [False] * 10
    variates = X["image"] @ first.weights_["image"][:, :20]
    assert np.abs(np.corrcoef(variates.T) - np.eye(20)).max() < 0.05


# -- Wiki ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wiki(data_file):
    return datasets.load("wiki", path=data_file("wiki.npz"))


# MAP over the whole list on Wiki, hashed database, as printed in SDMCH (IJCAI 2018), Table 1: bits -> (I->T, T->I).
PRINTED = {32: (0.1483, 0.1398), 64: (0.1502, 0.1293), 128: (0.1488, 0.1259)}


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", PRINTED)
def test_published_values_of_cvh_are_met(wiki, n_bits):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusehashWarning)
        result = evaluate(
            hashers.make("cvh", n_bits=n_bits), wiki, k=None, ties="stable", protocols=["H"], seeds=range(2)
        )
    assert result["H", "image->text"].mean == pytest.approx(PRINTED[n_bits][0], abs=0.02)
    assert result["H", "text->image"].mean == pytest.approx(PRINTED[n_bits][1], abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cvh", "scvh"])
def test_noise_drowns_the_nine_directions_of_wiki_but_no_bit_collapses(wiki, name):
    means = []
    train = wiki.views.rows(wiki.train)
    for n_bits in (8, 64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if n_bits > 9 else "error", FusehashWarning)
            model = hashers.make(name, n_bits=n_bits, random_state=0).fit(train, wiki.labels[wiki.train])
        for view in train:
            assert np.abs(bits.unpack(model.encode(train[view], view=view), n_bits).mean(axis=0)).max() < 0.8
        result = evaluate(model, wiki, k=50, ties="stable", protocols=["H"], refit=False)
        means.append(result["H", "text->image"].mean)
    assert means[0] > 0.3
    assert means[1] < means[0] - 0.05
