"""The Triton kernels of cascade.py. Values past the last code are `PAD`, greater than any real one.

Nothing here has types: Triton reads annotations as code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-not-found,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl

_FAR = tl.constexpr(1 << 28)  # greater than any sum of 4096 weights of 14 bits


@triton.jit
def _signs(words, rows, n, n_words, first, N_WORDS: tl.constexpr):
    """N_WORDS words of some codes, from word `first` on, as rows of -1 and +1; missing bits are -1."""
    word = first + tl.arange(0, N_WORDS)
    exists = (rows[:, None] < n) & (word[None, :] < n_words)
    loaded = tl.load(words + rows[:, None] * n_words + word[None, :], mask=exists, other=0)
    bits = (loaded[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    return tl.reshape((bits * 2 - 1).to(tl.int8), (rows.shape[0], 32 * N_WORDS))


@triton.jit
def _limbs(limbs, rows, n, n_words, first, N_WORDS: tl.constexpr):
    """The bytes of the weights that belong to N_WORDS words of a code; 0 past the last query or word."""
    column = 32 * first + tl.arange(0, 32 * N_WORDS)
    exists = (rows[:, None] < n) & (column[None, :] < 32 * n_words)
    return tl.load(limbs + rows[:, None] * 32 * n_words + column[None, :], mask=exists, other=0)


@triton.jit
def minima_by_products(words, queries, low, totals, out, n, n_queries, n_groups, n_words,
                       N_PARTS: tl.constexpr, WEIGHTED: tl.constexpr, N_STEPS: tl.constexpr, SIZE: tl.constexpr,
                       TILE: tl.constexpr, CHUNK: tl.constexpr, N_CHUNKS: tl.constexpr):  # fmt: skip
    """out[q, g] = the smallest value of query q in group g of N_PARTS * SIZE codes, by tensor cores.

    One program takes TILE queries and N_STEPS groups. Codes of more than CHUNK words are multiplied chunk by chunk.
    Without WEIGHTED the values are Hamming distances and `queries` are words; `low` and `totals` are not read. With
    it, `queries` and `low` are the two bytes of the weights, 128 high + low, and `totals` the sums of their absolutes.
    """
    asked = tl.program_id(1) * TILE + tl.arange(0, TILE)
    ask = asked.to(tl.int64)
    within, steps = tl.arange(0, SIZE), tl.arange(0, N_STEPS)
    total = tl.full((TILE,), 32 * N_CHUNKS * CHUNK, dtype=tl.int32)  # missing bits agree, and are counted here
    if WEIGHTED:
        total = tl.load(totals + ask, mask=asked < n_queries, other=0)
    if N_CHUNKS == 1:
        if WEIGHTED:
            held = _limbs(queries, ask, n_queries, n_words, 0, CHUNK)
            rest = _limbs(low, ask, n_queries, n_words, 0, CHUNK)
        else:
            held = _signs(queries, ask, n_queries, n_words, 0, CHUNK)
    best = tl.zeros((TILE, N_STEPS), dtype=tl.int32)
    for step in range(N_STEPS):
        group = (tl.program_id(0) * N_STEPS + step).to(tl.int64)
        nearest = tl.full((TILE,), -_FAR, dtype=tl.int32)
        for part in range(N_PARTS):
            rows = (group * N_PARTS + part) * SIZE + within
            product = tl.zeros((TILE, SIZE), dtype=tl.int32)
            if N_CHUNKS == 1:
                codes = tl.trans(_signs(words, rows, n, n_words, 0, CHUNK))
                product = tl.dot(held, codes, product, out_dtype=tl.int32)
                if WEIGHTED:
                    product = tl.dot(rest, codes, product * 128, out_dtype=tl.int32)
            else:
                for chunk in range(N_CHUNKS):
                    codes = tl.trans(_signs(words, rows, n, n_words, chunk * CHUNK, CHUNK))
                    if WEIGHTED:
                        some = _limbs(queries, ask, n_queries, n_words, chunk * CHUNK, CHUNK)
                        upper = tl.dot(some, codes, tl.zeros((TILE, SIZE), dtype=tl.int32), out_dtype=tl.int32)
                        some = _limbs(low, ask, n_queries, n_words, chunk * CHUNK, CHUNK)
                        product = tl.dot(some, codes, product + upper * 128, out_dtype=tl.int32)
                    else:
                        some = _signs(queries, ask, n_queries, n_words, chunk * CHUNK, CHUNK)
                        product = tl.dot(some, codes, product, out_dtype=tl.int32)
            nearest = tl.maximum(nearest, tl.max(tl.where(rows[None, :] < n, product, -_FAR), axis=1))
        smallest = (total - nearest) // 2
        best = tl.where(steps[None, :] == step, smallest[:, None], best)
    group = tl.program_id(0) * N_STEPS + steps
    exists = (asked[:, None] < n_queries) & (group[None, :] < n_groups)
    tl.store(out + ask[:, None] * n_groups + group[None, :], best.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _bit_count(x):
    """Number of ones in 32-bit words; the compiler recognizes it and uses one instruction."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> 24


@triton.jit
def _distances(words, rows, n, query, PAD: tl.constexpr, N_WORDS: tl.constexpr):
    """Distances of the codes at `rows` to the query at an address."""
    total = tl.zeros(rows.shape, dtype=tl.int32)
    for word in tl.static_range(N_WORDS):
        loaded = tl.load(words + rows * N_WORDS + word, mask=rows < n, other=0)
        differing = (loaded ^ tl.load(query + word)).to(tl.uint32, bitcast=True)
        total += _bit_count(differing).to(tl.int32)
    return tl.where(rows < n, total, PAD)


@triton.jit
def _scores(words, rows, n, weights, ones, PAD: tl.constexpr, N_WORDS: tl.constexpr):
    """Exact scores of the codes at `rows`: what the query's ones weigh, less the weights of all bits that are 1."""
    total = tl.zeros(rows.shape, dtype=tl.int64) + ones
    for word in range(N_WORDS):
        loaded = tl.load(words + rows * N_WORDS + word, mask=rows < n, other=0)
        for bit in tl.static_range(32):
            total -= tl.where((loaded >> bit) & 1 != 0, tl.load(weights + word * 32 + bit), 0)
    return tl.where(rows < n, total, PAD)


@triton.jit
def minima_by_counting(words, queries, out, n, n_groups, N_PARTS: tl.constexpr, PAD: tl.constexpr,
                       N_WORDS: tl.constexpr, SIZE: tl.constexpr, N_SIDE: tl.constexpr):  # fmt: skip
    """As `minima_by_products` without WEIGHTED; one program takes one query and N_SIDE groups."""
    asked = tl.program_id(1).to(tl.int64)
    group = tl.program_id(0).to(tl.int64) * N_SIDE + tl.arange(0, N_SIDE)
    nearest = tl.full((N_SIDE,), PAD, dtype=tl.int32)
    for part in range(N_PARTS):
        rows = (group[:, None] * N_PARTS + part) * SIZE + tl.arange(0, SIZE)[None, :]
        distances = _distances(words, rows, n, queries + asked * N_WORDS, PAD, N_WORDS)
        nearest = tl.minimum(nearest, tl.min(distances, axis=1))
    tl.store(out + asked * n_groups + group, nearest.to(out.dtype.element_ty), mask=group < n_groups)


@triton.jit
def minima_in_groups(words, queries, ones, chosen, out, n, count, WEIGHTED: tl.constexpr, PAD: tl.constexpr,
                     N_WORDS: tl.constexpr, RATIO: tl.constexpr, SIZE: tl.constexpr,
                     N_SIDE: tl.constexpr):  # fmt: skip
    """out[q, i * RATIO + j] = the smallest value of query q in part j, of SIZE codes, of its i-th chosen group.

    `queries` are words, or with WEIGHTED whole weights; `ones` is then what the ones of each query weigh.
    """
    asked = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * N_SIDE + tl.arange(0, N_SIDE)
    exists = slot < count * RATIO
    part = tl.load(chosen + asked * count + slot // RATIO, mask=exists, other=0) * RATIO + slot % RATIO
    rows = part[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    if WEIGHTED:
        values = _scores(words, rows, n, queries + asked * N_WORDS * 32, tl.load(ones + asked), PAD, N_WORDS)
    else:
        values = _distances(words, rows, n, queries + asked * N_WORDS, PAD, N_WORDS)
    nearest = tl.min(values, axis=1)
    tl.store(out + asked * count * RATIO + slot, nearest.to(out.dtype.element_ty), mask=exists)


@triton.jit
def choose(values, chosen, out, kept, limits, width, count, k, HAS_CHOSEN: tl.constexpr, RATIO: tl.constexpr,
           KEEP: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The k smallest of every row by (value, column), in order of column; one program takes one row.

    out[q, i] = the column, or with HAS_CHOSEN the number of the part: column j is part j % RATIO of the group
    chosen[q, j // RATIO]. With KEEP, kept[q, i] is its value. limits[q] = the greatest of the k values.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    exists = column < width
    loaded = tl.load(values + row * width + column, mask=exists, other=0)
    value = loaded.to(tl.int64) if PAD > 1 << 30 else loaded.to(tl.int32)
    value = tl.where(exists, value, PAD + 1)
    low = tl.min(value, axis=0)
    high = tl.max(tl.where(exists, value, low), axis=0)
    while low < high:  # ends at the k-th smallest value
        middle = low + (high - low) // 2
        enough = tl.sum((value <= middle).to(tl.int32), axis=0) >= k
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    below = (value < low).to(tl.int32)
    equal = (value == low).to(tl.int32)
    needed = k - tl.sum(below, axis=0)
    taken = (below + equal * (tl.cumsum(equal, axis=0) <= needed).to(tl.int32)) != 0
    slot = tl.cumsum(taken.to(tl.int32), axis=0) - 1
    number = column.to(tl.int64)
    if HAS_CHOSEN:
        number = tl.load(chosen + row * count + column // RATIO, mask=taken, other=0) * RATIO + column % RATIO
    tl.store(out + row * k + slot, number, mask=taken)
    if KEEP:
        tl.store(kept + row * k + slot, value.to(kept.dtype.element_ty), mask=taken)
    tl.store(limits + row, low.to(limits.dtype.element_ty))


@triton.jit
def order(values, positions, ordered_values, ordered_positions, k, BLOCK: tl.constexpr):
    """Every row of k in order of (value, column): each entry goes where as many come before it."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    exists = column < k
    value = tl.load(values + row * k + column, mask=exists, other=0)
    position = tl.load(positions + row * k + column, mask=exists, other=0)
    earlier = (value[:, None] < value[None, :]) | ((value[:, None] == value[None, :]) & (column[:, None] < column[None, :]))  # noqa: E501  # fmt: skip
    rank = tl.sum((earlier & exists[:, None]).to(tl.int32), axis=0)
    tl.store(ordered_values + row * k + rank, value.to(ordered_values.dtype.element_ty), mask=exists)
    tl.store(ordered_positions + row * k + rank, position, mask=exists)


@triton.jit
def split_weights(weights, high, low, totals, ones, n_columns, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """Weights without their last SHIFT bits, rounded towards zero, as 128 high + low in one byte each; and their sums.

    totals[q] = the sum of the absolutes of the rounded weights, ones[q] = the sum of the positive whole weights.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    exists = column < n_columns
    weight = tl.load(weights + row * n_columns + column, mask=exists, other=0)
    size = tl.minimum(tl.abs(weight) >> SHIFT, 16383).to(tl.int32)
    rounded = tl.where(weight < 0, -size, size)
    tl.store(high + row * n_columns + column, (rounded >> 7).to(tl.int8), mask=exists)
    tl.store(low + row * n_columns + column, (rounded & 127).to(tl.int8), mask=exists)
    tl.store(totals + row, tl.sum(size, axis=0))
    tl.store(ones + row, tl.sum(tl.where(weight > 0, weight, 0), axis=0))
