"""The parameters that all metrics share, checked once."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import ParameterError

Ties: TypeAlias = Literal["expected", "stable", "best", "worst"]
TIES: tuple[Ties, ...] = ("expected", "stable", "best", "worst")

# How the compiled kernels spell an order inside tie groups; "stable" has no ties left and is its own expectation.
ORDER: dict[str, int] = {"expected": 0, "stable": 0, "best": 1, "worst": -1}


def check_ties(ties: Any, owner: str, allowed: tuple[Ties, ...] = TIES) -> None:
    if ties not in allowed:
        raise ParameterError(owner, "ties", "one of " + ", ".join(f"'{name}'" for name in allowed), ties)


def check_k(k: Any, owner: str, n_items: int) -> int:
    """The cut as a number of ranks: None means the whole database, and so does more than there is."""
    if k is None:
        return n_items
    if isinstance(k, bool) or not isinstance(k, Integral) or int(k) < 1:
        raise ParameterError(owner, "k", "a positive whole number, or None for the whole database", k)
    return min(int(k), n_items)


def check_ranks(ranks: Any, owner: str, name: str, n_items: int | None = None) -> NDArray[np.int64]:
    """Cuts as an array of whole numbers >= 1 and, where n_items is given, ranks that exist."""
    listed = list(ranks) if isinstance(ranks, Iterable) else [ranks]
    limit = ">= 1" if n_items is None else f"between 1 and the number of database items ({n_items})"
    expected = f"one or more whole numbers {limit}"
    if not listed:
        raise ParameterError(owner, name, expected, ranks)
    for rank in listed:
        if isinstance(rank, bool) or not isinstance(rank, Integral) or not 1 <= int(rank) <= (n_items or int(rank)):
            raise ParameterError(owner, name, expected, rank)
    return np.array(listed, dtype=np.int64)
