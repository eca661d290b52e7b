"""Who holds the rows of an index. `HammingIndex` checks what it is given and passes it on to one of these.

    local.py      in this process, in memory or with a file behind it; an engine of engines.py answers the searches
    postgres.py   in tables of a PostgreSQL server, which also answers the searches
    milvus.py     in collections of a Milvus server, which also answers the searches

All keep the same rules: results in order of (distance, id); an id that was removed is never counted out again; a call
that raises has changed nothing, unless its sentence says that the outcome is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.rows import Ids


class Store(Protocol):
    """Rows and searches over them. Codes and ids come checked: equal lengths, no id twice, the right width.

    ``allowed`` is None, a vector of ids without repetition, or a boolean mask over `ids`.
    """

    n_bits: int

    def __len__(self) -> int:
        """How many codes."""

    def __str__(self) -> str:
        """Where they are, as "in ..."; never with a password."""

    def ids(self) -> Ids:
        """All ids, ascending."""

    def here(self, ids: Ids) -> NDArray[Any]:
        """Whether each id is there."""

    def get(self, ids: Ids) -> Codes:
        """The codes of some ids, all of which must be there."""

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        """(ids, codes) in order of id, as they are now."""

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        """Add at least one code; without ids they count on."""

    def remove(self, ids: Ids) -> None:
        """Remove at least one id, all of which must be there; ascending."""

    def replace(self, ids: Ids, codes: Codes) -> None:
        """Give at least one id another code; all must be there; ascending."""

    def search(
        self, queries: Codes, k: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Distances, Ids]:
        """The nearest min(k, codes that may be found)."""

    def range_search(
        self, queries: Codes, radius: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Ints, Distances, Ids]:
        """Offsets, distances and ids of all at most ``radius`` away."""

    def compact(self) -> None:
        """Give back what is spare."""

    def stats(self) -> dict[str, Any]:
        """What there is to know; never with a password."""

    def close(self) -> None:
        """Let go of files and connections."""


class ServerStore(Store, Protocol):
    """A store on a server."""

    def drop(self) -> None:
        """Remove the index, with all it holds."""
