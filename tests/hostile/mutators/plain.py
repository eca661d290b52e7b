"""Changes of bytes, whatever they mean."""

from __future__ import annotations

from random import Random

from hostile.mutators.values import NUMBERS, Bytes


def _spot(data: bytes, rng: Random) -> int:
    """A position; headers and ends of files are hit more often than the rest."""
    if not data:
        return 0
    part = rng.random()
    near = min(len(data), 128)
    return (
        rng.randrange(near)
        if part < 0.3
        else len(data) - 1 - rng.randrange(near)
        if part < 0.5
        else rng.randrange(len(data))
    )


def flip(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[_spot(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(data: bytes, rng: Random) -> bytes:
    width = rng.choice((1, 1, 2, 4, 8))
    number = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
    at = _spot(data, rng)
    return data[:at] + number.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]


def noise(data: bytes, rng: Random) -> bytes:
    at, length = _spot(data, rng), rng.choice((1, 2, 4, 16, 64))
    return data[:at] + rng.randbytes(length) + data[at + length :]


def truncate(data: bytes, rng: Random) -> bytes:
    return data[: _spot(data, rng)]


def cut(data: bytes, rng: Random) -> bytes:
    at = _spot(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 8, 100)) :]


def insert(data: bytes, rng: Random) -> bytes:
    at = _spot(data, rng)
    content = rng.choice((b"\0", b"\xff", b"\0" * 16, b"\xff" * 9, rng.randbytes(5), b"A" * 300, data[:64]))
    return data[:at] + content + data[at:]


def duplicate(data: bytes, rng: Random) -> bytes:
    at, length = _spot(data, rng), rng.choice((1, 8, 64, 512))
    return data[: at + length] + data[at : at + length] * rng.choice((1, 1, 20)) + data[at + length :]


def swap(data: bytes, rng: Random) -> bytes:
    length = rng.choice((1, 4, 16, 128))
    one, two = sorted((_spot(data, rng), _spot(data, rng)))
    if two < one + length:
        return data
    return (
        data[:one]
        + data[two : two + length]
        + data[one + length : two]
        + data[one : one + length]
        + data[two + length :]
    )


def blank(data: bytes, rng: Random) -> bytes:
    at, length = _spot(data, rng), rng.choice((4, 32, 512))
    return data[:at] + rng.choice((b"\0", b"\xff")) * min(length, len(data) - at) + data[at + length :]


def extend(data: bytes, rng: Random) -> bytes:
    return data + rng.choice((b"\0" * 1000, b"\xff" * 10, data, rng.randbytes(100)))


PLAIN: tuple[Bytes, ...] = (
    flip,
    flip,
    overwrite,
    overwrite,
    noise,
    truncate,
    cut,
    insert,
    duplicate,
    swap,
    blank,
    extend,
)
