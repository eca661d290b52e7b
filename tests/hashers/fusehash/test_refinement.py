"""The refined rotation: its gradient, codes of held-out rows that know nothing of them, and partners that it finds."""

from __future__ import annotations

import numpy as np
import pytest

import fusehash as fh
from fusehash import bits
from fusehash.evaluation import pair_recall
from fusehash.hashers.fusehash import refinement
from fusehash.hashers.fusehash.fitted import Choices


def slow_loss(Q, A, B, t):
    """-log of the softmax of the partner, one query at a time, mean of both directions."""
    H = [np.tanh(X @ Q) for X in (A, B)]
    total = 0.0
    for queries, items in (H, H[::-1]):
        for i, query in enumerate(queries):
            scores = np.array([t * float(query @ item) for item in items])
            total -= float(np.log(np.exp(scores[i]) / np.exp(scores).sum()))
    return total / (2 * len(A))


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    Q, A, B = rng.standard_normal((4, 4)), rng.standard_normal((9, 4)), rng.standard_normal((9, 4))
    loss, gradient = refinement.ranking_gradient(Q, A, B, 0.7)
    assert loss == pytest.approx(slow_loss(Q, A, B, 0.7))
    for row, column in np.ndindex(4, 4):
        step = np.zeros((4, 4))
        step[row, column] = 1e-6
        slope = (slow_loss(Q + step, A, B, 0.7) - slow_loss(Q - step, A, B, 0.7)) / 2e-6
        assert gradient[row, column] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_codes_of_held_out_rows_know_neither_their_partners_nor_their_targets():
    rng = np.random.default_rng(1)
    latent = rng.standard_normal((120, 6))
    features = {name: latent @ rng.standard_normal((6, 10)) + rng.standard_normal((120, 10)) for name in "ab"}
    features = {name: X - X.mean(axis=0) for name, X in features.items()}
    targets = latent @ rng.standard_normal((6, 8))
    given = Choices(), 6, 0.5
    fold = np.array_split(np.random.default_rng(3).permutation(120), refinement.N_FOLDS)[0]
    before = refinement.held_out_codes(features, targets, *given, np.random.default_rng(3))
    changed, other = {**features, "b": features["b"].copy()}, targets.copy()
    changed["b"][fold], other[fold] = features["b"][fold[::-1]], targets[fold[::-1]]
    after = refinement.held_out_codes(changed, other, *given, np.random.default_rng(3))
    np.testing.assert_allclose(after["a"][fold], before["a"][fold], rtol=1e-4, atol=1e-5)
    assert np.abs(np.delete(after["a"] - before["a"], fold, axis=0)).max() > 0.01


def test_partners_of_new_rows_rank_higher_where_some_directions_are_noise():
    """Half of the directions say nothing of the partner; a rotation that knows it gives them less."""
    rng = np.random.default_rng(2)
    shared, mixed = np.arange(32) < 16, np.linalg.qr(rng.standard_normal((32, 32)))[0]

    def pairs(n):
        latent = rng.standard_normal((n, 32))
        return [
            np.where(shared, latent + 0.3 * rng.standard_normal((n, 32)), rng.standard_normal((n, 32))) @ mixed
            for _ in range(2)
        ]

    learned, new = pairs(600), pairs(400)
    Q = refinement.refined_rotation(dict(zip("ab", learned, strict=True)), np.random.default_rng(0))
    plain, refined = (pair_recall(*(bits.pack(X @ R) for X in new), k=5) for R in (np.eye(32), Q))
    assert refined > plain + 0.1


@pytest.fixture(scope="module")
def agreeing():
    """Two noisy views of the same groups, which agree on who is near whom."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((40, 12))[rng.integers(40, size=400)] + 0.5 * rng.standard_normal((400, 12))
    return {name: latent @ rng.standard_normal((12, 30)) + 0.5 * rng.standard_normal((400, 30)) for name in "ab"}


def test_a_refined_model_codes_items_in_all_views_as_it_coded_them_while_learning(agreeing):
    model = fh.FuseHash(n_bits=32, refine_rotation=True, random_state=0).fit(agreeing)
    plain = fh.FuseHash(n_bits=32, random_state=0).fit(agreeing)
    assert model.tuning_["refined"]
    assert not plain.tuning_["refined"]
    assert (plain.codes_ != model.codes_).any()
    fused = model.encode_fused(agreeing)
    assert np.mean(np.unpackbits(fused) == np.unpackbits(model.codes_)) > 0.999
    again = fh.FuseHash(n_bits=32, refine_rotation=True, random_state=0, n_threads=3).fit(agreeing)
    np.testing.assert_array_equal(again.codes_, model.codes_)


def test_more_bits_than_directions_and_three_views(agreeing):
    views = {**agreeing, "c": agreeing["a"][:, ::-1] + 1.0}
    model = fh.FuseHash(n_bits=64, rank=20, refine_rotation=True, random_state=0).fit(views)
    assert model.tuning_["refined"]
    codes = {name: model.encode(X, view=name) for name, X in views.items()}
    assert pair_recall(codes["a"], codes["b"], k=10) > 0.5


def test_rows_that_lack_a_view_take_no_part(agreeing):
    views = {name: X.copy() for name, X in agreeing.items()}
    views["b"][350:] = np.nan
    model = fh.FuseHash(n_bits=16, refine_rotation=True, random_state=0, missing="allow").fit(views)
    assert model.tuning_["refined"]
    assert model.codes_.shape == (400, 2)


def test_fewer_pairs_than_needed_change_nothing(agreeing):
    few = {name: X[:250] for name, X in agreeing.items()}
    model = fh.FuseHash(n_bits=16, refine_rotation=True, random_state=0).fit(few)
    assert not model.tuning_["refined"]
    np.testing.assert_array_equal(fh.FuseHash(n_bits=16, random_state=0).fit(few).codes_, model.codes_)


def test_a_refined_model_learns_on(agreeing):
    first, more = ({name: X[rows] for name, X in agreeing.items()} for rows in (slice(0, 320), slice(320, 400)))
    model = fh.FuseHash(n_bits=32, refine_rotation=True, random_state=0).partial_fit(first)
    before = model.encode(first["a"], view="a")
    after = model.partial_fit(more).encode(first["a"], view="a")
    assert np.mean(np.unpackbits(before) == np.unpackbits(after)) > 0.9


@pytest.mark.parametrize("other", [{"nested": (8,)}, {"target": "floats"}])
def test_what_cannot_be_refined_is_said(agreeing, other):
    with pytest.raises(fh.errors.ParameterError, match="refine_rotation"):
        fh.FuseHash(n_bits=16, refine_rotation=True, **other).fit(agreeing)
