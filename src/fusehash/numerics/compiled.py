"""numba functions whose machine code is kept on disk where possible, and that also work where it is not.

numba needs up to 3 s to compile a kernel and keeps the result next to the source file or in the user's cache folder. A
folder that is missing, read-only or full, or a damaged file in it, costs that time again and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

logger = logging.getLogger(__name__)


def compiled(*, keep: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: compile a function with `numba.njit(nogil=True, **options)` and keep its machine code on disk.

    Use `keep=False` for a function that only other compiled functions call: it becomes part of their machine code.
    """

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, **options)(function)
        if keep:
            try:
                dispatcher._cache = _MachineCodeCache(function)
            except RuntimeError as error:  # numba knows no folder that it could use
                logger.info("%s is compiled again in every process: %s", function.__name__, error)
        return dispatcher

    return compile_later


@intrinsic
def bit_count(_: Any, word: Any) -> Any:
    """Number of ones in an integer, for use in compiled functions."""
    return word(word), lambda context, builder, signature, args: builder.ctpop(args[0])


class _MachineCodeCache(FunctionCache):
    """numba's cache, which also notices changes in the files a function imports from, and never raises."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(self._impl.locator.get_source_stamp(), _sources(function.__module__)),
        )

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except MemoryError:
            raise
        except Exception as error:
            self._report(error)
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except MemoryError:
            raise
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        logger.warning("the machine code of %s cannot be kept in %s: %s", self._name, self._cache_path, error)
        with contextlib.suppress(Exception):
            self.flush()  # so that a damaged file is replaced


def _sources(module: str) -> str:
    """One digest of the files of a module and of all fusehash modules that it imports something from."""
    names, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in names and name in sys.modules:
            names.add(name)
            origins = {getattr(value, "__module__", None) for value in vars(sys.modules[name]).values()}
            waiting += [origin for origin in origins if isinstance(origin, str) and origin.startswith("fusehash.")]
    files = {getattr(sys.modules[name], "__file__", None) or name for name in names}
    return hashlib.sha256("".join(map(_digest, sorted(files))).encode()).hexdigest()


@cache
def _digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:  # inside of an archive
        return file
