"""If a caption has a word, how likely does somebody else who describes the picture use it? Photos with five captions.

    python benchmarks/second_caption.py ../shared/data/flickr8k --out benchmarks/results/second_caption-DATE.json

A model learns from 2,000 training photos of Flickr8k, each with its first caption. The test photos have their second
caption or none. Queries are one and two words of first captions; a word is right about a photo as often as its other
three captions have it. With the chance c of a photo without a caption (queries/calibration.py), the script fits n in

    c + (1 - c) n    if the second caption has the word
    c n              if not,

to the 30 best photos of each query: the first n is NAMED. The bins compare both sides for several c.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits, encoders, hashers
from fusehash.collection import bridge as bridges
from fusehash.collection.queries import calibration
from fusehash.collection.queries.neighbors import Neighbors
from fusehash.collection.queries.words import Words
from runs import described, store

TRAINED, ASKED, BINS = 2000, 400, 10


def captions_of(path: Path) -> dict[str, list[str]]:
    """The captions of each photo."""
    captions: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for photo, caption, *_ in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            captions.setdefault(photo, []).append(caption)
    return captions


def results(folder: Path, n_bits: int) -> tuple[Any, ...]:
    """For each word of each query and each of its best photos: the variables without and with the second caption,
    whether this has the word, and the share of the others that have it."""
    captions = captions_of(folder / "captions.tsv")
    with np.load(folder / "flickr8k_effl0_minilm.npz") as data:
        images, texts, split = data["image"].astype(np.float32), data["text"].astype(np.float32), data["split"]
        names = [str(name) for name in data["name"]]
    train, test = np.flatnonzero(split == "train")[:TRAINED], np.flatnonzero(split == "test")
    shipped = bridges.shipped(bridges.SHIPPED["efficientnet-lite0", "minilm"])
    bridge = shipped.refined(images[train], texts[train, 0])
    model = hashers.make("fusehash", n_bits=n_bits, random_state=0)
    model.fit({"image": images[train], "text": texts[train, 0]})
    known = Words.read(enumerate(captions[names[row]][0] for row in train))
    said = [Words.read(enumerate(captions[names[row]][number] for row in test)) for number in range(5)]
    learned = model.encode_fused({"image": images[train], "text": texts[train, 0]})
    codes = [
        model.encode_fused({"image": images[test], "text": each})
        for each in (bridge.captions(images[test]), texts[test, 1])
    ]
    items, ids = np.arange(len(test) + len(train)), np.arange(len(test))
    asked = [names[row] for row in test[:ASKED]]
    queries = calibration.queries_from([captions[name][0] for name in asked], asked)
    rows = encoders.make("minilm").fit([]).transform([" ".join(query) for query in queries])
    parts: list[tuple[Any, ...]] = []
    sides = []
    for packed in codes:
        near = Neighbors(items[len(test) :], items, np.concatenate([packed, learned]).__getitem__)
        sides.append((bits.unpack(packed, n_bits).astype(np.float64), near))
    for query, vector in zip(queries, model.project(rows, view="text"), strict=True):
        having = [known.having(word) + len(test) for word in query]
        both = []
        for signs, near in sides:
            fit = calibration.similarity(signs, vector)
            both.append((fit, calibration.standardized(fit, fit), near.shares(ids, having)))
        best = np.argsort(-both[0][0], kind="stable")[: calibration.BEST]
        for number, word in enumerate(query):
            has = np.stack([calibration.has_word(words, [word], ids)[0] for words in said])
            variables = [
                np.stack(calibration._variables(known, word, fit, z, shares[number]), axis=1)[best]
                for fit, z, shares in both
            ]
            parts.append((*variables, has[1, best], has[2:, best].mean(axis=0)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def compared(chances: Any, right: Any) -> list[dict[str, float]]:
    """Mean chance and share of right words per tenth of the chance."""
    place = np.minimum((chances * BINS).astype(int), BINS - 1)
    return [
        {"results": int(chosen.sum()), "chance": _mean(chances[chosen]), "right": _mean(right[chosen])}
        for chosen in (place == number for number in range(BINS))
        if chosen.sum() >= 20
    ]


def _mean(values: Any) -> float:
    return round(float(values.mean()), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    head = described()
    without, with_caption, named, right = results(options.flickr8k, options.bits)
    weights = calibration.fit_logistic(without, right)
    chances = calibration._logistic(with_caption @ weights)
    rest = 1.0 - chances[named]
    facts = {
        **head,
        "results": len(right),
        "named": round(float(((right[named] - chances[named]) * rest).sum() / (rest**2).sum()), 3),
        "unnamed": round(float((right[~named] * chances[~named]).sum() / (chances[~named] ** 2).sum()), 3),
        "without a caption": compared(calibration._logistic(without @ weights), right),
        "with a caption that has the word": compared(chances[named], right[named]),
        "with one that has not": compared(chances[~named], right[~named]),
    }
    print(json.dumps(facts, indent=1))
    if options.out is not None:
        store(options.out, facts)


if __name__ == "__main__":
    main()
