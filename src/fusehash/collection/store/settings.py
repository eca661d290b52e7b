"""What the codes of a collection are made with, and collection.json, which says what it was created with."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fusehash import trust
from fusehash.collection.items import CollectionError, CorruptCollectionError
from fusehash.errors import ParameterError
from fusehash.files import write_atomically
from fusehash.parameters import integer, multiple_of

VIEWS = ("image", "text")
KIND, VERSION = "fusehash-collection", 2  # version 1 had no checksum
_OWN_FILES = ("collection.json", "items.db", "items.db-wal", "items.db-shm", "features.db", "writer.lock")


@dataclass(frozen=True)
class EncoderSettings:
    """An encoder by name, with its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, encoder: Any, params: dict[str, Any] | None, view: str) -> EncoderSettings:
        """Settings of an encoder that a caller gives: an encoder object, or a text as `encoders.parse` takes it."""
        from fusehash import encoders

        if isinstance(encoder, str):
            name, given = encoders.parse(encoder, view)
            return cls(name, {**given, **(params or {})})
        if params is not None or getattr(encoder, "modality", None) != view or not hasattr(encoder, "get_params"):
            expected = f"a name, or an encoder of {view}s that has its own parameters"
            raise ParameterError("Collection", f"{view}_encoder", expected, encoder)
        usual, own = type(encoder)().get_params(deep=False), encoder.get_params(deep=False)
        changed = {key: value for key, value in own.items() if value != usual[key] and key != "n_jobs"}
        return cls(encoder.name, {key: str(v) if isinstance(v, Path) else v for key, v in changed.items()})

    def changed(self, encoder: Any, params: dict[str, Any] | None, view: str) -> EncoderSettings:
        """With another encoder or other parameters; another encoder does not inherit parameters."""
        if encoder is None:
            return replace(self, params=dict(self.params if params is None else params))
        chosen = EncoderSettings.of(encoder, params, view)
        return self if chosen == replace(self, params={}) and params is None else chosen

    def located(self) -> EncoderSettings:
        """With absolute paths of model files, the only ones that may be read from a collection later."""
        params = dict(self.params)
        for name in trust.MODEL_PARAMS.get(self.name, ()):
            if isinstance(params.get(name), str) and Path(params[name]).exists():
                params[name] = str(Path(params[name]).absolute())
        return replace(self, params=params)


@dataclass(frozen=True)
class CollectionSettings:
    """What the codes of a collection are made with."""

    n_bits: int
    random_state: int
    image: EncoderSettings
    text: EncoderSettings

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> CollectionSettings:
        """Settings from JSON values; raises ValueError, TypeError or KeyError if they cannot be any."""
        n_bits = multiple_of(8).check("A collection", "n_bits", content["n_bits"])
        seed = integer().check("A collection", "random_state", content["random_state"])
        encoders = [EncoderSettings(content[view]["name"], dict(content[view]["params"])) for view in VIEWS]
        if not all(isinstance(text, str) for encoder in encoders for text in (encoder.name, *encoder.params)):
            raise TypeError
        return cls(n_bits, seed, *encoders)

    def has_encoder(self, view: str, text: str) -> bool:
        """Whether an encoder that is given as text, perhaps without parameters, is the one of a view."""
        chosen, own = EncoderSettings.of(text, None, view).located(), getattr(self, view)
        return chosen.name == own.name and chosen.params.items() <= own.params.items()

    def check(self, owner: str) -> CollectionSettings:
        """Raise if a value is wrong, an encoder does not exist, or a package that it needs is missing."""
        from fusehash import encoders

        n_bits = int(multiple_of(8).check(owner, "n_bits", self.n_bits))
        seed = int(integer().check(owner, "random_state", self.random_state))
        for view, encoder in (("image", self.image), ("text", self.text)):
            encoders.make(encoder.name, modality=view, **encoder.params).check_usable()
            try:
                json.dumps(encoder.params)
            except TypeError:
                raise ParameterError(owner, f"{view}_params", "made of JSON values", encoder.params) from None
        return replace(self, n_bits=n_bits, random_state=seed, image=self.image.located(), text=self.text.located())


def is_collection(path: Path) -> bool:
    """Whether a path looks like a collection, intact or not."""
    return path.is_dir() and (path / "collection.json").exists()


def write_settings(folder: Path, settings: CollectionSettings) -> None:
    content = {"format": KIND, "version": VERSION, **asdict(settings)}
    text = json.dumps({**content, "checksum": _checksum_of(content)}, indent=2).encode()
    write_atomically(folder / "collection.json", lambda file: file.write(text))


def read_settings(path: Path) -> CollectionSettings:
    if not path.exists():
        raise CollectionError(f"There is no collection at {path}.")
    if not is_collection(path):
        raise CorruptCollectionError(f"{path} is not a fusehash collection.")
    for name in _OWN_FILES:
        if (path / name).is_symlink():
            raise CorruptCollectionError(f"The collection {path} must hold files of its own. {name} is a link.")
    damage = CorruptCollectionError(f"The collection {path} is corrupt: collection.json is damaged.")
    with trust.open_file(path / "collection.json", f"collection.json of {path}", CollectionError) as file:
        text = file.read(trust.MAX_DOCUMENT_BYTES + 1)
    content = trust.parse_json(text, f"collection.json of {path}", CorruptCollectionError)
    if not isinstance(content, dict):
        raise damage
    if content.get("format") != KIND:
        raise CorruptCollectionError(f"{path} is not a fusehash collection.")
    version, checksum = content.get("version"), content.pop("checksum", None)
    if version not in (1, VERSION):
        raise CorruptCollectionError(
            f"The collection {path} has version {version}; this fusehash reads versions up to {VERSION}."
        )
    try:
        if version == VERSION and checksum != _checksum_of(content):
            raise damage
        return CollectionSettings.from_dict(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damage from error


def _checksum_of(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
