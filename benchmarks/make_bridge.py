"""Make the bridge between efficientnet-lite0 and minilm that ships with the package, and measure it elsewhere.

    python benchmarks/make_bridge.py ../shared/data/iapr_photos --flickr8k ../shared/data/flickr8k

It is learned from 2,400 photos of IAPR TC-12 with their captions (published as free of copyright restrictions) and from
the 1,000 class names of ImageNet: a row of the classifier's weights stands for the picture that its name describes.
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

from fusehash import encoders
from fusehash.collection import bridge as bridges
from fusehash.encoders import packaged, weights

WIDTH, IMAGE_PENALTY, TEXT_PENALTY = 128, 3.0, 1.0
CLASS_WEIGHT = 1.0  # of a class name, relative to a photo
OUT = Path(bridges.__file__).with_name("bridges") / bridges.SHIPPED["efficientnet-lite0", "minilm"]
CLASSES = Path(__file__).with_name("imagenet_classes.txt")


def features(folder: Path) -> tuple[Any, Any]:
    """Image and text features of the photos of a folder with captions.csv."""
    with (folder / "captions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    images = encoders.make("efficientnet-lite0").fit([]).transform([folder / "images" / row["image"] for row in rows])
    texts = encoders.make("minilm").fit([]).transform([row["caption"] for row in rows])
    return images, texts


def classes(images: Any) -> tuple[Any, Any]:
    """A picture of each class, as far from the mean as photos are, and the features of its name."""
    path = packaged._packaged(packaged.IMAGE_PACKAGE, packaged.IMAGE_FILE, "efficientnet-lite0")
    rows = weights.read_weights(path, packaged.IMAGE_SHA256)["_fc.weight"]
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
    content = learned(*features(options.photos))
    options.out.parent.mkdir(exist_ok=True)
    bridges.BRIDGE_FILE.write(options.out, {"name": "efficientnet-lite0 to minilm, of IAPR TC-12", **content})
    digest = hashlib.sha256(options.out.read_bytes()).hexdigest()
    facts: dict[str, Any] = {"file": options.out.name, "bytes": options.out.stat().st_size, "sha256": digest}
    if options.flickr8k is not None:
        facts["shipped, on Flickr8k test photos"] = recall(as_bridge(content), options.flickr8k)
        own = as_bridge(of_flickr8k(options.flickr8k))
        facts["learned on Flickr8k training photos, on its test photos"] = recall(own, options.flickr8k)
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
