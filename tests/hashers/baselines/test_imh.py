"""IMH against the published matrices, written out, and against the objective that they minimize."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError, FusehashWarning
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines.imh import neighbor_graph

VIEWS = datasets.make_paired(90, views={"image": 20, "text": 14}, n_classes=5, random_state=2).views
X = {name: matrix - matrix.mean(axis=0) for name, matrix in VIEWS.items()}
N = len(VIEWS)


def slow_graph(x: np.ndarray, k: int) -> np.ndarray:
    W = np.zeros((len(x), len(x)))
    for i, row in enumerate(x):
        distances = [np.inf if i == j else float(np.sum((row - other) ** 2)) for j, other in enumerate(x)]
        for j in np.argsort(distances, kind="stable")[:k]:
            W[i, j] = 1.0
    return (W + W.T) / 2


def parts(name: str, lam: float, ridge: float, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G, lam L and the regression (X'X + ridge I)^-1 X' of one view."""
    x = X[name]
    gram = x.T @ x
    P = np.linalg.inv(gram + ridge * np.trace(gram) / len(gram) * np.eye(len(gram))) @ x.T
    W = slow_graph(x, k)
    return np.eye(N) - x @ P, lam * (np.diag(W.sum(axis=1)) - W), P


def signless(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.abs(np.sum(A * B, axis=0)) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)


@pytest.mark.parametrize("k", [1, 4, 89])
def test_the_graph_is_that_of_two_loops(k):
    assert np.array_equal(neighbor_graph(X["image"], k).toarray(), slow_graph(X["image"], k))


@pytest.mark.parametrize(("lam", "coupling"), [(1.0, 1e4), (0.01, 1.0), (0.1, 50.0)])
def test_the_embedding_is_that_of_the_published_matrices(lam, coupling):
    ridge, k, K = 0.01, 5, 8
    G1, L1, P1 = parts("image", lam, ridge, k)
    G2, L2, P2 = parts("text", lam, ridge, k)
    U, one = coupling * np.eye(N), np.eye(N)
    E = np.linalg.inv(G2 + L2 + U) @ U
    C = G1 + E.T @ G2 @ E + (one - E).T @ U @ (one - E) + L1 + E.T @ L2 @ E
    w, Y = np.linalg.eigh((C + C.T) / 2)
    trivial = np.flatnonzero(np.abs(Y.sum(axis=0)) > 0.99 * np.sqrt(N))
    assert len(trivial) == 1
    w, Y = np.delete(w, trivial)[:K], np.delete(Y, trivial, axis=1)[:, :K]

    model = hashers.make("imh", n_bits=K, lam=lam, ridge=ridge, coupling=coupling, n_neighbors=k).fit(VIEWS)
    assert np.allclose(model.eigenvalues_, w)
    for name, P, target in (("image", P1, Y), ("text", P2, E @ Y)):
        assert np.allclose(signless(model.weights_[name], P @ target), 1.0)
        expected = np.linalg.norm(P @ target, axis=0)
        assert np.allclose(np.linalg.norm(model.weights_[name], axis=0), expected)


def test_the_second_view_is_the_best_answer_to_the_first():
    model = hashers.make("imh", n_bits=8)
    M = {name: sum(parts(name, 0.1, 1e-3, 10)[:2]) for name in X}
    model._seed = 0
    Y = model._embed(M)

    def energy(second: np.ndarray) -> float:
        return float(np.sum(second * (M["text"] @ second)) + 1e4 * np.sum((Y["image"] - second) ** 2))

    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        assert energy(Y["text"]) < energy(Y["text"] + size * rng.standard_normal(Y["text"].shape))
    assert np.allclose(Y["image"].T @ Y["image"], np.eye(8))
    assert np.abs(Y["image"].sum(axis=0)).max() < 1e-9


def test_thresholds_are_training_medians_so_that_bits_are_balanced():
    model = hashers.make("imh", n_bits=16).fit(VIEWS)
    for name in X:
        assert np.allclose(np.median(X[name] @ model.weights_[name], axis=0), model.thresholds_[name])
        assert np.abs(bits.unpack(model.encode(VIEWS[name], view=name), 16).mean(axis=0)).max() < 0.05
    assert np.abs(bits.unpack(model.codes_, 16).mean(axis=0)).max() < 0.05


def test_one_view_is_spectral_hashing_with_a_linear_function():
    model = hashers.make("imh", n_bits=8).fit({"image": VIEWS["image"]})
    G, L, _ = parts("image", 0.1, 1e-3, 10)
    w = np.linalg.eigvalsh(G + L)
    assert np.allclose(model.eigenvalues_[:3], np.delete(w, np.argmin(np.abs(w - 1.0)))[:3])


def test_three_views_share_one_embedding():
    views = datasets.make_paired(80, views={"a": 9, "b": 8, "c": 7}, random_state=0).views
    model = hashers.make("imh", n_bits=8).fit(views)
    agree = [
        np.mean(bits.unpack(model.encode(views[name], view=name), 8) == bits.unpack(model.codes_, 8)) for name in views
    ]
    assert min(agree) > 0.65


def test_more_bits_than_eigenvectors_are_mixtures_with_a_warning():
    few = VIEWS.rows(slice(0, 10))
    with pytest.warns(FusehashWarning, match="16 bits of 10 pairs, which have 9 directions"):
        model = hashers.make("imh", n_bits=16, random_state=0).fit(few)
    assert np.isfinite(model.weights_["image"]).all()
    assert len(model.eigenvalues_) == 9


# -- too many rows ---------------------------------------------------------------------------------------------------


def test_too_many_pairs_are_refused_with_the_way_out():
    sentence = (
        "IMH compares every pair of rows and takes at most 60 of them (max_rows). "
        "Got 90; subsample=True learns from a random part."
    )
    with pytest.raises(DataError, match=f"^{re.escape(sentence)}$"):
        hashers.make("imh", n_bits=8, max_rows=60).fit(VIEWS)


def test_a_subsample_is_seeded_and_every_pair_gets_a_code():
    first, again, other = (
        hashers.make("imh", n_bits=8, max_rows=60, subsample=True, random_state=seed).fit(VIEWS) for seed in (0, 0, 1)
    )
    assert np.array_equal(first.codes_, again.codes_)
    assert not np.array_equal(first.codes_, other.codes_)
    assert np.array_equal(first.codes_, first.encode_fused(VIEWS))


def test_a_subsample_of_all_rows_is_no_subsample():
    whole, sampled = (hashers.make("imh", n_bits=8, subsample=s, max_rows=90).fit(VIEWS) for s in (False, True))
    assert np.array_equal(whole.codes_, sampled.codes_)


# -- Wiki ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wiki_agrees_with_two_published_tables(data_file):
    """32 bits. MAP@50: CMFH (CVPR 2014) prints .2119 / .5295, which unified codes come near and hashed ones do not. MAP
    over the whole list of the hashed database: SDMCH (IJCAI 2018) prints .1637 / .1400, for random splits."""
    wiki = datasets.load("wiki", path=data_file("wiki.npz"))
    model = hashers.make("imh", n_bits=32).fit(wiki.views.rows(wiki.train))
    assert np.abs(bits.unpack(model.codes_, 32).mean(axis=0)).max() < 0.01
    unified = evaluate(model, wiki, k=50, ties="stable", protocols=["U"], refit=False)
    assert unified["U", "image->text"].mean == pytest.approx(0.2119, abs=0.03)
    assert unified["U", "text->image"].mean == pytest.approx(0.5295, abs=0.04)
    hashed = evaluate(model, wiki, k=None, ties="stable", protocols=["H"], refit=False)
    assert hashed["H", "image->text"].mean == pytest.approx(0.1637, abs=0.02)
    assert hashed["H", "text->image"].mean == pytest.approx(0.1400, abs=0.015)
