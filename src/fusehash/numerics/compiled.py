"""numba functions whose machine code is kept on disk where possible, and that also work where it is not.

numba needs up to 3 s to compile a kernel and keeps the result next to the source file or in the user's cache folder. A
folder that is missing, read-only or full, or a damaged file in it, costs that time again and nothing else. What is kept
is run as it is, so a folder that other users can write to is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
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
            except (RuntimeError, OSError) as error:  # numba knows no folder that could be used
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
        self._function = function.__name__
        _check_private(self._cache_path, function.__code__.co_filename)
        self._cache_file = _CheckedFiles(
            cache_path=self._cache_path,
            filename_base=f"fusehash-{self._impl.filename_base}",
            source_stamp=(self._impl.locator.get_source_stamp(), _sources(function.__module__)),
        )

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        code = None
        try:
            code = super().load_overload(signature, target_context)
        except MemoryError:
            raise
        except Exception as error:
            self._report(error)
        if code is None:
            logger.info("%s is compiled", self._function)
        return code

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except MemoryError:
            raise
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        logger.warning("the machine code of %s cannot be kept in %s: %s", self._function, self._cache_path, error)
        with contextlib.suppress(Exception):
            self.flush()  # so that a damaged file is replaced


class _CheckedFiles(IndexDataCacheFile):
    """numba's index and data files with a digest at the end: nothing is loaded that was not written whole."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file, io.BytesIO() as content:
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> Any:
        with contextlib.suppress(FileNotFoundError):  # the first time
            _check_digest(self._index_path)
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _check_digest(self._data_path(name))
        return super()._load_data(name)


def _check_digest(path: str) -> None:
    content = Path(path).read_bytes()
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError(f"{path} is damaged")


def _check_private(folder: str, source: str) -> None:
    """Raise OSError if somebody else can write to a folder who could not change the source either."""
    if os.name != "posix":
        return
    status = os.stat(folder)  # noqa: PTH116 (also what numba writes)
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getgid())
    trusted = {0, os.getuid(), os.stat(source).st_uid if os.path.exists(source) else 0}  # noqa: PTH110, PTH116
    if by_group or status.st_mode & stat.S_IWOTH or status.st_uid not in trusted:
        raise OSError(f"other users can write to {folder}")


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
