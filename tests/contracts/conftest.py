"""Every hasher that the contracts run over, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusehash import hashers
from fusehash.errors import DataError
from fusehash.views import PairedViews

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in hashers.names()}


def _labels(views: Any) -> Any:
    """Four classes along the direction that the views share most; None where the views are no views."""
    try:
        paired = PairedViews(views, allow_missing=True)
    except DataError:
        return None
    leading = []
    for name in paired:
        X = paired.block(name, slice(None))
        X = (X - X.mean(axis=0)) / (np.abs(X).max() or 1.0)
        leading.append(np.linalg.svd(X, full_matrices=False)[0][:, :3])
    shared = np.linalg.svd(np.hstack(leading), full_matrices=False)[0][:, 0]
    return np.argsort(np.argsort(shared)) * 4 // len(shared)


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`build(n_bits=16)`: a new hasher of the method under test; 16 bits and seed 0 unless told otherwise.

    The contracts fit every method alike: a supervised one gets labels that are made from its views.
    """
    name, params = request.param
    cls = hashers.get(name)
    if cls.supervised:
        plain = cls.fit
        monkeypatch.setattr(cls, "fit", lambda self, views, y=None: plain(self, views, _labels(views)))

    def make(**given: Any) -> Any:
        return hashers.make(name, **{"n_bits": 16, "random_state": 0, **params, **given})

    return make


@pytest.fixture(scope="session")
def learned() -> Callable[[Any], dict[str, Any]]:
    """`learned(model)`: what fit has set."""
    return lambda model: {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """`same(a, b)`: equal to the last bit, whatever they are made of."""
    return _same


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and _same(vars(a), vars(b))
    return bool(a == b)
