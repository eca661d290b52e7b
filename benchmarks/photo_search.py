"""How well words find photos: 50 natural queries on 2,400 photos, of which all, half or none have their captions.

    python benchmarks/photo_search.py ../shared/data/iapr_photos --flickr8k ../shared/data/flickr8k

A photo is relevant to a query if its true caption, which the collection may not have, matches every pattern of the
query. P@6 is the share of relevant photos among the first six, as a user would see them: codes, words, order and all.
`uncaptioned` looks at the photos without a caption alone, in the order of the search. The bridge of the package was
learned from these photos, so a bridge of Flickr8k's training photos stands for it here (make_bridge.py). Each half is
drawn with another seed. `tf-idf` compares captions and queries by words alone; `chance` is the mean share of relevant
photos.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fusehash import encoders
from fusehash.collection import Collection, NewItem, read_folder
from fusehash.collection import bridge as bridges
from make_bridge import as_bridge, of_flickr8k
from runs import described, store

RESULTS = 6
QUERIES = {
    "snowy mountains": [r"\bsnow", r"\bmountain"],
    "a sandy beach by the sea": [r"\b(beach|shore)", r"\b(sea|ocean|waves?|water|bay)\b"],
    "sunset": [r"\bsunset|\bsunrise|\bsun is setting|\bsetting sun|\borange sky|\breddish sky"],
    "city at night": [r"\bnight", r"\b(city|street|buildings?|square|tower|church|cathedral|lamps?|skyline|houses?)\b"],
    "bike race": [r"\b(cyclists?|cycling|racing bikes?)\b"],
    "man on a bicycle": [r"\b(cyclists?|cycling|bikes?|bicycles?)\b", r"\b(man|he|cyclist|rider|riding)\b"],
    "tennis player": [r"\btennis\b"],
    "football match": [r"\b(football|soccer)\b"],
    "crowd in a stadium": [r"\b(stadium|grandstands?|spectators)\b"],
    "red car": [r"\bred\b[^,;.]{0,25}\b(cars?|minibus|van|buggy)\b"],
    "street with cars": [r"\b(street|road|highway|lane)\b", r"\bcars?\b"],
    "waterfall": [r"\bwaterfalls?\b"],
    "desert": [r"\b(desert|dunes?)\b"],
    "sand dunes": [r"\bdunes?\b|\bsandboard"],
    "ancient ruins": [r"\bruins?\b"],
    "church": [r"\b(church|cathedral)\b"],
    "boats on the water": [r"\b(boats?|ships?|sailing|canoes?|yachts?)\b"],
    "harbour": [r"\b(harbour|port|docked|jetty)\b"],
    "a bridge over a river": [r"\bbridge\b"],
    "river in a valley": [r"\b(river|creek)\b", r"\b(valley|mountains?|hills?|canyon|slopes?|forest|trees)\b"],
    "lake with mountains": [r"\b(lake|lagoon)\b", r"\b(mountains?|hills?|volcano)\b"],
    "jungle": [r"\b(jungle|rainforest|rain forest)\b"],
    "palm trees": [r"\bpalms?\b"],
    "cactus": [r"\bcactus(es)?\b|\bcacti\b"],
    "flowers": [r"\bflowers?\b|\bblooms?\b|\bblossoms?\b"],
    "hotel room with a bed": [r"\bbeds?\b"],
    "people eating at a table": [
        r"\btables?\b",
        r"\b(people|man|men|woman|women|tourists?|kids?|children|girls?|boys?|persons?)\b",
    ],
    "kids in a classroom": [r"\bclassroom\b|\bdesks?\b"],
    "group of people posing": [
        r"\b(posing|group)\b",
        r"\b(people|men|women|tourists|kids|children|persons|girls|boys)\b",
    ],
    "children playing": [r"\b(kids|children)\b"],
    "portrait of a girl": [r"\bgirl\b"],
    "statue": [r"\b(statues?|monument|sculptures?)\b"],
    "fountain in a square": [r"\bfountain\b"],
    "airplane": [r"\b(airplanes?|planes?|aircrafts?|airport)\b"],
    "train": [r"\btrains?\b|\brailway\b|\brails\b"],
    "bird": [r"\b(birds?|condors?|vultures?|penguins?|gulls?|seagulls?|pelicans?|parrots?|flamingos?|ostrich(es)?)\b"],
    "llamas": [r"\b(llamas?|alpacas?|vicu)\w*"],
    "horse": [r"\bhorses?\b|\bdonkeys?\b"],
    "surfer on a wave": [r"\b(surfers?|surfing|surfboards?)\b|\bwaves?\b"],
    "skyscrapers": [r"\b(skyscrapers?|skyline|high-rise|high rise)\b"],
    "aerial view of a city": [r"\b(view|aerial)\b", r"\bcity\b"],
    "iceberg or glacier": [r"\b(glaciers?|icebergs?|ice)\b"],
    "salt flat": [r"\bsalt\b"],
    "rocky coast": [r"\b(coast|cliffs?|shore)\b", r"\b(rock|rocks|rocky|cliffs?)\b"],
    "canyon": [r"\bcanyon\b|\bgorge\b"],
    "hikers with backpacks": [r"\b(backpacks?|hikers?|hiking|trail|footpath)\b"],
    "people dancing": [r"\bdanc"],
    "swimming pool": [r"\bpool\b"],
    "market stall": [r"\b(market|stalls?|vegetables|fruits?|shop)\b"],
    "green meadow with trees": [r"\b(meadows?|lawns?)\b", r"\btrees?\b"],
}


def relevance(captions: Sequence[str]) -> Any:
    """Queries x photos, whether a photo is relevant."""
    lower = [caption.lower() for caption in captions]
    return np.array([[all(re.search(p, text) for p in patterns) for text in lower] for patterns in QUERIES.values()])


def precision(order: Sequence[int], relevant: Any) -> float:
    return float(np.mean(relevant[list(order[:RESULTS])]))


def measured(collection: Collection, keys: dict[str, int], relevant: Any, has_caption: Any) -> dict[str, float]:
    """P@6 of all photos and of those without a caption, and the share of these among the first six."""
    everything, alone, shown = [], [], []
    for query, own in zip(QUERIES, relevant, strict=True):
        order = [keys[hit.item.key] for hit in collection.search(query, k=len(keys))]
        everything.append(precision(order, own))
        shown.append(np.mean(~has_caption[order[:RESULTS]]))
        without = [row for row in order if not has_caption[row]]
        if without:
            alone.append(precision(without, own))
    facts = {"P@6": np.mean(everything), "uncaptioned among the first 6": np.mean(shown)}
    if alone:
        facts["P@6 uncaptioned"] = np.mean(alone)
    return {name: round(float(value), 4) for name, value in facts.items()}


def built(
    folder: Path, items: list[NewItem], features: Path | None, **settings: Any
) -> tuple[Collection, float, float]:
    """A collection of these items, and how many seconds of the clock and of the processor it took."""
    collection = Collection.create(folder, **settings)
    if features is not None:
        shutil.copy(features, folder / "features.db")
    start, busy = time.perf_counter(), time.process_time()
    collection.build(items)
    return collection, time.perf_counter() - start, time.process_time() - busy


def by_words(captions: Sequence[str], relevant: Any) -> float:
    """P@6 of scikit-learn's tf-idf on the captions."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True)
    scores = (vectorizer.fit_transform(captions) @ vectorizer.transform(QUERIES).T).toarray().T
    orders = np.argsort(-scores, axis=1, kind="stable")
    return float(np.mean([precision(order, own) for order, own in zip(orders, relevant, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="the folder iapr_photos")
    parser.add_argument("--flickr8k", type=Path, required=True, help="the folder flickr8k")
    parser.add_argument("--bits", type=int, nargs="+", default=[64])
    parser.add_argument("--seeds", type=int, default=5, help="halves that are drawn")
    parser.add_argument("--classical", action="store_true", help="also the encoders that need no weights")
    parser.add_argument("--out", type=Path, help="a .json file for the results")
    options = parser.parse_args()
    items = list(read_folder(options.photos / "images", options.photos / "captions.csv"))
    captions = [item.text or "" for item in items]
    keys, relevant = {item.key: row for row, item in enumerate(items)}, relevance(captions)
    facts: dict[str, Any] = {
        **described(),
        "photos": len(items), "queries": len(QUERIES), "relevant per query": round(float(relevant.sum(1).mean()), 1),
        "chance": round(float(relevant.mean()), 4), "tf-idf, all captions": round(by_words(captions, relevant), 4),
        "runs": [],
    }  # fmt: skip
    other = as_bridge(of_flickr8k(options.flickr8k))
    names = [("auto", "auto"), *([("classical", "tfidf")] if options.classical else [])]
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(bridges, "shipped", return_value=other):
        features: Path | None = None
        for image, text in names:
            for bits in options.bits:
                for kept in ("all", "none", *(f"half, seed {seed}" for seed in range(options.seeds))):
                    has_caption = np.full(len(items), kept == "all")
                    if kept.startswith("half"):
                        seed = int(kept.rpartition(" ")[2])
                        has_caption[np.random.default_rng(seed).permutation(len(items))[: len(items) // 2]] = True
                    given = [
                        each if has else replace(each, text=None) for each, has in zip(items, has_caption, strict=True)
                    ]
                    if kept == "none" and not bridged(image, text):
                        continue
                    folder = Path(scratch) / f"{image}-{bits}-{kept}"
                    collection, seconds, busy = built(
                        folder, given, features, n_bits=bits, image_encoder=image, text_encoder=text
                    )
                    with collection:
                        run = {
                            "encoders": [encoders.parse(image, "image")[0], encoders.parse(text, "text")[0]],
                            "bits": bits,
                            "captions": kept,
                            **measured(collection, keys, relevant, has_caption),
                            "seconds": round(seconds, 1),
                            "processor seconds": round(busy, 1),
                            "features were there": features is not None,
                        }
                    run["MB"] = round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1)  # when closed
                    facts["runs"].append(run)
                    print(json.dumps(run), flush=True)
                    if features is None:
                        features = Path(scratch) / "features.db"
                        shutil.copy(folder / "features.db", features)
                    shutil.rmtree(folder)
            features = None
    if options.out is not None:
        store(options.out, facts)


def bridged(image: str, text: str) -> bool:
    return (encoders.parse(image, "image")[0], encoders.parse(text, "text")[0]) in bridges.SHIPPED


if __name__ == "__main__":
    main()
