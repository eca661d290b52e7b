"""From one generation of codes to the next: built beside the one in force, caught up with, switched to, gone back from.

Building holds no lock that a writer needs until its last step: items may come, change and go meanwhile. The switch
holds it: items whose content is not what their code was made from are encoded anew, then one transaction exchanges the
generations. What is cut off before a transaction leaves nothing but caches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from fusehash.collection import generations
from fusehash.collection.database import WriterLock, sync_folder
from fusehash.collection.encoding import Fitted, load_encoder
from fusehash.collection.entries import Entry
from fusehash.collection.generations import Code, content_of
from fusehash.collection.quality import held_out_quality
from fusehash.collection.store import State
from fusehash.collection.writing import Change, Learned, Settings, now
from fusehash.errors import DataError, FusehashError


class Succession(Change):
    """One call that builds, switches or drops a generation."""

    # -- building ------------------------------------------------------------------------------------------------

    def build(self, entries: Sequence[Entry], settings: Settings, *, measure: bool, writer: WriterLock) -> None:
        """Learn a generation from these entries; the caller holds the lock of the builder."""
        present, began_with = self._settings, self.state
        present_quality = began_with.quality
        contents = [content_of(entry) for entry in entries]  # before encoders find images that they cannot read
        self._settings = settings
        learned = self._learn(entries, must_train=True, fit_images=settings.image != present.image)
        assert learned.trained is not None
        quality = None
        if measure:
            quality = self._quality(entries, learned.encoders, settings)
            if present_quality is None:  # nothing to compare with otherwise
                present_quality = self._quality(entries, self._encoders(began_with), present)
        codes = self._codes(entries, learned)
        rows = {
            entry.id: Code(content, code, code is not None)
            for entry, content, code in zip(entries, contents, codes, strict=True)
            if entry.id is not None
        }
        self._progress(0, 1, "writing")
        sync_folder(self._folder)  # the files that the transaction is about to name
        with writer:
            with self._items.writing() as database:
                current = State.read(database, self._folder)
                if current.model == began_with.model:
                    current = replace(current, quality=present_quality)
                self.state = replace(current, newest=current.newest + 1)
                self.state.write(database)
                made = self._described(learned, settings, rows)
                generations.keep(database, replace(made, number=self.state.newest, quality=quality), rows)
            self._tidy()  # what builds that were cut off have left
        self._report.generation = self.state.newest
        self._report.unchanged = len(entries)

    def _described(self, learned: Learned, settings: Settings, rows: dict[int, Code]) -> State:
        names = {view: fitted.fingerprint for view, fitted in learned.encoders.items()}
        assert learned.trained is not None
        count, digest = generations.counted(rows)
        return State(
            n_bits=settings.n_bits,
            codes=count,
            digest=digest,
            model=learned.trained.fingerprint,
            image_encoder=names.get("image", ""),
            text_encoder=names.get("text", ""),
            images_fitted=learned.images_fitted,
            made=now(),
            settings=settings.to_dict(),
        )

    def _quality(self, entries: Sequence[Entry], encoders: dict[str, Fitted], settings: Settings) -> float | None:
        return held_out_quality(
            entries, encoders, self._features, settings.n_bits, settings.random_state, self._progress
        )

    def _encoders(self, state: State) -> dict[str, Fitted]:
        """The encoders of a state, as far as they can be read."""
        found = {}
        for view, name in (("image", state.image_encoder), ("text", state.text_encoder)):
            with contextlib.suppress(FusehashError, OSError):
                if name:
                    found[view] = load_encoder(self._folder, view, name)
        return found

    # -- switching -----------------------------------------------------------------------------------------------

    def switch(self, entries: Sequence[Entry], number: int | None, *, back: bool) -> None:
        """Put a kept generation in force, with codes of all that is there now; what was in force is kept."""
        with self._items.reading() as database:
            target = self._chosen(generations.kept(database, self._folder), number, back)
            known = generations.codes_of(database, target, self._folder)
            present = dict(database.execute("SELECT id, code FROM code").fetchall())
        contents = {entry.id: content_of(entry) for entry in entries if entry.id is not None}
        parked = {
            entry.id: Code(contents[entry.id], present.get(entry.id), entry.trained)
            for entry in entries
            if entry.id is not None
        }
        stale = [
            e for e in entries if e.id is not None and (e.id not in known or known[e.id].content != contents[e.id])
        ]
        learned = self._in_force(target)
        if stale:
            self._encode(stale, learned.encoders)
        fresh = dict(zip((entry.id for entry in stale), self._codes(stale, learned), strict=True))
        codes = {id: Code(content, fresh[id], False) if id in fresh else known[id] for id, content in contents.items()}
        self._progress(0, 1, "writing")
        before = self.state
        with self._items.writing() as database:
            generations.forget(database, target.number)
            if before.model:
                count, digest = generations.counted(parked)
                settings = self._settings.to_dict()
                generations.keep(database, replace(before, codes=count, digest=digest, settings=settings), parked)
            generations.put_in_force(database, codes, parked)
            count, digest = generations.counted(codes)
            self.state = replace(
                target,
                generation=before.generation + 1,
                codes=count,
                digest=digest,
                before=before.number if before.model else 0,
                newest=before.newest,
            )
            self.state.write(database)
        self._report.generation = target.number
        self._report.changed, self._report.unchanged = len(stale), len(entries) - len(stale)

    def drop(self, number: int) -> None:
        """Keep a generation no longer, and remove its files."""
        if number == self.state.number:
            raise DataError(f"Generation {number} is in force and cannot be dropped; switch to another one first.")
        with self._items.writing() as database:
            self._chosen(generations.kept(database, self._folder), number, back=False)
            generations.forget(database, number)
            if self.state.before == number:
                self.state = replace(self.state, before=0)
                self.state.write(database)
        self._report.generation = self.state.number
        self.tidy()

    def _chosen(self, kept: Sequence[State], number: int | None, back: bool) -> State:
        """The kept generation that is meant: of that number, the one before, or the newest of those that came later."""
        by_number = {state.number: state for state in kept}
        known = ", ".join(map(str, by_number)) or "none"
        if back:
            if self.state.before not in by_number:
                raise DataError(
                    "There is no generation to go back to: none was in force before this one, or it is gone."
                )
            return by_number[self.state.before]
        if number is None:
            newer = [state for state in kept if state.number > self.state.number]
            if not newer:
                raise DataError(
                    f"There is no newer generation to switch to; build one beside, or name one that is kept ({known})."
                )
            return newer[-1]
        if number == self.state.number:
            raise DataError(f"Generation {number} is in force already.")
        if number not in by_number:
            raise DataError(f"The generation must be one that is kept ({known}). Got {number}.")
        return by_number[number]
