"""One encoder, one safetensors file (see fusehash.files). No code is ever loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fusehash.errors import ModelFileError
from fusehash.files import FileFormat

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

ENCODER_FILE = FileFormat("fusehash-encoder", 1, "encoder")
# Constructor arguments that are not settings of the features, and what only tells of the last call.
NOT_SAVED = ("n_jobs",)
NOT_STATE = ("problems_",)


def write(encoder: Encoder, path: Path) -> None:
    """Save a fitted encoder; whatever happens, `path` holds either the old file or the whole new one."""
    encoder._check_fitted()
    learned = {name: value for name, value in vars(encoder).items() if name.endswith("_") and name not in NOT_STATE}
    params = {name: value for name, value in encoder.get_params(deep=False).items() if name not in NOT_SAVED}
    if "random_state" in params and not isinstance(params["random_state"], int | np.integer | type(None)):
        params["random_state"] = None  # a generator was used up; only seeds can be stored
    content = {"name": encoder.name, "modality": encoder.modality, "params": params, "state": learned}
    ENCODER_FILE.write(path, content)


def read(path: Path, find: Callable[[str, str], type[Encoder] | None]) -> Encoder:
    """Load what `write` wrote; `find` gives the class of a name and modality, or None."""
    with ENCODER_FILE.reading(path) as (_, content):
        cls = find(content["name"], content["modality"])
        if cls is None:
            raise ModelFileError(f"'{path}' holds the encoder {content['name']!r}, which this fusehash does not know.")
        encoder = cls(**content["params"])
        encoder._check_params()
        for name, value in content["state"].items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError("not a learned attribute of an encoder")
            setattr(encoder, name, value)
        if not isinstance(encoder.n_features_, int) or encoder.n_features_ < 1:
            raise ValueError("not a number of features")
        encoder._check_state()
        encoder.problems_ = {}
    return encoder
