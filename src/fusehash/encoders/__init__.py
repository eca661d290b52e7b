"""From raw images and texts to features. `make("classical")` builds an encoder; `names()` lists them.

Nothing is imported to read the list; a class is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import ParameterError

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

MODALITIES = ("image", "text")

# (name, modality) -> module and class. "clip" and "onnx" stand once for each modality.
ENCODERS: dict[tuple[str, str], tuple[str, str]] = {
    ("classical", "image"): ("images", "ClassicalEncoder"),
    ("sift", "image"): ("images", "SiftEncoder"),
    ("tfidf", "text"): ("texts", "TfidfEncoder"),
    ("lda", "text"): ("topics", "LdaEncoder"),
    ("clip", "image"): ("clip", "ClipImageEncoder"),
    ("clip", "text"): ("clip", "ClipTextEncoder"),
    ("onnx", "image"): ("onnx", "OnnxImageEncoder"),
    ("onnx", "text"): ("onnx", "OnnxTextEncoder"),
}


def names(modality: str | None = None) -> list[str]:
    """The name of every encoder, or of those for "image" or "text"."""
    if modality is not None:
        _check_modality(modality)
    return list(dict.fromkeys(name for name, kind in ENCODERS if modality in (None, kind)))


def get(name: str, modality: str | None = None) -> type[Encoder]:
    """The class of an encoder; `modality` is needed where the name stands for both."""
    if modality is not None:
        _check_modality(modality)
    known = names(modality)
    if name not in known:
        of = "" if modality is None else f" for {modality}s"
        raise ParameterError("encoders", "name", f"one of {', '.join(map(repr, known))}{of}", name)
    kinds = [kind for key, kind in ENCODERS if key == name and modality in (None, kind)]
    if len(kinds) > 1:
        raise ParameterError("encoders", "modality", f"'image' or 'text' for {name!r}, which does both", modality)
    module, class_name = ENCODERS[name, kinds[0]]
    found: type[Encoder] = getattr(import_module(f"fusehash.encoders.{module}"), class_name)
    return found


def make(name: str, *, modality: str | None = None, **params: Any) -> Encoder:
    """A new, unfitted encoder: make("tfidf", n_components=128), make("clip", modality="text")."""
    cls = get(name, modality)
    known = cls._get_param_names()
    for param in params:
        if param not in known:
            raise ParameterError("encoders", "params", f"among {', '.join(known)} for {name!r}", param)
    return cls(**params)


def save(encoder: Encoder, path: str | Path) -> None:
    """Write a fitted encoder to one safetensors file; the old file stays whole until the new one is complete."""
    from fusehash.encoders import persistence

    persistence.write(encoder, Path(path))


def load(path: str | Path) -> Encoder:
    """Load an encoder that `save` wrote. No code is ever loaded."""
    from fusehash.encoders import persistence

    return persistence.read(Path(path), lambda name, kind: get(name, kind) if (name, kind) in ENCODERS else None)


def _check_modality(modality: str) -> None:
    if modality not in MODALITIES:
        raise ParameterError("encoders", "modality", "'image' or 'text'", modality)


__all__ = ["get", "load", "make", "names", "save"]
