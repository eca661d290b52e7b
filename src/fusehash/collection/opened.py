"""The folder of a collection, open: what any process has committed last, read again only where it has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from fusehash.collection import store
from fusehash.collection.items import CollectionError
from fusehash.collection.searching import GoneError, Snapshot
from fusehash.collection.store import CollectionSettings, CollectionState, Totals
from fusehash.errors import FusehashError, ParameterError
from fusehash.search import HammingIndex
from fusehash.sqlite import DamageError, Database

_ATTEMPTS = 5

T = TypeVar("T")


class OpenCollection:
    """The folder, its state as last committed, and what is done with that state."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._engine = check_engine("Collection.open", engine)
        self._created_with = store.read_settings(self.path)
        self._items = Database(self.path / "items.db", store.ITEMS, timeout)
        self._snapshot: Snapshot | None = None
        self._version: tuple[int, int] | None = None
        try:
            with self._items.reading() as database:
                store.check(database, self._created_with)
            self._now()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files."""
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        n_bits = self._created_with.n_bits if self._snapshot is None else self._snapshot.state.n_bits
        return f"<{type(self).__name__} of {n_bits} bits in {self.path}>"

    @property
    def settings(self) -> CollectionSettings:
        return self._now().state.made_with(self._created_with)

    @property
    def revision(self) -> int:
        return self._now().state.revision

    @property
    def generation(self) -> int:
        return self._now().state.generation

    def __len__(self) -> int:
        return self._totals().items

    def _now(self) -> Snapshot:
        """The collection as last committed by any process."""
        with self._items.lock:
            version = self._items.data_version()
            if self._snapshot is None or version != self._version:
                with self._items.reading() as database:
                    state, before = CollectionState.read(database), self._snapshot
                    if before is None or state.revision != before.state.revision:
                        index = HammingIndex(state.n_bits, engine=self._engine)
                        ids, codes = store.read_codes(database, state)
                        index.add(codes, ids)
                        new = before.successor(state, index) if before else Snapshot(self.path, state, index)
                        self._snapshot = new
                self._version = version
            assert self._snapshot is not None
            return self._snapshot

    def _totals(self) -> Totals:
        snapshot = self._now()
        if snapshot.state.totals is not None:
            return snapshot.state.totals
        with self._items.reading() as database:
            return snapshot.catalogue(database).totals

    def _attempt(self, work: Callable[[Snapshot], T]) -> T:
        """Do something with the current state, again if a writer has just replaced its files."""
        for _ in range(_ATTEMPTS):
            try:
                with self._reporting_os_errors():
                    result = work(self._now())
                self._items.check_place()  # model and encoders were read from the same folder
                return result
            except GoneError:
                with self._items.lock:
                    self._version = None
        with self._items.reporting():
            raise DamageError("its model or an encoder is missing; a reindex makes it again")

    @contextmanager
    def _reporting_os_errors(self) -> Iterator[None]:
        """One sentence if a file of the folder cannot be reached, in particular because the folder was moved."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FusehashError):
                raise
            self._items.check_place()
            reason = error.strerror or error
            raise CollectionError(f"The collection {self.path} cannot be reached: {reason}.") from error


def check_engine(owner: str, engine: str | None) -> str:
    if isinstance(engine, str) and "://" in engine:
        expected = "the name of a local engine: a collection is a folder, and HammingIndex is what works on a server"
        raise ParameterError(owner, "engine", expected, f"{engine.partition('://')[0]}://...")  # no password
    HammingIndex(8, engine=engine or "scan")  # raises for an unknown name
    return engine or "scan"
