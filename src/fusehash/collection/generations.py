"""Generations: a model, its encoders and the codes of all items. One is current; others are kept in the same folder.

In items.db, `state` and `code` are the current generation, `generation` and `generation_code` the others; each code has
a hash of what it was made from. Building one blocks no writer until its last step. A switch encodes the items that came
or changed since, then exchanges two generations in one transaction: a reader never sees a mixture.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fusehash.collection import store
from fusehash.collection.changes import ItemChange
from fusehash.collection.items import Entry
from fusehash.collection.store import CollectionSettings, CollectionState
from fusehash.collection.training import held_out_model, quality_of
from fusehash.errors import DataError, FusehashError
from fusehash.files import sync_folder
from fusehash.sqlite import Connection, DamageError, WriterLock


@dataclass(frozen=True)
class Generation:
    """One generation of a collection, as `Collection.generations` returns it.

    Attributes
    ----------
    number, current, previous : int, bool, bool
        What `switch` and `drop` take; whether searches use it; whether `switch(back=True)` goes there.
    made, codes : str, int
        When its model was trained, in ISO 8601, and its number of codes.
    n_bits, random_state, image_encoder, text_encoder : int, int, str, str
        Its settings; an encoder is "" if no item has its view.
    quality, bytes : float or None; int
        Mean pair AUC on held-out pairs, None if not measured; size of codes, model and encoders, which may be shared.
    """

    number: int
    current: bool
    previous: bool
    made: str
    codes: int
    n_bits: int
    random_state: int
    image_encoder: str
    text_encoder: str
    quality: float | None
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The generation as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class KeptCode:
    """The code of an item in a generation (None: it has none), and what it was made from."""

    content: bytes
    code: bytes | None
    trained: bool


class GenerationChange(ItemChange):
    """One call that builds, switches or drops a generation."""

    def build(
        self, entries: Sequence[Entry], settings: CollectionSettings, *, measure: bool, writer: WriterLock
    ) -> None:
        """Learn a generation from these entries; the caller holds the builder lock."""
        old_settings, old_state, old_quality = self._settings, self.state, self.state.quality
        contents = [_content_of(entry) for entry in entries]  # before encoders mark images that they cannot read
        self._settings = settings
        fit_images = settings.image != old_settings.image
        learned = self._learn(entries, must_train=True, fit_images=fit_images, measure=measure)
        quality = quality_of(learned.held)
        if measure and old_quality is None:  # measure the current generation too, to have something to compare with
            with contextlib.suppress(FusehashError, OSError):  # its encoders may be lost
                encoders = self._load(old_state).encoders
                held = held_out_model(entries, encoders, self.features, old_settings, self._progress)
                old_quality = quality_of(held)
        codes = {
            entry.id: KeptCode(content, code, code is not None)
            for entry, content, code in zip(entries, contents, self._codes(entries, learned), strict=True)
            if entry.id is not None
        }
        self._progress(0, 1, "writing")
        sync_folder(self._folder)  # the files that the transaction is about to name
        with writer:
            with self._items.writing() as database:
                current = CollectionState.read(database)
                if current.model == old_state.model:
                    current = replace(current, quality=old_quality)
                current = replace(current, newest=current.newest + 1)
                new = CollectionState(settings.n_bits, generation=current.newest, settings=asdict(settings))
                self.state = _keep(database, current, self._describe(new, learned, quality=quality), codes)
                self.state.write(database)
            self._remove_unused_files()  # also those of interrupted builds
        self.report.generation = self.state.newest
        self.report.unchanged = len(entries)

    def switch(self, entries: Sequence[Entry], number: int | None, *, back: bool) -> None:
        """Make a kept generation current, with codes of all current items; keep the one that was."""
        with self._items.reading() as database:
            target = self._choose(store.kept_states(database), number, back)
            kept = _read_codes(database, target)
            ids, packed = store.read_codes(database, self.state)
            current = {id: code.tobytes() for id, code in zip(ids.tolist(), packed, strict=True)}
        stored = {entry.id: entry for entry in entries if entry.id is not None}
        old = {id: KeptCode(_content_of(e), current.get(id), e.trained) for id, e in stored.items()}
        stale = {id: e for id, e in stored.items() if id not in kept or kept[id].content != old[id].content}
        learned = self._load(target)
        self._encoder.encode(list(stale.values()), learned.encoders)
        codes = dict(zip(stale, self._codes(list(stale.values()), learned), strict=True))
        new = {id: KeptCode(old[id].content, codes[id], False) if id in codes else kept[id] for id in old}
        self._progress(0, 1, "writing")
        with self._writing() as database:
            state = _forget(database, self.state, target.generation)
            if self.state.model:
                state = _keep(database, state, replace(self.state, settings=asdict(self._settings)), old)
            database.execute("DELETE FROM code")
            rows = ((id, row.code) for id, row in new.items() if row.code is not None)
            database.executemany("INSERT INTO code VALUES (?, ?)", rows)
            marks = {id: row.trained for id, row in new.items() if row.trained != old[id].trained}
            state = store.amend(database, state, {id: {"trained": int(trained)} for id, trained in marks.items()})
            previous = state.generation if state.model else 0
            target = replace(
                _counted(target, new),
                revision=state.revision + 1,
                previous=previous,
                newest=state.newest,
                totals=state.totals,
                kept=state.kept,
                kept_digest=None,
            )
            target.write(database)
        self.state = target
        self.report.generation = target.generation
        self.report.changed, self.report.unchanged = len(stale), len(entries) - len(stale)

    def drop(self, number: int) -> None:
        if number == self.state.generation:
            raise DataError(f"Generation {number} is current and cannot be dropped; switch to another one first.")
        with self._writing() as database:
            self._choose(store.kept_states(database), number, back=False)
            state = _forget(database, self.state, number)
            self.state = replace(state, previous=0) if state.previous == number else state
            self.state.write(database)
        self.report.generation = self.state.generation
        self.remove_unused_files()

    def _choose(self, kept: Sequence[CollectionState], number: int | None, back: bool) -> CollectionState:
        """The kept generation of a number, the previous one, or the newest one."""
        by_number = {state.generation: state for state in kept}
        if back:
            if self.state.previous not in by_number:
                raise DataError("There is no generation to go back to: none was current before, or it was dropped.")
            return by_number[self.state.previous]
        if number is None:
            newer = [state for state in kept if state.generation > self.state.generation]
            if not newer:
                others = f", or name one that is kept ({', '.join(map(str, by_number))})" if by_number else ""
                raise DataError(f"There is no newer generation; build one{others}.")
            return newer[-1]
        if number == self.state.generation:
            raise DataError(f"Generation {number} is current already.")
        if number not in by_number:
            kept_numbers = ", ".join(map(str, by_number)) or "there are none besides the current one"
            raise DataError(f"The generation must be one that is kept ({kept_numbers}). Got {number}.")
        return by_number[number]


def _content_of(entry: Entry) -> bytes:
    """Hash of what the code of an entry is made from."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (entry.image, entry.text_content):
        digest.update(b"-" if part is None else b"+" + part)
    return digest.digest()


def _counted(state: CollectionState, codes: dict[int, KeptCode]) -> CollectionState:
    """A state with the count and the digest of its codes."""
    pairs = [(id, row.code) for id, row in codes.items() if row.code is not None]
    return replace(state, codes=len(pairs), digest=store.digest_of(pairs))


def _read_codes(database: Connection, state: CollectionState) -> dict[int, KeptCode]:
    """The codes of a kept generation by id, checked."""
    rows = store.kept_rows(database, state)
    codes = {id: KeptCode(content, code, bool(trained)) for id, content, code, trained in rows}
    pairs = [(id, row.code) for id, row in codes.items() if isinstance(row.code, bytes)]
    is_whole = all(isinstance(row.code, bytes | None) for row in codes.values()) and len(pairs) == state.codes
    is_whole = is_whole and all(len(code) == state.n_bits // 8 for _, code in pairs)
    if not is_whole or (store.digest_of(pairs), store.kept_digest(rows)) != (state.digest, state.kept_digest):
        number = state.generation
        raise DamageError(f"codes of generation {number} are missing or damaged; the current generation is intact")
    return codes


def _keep(
    database: Connection, current: CollectionState, state: CollectionState, codes: dict[int, KeptCode]
) -> CollectionState:
    """Write a generation next to the current one; returns the next state of the current one."""
    if not store.has_generations(database):
        for table in store.GENERATION_TABLES:
            database.execute(table)
    number, rows = state.generation, [(id, kept.content, kept.code, int(kept.trained)) for id, kept in codes.items()]
    state = replace(_counted(state, codes), totals=None, kept=None, kept_digest=store.kept_digest(rows))
    database.execute("INSERT OR REPLACE INTO generation VALUES (?, ?, ?)", (number, *state.pack()))
    database.executemany("INSERT INTO generation_code VALUES (?, ?, ?, ?, ?)", ((number, *row) for row in rows))
    return replace(current, kept=sorted({*(current.kept or ()), number}))


def _forget(database: Connection, current: CollectionState, number: int) -> CollectionState:
    """Remove a kept generation; returns the next state of the current one."""
    database.execute("DELETE FROM generation_code WHERE number = ?", (number,))
    database.execute("DELETE FROM generation WHERE number = ?", (number,))
    return replace(current, kept=[kept for kept in current.kept or () if kept != number])
