"""Nested codes: a rotation whose first bits are good codes by themselves, so that one training serves several lengths.

ITQ over all r directions mixes all of them into every bit, so that the first 16 of 128 bits are no 16-bit code of the
method. For lengths l_1 < l_2 < ... < l_g (the last is n_bits, l_0 = 0), the bits of group i come from a separate
rotation of the leading l_i directions:

    R_i: ITQ rotation of Y[:, :l_i],     bits l_(i-1) .. l_i - 1 = sgn(Y[:, :l_i] R_i[:, :l_i - l_(i-1)])

The first group is the code of that length. Every later group sees the leading directions again: without them, the
weakest directions would get as many bits as the strongest. Every length costs the longest code a little, because its
groups overlap; for most uses, name only the shortest length that you need (docs/methods.md has the comparison).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fusehash.errors import ParameterError
from fusehash.numerics.arrays import Array, namespace, precision, zeros
from fusehash.numerics.rotation import learned_rotations
from fusehash.parameters import multiple_of, sequence


def check_nested(owner: str, nested: Any, n_bits: int) -> tuple[int, ...]:
    """The lengths below n_bits, ascending: multiples of 8, all different. None is no length."""
    if nested is None:
        return ()
    expected = f"different multiples of 8 below n_bits ({n_bits}), as in [16, 32]"
    sequence(multiple_of(8, n_bits - 8), expected).check(owner, "nested", nested)
    if len(set(nested)) != len(nested):
        raise ParameterError(owner, "nested", expected, nested)
    return tuple(sorted(map(int, nested)))


def nested_rotations(
    Y: Array, n_bits: int, nested: tuple[int, ...], rng: np.random.Generator, n_steps: int, softness: float = 0.0
) -> Array:
    """(r, n_bits): the columns of every group side by side; without `nested`, those of `learned_rotations`."""
    r, concat = Y.shape[1], namespace(Y).concat
    parts = []
    for start, stop in pairwise((0, *nested, n_bits)):
        seen = min(stop, r)
        R = learned_rotations(Y[:, :seen], stop - start, rng, n_steps, softness)
        parts.append(R if seen == r else concat([R, zeros((r - seen, stop - start), Y, precision(Y))], axis=0))
    return parts[0] if len(parts) == 1 else concat(parts, axis=1)
