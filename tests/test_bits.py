"""Signs and packed codes: the bit order is part of the public surface."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import chisquare

from fusehash import bits
from fusehash.errors import DataError, FusehashError

SIGNS = arrays(np.int8, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.sampled_from([-1, 1]))


@given(SIGNS)
@settings(deadline=None)
def test_unpack_undoes_pack_for_any_number_of_bits(signs):
    assert np.array_equal(bits.unpack(bits.pack(signs), signs.shape[1]), signs)


@given(SIGNS)
@settings(deadline=None)
def test_bit_j_is_bit_j_mod_8_of_byte_j_div_8(signs):
    codes = bits.pack(signs)
    assert codes.shape == (signs.shape[0], bits.n_bytes(signs.shape[1]))
    for j in range(signs.shape[1]):
        assert np.array_equal((codes[:, j // 8] >> (j % 8)) & 1, signs[:, j] > 0)


def test_a_known_code():
    signs = -np.ones((1, 16))
    signs[0, [0, 3, 9]] = 1
    assert bits.pack(signs).tolist() == [[0b00001001, 0b00000010]]


def test_bits_beyond_the_last_are_zero():
    assert bits.pack(np.ones((1, 9))).tolist() == [[255, 1]]


def test_zero_is_packed_as_minus_one():
    assert bits.unpack(bits.pack(np.array([[0.0, -0.0, 1e-300, -1e-300]])), 4).tolist() == [[-1, -1, 1, -1]]


def test_booleans_and_nested_lists_pack_too():
    assert np.array_equal(bits.pack([[True, False]]), bits.pack([[1, -1]]))


def test_no_rows_give_no_codes():
    assert bits.pack(np.empty((0, 16))).shape == (0, 2)
    assert bits.unpack(np.empty((0, 2), np.uint8), 16).shape == (0, 16)


@pytest.mark.parametrize(("n_bits", "expected"), [(1, 1), (8, 1), (9, 2), (64, 8), (65, 9)])
def test_number_of_bytes(n_bits, expected):
    assert bits.n_bytes(n_bits) == expected


def test_unpacked_signs_are_small_integers():
    assert bits.unpack(np.zeros((2, 1), np.uint8), 8).dtype == np.int8


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_signs_that_are_no_matrix_are_refused(shape):
    with pytest.raises(DataError, match=r"^Signs must be a matrix \(n, n_bits\)\. Got an array of shape .* instead\.$"):
        bits.pack(np.ones(shape))


@pytest.mark.parametrize("codes", [np.zeros((2, 2), np.int64), np.zeros(4, np.uint8), np.zeros((2, 2)), [[1, 2]]])
def test_codes_of_another_type_or_shape_are_refused(codes):
    with pytest.raises(DataError, match=r"^Codes must be a uint8 matrix \(n, bytes\)\. Got .* of shape .* instead\.$"):
        bits.unpack(codes, 16)


@pytest.mark.parametrize("check", [bits.check_codes, lambda codes: bits.cut(codes, 8)])
def test_rows_of_unequal_length_are_refused(check):
    with pytest.raises(DataError, match=r"^Codes must be a uint8 matrix .*\. Got rows of unequal length instead\.$"):
        check([[1], [1, 2]])


def test_codes_of_another_length_are_refused():
    with pytest.raises(DataError, match=r"^Queries of 16 bits must have 2 bytes per row\. Got 3 instead\.$"):
        bits.check_codes(np.zeros((1, 3), np.uint8), 16, what="Queries")


def test_checked_codes_are_contiguous_and_equal():
    codes = np.arange(24, dtype=np.uint8).reshape(4, 6)[::2, ::2]
    checked = bits.check_codes(codes)
    assert checked.flags.c_contiguous
    assert np.array_equal(checked, codes)


def test_errors_are_also_value_errors():
    assert issubclass(DataError, ValueError)
    assert issubclass(DataError, FusehashError)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 1001])
def test_balanced_codes_have_every_bit_in_half_of_the_rows(n):
    signs = bits.unpack(bits.balanced(n, 24, np.random.default_rng(0)), 24)
    assert signs.shape == (n, 24)
    assert np.all(signs.sum(axis=0) == -(n % 2))
    assert n < 2 or len(np.unique(signs, axis=1).T) > 1


@pytest.mark.parametrize("n", [4, 5])
def test_no_balanced_column_is_likelier_than_another(n):
    rng = np.random.default_rng(0)
    columns = np.concatenate([bits.unpack(bits.balanced(n, 64, rng), 64).T for _ in range(400)])
    kinds, counts = np.unique(columns, axis=0, return_counts=True)
    assert len(kinds) == math.comb(n, n // 2)
    assert chisquare(counts).pvalue > 0.001


def test_ones_per_bit_counts_every_column():
    codes = np.random.default_rng(0).integers(0, 256, (300, 3), dtype=np.uint8)
    assert bits.ones_per_bit(codes).tolist() == (bits.unpack(codes, 24) > 0).sum(axis=0).tolist()
