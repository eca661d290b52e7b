"""The words of all texts of a collection, and how much of a query each text says.

A code has room for what a text is about, not for every word of it, and a query of one or two words is far from any
caption. So a search by text looks at the words of the texts too. With w_t = ln(1 + (n - df_t + 1/2) / (df_t + 1/2)),
the rarer a word the larger, q the words of the query and d those of a text,

    said    = sum of w_t over q that d has / sum of w_t over q             how much of the query the text says
    nothing else = sum of w_t over d that q has / sum of w_t over d        how little else it says
    score   = (said + 0.1 nothing else) / 1.1,

1 for the very words of the query and less for all other texts; a short text gains only where others say as much. A word
counts once. Where a text lacks a word of the query, another form of it stands in and counts 0.8 in `said`: a word that
begins with it, or that it begins with, and is not much longer or shorter (kid and kids, play and playing).
"""

from __future__ import annotations

import re
import sqlite3
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fusehash.search.rows import Ids

Ints = NDArray[np.int32]
Single = NDArray[np.float32]
ELSE = 0.1  # weight of saying nothing else
# Two words are forms of one if they share at least so many letters from the start, and so large a part of all letters.
FORM_LETTERS, FORM_SHARE, FORM_COUNTS = 3, 0.7, 0.8
_WORD = re.compile(r"\w+")


def words_in(text: str) -> list[str]:
    """The different words of a text, in one spelling."""
    return sorted(set(_WORD.findall(unicodedata.normalize("NFKC", text).lower())))


@dataclass(frozen=True)
class Said:
    """How much of one query each text says: ids of items that have a text, ascending, and their scores."""

    ids: Ids
    scores: Single

    def best(self, count: int, allowed: Ids | None = None) -> Ids:
        """The ids of the `count` largest scores above 0, largest first, then by id; among the allowed ones."""
        scores = self.scores if allowed is None else np.where(np.isin(self.ids, allowed), self.scores, 0.0)
        rows = np.flatnonzero(scores > 0.0)
        if count < len(rows):
            cut = np.partition(scores[rows], len(rows) - count)[len(rows) - count]
            rows = rows[scores[rows] >= cut]
        return self.ids[rows[np.argsort(-scores[rows], kind="stable")][:count]]

    def of(self, ids: Ids) -> NDArray[np.float64]:
        """The scores of some ids; NaN for those that have no text."""
        scores = np.full(len(ids), np.nan)
        if len(self.ids):
            rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            here = self.ids[rows] == ids
            scores[here] = self.scores[rows[here]]
        return scores


@dataclass(frozen=True)
class Words:
    """The words of texts.

    ids : the ids of the items that have a text, ascending
    known : every word -> its number
    starts, numbers : the words of text i are numbers[starts[i] : starts[i + 1]]
    texts : id -> the text that they were taken from
    """

    ids: Ids
    known: dict[str, int]
    starts: Ints
    numbers: Ints
    texts: dict[int, str]

    @classmethod
    def read(cls, rows: Iterable[tuple[int, str]], before: Words | None = None) -> Words:
        """Words of (id, text) rows in order of id; texts that `before` had are not taken apart again."""
        known = dict(before.known) if before is not None else {}
        place = {} if before is None else {id: row for row, id in enumerate(before.ids.tolist())}
        texts: dict[int, str] = {}
        parts: list[Ints] = []
        for id, text in rows:
            if before is not None and before.texts.get(id) == text:
                row = place[id]
                parts.append(before.numbers[before.starts[row] : before.starts[row + 1]])
            else:
                parts.append(np.array([known.setdefault(word, len(known)) for word in words_in(text)], np.int32))
            texts[id] = text
        starts = np.zeros(len(parts) + 1, np.int32)
        np.cumsum([len(part) for part in parts], out=starts[1:])
        numbers = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return cls(np.fromiter(texts, np.int64, len(texts)), known, starts, numbers, texts)

    @cached_property
    def weights(self) -> Single:
        """w_t of every word."""
        often = np.bincount(self.numbers, minlength=len(self.known))
        return np.log1p((len(self.ids) - often + 0.5) / (often + 0.5)).astype(np.float32)

    @cached_property
    def totals(self) -> Single:
        """Sum of w_t over the words of every text."""
        summed = np.concatenate([[0.0], np.cumsum(self.weights[self.numbers], dtype=np.float64)])
        return (summed[self.starts[1:]] - summed[self.starts[:-1]]).astype(np.float32)

    @cached_property
    def _postings(self) -> tuple[Ints, Ints]:
        """For every word, the rows of the texts that have it: rows[starts[t] : starts[t + 1]]."""
        rows = np.repeat(np.arange(len(self.ids), dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.numbers, kind="stable")
        starts = np.searchsorted(self.numbers[order], np.arange(len(self.known) + 1)).astype(np.int32)
        return rows[order], starts

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.known)

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted(set(map(len, self.known)))

    def forms(self, word: str) -> list[str]:
        """Known words that begin with a word, or that it begins with, and are of about its length; not itself."""
        if len(word) < FORM_LETTERS:
            return []
        first = bisect_left(self._sorted, word)
        last = bisect_left(self._sorted, word + chr(sys.maxunicode))
        ends = (end for end in self._lengths if FORM_LETTERS <= end < len(word))  # few, however long the word is
        shorter = [word[:end] for end in ends if word[:end] in self.known]
        return [
            other
            for other in (*shorter, *self._sorted[first:last])
            if other != word and 2 * min(len(word), len(other)) >= FORM_SHARE * (len(word) + len(other))
        ]

    def said(self, query: str) -> Said:
        """How much of a query each text says."""
        said, inside = np.zeros((2, len(self.ids)), np.float32)
        asked = 0.0
        rows, starts = self._postings
        rarest = float(np.log1p(2.0 * len(self.ids) + 1.0))
        for word in words_in(query):
            own = self.known.get(word)
            weight = rarest if own is None else float(self.weights[own])
            asked += weight
            others = [self.known[other] for other in self.forms(word)]
            if others:
                found = np.zeros(len(self.ids), np.float32)
                for number in others:
                    found[rows[starts[number] : starts[number + 1]]] = FORM_COUNTS
                if own is not None:
                    found[rows[starts[own] : starts[own + 1]]] = 1.0
                said += np.float32(weight) * found
            elif own is not None:
                said[rows[starts[own] : starts[own + 1]]] += weight
            if own is not None:
                inside[rows[starts[own] : starts[own + 1]]] += weight
        if asked > 0.0:
            nothing_else = inside / np.maximum(self.totals, np.float32(1e-9))
            said = (said / np.float32(asked) + np.float32(ELSE) * nothing_else) / np.float32(1.0 + ELSE)
        return Said(self.ids, said)


def read_words(database: sqlite3.Connection, before: Words | None = None) -> Words:
    """The words of all texts of a collection as they are now."""
    return Words.read(database.execute("SELECT id, text FROM item WHERE text IS NOT NULL ORDER BY id"), before)
