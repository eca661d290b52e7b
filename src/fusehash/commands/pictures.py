"""Pictures in a terminal: two pixels a character, the upper as its color and the lower as its background."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

UPPER, LOWER = "▀", "▄"
COLORS = ("truecolor", "256")
GAP = 2
MIN_SIDE, MAX_SIDE = 8, 24
OPAQUE = 128  # of 255; what is less shows the terminal's own background


def can_show(console: Console) -> bool:
    """Whether the output is a terminal with enough colors and half blocks in its character set."""
    return (
        console.is_terminal
        and not console.no_color
        and console.color_system in COLORS
        and console.encoding.lower().startswith("utf")
    )


def fitting_side(width: int, count: int) -> int:
    """The side, in characters, of ``count`` square pictures beside each other."""
    return max(MIN_SIDE, min(MAX_SIDE, (width + GAP) // count - GAP)) // 2 * 2


def half_blocks(image: bytes, side: int) -> list[Text]:
    """A PNG, JPEG or WEBP file as ``side / 2`` lines of ``side`` characters; one that is not square is centered."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    pixels = _pixels(image, side)
    lines = []
    for top in range(0, side, 2):
        line = Text(no_wrap=True)
        for upper, lower in zip(pixels[top], pixels[top + 1], strict=True):
            colors = [Color.from_rgb(*pixel[:3]) if pixel[3] >= OPAQUE else None for pixel in (upper, lower)]
            if colors[0] is not None:
                line.append(UPPER, Style(color=colors[0], bgcolor=colors[1]))
            elif colors[1] is not None:
                line.append(LOWER, Style(color=colors[1]))
            else:
                line.append(" ")
        lines.append(line)
    return lines


def row_of_pictures(pictures: Sequence[bytes], captions: Sequence[Text], side: int) -> Table:
    """Pictures beside each other, each over its caption."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, GAP, 0, 0))
    for _ in pictures:
        table.add_column(width=side, overflow="fold")
    table.add_row(*(Text("\n").join(half_blocks(picture, side)) for picture in pictures))
    table.add_row(*captions)
    return table


def _pixels(image: bytes, side: int) -> list[list[tuple[int, int, int, int]]]:
    """Rows of RGBA pixels, ``side`` x ``side``."""
    from PIL import Image, ImageOps

    with Image.open(BytesIO(image), formats=("PNG", "JPEG", "WEBP")) as file:
        small: Any = ImageOps.pad(file.convert("RGBA"), (side, side), color=(0, 0, 0, 0))
    flat = list(small.tobytes())
    pixels = list(zip(*(flat[channel::4] for channel in range(4)), strict=True))
    return [pixels[start : start + side] for start in range(0, side * side, side)]
