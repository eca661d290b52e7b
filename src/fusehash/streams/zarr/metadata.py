"""Parts of the metadata of zarr arrays, checked; and what to say of bytes that cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.errors import DataError, FusehashError, first_line
from fusehash.views import check_shape

HINT = "If you trust it, open it with zarr.open_array(path) and pass the array instead of the path."


def check_name(source: str, what: str, name: Any, allowed: tuple[Any, ...]) -> None:
    if name not in allowed:
        expected = ", ".join(map(str, allowed))
        raise DataError(f"{source} must have one of these as {what}: {expected}. Got {repr(name)[:80]} instead. {HINT}")


def named_codec(codec: Any) -> tuple[str, Any]:
    return (codec, None) if isinstance(codec, str) else (str(codec["name"]), codec.get("configuration"))


def check_sizes(source: str, shape: Any) -> tuple[int, int]:
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise DataError(f"{source} must have whole numbers as shape. Got {repr(shape)[:80]} instead.")
    return check_shape(source, shape)


def number_type(source: str, name: Any) -> np.dtype[Any]:
    """A dtype of numbers by its name, as in "float32" or "<f4"."""
    if not isinstance(name, str) or not trust.NUMBER_TYPE.fullmatch(name):
        raise DataError(f"{source} must hold real numbers. Got dtype {name!r} instead.")
    return np.dtype(name)


def check_separator(separator: Any) -> str:
    if separator not in ("/", "."):
        raise DataError(f"The separator of zarr chunks must be '/' or '.'. Got {separator!r} instead.")
    return str(separator)


def file_name_of_chunk(source: str, encoding: Any) -> str:
    """How the file of chunk (i, j) is called."""
    name, settings = named_codec(encoding)
    check_name(source, "names of chunks", name, ("default", "v2"))
    separator = check_separator((settings or {}).get("separator", "/" if name == "default" else "."))
    return f"c{separator}{{}}{separator}{{}}" if name == "default" else f"{{}}{separator}{{}}"


@contextmanager
def reporting(source: str, name: str) -> Iterator[None]:
    """Turn what decoders of foreign bytes raise, which can be anything, into one sentence."""
    try:
        yield
    except FusehashError:
        raise
    except Exception as error:
        raise DataError(f"{source} could not be read: {name} is damaged ({first_line(error)}).") from error
