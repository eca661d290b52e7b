"""Connected groups of near codes.

Two codes are in one group if a chain of pairs within the radius leads from one to the other. Equal codes
are joined first and compared once, so that many copies of one code cost no more than one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.search.engines.kernel import entry, part
from fusehash.search.near.pairs import near_pairs
from fusehash.search.near.passes import Words, as_words, bucket_bits, group
from fusehash.search.rows import Ints, Threads


def near_groups(codes: Codes, radius: int, threads: Threads = None) -> list[Ints]:
    """Positions of the codes of every group of two or more, ascending; the largest group first, ties by position."""
    words = as_words(codes)
    parents = _join_equal(words)
    distinct = np.flatnonzero(parents == np.arange(len(parents)))
    different = codes if len(distinct) == len(codes) else codes[distinct]
    if radius > 0:
        for first, second, _ in near_pairs(different, radius, threads):
            _join(parents, distinct[first], distinct[second])
    _flatten(parents)
    order = np.argsort(parents, kind="stable")
    starts = np.flatnonzero(np.diff(parents[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    chosen = np.flatnonzero(sizes > 1)
    chosen = chosen[np.argsort(-sizes[chosen], kind="stable")]
    return [order[start : start + size] for start, size in zip(starts[chosen], sizes[chosen], strict=True)]


def _join_equal(words: Words) -> Ints:
    """For each code the first position of an equal one."""
    starts = np.empty((1 << bucket_bits(len(words))) + 1, np.int64)
    heads, positions = np.empty(len(words), np.uint64), np.empty(len(words), np.uint32)
    everything = np.full(words.shape[1], np.uint64(0xFFFFFFFFFFFFFFFF))
    group(words, everything, 0, starts, heads, positions)
    parents = np.arange(len(words))
    _link_equal(words, heads, positions, starts, parents)
    return parents


@entry
def _link_equal(words: Any, heads: Any, positions: Any, starts: Any, parents: Any) -> None:
    for g in range(len(starts) - 1):
        kept = starts[g]  # different codes of the group, moved to its front
        for i in range(starts[g], starts[g + 1]):
            a, is_new = np.int64(positions[i]), True
            for j in range(starts[g], kept):
                if heads[j] == heads[i]:
                    b, equal = np.int64(positions[j]), True
                    for w in range(words.shape[1]):
                        equal &= words[a, w] == words[b, w]
                    if equal:
                        parents[a], is_new = b, False
                        break
            if is_new:
                heads[kept], positions[kept] = heads[i], positions[i]
                kept += 1


@part
def _root(parents: Any, i: int) -> int:
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@entry
def _join(parents: Any, first: Any, second: Any) -> None:
    """Join the groups of pairs; the lowest position of a group is its root."""
    for i in range(len(first)):
        a, b = _root(parents, first[i]), _root(parents, second[i])
        if a < b:
            parents[b] = a
        elif b < a:
            parents[a] = b


@entry
def _flatten(parents: Any) -> None:
    for i in range(len(parents)):
        parents[i] = _root(parents, i)
