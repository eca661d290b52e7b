"""Encoders turn raw images and texts into features. `make("classical")` builds one; `names()` lists them.

Listing the names imports nothing; a class is imported when you ask for it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash import trust
from fusehash.errors import ModelFileError, ParameterError

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

# (name, modality) -> module and class. "clip" and "onnx" exist for both modalities.
ENCODERS: dict[tuple[str, str], tuple[str, str]] = {
    ("classical", "image"): ("images", "ClassicalEncoder"),
    ("sift", "image"): ("images", "SiftEncoder"),
    ("tfidf", "text"): ("texts", "TfidfEncoder"),
    ("lda", "text"): ("texts", "LdaEncoder"),
    ("clip", "image"): ("clip", "ClipImageEncoder"),
    ("clip", "text"): ("clip", "ClipTextEncoder"),
    ("onnx", "image"): ("onnx", "OnnxImageEncoder"),
    ("onnx", "text"): ("onnx", "OnnxTextEncoder"),
}


def names(modality: str | None = None) -> list[str]:
    """List the names of all encoders, or of those for "image" or "text".

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.names("text")
    ['tfidf', 'lda', 'clip', 'onnx']
    """
    if modality not in (None, "image", "text"):
        raise ParameterError("encoders", "modality", "'image' or 'text'", modality)
    return list(dict.fromkeys(name for name, kind in ENCODERS if modality in (None, kind)))


def get(name: str, modality: str | None = None) -> type[Encoder]:
    """Return the class of an encoder; parameters and errors are those of `make`."""
    choices = names(modality)
    if name not in choices:
        suffix = "" if modality is None else f" for {modality}s"
        raise ParameterError("encoders", "name", f"one of {', '.join(map(repr, choices))}{suffix}", name)
    kinds = [kind for key, kind in ENCODERS if key == name and modality in (None, kind)]
    if len(kinds) > 1:
        raise ParameterError("encoders", "modality", f"'image' or 'text' for {name!r}, which does both", modality)
    module, class_name = ENCODERS[name, kinds[0]]
    cls: type[Encoder] = getattr(import_module(f"fusehash.encoders.{module}"), class_name)
    return cls


def make(name: str, *, modality: str | None = None, **params: Any) -> Encoder:
    """Build a new, unfitted encoder.

    Parameters
    ----------
    name : str
        One of `names()`.
    modality : {"image", "text"}, optional
        Needed if the name exists for both, as in ``make("clip", modality="text")``.
    **params
        Parameters of the encoder class.

    Returns
    -------
    Encoder
        With `fit`, `transform` and `fit_transform`, as in scikit-learn.

    Raises
    ------
    ParameterError
        If there is no such encoder or it has no such parameter.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoder = encoders.make("tfidf", n_components=2)
    >>> encoder.fit_transform(["a red house", "a green lake", "a red lake"]).shape
    (3, 2)
    """
    cls = get(name, modality)
    for param in params:
        if param not in cls._get_param_names():
            raise ParameterError("encoders", "params", f"among {', '.join(cls._get_param_names())} for {name!r}", param)
    return cls(**params)


def save(encoder: Encoder, path: str | Path) -> None:
    """Write a fitted encoder to one safetensors file. The old file stays intact until the new one is complete."""
    from fusehash.encoders.base import ENCODER_FILE

    ENCODER_FILE.write(Path(path), encoder._to_content())


def load(path: str | Path) -> Encoder:
    """Load an encoder that `save` wrote. No code is ever loaded.

    Raises
    ------
    ModelFileError
        If the file is not an intact encoder.
    """
    from fusehash.encoders.base import ENCODER_FILE

    with ENCODER_FILE.reading(Path(path)) as (_, content):
        name, modality = content["name"], content["modality"]
        if (name, modality) not in ENCODERS:
            raise ModelFileError(f"'{path}' holds the encoder {name!r}, which this fusehash does not know.")
        trust.check_models(name, content["params"], f"'{path}'", ModelFileError)
        return get(name, modality)._from_content(content)


__all__ = ["get", "load", "make", "names", "save"]
