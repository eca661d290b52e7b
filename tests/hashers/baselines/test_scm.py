"""SCM against the problem it solves, written out with the N x N similarity."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh

from fusehash import bits, datasets, hashers
from fusehash.evaluation import evaluate
from fusehash.hashers.baselines.scm import leading_pair, semantic_covariance
from fusehash.hashers.kernel import label_cosines

DATA = datasets.make_paired(160, views={"image": 20, "text": 14}, n_classes=5, random_state=2)
VIEWS, LABELS = DATA.views, DATA.labels
X, Y = (VIEWS[name] - VIEWS[name].mean(axis=0) for name in ("image", "text"))
N = len(X)
# MAP@50, hashed database, of the authors' code on Wiki: bits -> (I->T, T->I).
SEQ = {16: (0.2383, 0.3738), 32: (0.2322, 0.4293), 64: (0.2348, 0.4295), 128: (0.2574, 0.4499)}


def multi_labels(n: int, c: int, seed: int) -> np.ndarray:
    """Several labels a row, and some rows without any."""
    return (np.random.default_rng(seed).random((n, c)) < 0.3).astype(float)


def similarity(labels: np.ndarray) -> np.ndarray:
    """S_ij = 2 cosine - 1, entry by entry."""
    S = -np.ones((len(labels), len(labels)))
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            if a.any() and b.any():
                S[i, j] += 2 * (a @ b) / np.sqrt((a @ a) * (b @ b))
    return S


def damped(G: np.ndarray, ridge: float = 1e-6) -> np.ndarray:
    return G + ridge * np.trace(G) / len(G) * np.eye(len(G))


def sequential(labels: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Bit after bit: C Gy^-1 C'w = rho^2 Gx w, then C minus what the signs of the bit explain."""
    C = n_bits * X.T @ similarity(labels) @ Y
    Gx, Gy = damped(X.T @ X), damped(Y.T @ Y)
    W1, W2 = [], []
    for _ in range(n_bits):
        w1 = eigh(C @ np.linalg.solve(Gy, C.T), Gx)[1][:, -1]
        w2 = np.linalg.solve(Gy, C.T @ w1)
        w2 /= np.sqrt(w2 @ Gy @ w2)
        C = C - np.outer(X.T @ np.where(X @ w1 > 0, 1, -1), Y.T @ np.where(Y @ w2 > 0, 1, -1))
        W1.append(w1)
        W2.append(w2)
    return np.array(W1).T, np.array(W2).T


@pytest.mark.parametrize("kind", ["one label", "many labels"])
def test_seq_follows_the_problem_written_out(kind):
    labels = np.eye(5)[LABELS] if kind == "one label" else multi_labels(N, 6, 0)
    model = hashers.make("scm", n_bits=24).fit(VIEWS, labels)
    W1, W2 = sequential(labels, 24)
    flip = np.sign(np.sum(W1 * model.weights_["image"], axis=0))  # a bit may be turned round in both views
    assert np.allclose(model.weights_["image"], W1 * flip * np.sqrt(N), rtol=1e-5, atol=1e-6)
    assert np.allclose(model.weights_["text"], W2 * flip * np.sqrt(N), rtol=1e-5, atol=1e-6)
    assert np.array_equal(model.codes_, bits.pack((X @ W1 + Y @ W2) * flip))


def test_orth_gives_the_canonical_directions_of_the_similarity():
    model = hashers.make("scm", n_bits=8, solver="orth").fit(VIEWS, multi_labels(N, 12, 1))
    C = 8 * X.T @ similarity(multi_labels(N, 12, 1)) @ Y
    values = eigh(C @ np.linalg.solve(damped(Y.T @ Y), C.T), damped(X.T @ X), eigvals_only=True)
    assert np.allclose(model.correlations_, np.sqrt(values[::-1][:8]))
    for name, x in (("image", X), ("text", Y)):
        W = model.weights_[name]
        assert np.allclose(W.T @ damped(x.T @ x) @ W, N * np.eye(8), atol=1e-6 * N)


def test_orth_has_as_many_bits_as_classes_less_one_and_says_so():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = hashers.make("scm", n_bits=16, solver="orth").fit(VIEWS, LABELS)
    assert "was asked for 16 bits and found 4; the others are constant" in str(caught[0].message)
    B = bits.unpack(model.codes_, 16)
    assert np.all(np.abs(B[:, :4].mean(axis=0)) < 0.95)
    assert np.all(B[:, 4:] == -1)
    assert np.array_equal(model.project(VIEWS["text"], view="text")[:, 4:], np.zeros((N, 12)))
    assert np.all(model.correlations_[4:] == 0.0)


def test_projections_have_unit_variance():
    model = hashers.make("scm", n_bits=16).fit(VIEWS, LABELS)
    for name in VIEWS:
        assert np.allclose(model.project(VIEWS[name], view=name).var(axis=0), 1.0, atol=1e-3)


def test_units_do_not_matter():
    expected = hashers.make("scm", n_bits=16).fit(VIEWS, LABELS).codes_
    scaled = {"image": VIEWS["image"] * 1e5, "text": VIEWS["text"] * 1e-5}
    assert np.array_equal(hashers.make("scm", n_bits=16).fit(scaled, LABELS).codes_, expected)


def test_more_bits_explain_more_of_the_similarity():
    """|| codes codes' / K - S || falls as bits are added."""
    S, errors = similarity(np.eye(5)[LABELS]), []
    for n_bits in (8, 32, 128):
        model = hashers.make("scm", n_bits=n_bits).fit(VIEWS, LABELS)
        B1, B2 = (bits.unpack(model.encode(VIEWS[name], view=name), n_bits).astype(float) for name in VIEWS)
        errors.append(np.linalg.norm(B1 @ B2.T / n_bits - S))
    assert errors[0] > errors[1] > errors[2]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_the_leading_pair_is_that_of_the_svd(rows, columns, seed):
    A = np.random.default_rng(seed).standard_normal((rows, columns))
    u, v, value = leading_pair(A)
    assert value == pytest.approx(np.linalg.svd(A)[1][0])
    assert u @ A @ v == pytest.approx(value)
    assert np.linalg.norm(u) == pytest.approx(1.0)


def test_the_leading_pair_of_nothing_is_finite():
    u, v, value = leading_pair(np.zeros((3, 2)))
    assert value == 0.0
    assert np.isfinite(u).all()
    assert np.isfinite(v).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_similarity_is_never_formed_but_is_that_of_the_labels(seed):
    labels = multi_labels(N, 7, seed)
    labels[:5] = 0.0
    assert np.allclose(semantic_covariance(X, Y, label_cosines(labels)), X.T @ similarity(labels) @ Y)


@pytest.fixture(scope="module")
def wiki(data_file):
    return datasets.load("wiki", path=data_file("wiki.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", SEQ)
def test_seq_is_as_good_as_the_authors_code_on_wiki(wiki, n_bits):
    result = evaluate(hashers.make("scm", n_bits=n_bits), wiki, k=50, ties="stable", protocols=("H",), seeds=(0,))
    for direction, expected in zip(("image->text", "text->image"), SEQ[n_bits], strict=True):
        assert result["H", direction].mean == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_no_bit_of_seq_collapses_on_wiki(wiki):
    for n_bits in (16, 128):
        model = hashers.make("scm", n_bits=n_bits).fit(wiki.views.rows(wiki.train), wiki.labels[wiki.train])
        assert np.abs(bits.unpack(model.codes_, n_bits).mean(axis=0)).max() < 0.5


@pytest.mark.slow
def test_orth_is_as_good_as_the_authors_code_on_wiki_and_stays_so(wiki):
    maps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n_bits in (8, 16, 64):
            model = hashers.make("scm", n_bits=n_bits, solver="orth")
            result = evaluate(model, wiki, k=50, ties="stable", protocols=("H",), seeds=(0,))
            maps.append((result["H", "image->text"].mean, result["H", "text->image"].mean))
    assert maps[0] == pytest.approx((0.2197, 0.3317), abs=0.005)
    assert maps[1] == pytest.approx((0.2114, 0.3140), abs=0.005)  # 9 bits are all there are
    assert maps[2] == maps[1]
