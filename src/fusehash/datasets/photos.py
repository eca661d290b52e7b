"""A folder of photos with captions and labels as a paired data set, so that methods can be compared on raw data.

Pictures and captions are encoded as a collection would encode them (classical image features, tf-idf), by encoders that
learn from the training rows only. Items without a picture that can be read, a caption or a label are left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusehash.datasets.base import PairedDataset
from fusehash.errors import DataError, warn
from fusehash.views import PairedViews

QUERY_SHARE = 6  # one in six items is a query


@dataclass(frozen=True, repr=False)
class PhotoDataset(PairedDataset):
    """A paired data set whose rows can be looked at.

    texts, images : the caption and the image file of every row
    """

    texts: tuple[str, ...] = ()
    images: tuple[Path, ...] = ()

    def thumbnails(self, side: int) -> list[bytes]:
        """A small JPEG of every row."""
        from fusehash.encoders.reading import open_image, thumbnail

        return [thumbnail(open_image(path, side=side), side) for path in self.images]


def is_photo_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds pictures and a file of captions."""
    folder = Path(path)
    return folder.is_dir() and any((folder / name).is_file() for name in ("captions.csv", "captions.jsonl"))


def load_photos(
    folder: str | os.PathLike[str], *, split_seed: int = 0, n_query: int | None = None, n_train: int | None = None
) -> PhotoDataset:
    """Photos with captions and labels from a folder (see `fusehash.datasets.folders` for its layouts).

    Parameters
    ----------
    folder : pictures and captions.csv (columns image, caption, labels) or captions.jsonl
    split_seed : seed of the split
    n_query : queries to draw; by default one item in six
    n_train : training pairs to draw of the others, all of which are the database; by default all
    """
    from fusehash import encoders
    from fusehash.datasets.folders import read_folder
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
    column = {name: place for place, name in enumerate(names)}
    labels = np.zeros((len(kept), len(names)), np.uint8)
    for row, item in enumerate(kept):
        labels[row, [column[label] for label in item.labels]] = 1
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
    return PhotoDataset(
        name=root.name,
        views=PairedViews(views),
        labels=labels,
        train=train,
        query=query,
        database=database,
        split=f"{count} queries drawn with seed {split_seed}, {len(train)} training pairs",
        label_names=tuple(names),
        texts=texts,
        images=images,
    )
