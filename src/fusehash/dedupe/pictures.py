"""Groups of pictures in a folder that look alike.

Every group has one picture to keep: the one with the most pixels, then the largest file, then the first name. The
others are *duplicates* if they are within the radius of the one to keep. A chain of near pictures can lead to one that
is not: it is shown in the group, and never moved or deleted.

Pictures with hardly any structure (a blank page, a single color) have nearly the same hash whatever they show. They are
left out, and counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusehash.bits import Codes, distances_to
from fusehash.datasets.folders import image_files
from fusehash.dedupe.perceptual import N_BITS, as_hex, perceptual_hash
from fusehash.encoders.reading import ImageError, open_image
from fusehash.errors import DataError
from fusehash.numerics.parallel import map_blocks
from fusehash.search import HammingIndex

Progress = Callable[[int, int, str], None]
MIN_ONES = 4  # a code with fewer ones or zeros is of a picture with hardly any structure


@dataclass(frozen=True)
class Picture:
    """A picture of a folder."""

    path: Path  # relative to the folder
    code: Codes
    width: int
    height: int
    size: int  # bytes of the file
    modified: int  # nanoseconds

    @property
    def is_plain(self) -> bool:
        ones = int(np.bitwise_count(self.code).sum())
        return min(ones, N_BITS - ones) < MIN_ONES


@dataclass(frozen=True)
class Member:
    """A picture in a group, and its distance from the one to keep."""

    picture: Picture
    distance: int
    kind: str  # "keep", "duplicate", or "similar" if only a chain leads to it

    @property
    def is_duplicate(self) -> bool:
        return self.kind == "duplicate"


@dataclass(frozen=True)
class PictureGroups:
    """What `find` found.

    Attributes
    ----------
    folder : Path
    method : str
    radius : int
    groups : list of list of Member
        Each begins with the picture to keep; the largest group first.
    n_pictures : int
        Pictures that were compared.
    plain : list of Path
        Pictures with hardly any structure, which were not.
    unreadable : list of str
        A sentence for each file that could not be read.
    """

    folder: Path
    method: str
    radius: int
    groups: list[list[Member]]
    n_pictures: int
    plain: list[Path]
    unreadable: list[str]

    @property
    def duplicates(self) -> list[Member]:
        return [member for group in self.groups for member in group if member.is_duplicate]

    def rows(self) -> list[dict[str, object]]:
        """One flat record per picture, for tables and CSV files."""
        return [
            {
                "group": number,
                "path": member.picture.path.as_posix(),
                "kind": member.kind,
                "distance": member.distance,
                "width": member.picture.width,
                "height": member.picture.height,
                "bytes": member.picture.size,
                "hash": as_hex(member.picture.code),
            }
            for number, group in enumerate(self.groups, start=1)
            for member in group
        ]


def find(
    folder: str | Path, radius: int = 4, *, method: str = "phash", progress: Progress = lambda *_: None
) -> PictureGroups:
    """Find the groups of pictures that look alike. Nothing is changed.

    Parameters
    ----------
    folder : str or Path
        Pictures in it and in its subfolders; hidden ones are skipped, as are links that lead out of it.
    radius : int, default 4
        Bits of 64 in which hashes may differ. 0 to 4 finds copies of other sizes and formats; more finds pictures that
        merely resemble each other, too.
    method : str, default "phash"
        "phash" (frequencies) or "dhash" (brightness from left to right; faster).
    progress : callable, optional
        Called as progress(done, total, message).

    Raises
    ------
    DataError
        If the folder cannot be read.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"Duplicates are looked for in a folder of pictures. There is no folder {root}.")
    files = list(image_files(root))
    index = HammingIndex(N_BITS)
    index.range_search(np.zeros((0, N_BITS // 8), np.uint8), radius)  # raises for a radius that is none
    pictures: list[Picture] = []
    unreadable: list[str] = []

    def read(path: Path) -> Picture | str:
        try:
            return _read(root, path, method)
        except ImageError as error:
            return str(error)

    for done, result in enumerate(map_blocks(read, files), start=1):
        if isinstance(result, str):
            unreadable.append(result)
        else:
            pictures.append(result)
        progress(done, len(files), "pictures")
    compared = [picture for picture in pictures if not picture.is_plain]
    if compared:
        index.add(np.array([picture.code for picture in compared]))
    groups = [_group([compared[i] for i in ids.tolist()], radius) for ids in index.groups(radius)]
    plain = [picture.path for picture in pictures if picture.is_plain]
    return PictureGroups(root, method, radius, groups, len(compared), plain, unreadable)


def _read(root: Path, path: Path, method: str) -> Picture:
    image, status = open_image(path), os.stat(path)  # noqa: PTH116
    code, (width, height) = perceptual_hash(image, method), image.size
    return Picture(path.relative_to(root), code, width, height, status.st_size, status.st_mtime_ns)


def _group(pictures: list[Picture], radius: int) -> list[Member]:
    ranked = sorted(pictures, key=lambda p: (-p.width * p.height, -p.size, p.path.as_posix()))
    distances = distances_to(ranked[0].code, np.array([picture.code for picture in ranked])).tolist()
    return [
        Member(picture, distance, "keep" if i == 0 else "duplicate" if distance <= radius else "similar")
        for i, (picture, distance) in enumerate(zip(ranked, distances, strict=True))
    ]
