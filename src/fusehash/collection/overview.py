"""Overviews of a collection: counts, groups of similar items named by their words, and how the codes use their bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import entr

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.store import Totals
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids

RECOMMEND_SHARE = 0.2  # of items that are new to the model; with more, a reindex is recommended
SAMPLE = 5000  # codes that are clustered; the others join the nearest cluster
PAIRS = 200_000  # pairs of codes whose distances are counted
WORDS, EXAMPLES = 3, 12  # per group
MIN_SHARE, MIN_LIFT = 0.3, 3.0  # a word that names a group is in so many of its texts, and so much rarer elsewhere
NEAR_SHARE = 16  # items whose codes differ in at most n_bits / 16 bits are compared
SEARCHED_AT_ONCE = 256
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP_WORDS = _WORD.findall(
    "and are for from has her his its not one our out she that the their them there these they this two was were "
    "with some you your other into over both also very"
)


# How people look is no name for a group of pictures.
_LOOKS = frozenset(
    _WORD.findall(
        """skin skinned hair haired hairs hairy blond blonde brunette redhead curly bald beard bearded moustache
        mustache dark fair pale tanned black white brown asian african european indian face faces faced eye eyes eyed
        body lips fat thin slim skinny chubby big small tall short pretty beautiful ugly handsome attractive sexy naked
        nude old older young younger elderly wearing dressed"""
    )
)


def counts(totals: Totals, *, trained: bool) -> dict[str, Any]:
    """How many items there are of each kind, and whether a reindex is recommended."""
    numbers = {name: getattr(totals, name) for name in ("items", "images", "texts", "pairs", "broken_images")}
    total, unseen = totals.items, totals.unseen
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


def facets(catalogue: Catalogue) -> dict[str, Any]:
    """How many items there are with each label, in each folder, of each year, with and without a text."""
    labels = {name: len(ids) for name, ids in catalogue.by_label.items()}
    years = Counter(int(day[:4]) for day in catalogue.days.values())
    return {
        "labels": dict(sorted(labels.items(), key=lambda label: (-label[1], label[0]))),
        "folders": {name: len(ids) for name, ids in sorted(catalogue.folders.items())},
        "years": dict(sorted(years.items(), reverse=True)),
        "with_text": len(catalogue.texts),
        "without_text": len(catalogue.ids) - len(catalogue.texts),
    }


def duplicates(
    index: HammingIndex, catalogue: Catalogue, alike: Callable[[int, int], bool], radius: int
) -> list[list[int]]:
    """Groups of ids with the same image, with the same text and no image, or that look alike; largest first.

    Items are compared if their codes are at most `radius` apart.
    """
    ids = index.ids
    parents = dict(zip(ids.tolist(), ids.tolist(), strict=True))

    def root(id: int) -> int:
        while parents[id] != id:
            parents[id] = id = parents[parents[id]]
        return id

    def join(one: int, other: int) -> None:
        first, second = sorted((root(one), root(other)))
        parents[second] = first

    by_text: dict[str, list[int]] = {}
    for id, text in catalogue.texts.items():
        if id not in catalogue.images:
            by_text.setdefault(text, []).append(id)
    for same in (*catalogue.by_image.values(), *by_text.values()):
        with_code = [id for id in same if id in parents]
        for other in with_code[1:]:
            join(with_code[0], other)
    for start in range(0, len(ids), SEARCHED_AT_ONCE):
        part = ids[start : start + SEARCHED_AT_ONCE]
        offsets, _, near = index.range_search(index.get(part), radius)
        owners = np.repeat(part, np.diff(offsets))
        for one, other in zip(owners[owners < near].tolist(), near[owners < near].tolist(), strict=True):
            if root(one) != root(other) and alike(one, other):
                join(one, other)
    groups: dict[int, list[int]] = {}
    for id in parents:
        groups.setdefault(root(id), []).append(id)
    several = [sorted(group) for group in groups.values() if len(group) > 1]
    return sorted(several, key=lambda group: (-len(group), group))


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


def words_of(catalogue: Catalogue, ids: Ids) -> dict[int, set[str]]:
    """The different words of every item's text and labels."""
    contents = {id: " ".join([catalogue.texts.get(id, ""), *catalogue.labels.get(id, ())]) for id in ids.tolist()}
    return {
        id: {word for word in _WORD.findall(content.lower()) if word not in _STOP_WORDS}
        for id, content in contents.items()
    }


def _typical_words(words: Counter[str], everywhere: Counter[str], size: int, total: int) -> list[str]:
    """The words that tell a group apart: frequent in it, rare elsewhere, most telling first; none if none does."""

    def shares(word: str) -> tuple[float, float]:
        return words[word] / size, (everywhere[word] - words[word] + 1) / (total - size + 2)

    def weight(word: str) -> float:
        inside, outside = shares(word)
        return inside * float(np.log(inside / outside))

    def is_telling(word: str) -> bool:
        inside, outside = shares(word)
        return word not in _LOOKS and words[word] >= max(2, MIN_SHARE * size) and inside >= MIN_LIFT * outside

    telling = filter(is_telling, words)
    return sorted(telling, key=lambda word: (-weight(word), word))[:WORDS]
