"""The Triton kernels of select.py. Distances past the last code are `FAR`, greater than any real one.

Nothing here has types: Triton reads annotations as code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-not-found,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl

FAR = tl.constexpr(8192)


@triton.jit
def _signs(words, rows, n, n_words, first, N_WORDS: tl.constexpr):
    """N_WORDS words of some codes, from word `first` on, as rows of -1 and +1; missing bits are -1."""
    word = first + tl.arange(0, N_WORDS)
    exists = (rows[:, None] < n) & (word[None, :] < n_words)
    loaded = tl.load(words + rows[:, None] * n_words + word[None, :], mask=exists, other=0)
    bits = (loaded[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    return tl.reshape((bits * 2 - 1).to(tl.int8), (rows.shape[0], 32 * N_WORDS))


@triton.jit
def minima_by_products(words, queries, out, n, n_queries, n_groups, n_words, N_STEPS: tl.constexpr, SIZE: tl.constexpr,
                       TILE: tl.constexpr, CHUNK: tl.constexpr, N_CHUNKS: tl.constexpr):  # fmt: skip
    """out[g, q] = the smallest distance of query q in group g; one program takes TILE queries and N_STEPS groups.

    Codes of more than CHUNK words are multiplied chunk by chunk.
    """
    asked = tl.program_id(1) * TILE + tl.arange(0, TILE)
    within = tl.arange(0, SIZE)
    if N_CHUNKS == 1:
        held = _signs(queries, asked.to(tl.int64), n_queries, n_words, 0, CHUNK)
    for step in range(N_STEPS):
        group = tl.program_id(0) * N_STEPS + step
        rows = group.to(tl.int64) * SIZE + within
        product = tl.zeros((TILE, SIZE), dtype=tl.int32)
        if N_CHUNKS == 1:
            codes = _signs(words, rows, n, n_words, 0, CHUNK)
            product = tl.dot(held, tl.trans(codes), product, out_dtype=tl.int32)
        else:
            for chunk in range(N_CHUNKS):
                some = _signs(queries, asked.to(tl.int64), n_queries, n_words, chunk * CHUNK, CHUNK)
                codes = _signs(words, rows, n, n_words, chunk * CHUNK, CHUNK)
                product = tl.dot(some, tl.trans(codes), product, out_dtype=tl.int32)
        nearest = tl.max(tl.where(rows[None, :] < n, product, -FAR), axis=1)
        # Missing bits agree; the count of all multiplied bits makes up for them.
        distance = (32 * N_CHUNKS * CHUNK - nearest) // 2
        exists = (asked < n_queries) & (group < n_groups)
        tl.store(out + group.to(tl.int64) * n_queries + asked, distance.to(tl.int16), mask=exists)


@triton.jit
def _bit_count(x):
    """Number of ones in 32-bit words; the compiler recognizes it and uses one instruction."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> 24


@triton.jit
def _distances(words, rows, n, query, N_WORDS: tl.constexpr):
    """Distances of the codes at `rows` to the query at an address."""
    total = tl.zeros(rows.shape, dtype=tl.int32)
    for word in tl.static_range(N_WORDS):
        loaded = tl.load(words + rows * N_WORDS + word, mask=rows < n, other=0)
        differing = (loaded ^ tl.load(query + word)).to(tl.uint32, bitcast=True)
        total += _bit_count(differing).to(tl.int32)
    return tl.where(rows < n, total, FAR)


@triton.jit
def minima_by_counting(words, queries, out, n, n_queries, n_groups,
                       N_WORDS: tl.constexpr, SIZE: tl.constexpr, N_SIDE: tl.constexpr):  # fmt: skip
    """As `minima_by_products`; one program takes one query and N_SIDE groups."""
    asked = tl.program_id(1).to(tl.int64)
    group = tl.program_id(0).to(tl.int64) * N_SIDE + tl.arange(0, N_SIDE)
    rows = group[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    nearest = tl.min(_distances(words, rows, n, queries + asked * N_WORDS, N_WORDS), axis=1)
    tl.store(out + group * n_queries + asked, nearest.to(tl.int16), mask=group < n_groups)


@triton.jit
def distances_in_groups(words, queries, chosen, out, n, count,
                        N_WORDS: tl.constexpr, SIZE: tl.constexpr, N_SIDE: tl.constexpr):  # fmt: skip
    """out[q, i * SIZE + j] = the distance of query q to code j of its i-th chosen group."""
    asked = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * N_SIDE + tl.arange(0, N_SIDE)
    group = tl.load(chosen + asked * count + slot, mask=slot < count, other=0)
    within = tl.arange(0, SIZE)
    distance = _distances(words, group[:, None] * SIZE + within[None, :], n, queries + asked * N_WORDS, N_WORDS)
    into = out + asked * count * SIZE + slot[:, None] * SIZE + within[None, :]
    tl.store(into, distance.to(tl.int16), mask=(slot < count)[:, None])
