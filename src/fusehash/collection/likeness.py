"""Whether two pictures look the same: their thumbnails, as 16 x 16 gray values, correlate almost perfectly.

Codes say what pictures show, and two photos of different beaches may have the same code. So codes only choose the pairs
that are compared. A copy in another size, format or quality correlates above .99, the next picture of a series often
above .9, two pictures of similar things hardly ever.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np

from fusehash.extras import require
from fusehash.views import Floats

SIDE = 16
ALIKE = 0.93  # correlation


class Looks:
    """The gray values of pictures, made once per picture from their thumbnails."""

    def __init__(self, thumbnail: Callable[[int], bytes | None]) -> None:
        self._thumbnail = thumbnail
        self._known: dict[int, Floats | None] = {}

    def of(self, id: int) -> Floats | None:
        """Centered gray values of length 1; None without a picture, and for a picture of one color."""
        if id not in self._known:
            content = self._thumbnail(id)
            self._known[id] = None if content is None else _gray(content)
        return self._known[id]

    def alike(self, one: int, other: int) -> bool:
        first, second = self.of(one), self.of(other)
        return first is not None and second is not None and float(first @ second) >= ALIKE


def _gray(content: bytes) -> Floats | None:
    from fusehash.encoders import reading

    image_module = require("PIL.Image", "Comparing pictures")
    with image_module.open(BytesIO(content), formats=reading.known_formats()) as image:
        small = image.convert("L").resize((SIDE, SIDE), image_module.Resampling.BOX)
    values = np.asarray(small, np.float64).ravel()
    values = values - values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length > SIDE else None
