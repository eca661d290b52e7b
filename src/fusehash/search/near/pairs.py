"""All pairs of codes within a radius, exactly, as a stream of blocks. passes.py decides which codes are compared.

A group is compared by the kernel of the scan (`mark_closer`), one 64-bit word per code: a lower bound of the distance.
The few pairs that it leaves are compared whole. A pair whose codes share a group in several passes is reported in the
first one only. Memory: 12 to 20 bytes per code for the pass at hand, and a few blocks of results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.numerics.compiled import bit_count
from fusehash.search.engines.kernel import LANES, entry, lowest_bit, mark_closer, part
from fusehash.search.engines.scan import workers
from fusehash.search.near.passes import Passes, Words, as_words, bucket_bits, group, plan
from fusehash.search.rows import Distances, Ints, Threads

PairBlock = tuple[Ints, Ints, Distances]  # positions of the first and the second code of each pair, and its distance

_CHUNK = 4096  # codes that stay in the first-level cache while others are compared with them
_CAPACITY = 1 << 17  # pairs that a piece of work may return at a time
_BLOCK = 1 << 15  # pairs per block, at least, except in the last one
_PIECE = 1 << 25  # comparisons of a piece of work, about
_LANES_64 = LANES[64]
_FEW = 6  # codes that are compared one by one


def near_pairs(codes: Codes, radius: int, threads: Threads = None, passes: Passes | None = None) -> Iterator[PairBlock]:
    """Yield all pairs of positions of codes at most `radius` apart, the lower position first, each pair once.

    Pairs are in no particular order, but in the same one for any number of threads.
    """
    words, radius = as_words(codes), min(radius, codes.shape[1] * 8)
    if len(words) < 2:
        return
    passes = passes or plan(words, codes.shape[1] * 8, radius)
    waiting: list[PairBlock] = []
    for block in _blocks(words, radius, passes, workers(threads)):
        waiting.append(block)
        if sum(len(first) for first, _, _ in waiting) >= _BLOCK:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[PairBlock]) -> PairBlock:
    first, second, distances = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    return first, second, distances


def _blocks(words: Words, radius: int, passes: Passes, threads: int) -> Iterator[PairBlock]:
    """The pairs of all passes. Pieces of work are done by several threads and come back in order."""
    padded = len(words) + _LANES_64  # vectors are read past the last code
    heads, positions = np.zeros(padded, np.uint64), np.empty(len(words), np.uint32)
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[tuple[PairBlock, Any]]] = deque()

        def work(number: int, starts: Ints, head: int, state: Ints) -> tuple[PairBlock, Any]:
            results = np.empty(_CAPACITY, np.int64), np.empty(_CAPACITY, np.int64), np.empty(_CAPACITY, np.int32)
            arranged = heads, positions, starts
            used = _compare(words, arranged, passes.masks, number, radius, state, *results, (np.uint64(0),))
            first, second, distances = results
            block = first[:used].copy(), second[:used].copy(), distances[:used].copy()
            return block, (None if state[0] == state[1] else (number, starts, head, state))

        def finished() -> Iterator[PairBlock]:
            block, rest = running.popleft().result()
            if rest is not None:  # its results were full: go on where it stopped
                running.appendleft(pool.submit(work, *rest))
            if len(block[0]):
                yield block

        try:
            for number, mask in enumerate(passes.masks):
                starts = np.empty((1 << (bucket_bits(len(words)) if mask.any() else 0)) + 1, np.int64)
                head = int(np.argmin(np.bitwise_count(mask)))  # the word with the most bits that may differ
                group(words, mask, head, starts, heads[: len(words)], positions)
                for state in _pieces(starts):
                    running.append(pool.submit(work, number, starts, head, state))
                    if len(running) >= 2 * threads:
                        yield from finished()
                while running:  # the next pass arranges the codes again
                    yield from finished()
        finally:
            for future in running:
                future.cancel()


def _pieces(starts: Ints) -> Iterator[Ints]:
    """Cut a pass into pieces of work: (first group, last group, first chunk in it, code in it, last chunk in it)."""
    sizes = np.diff(starts)
    cost = np.cumsum(sizes * (sizes - 1) // 2 + 4 * sizes)
    cuts = np.searchsorted(cost, np.arange(_PIECE, cost[-1], _PIECE)) + 1
    bounds = np.unique(np.concatenate(([0], cuts, [len(sizes)])))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        large = last - 1  # only the last group of a piece can be much larger than a piece
        if sizes[large] <= 2 * _CHUNK:
            yield np.array([first, last, 0, 0, 1 << 62])
            continue
        if first < large:
            yield np.array([first, large, 0, 0, 1 << 62])
        begin = 0
        while begin < sizes[large]:  # a chunk is compared with all codes before it
            n_chunks = max(1, _PIECE // (_CHUNK * (begin + _CHUNK)))
            yield np.array([large, large + 1, begin, 0, begin + n_chunks * _CHUNK])
            begin += n_chunks * _CHUNK


@part
def _is_first(words: Any, a: int, b: int, masks: Any, number: int) -> Any:
    """Whether two codes agree under the mask of this pass and of no earlier one."""
    for p in range(number + 1):
        agree = True
        for w in range(words.shape[1]):
            if (words[a, w] ^ words[b, w]) & masks[p, w]:
                agree = False
                break
        if agree:
            return p == number
    return False


@part
def _take(words: Any, a: int, b: int, masks: Any, number: int, radius: int, used: int, first: Any, second: Any,
          distances: Any) -> int:  # fmt: skip
    """Write a pair if it is within the radius and belongs to this pass; how many have been written."""
    d = np.int64(0)
    for w in range(words.shape[1]):
        d += np.int64(bit_count(words[a, w] ^ words[b, w]))
        if d > radius:
            return used
    if not _is_first(words, a, b, masks, number):
        return used
    first[used], second[used], distances[used] = a, b, d
    return used + 1


@entry
def _compare(
    words: Any, arranged: Any, masks: Any, number: int, radius: int, state: Any, first: Any, second: Any,
    distances: Any, word: Any,
) -> int:  # fmt: skip
    """Compare the codes of some groups with each other, from where `state` is; the number of pairs written.

    `arranged` is (heads, positions, starts) of `group`, with room for a vector after the last head. Returns early if a
    chunk might not fit into the results; `state` says where to go on, and is at its end when everything was compared.
    """
    heads, positions, starts = arranged
    marks = np.empty((_CHUNK // _LANES_64 + 2, 2), np.int64)
    base, mark, used, limit = np.intp(heads.ctypes.data), np.intp(marks.ctypes.data), 0, radius + 1
    while state[0] < state[1]:
        begin, end = starts[state[0]], starts[state[0] + 1]
        while begin + state[2] < end and state[2] < state[4]:
            chunk, stop = begin + state[2], min(end, begin + state[2] + _CHUNK)
            while begin + state[3] + 1 < stop:
                i = begin + state[3]
                low = max(i + 1, chunk)
                count = stop - low
                if used + count > len(first):
                    return used
                a = np.int64(positions[i])
                if count <= _FEW:
                    for j in range(low, stop):
                        if np.int64(bit_count(heads[i] ^ heads[j])) < limit:
                            used = _take(words, a, np.int64(positions[j]), masks, number, radius, used, first, second,
                                         distances)  # fmt: skip
                else:
                    rounded = -(-count // _LANES_64) * _LANES_64
                    (pairs,) = mark_closer(base + low * 8, None, 0, rounded, (base + i * 8,), (limit,), (mark,), word)
                    if pairs and marks[pairs - 1, 1] + _LANES_64 > count:
                        marks[pairs - 1, 0] &= (np.int64(1) << (count - marks[pairs - 1, 1])) - 1
                    for pair in range(pairs):
                        left = np.uint64(marks[pair, 0])
                        while left != 0:
                            j = low + marks[pair, 1] + lowest_bit(left)
                            left &= left - np.uint64(1)
                            used = _take(words, a, np.int64(positions[j]), masks, number, radius, used, first, second,
                                         distances)  # fmt: skip
                state[3] += 1
            state[2] += _CHUNK
            state[3] = 0
        state[0] += 1
        state[2], state[3] = 0, 0
    return used
