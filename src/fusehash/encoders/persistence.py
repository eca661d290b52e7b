"""One encoder, one safetensors file: arrays as tensors, everything else as JSON in the header. No code is ever loaded.

The header's metadata holds `format` ("fusehash-encoder"), `version`, `name`, `modality`, `params` and `state`; in
`state` an array is {"$array": tensor name}.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash.errors import DataError, ModelFileError
from fusehash.persistence import check_readable, write_atomically

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

FORMAT = "fusehash-encoder"
VERSION = 1
# Constructor arguments that are not settings of the features, and what only tells of the last call.
NOT_SAVED = ("n_jobs",)
NOT_STATE = ("problems_",)


def write(encoder: Encoder, path: Path) -> None:
    """Save a fitted encoder; whatever happens, `path` holds either the old file or the whole new one."""
    from safetensors.numpy import save

    encoder._check_fitted()
    learned = {name: value for name, value in vars(encoder).items() if name.endswith("_") and name not in NOT_STATE}
    arrays = {name: np.ascontiguousarray(value) for name, value in learned.items() if isinstance(value, np.ndarray)}
    state = {name: {"$array": name} if name in arrays else value for name, value in learned.items()}
    params = {name: value for name, value in encoder.get_params(deep=False).items() if name not in NOT_SAVED}
    if "random_state" in params and not isinstance(params["random_state"], int | np.integer | type(None)):
        params["random_state"] = None  # a generator was used up; only seeds can be stored
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "name": encoder.name,
        "modality": encoder.modality,
        "params": json.dumps(params, default=_plain),
        "state": json.dumps(state, default=_plain),
    }
    content = save(arrays, metadata=metadata)
    write_atomically(path, lambda file: file.write(content))


def read(path: Path, find: Callable[[str, str], type[Encoder] | None]) -> Encoder:
    """Load what `write` wrote; `find` gives the class of a name and modality, or None."""
    from safetensors import SafetensorError, safe_open

    check_readable(path, "an encoder file")
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ModelFileError(f"'{path}' must be a fusehash encoder. It is a safetensors file of another kind.")
            if int(metadata["version"]) > VERSION:
                raise ModelFileError(
                    f"'{path}' was written by a newer fusehash (format {metadata['version']}); "
                    f"this one reads formats up to {VERSION}."
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        cls = find(metadata["name"], metadata["modality"])
        if cls is None:
            raise ModelFileError(f"'{path}' holds the encoder {metadata['name']!r}, which this fusehash does not know.")
        encoder = cls(**json.loads(metadata["params"]))
        encoder._check_params()
        for name, value in json.loads(metadata["state"]).items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError("not a learned attribute of an encoder")
            setattr(encoder, name, arrays[value["$array"]] if isinstance(value, dict) else value)
        if not isinstance(encoder.n_features_, int) or encoder.n_features_ < 1:
            raise ValueError("not a number of features")
        encoder._check_state()
        encoder.problems_ = {}
        return encoder
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"'{path}' must be an intact fusehash encoder. It is truncated, damaged or foreign."
        ) from error


def _plain(value: Any) -> Any:
    """What JSON does not know: numbers of NumPy, and paths."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise DataError(f"An encoder must be made of numbers, strings and arrays to be saved. Got {type(value).__name__}.")
