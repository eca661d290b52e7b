"""Brute-force references, written to be obviously right and nothing else."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest


def ap_at(ranked_relevance, k):
    """E1: mean of precision@r over the relevant ranks r <= k."""
    precisions = [
        sum(ranked_relevance[: r + 1]) / (r + 1) for r in range(min(k, len(ranked_relevance))) if ranked_relevance[r]
    ]
    return sum(precisions) / len(precisions) if precisions else 0.0


def ap_first_hits(ranked_relevance, k):
    """E5: mean of precision over the first min(k, relevant) relevant items."""
    ranks = [r + 1 for r, hit in enumerate(ranked_relevance) if hit][:k]
    return sum((i + 1) / r for i, r in enumerate(ranks)) / len(ranks) if ranks else 0.0


def ndcg_at(ranked_grades, k, gain=lambda grade: 2.0**grade - 1.0):
    def dcg(grades):
        return sum(gain(grade) / np.log2(r + 2) for r, grade in enumerate(grades[:k]))

    ideal = dcg(sorted(ranked_grades, reverse=True))
    return dcg(ranked_grades) / ideal if ideal > 0 else 0.0


def tie_orders(distances, values):
    """Every ranked list of values that is sorted by distance; equally likely orders appear equally often."""
    groups = [[values[i] for i in range(len(values)) if distances[i] == d] for d in sorted(set(distances))]
    for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield list(itertools.chain.from_iterable(orders))


def tie_patterns(distances, relevant):
    """As tie_orders for 0/1 values, each order that looks different once (all are equally likely)."""
    groups = [[relevant[i] for i in range(len(relevant)) if distances[i] == d] for d in sorted(set(distances))]

    def patterns(group):
        for chosen in itertools.combinations(range(len(group)), sum(group)):
            yield [int(t in chosen) for t in range(len(group))]

    for pattern in itertools.product(*(patterns(group) for group in groups)):
        yield list(itertools.chain.from_iterable(pattern))


def codes_at(distances):
    """A query code and database codes at the given Hamming distances (0..16) from it, two bytes each."""
    ones = np.array([[bit < d for bit in range(16)] for d in distances])
    return np.zeros((1, 2), dtype=np.uint8), np.packbits(ones, axis=1, bitorder="little")


def hamming(query_codes, database_codes):
    """All Hamming distances (nq, n)."""
    return np.bitwise_count(query_codes[:, None, :] ^ database_codes[None, :, :]).sum(axis=2, dtype=np.int64)


@pytest.fixture(scope="session")
def brute():
    return SimpleNamespace(
        ap_at=ap_at,
        ap_first_hits=ap_first_hits,
        ndcg_at=ndcg_at,
        tie_orders=tie_orders,
        tie_patterns=tie_patterns,
        codes_at=codes_at,
        hamming=hamming,
    )


@pytest.fixture(scope="session")
def case():
    """A middling case with many ties: 16-bit codes, 30 queries, 400 items, 24 labels."""
    rng = np.random.default_rng(7)
    labels = (rng.random((430, 24)) < 0.08).astype(np.int8)
    codes = np.packbits(rng.random((430, 16)) < 0.3 + 0.4 * labels[:, :16], axis=1, bitorder="little")
    return SimpleNamespace(
        queries=codes[:30],
        database=codes[30:],
        query_labels=labels[:30],
        labels=labels[30:],
        grades=labels[:30] @ labels[30:].T,
    )
