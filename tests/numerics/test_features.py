"""Raw features of any kind become comparable ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.numerics.features import MAX_WIDTH, FeatureMap, Preparation, kind_of, leading_components


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


@pytest.mark.parametrize(("n", "d"), [(2000, 700), (300, 2000), (1500, 1500)])
def test_wide_views_keep_their_leading_directions(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, d)) + 0.01 * rng.standard_normal((n, d))
    V = leading_components(X - X.mean(0), 64)
    centered = X - X.mean(0)
    assert ((centered @ V) ** 2).sum() >= 0.999 * (centered**2).sum()
    assert Preparation.learn(X).width <= MAX_WIDTH


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
