"""Recall of the float ranking and of partners against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash import hashers
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import evaluate_embeddings, nearest_by_cosine, recall_of, rescored
from fusehash.evaluation.embeddings import largest
from fusehash.search import HammingIndex
from joint import cut, joint_embeddings

VIEWS = joint_embeddings(400)
LEARNED, NEW = cut(VIEWS, slice(0, 250)), cut(VIEWS, slice(250, None))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), k=st.integers(1, 45), values=st.integers(1, 50))
def test_largest_is_a_stable_sort(seed, n, k, values):
    scores = np.random.default_rng(seed).integers(0, values, (5, n)).astype(np.float32)
    assert np.array_equal(largest(scores, min(k, n)), np.argsort(-scores, axis=1, kind="stable")[:, :k])


def slow_reference(queries, items, k, candidates, score):
    """The four recalls of one direction, query by query."""
    sums = np.zeros(4)
    for row, query in enumerate(queries):
        cosines = [float(query @ item) / np.linalg.norm(query) / np.linalg.norm(item) for item in items]
        exact = set(sorted(range(len(items)), key=lambda i: (-cosines[i], i))[:k])
        ranked = sorted(range(len(items)), key=lambda i: (-score[row, i], i))[:candidates]
        again = sorted(ranked, key=lambda i: (-cosines[i], i))[:k]
        sums += [len(exact & set(ranked[:k])) / k, len(exact & set(again)) / k, row in ranked[:k], row in again]
    return sums / len(queries)


@pytest.mark.parametrize("queries", ["floats", "codes"])
def test_recalls_equal_a_slow_reference(queries):
    model = hashers.make("rabitq", n_bits=48, random_state=0).fit(LEARNED)
    scores = evaluate_embeddings(model, NEW, k=7, candidates=30, queries=queries)
    assert [score.direction for score in scores] == ["image->text", "text->image"]
    for score in scores:
        a, b = score.query_view, score.item_view
        codes, factors = model.encode(NEW[b], view=b, with_factors=True)
        B = np.unpackbits(codes, axis=1, bitorder="little")[:, :48] * 2.0 - 1.0
        if queries == "floats":
            estimate = (model.project(NEW[a], view=a) @ B.T).astype(np.float32) * factors[:, 0] + factors[:, 1]
        else:
            estimate = (np.unpackbits(model.encode(NEW[a], view=a), axis=1, bitorder="little") * 2.0 - 1.0) @ B.T
        expected = slow_reference(NEW[a], NEW[b], 7, 30, estimate)
        got = [score.recall, score.rescored_recall, score.pair_recall, score.rescored_pair_recall]
        assert np.allclose(got, expected, atol=0.003)
        assert (score.n_queries, score.n_items) == (150, 150)


def test_all_candidates_rescored_are_the_floats():
    model = hashers.make("sign", n_bits=48).fit(LEARNED)
    for score in evaluate_embeddings(model, NEW, candidates=10_000):
        assert score.rescored_recall == 1.0


def test_the_parts_serve_an_index():
    model = hashers.make("centered_sign", n_bits=96, random_state=0).fit(LEARNED)
    index = HammingIndex(96)
    index.add(model.encode(NEW["image"], view="image"))
    _, found = index.search(model.encode(NEW["text"], view="text"), 30)
    exact = nearest_by_cosine(NEW["text"], NEW["image"], 10)
    score = evaluate_embeddings(model, NEW, candidates=30, queries="codes")[1]
    assert np.isclose(recall_of(found[:, :10], exact), score.recall)
    assert np.isclose(recall_of(rescored(NEW["text"], NEW["image"], found, 10), exact), score.rescored_recall)


def test_some_queries_are_a_sample():
    model = hashers.make("sign", n_bits=48).fit(LEARNED)
    assert [score.n_queries for score in evaluate_embeddings(model, NEW, n_queries=20)] == [20, 20]


def test_wrong_input_is_named():
    model = hashers.make("sign", n_bits=48).fit(LEARNED)
    with pytest.raises(ParameterError, match=r"at least k \(10\)"):
        evaluate_embeddings(model, NEW, candidates=3)
    with pytest.raises(DataError, match=r"equal widths\. Got 3 and 2"):
        nearest_by_cosine(np.ones((1, 3)), np.ones((4, 2)), 1)
    with pytest.raises(DataError, match="finite"):
        nearest_by_cosine([[np.nan]], [[1.0]], 1)
    with pytest.raises(DataError, match="one row per query"):
        recall_of([[1]], [[1], [2]])
