"""Codes of pairs of joint embeddings: they keep what pairs teach and the space that the views share already."""

from __future__ import annotations

import numpy as np
import pytest

import fusehash as fh
from fusehash.evaluation import evaluate_embeddings
from fusehash.hashers.fusehash import own_space
from joint import cut, joint_embeddings
from untuned import UNTUNED

VIEWS = joint_embeddings()
LEARNED, NEW = cut(VIEWS, slice(0, 300)), cut(VIEWS, slice(300, None))
FULL_BITS = 2 * (own_space.PAIR_BITS + 48)  # as many directions as P has columns: nothing is left out


def fitted(n_bits, views=LEARNED, **params):
    return fh.FuseHash(n_bits=n_bits, random_state=0, **UNTUNED, **params).fit(views)


def expected_rows(rows, name, basis=None):
    """P of rows of a view, step by step, from the codes of pairs alone."""
    of_pairs = fitted(own_space.PAIR_BITS, n_rotation_steps=0).fitted_
    feature_map, W = of_pairs.maps[name], of_pairs.weights[name]
    F, new = (np.asarray(feature_map(X), float) - of_pairs.means[name] for X in (LEARNED[name], rows))
    units = LEARNED[name] / np.linalg.norm(LEARNED[name], axis=1, keepdims=True)
    target = (units - units.mean(axis=0)) @ (np.eye(48) if basis is None else basis)
    ridge = own_space.RIDGE * np.trace(F.T @ F) / F.shape[1]
    U = np.linalg.solve(F.T @ F + ridge * np.eye(F.shape[1]), F.T @ target)
    share = own_space.SHARE * 300 / own_space.ENOUGH_PAIRS
    lengths = [np.sqrt(np.mean(np.sum((F @ M) ** 2, axis=1))) for M in (W, U)]
    return np.hstack([np.sqrt(share) * new @ W / lengths[0], np.sqrt(1 - share) * new @ U / lengths[1]])


def test_projections_multiply_to_both_similarities():
    model, rank = fitted(FULL_BITS), FULL_BITS // 2
    found = model.project(NEW["image"], view="image") @ model.project(NEW["text"], view="text").T
    expected = expected_rows(NEW["image"], "image") @ expected_rows(NEW["text"], "text").T
    assert np.allclose(found * rank / FULL_BITS, expected, atol=2e-3 * np.abs(expected).max())


def test_wide_embeddings_count_by_their_leading_directions(monkeypatch):
    monkeypatch.setattr(own_space, "MAX_WIDTH", 16)
    n_bits = 2 * (own_space.PAIR_BITS + 16)
    model = fitted(n_bits)
    units = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in LEARNED.values()]
    basis = np.linalg.eigh(sum(np.cov(X.T) for X in units))[1][:, ::-1][:, :16]
    found = model.project(NEW["image"], view="image") @ model.project(NEW["text"], view="text").T
    expected = expected_rows(NEW["image"], "image", basis) @ expected_rows(NEW["text"], "text", basis).T
    assert np.allclose(found / 2, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("n_bits", [32, 128])
def test_partners_are_found_more_often_than_by_codes_of_pairs_alone(n_bits):
    noise = np.random.default_rng(1)
    noisy = {name: X + 0.1 * noise.standard_normal(X.shape) for name, X in VIEWS.items()}
    learned, new = cut(noisy, slice(0, 300)), cut(noisy, slice(300, None))
    both, pairs = (fitted(n_bits, learned, **given) for given in ({}, {"n_rotation_steps": 0}))
    recalls = [np.mean([s.pair_recall for s in evaluate_embeddings(m, new, k=5)]) for m in (both, pairs)]
    assert recalls[0] > recalls[1]


def test_codes_of_training_pairs_are_those_of_complete_items():
    model = fitted(64)
    assert model.codes_.shape == (300, 8)
    assert np.array_equal(model.codes_, model.encode_fused(LEARNED))
    assert model.fitted_.graph is None  # nothing of it is used, so nothing of it is stored


def test_models_that_learn_on_and_nested_ones_have_codes_of_pairs_alone():
    first = fh.FuseHash(n_bits=32, random_state=0, **UNTUNED).partial_fit(LEARNED)
    assert np.array_equal(first.codes_, fitted(32, n_rotation_steps=0).codes_)
    assert not np.array_equal(first.codes_, fitted(32).codes_)
    assert np.array_equal(first.fit(LEARNED).codes_, fitted(32).codes_)  # fitted anew, it does not learn on
    nested, as_before = (fitted(32, nested=(8,), **given) for given in ({}, {"n_rotation_steps": 50}))
    assert np.array_equal(nested.codes_, as_before.codes_)


def test_rows_without_a_partner_change_nothing():
    gap = np.full((40, 48), np.nan)
    views = {"image": np.vstack([LEARNED["image"], NEW["image"][:40]]), "text": np.vstack([LEARNED["text"], gap])}
    model = fitted(32, views, missing="allow")
    assert np.array_equal(model.codes_[:300], fitted(32).codes_)
    assert np.array_equal(model.codes_[300:], model.encode(NEW["image"][:40], view="image"))
