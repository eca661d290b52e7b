"""Perceptual hashes of pictures: dHash and pHash of 64 bits, bit for bit those of the package `imagehash`.

Both make the picture gray and small, so that a copy of another size, quality or format gets the same bits or nearly so.
Bit j of a code is entry j of the hash, row by row; `as_hex` writes a code as `str(imagehash.phash(...))` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash import bits
from fusehash.bits import Codes
from fusehash.errors import ParameterError
from fusehash.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 8  # entries per row and column of a hash
_SCALE = 4  # pHash looks at a picture so many times larger
N_BITS = SIDE * SIDE


def dhash(image: Image) -> Codes:
    """Whether each pixel of 8 x 9 is brighter than the one to its left: a code of 64 bits."""
    pixels = _gray(image, SIDE + 1, SIDE)
    return _packed(pixels[:, 1:] > pixels[:, :-1])


def phash(image: Image) -> Codes:
    """Which of the 8 x 8 lowest frequencies of 32 x 32 pixels are above their median: a code of 64 bits."""
    from scipy.fft import dct

    pixels = _gray(image, SIDE * _SCALE, SIDE * _SCALE)
    # The same transform, step by step, as scipy.fftpack's, which imagehash uses: on 8-bit numbers in double precision.
    low = dct(dct(pixels.astype(np.float64), axis=0), axis=1)[:SIDE, :SIDE]
    return _packed(low > np.median(low))


HASHES = {"dhash": dhash, "phash": phash}


def perceptual_hash(image: Image, method: str = "phash") -> Codes:
    """The code of a picture, shape (8,)."""
    if method not in HASHES:
        raise ParameterError("perceptual_hash", "method", f"one of {', '.join(HASHES)}", method)
    return HASHES[method](image)


def as_hex(code: Codes) -> str:
    """A code as 16 hexadecimal digits, as imagehash writes it: the first entry is the highest bit."""
    return bits.other_order(code).tobytes().hex()


def _gray(image: Image, width: int, height: int) -> Any:
    resampling = require("PIL.Image", "Reading images").Resampling.LANCZOS
    return np.asarray(image.convert("L").resize((width, height), resampling))


def _packed(entries: Any) -> Codes:
    return bits.pack(entries.reshape(1, -1))[0]
