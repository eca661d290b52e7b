"""Average precision of a ranking with ties, exactly, from its tie groups alone.

A ranking is a list of groups, nearest first: group j holds sizes[j] items, hits[j] of them relevant, in unknown order.
Write a, b for the items and the relevant items before a group, g, r for those inside it, and min(g, k - a) for its
slots in the top k. The i-th relevant item of a group adds precision (b + i) / (a + t) when it is at the group's slot t.

Rank cut (E1):  AP@k = (sum of precisions at relevant ranks <= k) / (relevant items inside the top k), 0 if none.
    Only the last group can cross rank k; then the divisor b + m depends on how many (m) of its relevant items get in.
Hit cut (E5):   average over the first min(k, all relevant) relevant items wherever they are: the divisor is fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.numerics.compiled import compiled


@compiled()
def expected_precision_sum(a: Any, b: Any, slots: Any, m: Any) -> float:
    """Expected sum of precisions of m relevant items placed at random in slots a+1..a+slots.

    Slot t is relevant with probability m/slots and then has (t-1)(m-1)/(slots-1) relevant slots before it on average:
    sum_t (m/slots) (b + 1 + (t-1)(m-1)/(slots-1)) / (a + t).
    """
    if m == 0:
        return 0.0
    slope = (m - 1) / (slots - 1) if slots > 1 else 0.0
    total = 0.0
    for t in range(slots):
        total += (b + 1 + t * slope) / (a + t + 1)
    return total * m / slots


@compiled()
def _expected_at_cut(total: Any, a: Any, b: Any, g: Any, r: Any, slots: Any) -> float:
    """E[(total + precisions of the m admitted) / (b + m)], m ~ Hypergeometric(g items, r relevant, slots drawn)."""
    flat, rising = 0.0, 0.0  # sum of 1/(a+t) and of (t-1)/(a+t): the expected precision sum is linear in both
    for t in range(slots):
        flat += 1.0 / (a + t + 1)
        rising += t / (a + t + 1)
    low, high = max(0, slots - (g - r)), min(slots, r)
    mode = min(max((slots + 1) * (r + 1) // (g + 2), low), high)
    # Weights relative to the mode: no factorials, nothing overflows, what underflows does not matter.
    value, weights = 0.0, 0.0
    for direction in (1, -1):
        m = mode if direction == 1 else mode - 1
        weight = 1.0 if direction == 1 else _hypergeometric_step_down(mode, g, r, slots)
        while low <= m <= high and weight > 0.0:
            if b + m > 0:
                slope = (m - 1) / (slots - 1) if slots > 1 else 0.0
                value += weight * (total + m / slots * ((b + 1) * flat + slope * rising)) / (b + m)
            weights += weight
            if direction == 1:
                weight *= (r - m) / (m + 1) * ((slots - m) / (g - r - slots + m + 1))
            else:
                weight *= _hypergeometric_step_down(m, g, r, slots)
            m += direction
    return value / weights


@compiled()
def _hypergeometric_step_down(m: Any, g: Any, r: Any, slots: Any) -> float:
    """P(m - 1) / P(m)."""
    return m / (r - m + 1) * ((g - r - slots + m) / (slots - m + 1))


@compiled()
def _extreme_at_cut(total: Any, a: Any, b: Any, g: Any, r: Any, slots: Any, order: Any) -> float:
    """Largest (order 1) or smallest (-1) AP@k over the numbers m of relevant items that the last group admits.

    A late hit lowers the mean of precisions, so that every m is tried. The m last slots before e = a + slots add
    sum_{i<=m} (b + i) / (e - m + i) = m + (b - e + m) (1/(e-m+1) + ... + 1/e).
    """
    end, first, reciprocals = a + slots, total, 0.0
    extreme = 0.0 if order == 1 else np.inf
    for m in range(min(slots, r) + 1):
        if m > 0:
            first += (b + m) / (a + m)
            reciprocals += 1.0 / (end - m + 1)
        if m >= slots - (g - r):
            precisions = first if order == 1 else total + m + (b - end + m) * reciprocals
            value = precisions / (b + m) if b + m > 0 else 0.0
            extreme = max(extreme, value) if order == 1 else min(extreme, value)
    return extreme


@compiled()
def rank_cut_ap(sizes: Any, hits: Any, k: Any, order: Any) -> float:
    """Rank cut (E1) over all orders inside the groups. order: 0 mean, 1 best (relevant first), -1 worst (last)."""
    a, b, total = 0, 0, 0.0
    for j in range(sizes.size):
        g, r = sizes[j], hits[j]
        if a == k:
            break
        if a + g > k:
            group = total, a, b, g, r, k - a
            return _expected_at_cut(*group) if order == 0 else _extreme_at_cut(*group, order)
        if order == 0:
            total += expected_precision_sum(a, b, g, r)
        else:
            skipped = 0 if order == 1 else g - r
            for i in range(1, r + 1):
                total += (b + i) / (a + skipped + i)
        a += g
        b += r
    return total / b if b > 0 else 0.0


@compiled()
def _expected_first_hits(a: Any, b: Any, g: Any, r: Any, n_counted: Any) -> float:
    """Expected sum of precisions of the first `n_counted` of r relevant items placed at random in slots a+1..a+g.

    The i-th is at slot t with P(t) = C(t-1, i-1) C(g-t, r-i) / C(g, r); P(t+1)/P(t) = t/(t-i+1) (g-t-r+i)/(g-t).
    """
    total = 0.0
    for i in range(1, n_counted + 1):
        low, high = i, g - r + i
        mode = min(max((i - 1) * g // max(1, r - 1) + 1, low), high)
        value, weights = 0.0, 0.0
        weight, t = 1.0, mode
        while t <= high and weight > 1e-22:
            value += weight / (a + t)
            weights += weight
            weight *= t / (t - i + 1) * ((g - t - r + i) / (g - t)) if t < high else 0.0
            t += 1
        weight, t = 1.0, mode
        while t > low and weight > 1e-22:
            weight *= (t - i) / (t - 1) * ((g - t + 1) / (g - t + 1 - r + i))
            t -= 1
            value += weight / (a + t)
            weights += weight
        total += (b + i) * value / weights
    return total


@compiled()
def hit_cut_ap(sizes: Any, hits: Any, k: Any, order: Any) -> float:
    """Hit cut (E5); order as for `rank_cut_ap`."""
    n_counted = min(k, hits.sum())
    if n_counted == 0:
        return 0.0
    a, b, total = 0, 0, 0.0
    for j in range(sizes.size):
        g, r = sizes[j], hits[j]
        take = min(r, n_counted - b)
        if order == 0:
            total += expected_precision_sum(a, b, g, r) if take == r else _expected_first_hits(a, b, g, r, take)
        else:
            skipped = 0 if order == 1 else g - r
            for i in range(1, take + 1):
                total += (b + i) / (a + skipped + i)
        a += g
        b += take
        if b == n_counted:
            break
    return total / n_counted


@compiled()
def hits_at(sizes: Any, hits: Any, ranks: Any, order: Any, out: Any) -> None:
    """out[i] = relevant items in the top ranks[i] (ranks ascend). order: 0 mean, 1 most, -1 fewest."""
    a, b, j = 0, 0, 0
    for i in range(ranks.size):
        while j < sizes.size and a + sizes[j] <= ranks[i]:
            a += sizes[j]
            b += hits[j]
            j += 1
        out[i] = b
        slots = ranks[i] - a
        if j < sizes.size and slots > 0:
            g, r = sizes[j], hits[j]
            most, fewest = min(slots, r), max(0, slots - (g - r))
            out[i] += slots * r / g if order == 0 else most if order == 1 else fewest


@compiled()
def discounted_gain(sizes: Any, sums: Any, discounts: Any) -> float:
    """Expected sum of discount x gain over the top discounts.size ranks: every slot of a group has its mean gain."""
    rank, total = 0, 0.0
    for j in range(sizes.size):
        if rank >= discounts.size:
            break
        end = min(rank + sizes[j], discounts.size)
        weight = 0.0
        for t in range(rank, end):
            weight += discounts[t]
        if sizes[j] > 0:
            total += weight * sums[j] / sizes[j]
        rank += sizes[j]
    return total
