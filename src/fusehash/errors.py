"""What can go wrong, each with one clear sentence.

The grammar is scikit-learn's: what was expected, then what came.
"The 'n_bits' parameter of FuseHash must be a positive multiple of 8. Got 12 instead."
"""

from __future__ import annotations

import sys
import warnings


class FusehashError(Exception):
    """Base of every error that fusehash raises on purpose."""


class ParameterError(FusehashError, ValueError):
    """A parameter has a value that the method cannot use."""

    def __init__(self, owner: str, name: str, expected: str, got: object) -> None:
        self.owner, self.name, self.expected, self.got = owner, name, expected, got
        super().__init__(f"The '{name}' parameter of {owner} must be {expected}. Got {got!r} instead.")


class DataError(FusehashError, ValueError):
    """The data cannot be used as given."""


class ModelFileError(FusehashError, ValueError):
    """A file is not a model that this version of fusehash can read."""


class CorruptIndexError(FusehashError):
    """A file is not an intact fusehash index."""


class MissingPackageError(FusehashError, ImportError):
    """An optional package is not installed; the sentence says what to install."""


class FusehashWarning(UserWarning):
    """The result may not be what was hoped for; the sentence says why."""


def first_line(error: BaseException) -> str:
    """What an error of another package says, for a sentence of ours: its first line, or else its class."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def warn(sentence: str) -> None:
    """Warn in the name of whoever called fusehash, however deep inside it we are."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fusehash."):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, FusehashWarning, stacklevel=level)
