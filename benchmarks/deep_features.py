"""Frozen features of photos and captions as files that `fusehash.datasets.load` reads, for deep_study.py.

    python benchmarks/deep_features.py photos FOLDER photos.npz        photos, captions and labels (captions.csv)
    python benchmarks/deep_features.py flickr8k FOLDER flickr8k.npz    flickr8k_effl0_minilm.npz and captions.tsv

photos: EfficientNet-Lite0 of every photo and MiniLM of its caption, by the encoders of the package (extra
`encoders`); one photo in four is a query, drawn with seed 0.
flickr8k: the given features of the 6,000 photos of `train` and the 1,000 of `test`, which are the queries; a text is
the mean of the five captions of its photo, and `captions` has the five of every query. Labels are words of captions:
those that at least two captions of a photo have, are no stop words, and stand for 1 to 25 % of the training photos.

Features are stored in half precision.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from fusehash import encoders
from fusehash.datasets.folders import read_folder

QUERY_SHARE = 4
FEWEST_CAPTIONS, LEAST, MOST = 2, 0.01, 0.25


def photos(folder: Path, out: Path) -> None:
    """Features of a folder of photos with captions and labels."""
    items = [item for item in read_folder(folder) if isinstance(item.image, Path) and item.text and item.labels]
    names = sorted({label for item in items for label in item.labels})
    order = np.random.default_rng(0).permutation(len(items))
    n_queries = len(items) // QUERY_SHARE
    image = encoders.make("efficientnet-lite0").fit_transform([item.image for item in items])
    text = encoders.make("minilm").fit_transform([item.text for item in items])
    np.savez(
        out,
        image=image.astype(np.float16),
        text=text.astype(np.float16),
        labels=np.array([[name in item.labels for name in names] for item in items], dtype=np.uint8),
        train_idx=np.sort(order[n_queries:]),
        test_idx=np.sort(order[:n_queries]),
    )


def flickr8k(folder: Path, out: Path) -> None:
    """The stored features of Flickr8k in the layout of paired files."""
    words: dict[str, list[set[str]]] = {}
    for line in (folder / "captions.tsv").read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t")[:2]
        words.setdefault(name, []).append(set(re.findall("[a-z]{3,}", caption.lower())) - ENGLISH_STOP_WORDS)
    with np.load(folder / "flickr8k_effl0_minilm.npz") as file:
        split = file["split"]
        rows = np.flatnonzero((split == "train") | (split == "test"))
        is_query, captions = split[rows] == "test", file["text"][rows]
        image, photo_names = file["image"][rows], file["name"][rows]
    said = [
        {
            word
            for word in set().union(*words[name])
            if sum(word in caption for caption in words[name]) >= FEWEST_CAPTIONS
        }
        for name in photo_names
    ]
    vocabulary = sorted(set().union(*said))
    labels = np.array([[word in one for word in vocabulary] for one in said], dtype=np.uint8)
    share = labels[~is_query].mean(axis=0)
    np.savez(
        out,
        image=image,
        text=captions.astype(np.float32).mean(axis=1).astype(np.float16),
        labels=labels[:, (share >= LEAST) & (share <= MOST)],
        train_idx=np.flatnonzero(~is_query),
        test_idx=np.flatnonzero(is_query),
        captions=captions[is_query],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["photos", "flickr8k"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    {"photos": photos, "flickr8k": flickr8k}[chosen.data](chosen.folder, chosen.out)
