"""The words of captions: how well each caption matches a query, which words no caption has, and what to highlight."""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fusehash.collection.features import Floats32
from fusehash.search.rows import Ids
from fusehash.views import Floats

PURITY_WEIGHT = 0.1
# Two words are forms of one if they share at least so many letters from the start, and so large a part of all letters.
FORM_LETTERS, FORM_SHARE, FORM_WEIGHT = 3, 0.7, 0.8
MAX_MATCHED = 30  # words of a caption that are highlighted
# Words that a caption need not have: no note says that no caption contains them.
STOP_WORDS = frozenset(
    """a an and are as at be by for from has have he her his i in into is it its me my no not of on one or our she some
    that the their them there these they this those to two was we were what where which who with without you your
    also very both over other find show photo photos picture pictures image images""".split()  # noqa: SIM905
)
_WORD = re.compile(r"\w+")

Ints = NDArray[np.int32]


def spelled(text: str) -> list[str]:
    """The words of a text in order, in one spelling."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def words_in(text: str) -> list[str]:
    """The different words of a text, in one spelling."""
    return sorted(set(spelled(text)))


@dataclass(frozen=True)
class WordScores:
    """How well each text matches the words of a query: ids of items with a text, ascending, and their scores."""

    ids: Ids
    scores: Floats32

    def best(self, count: int, allowed: Ids | None = None) -> Ids:
        """The ids of the `count` largest positive scores, largest first, then by id; among the allowed ones."""
        scores = self.scores if allowed is None else np.where(np.isin(self.ids, allowed), self.scores, 0.0)
        rows = np.flatnonzero(scores > 0.0)
        if count < len(rows):
            cut = np.partition(scores[rows], len(rows) - count)[len(rows) - count]
            rows = rows[scores[rows] >= cut]
        return self.ids[rows[np.argsort(-scores[rows], kind="stable")][:count]]

    def of(self, ids: Ids) -> Floats:
        """The scores of some ids; NaN for items without a text."""
        scores = np.full(len(ids), np.nan)
        if len(self.ids):
            rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            has_text = self.ids[rows] == ids
            scores[has_text] = self.scores[rows[has_text]]
        return scores


@dataclass(frozen=True)
class Words:
    """The words of all texts."""

    ids: Ids  # of the items that have a text, ascending
    vocabulary: dict[str, int]  # word -> number
    starts: Ints  # the words of text i are numbers[starts[i] : starts[i + 1]]
    numbers: Ints
    texts: dict[int, str]  # id -> the text that the words are from

    @classmethod
    def read(cls, rows: Iterable[tuple[int, str]], before: Words | None = None) -> Words:
        """Words of (id, text) rows in order of id; texts that `before` has are not split again."""
        vocabulary = dict(before.vocabulary) if before is not None else {}
        row_of = {} if before is None else {id: row for row, id in enumerate(before.ids.tolist())}
        texts: dict[int, str] = {}
        parts: list[Ints] = []
        for id, text in rows:
            if before is not None and before.texts.get(id) == text:
                row = row_of[id]
                parts.append(before.numbers[before.starts[row] : before.starts[row + 1]])
            else:
                numbers = [vocabulary.setdefault(word, len(vocabulary)) for word in words_in(text)]
                parts.append(np.array(numbers, np.int32))
            texts[id] = text
        starts = np.zeros(len(parts) + 1, np.int32)
        np.cumsum([len(part) for part in parts], out=starts[1:])
        joined = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return cls(np.fromiter(texts, np.int64, len(texts)), vocabulary, starts, joined, texts)

    @cached_property
    def weights(self) -> Floats32:
        """w_t of every word."""
        counts = np.bincount(self.numbers, minlength=len(self.vocabulary))
        return np.log1p((len(self.ids) - counts + 0.5) / (counts + 0.5)).astype(np.float32)

    @cached_property
    def totals(self) -> Floats32:
        """Sum of w_t over the words of every text."""
        sums = np.concatenate([[0.0], np.cumsum(self.weights[self.numbers], dtype=np.float64)])
        return (sums[self.starts[1:]] - sums[self.starts[:-1]]).astype(np.float32)

    @cached_property
    def _postings(self) -> tuple[Ints, Ints]:
        """For every word, the rows of the texts that have it: rows[starts[t] : starts[t + 1]]."""
        rows = np.repeat(np.arange(len(self.ids), dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.numbers, kind="stable")
        starts = np.searchsorted(self.numbers[order], np.arange(len(self.vocabulary) + 1)).astype(np.int32)
        return rows[order], starts

    @cached_property
    def _sorted(self) -> tuple[list[str], list[int]]:
        """All words, and their different lengths."""
        return sorted(self.vocabulary), sorted(set(map(len, self.vocabulary)))

    def forms(self, word: str) -> list[str]:
        """Words that begin with a word, or that it begins with, and are of about its length; not itself."""
        if len(word) < FORM_LETTERS:
            return []
        words, lengths = self._sorted
        first, last = bisect_left(words, word), bisect_left(words, word + chr(sys.maxunicode))
        ends = (end for end in lengths if FORM_LETTERS <= end < len(word))  # few, however long the word is
        shorter = [word[:end] for end in ends if word[:end] in self.vocabulary]
        return [
            other
            for other in (*shorter, *words[first:last])
            if other != word and 2 * min(len(word), len(other)) >= FORM_SHARE * (len(word) + len(other))
        ]

    def scores(self, query: str) -> WordScores:
        """How well each text matches the words of a query."""
        contained, inside = np.zeros((2, len(self.ids)), np.float32)
        total = 0.0
        rows, starts = self._postings
        rarest = float(np.log1p(2.0 * len(self.ids) + 1.0))
        for word in words_in(query):
            number = self.vocabulary.get(word)
            weight = rarest if number is None else float(self.weights[number])
            total += weight
            texts = rows[:0] if number is None else rows[starts[number] : starts[number + 1]]
            inside[texts] += weight
            share = np.zeros(len(self.ids), np.float32)
            for form in map(self.vocabulary.__getitem__, self.forms(word)):
                share[rows[starts[form] : starts[form + 1]]] = FORM_WEIGHT
            share[texts] = 1.0
            contained += np.float32(weight) * share
        if total > 0.0:
            purity = inside / np.maximum(self.totals, np.float32(1e-9))
            weighted = contained / np.float32(total) + np.float32(PURITY_WEIGHT) * purity
            contained = (weighted / np.float32(1.0 + PURITY_WEIGHT)).astype(np.float32, copy=False)
        return WordScores(self.ids, contained)

    def having(self, word: str) -> Ids:
        """The ids of the texts that have a word or a form of it."""
        rows, starts = self._postings
        numbers = [self.vocabulary[form] for form in (word, *self.forms(word)) if form in self.vocabulary]
        parts = [rows[starts[number] : starts[number + 1]] for number in numbers]
        return self.ids[np.unique(np.concatenate(parts))] if parts else self.ids[:0]

    def having_all(self, words: Iterable[str]) -> Ids:
        """The ids of the texts that have every one of some words, or a form of it."""
        ids = self.ids
        for word in words:
            ids = np.intersect1d(ids, self.having(word), assume_unique=True)
        return ids

    def having_phrase(self, phrase: str) -> Ids:
        """The ids of the texts that have exactly these words next to each other."""
        wanted, rows_and_starts = spelled(phrase), self._postings
        ids = self.ids
        for word in set(wanted):
            rows, starts = rows_and_starts
            number = self.vocabulary.get(word)
            texts = rows[:0] if number is None else rows[starts[number] : starts[number + 1]]
            ids = np.intersect1d(ids, self.ids[texts], assume_unique=True)
        if len(wanted) < 2:
            return ids
        row = f" {' '.join(wanted)} "
        has_row = [row in f" {' '.join(spelled(self.texts[id]))} " for id in ids.tolist()]
        return ids[np.array(has_row, bool)]

    def missing(self, query: str) -> list[str]:
        """The words of a query that no text has, in no form; in the order of the query."""
        asked = dict.fromkeys(word for word in spelled(query) if word not in STOP_WORDS and len(word) > 1)
        return [word for word in asked if word not in self.vocabulary and not self.forms(word)]

    def matched(self, id: int, queries: Sequence[str]) -> tuple[str, ...]:
        """The words of a text, as it spells them, that some queries ask for."""
        text = self.texts.get(id)
        if text is None:
            return ()
        asked = {word for query in queries for word in spelled(query)}
        wanted = asked | {form for word in asked for form in self.forms(word)}
        content = wanted - STOP_WORDS or wanted
        words = dict.fromkeys(word for word in _WORD.findall(text) if not content.isdisjoint(spelled(word)))
        return tuple(words)[:MAX_MATCHED]
