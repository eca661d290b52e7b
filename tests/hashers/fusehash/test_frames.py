"""The way from `fit` to the innermost function is short: at most 12 frames of fusehash, tuning included."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fusehash as fh

ROOT = str(Path(fh.__file__).parent)
MOST_FRAMES = 12


def deepest_stack(work: Any) -> list[str]:
    """Names of the functions of fusehash on the deepest stack, in this thread and in the threads it starts."""
    deepest: list[str] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal deepest
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        names, caller = [], frame
        while caller is not None:
            if caller.f_code.co_filename.startswith(ROOT):
                names.append(f"{Path(caller.f_code.co_filename).name}:{caller.f_code.co_name}")
            caller = caller.f_back
        if len(names) > len(deepest):
            deepest = names[::-1]

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return deepest


@pytest.mark.parametrize(("n_threads", "kind"), [(1, "dense"), (1, "bag"), (None, "dense")])
def test_fit_is_at_most_twelve_frames_deep(n_threads: int | None, kind: str) -> None:
    data = fh.datasets.make_paired(n_samples=160, random_state=0)
    views = {name: data.views[name][:120] for name in data.views}
    if kind == "bag":
        views = {name: np.maximum(X - 1.0, 0.0) for name, X in views.items()}
    model = fh.FuseHash(n_bits=8, n_threads=n_threads, random_state=0)
    stack = deepest_stack(lambda: model.fit(views))
    assert len(stack) <= MOST_FRAMES, stack
