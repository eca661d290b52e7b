"""Codes of items in a frame of fewer directions than bits: the best bits for float queries, instead of signs.

A row x has the projections p = F'x on a tight frame F (k, n_bits) with k < n_bits, and a query q scores its code b by
<b, F'q> = <Fb, q>. So the code stands for the direction Fb, and the best one is

    b = argmax <b, p>^2 / |Fb|^2,    |Fb|^2 = (n_bits / k) b'Pb,    P = F'F k / n_bits: the projector on the rows of F

of which sgn(p) is only a first guess where the frame has more columns than directions. From there, single bits are
turned, one after the other and a few times over, where that makes the angle smaller.

Codes that are compared with codes by Hamming distance are better as signs: there, each bit speaks for itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.numerics.compiled import compiled
from fusehash.views import Floats

SWEEPS = 4  # a fifth one hardly turns bits
MAX_BITS = 1024  # longer codes keep nearly all of the ranking by their signs; the search grows with the square


def projector_of(weights: dict[str, Floats], rank: int) -> Floats:
    """P, from the maps of all views to bits, the rows of which are in the space of the rows of F."""
    grams = [W.T @ W for W in weights.values()]
    total = np.sum([G / max(float(np.trace(G)), np.finfo(float).tiny) for G in grams], axis=0)
    directions = np.linalg.eigh(total)[1][:, ::-1][:, :rank]
    return np.ascontiguousarray(directions @ directions.T)


def nearest_bits(projections: Floats, projector: Floats) -> Floats:
    """b of every row, as -1 and 1."""
    p = np.ascontiguousarray(projections, dtype=np.float64)
    B = np.where(p > 0.0, 1.0, -1.0)
    turn_bits(p, B @ projector, B, projector, SWEEPS)
    return B


@compiled(boundscheck=False, error_model="numpy")
def turn_bits(projections: Any, projected: Any, signs: Any, projector: Any, n_sweeps: int) -> None:
    """Turn bits in `signs`; `projected` is their product with the projector."""
    n_bits = projections.shape[1]
    for i in range(len(projections)):
        p, g, b = projections[i], projected[i], signs[i]
        product, square = 0.0, 0.0
        for j in range(n_bits):
            product += p[j] * b[j]
            square += g[j] * b[j]
        for _ in range(n_sweeps):
            has_turned = False
            for j in range(n_bits):
                new_product = product - 2.0 * p[j] * b[j]
                new_square = square - 4.0 * b[j] * g[j] + 4.0 * projector[j, j]
                # A little more, so that rounding errors turn no bit back and forth.
                limit = product * product * new_square * (1.0 + 1e-9)
                if new_product > 0.0 and new_product * new_product * square > limit:
                    step = 2.0 * b[j]
                    for other in range(n_bits):
                        g[other] -= step * projector[j, other]
                    b[j] = -b[j]
                    product, square, has_turned = new_product, new_square, True
            if not has_turned:
                break
