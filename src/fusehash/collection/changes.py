"""How a collection changes: compare with what is stored, learn and encode, then write in one transaction.

Everything before the transaction leaves nothing but caches: features, thumbnails that no item points to, and files
named after what they were made from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from fusehash.collection import store, training
from fusehash.collection.encoding import FIT_IMAGES, Encoders, FeatureCache, FittedEncoder, ItemEncoder, load_encoder
from fusehash.collection.items import CollectionError, Entry, Progress, Report, UnreadableError
from fusehash.collection.store import CollectionSettings, CollectionState
from fusehash.collection.training import TrainedModel, files_of, load_model
from fusehash.errors import DataError, FusehashError
from fusehash.files import sync_folder
from fusehash.sqlite import Database, WriterLock


def writer_lock(folder: Path, timeout: float) -> WriterLock:
    """Lock held by the one call that writes to a collection."""
    busy = f"Another process is writing to the collection {folder}; try again when it is done."
    return WriterLock(folder / "writer.lock", timeout, CollectionError, busy)


def builder_lock(folder: Path) -> WriterLock:
    """Lock held while a generation is built; its file exists from the first build on."""
    busy = f"Another process is building a generation of the collection {folder}; try again when it is done."
    return WriterLock(folder / "builder.lock", 0.0, CollectionError, busy)


@dataclass(frozen=True)
class Learned:
    """Encoders by view and a model."""

    encoders: Encoders = field(default_factory=dict)
    trained: TrainedModel | None = None
    images_fitted: int = 0

    @property
    def model_name(self) -> str:
        return "" if self.trained is None else self.trained.fingerprint


@dataclass
class Plan:
    """Which items change."""

    new: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    unchanged: list[Entry] = field(default_factory=list)
    touched: list[Entry] = field(default_factory=list)  # unchanged, but their files moved or have another time
    removed: list[int] = field(default_factory=list)

    def compare(self, entry: Entry, stored: Entry, *, partial: bool = False) -> None:
        """Add an entry whose key is stored to those that are changed or unchanged.

        With `partial`, an image, a text or labels that the entry does not have stay as they are stored.
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
            self.changed.append(entry)
            return
        entry.trained = stored.trained
        self.unchanged.append(entry)
        now, before = ((e.path, e.size, e.mtime, e.built) for e in (entry, stored))
        if now != before:
            self.touched.append(entry)


class ItemChange:
    """One call that changes items, from entries to the transaction."""

    def __init__(
        self, items: Database, settings: CollectionSettings, features: FeatureCache, report: Report, progress: Progress
    ) -> None:
        folder = items.path.parent
        self._folder, self._items, self._features = folder, items, features
        self._report, self._progress = report, progress
        self._encoder = ItemEncoder(folder, items, features, progress)
        with items.reading() as database:
            self.state = CollectionState.read(database)
        self._settings = settings.at(self.state)

    def run(self, plan: Plan, *, train: bool = False, must_train: bool = False, broken: str = "keep") -> None:
        """Carry out a plan; with `train`, learn encoders and model from all items that will be there.

        An image that cannot be used is reported and left out. If a changed item then has nothing else, it stays as it
        is stored with broken="keep", and is removed with "drop"; "refuse" raises instead of losing an image.
        """
        incoming = [*plan.changed, *plan.new]
        self._encoder.check_packages(incoming)
        everything = [*sorted([*plan.unchanged, *plan.changed], key=lambda entry: entry.id or 0), *plan.new]
        learned = self._learn(everything, must_train) if train else Learned()
        is_new = learned.trained is not None
        if not is_new and incoming:
            learned = self._load(self.state)
            self._encoder.encode(incoming, learned.encoders)
        if broken == "refuse":
            for entry in plan.changed:
                if entry.problem is not None and not entry.stored:
                    raise DataError(
                        f"The image of {entry.key!r} cannot be used, so nothing has been changed: {entry.problem}"
                    )
        self._drop_empty(plan, broken == "drop")
        coded = [entry for entry in (everything if is_new else incoming) if not entry.is_empty]
        codes = self._codes(coded, learned)
        self._explain(incoming, dict(zip((entry.key for entry in coded), codes, strict=True)), learned)
        self._commit(plan, coded, codes, learned, is_new)

    def _learn(self, entries: Sequence[Entry], must_train: bool, *, fit_images: bool = False) -> Learned:
        """Encoders and a model of all entries; an empty result and a note if nothing can be learned."""
        encoders: Encoders = {}
        images_fitted = 0
        try:
            images = None if fit_images else self._image_encoder(entries)
            images = images or self._encoder.fit_images(self._settings.image, entries)
            if images is not None:
                encoders["image"], images_fitted = images
        except ValueError as error:
            self._report.notes.append(f"No features could be learned from the images: {error}")
        try:
            texts = self._encoder.fit_texts(self._settings.text, entries)
            if texts is not None:
                encoders["text"] = texts
        except ValueError as error:
            self._report.notes.append(f"No features could be learned from the texts: {error}")
        self._encoder.encode(entries, encoders)
        views = training.matrices(entries, encoders, self._features)
        try:
            trained = training.train(self._folder, self._settings, views, encoders, self._progress)
        except ValueError as error:
            if must_train:
                raise
            self._report.notes.append(str(error))
            return Learned()
        self._report.trained = True
        return Learned(encoders, trained, images_fitted)

    def _image_encoder(self, entries: Sequence[Entry]) -> tuple[FittedEncoder, int] | None:
        """The current encoder, if it was fitted on enough of the images that there are."""
        count = min(sum(entry.wants_image for entry in entries), FIT_IMAGES)
        if self.state.image_encoder and 2 * self.state.images_fitted >= count:
            with contextlib.suppress(FusehashError, OSError):
                fitted = load_encoder(self._folder, "image", self.state.image_encoder)
                return fitted, self.state.images_fitted
        return None

    def _load(self, state: CollectionState) -> Learned:
        """The encoders and the model of a state."""
        encoders = {view: load_encoder(self._folder, view, name) for view, name in state.encoder_names.items()}
        return Learned(encoders, load_model(self._folder, state.model) if state.model else None, state.images_fitted)

    def _codes(self, entries: Sequence[Entry], learned: Learned) -> list[bytes | None]:
        if learned.trained is None or not entries:
            return [None] * len(entries)
        return training.encode(learned.trained.model, training.matrices(entries, learned.encoders, self._features))

    def _drop_empty(self, plan: Plan, remove: bool) -> None:
        """Report broken images and drop items that have nothing else."""
        for entry in [*plan.unchanged, *plan.changed, *plan.new]:
            if entry.problem is not None:
                self._report.skipped[entry.key] = entry.problem
        plan.new = [entry for entry in plan.new if not entry.is_empty]
        if remove:
            plan.removed += [entry.id for entry in plan.changed if entry.is_empty and entry.id is not None]
        plan.changed = [entry for entry in plan.changed if not entry.is_empty]

    def _explain(self, incoming: Sequence[Entry], codes: dict[str, bytes | None], learned: Learned) -> None:
        """Report items that have no code because the model does not have their views."""
        if learned.trained is None:
            return
        views = " and ".join(f"{view}s" for view in learned.trained.views)
        for entry in incoming:
            if entry.key in codes and codes[entry.key] is None:
                self._report.skipped.setdefault(
                    entry.key, f"it is kept but cannot be found before a reindex: the codes were learned from {views}."
                )

    def _commit(
        self, plan: Plan, coded: Sequence[Entry], codes: Sequence[bytes | None], learned: Learned, is_new: bool
    ) -> None:
        if not (is_new or plan.new or plan.changed or plan.removed or plan.touched):
            return
        self._progress(0, 1, "writing")
        if is_new:
            sync_folder(self._folder)  # the files that the transaction is about to name
        for entry, code in zip(coded, codes, strict=True):
            entry.trained = is_new and code is not None
        with self._items.writing() as database:
            store.remove(database, plan.removed)
            store.write_entries(database, [*plan.changed, *plan.new])
            store.touch(database, plan.touched)
            written = {entry.id: code for entry, code in zip(coded, codes, strict=True) if entry.id and code}
            gone = {*plan.removed, *(entry.id for entry in coded if entry.id is not None)}
            state = store.write_codes(database, self.state, gone, written)
            if is_new:
                database.execute("UPDATE item SET trained = EXISTS (SELECT 1 FROM code WHERE code.id = item.id)")
                # Codes of another model are another generation, so that stored query codes are not mixed up.
                is_other = state.model not in ("", learned.model_name)
                generation = state.newest + 1 if is_other else state.generation
                state = describe(state, learned, generation=generation, newest=max(state.newest, generation))
            state.write(database)
            if is_new or plan.removed:
                used = "SELECT image FROM item WHERE image IS NOT NULL"
                database.execute(f"DELETE FROM thumbnail WHERE image NOT IN ({used})")
        self.state = state
        report = self._report
        report.added, report.changed, report.removed = len(plan.new), len(plan.changed), len(plan.removed)
        report.ids = [entry.id for entry in [*plan.changed, *plan.new] if entry.id is not None]
        if is_new:
            self.remove_unused_files()

    def remove_unused_files(self) -> None:
        """Remove files and features that no generation needs, unless a generation is being built."""
        if not (self._folder / "builder.lock").exists():
            self._remove_unused_files()
            return
        # The files of a generation that is being built look unused; the next call looks at them again.
        with contextlib.suppress(CollectionError), builder_lock(self._folder):
            self._remove_unused_files()

    def _remove_unused_files(self) -> None:
        with self._items.reading() as database:
            states = [self.state, *store.kept_states(database)]
        used = {path.name for state in states for path in files_of(self._folder, state)}
        for pattern in ("model-*.safetensors", "image-*.encoder", "text-*.encoder", ".model-*", ".image-*", ".text-*"):
            for path in self._folder.glob(pattern):
                if path.name not in used:
                    with contextlib.suppress(OSError):
                        path.unlink()
        self._features.keep_only({name for state in states for name in (state.image_encoder, state.text_encoder)})


def describe(state: CollectionState, learned: Learned, **others: object) -> CollectionState:
    """A state with the model and the encoders that were just learned."""
    names = {view: fitted.fingerprint for view, fitted in learned.encoders.items()}
    values = {
        "model": learned.model_name, "image_encoder": names.get("image", ""), "text_encoder": names.get("text", ""),
        "images_fitted": learned.images_fitted, "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "quality": None,
    }  # fmt: skip
    return replace(state, **{**values, **others})  # type: ignore[arg-type]
