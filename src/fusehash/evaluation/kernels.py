"""Compiled loops over database items (distances, tie groups, shared labels) and, at the end, over queries.

A ranking is `levels`: one int32 per database item, smaller is nearer, equal is tied. A metric needs only a histogram
over levels, so that nothing is sorted and memory per query is a few arrays of the database's size.
Words are stored transposed, (words, n), so that the inner loop runs along items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import unpack
from fusehash.evaluation.tie_kernels import rank_cut_ap
from fusehash.numerics.compiled import bit_count, compiled

BYTE_SIGNS = unpack(np.arange(256, dtype=np.uint8)[:, None], 8).astype(np.float64)  # the -1 and +1 behind every byte


def to_words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed (n, bytes) as transposed 64-bit words (ceil(bytes / 8), n); the padding is zero."""
    n, width = packed.shape
    padded = np.zeros((n, max(1, -(-width // 8)) * 8), dtype=np.uint8)
    padded[:, :width] = packed
    return np.ascontiguousarray(padded.view(np.uint64).T)


@compiled()
def hamming_levels(query: Any, database: Any, out: Any) -> None:
    """out[i] = Hamming distance of the query (words,) to item i of the database (words, n)."""
    n_words, n = database.shape
    for i in range(n):
        out[i] = bit_count(query[0] ^ database[0, i])
    for w in range(1, n_words):
        for i in range(n):
            out[i] += bit_count(query[w] ^ database[w, i])


@compiled()
def asymmetric_distances(projection: Any, codes: Any, out: Any) -> None:
    """out[i] = -<p, b_i> with b_i in {-1, +1} behind packed codes (n, bytes); equal codes get equal distances."""
    n, width = codes.shape
    table = np.zeros((width, 256))
    for byte in range(width):
        for value in range(256):
            total = 0.0
            for bit in range(min(8, projection.size - 8 * byte)):
                total -= BYTE_SIGNS[value, bit] * projection[8 * byte + bit]
            table[byte, value] = total
    for i in range(n):
        total = 0.0
        for byte in range(width):
            total += table[byte, codes[i, byte]]
        out[i] = total


@compiled()
def break_ties_in_order(levels: Any, n_levels: Any) -> None:
    """Replace every level by the item's rank 0..n-1, ties in database order (a counting sort, in place)."""
    start = np.zeros(n_levels + 1, dtype=np.int64)
    for level in levels:
        start[level + 1] += 1
    for j in range(n_levels):
        start[j + 1] += start[j]
    for i in range(levels.size):
        level = levels[i]
        levels[i] = start[level]
        start[level] += 1


@compiled()
def group_sums(levels: Any, values: Any, sizes: Any, sums: Any) -> None:
    """sizes[l] += items at level l, sums[l] += their values."""
    for i in range(levels.size):
        level = levels[i]
        sizes[level] += 1
        sums[level] += values[i]


@compiled()
def shared_labels(query_masks: Any, masks: Any, count: Any, out: Any) -> None:
    """out[q, i] += labels that the sets (words, nq) and (words, n) share; without `count` 1 for any."""
    n_words, n = masks.shape
    for q in range(query_masks.shape[1]):
        for w in range(n_words):
            word = query_masks[w, q]
            if word != 0 and count:
                for i in range(n):
                    out[q, i] += bit_count(word & masks[w, i])
            elif word != 0:
                for i in range(n):
                    out[q, i] |= (word & masks[w, i]) != 0


@compiled()
def partner_position(levels: Any, partner: Any) -> Any:
    """Counts of items nearer than the partner, tied with it and before it in row order, tied with it (itself too)."""
    level = levels[partner]
    nearer, tied_before, tied = 0, 0, 0
    for i in range(levels.size):
        if levels[i] < level:
            nearer += 1
        elif levels[i] == level:
            tied += 1
            tied_before += i < partner
    return nearer, tied_before, tied


@compiled()
def ap_of_queries(
    queries: Any, words: Any, n_levels: Any, relevant: Any, k: Any, stable: Any, values: Any, has_relevant: Any
) -> None:
    """AP@k of every query (a row of words each) by Hamming distance; ties count as their mean, or in database order."""
    n = words.shape[1]
    n_groups = n if stable else n_levels
    levels = np.empty(n, np.int32)
    sizes, hits = np.empty(n_groups, np.int64), np.empty(n_groups, np.int64)
    for q in range(queries.shape[0]):
        hamming_levels(queries[q], words, levels)
        if stable:
            break_ties_in_order(levels, n_levels)
        sizes[:] = 0
        hits[:] = 0
        group_sums(levels, relevant[q], sizes, hits)
        has_relevant[q] = hits.sum() > 0
        values[q] = rank_cut_ap(sizes, hits, k, 0)


@compiled()
def partners_of_queries(queries: Any, words: Any, first: Any, positions: Any) -> None:
    """`partner_position` of queries whose partners start at item `first`, into the columns of (3, queries)."""
    levels = np.empty(words.shape[1], np.int32)
    for q in range(queries.shape[0]):
        hamming_levels(queries[q], words, levels)
        positions[:, q] = partner_position(levels, first + q)
