"""Rules for parameters: each estimator declares one rule per parameter, and everything else comes from that table.

    PARAMETERS = {"n_bits": multiple_of(8), "ridge": auto(real(strict=True)), "anchors": choice("random", "kmeans")}

Checks, the documentation of allowed values, `--param` help and the contract tests all read the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError, ParameterError

Progress = Callable[[int, int, str], None]  # step, number of steps (0: not known), message
MAX_BITS = 4096  # of codes and of an index; a rotation of such codes has 16 million numbers


@dataclass(frozen=True)
class Rule:
    """Which values a parameter accepts.

    Attributes
    ----------
    expected : str
        The accepted values in words, as in "an integer of at least 1".
    accepts : callable
        value -> bool.
    """

    expected: str
    accepts: Callable[[Any], bool]

    def check(self, owner: str, name: str, value: Any) -> Any:
        """Return the value, or raise ParameterError."""
        if not self.accepts(value):
            raise ParameterError(owner, name, self.expected, value)
        return value


def integer(low: int = 0, high: int | None = None, why: str = "") -> Rule:
    """An integer in [low, high]; `why` explains the bounds."""
    span = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    return Rule(span + why, lambda value: _is_integer(value) and low <= value and (high is None or value <= high))


def multiple_of(step: int, high: int = MAX_BITS) -> Rule:
    """A positive multiple of `step`, at most `high`."""
    return Rule(
        f"a positive multiple of {step}, at most {high}",
        lambda value: _is_integer(value) and 0 < value <= high and value % step == 0,
    )


def real(low: float = 0.0, *, strict: bool = False) -> Rule:
    """A finite number of at least `low`, or greater than it if `strict`."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_) or not np.isfinite(float(value)):
            return False
        number = float(value)
        return number > low if strict else number >= low

    bound = "" if low == -np.inf else f" {'greater than' if strict else 'of at least'} {low:g}"
    return Rule(f"a finite number{bound}", accepts)


def between(low: float, high: float) -> Rule:
    """A number between two others, neither of them included."""
    rule = real(low, strict=True)
    return Rule(f"a number between {low:g} and {high:g}", lambda value: rule.accepts(value) and bool(value < high))


def choice(*values: Any) -> Rule:
    """One of a few values."""

    def accepts(value: Any) -> bool:
        return any(value is known or (type(value) is type(known) and value == known) for known in values)

    return Rule(f"one of {', '.join(map(repr, values))}", accepts)


def flag() -> Rule:
    """True or False."""
    return Rule("True or False", lambda value: isinstance(value, bool | np.bool_))


def string() -> Rule:
    """A string that is not empty."""
    return Rule("a non-empty string", lambda value: isinstance(value, str) and value != "")


def function() -> Rule:
    """Something that can be called."""
    return Rule("a function", callable)


def sequence(item: Rule, what: str) -> Rule:
    """A list, tuple or array whose items all obey one rule."""

    def accepts(value: Any) -> bool:
        return isinstance(value, list | tuple | np.ndarray) and len(value) > 0 and all(map(item.accepts, value))

    return Rule(what, accepts)


def seed() -> Rule:
    """What `resolve_seed` accepts."""
    kinds = (np.random.Generator, np.random.RandomState)
    return Rule(
        "None, a non-negative integer or a random generator",
        lambda value: value is None or isinstance(value, kinds) or (_is_integer(value) and value >= 0),
    )


def optional(rule: Rule) -> Rule:
    """None, or what a rule accepts."""
    return Rule(f"None or {rule.expected}", lambda value: value is None or rule.accepts(value))


def auto(rule: Rule) -> Rule:
    """The string "auto", or what a rule accepts."""
    return Rule(
        f"'auto' or {rule.expected}",
        lambda value: (isinstance(value, str) and value == "auto") or rule.accepts(value),
    )


def is_auto(value: Any) -> bool:
    """Whether a parameter was left to the method."""
    return isinstance(value, str) and value == "auto"


def check(owner: str, rules: Mapping[str, Rule], values: Mapping[str, Any]) -> None:
    """Check every value against its rule."""
    for name, value in values.items():
        rules[name].check(owner, name, value)


def rules_of(estimator: Any) -> dict[str, Rule]:
    """The rule of every parameter of an estimator class, from its PARAMETERS table and those of its parents."""
    rules: dict[str, Rule] = {}
    for parent in reversed(estimator.__mro__):
        rules |= vars(parent).get("PARAMETERS", {})
    return {name: rules[name] for name in estimator._get_param_names()}


def check_labels(owner: str, labels: Any, n_rows: int) -> NDArray[np.float64]:
    """Labels as a 0/1 matrix (rows, classes); classes without rows are left out."""
    if labels is None:
        raise DataError(f"{owner} learns from labels and needs one row of them for each pair. Got none.")
    try:
        matrix = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    except ValueError:
        raise DataError(f"{owner} needs a label row for each pair. Got rows of unequal length.") from None
    if matrix.ndim not in (1, 2) or len(matrix) != n_rows:
        raise DataError(f"{owner} needs a label row for each of {n_rows} pairs. Got labels of shape {matrix.shape}.")
    if matrix.ndim == 1:
        if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
            raise DataError(f"{owner} needs a class for each row. Got NaN or infinity.")
        try:
            classes, number = np.unique(matrix, return_inverse=True)
        except TypeError:
            raise DataError(f"{owner} needs classes of one kind, numbers or strings. Got a mixture.") from None
        return np.eye(len(classes))[number]
    if matrix.dtype.kind not in "biuf" or not np.isin(matrix, (0, 1)).all():
        raise DataError(f"A matrix of labels must hold 0 and 1 for {owner}. Got other values.")
    if not matrix.any():
        raise DataError(f"{owner} learns from labels and needs at least one that is 1. Got zeros only.")
    return np.asarray(matrix[:, matrix.any(axis=0)], dtype=np.float64)


def as_labels(labels: Any) -> Any:
    """Labels as int64 class numbers (rows,), or as a 0/1 uint8 matrix (rows, labels), dense or CSR.

    One column means class numbers. Raises DataError if the labels are neither.
    """
    if sp.issparse(labels) and labels.shape[1] == 1:
        labels = labels.toarray()
    if sp.issparse(labels):
        matrix = check_label_array(labels)
        matrix.eliminate_zeros()
        return matrix.astype(np.uint8)
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise DataError(f"Labels must be numbers. Got dtype {array.dtype} instead.")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1:
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            raise DataError("Labels must be whole class numbers or a 0/1 matrix. Got fractions or NaN instead.")
        return array.astype(np.int64)
    return check_label_array(array).astype(np.uint8)


def check_label_array(labels: Any, what: str = "Labels") -> Any:
    """Labels as an array of classes (rows,) of any kind, or a 0/1 matrix (rows, labels), dense or CSR."""
    expected = f"{what} must be class numbers or a 0/1 matrix (rows, labels)."
    try:
        array: Any = sp.csr_array(labels) if sp.issparse(labels) else np.asarray(labels)
    except ValueError:
        raise DataError(f"{expected} Got rows of unequal length.") from None
    if array.ndim not in (1, 2):
        raise DataError(f"{expected} Got an array of shape {array.shape} instead.")
    if array.ndim == 1:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"{what} must be finite class numbers. Got NaN or infinity.")
        return array
    if sp.issparse(array):
        array.sum_duplicates()
    values = array.data if sp.issparse(array) else array
    if array.dtype.kind not in "biuf" or not ((values == 0) | (values == 1)).all():
        hint = " Pass class numbers as a 1-d array." if array.shape[1] == 1 else ""
        raise DataError(f"A matrix of {what.lower()} must hold only 0 and 1. Got other values.{hint}")
    return array


def resolve_seed(random_state: Any) -> int:
    """One integer seed from None (fresh entropy), an integer, or a NumPy random generator."""
    seed().check("a hasher", "random_state", random_state)
    if random_state is None:
        return int(np.random.SeedSequence().entropy % 2**63)  # type: ignore[operator, unused-ignore]
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return int(random_state)


def rng_for(seed: int, purpose: str) -> np.random.Generator:
    """An independent random stream per purpose, so that methods that share a step share its random start."""
    return np.random.default_rng([seed, *purpose.encode()])


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
