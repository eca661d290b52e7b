"""Checks for a hasher of your own, as scikit-learn's `check_estimator` is for estimators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from fusehash.errors import ParameterError
from fusehash.hashers.base import CrossModalHasher
from fusehash.testing.checks import all_checks
from fusehash.testing.subject import Subject

__all__ = ["check_hasher", "hasher_checks"]


def check_hasher(
    cls: type[CrossModalHasher], *, params: Mapping[str, Any] | None = None, skip: Collection[str] = ()
) -> None:
    """Check that a class keeps the contracts of all hashers: parameters, codes, seeds, threads, files, bad input.

    Parameters
    ----------
    cls : type of CrossModalHasher
        Your class.
    params : mapping, optional
        Settings to check it with, such as few iterations of a slow method; by default those of the class, with 16 bits
        and seed 0.
    skip : collection of str
        Names of checks to leave out; `hasher_checks` lists them.

    Raises
    ------
    AssertionError
        If a check fails, with one line per check that failed.

    Examples
    --------
    >>> from fusehash import hashers
    >>> from fusehash.testing import check_hasher
    >>> check_hasher(hashers.get("random"))
    """
    failures = []
    for name, check in hasher_checks(cls, params=params, skip=skip):
        try:
            check()
        except Exception as error:  # whatever the method raises is a failure of the check
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            failures.append((f"{name}: {kind}{error}", error))
    if failures:
        lines = "\n".join(f"  {line}" for line, _ in failures)
        raise AssertionError(f"{cls.__name__} fails {len(failures)} checks:\n{lines}") from failures[0][1]


def hasher_checks(
    cls: type[CrossModalHasher], *, params: Mapping[str, Any] | None = None, skip: Collection[str] = ()
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Iterate over the checks of a class, as (name, function without arguments), for one test per check.

    Parameters
    ----------
    cls, params, skip
        As for `check_hasher`.

    Examples
    --------
    >>> from fusehash import hashers
    >>> from fusehash.testing import hasher_checks
    >>> dict(hasher_checks(hashers.get("random")))["codes_are_not_constant"]()
    """
    if not (isinstance(cls, type) and issubclass(cls, CrossModalHasher)):
        raise ParameterError("check_hasher", "cls", "a class derived from CrossModalHasher", cls)
    checks = {check.__name__: check for check in all_checks()}
    for name in skip:
        if name not in checks:
            raise ParameterError("check_hasher", "skip", f"among {', '.join(checks)}", name)
    subject = Subject(cls, dict(params or {}))
    for name, check in checks.items():
        if name not in skip:
            yield name, partial(check, subject)
