"""How a collection changes: compare with what is stored, learn and encode, then write in one transaction.

Everything before the transaction leaves nothing but caches: features, unused thumbnails, models and encoders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fusehash import extras
from fusehash.collection import bridge as bridges
from fusehash.collection import store, training
from fusehash.collection.bridge import Bridge
from fusehash.collection.encoding import FIT_IMAGES, Encoders, FittedEncoder, ItemEncoder, load_encoder
from fusehash.collection.features import FeatureCache
from fusehash.collection.items import CollectionError, Entry, Report, UnreadableError
from fusehash.collection.queries import calibration
from fusehash.collection.store import VIEWS, CollectionSettings, CollectionState
from fusehash.collection.training import HeldOutPairs, files_of, load_bridge, load_model
from fusehash.errors import DataError, FusehashError
from fusehash.files import sync_folder
from fusehash.parameters import Progress
from fusehash.sqlite import Connection, Database, WriterLock

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher


def lock_of(folder: Path, name: str, timeout: float = 0.0) -> WriterLock:
    """The lock of the one "writer" of a collection, or of the one "builder" of a generation."""
    action = {"writer": "writing to", "builder": "building a generation of"}[name]
    busy = f"Another process is {action} the collection {folder}; try again when it is done."
    return WriterLock(folder / f"{name}.lock", timeout, CollectionError, busy)


@dataclass(frozen=True)
class Learned:
    """Encoders by view, a model (None if nothing could be learned), a bridge if there is one, and held-out pairs."""

    encoders: Encoders = field(default_factory=dict)
    model_name: str = ""
    model: CrossModalHasher | None = None
    bridge_name: str = ""
    bridge: Bridge | None = None
    held: HeldOutPairs | None = None


@dataclass
class Plan:
    """Which items change."""

    new: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    unchanged: list[Entry] = field(default_factory=list)
    touched: list[Entry] = field(default_factory=list)  # unchanged, but their files moved, or have another time or day
    removed: list[int] = field(default_factory=list)
    restored: list[Entry] = field(default_factory=list)  # removed before; they get the ids that they had

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
            entry.taken = stored.taken
        elif not has_image:
            same = stored.image is None and stored.problem is None
        elif entry.is_same_file(stored):
            entry.taken = stored.taken
            if stored.taken is None and stored.image is not None:  # of a time when the day was not read
                with contextlib.suppress(UnreadableError):
                    entry.read()
            same = entry.image is None or entry.image == stored.image
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
        now, before = ((e.path, e.size, e.mtime, e.built, e.taken) for e in (entry, stored))
        if now != before:
            self.touched.append(entry)


class ItemChange:
    """One call that changes items, from entries to the transaction."""

    def __init__(
        self,
        items: Database,
        settings: CollectionSettings,
        progress: Progress,
        in_memory: Callable[[CollectionState], Learned | None] = lambda state: None,
    ) -> None:
        self.report, self._in_memory = Report(), in_memory
        self.features = FeatureCache(items.path.parent / "features.db")
        self._folder, self._items, self._progress = items.path.parent, items, progress
        self._encoder = ItemEncoder(items, self.features, progress)
        store.upgrade(items, settings, lambda state: training.file_checksums(self._folder, state))
        with items.reading() as database:
            self.state = CollectionState.read(database)
        self._settings = self.state.made_with(settings)

    def run(self, plan: Plan, *, train: bool = False, must_train: bool = False, broken: str = "keep") -> None:
        """Carry out a plan; with `train`, learn encoders and model from all items that will be there.

        An image that cannot be used is reported and left out. If a changed item then has nothing else, it stays as it
        is stored with broken="keep", and is removed with "drop"; "refuse" raises instead of losing an image.
        """
        incoming = [*plan.changed, *plan.restored, *plan.new]
        if any(entry.wants_image for entry in incoming):
            extras.require("PIL", "Reading images")  # raises once, before anything is read
        everything = [*sorted([*plan.unchanged, *plan.changed], key=lambda entry: entry.id or 0), *plan.new]
        learned = self._learn(everything, must_train) if train else Learned()
        is_new = learned.model is not None
        if not is_new and incoming:
            learned = self._load(self.state)
            self._encoder.encode(incoming, learned.encoders)
        for entry in plan.changed if broken == "refuse" else ():
            if entry.problem is not None and not entry.stored:
                raise DataError(
                    f"The image of {entry.key!r} cannot be used, so nothing has been changed: {entry.problem}"
                )
        self._drop_empty(plan, broken == "drop")
        coded = [entry for entry in (everything if is_new else incoming) if not entry.is_empty]
        codes = list(zip(coded, self._codes(coded, learned), strict=True))
        if learned.model is not None:
            views = " and ".join(f"{view}s" for view in learned.model.view_names_)
            problem = f"it is kept but cannot be found before a reindex: the codes were learned from {views}."
            without_code = {entry.key for entry, code in codes if code is None}
            without_code -= self.report.skipped.keys()
            self.report.skipped |= {entry.key: problem for entry in incoming if entry.key in without_code}
        self._commit(plan, codes, learned, is_new)

    def _learn(
        self, entries: Sequence[Entry], must_train: bool, *, fit_images: bool = False, measure: bool = True
    ) -> Learned:
        """Encoders and a model of all entries; an empty result and a note if nothing can be learned."""
        training.remove_damaged(self._folder, self.state)
        encoders: Encoders = {}
        bridged = bridges.exists(self._settings) and any(entry.wants_image for entry in entries)
        for view in VIEWS:
            try:
                fitted = self._image_encoder(entries) if view == "image" and not fit_images else None
                fitted = fitted or self._encoder.fit(view, getattr(self._settings, view), entries, always=bridged)
                if fitted is not None:
                    encoders[view] = fitted
            except ValueError as error:
                self.report.notes.append(f"No features could be learned from the {view}s: {error}")
        self._encoder.encode(entries, encoders)
        views = training.matrices(entries, encoders, self.features)
        bridge_name, bridge = training.make_bridge(self._folder, self._settings, views, encoders)
        if bridge is not None:
            views = training.with_captions(views, bridge)
        try:
            name, model = training.train(self._folder, self._settings, views, encoders, self._progress)
        except ValueError as error:
            if must_train:
                raise
            self.report.notes.append(str(error))
            return Learned()
        self.report.trained = True
        held = None
        if measure:
            held = training.held_out_model(entries, encoders, self.features, self._settings, self._progress)
        return Learned(encoders, name, model, bridge_name, bridge, held)

    def _image_encoder(self, entries: Sequence[Entry]) -> FittedEncoder | None:
        """The current encoder, if it was fitted on enough images."""
        count = min(sum(entry.wants_image for entry in entries), FIT_IMAGES)
        if self.state.image_encoder and 2 * self.state.images_fitted >= count:
            with contextlib.suppress(FusehashError, OSError):
                fitted = self._load_encoder(self.state, "image")
                return replace(fitted, count=self.state.images_fitted)
        return None

    def _load(self, state: CollectionState) -> Learned:
        if (learned := self._in_memory(state)) is not None:
            return learned
        encoders = {view: self._load_encoder(state, view) for view in state.encoder_names}
        checksum = state.checksums.get("model")
        model = load_model(self._folder, state.model, checksum) if state.model else None
        bridge = load_bridge(self._folder, state.bridge, state.checksums.get("bridge"))
        return Learned(encoders, state.model, model, state.bridge, bridge)

    def _load_encoder(self, state: CollectionState, view: str) -> FittedEncoder:
        return load_encoder(self._folder, view, state.encoder_names[view], state.checksums.get(view))

    def _codes(self, entries: Sequence[Entry], learned: Learned) -> list[bytes | None]:
        if learned.model is None or not entries:
            return [None] * len(entries)
        views = training.matrices(entries, learned.encoders, self.features, learned.bridge)
        return training.encode(learned.model, views)

    def _drop_empty(self, plan: Plan, remove: bool) -> None:
        """Report broken images and drop items that have nothing else."""
        for entry in [*plan.unchanged, *plan.changed, *plan.new]:
            if entry.problem is not None:
                self.report.skipped[entry.key] = entry.problem
        plan.new = [entry for entry in plan.new if not entry.is_empty]
        if remove:
            plan.removed += [entry.id for entry in plan.changed if entry.is_empty and entry.id is not None]
        plan.changed = [entry for entry in plan.changed if not entry.is_empty]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction on the state that this change began with.

        The writer lock ensures that, unless this process was forked during the change.
        """
        with self._items.writing() as database:
            if CollectionState.read(database) != self.state:
                raise CollectionError(
                    f"Another process has changed the collection {self._folder} meanwhile, so nothing was changed; "
                    "try again."
                )
            yield database

    def _commit(self, plan: Plan, codes: list[tuple[Entry, bytes | None]], learned: Learned, is_new: bool) -> None:
        if not (is_new or plan.new or plan.changed or plan.restored or plan.removed or plan.touched):
            return
        self._progress(0, 1, "writing")
        if is_new:
            sync_folder(self._folder)  # the files that the transaction is about to name
        for entry, code in codes:
            entry.trained = is_new and code is not None
        with self._writing() as database:
            state = store.remove(database, self.state, plan.removed)
            back = {entry.id for entry in plan.restored if entry.id is not None}
            state = store.write_entries(database, state, [*plan.changed, *plan.restored, *plan.new], back)
            files = {entry.id: store.columns_of_file(entry) for entry in plan.touched if entry.id is not None}
            state = store.amend(database, state, files)
            written = {entry.id: code for entry, code in codes if entry.id and code}
            gone = {*plan.removed, *(entry.id for entry, _ in codes if entry.id is not None)}
            state = store.write_codes(database, state, gone, written)
            if is_new:
                has_code = "EXISTS (SELECT 1 FROM code WHERE code.id = item.id)"
                rows = database.execute(f"SELECT id, {has_code} FROM item WHERE trained IS NOT {has_code}").fetchall()
                state = store.amend(database, state, {id: {"trained": trained} for id, trained in rows})
                # Codes of another model are another generation, so that stored query codes are not mixed up.
                is_other = state.model not in ("", learned.model_name)
                generation = state.newest + 1 if is_other else state.generation
                state = self._describe(state, learned, generation=generation, newest=max(state.newest, generation))
            state.write(database)
            if is_new or plan.removed:
                used = "SELECT image FROM item WHERE image IS NOT NULL"
                database.execute(f"DELETE FROM thumbnail WHERE image NOT IN ({used})")
        self.state, report = state, self.report
        report.added, report.changed = len(plan.new) + len(plan.restored), len(plan.changed)
        report.removed = len(plan.removed)
        report.ids = [entry.id for entry in [*plan.changed, *plan.restored, *plan.new] if entry.id is not None]
        if is_new:
            self.remove_unused_files()

    def remove_unused_files(self) -> None:
        """Remove files and features that no generation needs, unless a generation is being built."""
        has_lock = (self._folder / "builder.lock").exists()
        lock = lock_of(self._folder, "builder") if has_lock else contextlib.nullcontext()
        with contextlib.suppress(CollectionError), lock:
            self._remove_unused_files()

    def _remove_unused_files(self) -> None:
        with self._items.reading() as database:
            states = [self.state, *store.kept_states(database)]
        used = {path.name for state in states for path in files_of(self._folder, state).values()}
        self._items.check_place()  # never delete in another folder
        parts = ("model-*.safetensors", "bridge-*.safetensors", "image-*.encoder", "text-*.encoder")
        for pattern in (*parts, ".model-*", ".bridge-*", ".image-*", ".text-*"):
            for path in self._folder.glob(pattern):
                if path.name not in used:
                    with contextlib.suppress(OSError):
                        path.unlink()
        self.features.keep_only({name for state in states for name in (state.image_encoder, state.text_encoder)})

    def _describe(self, state: CollectionState, learned: Learned, **others: object) -> CollectionState:
        """The state with what was learned."""
        made = datetime.now(UTC).isoformat(timespec="seconds")
        values: dict[str, object] = {"model": learned.model_name, "made": made, "quality": None}
        values["bridge"] = learned.bridge_name
        for view in VIEWS:
            values[f"{view}_encoder"] = learned.encoders[view].fingerprint if view in learned.encoders else ""
        ships_with = bridges.SHIPPED.get((self._settings.image.name, self._settings.text.name), "")
        bridge = ships_with if learned.bridge is not None else ""
        meaning = calibration.of_collection(learned.held, learned.encoders, bridge)
        values["calibration"] = None if meaning is None else meaning.to_dict()
        values["images_fitted"] = learned.encoders["image"].count if "image" in learned.encoders else 0
        state = replace(state, **{**values, **others})  # type: ignore[arg-type]
        return replace(state, checksums=training.file_checksums(self._folder, state))
