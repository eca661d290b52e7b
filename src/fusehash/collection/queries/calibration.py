"""What a score means: how often a result of a search by words is right, learned from captions that were held out.

A fifth of the captioned pictures, at most 1,000, is held out, and a second model learns from the others. It searches
the held-out pictures without their captions, by one or two words of one of these captions. A word is right about a
picture if the hidden caption has it. The chance of that is a logistic regression on

    how often other captions have the word    ln(share / (1 - share))
    how well the picture fits the query       s, the similarity of code and query, and z, s in standard deviations
    whether any other caption has the word    0 or 1, also times s
    how often captions of similar pictures    ln((5 n + share) / (5 (1 - n) + 1 - share)), n: the share of the nearest
    have the word                             captioned items that have it (neighbors.py)

fitted to the 30 best pictures of each query. An item with a caption is on the same scale: the chance that somebody else
who describes its picture uses the word. With the chance c of the picture, it is

    c + (1 - c) NAMED    if its caption has the word
    c `unnamed`          if not: a caption need not name all that is in its picture,

where `unnamed` is measured by hiding one part of a caption of several. So a picture without a caption that fits well
comes before one that fits badly although its caption has the word. The confidence of a result is the mean of these
chances over the words of the query, and 1 if its caption has exactly these words.

A collection with too few captions to hold some out has the weights that ship with its bridge, if there are any. They
are of s and z alone and were learned on other photos (benchmarks/make_bridge.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection import bridge as bridges
from fusehash.collection import training
from fusehash.collection.encoding import Encoders, order_of
from fusehash.collection.features import Floats32
from fusehash.collection.queries.neighbors import Neighbors
from fusehash.collection.queries.words import STOP_WORDS, Words, spelled, words_in
from fusehash.errors import FusehashError
from fusehash.search.rows import Ids
from fusehash.sqlite import DamageError
from fusehash.views import Floats

BACKGROUND = 2000  # codes that a query is compared with, for z
BEST = 30  # results of each query that are learned from
QUERIES = 400  # captions that queries are taken from
RIDGE = 1.0
NEIGHBORS_COUNT = 5.0  # captions that all neighbors together count as
NAMED = 0.35  # measured by benchmarks/second_caption.py
UNNAMED = 0.3  # if no caption has several parts; measured on photos, see docs/collections.md
MIN_UNNAMED_RESULTS = 200  # with fewer, the measured value would be noise
NO_WORDS = Words.read([])
_PARTS = re.compile(r"[;\n.]+")


@dataclass(frozen=True)
class Calibration:
    """How to turn the similarity of a picture and a query into a chance.

    Attributes
    ----------
    weights : tuple of float
        Of the logistic regression: a constant, then its six variables in the order above.
    unnamed : float
        How the chance of a word changes if a caption lacks it.
    pairs : int
        Pairs that were held out; 0 if the calibration ships with a bridge.
    """

    weights: tuple[float, ...]
    unnamed: float
    pairs: int

    def chances(self, words: Words, asked: Sequence[str], fit: Floats, background: Floats, neighbors: Floats) -> Floats:
        """The chance that each word (rows) is right about each item (columns).

        From its similarity to the query, and the share of its neighbors whose captions have each word.
        """
        if not self.pairs:  # captions were not looked at
            words, neighbors = NO_WORDS, np.full_like(neighbors, np.nan)
        z = standardized(fit, background)
        parts = zip(asked, neighbors, strict=True)
        variables = np.stack([np.stack(_variables(words, word, fit, z, near), axis=1) for word, near in parts])
        return _logistic(variables @ np.array(self.weights))

    def with_captions(self, chances: Floats, named: NDArray[np.bool_], has_caption: NDArray[np.bool_]) -> Floats:
        """The chances of words (rows) and items (columns), given which captions have which words."""
        unnamed = chances * np.where(has_caption, self.unnamed, 1.0)
        return np.asarray(np.where(named, chances + (1.0 - chances) * NAMED, unnamed), np.float64)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> Calibration:
        """From JSON values; raises DamageError if they cannot be any."""
        try:
            weights = tuple(float(weight) for weight in content["weights"])
            weights += (0.0,) * (len(weights) == 6)  # earlier builds did not look at neighbors
            made = cls(weights, float(content["unnamed"]), int(content["pairs"]))
        except (TypeError, ValueError, KeyError):
            raise DamageError("its calibration is damaged") from None
        if len(weights) != 7 or not all(map(math.isfinite, (*weights, made.unnamed))):
            raise DamageError("its calibration is damaged")
        return made


def asked_words(query: str) -> list[str]:
    """The words that a confidence is about: without those that say nothing, unless there are no others."""
    words = list(dict.fromkeys(spelled(query)))
    return [word for word in words if word not in STOP_WORDS] or words


def similarity(signs: Floats, query: Floats) -> Floats:
    """How well codes, as rows of -1 and 1, fit a real-valued query: from -1 to 1."""
    return np.asarray(signs @ query / max(float(np.abs(query).sum()), 1e-300), np.float64)


def standardized(values: Floats, background: Floats) -> Floats:
    """Values in standard deviations of a background."""
    return (values - background.mean()) / max(float(background.std()), 1e-9) if len(background) else 0.0 * values


def has_word(words: Words, asked: Sequence[str], ids: Ids) -> NDArray[np.bool_]:
    """Which of some texts (columns) have each word (rows), or a form of it."""
    return np.array([np.isin(ids, words.having(word)) for word in asked], bool).reshape(len(asked), len(ids))


def of_collection(held: training.HeldOutPairs | None, encoders: Encoders, bridge: str) -> Calibration | None:
    """What scores mean: learned from pairs that were held out, else what ships with a bridge, else None."""
    learned = None if held is None else learn(held, encoders)
    return shipped(bridge) if learned is None and bridge else learned


def shipped(bridge: str) -> Calibration:
    """The calibration that ships with a bridge of the package, by the name of its file."""
    with bridges.BRIDGE_FILE.reading(bridges.shipped_file(bridge)) as (_, content):
        return Calibration(tuple(map(float, content["confidence"])), UNNAMED, pairs=0)


def learn(held: training.HeldOutPairs, encoders: Encoders) -> Calibration | None:
    """What scores mean, from pairs that were held out; None if nothing can be learned."""
    results = _search(held, encoders)
    if results is None:
        return None
    variables, right, lacks, named = results
    try:
        weights = fit_logistic(variables, right)
    except np.linalg.LinAlgError:
        return None
    chance = _logistic(variables[lacks] @ weights)
    unnamed = UNNAMED
    if lacks.sum() >= MIN_UNNAMED_RESULTS and chance.sum() > 0.0:
        unnamed = float(np.clip(named[lacks].sum() / chance.sum(), 0.0, 1.0))
    return Calibration(tuple(weights.round(6).tolist()), round(unnamed, 6), len(held.held_out))


def fit_logistic(variables: Floats, right: Floats) -> Floats:
    """Weights of the ridge-regularized logistic regression, by Newton's method; the first variable is constant."""
    weights = np.zeros(variables.shape[1])
    penalty = RIDGE * np.eye(len(weights))
    penalty[0, 0] = 1e-3
    for _ in range(100):
        chance = _logistic(variables @ weights)
        gradient = variables.T @ (chance - right) + penalty @ weights
        step = np.linalg.solve((variables * (chance * (1.0 - chance))[:, None]).T @ variables + penalty, gradient)
        weights = weights - step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return weights


def queries_from(texts: Sequence[str], keys: Sequence[str]) -> list[list[str]]:
    """One and two words of each of some texts, chosen by a hash of its key."""
    queries = []
    for text, key in list(zip(texts, keys, strict=True))[:QUERIES]:
        words = [word for word in words_in(text) if word not in STOP_WORDS and len(word) > 2]
        words.sort(key=lambda word: order_of(f"{key} {word}", "query"))
        queries += [words[:count] for count in (1, 2) if len(words) >= count]
    return queries


def _search(held: training.HeldOutPairs, encoders: Encoders) -> tuple[Floats, Floats, NDArray[np.bool_], Floats] | None:
    """For each word of each query and each of its best pictures: the variables, whether the hidden caption has the
    word, whether the caption without its last part lacks it, and whether the last part then has it."""
    texts = [entry.text or "" for entry in held.held_out]
    keys = [entry.key for entry in held.held_out]
    known = Words.read((number, entry.text or "") for number, entry in enumerate(held.trained))
    hidden = Words.read(enumerate(texts))
    halves = [_without_one_part(text) for text in texts]
    several = np.array([bool(rest) for rest, _ in halves])
    rest = Words.read((number, text) for number, (text, _) in enumerate(halves))
    last = Words.read((number, text) for number, (_, text) in enumerate(halves))
    codes = training.encode(held.model, held.pictures)
    usable = np.array([number for number, code in enumerate(codes) if code is not None], np.int64)
    queries = queries_from(texts, keys)
    if not len(usable) or not queries:
        return None
    packed, learned = _packed(codes), _packed(training.encode(held.model, held.seen))
    items = np.arange(len(usable) + len(learned), dtype=np.int64)
    near = Neighbors(items[len(usable) :], items, np.concatenate([packed, learned]).__getitem__)
    signs = bits.unpack(packed, 8 * packed.shape[1]).astype(np.float64)
    rows: Floats32 = np.asarray(encoders["text"].encoder.transform([" ".join(query) for query in queries]))
    try:
        projected = held.model.project(rows, view="text")
    except FusehashError:
        return None
    parts: list[tuple[Floats, Floats, NDArray[np.bool_], Floats]] = []
    for query, vector in zip(queries, projected, strict=True):
        fit = similarity(signs, vector)
        best = np.argsort(-fit, kind="stable")[:BEST]
        z = standardized(fit, fit)[best]
        ids = usable[best]
        is_right, in_rest, in_last = (has_word(words, query, ids) for words in (hidden, rest, last))
        shares = near.shares(best, [known.having(word) + len(usable) for word in query])
        for number, word in enumerate(query):
            variables = np.stack(_variables(known, word, fit[best], z, shares[number]), axis=1)
            lacks = several[ids] & ~in_rest[number]
            parts.append((variables, is_right[number].astype(float), lacks, in_last[number].astype(float)))
    variables, right, lacks, named = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (variables, right, lacks, named) if 0.0 < right.mean() < 1.0 else None


def _variables(words: Words, word: str, fit: Floats, z: Floats, neighbors: Floats) -> list[Floats]:
    """The constant and the six variables of one word, for several items."""
    count, constant = len(words.having(word)), np.ones_like(fit)
    share = (count + 0.5) / (len(words.ids) + 1.0)
    unknown = float(count == 0)
    near = NEIGHBORS_COUNT * np.where(np.isfinite(neighbors), neighbors, share)
    log_odds = np.log((near + share) / (NEIGHBORS_COUNT - near + 1.0 - share))
    rarity = math.log(share / (1.0 - share)) * constant
    return [constant, rarity, fit, z, unknown * constant, unknown * fit, log_odds]


def _packed(codes: Sequence[bytes | None]) -> Codes:
    """The codes of the items that have one, as rows."""
    rows = [np.frombuffer(code, np.uint8) for code in codes if code is not None]
    return np.array(rows, np.uint8)


def _without_one_part(text: str) -> tuple[str, str]:
    """A caption without its last part, and that part; nothing of a caption of one part."""
    parts = [part for part in _PARTS.split(text) if part.strip()]
    return (" ".join(parts[:-1]), parts[-1]) if len(parts) > 1 else ("", "")


def _logistic(values: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -50.0, 50.0))), np.float64)
