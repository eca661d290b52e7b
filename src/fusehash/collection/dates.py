"""The day on which a picture was taken, as its camera wrote it into the file."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, timedelta
from io import BytesIO

from fusehash.extras import is_installed, require

# EXIF tags, the best first: DateTimeOriginal, DateTimeDigitized, DateTime.
DATE_TAGS = (0x9003, 0x9004, 0x0132)
EXIF_FOLDER = 0x8769  # the tag that leads to the first two
FIRST_YEAR = 1826  # of the oldest photograph that is left; scans may have the date of what they show
_DAY = re.compile(r"\s*([0-9]{4})[:/.-]([0-9]{2})[:/.-]([0-9]{2})(?![0-9])")


def day_taken(data: bytes) -> str | None:
    """The day of a picture as YYYY-MM-DD, "" if its file has none, None without Pillow.

    EXIF dates have no time zone: the day is taken as it is written. Nothing is decoded, so EXIF data that a PNG file
    has after its pixels is not found.
    """
    from fusehash.encoders import reading

    if not is_installed("PIL"):
        return None
    image_module = require("PIL.Image", "Reading pictures")
    with suppress(Exception):  # decoders of damaged files raise nearly anything
        with image_module.open(BytesIO(data), formats=reading.known_formats()) as image:
            tags = image_module.Image.getexif(image)  # that of PNG files would decode the pixels
            every = {**dict(tags), **dict(tags.get_ifd(EXIF_FOLDER))}
        return next(filter(None, (day_in(every.get(tag)) for tag in DATE_TAGS)), "")
    return ""


def day_in(value: object) -> str:
    """The day in the value of an EXIF tag; "" if there is none, or none on which a picture can have been taken."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    if isinstance(text, str) and (found := _DAY.match(text)):
        with suppress(ValueError):  # no day of any calendar, such as 0000:00:00
            day = date(*map(int, found.groups()))
            # A day ahead: it may be tomorrow already where the picture was taken.
            if day.year >= FIRST_YEAR and day <= date.today() + timedelta(days=1):
                return day.isoformat()
    return ""
