"""Real-valued queries with PyTorch: exact scores, from one matrix product in double precision or from cascade.py.

With codes c in {-1, +1}^K and whole weights w, which have the signs of the query,

    score(w, c) = (sum |w_j| - <w, c>) / 2.

All numbers in between are whole and below 2^53, so the product is exact whatever the order of summation, and results
equal those of scores.py to the last bit. Devices without double precision (Apple) leave the search to the processor.
On CUDA with Triton, cascade.py finds the nearest without that matrix, and the product answers what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fusehash.bits import unpack_as
from fusehash.search.engines.torch import cascade
from fusehash.search.projections import Projections, Scores
from fusehash.search.rows import Ints

_CELLS = 1 << 24  # scores in memory at a time
_BITS = 1 << 24  # bits unpacked at a time
_PINNED = 1 << 24  # bytes of a result up to which it is copied through pinned memory


def top_k(resident: Any, queries: Projections, k: int, allowed: Any) -> tuple[Scores, Ints]:
    """Scores and positions (queries, k) of the nearest codes by (score, position)."""
    codes = resident.codes if allowed is None else resident.codes[allowed]
    answer = None
    if not cascade.missing(codes) and cascade.suits(len(codes), k):
        words = resident.words() if allowed is None else cascade.to_words(codes)
        answer = cascade.attempt(lambda: _by_cascade(words, codes, queries, k))
    scores, positions = _by_products(codes, queries, k) if answer is None else answer
    positions = positions if allowed is None else allowed[positions]
    return to_host(scores) * queries.steps[:, None], to_host(positions)


def to_host(array: Any) -> Any:
    """A tensor in NumPy; from CUDA through memory that the device writes to directly, which is kept for the next."""
    if not array.is_cuda or array.nbytes > _PINNED:
        return array.cpu().numpy()
    import torch

    pinned = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)
    pinned.copy_(array)
    return pinned.numpy().copy()


def _by_cascade(words: Any, codes: Any, queries: Projections, k: int) -> tuple[Any, Any]:
    """By the Triton kernels; queries for which they are not certain by products."""
    import torch

    weights = np.zeros((len(queries), 32 * words.shape[1]), np.int64)
    weights[:, : queries.weights.shape[1]] = queries.weights
    scores, positions, certain = cascade.weighted_top_k(words, torch.tensor(weights, device=words.device), k, _CELLS)
    scores = scores.to(torch.float64)
    rest = np.flatnonzero(~certain.cpu().numpy())
    if len(rest):
        chosen = Projections(queries.weights[rest], queries.steps[rest])
        scores[rest], positions[rest] = _by_products(codes, chosen, k)
    return scores, positions


def _by_products(codes: Any, queries: Projections, k: int) -> tuple[Any, Any]:
    """In double precision, block by block."""
    import torch

    nearest = []
    for rows in _blocks(len(queries), len(codes)):
        best = None
        for start, scores in _scores(codes, queries[rows], None):
            positions = torch.arange(start, start + scores.shape[1], device=scores.device).expand(scores.shape)
            if best is not None:
                scores, positions = torch.cat((best[0], scores), 1), torch.cat((best[1], positions), 1)
            best = _smallest(scores, positions, min(k, scores.shape[1]))
        nearest.append(best)
    scores, positions = (torch.cat([part[i] for part in nearest if part is not None]) for i in (0, 1))
    return scores, positions


def within(codes: Any, queries: Projections, radius: float, allowed: Any) -> tuple[Ints, Scores, Ints]:
    """Offsets, scores and positions of all codes whose score is at most `radius`."""
    import torch

    counts, all_scores, all_positions = [np.zeros(1, np.int64)], [np.empty(0)], [np.empty(0, np.int64)]
    for rows in _blocks(len(queries), len(codes) if allowed is None else len(allowed)):
        part = queries[rows]
        limits = torch.tensor(part.limits(radius), dtype=torch.float64, device=codes.device)[:, None]
        found = []
        for start, scores in _scores(codes, part, allowed):
            query, column = torch.nonzero(scores < limits, as_tuple=True)
            found.append((query, scores[query, column], column + start))
        query, values, positions = (torch.cat([piece[i] for piece in found]) for i in range(3))
        for i in (2, 1, 0):  # stable sorts, the most important key last
            order = torch.argsort((query, values, positions)[i], stable=True)
            query, values, positions = query[order], values[order], positions[order]
        counts.append(torch.bincount(query, minlength=len(part)).cpu().numpy())
        all_scores.append(values.cpu().numpy() * part.steps[query.cpu().numpy()])
        all_positions.append((positions if allowed is None else allowed[positions]).cpu().numpy())
    return np.cumsum(np.concatenate(counts)), np.concatenate(all_scores), np.concatenate(all_positions)


def _scores(codes: Any, queries: Projections, allowed: Any) -> Iterator[tuple[int, Any]]:
    """(first position, scores in steps) of one block of codes after the other."""
    import torch

    weights = torch.tensor(queries.weights, dtype=torch.float64, device=codes.device)
    total, n_bits = weights.abs().sum(dim=1, keepdim=True), weights.shape[1]
    n = len(codes) if allowed is None else len(allowed)
    width = max(1, min(_BITS // n_bits, _CELLS // len(queries)))
    for start in range(0, n, width):
        part = slice(start, min(start + width, n))
        block = codes[part] if allowed is None else codes[allowed[part]]
        yield start, (total - weights @ unpack_as(block, n_bits, "float64").T) / 2


def _smallest(scores: Any, positions: Any, k: int) -> tuple[Any, Any]:
    """The first k of every row by (score, column); positions ascend along the row where scores are equal."""
    import torch

    limit = torch.kthvalue(scores, k, dim=1, keepdim=True).values
    below, equal = scores < limit, scores == limit
    needed = k - below.sum(dim=1, keepdim=True)
    kept = below | (equal & (torch.cumsum(equal, dim=1) <= needed))  # k of every row
    scores, positions = scores[kept].reshape(-1, k), positions[kept].reshape(-1, k)
    order = torch.argsort(positions, dim=1)
    scores, positions = scores.gather(1, order), positions.gather(1, order)
    order = torch.argsort(scores, dim=1, stable=True)
    return scores.gather(1, order), positions.gather(1, order)


def _blocks(n_queries: int, n_codes: int) -> Iterator[slice]:
    height = max(1, min(n_queries, _CELLS // max(1, min(n_codes, _CELLS // 64))))
    for start in range(0, n_queries, height):
        yield slice(start, min(start + height, n_queries))
