"""Mergeable sums, and the top of a spectrum, against NumPy on the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.numerics import linalg as spectrum
from fusehash.numerics.linalg import (
    CenteredGram,
    leading_eigenpairs,
    ridge_solver,
    solve_ridge,
    top_eigenpairs,
    whitening,
)
from fusehash.numerics.parallel import one_blas_thread


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As inside every fit; and spinning BLAS threads would cost these small matrices more than they give."""
    with one_blas_thread():
        yield


def gram_of(X: np.ndarray) -> np.ndarray:
    centered = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    return (centered.T @ centered).astype(float)


# -- sums ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5), st.sampled_from([0.0, 1.0, 1e4, 1e8]))
@settings(deadline=None)
def test_any_blocks_give_the_sums_of_the_whole(sizes, d, offset):
    n = sum(sizes)
    X = np.random.default_rng(n).standard_normal((n, d)) + offset
    total = CenteredGram(d)
    for part in np.split(X, np.cumsum(sizes)[:-1]):
        total.add(part)
    assert total.count == n
    if n:
        assert np.allclose(total.mean, X.mean(axis=0), rtol=1e-14, atol=1e-14)
        assert np.allclose(total.gram, gram_of(X), rtol=0, atol=1e-14 * n * max(1.0, offset))


@given(st.permutations(range(6)))
@settings(deadline=None, max_examples=40)
def test_sums_merge_in_any_order(order):
    X = np.random.default_rng(0).standard_normal((60, 4)) * [1, 10, 100, 1e-3] + [0, 5, -1e3, 1]
    parts = []
    for block in np.split(X, [1, 9, 30, 31, 55]):
        part = CenteredGram(4)
        part.add(block)
        parts.append(part)
    total = CenteredGram(4)
    for i in order:
        total += parts[i]
    scale = np.sqrt(np.outer(*2 * [np.diagonal(gram_of(X))]))
    assert np.abs((total.gram - gram_of(X)) / scale).max() <= 1e-13
    assert np.allclose(total.mean, X.mean(axis=0), rtol=1e-13)


def test_gram_over_count_is_the_covariance():
    X = np.random.default_rng(1).standard_normal((40, 3))
    total = CenteredGram(3)
    total.add(X)
    assert np.allclose(total.gram / total.count, np.cov(X.T, bias=True))
    assert np.allclose(total.variance, X.var(axis=0))


def test_merging_nothing_changes_nothing_and_others_stay_as_they_were():
    X = np.random.default_rng(2).standard_normal((10, 2))
    a, b, nothing = CenteredGram(2), CenteredGram(2), CenteredGram(2)
    a.add(X[:4])
    b.add(X[4:])
    kept = b.gram.copy()
    a += nothing
    assert a.count == 4
    nothing += b
    nothing.add(X[:4])
    assert np.array_equal(b.gram, kept)
    a += b
    assert np.allclose(a.gram, nothing.gram)


def test_no_rows_have_no_variance():
    assert np.array_equal(CenteredGram(3).variance, np.zeros(3))


# -- eigenpairs ------------------------------------------------------------------------------------------------------


def symmetric(eigenvalues: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2))[0]
    G = (Q * eigenvalues) @ Q.T
    return (G + G.T) / 2, Q


def check(G: np.ndarray, w: np.ndarray, V: np.ndarray, r: int, tol: float = 1e-6) -> None:
    """w are the r largest eigenvalues in descending order, V orthonormal, G V = V w."""
    expected = np.linalg.eigvalsh(G)[::-1]
    size = np.abs(expected).max()
    assert w.shape == (r,)
    assert V.shape == (len(G), r)
    assert np.abs(w - expected[:r]).max() <= tol * size
    assert np.abs(V.T @ V - np.eye(r)).max() <= 1e-8
    assert np.abs(G @ V - V * w).max() <= tol * size


# Large enough, for 5 eigenpairs, that a start is used (a dense solver is faster on small matrices).
n = 300
SPECTRA = {
    "decaying": np.geomspace(1, 1e-6, n),
    "flat": np.linspace(1, 0.9, n),
    "indefinite": np.linspace(1, -3, n),
    "negative": np.linspace(-1, -3, n),
    "top at zero": np.concatenate([[0.0], np.linspace(-1, -3, n - 1)]),
    "degenerate": np.repeat([1.0, 0.5, 0.1, 0.0], n // 4),
    "low rank": np.concatenate([np.ones(3), np.zeros(n - 3)]),
    "tie at the cut": np.concatenate([[3.0, 2.0], np.ones(20), np.full(n - 22, 0.2)]),
    "small": np.geomspace(1e-30, 1e-36, n),
    "tiny": np.geomspace(1e-200, 1e-206, n),
    "huge": np.geomspace(1e200, 1e190, n),
}


@pytest.mark.parametrize("eigenvalues", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("r", [1, 5, 300])
def test_eigenpairs_without_a_start(eigenvalues, r):
    G, _ = symmetric(eigenvalues)
    check(G, *top_eigenpairs(G, r), r, 1e-10)


@pytest.mark.parametrize("eigenvalues", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6, 1e-2, 0.3])
def test_eigenpairs_from_those_of_a_similar_matrix(eigenvalues, noise):
    G, _ = symmetric(eigenvalues)
    E = np.random.default_rng(1).standard_normal(G.shape)
    moved = G + noise * np.abs(eigenvalues).max() * (E + E.T) / (2 * np.sqrt(n))
    _, start = top_eigenpairs(G, 5)
    check(moved, *top_eigenpairs(moved, 5, start), 5)


@pytest.mark.parametrize("eigenvalues", SPECTRA.values(), ids=SPECTRA)
def test_eigenpairs_from_a_random_start(eigenvalues):
    G, _ = symmetric(eigenvalues)
    start = np.linalg.qr(np.random.default_rng(2).standard_normal((n, 5)))[0]
    check(G, *top_eigenpairs(G, 5, start), 5)


def test_a_start_of_other_eigenvectors_does_not_mislead():
    G, Q = symmetric(np.linspace(1, 0, n))
    start = np.ascontiguousarray(Q[:, 20:25])  # exactly invariant, and not the top
    check(G, *top_eigenpairs(G, 5, start), 5)


@pytest.mark.parametrize("eigenvalues", [np.linspace(1, 0, n), np.geomspace(1, 1e-3, n), np.linspace(1, -2, n)])
@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_start_that_lacks_one_eigenvector_does_not_mislead(eigenvalues, lost):
    G, Q = symmetric(eigenvalues)
    start = np.ascontiguousarray(np.delete(Q[:, :6], lost, axis=1))
    check(G, *top_eigenpairs(G, 5, start), 5)


def test_a_component_that_split_off_is_found():
    # Two blocks; the start lives in the first, and the second has risen since.
    G = np.zeros((n, n))
    G[:200, :200] = symmetric(np.geomspace(1, 0.01, 200))[0]
    start = np.vstack([top_eigenpairs(G[:200, :200], 5)[1], np.zeros((100, 5))])
    G[200:, 200:] = symmetric(np.geomspace(0.99, 0.001, 100), 1)[0]
    check(G, *top_eigenpairs(G, 5, start), 5)


def test_a_start_is_not_changed():
    G, _ = symmetric(SPECTRA["decaying"])
    start = np.linalg.qr(np.random.default_rng(3).standard_normal((n, 5)))[0]
    before = start.copy()
    top_eigenpairs(G, 5, start)
    assert np.array_equal(start, before)


def test_a_start_of_another_shape_is_ignored():
    G, _ = symmetric(SPECTRA["decaying"])
    check(G, *top_eigenpairs(G, 5, np.eye(n)[:, :7]), 5)


def test_more_eigenpairs_than_rows_are_all_of_them():
    G, _ = symmetric(np.arange(5.0))
    check(G, *top_eigenpairs(G, 9), 5)


def test_a_zero_matrix_has_zero_eigenvalues():
    w, V = top_eigenpairs(np.zeros((30, 30)), 4)
    assert np.array_equal(w, np.zeros(4))
    assert np.allclose(V.T @ V, np.eye(4))
    w, V = top_eigenpairs(np.zeros((30, 30)), 4, V)
    assert np.array_equal(w, np.zeros(4))


def test_the_same_start_gives_the_same_eigenvectors():
    G, _ = symmetric(SPECTRA["decaying"])
    start = np.linalg.qr(np.random.default_rng(4).standard_normal((n, 5)))[0]
    first, again = (top_eigenpairs(G, 5, start)[1] for _ in range(2))
    assert np.array_equal(first, again)


STEEP = {
    "geometric": np.logspace(0, -40, 300),
    "two alone": np.r_[2.0, 1.0, np.zeros(298)],
    "two far above": np.r_[3.0, 3.0, np.linspace(0.02, 0.015, 30), np.linspace(0.01, 0.0, 268)],
    "nothing": np.zeros(300),
}


@pytest.mark.parametrize("eigenvalues", STEEP.values(), ids=STEEP)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_leading_eigenpairs_of_a_spectrum_that_falls_steeply(eigenvalues, kind, optional):
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))[0]
    G = (Q * eigenvalues) @ Q.T
    w, V = map(np.asarray, leading_eigenpairs(G if kind == "numpy" else optional("torch").as_tensor(G), 20))
    assert np.allclose(w, eigenvalues[:20], rtol=1e-3, atol=1e-9)
    assert np.allclose(G @ V, V * w, rtol=0, atol=1e-4)


def dense_sizes(monkeypatch) -> list[int]:
    """The sizes of the matrices that the dense solver gets from now on."""
    sizes: list[int] = []
    real = spectrum.top_eigh

    def spy(A, r):
        sizes.append(len(A))
        return real(A, r)

    monkeypatch.setattr(spectrum, "top_eigh", spy)
    return sizes


def test_a_good_start_spares_the_dense_solver(monkeypatch):
    G, _ = symmetric(np.concatenate([np.linspace(1, 0.6, 5), np.geomspace(0.1, 1e-6, n - 5)]))
    E = np.random.default_rng(5).standard_normal(G.shape)
    _, start = top_eigenpairs(G, 5)
    sizes = dense_sizes(monkeypatch)
    top_eigenpairs(G + 1e-7 * (E + E.T), 5, start)
    assert sizes == []


def test_a_poor_start_ends_in_the_dense_solver(monkeypatch):
    G, _ = symmetric(np.linspace(1, 0.99, n))
    start = np.linalg.qr(np.random.default_rng(6).standard_normal((n, 5)))[0]
    sizes = dense_sizes(monkeypatch)
    top_eigenpairs(G, 5, start)
    assert sizes == [n]


# -- ridge regression and whitening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 10.0])
def test_ridge_regression_is_the_obvious_one(ridge):
    rng = np.random.default_rng(5)
    X, B = rng.standard_normal((50, 6)), rng.standard_normal((50, 3))
    G = X.T @ X
    expected = np.linalg.solve(G + ridge * np.trace(G) / 6 * np.eye(6), X.T @ B)
    assert np.allclose(solve_ridge(ridge_solver(G, ridge), X.T @ B), expected, rtol=1e-9, atol=1e-12)


def test_the_ridge_does_not_depend_on_the_unit():
    rng = np.random.default_rng(6)
    X, B = rng.standard_normal((50, 6)), rng.standard_normal((50, 3))
    small = solve_ridge(ridge_solver(X.T @ X, 0.1), X.T @ B)
    large = solve_ridge(ridge_solver(1e8 * X.T @ X, 0.1), 1e4 * X.T @ B)
    assert np.allclose(small, 1e4 * large)


@pytest.mark.parametrize("ridge", [0.0, 1e-300, 1e-12, 1e-6])
@pytest.mark.parametrize("copies", [1, 2, 40])
def test_dependent_features_can_be_regressed_on_with_any_ridge(ridge, copies):
    rng = np.random.default_rng(7)
    X = np.hstack([rng.standard_normal((50, 6))] * copies + [np.zeros((50, 1))])
    B = rng.standard_normal((50, 3))
    W = solve_ridge(ridge_solver(X.T @ X, ridge), X.T @ B)
    best = np.linalg.lstsq(X, B, rcond=None)[0]
    assert np.allclose(X @ W, X @ best, atol=1e-3)
    assert np.abs(W).max() < 10


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 1e-6])
def test_sums_of_single_precision_can_be_regressed_on_with_any_ridge(ridge):
    rng = np.random.default_rng(7)
    factors = rng.standard_normal((500, 2))
    X = (factors @ rng.standard_normal((2, 60))).astype(np.float32)
    gram = (X.T @ X).astype(np.float64)
    assert np.linalg.eigvalsh(gram)[0] < -1e-7 * np.trace(gram) / 60
    B = rng.standard_normal((500, 3))
    W = solve_ridge(ridge_solver(gram, ridge), X.T @ B)
    assert np.allclose(X @ W, factors @ np.linalg.lstsq(factors, B, rcond=None)[0], atol=1e-2)


def test_nothing_to_regress_on_gives_zero():
    assert np.array_equal(solve_ridge(ridge_solver(np.zeros((3, 3)), 0.1), np.zeros((3, 2))), np.zeros((3, 2)))


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
def test_whitening_makes_white_columns(ridge):
    X = np.random.default_rng(8).standard_normal((60, 5)) @ np.diag([1, 10, 100, 1e-2, 3])
    G = gram_of(X)
    T = whitening(G, ridge)
    assert np.allclose(T.T @ (G + ridge * np.trace(G) / 5 * np.eye(5)) @ T, np.eye(5), atol=1e-5)
