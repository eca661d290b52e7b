"""The methods that the contracts run over, how they are fitted, and how two models are compared."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

from fusehash import hashers
from fusehash.errors import DataError
from fusehash.views import PairedViews
from untuned import DEEP, UNTUNED

# One of each kind: the default, the paper's, linear with its own fusion, kernel and labels, and one that limits rows.
REPRESENTATIVES = ("fusehash", "agsfh", "cmfh", "fdch", "imh")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "base_class: a contract that the base class keeps; runs over a few methods")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `build` over every method, or over a few if the code under test is the base class."""
    if "build" in metafunc.fixturenames:
        few = metafunc.definition.get_closest_marker("base_class") is not None
        builders = [Builder(name) for name in (REPRESENTATIVES if few else hashers.names())]
        metafunc.parametrize("build", builders, ids=[builder.method for builder in builders], indirect=True)


@dataclass(frozen=True)
class Builder:
    """`build(n_bits=16)`: a new hasher of one method; 16 bits and seed 0 by default, and nothing to tune."""

    method: str

    def __call__(self, **params: Any) -> Any:
        settings = {**UNTUNED, "view_weights": [1.0, 1.0]} if self.method == "fusehash" else DEEP.get(self.method, {})
        return hashers.make(self.method, **{"n_bits": 16, "random_state": 0, **settings, **params})


@pytest.fixture
def build(request: pytest.FixtureRequest) -> Builder:
    builder: Builder = request.param
    if hashers.info(builder.method).is_deep:
        request.getfixturevalue("optional")("torch")
    return builder


def _fit(model: Any, views: Any) -> Any:
    if model.method == "fusehash" and isinstance(views, dict | PairedViews):
        model.set_params(view_weights=[1.0] * max(len(list(views)), 1))
    return model.fit(views, _labels(views)) if model.supervised else model.fit(views)


def _labels(views: Any) -> Any:
    """Four classes along the direction that the views share most; None for views that cannot be used."""
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


@pytest.fixture(scope="session")
def fit() -> Callable[[Any, Any], Any]:
    """`fit(model, views)`: the fitted model; a supervised one gets labels that are made from the views."""
    return _fit


_models: dict[Any, Any] = {}


@pytest.fixture
def trained(build: Builder) -> Callable[..., Any]:
    """`trained(views, n_bits=32)`: a copy of the fitted model; equal calls share one fit in the whole session."""

    def get(views: Any, **params: Any) -> Any:
        key = build, id(views), repr(sorted(params.items()))
        if key not in _models:
            _models[key] = views, _fit(build(**params), views)  # the views are kept, so that their id is not reused
        return deepcopy(_models[key][1])

    return get


@pytest.fixture(scope="session")
def learned() -> Callable[[Any], dict[str, Any]]:
    """`learned(model)`: the attributes that `fit` has set."""
    return lambda model: {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """`same(a, b)`: whether two structures are equal to the last bit."""
    return _same


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)
