"""The hasher under test: how it is built, fitted and compared."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.datasets import PairedDataset, make_paired
from fusehash.errors import DataError, FusehashWarning
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.encoding import is_learned
from fusehash.views import PairedViews

WIDTHS = (24, 19, 21, 22, 23, 25)
NAMES = ("image", "text", "audio", "depth", "motion", "touch")


@dataclass(eq=False)
class Subject:
    """A class of hashers with the settings that every check builds it with.

    cls : the class
    params : settings; 16 bits and seed 0 unless they say otherwise
    """

    cls: type[CrossModalHasher]
    params: Mapping[str, Any] = field(default_factory=dict)
    _fitted: dict[str, CrossModalHasher] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.cls.min_views, self.cls.max_views
        n_views = max(low, min(2, high or 2))
        widths = dict(zip(NAMES[:n_views], WIDTHS, strict=False))
        self.data: PairedDataset = make_paired(170, views=widths, n_classes=4, random_state=3)
        self.train = self.data.views.rows(self.data.train)
        self.new = self.data.views.rows(self.data.query)

    @property
    def name(self) -> str:
        return self.cls.__name__

    def build(self, **params: Any) -> CrossModalHasher:
        """A new hasher, not fitted."""
        own = self.cls._get_param_names()
        common = {name: value for name, value in (("n_bits", 16), ("random_state", 0)) if name in own}
        return self.cls(**{**common, **self.params, **params})

    def fit(self, model: CrossModalHasher, views: Any, labels: Any = None) -> CrossModalHasher:
        """The fitted model; one that learns from labels gets four classes made from the views."""
        if model.supervised and labels is None:
            labels = classes_of(views)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FusehashWarning)
            return model.fit(views, labels)

    def fitted(self, **params: Any) -> CrossModalHasher:
        """A model fitted to the training rows; equal calls share one fit."""
        key = repr(sorted(params.items()))
        if key not in self._fitted:
            self._fitted[key] = self.fit(self.build(**params), self.train)
        return deepcopy(self._fitted[key])


def classes_of(views: Any) -> NDArray[np.int64] | None:
    """Four classes along the direction that the views share most; None for views that cannot be used."""
    try:
        paired = PairedViews(views, allow_missing=True)
    except DataError:
        return None
    leading = []
    for name in paired:
        X = np.nan_to_num(paired.block(name, slice(None)))
        X = (X - X.mean(axis=0)) / (np.abs(X).max() or 1.0)
        leading.append(np.linalg.svd(X, full_matrices=False)[0][:, :3])
    shared = np.linalg.svd(np.hstack(leading), full_matrices=False)[0][:, 0]
    return np.argsort(np.argsort(shared)) * 4 // len(shared)


def learned(model: CrossModalHasher) -> dict[str, Any]:
    """The attributes that `fit` has set."""
    return {name: value for name, value in vars(model).items() if is_learned(name)}


def same(a: Any, b: Any) -> bool:
    """Whether two structures are equal to the last bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, part.name), getattr(b, part.name)) for part in fields(a))
    return bool(a == b)


def require(condition: Any, sentence: str) -> None:
    """Raise AssertionError with a sentence; unlike `assert`, also where Python is told to optimize."""
    if not condition:
        raise AssertionError(sentence)


def refused(what: str, call: Any, error: type[Exception], words: str = "") -> None:
    """Require that a call raises this error with these words."""
    try:
        call()
    except error as caught:
        require(re.search(words, str(caught)), f"{what} must be refused with a sentence about {words!r}. Got: {caught}")
    except Exception as caught:
        raise AssertionError(f"{what} must raise {error.__name__}. Got {type(caught).__name__}: {caught}") from caught
    else:
        raise AssertionError(f"{what} must raise {error.__name__}. Nothing was raised.")


def through_a_file(model: CrossModalHasher) -> CrossModalHasher:
    """The model saved and loaded; its class need not be registered."""
    from fusehash.hashers.base import MODEL_FILE

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        model.save(path)
        with MODEL_FILE.reading(path) as (_, content):
            loaded = type(model)(**content["params"])
            loaded._restore(content["state"])
            return loaded
