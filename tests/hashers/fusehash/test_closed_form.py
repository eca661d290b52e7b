"""The closed form against a slow dense transcription of its formulas, and the parts it is made of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import sqrtm

import fusehash as fh
from fusehash import bits
from fusehash.hashers.fusehash import closed_form as steps
from fusehash.hashers.fusehash.closed_form import InMemory, learn_means, moments, solve
from fusehash.hashers.fusehash.fitted import Choices, GraphMap, RowMaps
from fusehash.hashers.fusehash.spectrum import FeatureGram, spectrum
from fusehash.hashers.fusehash.tuning.measures import NearItems
from fusehash.numerics.anchors import FUSIONS, fuse, neighbor_graph
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.numerics.linalg import leading_eigenpairs
from fusehash.numerics.rotation import learned_rotation, random_orthogonal
from fusehash.streams.row_passes import RowPasses
from fusehash.views import PairedViews
from untuned import UNTUNED


def small_problem(n: int = 120) -> tuple[dict[str, np.ndarray], dict[str, FeatureMap], np.ndarray]:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((n, 4))
    raw = {"a": latent @ rng.standard_normal((4, 6)) + 0.3 * rng.standard_normal((n, 6)), "b": np.tanh(latent)}
    preparations = {name: Preparation.learn(X) for name, X in raw.items()}
    arrays = {name: preparations[name](X) for name, X in raw.items()}
    maps = {name: FeatureMap.learn(preparations[name], X, "rbf", 1.0, 15, rng) for name, X in arrays.items()}
    return arrays, maps, np.sort(rng.choice(n, 20, replace=False))


def row_maps(data, arrays, maps, rows, choices) -> RowMaps:
    graph = GraphMap.over({name: X[rows] for name, X in arrays.items()}, 5, choices)
    centered = RowMaps(maps, graph, n_rows=120, is_prepared=True)
    return replace(centered, means=learn_means(data, centered))


@pytest.mark.parametrize("block_rows", [120, 37])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 2.0)])
def test_spectrum_equals_the_dense_formula(monkeypatch, block_rows: int, weights: tuple[float, float]) -> None:
    monkeypatch.setattr(steps, "BLOCK_ROWS", block_rows)
    arrays, maps, rows = small_problem()
    choices = Choices(ridge=0.2, latent_weight=0.0, view_weights=weights)
    data = RowPasses(PairedViews(arrays))
    centered = row_maps(data, arrays, maps, rows, choices)
    sums = data.total(partial(moments, centered), block_rows)[1]
    gram = FeatureGram(sums["FF"], centered.spans)
    found = spectrum(sums, gram, choices, 8)
    embedding, w = found.embedding("float32"), found.eigenvalues
    again = spectrum(sums, gram, choices, 8, start=found.vectors)
    assert np.allclose(again.on_features, found.on_features, atol=1e-5)
    # M = sum_m a_m Q_m Q_m' + mu (centered S L^-1/2)(...)', written out with dense N x N matrices
    n = 120
    M = np.zeros((n, n))
    F = {}
    for a, (name, X) in zip(weights, arrays.items(), strict=True):
        F[name] = maps[name].of_prepared(X).astype(float)
        F[name] -= F[name].mean(0)
        G = F[name].T @ F[name]
        Q = F[name] @ np.linalg.inv(sqrtm(G + 0.2 * np.trace(G) / len(G) * np.eye(len(G))).real)
        M += a * Q @ Q.T
    graphs = [neighbor_graph(X, X[rows], 5).astype(float) for X in arrays.values()]
    S = (weights[0] * graphs[0] + weights[1] * graphs[1]) / sum(weights)
    H = S / np.sqrt(S.sum(0))
    H -= H.mean(0)
    M += steps.usual_graph_weight(n) * H @ H.T
    values, vectors = np.linalg.eigh(M)
    values, vectors = values[::-1][:8], vectors[:, ::-1][:, :8]
    np.testing.assert_allclose(w, values, rtol=1e-4)
    Y = embedding(np.hstack(list(F.values())).astype(np.float32), (S - 0.0).astype(np.float32))
    Y = Y - Y.mean(0)
    expected = np.sqrt(n) * vectors * (values / values[0]) ** choices.spectral_power
    agreement = np.abs(np.einsum("ij,ij->j", Y, expected)) / (
        np.linalg.norm(Y, axis=0) * np.linalg.norm(expected, axis=0)
    )
    assert np.all(agreement > 0.999)
    np.testing.assert_allclose(np.linalg.norm(Y, axis=0), np.linalg.norm(expected, axis=0), rtol=1e-3)


def test_hash_functions_are_ridge_regressions_of_soft_codes() -> None:
    arrays, maps, rows = small_problem()
    choices = Choices(hash_ridge=0.05)
    data = InMemory(arrays)
    centered = row_maps(data, arrays, maps, rows, choices)
    fitted, codes, _ = solve(data, data, centered, choices, 16, 16, 10, (), np.random.default_rng(0))
    Y = fitted.project_complete(arrays)
    assert np.array_equal(bits.pack(Y), codes)
    assert fitted.softness == pytest.approx(0.53 * np.sqrt(np.mean(Y**2)), rel=1e-3)
    T = np.tanh(Y / fitted.softness)
    for name, X in arrays.items():
        F = maps[name].of_prepared(X).astype(float) - fitted.means[name]
        G = F.T @ F
        expected = np.linalg.solve(G + 0.05 * np.trace(G) / len(G) * np.eye(len(G)), F.T @ T)
        np.testing.assert_allclose(fitted.weights[name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_blocks_do_not_matter(monkeypatch) -> None:
    arrays, maps, rows = small_problem()
    codes = []
    for block_rows in (120, 50, 7):
        monkeypatch.setattr(steps, "BLOCK_ROWS", block_rows)
        data = RowPasses(PairedViews(arrays))
        centered = row_maps(data, arrays, maps, rows, Choices())
        fit = solve(data, data, centered, Choices(), 32, 20, 20, (), np.random.default_rng(0))
        codes.append(bits.unpack(fit[1], 32))
    assert np.mean(codes[0] == codes[1]) > 0.99
    assert np.mean(codes[0] == codes[2]) > 0.99


def test_leading_eigenpairs_are_near_the_exact_ones() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((500, 500)))[0]
    w = np.concatenate([np.linspace(3.0, 1.5, 32), np.sort(rng.random(468))[::-1]])
    values, V = leading_eigenpairs((Q * w) @ Q.T, 32)
    np.testing.assert_allclose(values, w[:32], rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(V.T @ Q[:, :32], axis=0), 1.0, atol=1e-3)


def test_each_rotation_step_brings_the_codes_nearer() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((300, 12)) * np.linspace(3, 0.2, 12)
    R = random_orthogonal(12, rng)
    losses = []
    for _ in range(15):
        losses.append(np.abs(Y @ R).sum())
        R = learned_rotation(Y, R, 1)
        np.testing.assert_allclose(R.T @ R, np.eye(12), atol=1e-10)
    assert all(b >= a - 1e-9 * a for a, b in pairwise(losses))


@pytest.mark.parametrize("fusion", FUSIONS)
def test_fused_rows_sum_to_one_and_use_only_present_views(fusion: str) -> None:
    rng = np.random.default_rng(0)
    graphs = [neighbor_graph(rng.standard_normal((30, 3)).astype("f4"), rng.standard_normal((12, 3)).astype("f4"), 4)]
    graphs.append(
        neighbor_graph(rng.standard_normal((30, 2)).astype("f4"), rng.standard_normal((12, 2)).astype("f4"), 4)
    )
    everywhere = np.ones(30, bool)
    some = np.arange(30) % 2 == 0
    fused = fuse(graphs, [everywhere, some], [1.0, 1.0], fusion)
    np.testing.assert_allclose(fused.sum(1), 1.0, atol=1e-5)
    np.testing.assert_allclose(fused[~some], graphs[0][~some], atol=1e-6)
    assert np.all(fused >= 0)


def test_anchors_missing_in_a_view_get_no_edges() -> None:
    rng = np.random.default_rng(0)
    has = np.arange(12) % 3 != 0
    graph = neighbor_graph(rng.standard_normal((20, 3)).astype("f4"), rng.standard_normal((12, 3)).astype("f4"), 4, has)
    assert np.all(graph[:, ~has] == 0)
    np.testing.assert_allclose(graph.sum(1), 1.0, atol=1e-6)


def test_near_items_are_near_in_every_view_and_not_oneself() -> None:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((4, 5)) * 20
    labels = np.repeat(np.arange(4), 25)
    arrays = [(centers[labels] + rng.standard_normal((100, 5))).astype("f4") for _ in range(2)]
    near = NearItems(arrays).is_near
    assert not near.diagonal().any()
    rows, columns = np.nonzero(near)
    assert np.all(labels[rows] == labels[columns])


@pytest.mark.parametrize("spectrum_rows", [120, 50_000])
def test_hash_functions_are_ridge_regressions_over_all_rows(spectrum_rows: int) -> None:
    """W from features and targets of all rows, also where the spectrum comes from a small sample."""
    data = fh.datasets.make_paired(n_samples=400, random_state=1)
    train = {name: np.asarray(X[:360]) for name, X in data.views.items()}
    model = fh.FuseHash(n_bits=16, spectrum_rows=spectrum_rows, random_state=0, dtype="float64", **UNTUNED).fit(train)
    fitted = model.fitted_
    prepared = {name: fitted.maps[name].preparation(X) for name, X in train.items()}
    T = np.tanh(fitted.project_complete(prepared) / fitted.softness)
    for name, X in prepared.items():
        F = fitted.maps[name].of_prepared(X) - fitted.means[name]
        gram = F.T @ F
        ridge = UNTUNED["hash_ridge"] * np.trace(gram) / len(gram)
        expected = np.linalg.solve(gram + ridge * np.eye(len(gram)), F.T @ T)
        np.testing.assert_allclose(fitted.weights[name], expected, rtol=1e-6, atol=1e-8)
