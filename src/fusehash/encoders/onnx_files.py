"""The files that ONNX encoders are made of: a model, and for texts a tokenizer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fusehash.errors import DataError


def session(path: Path) -> Any:
    """An onnxruntime session on the processor, one thread for each run."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError(
            "ONNX encoders need the package onnxruntime; pip install 'fusehash[onnx]' brings it."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a class of its own for each kind of damage
        raise DataError(f"'{path}' must be an ONNX model. {str(error).splitlines()[0][:200]}") from error


def load_tokenizer(path: Path, max_length: int) -> Any:
    """The tokenizer of a tokenizer.json, cutting and padding every text to the same length."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError(
            "ONNX text encoders need the package tokenizers; pip install 'fusehash[onnx]' brings it."
        ) from error
    if not path.is_file():
        raise DataError(f"'{path}' must be a tokenizer.json. There is no such file.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception
        raise DataError(f"'{path}' must be a tokenizer.json. {str(error).splitlines()[0][:200]}") from error
    padding = tokenizer.padding or {}
    pad = padding.get("pad_token") or next((t for t in ("[PAD]", "<pad>") if tokenizer.token_to_id(t) is not None), "")
    number = padding.get("pad_id", tokenizer.token_to_id(pad) or 0)
    tokenizer.enable_padding(pad_id=number, pad_token=pad or "[PAD]", length=max_length)
    tokenizer.enable_truncation(max_length)
    return tokenizer


def digest(path: Path) -> str:
    """SHA-256 of a file: another model under the same name would give features that fit to no stored code."""
    if not path.is_file():
        raise DataError(f"'{path}' must be an ONNX model. There is no such file.")
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()
