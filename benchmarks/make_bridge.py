"""Make the bridge between efficientnet-lite0 and minilm that ships with the package, and measure it elsewhere.

    python benchmarks/make_bridge.py ../shared/data/iapr_photos --flickr8k ../shared/data/flickr8k

It is learned from 2,400 photos of IAPR TC-12 with their captions (published as free of copyright restrictions) and from
the 1,000 class names of ImageNet: a row of the classifier's weights stands for the picture that its name describes.
Confidences for collections with few captions ship with it: in each of five parts of the photos, a bridge of the others
serves a collection without captions, which is searched by words of the hidden ones (queries/calibration.py).
What ships is measured on the test photos of Flickr8k; a bridge of Flickr8k, which does not ship, on IAPR photos
(photo_search.py). No bridge is measured on photos that it was learned from.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits, encoders, hashers
from fusehash.collection import bridge as bridges
from fusehash.collection.queries import calibration
from fusehash.collection.queries.words import Words
from fusehash.encoders import packaged
from fusehash.encoders.weights import read_weights
from second_caption import captions_of

WIDTH, IMAGE_PENALTY, TEXT_PENALTY = 128, 3.0, 1.0
CLASS_WEIGHT = 1.0  # of a class name, relative to a photo
OUT = Path(bridges.__file__).with_name("bridges") / bridges.SHIPPED["efficientnet-lite0", "minilm"]
NAME = "efficientnet-lite0 to minilm, of IAPR TC-12"
CLASSES = Path(__file__).with_name("imagenet_classes.txt")


def features(folder: Path) -> tuple[Any, Any, list[str]]:
    """Image and text features and captions of the photos of a folder with captions.csv."""
    with (folder / "captions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    images = encoders.make("efficientnet-lite0").fit([]).transform([folder / "images" / row["image"] for row in rows])
    texts = encoders.make("minilm").fit([]).transform([row["caption"] for row in rows])
    return images, texts, [row["caption"] for row in rows]


def classes(images: Any) -> tuple[Any, Any]:
    """A picture of each class, as far from the mean as photos are, and the features of its name."""
    path = packaged._packaged(packaged.IMAGE_PACKAGE, packaged.IMAGE_FILE, "efficientnet-lite0")
    rows = read_weights(path, packaged.IMAGE_SHA256)["_fc.weight"]
    unit = images / np.linalg.norm(images, axis=1, keepdims=True)
    spread = np.sqrt(((unit - unit.mean(axis=0)) ** 2).sum(axis=1).mean())
    rows = rows - rows.mean(axis=0)
    rows = unit.mean(axis=0) + rows * (spread / np.sqrt((rows**2).sum(axis=1).mean()))
    names = CLASSES.read_text(encoding="utf-8").splitlines()
    return rows, encoders.make("minilm").fit([]).transform(names)


def learned(images: Any, texts: Any) -> dict[str, Any]:
    """What the file of a bridge holds, of pairs and class names."""
    rows, names = classes(images)
    counts = np.concatenate([np.ones(len(images)), np.full(len(rows), CLASS_WEIGHT)])
    return bridges.learn(
        np.vstack([images, rows]), np.vstack([texts, names]), counts, width=WIDTH, image_penalty=IMAGE_PENALTY,
        text_penalty=TEXT_PENALTY,
    )  # fmt: skip


def searched(
    bridge: bridges.Bridge, images: Any, captions: list[str], asked: list[str], n_bits: int
) -> tuple[Any, Any, Any]:
    """Words of some texts in a collection of photos that has no captions: the variables and whether the hidden caption
    has the word, for each of the best photos; and the number of the query."""
    expected = bridge.captions(images)
    model = hashers.make("fusehash", n_bits=n_bits, random_state=0).fit({"image": images, "text": expected})
    signs = bits.unpack(model.encode_fused({"image": images, "text": expected}), n_bits).astype(np.float64)
    queries = calibration.queries_from(asked, asked)
    rows = encoders.make("minilm").fit([]).transform([" ".join(query) for query in queries])
    hidden, nothing = Words.read(enumerate(captions)), Words.read([])
    parts: list[tuple[Any, Any, Any]] = []
    for number, (query, vector) in enumerate(zip(queries, model.project(rows, view="text"), strict=True)):
        fit = calibration.similarity(signs, vector)
        best = np.argsort(-fit, kind="stable")[: calibration.BEST]
        z, unknown = calibration.standardized(fit, fit)[best], np.full(len(best), np.nan)
        for word, right in zip(query, calibration.has_word(hidden, query, best), strict=True):
            variables = np.stack(calibration._variables(nothing, word, fit[best], z, unknown), axis=1)
            parts.append((variables, right.astype(float), np.full(len(best), number)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def calibrated(images: Any, texts: Any, captions: list[str], n_bits: int = 64, folds: int = 5) -> list[float]:
    """Weights of confidences without captions, which only the fit of the picture decides."""
    parts = []
    for fold in range(folds):
        own = np.arange(len(images)) % folds == fold
        bridge = as_bridge(learned(images[~own], texts[~own]))
        hidden = [captions[row] for row in np.flatnonzero(own)]
        parts.append(searched(bridge, images[own], hidden, hidden, n_bits))
        print(f"confidences: part {fold + 1} of {folds}", flush=True)
    variables, right, _ = (np.concatenate(column) for column in zip(*parts, strict=True))
    used = [0, 2, 3]  # the constant, s and z
    weights = np.zeros(variables.shape[1])
    weights[used] = calibration.fit_logistic(variables[:, used], right)
    return [round(weight, 6) for weight in weights.tolist()]


def reliability(bridge: bridges.Bridge, weights: list[float], folder: Path, n_bits: int = 64) -> dict[str, Any]:
    """How often these confidences are right on the test photos of Flickr8k: words of their first captions, which any of
    their five captions may have, as one long caption has."""
    captions = captions_of(folder / "captions.tsv")
    with np.load(folder / "flickr8k_effl0_minilm.npz") as data:
        test = data["split"] == "test"
        images, said = data["image"][test].astype(np.float32), [captions[str(name)] for name in data["name"][test]]
    joined, first = [" ".join(five) for five in said], [five[0] for five in said]
    variables, right, query = searched(bridge, images, joined, first, n_bits)
    chances = calibration._logistic(variables @ np.array(weights))
    place = np.minimum((chances * 10).astype(int), 9)
    bins = [
        {"results": int(own.sum()), "confidence": round(float(chances[own].mean()), 3),
         "right": round(float(right[own].mean()), 3)}
        for own in (place == number for number in range(10)) if own.sum() >= 20
    ]  # fmt: skip
    error = sum(each["results"] * abs(each["confidence"] - each["right"]) for each in bins) / len(right)
    return {"queries": int(query.max()) + 1, "error": round(error, 4), "bins": bins}


def of_flickr8k(folder: Path) -> dict[str, Any]:
    """A bridge of the training photos of Flickr8k, to measure on other photos; it may not ship."""
    with np.load(folder / "flickr8k_effl0_minilm.npz") as data:
        train = data["split"] == "train"
        images, texts = data["image"][train].astype(np.float32), data["text"][train].astype(np.float32).mean(axis=1)
    return bridges.learn(images, texts, np.ones(len(images)), width=WIDTH, image_penalty=1.0, text_penalty=0.3)


def as_bridge(content: dict[str, Any]) -> bridges.Bridge:
    """The bridge that a file with this content is read as."""
    product = content["left"].astype(np.float32) @ content["right"].astype(np.float32)
    return bridges.Bridge(
        content["image_mean"], content["text_mean"], product, content["spread"], content["scale"]
    )  # fmt: skip


def recall(bridge: bridges.Bridge, folder: Path) -> dict[str, float]:
    """How often one of the five captions of a test photo of Flickr8k finds it among the first 1, 5 and 10 of 1,000."""
    with np.load(folder / "flickr8k_effl0_minilm.npz") as data:
        test = data["split"] == "test"
        images, texts = data["image"][test].astype(np.float32), data["text"][test].astype(np.float32)
    expected = bridge.captions(images) - bridge.text_mean
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    scores = (texts.reshape(-1, texts.shape[2]) - bridge.text_mean) @ expected.T
    own = scores[np.arange(len(scores)), np.repeat(np.arange(len(images)), texts.shape[1])]
    ranks = (scores > own[:, None]).sum(axis=1)
    return {f"R@{k}": round(float(np.mean(ranks < k)), 4) for k in (1, 5, 10)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="the folder iapr_photos")
    parser.add_argument("--flickr8k", type=Path, help="the folder flickr8k, to measure on it")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    images, texts, captions = features(options.photos)
    content = learned(images, texts)
    weights = calibrated(images, texts, captions)
    options.out.parent.mkdir(exist_ok=True)
    bridges.BRIDGE_FILE.write(options.out, {"name": NAME, **content, "confidence": weights})
    digest = hashlib.sha256(options.out.read_bytes()).hexdigest()
    facts: dict[str, Any] = {"file": options.out.name, "bytes": options.out.stat().st_size, "sha256": digest}
    if options.flickr8k is not None:
        facts["shipped, on Flickr8k test photos"] = recall(as_bridge(content), options.flickr8k)
        facts["confidences without captions, on Flickr8k test photos"] = reliability(
            as_bridge(content), weights, options.flickr8k
        )
        own = as_bridge(of_flickr8k(options.flickr8k))
        facts["learned on Flickr8k training photos, on its test photos"] = recall(own, options.flickr8k)
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
