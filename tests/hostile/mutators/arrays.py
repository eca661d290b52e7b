"""Formats of arrays: `.npy`, zip files, MATLAB files, the footer of Parquet."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from random import Random

import numpy as np

from hostile.mutators.documents import change_json, changed_document
from hostile.mutators.plain import flip
from hostile.mutators.values import NUMBERS, PICKLE, Bytes, Executed


def change_npy(data: bytes, rng: Random) -> bytes:
    """The header of a .npy file with an absurd shape, dtype or length."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return flip(data, rng)
    wide = data[6] > 1
    length = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    start = 12 if wide else 10
    header, body = data[start : start + length].decode("latin-1"), data[start + length :]
    try:
        entries = eval(header, {"__builtins__": {}})  # our own header
    except Exception:
        return flip(data, rng)
    shape = list(entries["shape"]) if isinstance(entries.get("shape"), tuple) else [1]
    number = rng.choice(NUMBERS)
    part = rng.randrange(9)
    text = None
    if part == 0:
        entries["shape"] = tuple(
            rng.choice(([number, *shape[1:]], [*shape[:-1], number], [number], [number] * 3, [], [-number, 2]))
        )
    elif part == 1:
        entries["descr"] = rng.choice((
            "|O", "<f8", ">i4", "|u1", "<U10", "|S0", "<U999999999", "<c16", "<M8[ns]", "|V8", "<f16", "f9", "", "O",
            "|b1", [("a", "<f4"), ("b", "|O")], [("a", "<f4", (10**6, 10**6))], [("a", [("b", [("c", "<i8")])])], [],
            ["x"], 5, None,
        ))  # fmt: skip
    elif part == 2:
        entries["descr"], body = "|O", pickle.dumps(np.array([Executed()], object), 2) if rng.random() < 0.5 else PICKLE
        entries["shape"] = rng.choice(((1,), tuple(shape)))
    elif part == 3:
        entries["fortran_order"] = rng.choice((True, False, None, 1, "x"))
        entries["shape"] = tuple(rng.choice((shape, shape[::-1], [True, 2], [2.0, 3], ["a"], None or [])))
    elif part == 4:
        entries = changed_document(dict(entries), rng)
    elif part == 5:
        text = rng.choice(("(" * 60_000, "[" * 200, header.replace("(", "(" + "1," * 9000), "{" * 100,
                           "-" * 50_000 + "1", "{'a':" * 99 + "1",
                           "__import__('os').mkdir('../canary/executed')",
                           header.replace("(", "(" + "0" * 5000), header.rstrip() + "+" * 300, "1" * 9000))  # fmt: skip
    elif part == 6:
        body = b""
    elif part == 7:
        shape[0] = rng.choice((0, 2**60, 2**40))
        entries["shape"] = (*shape, 0) if rng.random() < 0.5 else tuple(shape)
    else:
        return data[:6] + bytes((rng.choice((0, 1, 2, 3, 4, 255)), rng.choice((0, 1, 9)))) + data[8:]
    written = (repr(entries) if text is None else text).encode("latin-1", "replace")
    padded = written + b" " * (-(start + len(written) + 1) % 64) + b"\n"
    version, form = (b"\x02\x00", "<I") if len(padded) > 65535 or wide else (b"\x01\x00", "<H")
    declared = len(padded) if rng.random() < 0.9 else rng.choice((0, 1, 65535, len(padded) + 50))
    return b"\x93NUMPY" + version + struct.pack(form, declared) + padded + body


def npy_bomb(data: bytes, rng: Random) -> bytes:
    """An archive of few bytes whose arrays are huge, truly or only by their headers."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in ("image", "text", "labels"):
            rows = rng.choice((10**6, 10**9, 2**40))
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 30), }}".ljust(117) + "\n"
            content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            archive.writestr(f"{name}.npy", content + b"\0" * rng.choice((0, 10**6, 5 * 10**6)))
    return buffer.getvalue()


def change_zip(data: bytes, rng: Random, inner: Bytes = change_npy) -> bytes:
    """An archive written again with a changed member, so that its checksum fits, or with another directory."""
    part = rng.random()
    if part < 0.35:  # fields of local headers, of the directory and of its end
        marks = [i for mark in (b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04") for i in _positions(data, mark)]
        if marks:
            changed, at = bytearray(data), rng.choice(marks) + 4 + 2 * rng.randrange(21)
            width = rng.choice((2, 4))
            if at + width < len(changed):
                changed[at : at + width] = (rng.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, "little")
            return bytes(changed)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return flip(data, rng)
    name = rng.choice(list(members))
    if part < 0.75:
        members[name] = inner(members[name], rng)
    elif part < 0.8:
        members[
            rng.choice(("../../canary/executed", "/tmp/executed", "a\\b.npy", "", "x" * 5000, ".npy", "image.npy/x"))
        ] = members[name]
    elif part < 0.85:
        del members[name]
    elif part < 0.9:
        members[name] = inner(members[name], rng) + b"\0" * rng.choice((10**6, 10**7))
    else:
        members[rng.choice(list(members))] = members[name]
    buffer = io.BytesIO()
    method = rng.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    )
    try:
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for member, content in members.items():
                archive.writestr(zipfile.ZipInfo(member), content, method)
                if rng.random() < 0.02:
                    archive.writestr(zipfile.ZipInfo(member), content[:10], method)
    except Exception:
        return flip(data, rng)
    return buffer.getvalue()


def change_npz(data: bytes, rng: Random) -> bytes:
    return npy_bomb(data, rng) if rng.random() < 0.05 else change_zip(data, rng)


def change_zarr_zip(data: bytes, rng: Random) -> bytes:
    return change_zip(data, rng, change_json)


def _positions(data: bytes, mark: bytes) -> list[int]:
    spots, at = [], data.find(mark)
    while at >= 0:
        spots.append(at)
        at = data.find(mark, at + 1)
    return spots


def change_mat(data: bytes, rng: Random) -> bytes:
    """Tags of a .mat v5 file; compressed elements are opened, changed and compressed again."""
    spots, at = [], 128
    while at + 8 <= len(data):
        number, length = struct.unpack_from("<II", data, at)
        spots.append((at, number, length))
        at += 8 + length
    if not spots:
        return flip(data, rng)
    at, number, length = rng.choice(spots)
    body = data[at + 8 : at + 8 + length]
    if number == 15:
        try:
            body = _change_element(zlib.decompress(body), rng)
        except zlib.error:
            return flip(data, rng)
        body = zlib.compress(body)
        return data[:at] + struct.pack("<II", 15, len(body)) + body + data[at + 8 + length :]
    return data[:at] + _change_element(data[at : at + 8 + length], rng) + data[at + 8 + length :]


def _change_element(element: bytes, rng: Random) -> bytes:
    changed = bytearray(element)
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = len(changed) // 4
        if words < 2:
            break
        at = 4 * (rng.randrange(min(words, 24)) if rng.random() < 0.8 else rng.randrange(words))
        value = rng.choice((*NUMBERS, *range(20), 0x10004, 0x40005, 0x20001))
        changed[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    if len(changed) >= 8 and rng.random() < 0.7:  # the length of the element fits again
        changed[4:8] = struct.pack("<I", len(changed) - 8)
    return bytes(changed)


def change_footer(data: bytes, rng: Random) -> bytes:
    """The footer of a Parquet file; its length fits."""
    if len(data) < 12 or data[-4:] != b"PAR1":
        return flip(data, rng)
    length = struct.unpack("<I", data[-8:-4])[0]
    footer = bytearray(data[-8 - length : -8])
    if not footer:
        return flip(data, rng)
    part = rng.random()
    if part < 0.15:
        return data[:-8] + (rng.choice(NUMBERS) & 0xFFFFFFFF).to_bytes(4, "little") + b"PAR1"
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(footer))
        if part < 0.5:
            footer[at] ^= 1 << rng.randrange(8)
        elif part < 0.8:
            footer[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        else:
            footer[at : at + 1] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[rng.randrange(9) :]
    return data[: -8 - length] + bytes(footer) + struct.pack("<I", len(footer)) + b"PAR1"
