"""The quantizers against dense references: what databases compute, in the form scale * <b, p> + offset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusehash import bits, hashers
from fusehash.errors import ParameterError
from fusehash.hashers.quantizers.joint import random_rotation
from joint import cut, joint_embeddings

VIEWS = joint_embeddings()
LEARNED, NEW = cut(VIEWS, slice(0, 300)), cut(VIEWS, slice(300, None))


def fitted(name: str, n_bits: int = 48, **params: Any) -> Any:
    return hashers.make(name, n_bits=n_bits, random_state=0, **params).fit(LEARNED)


def test_kinds_are_listed():
    assert hashers.names("quantizer") == ["sign", "centered_sign", "itq", "rabitq", "pq"]


def test_sign_with_one_bit_per_column_is_the_sign_of_the_embedding():
    model = fitted("sign")
    assert np.array_equal(model.encode(NEW["text"], view="text"), bits.pack(NEW["text"]))
    rotated = fitted("sign", 96).project(NEW["text"], view="text")
    assert np.allclose(rotated, NEW["text"] @ random_rotation(48, 96, 0))


def test_own_mean_sign_follows_its_formula():
    mean = LEARNED["text"].mean(axis=0)
    expected = (NEW["text"] - mean) @ random_rotation(48, 48, 0)
    model = fitted("centered_sign")
    assert np.allclose(model.project(NEW["text"], view="text"), expected)
    assert np.allclose(model.project(7.0 * NEW["text"], view="text"), expected)  # cosine: lengths do not matter


def test_itq_shares_one_rotation_or_learns_one_per_view():
    shared, own = fitted("itq", 24), fitted("itq", 24, shared=False)
    assert np.array_equal(shared.weights_["image"], shared.weights_["text"])
    assert not np.allclose(own.weights_["image"], own.weights_["text"])
    W = shared.weights_["text"]
    assert np.allclose(W.T @ W, np.eye(24), atol=1e-8)
    # The learned rotation loses less than a random one of the same directions.
    Z = np.vstack([LEARNED[name] - shared.means_[name] for name in LEARNED])
    loss = lambda P: np.sum((np.sign(P) - P / np.sqrt(np.mean(P**2))) ** 2)  # noqa: E731
    R = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 24)))[0]
    assert loss(Z @ W) < loss(Z @ W @ R)


@pytest.mark.parametrize("n_bits", [48, 24, 96])
def test_rabitq_is_the_ranking_of_its_paper(n_bits):
    """Both sides minus the mean of the items, and <r, q'> = |r| <o_bar, q'> / <o_bar, o>."""
    model = fitted("rabitq", n_bits)
    codes, factors = model.encode(NEW["image"], view="image", with_factors=True)
    assert np.array_equal(codes, model.encode(NEW["image"], view="image"))
    assert factors.dtype == np.float32
    B, R, c = bits.unpack(codes, n_bits), random_rotation(48, n_bits, 0), LEARNED["image"].mean(axis=0)
    r, q = NEW["image"] - c, NEW["text"] - c
    o_bar, o = B / np.sqrt(n_bits), r @ R / np.linalg.norm(r, axis=1, keepdims=True)
    products = np.linalg.norm(r, axis=1) * ((q @ R) @ o_bar.T) / np.einsum("ij,ij->i", o_bar, o)
    expected = products - 0.5 * np.sum(r**2, axis=1)
    p = model.project(NEW["text"], view="text")
    scores = p @ B.T * factors[:, 0] + factors[:, 1]
    assert np.allclose(scores, expected, atol=1e-5)


def test_without_a_gap_rabitq_is_unbiased_and_exact_for_many_bits():
    model = fitted("rabitq", 48 * 64)
    codes, factors = model.encode(NEW["text"], view="text", with_factors=True)
    scores = model.project(NEW["text"], view="text") @ bits.unpack(codes, model.n_bits).T * factors[:, 0]
    r = NEW["text"] - LEARNED["text"].mean(axis=0)
    assert np.allclose(np.diag(scores), np.sum(r**2, axis=1), rtol=1e-5)
    assert np.abs(scores - r @ r.T).max() < 0.08


def test_product_quantization_decodes_to_the_nearest_centroids(optional):
    optional("faiss")
    model = hashers.make("pq", n_bits=96, random_state=0).fit(LEARNED)
    codes = model.encode(NEW["text"], view="text")
    decoded = model.decode(codes, view="text")
    centroids = model.centroids_["text"]
    parts = (NEW["text"] - model.means_["text"]).reshape(len(decoded), len(centroids), -1)
    nearest = [
        [own[np.argmin(np.sum((own - x) ** 2, axis=1))] for own, x in zip(centroids, row, strict=True)]
        for row in parts[:20]
    ]
    assert np.allclose(decoded[:20] - model.means_["text"], np.reshape(nearest, (20, -1)))
    error = np.mean((decoded - NEW["text"]) ** 2)
    assert error < 0.8 * np.mean((NEW["text"] - model.means_["text"]) ** 2)
    assert np.array_equal(
        codes, hashers.make("pq", n_bits=96, random_state=0).fit(LEARNED).encode(NEW["text"], view="text")
    )


def test_factors_are_refused_where_a_method_has_none():
    with pytest.raises(ParameterError, match="the codes of this method have no factors"):
        fitted("centered_sign").encode(NEW["text"], view="text", with_factors=True)
