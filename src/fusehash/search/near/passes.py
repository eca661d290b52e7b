"""How to find all pairs within a radius without comparing all codes: passes over groups of codes that agree somewhere.

Cut every code into p parts. Two codes within radius r differ in at most r parts, so they agree in at least c = p - r of
them. One pass takes one choice of c parts and compares only codes that agree there; all choices together find every
pair. A larger c means more passes over smaller groups. With c = 0 a single pass compares everything, which is best for
few codes or a large radius.

What a plan costs depends on the codes: clustered codes agree more often than random ones. So the plans are compared by
counting, on a sample of the codes, how many pairs a pass would compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes, pack
from fusehash.search.engines.kernel import entry, part

Words = NDArray[np.uint64]
_MOST_AGREEING, _MOST_PASSES = 4, 500
_SAMPLE = 1 << 15  # codes on which plans are compared
_SAMPLED_PASSES = 5
_SAMPLE_BUCKETS = 20  # bits; chance collisions are a millionth of all pairs
_PASS_NS, _PAIR_NS = 30.0, 0.4  # to put a code into its group; to compare two codes


@dataclass(frozen=True)
class Passes:
    """A plan: `masks[p]` has ones where the codes of a group agree in pass p."""

    masks: Words  # (passes, words)

    def __len__(self) -> int:
        return len(self.masks)


def as_words(codes: Codes) -> Words:
    """Codes as rows of 64-bit words, padded with zeros if they do not fill them; otherwise a view."""
    n_bytes = codes.shape[1]
    if n_bytes % 8 == 0 and codes.ctypes.data % 8 == 0:
        return codes.view(np.uint64)
    padded = np.zeros((len(codes), -(-n_bytes // 8) * 8), np.uint8)
    padded[:, :n_bytes] = codes
    return padded.view(np.uint64)


def plan(words: Words, n_bits: int, radius: int) -> Passes:
    """The passes that are expected to take the least time."""
    sample = words[:: max(1, len(words) // _SAMPLE)]
    return min(_plans(words.shape[1], n_bits, radius), key=lambda passes: _nanoseconds(passes, sample, len(words)))


def _plans(n_words: int, n_bits: int, radius: int) -> Iterator[Passes]:
    yield Passes(np.zeros((1, n_words), np.uint64))
    for agreeing in range(1, _MOST_AGREEING + 1):
        n_parts = radius + agreeing
        if n_parts > n_bits or comb(n_parts, agreeing) > _MOST_PASSES:
            return
        parts = [_mask(n_words, n_bits * i // n_parts, n_bits * (i + 1) // n_parts) for i in range(n_parts)]
        yield Passes(np.array([np.bitwise_or.reduce(chosen) for chosen in combinations(parts, agreeing)]))


def _mask(n_words: int, first: int, last: int) -> Words:
    """Ones from bit `first` to bit `last` of a code."""
    ones = np.zeros((1, n_words * 64), np.int8)
    ones[:, first:last] = 1
    return pack(ones).view(np.uint64)[0]


def _nanoseconds(passes: Passes, sample: Words, count: int) -> float:
    """Expected time of a plan, from a few of its passes."""
    chosen = passes.masks[np.unique(np.linspace(0, len(passes) - 1, _SAMPLED_PASSES).astype(int))]
    pairs = np.mean([_colliding_pairs(sample, mask, _SAMPLE_BUCKETS) for mask in chosen])
    scale = count * (count - 1) / max(1, len(sample) * (len(sample) - 1))
    return len(passes) * (_PASS_NS * count * bool(chosen.any()) + _PAIR_NS * float(pairs) * scale)


def bucket_bits(count: int) -> int:
    """Bits of the number of a group: about as many groups as codes."""
    return max(1, min(28, int(count).bit_length()))


@part
def _bucket(words: Any, i: int, mask: Any, bits: int) -> Any:
    """The group of a code: a hash of its bits under the mask. Codes that agree there share a group."""
    value = np.uint64(0)
    for w in range(len(mask)):
        value = (value ^ (words[i, w] & mask[w])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    value *= np.uint64(0xD6E8FEB86659FD93)
    return np.int64(value >> np.uint64(64 - bits))


@entry
def _colliding_pairs(words: Any, mask: Any, bits: int) -> Any:
    sizes = np.zeros(1 << bits, np.uint32)
    pairs = np.int64(0)
    for i in range(len(words)):
        bucket = _bucket(words, i, mask, bits)
        pairs += sizes[bucket]
        sizes[bucket] += 1
    return pairs


@entry
def group(words: Any, mask: Any, head: int, starts: Any, heads: Any, positions: Any) -> None:
    """Arrange codes by group, in order of position within each: a counting sort.

    Group g is from `starts[g]` to `starts[g + 1]`; `len(starts) - 1` is a power of two. `positions` receives positions
    of codes and `heads` their word number `head`.
    """
    bits = 0
    while np.int64(1) << bits < len(starts) - 1:
        bits += 1
    starts[:] = 0
    for i in range(len(words)):
        starts[_bucket(words, i, mask, bits) + 1] += 1
    for g in range(1, len(starts)):
        starts[g] += starts[g - 1]
    for i in range(len(words)):
        bucket = _bucket(words, i, mask, bits)
        slot = starts[bucket]
        starts[bucket] += 1
        heads[slot], positions[slot] = words[i, head], i
    for g in range(len(starts) - 1, 0, -1):  # every start has moved to the next one
        starts[g] = starts[g - 1]
    starts[0] = 0
