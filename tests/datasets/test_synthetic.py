"""make_paired: the truth behind it is exact, the task is neither trivial nor hopeless, every knob turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from fusehash.datasets import SyntheticDataset, make_paired
from fusehash.errors import ParameterError


def test_posterior_is_bayes_rule() -> None:
    data = make_paired(200, n_classes=3, latent_dim=4, modes=2, separation=2.0)
    mixture = data.mixture
    density = np.stack(
        [
            weight * multivariate_normal(mean, factor @ factor.T).pdf(data.latent)
            for weight, mean, factor in zip(mixture.weights, mixture.means, mixture.factors, strict=True)
        ],
        axis=1,
    )
    by_class = np.stack([density[:, mixture.class_of == c].sum(axis=1) for c in range(3)], axis=1)
    posterior = by_class / by_class.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixture.posterior(data.latent), posterior, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(data.oracle([3], [5, 9]), posterior[[3]] @ posterior[[5, 9]].T, rtol=1e-9)


def test_oracle_is_calibrated() -> None:
    """Of the pairs that the oracle gives a probability p, a share p has the same class."""
    data = make_paired(4000, n_classes=4, separation=2.0, latent_dim=3, n_query=1000)
    probability = data.oracle()
    same = data.labels[data.query][:, None] == data.labels[data.database]
    for low in np.arange(0, 0.9, 0.1):
        here = (probability >= low) & (probability < low + 0.1)
        assert same[here].mean() == pytest.approx(probability[here].mean(), abs=0.06)


def cross_view_map(data: SyntheticDataset, asked: str, searched: str) -> float:
    """MAP@50 of regularized linear CCA with cosine: what a plain method reaches."""
    scaled = {}
    for name in (asked, searched):
        train = data.views[name][data.train]
        scaled[name] = (data.views[name] - train.mean(axis=0)) / train.std(axis=0)
    half = {}
    for name, matrix in scaled.items():
        values, vectors = np.linalg.eigh(np.cov(matrix[data.train].T) + 0.01 * np.eye(matrix.shape[1]))
        half[name] = vectors / np.sqrt(values) @ vectors.T
    cross = scaled[asked][data.train].T @ scaled[searched][data.train] / data.train.size
    left, strength, right = np.linalg.svd(half[asked] @ cross @ half[searched])
    query = scaled[asked][data.query] @ half[asked] @ left[:, :16] * strength[:16]
    items = scaled[searched][data.database] @ half[searched] @ right[:16].T * strength[:16]
    score = (query / np.linalg.norm(query, axis=1, keepdims=True)) @ (items / np.linalg.norm(items, axis=1)[:, None]).T
    order = np.argsort(-score, axis=1)[:, :50]
    hit = data.labels[data.database][order] == data.labels[data.query][:, None]
    precision = np.cumsum(hit, axis=1) / np.arange(1, 51)
    return float(np.mean((precision * hit).sum(axis=1) / np.maximum(hit.sum(axis=1), 1)))


@pytest.mark.parametrize("histograms", [(), ("image",)])
def test_neither_trivial_nor_hopeless(histograms: tuple[str, ...]) -> None:
    data = make_paired(800, n_query=200, histograms=histograms)
    chance = np.mean(data.labels[data.query][:, None] == data.labels[data.database])
    for asked, searched in (("image", "text"), ("text", "image")):
        assert 2 * chance < cross_view_map(data, asked, searched) < data.oracle_map(50) - 0.2
    assert data.oracle_map(50) > 0.95


def test_difficulty_follows_the_knobs() -> None:
    assert make_paired(600, separation=3.0).oracle_map() < make_paired(600, separation=6.0).oracle_map()
    plain = cross_view_map(make_paired(800), "image", "text")
    for harder in ({"noise": 1.5}, {"nuisance": 3.0}):
        other = make_paired(800, **harder)  # type: ignore[arg-type]
        assert cross_view_map(other, "image", "text") < plain - 0.05
        assert other.oracle_map() == make_paired(800).oracle_map()  # the truth is the same


def test_views_of_every_number_and_kind() -> None:
    assert make_paired(50, views=1).views.n_features == {"image": 64}
    assert make_paired(50).views.names == ["image", "text"]
    assert make_paired(50, views=5).views.names == ["image", "text", "audio", "video", "view4"]
    data = make_paired(300, views={"a": 7, "b": 30}, histograms=["b"], nonlinear=False)
    assert data.views.n_features == {"a": 7, "b": 30}
    assert (data.views["b"] >= 0).all()
    np.testing.assert_allclose(data.views["b"].sum(axis=1), 1)
    spread = data.views["a"].std(axis=0)
    assert spread.max() > 1.5 * spread.min()


def test_split_and_seed() -> None:
    data = make_paired(100, n_query=20, n_train=30, random_state=3)
    assert (data.train.size, data.query.size, data.database.size) == (30, 20, 80)
    assert "30 of it" in data.split
    same, other = make_paired(100, n_query=20, n_train=30, random_state=3), make_paired(100, random_state=4)
    assert same.fingerprint == data.fingerprint != other.fingerprint
    more_views = make_paired(100, views=3, random_state=3)
    np.testing.assert_array_equal(more_views.views["text"], data.views["text"])
    np.testing.assert_array_equal(more_views.latent, data.latent)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"n_samples": 1}, "n_samples"), ({"n_classes": 1}, "n_classes"), ({"views": 0}, "views"),
     ({"views": {}}, "views"),
     ({"views": {"a": 0}}, "views"), ({"noise": -1.0}, "noise"), ({"separation": np.nan}, "separation"),
     ({"nuisance": "big"}, "nuisance"), ({"n_query": 99}, "n_query"), ({"n_train": 0}, "n_train"),
     ({"histograms": ["audio"]}, "histograms"), ({"random_state": -1}, "random_state"), ({"modes": 0}, "modes"),
     ({"latent_dim": 0}, "latent_dim")],
)  # fmt: skip
def test_wrong_parameters(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError, match=f"'{parameter}' parameter of make_paired"):
        make_paired(**{"n_samples": 100, **options})


@settings(max_examples=20, deadline=None)
@given(
    n_samples=st.integers(4, 80), n_classes=st.integers(2, 6), n_views=st.integers(1, 4), latent_dim=st.integers(1, 9),
    modes=st.integers(1, 3), separation=st.floats(0, 30), noise=st.floats(0, 5), nuisance=st.floats(0, 5),
    nonlinear=st.booleans(), histogram=st.booleans(), random_state=st.integers(0, 2**32),
)  # fmt: skip
def test_always_finite_and_well_formed(n_views: int, histogram: bool, **options: Any) -> None:
    data = make_paired(views=n_views, histograms=["image"] if histogram else [], **options)
    assert all(np.isfinite(matrix).all() for matrix in data.views.values())
    probability = data.oracle()
    assert ((probability >= 0) & (probability <= 1 + 1e-12)).all()
    assert 0 <= data.oracle_map() <= 1
