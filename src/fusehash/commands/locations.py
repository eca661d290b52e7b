"""Where the databases of commands are, and what kind of fusehash folder a folder is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fusehash.commands import inputs
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.search import HammingIndex


class FolderKind(StrEnum):
    """What wrote a folder."""

    collection = "collection"
    retriever = "retriever"
    codes = "codes"  # by `fusehash quantize`


_SIGNS = {  # the files by which a kind is known
    FolderKind.collection: ("collection.json",),
    FolderKind.retriever: ("retriever.json",),
    FolderKind.codes: ("report.json", "model.safetensors"),
}


def kind_of(folder: Path) -> FolderKind:
    """What a folder is. Raises DataError if it is not of fusehash."""
    if not folder.is_dir():
        raise DataError(f"There is no folder at {folder}.")
    for kind, files in _SIGNS.items():
        if all((folder / file).exists() for file in files):
            return kind
    raise DataError(
        f"{folder} is not a fusehash collection, nor a retriever or a folder of quantize: "
        "it has no file collection.json, retriever.json or report.json."
    )


def check_collection(folder: Path) -> None:
    """Raise if a folder is something else."""
    kind = kind_of(folder)
    if kind is FolderKind.retriever:
        raise DataError(
            f"{folder} must be a collection. It is a retriever: `fusehash search` and `fusehash inspect` open it, "
            "and fusehash.Retriever changes it."
        )
    if kind is FolderKind.codes:
        raise DataError(
            f"{folder} must be a collection. It is a folder of quantize: `fusehash search` and `fusehash inspect` open "
            f"it, and `fusehash index add codes.db {folder}/NAME.npy` puts its codes into an index."
        )


@dataclass(frozen=True)
class Location:
    """Where a database is: a path, or the address of a server. `str` shows an address without its password."""

    target: Path | str

    @property
    def is_server(self) -> bool:
        return isinstance(self.target, str)

    @property
    def is_folder(self) -> bool:
        """A folder may hold a collection, a retriever or codes; a file or a server holds an index of codes."""
        return isinstance(self.target, Path) and self.target.is_dir()

    @property
    def is_collection(self) -> bool:
        """Raises if this is another folder."""
        if self.is_folder:
            check_collection(self.path)
        return self.is_folder

    @property
    def path(self) -> Path:
        return Path(self.target)

    def exists(self) -> bool:
        """Whether there is a file, a folder, or an index on the server."""
        from fusehash.search.servers.address import exists

        return exists(self.target) if isinstance(self.target, str) else self.target.exists()

    def check_creatable(self) -> None:
        """Raise before the work begins if a new index cannot be created here."""
        if not self.is_server:
            inputs.check_folder(self.path, "An index")

    def open(self, n_bits: int | None = None, **options: Any) -> HammingIndex:
        """Open the index of codes."""
        from fusehash.search import HammingIndex

        return HammingIndex.open(self.target, n_bits, warm=False, **options)

    def __str__(self) -> str:
        from fusehash.search.servers.address import without_secrets

        return without_secrets(self.target) if isinstance(self.target, str) else str(self.target)


def locate(text: str) -> Location:
    """Parse a path or the address of a server."""
    from fusehash.search.servers.address import SCHEMES, is_address, is_other_address, scheme_of

    if is_other_address(text):  # the rest of it may hold a password
        raise typer.BadParameter(f"an address must begin with one of {', '.join(SCHEMES)}, not with {scheme_of(text)}")
    return Location(text if is_address(text) else Path(text))


def kept_by(index: HammingIndex) -> dict[str, Any]:
    """What an index keeps next to its codes, if anything."""
    vectors = {} if index.dim is None else {"vectors": f"{index.vector_kind}, {index.dim} numbers"}
    return vectors | ({"factors": True} if index.has_factors else {})
