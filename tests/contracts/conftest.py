"""Every hasher that the contracts run over, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusehash import hashers

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in hashers.names()}
VARIANTS["agsfh, preset paper"] = ("agsfh", {"preset": "paper"})


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def build(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`build(n_bits=16)`: a new hasher of the method under test; 16 bits and seed 0 unless told otherwise."""
    name, params = request.param

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
