"""Checks of constructor parameters, with one grammar for all hashers."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np

from fusehash.errors import ParameterError


def check_n_bits(owner: str, value: Any) -> int:
    """Code lengths are positive multiples of 8: a code is a whole number of bytes."""
    if not _is_integer(value) or value <= 0 or value % 8:
        raise ParameterError(owner, "n_bits", "a positive multiple of 8", value)
    return int(value)


def check_integer(owner: str, name: str, value: Any, *, low: int, high: int | None = None, why: str = "") -> int:
    """An integer in [low, high]."""
    if not _is_integer(value) or value < low or (high is not None and value > high):
        span = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
        raise ParameterError(owner, name, span + why, value)
    return int(value)


def check_real(owner: str, name: str, value: Any, *, low: float = 0.0, strict: bool = False) -> float:
    """A finite number >= low (> low if strict)."""
    good = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    if not good or value < low or (strict and value == low):
        bound = "greater than" if strict else "of at least"
        raise ParameterError(owner, name, f"a finite number {bound} {low:g}", value)
    return float(value)


def check_choice(owner: str, name: str, value: Any, choices: Collection[Any]) -> Any:
    """One of a few values."""
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ParameterError(owner, name, f"one of {listed}", value)
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def resolve_seed(random_state: Any) -> int:
    """One integer seed from None (fresh entropy), an integer, or a NumPy random generator."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy % 2**63)  # type: ignore[operator, unused-ignore]
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if _is_integer(random_state) and random_state >= 0:
        return int(random_state)
    raise ParameterError("a hasher", "random_state", "None, a non-negative integer or a random generator", random_state)


def stream(seed: int, purpose: str) -> np.random.Generator:
    """An independent random stream for one purpose, so that methods that share a step share its random start."""
    return np.random.default_rng([seed, *purpose.encode()])
