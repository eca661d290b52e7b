"""From features to codes: the model of a collection, trained on every item, whichever views it has."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash.collection import bridge as bridges
from fusehash.collection.bridge import Bridge
from fusehash.collection.encoding import (
    Encoders,
    Views,
    check_file,
    encoder_file,
    file_checksum,
    fingerprint,
    order_of,
)
from fusehash.collection.features import FeatureCache, Floats32
from fusehash.collection.items import Entry
from fusehash.collection.store import VIEWS, CollectionSettings, CollectionState
from fusehash.errors import DataError, FusehashError
from fusehash.parameters import Progress

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

HELD_OUT_PAIRS, TRAINING_PAIRS = 1000, 4000  # at most, to measure quality
MIN_PAIRS = 40  # with fewer, the quality would be noise
NEEDS_ITEMS = "needs at least 2 items with different images or different texts."


def model_file(folder: Path, name: str) -> Path:
    return folder / f"model-{name}.safetensors"


def load_model(folder: Path, name: str, checksum: int | None = None) -> CrossModalHasher:
    """The model of a collection; damage raises if its checksum is known."""
    from fusehash import hashers

    path = model_file(folder, name)
    check_file(path, checksum)
    return _with_anchors_as(hashers.load(path), np.float32)


def bridge_file(folder: Path, name: str) -> Path:
    return folder / f"bridge-{name}.safetensors"


def load_bridge(folder: Path, name: str, checksum: int | None = None) -> Bridge | None:
    """The bridge of a collection, None if it has none; damage raises."""
    if not name:
        return None
    path = bridge_file(folder, name)
    check_file(path, checksum)
    return Bridge.load(path)


def make_bridge(
    folder: Path, settings: CollectionSettings, views: Views, encoders: Encoders
) -> tuple[str, Bridge | None]:
    """The name and the bridge of these items, which is written to its file; an empty name if they have none."""
    bridge = _bridge_of(settings, encoders, views)
    if bridge is None:
        return "", None
    parts = [np.ascontiguousarray(array).data.cast("B") for array in (bridge.weights, bridge.image_mean)]
    name = fingerprint("bridge", *(encoders[view].fingerprint for view in VIEWS), *parts, bridge.text_mean.tobytes())
    path = bridge_file(folder, name)
    if path.exists() and not path.is_symlink():
        with contextlib.suppress(FusehashError):  # a damaged file is made again
            return name, Bridge.load(path)
    bridge.save(path)
    return name, bridge


def _bridge_of(settings: CollectionSettings, encoders: Encoders, views: Views) -> Bridge | None:
    """The bridge that the pairs of some views improve; None if there is none between these encoders."""
    if set(encoders) != set(VIEWS) or not bridges.exists(settings):
        return None
    first = bridges.first_bridge(settings, encoders, views["image"])
    if first is None:
        return None
    is_pair = ~np.any([np.isnan(matrix[:, 0]) for matrix in views.values()], axis=0)
    return first.refined(*(views[view][is_pair] for view in VIEWS)).rounded()


def files_of(folder: Path, state: CollectionState) -> dict[str, Path]:
    """The files that a generation needs: "model", "bridge" and the views of encoders."""
    models = {"model": model_file(folder, state.model)} if state.model else {}
    if state.bridge:
        models["bridge"] = bridge_file(folder, state.bridge)
    return models | {view: encoder_file(folder, view, name) for view, name in state.encoder_names.items()}


def file_checksums(folder: Path, state: CollectionState) -> dict[str, int]:
    """The checksums of these files, of those that exist."""
    return {part: file_checksum(path) for part, path in files_of(folder, state).items() if path.exists()}


def remove_damaged(folder: Path, state: CollectionState) -> None:
    """Delete the files of a generation that its checksums do not confirm, so that they are made again."""
    for part, checksum in file_checksums(folder, state).items():
        if state.checksums.get(part, checksum) != checksum:
            files_of(folder, state)[part].unlink(missing_ok=True)


def matrices(
    entries: Sequence[Entry], encoders: Encoders, features: FeatureCache, bridge: Bridge | None = None
) -> Views:
    """Features by view, one row per entry; NaN if the entry does not have the view.

    With a bridge, pictures without a text have the text features that it expects.
    """
    contents = {"image": [entry.image for entry in entries], "text": [entry.text_content for entry in entries]}
    views = {
        view: features.matrix(encoders[view].fingerprint, contents[view], encoders[view].encoder.n_features_)
        for view in VIEWS
        if view in encoders
    }
    return views if bridge is None else with_captions(views, bridge)


def with_captions(views: Views, bridge: Bridge) -> Views:
    """The views with the texts that a bridge expects of pictures without one."""
    lacks_text = np.isnan(views["text"][:, 0]) & ~np.isnan(views["image"][:, 0])
    texts = views["text"].copy()
    texts[lacks_text] = bridge.captions(views["image"][lacks_text])
    return {**views, "text": texts}


def train(
    folder: Path, settings: CollectionSettings, views: Views, encoders: Encoders, progress: Progress
) -> tuple[str, CrossModalHasher]:
    """The name and the model of these items, trained now or on the same items before.

    Raises DataError if nothing can be learned from them.
    """
    from fusehash import hashers

    usable = {view: matrix for view, matrix in views.items() if _varies(matrix)}
    if not usable:
        raise DataError(f"Nothing can be learned: a collection {NEEDS_ITEMS}")
    seen = _has_any_view(usable)
    usable = {view: matrix[seen] for view, matrix in usable.items()}
    made_from = [encoders[view].fingerprint for view in usable]
    rows = [np.ascontiguousarray(matrix).data.cast("B") for matrix in usable.values()]
    name = fingerprint("fusehash", settings.n_bits, settings.random_state, list(usable), made_from, *rows)
    path = model_file(folder, name)
    if path.exists() and not path.is_symlink():
        with contextlib.suppress(FusehashError):  # a damaged file is made again
            return name, load_model(folder, name)
    progress(0, 1, "learning codes")
    params = {"n_bits": settings.n_bits, "random_state": settings.random_state, "callback": progress}
    model = hashers.make("fusehash", missing="allow", **params).fit(usable)
    model.set_params(callback=None)
    _with_anchors_as(model, np.float16).save(path)
    return name, load_model(folder, name)


def _with_anchors_as(model: CrossModalHasher, dtype: type[np.floating[Any]]) -> CrossModalHasher:
    """A model with its anchors in another precision: they are rows of features, and most of its file."""
    fitted: Any = getattr(model, "fitted_", None)
    if fitted is None or not hasattr(fitted, "maps"):
        return model
    changed = copy(model)
    maps = {view: replace(each, anchors=_as(each.anchors, dtype)) for view, each in fitted.maps.items()}
    graph = fitted.graph
    if graph is not None:
        graph = replace(graph, anchors={view: _as(each, dtype) for view, each in graph.anchors.items()})
    changed.fitted_ = replace(fitted, maps=maps, graph=graph)
    return changed


def _as(anchors: Any, dtype: type[np.floating[Any]]) -> Any:
    """Dense anchors in another precision; as they are if half precision cannot hold them."""
    if not isinstance(anchors, np.ndarray) or anchors.dtype not in (np.float32, np.float16):
        return anchors
    largest = float(np.nanmax(np.abs(anchors), initial=0.0))
    return anchors.astype(dtype) if dtype is np.float32 or 1e-2 < largest < 6e4 else anchors


def encode(model: CrossModalHasher, views: Views) -> list[bytes | None]:
    """The code of every row, from the views it has; None if it has no view of the model."""
    shared = {view: views[view] for view in model.view_names_ if view in views}
    codes: list[bytes | None] = [None] * (len(next(iter(views.values()))) if views else 0)
    if shared and (seen := _has_any_view(shared)).any():
        packed = model.encode_fused({view: matrix[seen] for view, matrix in shared.items()})
        for i, code in zip(np.flatnonzero(seen), packed, strict=True):
            codes[i] = code.tobytes()
    return codes


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs that a second model has not seen, and that model."""

    model: CrossModalHasher
    trained: list[Entry]
    held_out: list[Entry]
    seen: Views  # features of the pairs that the model was trained on
    views: Views  # and of the held-out pairs
    bridge: Bridge | None  # made without their captions

    @property
    def pictures(self) -> Views:
        """The held-out pictures as if they had no captions."""
        alone = {"image": self.views["image"]}
        if self.bridge is None:
            return alone
        return with_captions({**alone, "text": np.full_like(self.views["text"], np.nan)}, self.bridge)


def held_out_model(
    entries: Sequence[Entry], encoders: Encoders, features: FeatureCache, settings: CollectionSettings, report: Progress
) -> HeldOutPairs | None:
    """A second model, without a fifth of the pairs, which the order by a hash of the keys makes the same for all
    generations. None with fewer than MIN_PAIRS, or if nothing can be learned."""
    from fusehash import hashers

    if set(encoders) != set(VIEWS):
        return None
    pairs = [entry for entry in entries if entry.image is not None and entry.text is not None]
    pairs = sorted(pairs, key=lambda entry: order_of(entry.key, "quality"))[: 2 * (HELD_OUT_PAIRS + TRAINING_PAIRS)]
    views = matrices(pairs, encoders, features)
    complete = ~np.any([np.isnan(matrix[:, 0]) for matrix in views.values()], axis=0)
    pairs = [pairs[row] for row in np.flatnonzero(complete).tolist()]
    views = {view: matrix[complete] for view, matrix in views.items()}
    if len(pairs) < MIN_PAIRS:
        return None
    held_out = min(HELD_OUT_PAIRS, len(pairs) // 5)
    rest = slice(held_out, held_out + TRAINING_PAIRS)
    report(0, 1, "measuring on held-out pairs")
    seen, unseen = ({view: matrix[part] for view, matrix in views.items()} for part in (rest, slice(held_out)))
    model = hashers.make("fusehash", n_bits=settings.n_bits, random_state=settings.random_state, callback=report)
    try:
        model.fit(seen)
    except FusehashError:  # views that do not vary
        return None
    return HeldOutPairs(model, pairs[rest], pairs[:held_out], seen, unseen, _bridge_of(settings, encoders, seen))


def quality_of(held: HeldOutPairs | None) -> float | None:
    """Mean pair AUC on held-out pairs: does an image find its own text among others, and a text its image?

    0.5 is chance, 1 is perfect.
    """
    try:
        return None if held is None else float(held.model.score(held.views))
    except FusehashError:  # views that do not vary
        return None


def _has_any_view(views: Views) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return ~np.all([np.isnan(matrix[:, 0]) for matrix in views.values()], axis=0)


def _varies(matrix: Floats32) -> bool:
    """Whether at least two rows exist and differ."""
    rows = matrix[~np.isnan(matrix[:, 0])]
    return len(rows) >= 2 and bool((rows != rows[0]).any())
