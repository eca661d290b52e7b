"""A folder of photos with captions and labels as a paired dataset, to compare methods on raw data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusehash.datasets.base import PairedDataset
from fusehash.datasets.folders import read_folder
from fusehash.datasets.splits import Split
from fusehash.errors import DataError, warn
from fusehash.views import PairedViews

QUERY_SHARE = 6  # one in six items is a query


@dataclass(frozen=True, repr=False)
class PhotoDataset(PairedDataset):
    """A paired dataset that also holds the caption (`texts`) and the image file (`images`) of every row."""

    texts: tuple[str, ...] = ()
    images: tuple[Path, ...] = ()

    def thumbnails(self, side: int) -> list[bytes]:
        """A JPEG of every row, at most `side` pixels wide and high."""
        from fusehash.encoders.reading import open_image, thumbnail

        return [thumbnail(open_image(path, side=side), side) for path in self.images]


def load_photos(
    folder: str | os.PathLike[str], *, split_seed: int = 0, n_query: int | None = None, n_train: int | None = None
) -> PhotoDataset:
    """Load a folder of photos with captions and labels, in the layouts of `fusehash.datasets.folders`.

    Photos and captions are encoded as a collection encodes them by default (classical image features, tf-idf). The
    encoders learn from the training rows only. Items without a readable photo, a caption or a label are left out.

    Parameters
    ----------
    folder : str or path-like
        Photos and captions.csv (columns image, caption, labels) or captions.jsonl.
    split_seed : int, default=0
        Seed of the split.
    n_query, n_train : int, optional
        Number of queries, by default one item in six, and of training pairs, by default all others.

    Returns
    -------
    PhotoDataset

    Raises
    ------
    DataError
        If the folder has fewer than 4 usable items, or too few for the queries.
    """
    from fusehash import encoders
    from fusehash.encoders.reading import ImageError, open_image

    root, kept, unreadable = Path(folder), [], 0
    for item in read_folder(root):
        if isinstance(item.image, Path) and item.text and item.labels:
            try:
                open_image(item.image, side=32)
            except ImageError:
                unreadable += 1
            else:
                kept.append(item)
    if unreadable:
        warn(f"{unreadable} pictures of {root.name} cannot be read and are left out.")
    if len(kept) < 4:
        raise DataError(f"{root.name} must hold at least 4 pictures with captions and labels. Got {len(kept)}.")
    names = sorted({label for item in kept for label in item.labels})
    labels = np.array([[name in item.labels for name in names] for item in kept], dtype=np.uint8)
    order = np.random.default_rng(split_seed).permutation(len(kept))
    count = max(1, len(kept) // QUERY_SHARE) if n_query is None else n_query
    if not 1 <= count <= len(kept) - 2:
        raise DataError(f"{root.name} has {len(kept)} usable items; queries must leave two others. Got {count}.")
    query, database = np.sort(order[:count]), np.sort(order[count:])
    train = database if n_train is None else np.sort(order[count : count + max(2, n_train)])
    images = tuple(item.image for item in kept if isinstance(item.image, Path))
    texts = tuple(item.text or "" for item in kept)
    views = {
        "image": encoders.make("classical").fit([images[row] for row in train]).transform(images),
        "text": encoders.make("tfidf").fit([texts[row] for row in train]).transform(texts),
    }
    split = Split(train, query, database, f"{count} queries drawn with seed {split_seed}, {len(train)} training pairs")
    return PhotoDataset(root.name, PairedViews(views), labels, *split, tuple(names), texts=texts, images=images)
