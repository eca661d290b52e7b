"""numba functions whose machine code is kept on disk, and that also work where it cannot be kept.

numba needs 1 to 3 s to compile a kernel for one width of codes and keeps the outcome beside the source file or in the
user's cache folder. A folder that is missing, read-only, full, or holds a damaged file must not stop a search: the
kernel is then compiled for this process alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

from fusehash.numerics.compiled import keep_on_disk

logger = logging.getLogger(__name__)

_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}

#: A part of a kernel: compiled into the kernels that call it.
part = njit(**_OPTIONS)


class Kernel:
    """A compiled function, called from Python without the GIL. Use as a decorator on a module-level function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self._function = function
        self._compiled = njit(**_OPTIONS)(function)
        self._cached = keep_on_disk(self._compiled)

    def __call__(self, *args: Any) -> Any:
        try:
            return self._compiled(*args)
        except MemoryError:
            raise
        except Exception as error:
            if not self._cached:
                raise
            logger.warning("%s is compiled for this process alone: its cache failed (%s)", self.__name__, error)
        self._cached = False
        self._compiled = njit(**_OPTIONS)(self._function)
        return self._compiled(*args)
