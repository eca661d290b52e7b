"""How a collection changes: what differs from what is stored, what is learned from it, and the one transaction.

All that comes before the transaction leaves nothing behind but caches: features, thumbnails that no item points to,
and files named after what they were made from. The transaction then makes all of it true at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fusehash.collection import generations, store, training
from fusehash.collection.database import CollectionError, Database, WriterLock, sync_folder
from fusehash.collection.encoding import FIT_IMAGES, EncoderSettings, Encoding, Fitted, encoder_file, load_encoder
from fusehash.collection.entries import Entry, UnreadableError
from fusehash.collection.features import Features
from fusehash.collection.items import Progress, Report
from fusehash.collection.store import State
from fusehash.collection.training import Trained, load_model, model_file
from fusehash.errors import DataError, FusehashError


@dataclass(frozen=True)
class Settings:
    """What a collection was created with."""

    n_bits: int
    random_state: int
    image: EncoderSettings
    text: EncoderSettings

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold."""
        return asdict(self)

    @classmethod
    def of(cls, content: dict[str, Any]) -> Settings:
        """What `to_dict` gave."""
        image, text = (EncoderSettings(content[v]["name"], dict(content[v]["params"])) for v in ("image", "text"))
        return cls(int(content["n_bits"]), int(content["random_state"]), image, text)

    def now(self, state: State) -> Settings:
        """What holds in this state of a collection that was created with these."""
        return self if state.settings is None else Settings.of(state.settings)


@dataclass(frozen=True)
class Learned:
    """Encoders by view and a model, in force or about to be."""

    encoders: dict[str, Fitted] = field(default_factory=dict)
    trained: Trained | None = None
    images_fitted: int = 0


@dataclass
class Plan:
    """What is to change."""

    fresh: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    unchanged: list[Entry] = field(default_factory=list)
    touched: list[Entry] = field(default_factory=list)  # unchanged, but their files lie elsewhere or have another time
    removed: list[int] = field(default_factory=list)


def compare(entry: Entry, stored: Entry, plan: Plan, *, partial: bool = False) -> None:
    """Sort an entry whose key is known into what has changed and what has not.

    ``partial``: an image, a text or labels that the entry has not got stay as they are stored.
    """
    entry.id = stored.id
    has_image = entry.path is not None or entry.data is not None
    if partial:
        entry.text, entry.labels = entry.text or stored.text, entry.labels or stored.labels
    if not has_image and partial:
        same = True
        entry.path, entry.size, entry.mtime = stored.path, stored.size, stored.mtime
    elif not has_image:
        same = stored.image is None and stored.problem is None
    elif entry.is_same_file(stored):
        same = True
        entry.size, entry.mtime = stored.size, stored.mtime
    else:
        try:
            entry.read()
            same = entry.image == stored.image
        except UnreadableError as error:
            entry.problem, same = str(error), str(error) == stored.problem
    if same:
        entry.image, entry.width, entry.height = stored.image, stored.width, stored.height
        entry.problem, entry.stored = stored.problem, True
    if not same or (entry.text, entry.labels) != (stored.text, stored.labels):
        plan.changed.append(entry)
        return
    entry.trained = stored.trained
    plan.unchanged.append(entry)
    now, before = ((e.path, e.size, e.mtime, e.built) for e in (entry, stored))
    if now != before:
        plan.touched.append(entry)


class Change:
    """One call that writes, from entries to the transaction."""

    def __init__(
        self, folder: Path, settings: Settings, items: Database, features: Features, report: Report, progress: Progress
    ) -> None:
        self._folder, self._items, self._features = folder, items, features
        self._report, self._progress = report, progress
        self._encoding = Encoding(folder, items, features, progress)
        with items.reading() as database:
            self.state = State.read(database, folder)
        self._settings = settings.now(self.state)

    def run(
        self,
        plan: Plan,
        *,
        train: bool = False,
        must_train: bool = False,
        drop_broken: bool = False,
        refuse_broken: bool = False,
    ) -> None:
        """Carry out a plan. ``train``: learn encoders and model anew from everything that will be there.

        An image that cannot be used is told and left out; with ``drop_broken`` an item that had nothing else goes, with
        ``refuse_broken`` it is an error, so that no image is lost to one that cannot be used.
        """
        coming = [*plan.changed, *plan.fresh]
        everything = [*sorted([*plan.unchanged, *plan.changed], key=lambda entry: entry.id or 0), *plan.fresh]
        learned = Learned()
        if train:
            learned = self._learn(everything, must_train)
        anew = learned.trained is not None
        if not anew and coming:
            learned = self._in_force()
            self._encode(coming, learned.encoders)
        if refuse_broken:
            _refuse_broken(plan.changed)
        self._refuse_empty(plan, drop_broken)
        coded = everything if anew else coming
        coded = [entry for entry in coded if not _is_empty(entry)]
        codes = self._codes(coded, learned)
        self._explain(coming, dict(zip((entry.key for entry in coded), codes, strict=True)), learned)
        self._commit(plan, coded, codes, learned, anew)

    # -- learning ------------------------------------------------------------------------------------------------

    def _learn(self, entries: Sequence[Entry], must_train: bool, *, fit_images: bool = False) -> Learned:
        """Encoders and a model of all entries; without the model, and with a note, where nothing can be learned."""
        encoders: dict[str, Fitted] = {}
        try:
            images = None if fit_images else self._image_encoder(entries)
            images = images or self._encoding.fit_images(self._settings.image, entries)
            if images is not None:
                encoders["image"] = images[0]
        except ValueError as error:
            images = None
            self._report.notes.append(f"No features could be learned from the images: {error}")
        try:
            texts = self._encoding.fit_texts(self._settings.text, entries)
            if texts is not None:
                encoders["text"] = texts
        except ValueError as error:
            self._report.notes.append(f"No features could be learned from the texts: {error}")
        self._encode(entries, encoders)
        views = training.matrices(entries, encoders, self._features)
        try:
            trained = training.train(
                self._folder, self._settings.n_bits, self._settings.random_state, views, encoders, self._progress
            )
        except ValueError as error:
            if must_train:
                raise
            self._report.notes.append(str(error))
            return Learned()
        self._report.trained = True
        return Learned(encoders, trained, images[1] if images is not None else 0)

    def _image_encoder(self, entries: Sequence[Entry]) -> tuple[Fitted, int] | None:
        """The encoder in force while it was fitted on enough of the images there are."""
        count = min(sum(entry.wants_image for entry in entries), FIT_IMAGES)
        if self.state.image_encoder and 2 * self.state.images_fitted >= count:
            with contextlib.suppress(FusehashError, OSError):
                fitted = load_encoder(self._folder, "image", self.state.image_encoder)
                return fitted, self.state.images_fitted
        return None

    def _in_force(self, state: State | None = None) -> Learned:
        """Encoders and model of a state, by default the present one."""
        state, encoders = state or self.state, {}
        for view, name in (("image", state.image_encoder), ("text", state.text_encoder)):
            if name:
                encoders[view] = load_encoder(self._folder, view, name)
        return Learned(encoders, load_model(self._folder, state.model) if state.model else None, state.images_fitted)

    def _encode(self, entries: Sequence[Entry], encoders: dict[str, Fitted]) -> None:
        self._encoding.images(entries, encoders.get("image"))
        if "text" in encoders:
            self._encoding.texts(entries, encoders["text"])

    def _codes(self, entries: Sequence[Entry], learned: Learned) -> list[bytes | None]:
        if learned.trained is None or not entries:
            return [None] * len(entries)
        return training.encode(learned.trained.model, training.matrices(entries, learned.encoders, self._features))

    # -- what is told --------------------------------------------------------------------------------------------

    def _refuse_empty(self, plan: Plan, drop_broken: bool) -> None:
        """Items of which nothing is left go; broken images of others are told."""
        for entry in [*plan.unchanged, *plan.changed, *plan.fresh]:
            if entry.problem is not None:
                self._report.skipped[entry.key] = entry.problem
        plan.fresh = [entry for entry in plan.fresh if not _is_empty(entry)]
        if drop_broken:
            plan.removed += [entry.id for entry in plan.changed if _is_empty(entry) and entry.id is not None]
        plan.changed = [entry for entry in plan.changed if not _is_empty(entry)]

    def _explain(self, coming: Sequence[Entry], codes: dict[str, bytes | None], learned: Learned) -> None:
        if learned.trained is None:
            return
        views = " and ".join(f"{view}s" for view in learned.trained.views)
        for entry in coming:
            if entry.key in codes and codes[entry.key] is None:
                self._report.skipped.setdefault(
                    entry.key, f"it is kept but cannot be found before a reindex: the codes were learned from {views}."
                )

    # -- the transaction -----------------------------------------------------------------------------------------

    def _commit(
        self, plan: Plan, coded: Sequence[Entry], codes: Sequence[bytes | None], learned: Learned, anew: bool
    ) -> None:
        if not (anew or plan.fresh or plan.changed or plan.removed or plan.touched):
            return
        self._progress(0, 1, "writing")
        if anew:
            sync_folder(self._folder)  # the files that the transaction is about to name
        for entry, code in zip(coded, codes, strict=True):
            entry.trained = anew and code is not None
        with self._items.writing() as database:
            store.remove(database, plan.removed)
            store.update(database, plan.changed)
            store.insert(database, plan.fresh)
            store.touch(database, plan.touched)
            written = {entry.id: code for entry, code in zip(coded, codes, strict=True) if entry.id and code}
            gone = {*plan.removed, *(entry.id for entry in coded if entry.id is not None)}
            state = store.write_codes(database, self.state, gone, written)
            if anew and learned.trained is not None:
                database.execute("UPDATE item SET trained = EXISTS (SELECT 1 FROM code WHERE code.id = item.id)")
                names = {view: fitted.fingerprint for view, fitted in learned.encoders.items()}
                # Codes that somebody has kept must not be taken for those of another model.
                other = state.model not in ("", learned.trained.fingerprint)
                number = state.newest + 1 if other else state.number
                state = replace(
                    state,
                    number=number,
                    newest=max(state.newest, number),
                    model=learned.trained.fingerprint,
                    image_encoder=names.get("image", ""),
                    text_encoder=names.get("text", ""),
                    images_fitted=learned.images_fitted,
                    made=now(),
                    quality=None,
                )
            state.write(database)
            if anew or plan.removed:
                store.sweep_thumbnails(database)
        self.state = state
        report = self._report
        report.added, report.changed, report.removed = len(plan.fresh), len(plan.changed), len(plan.removed)
        report.ids = [entry.id for entry in [*plan.changed, *plan.fresh] if entry.id is not None]
        if anew:
            self.tidy()

    def tidy(self) -> None:
        """Remove files and features that neither what is in force nor a kept generation needs."""
        lock = generations.builder_lock(self._folder)
        if not lock.exists():
            self._tidy()
            return
        # While a generation is being built, its files look like nobody's; they are looked at the next time.
        with contextlib.suppress(CollectionError), WriterLock(lock, 0.0):
            self._tidy()

    def _tidy(self) -> None:
        with self._items.reading() as database:
            states = [self.state, *generations.kept(database, self._folder)]
        kept = {path.name for state in states for path in files_of(self._folder, state)}
        for pattern in ("model-*.safetensors", "image-*.encoder", "text-*.encoder", ".model-*", ".image-*", ".text-*"):
            for path in self._folder.glob(pattern):
                if path.name not in kept:
                    with contextlib.suppress(OSError):
                        path.unlink()
        self._features.keep_only({name for state in states for name in (state.image_encoder, state.text_encoder)})


def files_of(folder: Path, state: State) -> list[Path]:
    """The files that a state needs."""
    named = [model_file(folder, state.model)] if state.model else []
    encoders = (("image", state.image_encoder), ("text", state.text_encoder))
    return named + [encoder_file(folder, view, name) for view, name in encoders if name]


def now() -> str:
    """The time, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _refuse_broken(entries: Sequence[Entry]) -> None:
    broken = next((entry for entry in entries if entry.problem is not None and not entry.stored), None)
    if broken is not None:
        raise DataError(f"The image of {broken.key!r} cannot be used, so nothing has been changed: {broken.problem}")


def _is_empty(entry: Entry) -> bool:
    return entry.text is None and entry.image is None
