"""What callers of an index may pass, and the sentence they get for anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import ParameterError
from fusehash.parameters import choice, flag, integer, multiple_of, optional, real
from fusehash.search import engines
from fusehash.search.ids import check_ids
from fusehash.search.servers import address as server
from fusehash.search.vectors import KINDS, MAX_DIM, VectorFormat

N_BITS, K, THREADS = multiple_of(8), integer(1), optional(integer(1))
RADIUS, SCORE, ESTIMATE = integer(0), real(0), real(-np.inf)
CANDIDATES = optional(integer(1))
ADDRESSES = f"an address that begins with one of {', '.join(server.SCHEMES)} and ://"
_FLAG, _VECTORS, _DIM = flag(), optional(choice(*KINDS)), integer(1, MAX_DIM)


def make_engine(engine: str | engines.Engine) -> engines.Engine:
    """The engine of this name, or the engine itself."""
    expected = f"one of {', '.join(engines.NAMES)}, or {ADDRESSES}"
    if isinstance(engine, str) and "://" in engine:  # an unknown address, which may contain a password
        raise ParameterError("HammingIndex", "engine", expected, server.scheme_of(engine))
    return engines.make(engine, expected)


def vector_format(vectors: str | None, dim: int | None) -> VectorFormat | None:
    """How vectors are stored; None without vectors."""
    _VECTORS.check("HammingIndex", "vectors", vectors)
    if (vectors is None) != (dim is None):
        expected = "None without `vectors`" if vectors is None else "the numbers per vector"
        raise ParameterError("HammingIndex", "dim", expected, dim)
    return None if vectors is None else VectorFormat.new(vectors, int(_DIM.check("HammingIndex", "dim", dim)))


def check_not_on_server(form: VectorFormat | None, factors: bool) -> None:
    """Servers keep codes alone."""
    if form is not None:
        raise ParameterError("HammingIndex", "vectors", "None for an index on a server", form.kind)
    if factors:
        raise ParameterError("HammingIndex", "factors", "False for an index on a server", factors)


def checked_flag(factors: bool) -> bool:
    """Whether factors are kept."""
    return bool(_FLAG.check("HammingIndex", "factors", factors))


def check_allowed(allowed: ArrayLike | None) -> NDArray[Any] | None:
    """None, a mask, or ids without repetition."""
    if allowed is None:
        return None
    chosen = np.asarray(allowed)
    return chosen if chosen.dtype == bool else np.unique(check_ids(chosen))
