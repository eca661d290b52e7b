"""How well a few words find what a collection's texts say, by codes alone and by codes and words together.

    python benchmarks/short_queries.py --photos FOLDER [--seeds 5]

FOLDER holds photos and captions.csv (image, caption, labels); the emoji come with the extra `demo`. For every seed,
other items are held out (400 photos, whole concepts of emoji) and a collection is made of 200 or of all others.

    found     queries of 1 to 3 words in a row from a caption of the collection: how often a text that has all of them
              is the first hit, among the first 5, among the first 10
    verbatim  whole captions of the collection: how often the first hit has that very text
    MAP@50    held-out captions, whole and cut to 1 to 3 words: relevant is what shares a label (emoji: the group). The
              labels of the photos are words of their captions, those of the emoji are not.

This is what a user of a collection sees, who searches items by their texts too. It says nothing about hashing across
views: `fusehash evaluate` and `fusehash bench` measure that, on codes alone. Results go to
benchmarks/results/short_queries-DATE.json.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.collection import Collection, NewItem, read_folder
from fusehash.errors import DataError
from runs import described, result_path, store

HELD_OUT, QUERIES, VERBATIM = 400, 400, 100
ASKED = 200  # held-out items that ask
PLAIN = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by for from her his in is it its of on one or some that the their there this three to "
        "two with front left right",
    )
)
Search = Callable[[str, int], list[Any]]


def telling(text: str) -> list[str]:
    """The words of a text that say something, in order."""
    return [word for word in re.findall(r"\w+", text.lower()) if word not in PLAIN and len(word) > 2]


def by_code(collection: Collection) -> Search:
    """Search by text by codes alone."""

    def search(text: str, k: int) -> list[Any]:
        snapshot = collection._now()
        query = snapshot.project("text", text)
        return [collection.item(id) for id in snapshot.rank(query, k)[0].tolist()]

    return search


def by_both(collection: Collection) -> Search:
    """Search by text as a collection does: by codes and words."""
    return lambda text, k: [hit.item for hit in collection.search(text, k=k)]


def cut(text: str, count: int, rng: np.random.Generator) -> str | None:
    """So many telling words in a row."""
    words = telling(text)
    if len(words) < count:
        return None
    start = int(rng.integers(len(words) - count + 1))
    return " ".join(dict.fromkeys(words[start : start + count]))


def average_precision(relevant: list[bool]) -> float:
    """Divided by the number of relevant items that were found."""
    hits = np.cumsum(relevant)
    return float(np.mean([hits[i] / (i + 1) for i, is_it in enumerate(relevant) if is_it])) if any(relevant) else 0.0


def measure(search: Search, inside: list[NewItem], outside: list[NewItem], n_labels: int | None, seed: int) -> Any:
    """All numbers of one way to search; `n_labels`: only the first labels count."""
    rng = np.random.default_rng(seed)

    def answer(text: str, k: int) -> list[Any]:
        try:
            return search(text, k)
        except DataError:  # no word of it is known
            return []

    found, firsts = [], []
    while len(found) < QUERIES:
        query = cut(inside[rng.integers(len(inside))].text or "", int(rng.integers(1, 4)), rng)
        if query is not None:
            items = answer(query, 10)
            says = [set(query.split()) <= set(telling(item.text or "")) for item in items]
            found.append([any(says[:1]), any(says[:5]), any(says)])
            firsts += [item.id for item in items[:1]]
    scores: dict[str, float] = dict(zip(("first", "in 5", "in 10"), np.mean(found, axis=0).round(4), strict=True))
    scores["most often first"] = Counter(firsts).most_common(1)[0][1] / len(found)
    whole = [item.text for item in inside[:VERBATIM] if item.text]
    scores["verbatim"] = float(np.mean([[item.text for item in answer(text, 1)] == [text] for text in whole]))
    for count in (None, 3, 2, 1):
        precisions = []
        for item in outside[:ASKED]:
            query = item.text if count is None else cut(item.text or "", count, rng)
            if query and item.labels:
                wanted = set(item.labels[:n_labels])
                hits = answer(query, 50)
                precisions.append(average_precision([bool(wanted & set(hit.labels[:n_labels])) for hit in hits]))
        scores["MAP@50, whole" if count is None else f"MAP@50, {count} words"] = round(float(np.mean(precisions)), 4)
    return {name: round(float(value), 4) for name, value in scores.items()}


def photos(folder: Path, count: int, seed: int) -> tuple[list[NewItem], list[NewItem], dict[str, Any], None]:
    """Items to index and items to ask with."""
    items = [item for item in read_folder(folder) if item.text]
    order = np.random.default_rng(seed).permutation(len(items))
    chosen = [items[i] for i in order]
    return chosen[HELD_OUT : HELD_OUT + count], chosen[:HELD_OUT], {}, None


def emoji(seed: int) -> tuple[list[NewItem], list[NewItem], dict[str, Any], int]:
    """Items to index and items to ask with."""
    from fusehash.datasets.emoji import load_emoji, split_concepts

    items = load_emoji()
    split = split_concepts(items, seed)
    sides = [[NewItem(i.key, i.image, i.text, i.labels) for i in map(items.__getitem__, rows)]
             for rows in (split.database, split.query)]  # fmt: skip
    return sides[0], sides[1], {"image_params": {"side": 72}}, 1


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    sets: dict[str, Callable[[int], Any]] = {"emoji": emoji}
    if given.photos is not None:
        sets = {
            "200 photos": lambda seed: photos(given.photos, 200, seed),
            **sets,
            "2,000 photos": lambda seed: photos(given.photos, 2000, seed),
        }
    head, target = described(), result_path("short_queries")
    results: dict[str, Any] = {}
    for name, make in sets.items():
        runs: dict[str, list[dict[str, float]]] = {"codes": [], "codes and words": []}
        for seed in range(given.seeds):
            inside, outside, options, n_labels = make(seed)
            with (
                tempfile.TemporaryDirectory() as folder,
                Collection.create(Path(folder) / "c", random_state=seed, **options) as collection,
            ):
                collection.build(inside)
                for way, search in (("codes", by_code(collection)), ("codes and words", by_both(collection))):
                    runs[way].append(measure(search, inside, outside, n_labels, seed))
            results[name] = {
                way: {key: {"mean": round(float(np.mean([run[key] for run in all_runs])), 4),
                            "std": round(float(np.std([run[key] for run in all_runs])), 4)} for key in all_runs[0]}
                for way, all_runs in runs.items()
            }  # fmt: skip
            facts = {"n_bits": 64, "queries": QUERIES, "seeds": given.seeds, "results": results}
            store(target, head | facts)
            print(name, seed, {way: all_runs[-1] for way, all_runs in runs.items()}, flush=True)


if __name__ == "__main__":
    main()
