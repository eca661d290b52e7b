"""The state of a generation, current or kept, as one row: what its files are called, and what all items come to."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from fusehash.collection.store.settings import CollectionSettings
from fusehash.parameters import multiple_of
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError

Row = tuple[Any, ...]  # an item: its columns and its checksum
_FILE_NAME = re.compile(r"(?:[0-9a-f]{20})?")  # of a model or encoder, without its kind: a fingerprint or nothing
# Names in states that were written when a revision was called a generation.
_OLD_NAMES = {"generation": "revision", "number": "generation", "before": "previous"}


@dataclass(frozen=True)
class Totals:
    """What all items together come to; kept up to date by every function that writes items."""

    items: int = 0
    images: int = 0
    texts: int = 0
    pairs: int = 0
    broken_images: int = 0
    unseen: int = 0  # items that the current model was not trained with
    highest_id: int = 0  # ever used
    digest: int = 0  # of the ids and checksums of all rows

    def changed(self, gone: Iterable[Row], new: Iterable[Row]) -> Totals:
        """The totals after some rows were removed and others added."""
        values = asdict(self)
        for sign, rows in ((-1, gone), (1, new)):
            for id, _, text, _, image, _, _, _, _, _, _, trained, problem, _, checksum in rows:
                values["items"] += sign
                values["images"] += sign * (image is not None)
                values["texts"] += sign * (text is not None)
                values["pairs"] += sign * (image is not None and text is not None)
                values["broken_images"] += sign * (problem is not None)
                values["unseen"] += sign * (not trained)
                values["highest_id"] = max(values["highest_id"], id)
                values["digest"] += sign * checksum * (2 * id + 1)
        values["digest"] %= 1 << 64
        return Totals(**values)

    def check(self, ids: Ids, checksums: Ids) -> None:
        """Raise unless these are the ids and checksums of all items."""
        with np.errstate(over="ignore"):
            digest = (checksums.astype(np.uint64) * (2 * ids.astype(np.uint64) + np.uint64(1))).sum(dtype=np.uint64)
        if len(ids) != self.items or int(digest) != self.digest:
            raise DamageError("items are missing from it or damaged")


@dataclass(frozen=True)
class CollectionState:
    """A generation of a collection, current or kept.

    Model and encoders are named after what they were made from; an empty name means that there is none yet.
    """

    n_bits: int
    revision: int = 0  # counts the changes that a search could see
    codes: int = 0
    digest: int = 0  # sum of the checksums of all codes
    model: str = ""
    image_encoder: str = ""
    text_encoder: str = ""
    images_fitted: int = 0  # images that the image encoder was fitted on
    generation: int = 1  # counts models
    previous: int = 0  # the generation that was current before this one
    newest: int = 1  # the highest generation ever used
    made: str = ""  # when the model was trained
    quality: float | None = None  # pair AUC on held-out pairs
    settings: dict[str, Any] | None = None  # None: those of collection.json
    calibration: dict[str, Any] | None = None  # queries/calibration.py; None if it was not measured
    checksums: dict[str, int] = field(default_factory=dict)  # of the files: "model" and views
    totals: Totals | None = None  # None in a kept generation and in format 1
    kept: list[int] | None = None  # numbers of the generations other than the current one; None like totals
    kept_digest: int | None = None  # of all rows of a kept generation; None in the current one and in format 1
    bridge: str = ""  # gives pictures without a text the text features that it expects; empty if there is none

    @property
    def encoder_names(self) -> dict[str, str]:
        names = {"image": self.image_encoder, "text": self.text_encoder}
        return {view: name for view, name in names.items() if name}

    def made_with(self, created_with: CollectionSettings) -> CollectionSettings:
        """The settings of this generation: its own, or those that the collection was created with."""
        return created_with if self.settings is None else CollectionSettings.from_dict(self.settings)

    def write(self, database: Connection) -> None:
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?)", self.pack())

    def pack(self) -> tuple[str, int]:
        """The state as JSON, and its checksum."""
        values = asdict(self)
        if not self.bridge:  # as before there were bridges
            del values["bridge"]
        content = json.dumps(values)
        return content, zlib.crc32(content.encode())

    @classmethod
    def read(cls, database: Connection) -> CollectionState:
        return cls.unpack(database.execute("SELECT content, checksum FROM state WHERE only = 1").fetchone())

    @classmethod
    def unpack(cls, row: Any) -> CollectionState:
        """The state that `pack` packed, checked."""
        try:
            if row is None or zlib.crc32(row[0].encode()) != row[1]:
                raise ValueError
            content = json.loads(row[0])
            if "revision" not in content:
                content = {_OLD_NAMES.get(name, name): value for name, value in content.items()}
            if content.get("totals") is not None:
                content["totals"] = Totals(**content["totals"])
            state = cls(**content)
            state._check()
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise DamageError("its state is damaged") from None
        return state

    def _check(self) -> None:
        """Raise ValueError, TypeError or KeyError if values are not what they should be."""
        counts = [self.revision, self.codes, self.digest, self.images_fitted, self.generation, self.previous]
        counts += [self.newest, *self.checksums.values(), *(self.kept or ()), self.kept_digest or 0]
        if self.totals is not None:
            counts += [getattr(self.totals, each.name) for each in fields(self.totals)]
        if not all(type(count) is int and 0 <= count < 1 << 64 for count in counts):
            raise ValueError
        if not all(_FILE_NAME.fullmatch(name) for name in (self.model, self.bridge, *self.encoder_names.values())):
            raise ValueError
        if not isinstance(self.made, str) or not (self.quality is None or math.isfinite(self.quality)):
            raise ValueError
        multiple_of(8).check("A collection", "n_bits", self.n_bits)
        if self.settings is not None:
            CollectionSettings.from_dict(self.settings)
