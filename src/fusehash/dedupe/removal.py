"""Move or delete duplicates, so that nobody loses data.

A plan lists what would happen and has a short code. Only `carry_out` with that code does it, and only if the same plan
still comes out: if a picture was added, changed or removed since, the code differs and nothing happens. Before each
file is touched, it and the picture to keep are looked at once more. Moving never overwrites a file. A log next to the
moved files says where each one was.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusehash.dedupe.pictures import Member, Picture, PictureGroups
from fusehash.errors import DataError
from fusehash.files import make_folder, sync_folder

LOG = "moved.csv"


@dataclass(frozen=True)
class RemovalPlan:
    """What would be done with the duplicates of some groups.

    Attributes
    ----------
    folder : Path
    target : Path or None
        Where duplicates are moved to; None if they are deleted.
    steps : list of (Picture, Picture)
        A duplicate, and the picture that is kept in its place.
    """

    folder: Path
    target: Path | None
    steps: list[tuple[Picture, Picture]]

    @classmethod
    def of(cls, found: PictureGroups, target: str | Path | None = None) -> RemovalPlan:
        """The plan to move the duplicates to a folder, or to delete them."""
        where = None if target is None else Path(target)
        if where is not None and where.resolve().is_relative_to(found.folder.resolve()):
            raise DataError(f"Duplicates are moved out of their folder. {where} is in {found.folder}.")
        steps = [(member.picture, group[0].picture) for group in found.groups for member in _duplicates(group)]
        return cls(found.folder, where, steps)

    @property
    def code(self) -> str:
        """A digest of everything that the plan depends on."""
        digest = hashlib.sha256(f"{self.folder.resolve()}\0{self.target and self.target.resolve()}".encode())
        for pictures in self.steps:
            for picture in pictures:
                parts = picture.path.as_posix(), picture.code.tobytes().hex(), picture.size, picture.modified
                digest.update(repr(parts).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:8]

    @property
    def n_bytes(self) -> int:
        return sum(picture.size for picture, _ in self.steps)


def _duplicates(group: Sequence[Member]) -> list[Member]:
    return [member for member in group if member.is_duplicate]


def carry_out(plan: RemovalPlan, code: str) -> int:
    """Do what a plan says; the number of pictures that were moved or deleted.

    Parameters
    ----------
    plan : RemovalPlan
    code : str
        The code of the plan as the user has seen it.

    Raises
    ------
    DataError
        If the plan has another code: then nothing was done. Or if a file has changed meanwhile or cannot be moved: then
        those before it were, and the sentence says how many.
    """
    if code != plan.code:
        raise DataError(f"The code must be that of a dry run of exactly this. Got {code!r}; nothing was done.")
    done = 0
    for picture, kept in plan.steps:
        try:
            _check_same(plan.folder, kept)
            _check_same(plan.folder, picture)
            if plan.target is None:
                (plan.folder / picture.path).unlink()
            else:
                _move(plan.folder, plan.target, picture, kept)
        except (OSError, DataError) as error:
            reason = getattr(error, "strerror", None) or error
            where = plan.folder / picture.path
            raise DataError(f"{done} of {len(plan.steps)} pictures are done; stopped at {where}: {reason}.") from error
        done += 1
    return done


def _check_same(folder: Path, picture: Picture) -> None:
    path = folder / picture.path
    status = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    if (status.st_size, status.st_mtime_ns) != (picture.size, picture.modified):
        raise DataError(f"{path} has changed since it was looked at")


def _move(folder: Path, target: Path, picture: Picture, kept: Picture) -> None:
    source, destination = folder / picture.path, target / picture.path
    make_folder(destination.parent)
    _log(target, source, destination, folder / kept.path)  # first, so that no file is moved without a trace
    try:
        os.link(source, destination)  # fails if there is a file already, which a rename would overwrite
    except FileExistsError:
        raise DataError(f"there is a file {destination} already") from None
    except OSError:  # another disk, or no hard links
        _copy(source, destination)
    sync_folder(destination.parent)
    source.unlink()


def _copy(source: Path, destination: Path) -> None:
    import shutil

    with source.open("rb") as original, destination.open("xb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(source, destination)


def _log(target: Path, source: Path, destination: Path, kept: Path) -> None:
    is_new = not (target / LOG).exists()
    with (target / LOG).open("a", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(("was", "is", "kept"))
        writer.writerow((source.absolute(), destination.absolute(), kept.absolute()))
        file.flush()
        os.fsync(file.fileno())
