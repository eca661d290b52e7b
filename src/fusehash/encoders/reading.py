"""Open images safely: size checked before decoding, turned upright, always RGB; one clear sentence otherwise."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import is_installed, require

if TYPE_CHECKING:
    from PIL.Image import Image

ImageLike: TypeAlias = "str | Path | bytes | Image"

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "HEIF")
NAMES = "JPEG, PNG, GIF, WEBP, BMP, TIFF, AVIF or HEIC"
# About 200 MB decoded. A few kilobytes of file can claim far more than that.
MAX_PIXELS = 64_000_000
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
INSTALL_HEIC = 'pip install "fusehash[heic]"'
# Bytes of memory per pixel while an image is decoded, turned and copied; libwebp holds three copies more, and the
# libraries of AVIF and HEIC up to as many.
DECODING_BYTES, WEBP_DECODING_BYTES = 12, 20
LIKE_WEBP = ("WEBP", "AVIF", "HEIF")
STRIP_PIXELS = 1 << 20
MAX_SCANS = 100  # of a JPEG file, as in libtiff; each takes a pass over all pixels, and 50 bytes of the file
ORIENTATION = 0x0112  # EXIF tag
THUMBNAIL_QUALITY = 60  # of WebP, less than half the bytes of a JPEG that looks the same
_MARKER = re.compile(rb"\xff+([\x02-\xcf\xd8-\xfe])")  # of JPEG segments; not stuffed bytes, not restarts


class ImageError(DataError):
    """An image cannot be read."""


def open_image(source: ImageLike, *, max_pixels: int = MAX_PIXELS, side: int | None = None) -> Image:
    """Open an image as RGB: upright according to EXIF, first frame of an animation, transparency on white.

    Parameters
    ----------
    source : str, Path, bytes or PIL.Image.Image
        A path, the bytes of a file, or an image. Files may be JPEG, PNG, GIF, WEBP, BMP, TIFF or AVIF, and HEIC if
        the package pillow-heif is installed.
    max_pixels : int
        Larger images are rejected before they are decoded.
    side : int, optional
        Allows JPEG files to be decoded at a fraction of their size with neither side below this one, which saves most
        of the time that a photo takes.

    Raises
    ------
    ImageError
        If the image cannot be read.
    MissingPackageError
        If Pillow is not installed.
    """
    module = require("PIL.Image", "Reading images")
    name, file = ("The image", None) if isinstance(source, module.Image) else _opened(source)
    try:
        if file is None:
            return _decoded(source, name, max_pixels, None)
        with file, module.open(file, formats=known_formats()) as image:
            if image.format in ("JPEG", "MPO"):  # MPO: a JPEG file with an index of further images
                _check_scans(file, name)
            return _decoded(image, name, max_pixels, side)
    except ImageError:
        raise
    except module.UnidentifiedImageError:
        if lacks_package(source):
            raise ImageError(f"{name} is a HEIC image, which needs a package: {INSTALL_HEIC}.") from None
        raise ImageError(f"{name} must be an image of the kind {NAMES}. It is something else.") from None
    except (module.DecompressionBombError, module.DecompressionBombWarning):
        raise ImageError(f"{name} must have at most {max_pixels:,} pixels. It claims to have more.") from None
    except Exception as error:  # decoders of damaged files raise nearly anything; the file of an image may be gone
        raise ImageError(f"{name} must be an intact image. It is damaged ({_reason(error)}).") from error


def known_formats() -> tuple[str, ...]:
    """The formats that can be read here."""
    return _formats(is_installed("pillow_heif"))


@lru_cache(maxsize=2)
def _formats(with_heif: bool) -> tuple[str, ...]:
    module = require("PIL.Image", "Reading images")
    if with_heif:
        require("pillow_heif", "Reading HEIC images").register_heif_opener(thumbnails=False)
    module.init()
    return tuple(name for name in FORMATS if name in module.OPEN and (with_heif or name != "HEIF"))


def lacks_package(source: Any) -> bool:
    """Whether a file or its content is HEIC, and the package that reads it is missing."""
    head = b""
    if isinstance(source, bytes | bytearray | memoryview):
        head = bytes(source[:12])
    elif isinstance(source, str | Path):
        with trust.open_file(Path(source), repr(str(source)), ImageError) as file:
            head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in HEIC_BRANDS and not is_installed("pillow_heif")


def thumbnail(image: Image, side: int = 256) -> bytes:
    """A WebP of at most `side` x `side` pixels, without EXIF data."""
    small = image.convert("RGB")
    small.thumbnail((side, side))
    small.info.clear()
    buffer = BytesIO()
    small.save(buffer, "WEBP", quality=THUMBNAIL_QUALITY, method=4)
    return buffer.getvalue()


def _opened(source: Any) -> tuple[str, Any]:
    """What to call the source in a sentence, and its content as a file."""
    if isinstance(source, bytes | bytearray | memoryview):
        if not source:
            raise ImageError("The image must have content. It is empty.")
        return "The image", BytesIO(source)
    if not isinstance(source, str | Path):
        raise ImageError(f"An image must be a path, bytes or a PIL image. Got {type(source).__name__} instead.")
    path = Path(source)
    name = repr(str(path))  # names can hold anything
    file = trust.open_file(path, name, ImageError)
    if os.fstat(file.fileno()).st_size == 0:
        file.close()
        raise ImageError(f"{name} must have content. It is empty.")
    return name, BufferedReader(file)


def _check_scans(file: Any, name: str) -> None:
    """Raise if a JPEG file has more scans than any program writes."""
    start = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(start)
    if data.count(b"\xff\xda") > MAX_SCANS and (scans := _n_scans(data)) > MAX_SCANS:
        raise ImageError(f"{name} must have at most {MAX_SCANS} scans. It has {scans:,}.")


def _n_scans(data: bytes) -> int:
    """The scans of a JPEG file up to the end of its image; a video may follow it."""
    scans, position = 0, 0
    while match := _MARKER.search(data, position):
        position, marker = match.end(), match[1][0]
        if marker == 0xD9:  # end of the image
            break
        scans += marker == 0xDA
        if marker != 0xD8:  # all but the start of the image have a length
            position += int.from_bytes(data[position : position + 2], "big")
    return scans


def decoded_pixels(image: Image) -> int:
    """How many pixels are decoded; a tile of a TIFF file may be larger than the image."""
    tags = getattr(image, "tag_v2", {})
    width, length = (size if isinstance(size := tags.get(tag), int) else 0 for tag in (322, 323))
    return max(image.width * image.height, width * length)


def _decoded(image: Image, name: str, max_pixels: int, side: int | None) -> Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{name} must have pixels. It is {width} x {height}.")
    if decoded_pixels(image) > max_pixels:
        raise ImageError(f"{name} must have at most {max_pixels:,} pixels. It claims {decoded_pixels(image):,}.")
    if side is not None:
        image.draft(None, (side, side))
    image.load()
    return _to_rgb(_upright(image))


def _upright(image: Image) -> Image:
    """Turn and mirror as EXIF says. Call it after loading, which already turns TIFF files."""
    from PIL.Image import Transpose

    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF data: leave the image as it is stored
        return image
    how = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if how is None else image.transpose(how)


def _to_rgb(image: Image) -> Image:
    """A copy as RGB, made strip by strip: whole copies with transparency or of floats would take gigabytes."""
    import PIL.Image

    # Without EXIF data, which would turn it twice, and not filled: that would hold the interpreter's lock for long.
    plain = PIL.Image.new("RGB", image.size, None)
    rows = max(1, STRIP_PIXELS // image.width)
    boxes = [(0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)]
    deep = image.mode.startswith(("I", "F"))
    scale = _scale(image.mode, (float(_numbers(image.crop(box)).max()) for box in boxes)) if deep else 1.0
    for box in boxes:
        strip = image.crop(box)
        if deep:
            strip = PIL.Image.fromarray(np.floor(_numbers(strip) / scale * 255.0 + 0.5).astype(np.uint8))
        elif strip.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in strip.info:
            strip = strip.convert("RGBA")
            strip = PIL.Image.alpha_composite(PIL.Image.new("RGBA", strip.size, (255, 255, 255, 255)), strip)
        plain.paste(strip.convert("RGB"), box)
    return plain


def _numbers(deep: Image) -> Any:
    values = np.asarray(deep, dtype=np.float64)
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).clip(0)


def _scale(mode: str, maxima: Iterable[float]) -> float:
    """What stands for white in deep gray values. Files do not say: the smallest usual scale that holds them all."""
    if mode.startswith("I;16"):
        return 65535.0
    largest = max(maxima)
    scales = (1.0, 255.0, 65535.0) if mode == "F" else (255.0, 65535.0)
    return next((scale for scale in scales if largest <= scale), largest)


def _reason(error: BaseException) -> str:
    """A short reason, never a dump of the content."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()).rstrip(".")[:120] or type(error).__name__
