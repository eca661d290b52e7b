"""Where zarr arrays are: the files of a folder, or the members of a zip file."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fusehash import trust
from fusehash.errors import DataError


class ZarrFolder:
    """The files below a folder, none of which may be a link."""

    def __init__(self, path: Path) -> None:
        self._path, self.names = path, trust.check_folder(path, f"The zarr folder {path.name}")

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        with trust.open_file(self._path / name, f"The file {name} of {self._path.name}", follow_links=False) as file:
            yield file, os.fstat(file.fileno()).st_size


class ZarrZip:
    """The members of a zip file, stored or deflated."""

    def __init__(self, path: Path) -> None:
        file = io.BufferedReader(trust.open_file(path, f"The file {path.name}"))  # type: ignore[type-var]
        try:
            self._archive = zipfile.ZipFile(file)
            self.names = {member.filename: member for member in self._archive.infolist() if not member.is_dir()}
        except Exception as error:  # zipfile raises all sorts of errors
            file.close()
            reason = "it is no intact zip file"
            raise DataError(f"{path.name} must be a zarr array. It could not be read: {reason}.") from error
        for name in self.names:
            if name.startswith("/") or ".." in name.split("/"):
                raise DataError(f"The names in {path.name} must be relative and below its top. Got {name!r}.")

    def size(self, name: str) -> int:
        return self.names[name].compress_size

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        member = self.names[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"Members of a zarr zip file must be stored or deflated. {name} is not.")
        trust.check_expansion(f"The member {name}", member.file_size, member.compress_size)
        with self._archive.open(member) as file:
            # A compressed member is read as a whole: to go back in it would mean to begin again.
            content: Any = file if member.compress_type == zipfile.ZIP_STORED else io.BytesIO(file.read())
            yield content, member.file_size
