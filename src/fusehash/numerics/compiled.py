"""numba functions whose machine code is kept on disk where that can be, and that work where it cannot.

numba keeps it beside the source file or in the user's cache folder, and refuses to go on where neither can be written
(a service without a home, a read-only container). That must cost the time to compile, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

logger = logging.getLogger(__name__)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as `numba.njit(cache=True, nogil=True, ...)`."""

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, **options)(function)
        keep_on_disk(dispatcher)
        return dispatcher

    return compile_later


def keep_on_disk(dispatcher: Any) -> bool:
    """Keep what a function compiles to for the next process; False where there is no folder for it."""
    try:
        dispatcher.enable_caching()
    except RuntimeError as error:
        logger.info("%s is compiled anew in every process: %s", dispatcher.__name__, error)
        return False
    return True
