"""Small pictures with structure, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def picture(optional) -> Callable[..., Any]:
    """`picture(seed, width, height)`: blocks, a ramp and noise, different in every corner."""
    image = optional("PIL.Image")

    def draw(seed: int = 0, width: int = 96, height: int = 64) -> Any:
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        grown = np.asarray(image.fromarray(coarse).resize((width, height), image.Resampling.NEAREST)).astype(int)
        ramp = np.linspace(0, 60, width)[None, :, None] + np.linspace(0, 40, height)[:, None, None]
        noisy = grown * 0.7 + ramp + rng.normal(0, 6, grown.shape)
        return image.fromarray(noisy.clip(0, 255).astype(np.uint8))

    return draw


@pytest.fixture(scope="session")
def as_file() -> Callable[..., bytes]:
    """`as_file(image, "PNG", ...)`: the bytes of an image file."""

    def save(image: Any, kind: str = "PNG", **params: Any) -> bytes:
        buffer = BytesIO()
        image.save(buffer, kind, **params)
        return buffer.getvalue()

    return save
