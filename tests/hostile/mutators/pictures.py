"""Pictures."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

from hostile.corpus import Tree
from hostile.mutators.plain import PLAIN, overwrite
from hostile.mutators.values import NUMBERS


def change_png(data: bytes, rng: Random) -> bytes:
    """Chunks of a PNG with checksums that fit."""
    if data[:4] != b"\x89PNG":
        return overwrite(data, rng)
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append([data[at + 4 : at + 8], data[at + 8 : at + 8 + length]])
        at += 12 + length
    if not chunks:
        return data
    part = rng.random()
    if part < 0.4:
        chunk = chunks[0]
        at = rng.choice((0, 4, 8, 9, 10, 11, 12))
        width = 4 if at < 8 else 1
        chunk[1] = (
            chunk[1][:at] + (rng.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, "big") + chunk[1][at + width :]
        )
    elif part < 0.6:
        bomb = zlib.compress(b"\0" * rng.choice((10**6, 10**8 // 2)), 9)
        name = rng.choice((b"zTXt", b"iCCP", b"IDAT", b"iTXt"))
        chunks.insert(1, [name, (b"" if name == b"IDAT" else b"a\0\0" if name != b"iTXt" else b"a\0\1\0\0\0") + bomb])
    elif part < 0.8:
        chunk = rng.choice(chunks)
        chunk[1] = rng.choice(PLAIN)(chunk[1], rng)
    elif part < 0.9:
        chunks = chunks[:-1] * rng.choice((2, 100)) + chunks[-1:]
    else:
        chunks.insert(
            rng.randrange(len(chunks)),
            [rng.choice((b"acTL", b"fcTL", b"fdAT", b"eXIf", b"tRNS", b"PLTE", b"gAMA", b"cICP")), rng.randbytes(26)],
        )
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def picture_bomb(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A picture of few bytes with very many pixels."""
    from PIL import Image

    side = rng.choice((3000, 7900, 20_000))
    form, mode = rng.choice((("PNG", "1"), ("PNG", "L"), ("TIFF", "1"), ("GIF", "P")))
    if side > 8000 and mode != "1":
        side = 5000
    key = f"bomb-{side}-{form}-{mode}"
    path = workshop / key
    if not path.exists():
        options = {"compression": "tiff_deflate"} if form == "TIFF" else {}
        Image.new(mode, (side, side)).save(path, form, **options)
    return {name: path.read_bytes() for name in tree}
