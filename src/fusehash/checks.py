"""Checks of constructor parameters, with one grammar for all hashers."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError, ParameterError

MOST_BITS = 4096  # four times what an index takes; a rotation of such codes has 16 million numbers


def check_n_bits(owner: str, value: Any, *, most: int = MOST_BITS) -> int:
    """Code lengths are positive multiples of 8: a code is a whole number of bytes."""
    if not _is_integer(value) or value <= 0 or value % 8:
        raise ParameterError(owner, "n_bits", "a positive multiple of 8", value)
    if value > most:
        raise ParameterError(owner, "n_bits", f"at most {most}", value)
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


def check_string(owner: str, name: str, value: Any) -> str:
    """A string with something in it."""
    if not isinstance(value, str) or not value:
        raise ParameterError(owner, name, "a non-empty string", value)
    return value


def check_labels(owner: str, labels: Any, n_rows: int) -> NDArray[np.float64]:
    """Labels as a 0/1 matrix (rows, classes); classes that no row has are left out."""
    if labels is None:
        raise DataError(f"{owner} learns from labels and needs one row of them for each pair. Got none.")
    try:
        given = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    except ValueError:
        raise DataError(f"{owner} needs a label row for each pair. Got rows of unequal length.") from None
    if given.ndim not in (1, 2) or len(given) != n_rows:
        raise DataError(f"{owner} needs a label row for each of {n_rows} pairs. Got labels of shape {given.shape}.")
    if given.ndim == 1:
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise DataError(f"{owner} needs a class for each row. Got NaN or infinity.")
        try:
            classes, place = np.unique(given, return_inverse=True)
        except TypeError:
            raise DataError(f"{owner} needs classes of one kind, numbers or strings. Got a mixture.") from None
        return np.eye(len(classes))[place]
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise DataError(f"A matrix of labels must hold 0 and 1 for {owner}. Got other values.")
    if not given.any():
        raise DataError(f"{owner} learns from labels and needs at least one that is 1. Got zeros only.")
    return np.asarray(given[:, given.any(axis=0)], dtype=np.float64)


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
