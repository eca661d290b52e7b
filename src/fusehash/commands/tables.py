"""Tables of captions that a user gives: looked at before they are worked on, so that no slip passes in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fusehash.errors import DataError, warn

if TYPE_CHECKING:
    from fusehash.collection import NewItem


def check_captions(items: list[NewItem], photos: Path, captions: Path | None) -> None:
    """Captions and pictures that do not find each other are told, not taken for texts and pictures that stand alone."""
    from fusehash.datasets.folders import DEFAULT_CAPTIONS

    if captions is None:
        captions = next((photos / name for name in DEFAULT_CAPTIONS if (photos / name).is_file()), None)
    if captions is None or not photos.is_dir():
        return
    if not any(item.text or item.labels for item in items):
        warn(f"{captions.name} has no captions; the pictures are indexed without texts.")
        return
    pictures = [item for item in items if _has_picture(item)]
    lone = [item for item in items if not _has_picture(item)]
    if not pictures or not lone:
        return
    if not any(item.text or item.labels for item in pictures):
        named = next((item.key for item in lone if item.image is not None), None)
        told = (
            "no row names a picture" if named is None else f"it names {named!r}, in the folder is {pictures[0].key!r}"
        )
        raise DataError(f"The captions in {captions.name} must belong to pictures in {photos}. None does: {told}.")
    nameless = sum(item.image is None for item in lone)
    if nameless:
        warn(f"{nameless:,} texts of {captions.name} name no picture; they are indexed as texts alone.")


def without_missing(items: list[NewItem]) -> list[NewItem]:
    """Items to update; a picture that is only named is not given, and stays as it is stored."""
    missing = sum(item.image is not None and not _has_picture(item) for item in items)
    if missing:
        warn(f"{missing:,} of {len(items):,} pictures are named but not there; those in the collection stay.")
    return [item if _has_picture(item) else replace(item, image=None) for item in items]


def _has_picture(item: NewItem) -> bool:
    if not isinstance(item.image, Path):
        return item.image is not None
    try:
        return item.image.exists()
    except OSError:  # too long for a name, or in a folder that cannot be looked into
        return False
