"""The words of texts against a slow reference, and what they do to a search."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash import bits
from fusehash.collection import Collection, NewItem
from fusehash.collection.queries.words import Words, WordScores, words_in
from fusehash.collection.searching import Snapshot
from fusehash.collection.store import CollectionState
from fusehash.errors import DataError

VOCABULARY = [
    "kid",
    "kids",
    "kidney",
    "ki",
    "kite",
    "red",
    "reddish",
    "house",
    "houses",
    "sea",
    "a",
    "\u6d77\u306e\u5bb6",
]
texts = st.lists(st.sampled_from(VOCABULARY), min_size=0, max_size=5).map(" ".join)
corpora = st.dictionaries(st.integers(1, 30), texts, max_size=8)


def share(asked: str, word: str) -> float:
    """How much a word of a text counts for a word of the query."""
    if asked == word:
        return 1.0
    short, long = sorted((asked, word), key=len)
    is_form = len(short) >= 3 and long.startswith(short) and 2 * len(short) / (len(short) + len(long)) >= 0.7
    return 0.8 if is_form else 0.0


def reference(corpus: dict[int, str], query: str) -> dict[int, float]:
    """The formulas of words.py, text by text and word by word."""
    sets = {id: set(text.split()) for id, text in corpus.items()}

    def weight(word: str) -> float:
        often = sum(word in own for own in sets.values())
        return math.log(1 + (len(sets) - often + 0.5) / (often + 0.5))

    asked = set(query.split())
    scores = {}
    for id, own in sets.items():
        said = sum(weight(q) * max((share(q, word) for word in own), default=0.0) for q in asked)
        inside = sum(weight(word) for word in own & asked) / (sum(map(weight, own)) or 1.0)
        scores[id] = (said / sum(map(weight, asked)) + 0.1 * inside) / 1.1 if asked else 0.0
    return scores


@settings(max_examples=40, deadline=None)
@given(corpora, texts)
def test_scores_are_those_of_the_reference(corpus, query):
    said = Words.read(sorted(corpus.items())).scores(query)
    expected = reference(corpus, query)
    assert said.ids.tolist() == sorted(corpus)
    assert np.allclose(said.scores, [expected[id] for id in sorted(corpus)], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(corpora, corpora, texts)
def test_words_that_were_known_before_change_nothing(first, second, query):
    fresh = Words.read(sorted(second.items())).scores(query)
    grown = Words.read(sorted(second.items()), Words.read(sorted(first.items()))).scores(query)
    assert np.array_equal(grown.ids, fresh.ids)
    assert np.allclose(grown.scores, fresh.scores, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(corpora, texts)
def test_the_very_words_score_1_and_all_others_less(corpus, query):
    said = Words.read(sorted(corpus.items())).scores(query)
    for id, score in zip(said.ids.tolist(), said.scores.tolist(), strict=True):
        assert 0.0 <= score <= 1.0 + 1e-6
        if query:
            assert (score > 1.0 - 1e-5) == (set(corpus[id].split()) == set(query.split()))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), max_size=12), st.integers(1, 6), st.sets(st.integers(0, 30)))
def test_the_best_are_those_of_a_full_sort(scores, count, allowed):
    ids = np.arange(len(scores)) * 2 + 1
    said = WordScores(ids, np.array(scores, np.float32))
    for among in (None, np.array(sorted(allowed), np.int64)):
        usable = [(-s, int(i)) for s, i in zip(scores, ids, strict=True) if s > 0 and (among is None or i in allowed)]
        assert said.best(count, among).tolist() == [i for _, i in sorted(usable)[:count]]


def test_scores_of_ids():
    said = WordScores(np.array([2, 5]), np.array([0.25, 0.5], np.float32))
    assert np.array_equal(said.of(np.array([5, 1, 2, 9])), [0.5, np.nan, 0.25, np.nan], equal_nan=True)
    assert np.isnan(WordScores(np.empty(0, np.int64), np.empty(0, np.float32)).of(np.array([1]))).all()


def test_words_have_one_spelling():
    assert words_in("The \uff28ouse, the HOUSE; 2 caf\u0065\u0301s!") == ["2", "caf\u00e9s", "house", "the"]
    assert words_in("!?") == []


# -- searches --------------------------------------------------------------------------------------------------------


class Index:
    """An index by brute force, for codes of 8 bits."""

    def __init__(self, codes: dict[int, int]) -> None:
        self.codes = codes

    def search(self, code, k, *, allowed=None):
        among = self.codes if allowed is None else [int(id) for id in allowed if int(id) in self.codes]
        best = sorted(((self.codes[id] ^ int(code[0, 0])).bit_count(), id) for id in among)[:k]
        return np.array([[d for d, _ in best]], np.int32), np.array([[id for _, id in best]], np.int64)

    def get(self, ids):
        return np.array([[self.codes[int(id)]] for id in ids], np.uint8).reshape(-1, 1)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(1, 40), st.integers(0, 255), min_size=1, max_size=12), corpora, st.integers(1, 5))
def test_search_is_the_blend_of_code_and_words(codes, corpus, k):
    """Few items, so that all are candidates. Ids that have a text and no code are never found."""
    query = np.array([0.5, -1.0, 2.0, 0.1, -0.3, 1.0, -2.0, 0.7])
    index = Index(codes)
    snapshot = Snapshot(Path(), CollectionState(n_bits=8), index)
    said = Words.read(sorted(corpus.items())).scores("red house")
    words = reference(corpus, "red house")
    known = [words[id] for id in codes if id in words]
    usual = sum(known) / len(known) if known else 0.0
    expected = {}
    for id, code in codes.items():
        signs = bits.unpack(np.array([[code]], np.uint8), 8)[0]
        by_code = float(np.sum(signs * query) / np.abs(query).sum())
        score = words.get(id, usual)
        expected[id] = 1.0 if score > 1 - 1e-5 else (by_code + 2 * score) / 3
    ids, distances, scores, _ = snapshot.rank(query, k, words=said)
    assert len(ids) == min(k, len(codes))
    assert np.allclose(scores, sorted(expected.values(), reverse=True)[:k], atol=1e-5)
    for id, distance, score in zip(ids.tolist(), distances, scores, strict=True):
        assert score == pytest.approx(expected[id], abs=1e-5)
        assert distance == (codes[id] ^ int(bits.pack(query[None])[0, 0])).bit_count()


SHORT = ["a pink flower", "cocoa fruits", "a brown pig", "ruins", "red roofs"]
LONG = [
    f"{n} {who} are {doing} {what} in front of a {color} {house} near {place}; more {who} are standing behind them"
    for n, (who, doing, what, color, house, place) in enumerate(
        (who, doing, what, color, house, place)
        for who in ("kids", "tourists", "players")
        for doing, what in (("playing", "football"), ("eating", "lunch"), ("riding", "horses"))
        for color, house in (("white", "church"), ("gray", "wall"))
        for place in ("a lake", "the sea")
    )
]


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    with Collection.create(
        tmp_path_factory.mktemp("words") / "c", image_encoder="classical", text_encoder="tfidf"
    ) as collection:
        collection.build([NewItem(f"{i}", None, text) for i, text in enumerate(SHORT + LONG)])
        yield collection


@pytest.mark.parametrize("query", ["kids playing football", "football", "tourists horses", "players lunch church"])
def test_a_few_words_find_texts_that_say_them_and_not_whatever_is_short(captions, query):
    wanted = [text for text in LONG if set(query.split()) <= set(re.findall(r"\w+", text))]
    found = [hit.item.text for hit in captions.search(query, k=len(wanted))]
    assert sorted(found) == sorted(wanted)


def test_a_text_finds_itself_first(captions):
    for text in SHORT + LONG:
        first = captions.search(text, k=2)[0]
        assert (first.item.text, first.score) == (text, 1.0)


def test_another_form_of_a_word_finds_it(captions):
    assert {hit.item.text for hit in captions.search("flowers", k=1)} == {"a pink flower"}
    assert "horses" in captions.search("horse", k=1)[0].item.text


def test_a_word_that_only_a_new_text_has(captions):
    with pytest.raises(DataError, match="None of the words"):
        captions.search("zyxwvq")
    (id,) = captions.add([NewItem("odd", None, "zyxwvq zyxwvq")]).ids
    assert captions.search("zyxwvq", k=1)[0].id == id
    captions.update([NewItem("odd", None, "cocoa beans")])
    with pytest.raises(DataError, match="None of the words"):
        captions.search("zyxwvq")
    assert id in {hit.id for hit in captions.search("cocoa", k=2)}
    captions.remove([id])
    assert id not in {hit.id for hit in captions.search("cocoa beans", k=50)}


def test_words_respect_labels_and_may_be_left_out(tmp_path):
    items = [NewItem(f"{i}", None, text, (f"mod{i % 2}",)) for i, text in enumerate(LONG)]
    with Collection.create(tmp_path / "c", image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build(items)
        hits = collection.search(LONG[0], k=50, label="mod1")
        assert len(hits) == len(LONG) // 2
        assert all(hit.item.labels == ("mod1",) for hit in hits)
        plain = collection.search("football", k=50, rerank=False)
        assert [hit.distance for hit in plain] == sorted(hit.distance for hit in plain)
