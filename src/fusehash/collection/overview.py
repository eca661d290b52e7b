"""Overviews of a collection: counts, groups of similar items named by their words, and how the codes use their bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import entr

from fusehash import bits
from fusehash.bits import Codes
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection

RECOMMEND_SHARE = 0.2  # of items that are new to the model; with more, a reindex is recommended
SAMPLE = 5000  # codes that are clustered; the others join the nearest cluster
PAIRS = 200_000  # pairs of codes whose distances are counted
WORDS, EXAMPLES = 4, 12  # per group
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP_WORDS = _WORD.findall(
    "and are for from has her his its not one our out she that the their them there these they this two was were "
    "with some you your other into over both also very"
)


def counts(database: Connection, *, trained: bool) -> dict[str, Any]:
    """How many items there are of each kind, and whether a reindex is recommended."""
    query = (
        "SELECT count(*) AS items, count(image) AS images, count(text) AS texts, sum(image IS NOT NULL AND text IS NOT "
        "NULL) AS pairs, sum(problem IS NOT NULL) AS broken_images, sum(NOT trained) AS unseen FROM item"
    )
    rows = database.execute(query)
    numbers = {name: number or 0 for (name, *_), number in zip(rows.description, rows.fetchone(), strict=True)}
    total, unseen = numbers["items"], numbers.pop("unseen")
    advice = ""
    if total and not trained:
        advice = "Nothing can be searched yet: at least 2 items with different images or texts are needed."
    elif unseen > RECOMMEND_SHARE * total:
        advice = f"{unseen:,} of {total:,} items came after the codes were learned; a reindex is recommended."
    return {
        **numbers,
        "trained": trained,
        "after_training": unseen if trained else 0,
        "reindex_recommended": bool(advice),
        "advice": advice,
    }


def clusters(words: dict[int, set[str]], ids: Ids, codes: Codes, n_bits: int, count: int) -> list[dict[str, Any]]:
    """Groups of similar codes, largest first: {"words", "examples" (ids, the most typical first), "size"}."""
    from sklearn.cluster import KMeans

    if not len(ids):
        return []
    signs, rng = bits.unpack(codes, n_bits).astype(np.float32), np.random.default_rng(0)
    sample = signs if len(signs) <= SAMPLE else signs[np.sort(rng.choice(len(signs), SAMPLE, replace=False))]
    count = max(1, min(count, len(np.unique(codes, axis=0)), len(ids) // 5 + 1))
    centers = KMeans(count, n_init=3, random_state=0).fit(sample).cluster_centers_
    offsets, starts = 0.5 * (centers**2).sum(axis=1), range(0, len(ids), 4096)
    nearest = np.concatenate([np.argmax(signs[i : i + 4096] @ centers.T - offsets, axis=1) for i in starts])
    everywhere = Counter(word for item_words in words.values() for word in item_words)
    groups = []
    for number in range(len(centers)):
        members = np.flatnonzero(nearest == number)
        if not len(members):
            continue
        typical = members[np.argsort(-(signs[members] @ centers[number]), kind="stable")]
        inside = Counter(word for row in members for word in words.get(int(ids[row]), ()))
        named = _typical_words(inside, everywhere, len(members), len(words))
        examples = [int(ids[row]) for row in typical[:EXAMPLES]]
        groups.append({"words": named, "examples": examples, "size": len(members)})
    return sorted(groups, key=lambda group: (-group["size"], group["examples"]))


def code_stats(codes: Codes, n_bits: int) -> dict[str, Any]:
    """How the codes use their bits: means in [-1, 1], entropies, and the distances of random pairs."""
    if not len(codes):
        return {"codes": 0, "n_bits": n_bits, "distinct": 0, "bit_means": [], "bit_entropy": [], "distances": []}
    share = bits.ones_per_bit(codes) / len(codes)
    entropy = (entr(share) + entr(1.0 - share)) / np.log(2.0)
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, len(codes), (2, PAIRS if len(codes) > 1 else 0))
    left, right = left[left != right], right[left != right]
    histogram = np.bincount(bits.distances_to(codes[left], codes[right]), minlength=n_bits + 1)
    return {
        "codes": len(codes),
        "n_bits": n_bits,
        "distinct": len(np.unique(codes, axis=0)),
        "bit_means": (2.0 * share - 1.0).round(4).tolist(),
        "bit_entropy": entropy.round(4).tolist(),
        "distances": (histogram / max(1, len(left))).round(6).tolist(),  # share of pairs at distance 0, 1, 2, ...
    }


def words_of(rows: Iterable[tuple[int, str | None, str]], ids: Ids) -> dict[int, set[str]]:
    """The different words of every item's text and labels, from rows of (id, text, labels)."""
    coded = set(ids.tolist())
    return {
        id: {word for word in _WORD.findall(f"{text or ''} {labels}".lower()) if word not in _STOP_WORDS}
        for id, text, labels in rows
        if id in coded
    }


def _typical_words(words: Counter[str], everywhere: Counter[str], size: int, total: int) -> list[str]:
    """The words that are more frequent in this group than elsewhere, weighted by their frequency."""

    def weight(word: str) -> float:
        inside, outside = words[word] / size, (everywhere[word] - words[word] + 1) / (total - size + 2)
        return inside * float(np.log(max(inside / outside, 1e-9)))

    frequent = [word for word in words if words[word] >= max(2, size // 50)] or list(words)
    return sorted(frequent, key=lambda word: (-weight(word), word))[:WORDS]
