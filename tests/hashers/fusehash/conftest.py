"""Data and fits that several files of tests look at."""

from __future__ import annotations

from typing import Any

import pytest

import fusehash as fh
from wide_words import wide_words


@pytest.fixture(scope="session")
def made() -> Any:
    return fh.datasets.make_paired(n_samples=1500, n_train=700, random_state=3)


@pytest.fixture(scope="session")
def model(made: Any) -> fh.FuseHash:
    return fh.FuseHash(n_bits=32, random_state=0).fit(made.views.rows(made.train))


@pytest.fixture(scope="session")
def wide() -> tuple[dict[str, Any], Any, fh.FuseHash]:
    views, topics = wide_words(700)
    return views, topics, fh.FuseHash(n_bits=32, random_state=0).fit({n: X[:300] for n, X in views.items()})
