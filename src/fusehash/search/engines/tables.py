"""Multi-index hashing: exact search that looks only where near codes can be (Norouzi, Punjani and Fleet, 2012).

Cut every code into m substrings. Two codes at distance r agree in at least one substring up to r // m bits, so it is
enough to look up, in one table a substring, what lies that close to the query's substring, and to compare those whole
codes. Radii are tried upwards: step r looks up distance r // m in table r % m, after which every code at distance r or
less has been seen, and the search stops as soon as k of them have.

This wins where near codes exist (duplicates, clusters, learned codes) and the database is large; among codes that are
all far apart it looks nearly everywhere. A query whose cost passes a budget is given up, and the scan answers it.
The tables take 4 bytes a code and table, and are built only by the engines that are asked for by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.search.engines import scan
from fusehash.search.engines.compiled import Kernel, part
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.engines.vector import bit_count

#: As in kernel.py.
SOURCES = "ae661f4232de6321"

_SHIFT = 40  # a key is distance << 40 | position
_LONGEST = 20  # bits of a substring: a table of a million starts


def table_count(codes: Codes) -> int:
    """Substrings of about log2(n) bits: as many values as there are codes, so that a look-up finds about one."""
    return -(-codes.shape[1] * 8 // min(_LONGEST, max(1, int(np.log2(max(2, len(codes)))))))


class Tables:
    """Positions of all codes by substring, one table a substring: ``order[starts[s] : starts[s + 1]]`` have value s."""

    def __init__(self, codes: Codes) -> None:
        n_bits, count = codes.shape[1] * 8, table_count(codes)
        self.cuts = np.array([n_bits * i // count for i in range(count + 1)], np.int64)
        self.order = np.empty((count, len(codes)), np.uint32)
        self.bases = np.concatenate(([0], np.cumsum((1 << np.diff(self.cuts)) + 1)))
        self.starts = np.zeros(self.bases[-1], np.int64)
        for i in range(count):
            own = self.starts[self.bases[i] : self.bases[i + 1]]
            _fill(codes, self.cuts[i], self.cuts[i + 1], own, self.order[i])

    @property
    def nbytes(self) -> int:
        return self.order.nbytes + self.starts.nbytes


def top_k(
    tables: Tables, codes: Codes, queries: Codes, k: int, *, budget: int, threads: int | None = None
) -> tuple[Distances, Ints, int]:
    """As `fusehash.search.engines.scan.top_k`, and how many queries the scan had to answer."""
    distances, positions = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.int64)
    given_up = 0
    for block, counts, keys in _search(tables, codes, queries, k, -1, budget, threads):
        answered = counts >= 0
        distances[block][answered] = (keys >> _SHIFT).reshape(-1, k)
        positions[block][answered] = (keys & ((1 << _SHIFT) - 1)).reshape(-1, k)
        left = np.flatnonzero(~answered)
        given_up += len(left)
        if len(left):
            rest = scan.top_k(codes, queries[block][left], k, threads=threads)
            distances[block][left], positions[block][left] = rest
    return distances, positions, given_up


def within(
    tables: Tables, codes: Codes, queries: Codes, radius: int, *, budget: int, threads: int | None = None
) -> tuple[Ints, Distances, Ints] | None:
    """As `fusehash.search.engines.scan.within`, or None where a query passed the budget."""
    parts = _search(tables, codes, queries, 0, min(radius, codes.shape[1] * 8), budget, threads)
    counts = np.concatenate([part[1] for part in parts])
    if np.any(counts < 0):
        return None
    keys = np.concatenate([part[2] for part in parts])
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return offsets, (keys >> _SHIFT).astype(np.int32), keys & ((1 << _SHIFT) - 1)


def _search(
    tables: Tables, codes: Codes, queries: Codes, k: int, radius: int, budget: int, threads: int | None
) -> list[tuple[slice, Ints, Ints]]:
    """(block of queries, results a query or -1 where given up, their keys) for all blocks, in order."""
    word = np.uint64 if codes.shape[1] % 8 == 0 else np.uint8
    blocks = scan.blocks(len(queries), 512, threads)
    results: list[Any] = [None] * len(blocks)

    def look(i: int) -> None:
        asked = np.ascontiguousarray(queries[blocks[i]])
        counts = np.empty(len(asked), np.int64)
        keys = _look_up(
            codes, codes.view(word), asked, asked.view(word), tables.cuts, tables.bases, tables.starts, tables.order,
            k, radius, budget, counts,
        )  # fmt: skip
        results[i] = blocks[i], counts, keys

    scan.run([lambda i=i: look(i) for i in range(len(blocks))], threads)  # type: ignore[misc]
    return results


@part
def _substring(code: Any, first: int, last: int) -> int:
    """Bits ``first`` to ``last`` of a code as an integer."""
    value = np.int64(0)
    for byte in range(first // 8, (last + 7) // 8):
        value |= np.int64(code[byte]) << np.int64(8 * (byte - first // 8))
    return (value >> np.int64(first % 8)) & ((np.int64(1) << np.int64(last - first)) - 1)


@Kernel
def _fill(codes: Any, first: int, last: int, starts: Any, order: Any) -> None:
    """Sort positions by substring; a counting sort, so that equal ones stay in order."""
    for i in range(len(codes)):
        starts[_substring(codes[i], first, last) + 1] += 1
    for s in range(1, len(starts)):
        starts[s] += starts[s - 1]
    free = starts.copy()
    for i in range(len(codes)):
        s = _substring(codes[i], first, last)
        order[free[s]] = i
        free[s] += 1


@part
def _next_combination(bits: int) -> int:
    """The next larger integer with as many ones (Gosper)."""
    lowest = bits & -bits
    carried = bits + lowest
    return carried | (((bits ^ carried) >> 2) // lowest)


@Kernel
def _look_up(codes: Any, words: Any, queries: Any, query_words: Any, cuts: Any, bases: Any, starts: Any, order: Any,
             k: int, radius: int, budget: int, counts: Any) -> Any:  # fmt: skip
    """Keys of the results of all queries, one after the other, sorted; how many each has in ``counts``.

    With ``radius`` -1 the nearest ``k``, else all within the radius. -1 results mean: given up, past the budget.
    """
    n_tables, n_bits = len(cuts) - 1, codes.shape[1] * 8
    seen = np.zeros(len(codes) // 8 + 1, np.uint8)
    keys = np.empty(256, np.int64)  # of the present query
    out, used = np.empty(max(256, len(queries) * k), np.int64), 0
    histogram = np.empty(n_bits + 1, np.int64)
    for q in range(len(queries)):
        found, cost, done = 0, 0, False
        histogram[:] = 0
        for r in range(n_bits + 1 if radius < 0 else radius + 1):
            table, distance = r % n_tables, r // n_tables
            width = cuts[table + 1] - cuts[table]
            if distance <= width:
                value = _substring(queries[q], cuts[table], cuts[table + 1])
                flips = (np.int64(1) << np.int64(distance)) - 1
                while flips < np.int64(1) << np.int64(width):
                    spot = bases[table] + (value ^ flips)
                    cost += 1 + starts[spot + 1] - starts[spot]
                    for i in range(starts[spot], starts[spot + 1]):
                        row = np.int64(order[table, i])
                        if seen[row >> 3] >> np.uint8(row & 7) & np.uint8(1):
                            continue
                        seen[row >> 3] |= np.uint8(1) << np.uint8(row & 7)
                        d = np.int64(0)
                        for w in range(words.shape[1]):
                            d += np.int64(bit_count(words[row, w] ^ query_words[q, w]))
                        if found == len(keys):
                            keys = np.concatenate((keys, np.empty(len(keys), np.int64)))
                        keys[found] = d << np.int64(_SHIFT) | row
                        found += 1
                        histogram[d] += 1
                    if flips == 0 or cost > budget:
                        break
                    flips = _next_combination(flips)
            if cost > budget:
                break
            done = histogram[: r + 1].sum() >= k if radius < 0 else r == radius
            if done:
                break
        for i in range(found):
            row = keys[i] & ((np.int64(1) << np.int64(_SHIFT)) - 1)
            seen[row >> 3] = 0
        counts[q] = -1
        if done:
            reach = r + 1
            kept = np.empty(histogram[:reach].sum(), np.int64)
            j = 0
            for i in range(found):
                if keys[i] >> np.int64(_SHIFT) < reach:
                    kept[j] = keys[i]
                    j += 1
            kept.sort()
            counts[q] = k if radius < 0 else len(kept)
            while used + counts[q] > len(out):
                out = np.concatenate((out, np.empty(len(out), np.int64)))
            out[used : used + counts[q]] = kept[: counts[q]]
            used += counts[q]
    return out[:used]
