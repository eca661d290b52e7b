"""Nested codes: every group of bits against a rotation computed here, and what they are for on data with an answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusehash
from fusehash import datasets
from fusehash.errors import ParameterError
from fusehash.evaluation import average_precision
from fusehash.hashers.fusehash import FuseHash
from fusehash.hashers.fusehash.nested import check_nested, nested_rotations
from fusehash.numerics.rotation import learned_rotations
from untuned import UNTUNED

LENGTHS = st.sets(st.integers(1, 9).map(lambda n: 8 * n), max_size=4)


def embedding(n: int, r: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, r)) * np.linspace(2.0, 0.3, r)


def slow_rotation(Y, start, n_steps):
    """ITQ, one bit and one row at a time."""
    R = start
    for _ in range(n_steps):
        B = np.array([[1.0 if row @ column > 0 else -1.0 for column in R.T] for row in Y])
        U, _, Vt = np.linalg.svd(sum(np.outer(row, b) for row, b in zip(Y, B, strict=True)))
        R = U @ Vt
    return R


def test_every_group_is_a_rotation_of_the_leading_directions():
    Y, cuts = embedding(60, 24, 0), (0, 8, 16, 24)
    R = nested_rotations(Y, 24, (8, 16), np.random.default_rng(5), 4)
    rng = np.random.default_rng(5)
    for start, stop in pairwise(cuts):
        Q, upper = np.linalg.qr(rng.standard_normal((stop, stop)))
        expected = slow_rotation(Y[:, :stop], Q * np.sign(np.diagonal(upper)), 4)
        assert np.allclose(R[:stop, start:stop], expected[:, : stop - start])
        assert not R[stop:, start:stop].any()


@settings(max_examples=12, deadline=None)
@given(r=st.integers(1, 40), lengths=LENGTHS, seed=st.integers(0, 99))
def test_any_rank_and_any_lengths(r, lengths, seed):
    n_bits = 80
    Y = embedding(50, r, seed)
    R = nested_rotations(Y, n_bits, tuple(sorted(lengths)), np.random.default_rng(seed), 2)
    assert R.shape == (r, n_bits)
    assert np.allclose((R**2).sum(axis=0), 1.0)  # every bit is a direction
    for length in lengths:  # which the bits before it have seen only as far as they go
        assert not R[length:, :length].any()


def test_without_lengths_it_is_the_usual_rotation():
    Y = embedding(80, 16, 1)
    for n_bits in (16, 48):
        usual = learned_rotations(Y, n_bits, np.random.default_rng(3), 5)
        assert np.array_equal(nested_rotations(Y, n_bits, (), np.random.default_rng(3), 5), usual)


@pytest.mark.parametrize("wrong", [16, "16", (12,), (64,), (16, 16), (0,), (8.0,), (True,), (-8,), [None]])
def test_lengths_are_checked(wrong):
    with pytest.raises(ParameterError, match="nested"):
        check_nested("FuseHash", wrong, 64)


def test_lengths_come_in_any_order():
    assert check_nested("FuseHash", [32, 8], 64) == (8, 32)
    assert check_nested("FuseHash", None, 64) == ()


@pytest.fixture(scope="module")
def made():
    return datasets.make_paired(n_samples=1500, n_train=900, random_state=7)


def quality(model, data):
    """MAP@50 across views among new items, by the labels of the generator."""
    new = np.setdiff1d(data.database, data.train)
    relevant = data.labels[data.query], data.labels[new]
    means = []
    for asked, searched in (("text", "image"), ("image", "text")):
        queries = model.encode(data.views[asked][data.query], view=asked)
        database = model.encode(data.views[searched][new], view=searched)
        means.append(average_precision(queries, database, relevant, k=50).mean())
    return float(np.mean(means))


@pytest.mark.slow
def test_short_codes_gain_and_long_ones_lose_little(made):
    train = made.views.rows(made.train)
    plain = FuseHash(n_bits=128, random_state=0, **UNTUNED).fit(train)
    nested = FuseHash(n_bits=128, nested=(16, 32), random_state=0, **UNTUNED).fit(train)
    separate = FuseHash(n_bits=16, random_state=0, **UNTUNED).fit(train)
    assert quality(nested.cut(16), made) > quality(plain.cut(16), made) + 0.03
    assert quality(nested.cut(16), made) > quality(separate, made) - 0.03
    assert quality(nested, made) > quality(plain, made) - 0.02


def test_a_nested_model_is_cut_and_saved(made, tmp_path):
    train, new = made.views.rows(made.train), made.views.rows(made.query)
    model = FuseHash(
        n_bits=32, nested=(16, 8), random_state=0, n_rotation_steps=3, n_anchors=60, n_kernel_anchors=60, **UNTUNED
    ).fit(train)
    assert model.cut(16).nested == (8,)
    assert model.cut(8).nested is None
    model.cut(16).save(tmp_path / "m")
    loaded = fusehash.load(tmp_path / "m")
    assert list(loaded.nested) == [8]
    assert np.array_equal(loaded.encode_fused(new), model.encode_fused(new)[:, :2])
