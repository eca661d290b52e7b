"""Absurd values, and a pickle that leaves a trace."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from hostile.corpus import Tree

Bytes: TypeAlias = Callable[[bytes, Random], bytes]
Trap: TypeAlias = Callable[[Tree, Random, Path], Tree]
NUMBERS = (0, 1, 2, 3, 7, 8, 16, 64, 127, 128, 255, 256, 1000, 2**15, 2**16, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1,
           2**32, 2**40, 2**47, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**20, 10**100)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *NUMBERS, *(-number for number in NUMBERS[:20]), 0.5, -0.0, 1e308, float("nan"), float("inf"), True, False, None,
    "", "a", "0", "../canary/secret.bin", "/etc/passwd", "\0", "\ud800", "é" * 50, "x" * 70000, [], {}, [[]], [None],
    {"": 0}, [1, 2], "auto", "nan", "|O", "<f8", "pickle", "__class__", "\x1b]0;title\x07", "[red]x[/]",
)  # fmt: skip


class Executed:
    """Its pickle makes a folder among the canaries when it is read."""

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("../canary/executed",)


PICKLE = pickle.dumps(Executed(), 2)
