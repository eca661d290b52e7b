"""Raw features of any kind become comparable ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.numerics.features import MAX_WIDTH, FeatureMap, Preparation, kind_of
from fusehash.numerics.sparse import SparseRows


def test_kinds_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    assert kind_of(rng.dirichlet(np.ones(20), 50)) == "histogram"
    assert kind_of((rng.random((50, 30)) < 0.1).astype(float)) == "bag"
    assert kind_of(rng.standard_normal((50, 8))) == "dense"
    assert kind_of(rng.random((50, 8))) == "dense"
    unit = rng.standard_normal((50, 16))
    assert kind_of(unit / np.linalg.norm(unit, axis=1, keepdims=True)) == "embedding"
    assert kind_of(unit * 0.5 ** np.arange(16)) == "embedding"  # sorted by size, as principal components are
    assert kind_of(unit - 1e6) == "dense"  # rows are as long as each other only because the origin is far
    assert kind_of(unit[:, :4] / np.linalg.norm(unit[:, :4], axis=1, keepdims=True)) == "dense"  # chance in few columns


def test_embeddings_keep_the_relative_size_of_their_columns() -> None:
    X = np.random.default_rng(0).standard_normal((60, 12)) * 0.5 ** np.arange(12)
    Z = Preparation.learn(X)(X).astype(float)
    np.testing.assert_allclose(Z.std(axis=0) / Z.std(axis=0)[0], X.std(axis=0) / X.std(axis=0)[0], rtol=1e-4)
    assert np.sqrt((Z**2).mean()) == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(Preparation.learn(X * 1e9)(X * 1e9), Z, rtol=1e-3, atol=1e-5)


def test_short_queries_of_a_small_collection_get_codes_of_their_own() -> None:
    """Latent semantic features have columns that hardly vary; scaled up, they would send all short texts one way."""
    import fusehash as fh

    colors, shapes = ("red", "green", "blue", "yellow", "purple"), ("circle", "square", "triangle", "star")
    texts = [f"a {color} {shape} on a white ground" for _ in range(3) for color in colors for shape in shapes]
    encoder = fh.encoders.make("tfidf").fit(texts)
    looks = np.array([[word in text for word in (*colors, *shapes)] for text in texts], float)
    rng = np.random.default_rng(0)
    image = looks @ rng.standard_normal((9, 60)) + 0.3 * rng.standard_normal((60, 60))
    model = fh.FuseHash(n_bits=64, random_state=0).fit({"image": image, "text": encoder.transform(texts)})
    codes = model.encode(encoder.transform(["green triangle", "blue square", "red circle", "star"]), view="text")
    apart = np.bitwise_count(codes[:, None] ^ codes[None]).sum(axis=2)
    assert apart[np.triu_indices(4, 1)].min() > 4


def test_histograms_are_compared_by_hellinger_distance() -> None:
    X = np.random.default_rng(0).dirichlet(np.ones(12), 40)
    Z = Preparation.learn(X)(X).astype(float)
    expected = ((np.sqrt(X[0]) - np.sqrt(X[1])) ** 2).sum()
    assert ((Z[0] - Z[1]) ** 2).sum() == pytest.approx(expected, rel=1e-5)


def test_bags_do_not_depend_on_the_length_of_the_text() -> None:
    X = (np.random.default_rng(0).random((60, 40)) < 0.1).astype(float)
    preparation = Preparation.learn(X, "bag")
    np.testing.assert_allclose(preparation(X), preparation(9.0 * X), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1e6, 1e6), st.sampled_from([1e-6, 1.0, 1e6]))
def test_dense_features_do_not_depend_on_units(seed: int, offset: float, scale: float) -> None:
    X = np.random.default_rng(seed).standard_normal((40, 5))
    plain = Preparation.learn(X, "dense")(X)
    moved = X * scale + offset * scale
    np.testing.assert_allclose(Preparation.learn(moved, "dense")(moved), plain, atol=1e-3)


def test_constant_columns_vanish() -> None:
    X = np.random.default_rng(0).standard_normal((40, 4))
    X[:, 2] = 7.3
    Z = Preparation.learn(X)(X)
    assert np.all(np.abs(Z[:, 2]) < 1e-6)
    assert np.isfinite(Z).all()


def test_columns_of_any_size_count_alike() -> None:
    X = np.random.default_rng(0).standard_normal((60, 5)) * np.array([1e-200, 1e-30, 1.0, 1e30, 1e200])
    np.testing.assert_allclose(Preparation.learn(X)(X).std(axis=0), 1.0, rtol=1e-4)


def wide_bag(n: int, d: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((n, d)) < 8 / d).astype(float)


@pytest.mark.parametrize("kind", ["bag", "dense", "embedding"])
def test_new_rows_of_a_wide_view_look_like_the_rows_it_was_learned_from(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = wide_bag(300, 2000) if kind == "bag" else rng.standard_normal((300, 2000)) * rng.uniform(0.5, 1.5, (300, 1))
    if kind == "embedding":
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    preparation = Preparation.learn(X[:150])
    assert preparation.kind == kind
    assert preparation.width == 2000
    feature_map = FeatureMap.learn(preparation, preparation(X[:50]), "rbf", 1.0, 40, rng)
    learned, new = feature_map(X[50:150]), feature_map(X[150:])
    assert abs(learned.mean() - new.mean()) < 0.3 * learned.std()


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_wide_bags_stay_sparse_and_mean_the_same(stored: Any) -> None:
    X = wide_bag(80, MAX_WIDTH + 40)
    X[3] = 0.0
    preparation = Preparation.learn(stored(X))
    prepared = preparation(stored(X))
    assert isinstance(prepared, SparseRows)
    dense = np.sqrt(X) / np.maximum(np.linalg.norm(np.sqrt(X), axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(prepared.matrix.toarray(), dense, atol=1e-6)
    np.testing.assert_allclose(prepared.products(prepared[10:20]), dense @ dense[10:20].T, atol=1e-6)
    distances = ((dense[:, None] - dense[None, 10:20]) ** 2).sum(axis=2)
    np.testing.assert_allclose(prepared.squared_distances(prepared[10:20]), distances, atol=1e-6)
    for kind, expected in (("rbf", None), ("linear", dense)):
        feature_map = FeatureMap.learn(preparation, prepared, kind, 1.0, 10, np.random.default_rng(1))
        assert feature_map(stored(X)).shape == (80, feature_map.n_features) == (80, 10)
        if expected is not None:
            np.testing.assert_allclose(feature_map(stored(X)), expected @ feature_map.anchors.matrix.T, atol=1e-5)


def test_sparse_rows_with_both_signs_are_a_bag_too() -> None:
    X = sp.csr_array(wide_bag(60, 900) * np.random.default_rng(1).choice([-4.0, 4.0], (60, 900)))
    preparation = Preparation.learn(X)
    assert preparation.kind == "signed bag"
    np.testing.assert_array_equal(np.sign(preparation(X).matrix.toarray()), np.sign(X.toarray()))


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": np.array([0, 9], np.int32)},
        {"columns": np.array([-1, 1], np.int32)},
        {"starts": np.array([0, 2, 1], np.int64)},
        {"starts": np.array([0, 1, 3], np.int64)},
        {"starts": np.array([1, 2], np.int64)},
        {"values": np.ones((1, 2), np.float32)},
        {"starts": np.array([0, 10**8, 2], np.uint64)},
        {"starts": np.array([0, 2**63 - 1, -(2**63), 2], np.int64)},
        {"columns": np.array([0.5, 1.5])},
    ],
)
def test_sparse_rows_of_a_forged_file_are_refused(fields: dict[str, Any]) -> None:
    intact = {"values": np.ones(2, np.float32), "columns": np.array([0, 2], np.int32), "width": 4}
    intact["starts"] = np.array([0, 1, 2], np.int64)
    assert len(SparseRows(**intact)) == 2
    with pytest.raises(ValueError, match="sparse rows"):
        SparseRows(**{**intact, **fields})


def test_rbf_features_are_the_kernel_of_prepared_rows() -> None:
    X = np.random.default_rng(0).standard_normal((50, 6))
    preparation = Preparation.learn(X)
    Z = preparation(X)
    feature_map = FeatureMap.learn(preparation, Z, "rbf", 0.5, 10, np.random.default_rng(1))
    D = ((Z[:, None].astype(float) - feature_map.anchors[None].astype(float)) ** 2).sum(-1)
    np.testing.assert_allclose(feature_map(X), np.exp(-D / (0.5 * np.median(D))), atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_a_map_says_how_many_features_it_gives(kind: str) -> None:
    X = np.random.default_rng(0).standard_normal((50, 6))
    preparation = Preparation.learn(X)
    feature_map = FeatureMap.learn(preparation, preparation(X), kind, 1.0, 30, np.random.default_rng(1))
    assert feature_map(X).shape == (50, feature_map.n_features)
