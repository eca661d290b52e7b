"""How valid files become hostile ones. Everything is drawn from one `Random`, so that a seed names a case.

Plain mutators change bytes. Structural ones know a format: they parse it, change a value to an absurd one, and write it
again with lengths and checksums that fit, so that the checks behind a checksum are reached. Traps are built from
scratch: links, pipes, archives that explode, pickles.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

from fusehash.files import CHECKSUM, checksum_of
from hostile.corpus import KINDS, Fifo, Link, Tree

Bytes: TypeAlias = Callable[[bytes, Random], bytes]
Trap: TypeAlias = Callable[[Tree, Random, Path], Tree]

NUMBERS = (0, 1, 2, 3, 7, 8, 16, 64, 127, 128, 255, 256, 1000, 2**15, 2**16, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1,
           2**32, 2**40, 2**47, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**20, 10**100)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *NUMBERS, *(-number for number in NUMBERS[:20]), 0.5, -0.0, 1e308, float("nan"), float("inf"), True, False, None,
    "", "a", "0", "../canary/secret.bin", "/etc/passwd", "\0", "\ud800", "é" * 50, "x" * 70000, [], {}, [[]], [None],
    {"": 0}, [1, 2], "auto", "nan", "|O", "<f8", "pickle", "__class__", "\x1b]0;title\x07", "[red]x[/]",
)  # fmt: skip


class Executed:
    """Its pickle makes a folder among the canaries when it is read."""

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("../canary/executed",)


PICKLE = pickle.dumps(Executed(), 2)


# -- bytes --------------------------------------------------------------------------------------------------------


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


# -- documents ----------------------------------------------------------------------------------------------------


def changed_document(document: Any, rng: Random) -> Any:
    """JSON-like data with one value, key or length changed; a string that is JSON itself is changed inside."""
    holders: list[tuple[Any, Any]] = []
    level = [document]
    while level:
        holder = level.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in list(keys)[:200]:
            holders.append((holder, key))
            level.append(holder[key])
    if not holders or rng.random() < 0.03:
        return rng.choice(VALUES)
    holder, key = rng.choice(holders)
    value, part = holder[key], rng.random()
    if isinstance(value, str) and value[:1] in ("{", "[") and part < 0.9:
        try:
            holder[key] = json.dumps(changed_document(json.loads(value), rng))
            return document
        except ValueError:
            pass
    if part < 0.5:
        holder[key] = rng.choice(VALUES)
    elif part < 0.6:
        if isinstance(holder, dict):
            del holder[key]
        else:
            holder.pop(key)
    elif part < 0.7:
        if isinstance(holder, dict):
            holder[rng.choice(("", "x", "__class__", "$class", "$array", "name", str(key) + "_"))] = value
        else:
            holder.extend([value] * rng.choice((1, 10, 1000)))
    elif part < 0.8:
        holder[key] = nested(value, rng.choice((2, 70, 500, 5000)), rng)
    elif part < 0.9 and isinstance(value, int | float):
        holder[key] = rng.choice((-value, value + 1, value * 2, value * 10**9, value / 2, str(value), [value]))
    elif isinstance(value, str):
        holder[key] = rng.choice((value[:-1], value + "x", value.upper(), "../" + value, value * 1000, [value]))
    else:
        other, other_key = rng.choice(holders)
        holder[key] = other[other_key]
    return document


def nested(value: Any, depth: int, rng: Random) -> Any:
    wrap = rng.choice((lambda inner: [inner], lambda inner: {"a": inner}))
    for _ in range(depth):
        value = wrap(value)
    return value


def dumps(document: Any) -> bytes:
    """JSON also of what json.dumps nests too deep for."""
    try:
        return json.dumps(document).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        return b"[" * 100_000 + b"]" * 100_000


def change_json(data: bytes, rng: Random) -> bytes:
    try:
        document = json.loads(data)
    except ValueError:
        return flip(data, rng)
    if rng.random() < 0.03:
        depth = rng.choice((100, 10_000, 1_000_000))
        return rng.choice((b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth))
    return dumps(changed_document(document, rng))


def change_lines(data: bytes, rng: Random) -> bytes:
    """Tables and YAML: a token or a line changed."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    part = rng.random()
    if part < 0.2:
        lines[at] = lines[rng.randrange(len(lines))]
    elif part < 0.3:
        lines.insert(at, lines[rng.randrange(len(lines))] * rng.choice((1, 3)))
    elif part < 0.4:
        del lines[at]
    else:
        words = lines[at].split(rng.choice((b" ", b",", b":", b'"')))
        word = rng.choice(_WORDS)
        words[rng.randrange(len(words))] = word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word
        lines[at] = rng.choice((b" ", b",", b":")).join(words)
    return b"\n".join(lines)


_WORDS = (
    "0", "-1", "1e999", ".nan", ".inf", "9" * 400, "9" * 5000, "0x7fffffffffffffff", "null", "~", "true", "''", "[",
    "]", "{", "}", "- ", "*a", "&a", "<<: *a", "!!python/object/apply:os.system [id]", "!!binary x", "!!set {a}",
    "!!omap [a]",     "2001-99-99", "2001-12-14t21:59:43.10-05:00", "|", ">", "%YAML 9.9", "---", "..",
    "\t", "\0", "\x1b[31m", "\ud800",
    "../../etc/passwd", "/etc/passwd", "..\\..", "a" * 100_000, '"' * 3, "190:20:30", "1_000", "? x", b"\xff\xfe",
    b"\xef\xbb\xbf",
)  # fmt: skip


def yaml_bomb(data: bytes, rng: Random) -> bytes:
    """Aliases of aliases, and nests."""
    width, depth = rng.choice((2, 5, 10)), rng.choice((5, 9, 30))
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    last = f"*a{depth - 1}"
    use = rng.choice((f"title: {last}", f"methods: {last}", f"bits: {last}", f"dataset: {last}", f"seeds: {last}",
                      f"sweep: {{method: agsfh, over: {last}}}", f"dataset: {{name: x, options: {last}}}"))  # fmt: skip
    bomb = ("\n".join(lines) + "\n" + use + "\n").encode()
    level = rng.choice((50, 500, 20_000))
    return rng.choice((
        data + b"\n" + bomb, bomb + data, bomb, b"title: " + b"[" * level, b"title: " + b"[" * level + b"]" * level,
        b"- " * level, b"title: &a [*a]\n" + data, b"? " * level, b"{" * level,
        b"bits: [" + b"16, " * 200_000 + b"]\n" + data,
        b"seeds: 999999999\n" + data, b"x: " + b"9" * 100_000 + b"\n" + data,
    ))  # fmt: skip


# -- formats of arrays --------------------------------------------------------------------------------------------


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


def change_yaml(data: bytes, rng: Random) -> bytes:
    return yaml_bomb(data, rng) if rng.random() < 0.1 else change_lines(data, rng)


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


# -- what fusehash writes -----------------------------------------------------------------------------------------


def change_safetensors(data: bytes, rng: Random) -> bytes:
    """The header of a safetensors file, also inside its JSON documents."""
    if len(data) < 8:
        return data
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        return flip(data, rng)
    body, part = data[8 + length :], rng.random()
    if part < 0.05:
        return (rng.choice(NUMBERS) & (1 << 64) - 1).to_bytes(8, "little") + data[8:]
    tensors = [name for name in header if name != "__metadata__"]
    if part < 0.3 and tensors:  # another dtype or shape of the same bytes
        tensor = header[rng.choice(tensors)]
        size = tensor["data_offsets"][1] - tensor["data_offsets"][0]
        tensor["dtype"], width = rng.choice(
            (("F64", 8), ("F32", 4), ("I64", 8), ("U8", 1), ("BOOL", 1), ("F16", 2), ("BF16", 2), ("I8", 1))
        )
        tensor["shape"] = rng.choice(
            (
                [size // width],
                [size // width, 1],
                [1, size // width, 1],
                [1] * 70 + [size // width],
                [0, 2**60],
                [2**32, 2**32, 0],
            )
        )
    elif part < 0.45 and tensors:  # absurd numbers
        name = rng.choice(tensors)
        start, stop = header[name]["data_offsets"]
        values = np.frombuffer(body[start:stop], np.uint8).copy()
        fill = rng.choice(
            (struct.pack("<d", float("nan")), struct.pack("<f", float("inf")) * 2, b"\xff" * 8, b"\0" * 8)
        )
        if len(values) >= 8:
            at = 8 * rng.randrange(len(values) // 8)
            values[at : at + 8] = np.frombuffer(fill, np.uint8)
        body = body[:start] + values.tobytes() + body[stop:]
    elif part < 0.5 and len(tensors) > 1:
        one, two = rng.sample(tensors, 2)
        header[one], header[two] = header[two], header[one]
    else:
        header = changed_document(header, rng)
    return _safetensors(header, body)


TENSOR_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def _safetensors(header: Any, body: bytes) -> bytes:
    """A file with this header; a checksum that fusehash wrote into it fits again."""
    with contextlib.suppress(Exception):  # where the content makes no sense, no checksum fits
        entries = header["__metadata__"]
        arrays = {
            name: np.frombuffer(body[slice(*tensor["data_offsets"])], TENSOR_TYPES[tensor["dtype"]]).reshape(
                tensor["shape"]
            )
            for name, tensor in header.items()
            if name != "__metadata__"
        }
        if CHECKSUM in entries:
            entries[CHECKSUM] = checksum_of({key: entries[key] for key in entries if key != CHECKSUM}, arrays)
    text = dumps(header)
    return len(text).to_bytes(8, "little") + text + body


def change_sqlite(data: bytes, rng: Random, workshop: Path) -> bytes:
    """A value in a table changed with SQL, so that every page is intact; states get a fitting checksum."""
    path = workshop / "changed.db"
    path.write_bytes(data)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA writable_schema=ON")
        tables = [
            name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        _change_rows(connection, tables, rng)
    except (sqlite3.Error, OverflowError, ValueError):
        pass
    finally:
        connection.close()
    content = bytearray(path.read_bytes())
    path.unlink()
    if len(content) > 20:
        content[18:20] = b"\x02\x02"  # the log mode that fusehash writes
    return bytes(content)


def _change_rows(connection: sqlite3.Connection, tables: list[str], rng: Random) -> None:
    table = rng.choice(tables)
    columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_info('{table}')")]
    column = rng.choice(columns)
    part = rng.random()
    rows = rng.choice(("1", f"rowid IN (SELECT rowid FROM {table} ORDER BY random() LIMIT 1)"))
    if table in ("state", "generation") and part < 0.6:
        for only, content in connection.execute(f"SELECT rowid, content FROM {table}").fetchall():
            text = dumps(changed_document(json.loads(content), rng))
            values = (text.decode("utf-8", "replace"), zlib.crc32(text), only)
            connection.execute(f"UPDATE {table} SET content = ?, checksum = ? WHERE rowid = ?", values)
    elif part < 0.5:
        value = rng.choice(
            (
                *(v for v in VALUES if not isinstance(v, list | dict)),
                rng.randbytes(16),
                b"",
                b"\0" * 10**5,
                "[" * 10**5,
                '["a"]',
                '{"a": 1}',
                "[[1]]",
                '"x"',
                "null",
            )
        )
        if isinstance(value, int):
            value = max(-(2**63), min(2**63 - 1, value))
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {rows}", (value,))
    elif part < 0.6:
        connection.execute(f"UPDATE {table} SET {column} = CAST({column} AS {rng.choice(('TEXT', 'BLOB', 'INTEGER'))})")
    elif part < 0.7:
        connection.execute(f"DELETE FROM {table} WHERE {rows}")
    elif part < 0.8:
        connection.execute(f"UPDATE {table} SET {column} = {rng.choice(columns)} WHERE {rows}")
    elif part < 0.85:
        connection.execute(rng.choice(_SCHEMAS).format(table=table, column=column))
    elif part < 0.9:
        sql = rng.choice(_SCHEMAS).format(table=table, column=column)
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))
    elif part < 0.95:
        connection.execute(
            "UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (rng.choice((0, 1, 2, 3, 10**6)), table)
        )
    else:
        connection.execute(f"PRAGMA {rng.choice(('user_version', 'application_id'))} = {rng.choice((0, 1, 2, 99, -1))}")


_SCHEMAS = (
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN UPDATE {table} SET {column} = randomblob(1000000000); END",
    "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "CREATE TABLE extra (a, b GENERATED ALWAYS AS (hex(zeroblob(500000000))))",
    "CREATE INDEX i ON {table} ({column})",
    "CREATE VIRTUAL TABLE f USING fts5(x)",
    "CREATE TABLE {table} (x)",
    "ALTER TABLE {table} ADD COLUMN extra",
    "ALTER TABLE {table} RENAME COLUMN {column} TO extra",
    "CREATE VIEW {table} AS SELECT 1",
)


def change_pages(data: bytes, rng: Random) -> bytes:
    """Headers of SQLite's pages and their cells."""
    size = int.from_bytes(data[16:18], "big") if len(data) > 100 else 0
    size = 65536 if size == 1 else size
    if size < 512 or len(data) < size:
        return flip(data, rng)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        page = rng.randrange(max(1, len(data) // size)) * size
        at = page + (100 if page == 0 else 0) + (rng.randrange(40) if rng.random() < 0.7 else rng.randrange(size))
        if at < len(changed):
            changed[at] = rng.choice((0, 1, 2, 5, 10, 13, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


# -- pictures -----------------------------------------------------------------------------------------------------


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


# -- traps --------------------------------------------------------------------------------------------------------


def link_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file inside a folder of data becomes a link to a file outside."""
    kind = rng.choice(("bin", *(name for name in KINDS)))
    inside = [name for name in tree if "/" in name]
    name = rng.choice(inside)
    target = rng.choice(
        (f"{{canary}}/secret.{kind}", f"../../canary/secret.{kind}", "{canary}", "/dev/zero", "/etc/passwd", name)
    )
    if "/" in name and rng.random() < 0.2:
        parent = name.rpartition("/")[0]
        if "/" in parent:
            return {
                **{other: data for other, data in tree.items() if not other.startswith(parent)},
                parent: Link("{canary}"),
            }
    return {**tree, name: Link(target)}


def pipe(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file becomes a pipe, which waits forever for a writer."""
    return {**tree, rng.choice(list(tree)): Fifo()}


def foreign(samples: dict[str, list[Tree]], tree: Tree, rng: Random) -> Tree:
    """The content of another kind under this name, or the head of one and the body of the other."""
    if not tree:
        return tree
    other = rng.choice(
        [data for data in rng.choice(rng.choice(list(samples.values()))).values() if isinstance(data, bytes)]
    )
    name = rng.choice(list(tree))
    length = rng.choice((8, 64, 512))
    mixed = other if rng.random() < 0.6 or not isinstance(tree[name], bytes) else other[:length] + tree[name][length:]
    return {**tree, name: mixed}


def gone(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file is missing, empty, or a folder."""
    name = rng.choice(list(tree))
    rest = {other: data for other, data in tree.items() if other != name}
    return rng.choice((rest, {**tree, name: b""}, {**rest, f"{name}/inside": b"x"}))


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


def zarr_code(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Codecs that would run code, read other files or take much memory."""
    meta = next((name for name in tree if name.endswith((".zarray", "zarr.json"))), None)
    if meta is None or not isinstance(tree[meta], bytes):
        return tree
    document = json.loads(tree[meta])
    codec = rng.choice(("pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "categorize", "lz4", "lzma", "bz2",
                        "gzip", "fixedscaleoffset", "astype", "delta", "packbits", "zfpy", "pcodec", "n5_wrapper",
                        "numcodecs.pickle", "numcodecs.json2", "sharding_indexed", "transpose", "crc32c", "base64",
                        "quantize", "bitround"))  # fmt: skip
    extra = rng.choice(
        (
            {},
            {"dtype": "|O"},
            {"encode_dtype": "<f4", "decode_dtype": "|O"},
            {"level": 10**9},
            {"keepbits": 99},
            {"order": [0, 0, 9]},
        )
    )
    if "zarr_format" in document and document.get("zarr_format") == 2:
        target = rng.choice(("filters", "compressor"))
        document[target] = [{"id": codec, **extra}] if target == "filters" else {"id": codec, **extra}
        if rng.random() < 0.7:
            document["dtype"] = rng.choice(("|O", "|O", "<U9", "|V8", document["dtype"]))
            document["fill_value"] = rng.choice((None, 0, "", "gASVAA==", float("nan")))
    else:
        codecs = document.setdefault("codecs", [])
        codecs.insert(rng.randrange(len(codecs) + 1), {"name": codec, "configuration": extra})
        if rng.random() < 0.3:
            document["data_type"] = rng.choice(
                ("object", "string", "variable_length_bytes", {"name": "struct"}, "r8", "r99999999")
            )
    changed: Tree = {**tree, meta: dumps(document)}
    for name in changed:
        if name != meta and rng.random() < 0.7:
            changed[name] = pickle.dumps(np.array([Executed()] * 2, object), 2) if rng.random() < 0.5 else PICKLE
    return changed


def zarr_bomb(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Absurd shapes and chunks, and chunks that grow when they are decoded."""
    meta = next((name for name in tree if name.endswith((".zarray", "zarr.json"))), None)
    if meta is None or not isinstance(tree[meta], bytes):
        return tree
    document = json.loads(tree[meta])
    shape = rng.choice(
        ([2**40, 2**20], [10**6, 1000], [10**9, 10], [48, 2**40], [48, 10**8], [0, 0], [-1, 10], [10**12, 1])
    )
    if document.get("zarr_format") == 2:
        document["shape"], document["chunks"] = (
            shape,
            rng.choice((shape, document["chunks"], [1, 1], [0, 1], [2**40, 2**40])),
        )
        document["compressor"] = {"id": "zlib", "level": 1}
    else:
        document["shape"] = shape
        grid = document.setdefault("chunk_grid", {}).setdefault("configuration", {})
        grid["chunk_shape"] = rng.choice((shape, [1, 1], [16, 10], [10**9, 10**9], [0, 1]))
    bomb = zlib.compress(b"\0" * 10**7, 9)
    return {
        name: dumps(document) if name == meta else bomb if rng.random() < 0.5 else data for name, data in tree.items()
    }


def hdf5_trap(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """HDF5 that points outside: external links and storage, virtual data sets; or that claims huge arrays."""
    import h5py

    path = workshop / "trap.h5"
    [main] = tree
    matlab = main.endswith(".mat")
    names = ("XAll", "YAll", "LAll") if matlab else ("x",)
    trap = rng.randrange(0 if matlab else 1, 9)  # a link out of a file that the user opened is the user's choice
    with h5py.File(path, "w", userblock_size=512) as file:
        for name in names:
            if name != names[0] and rng.random() < 0.7:
                file.create_dataset(name, data=np.ones((4, 48)))
            elif trap == 0:
                file[name] = h5py.ExternalLink(rng.choice(("../canary/secret.hdf5", "../canary/secret.mat73")), "/x")
            elif trap == 1:
                file.create_dataset(name, (4, 48), "u1", external=[("../canary/secret.bin", 0, 192)])
            elif trap == 2:
                layout = h5py.VirtualLayout(shape=(48, 10), dtype="f4")
                layout[:] = h5py.VirtualSource("../canary/secret.hdf5", "x", shape=(48, 10))
                file.create_virtual_dataset(name, layout)
            elif trap == 3:
                file.create_dataset(
                    name,
                    rng.choice(((2**33, 2**20), (10**6, 10**4), (48, 2**40), (10**9, 4))),
                    "f8",
                    chunks=rng.choice((True, (1, 1), (1000, 1000))),
                )
            elif trap == 4:
                file.create_dataset(name, (4000, 3000), "f4", chunks=(4000, 3000), compression="gzip", fillvalue=1)
                file[name][:1, :1] = 0
            elif trap == 5:
                file[name] = h5py.SoftLink(rng.choice((f"/{name}", "/missing", "/")))
            elif trap == 6:
                kind = rng.choice(
                    (
                        h5py.string_dtype(),
                        h5py.ref_dtype,
                        np.dtype([("a", "f4"), ("b", "i8")]),
                        h5py.vlen_dtype("i4"),
                        np.dtype("S9"),
                        np.dtype("c16"),
                    )
                )
                file.create_dataset(name, (4, 48), kind)
            elif trap == 7:
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = rng.choice(
                    (np.uint64(48), np.uint64(2**63), np.int64(-1), 1e300, "x", np.arange(3))
                )
                group["data"], group["ir"] = (
                    np.ones(5),
                    np.array(rng.choice(([0, 1, 2, 3, 4], [-1] * 5, [2**40] * 5, [0.5] * 5))),
                )
                group["jc"] = np.array(rng.choice(([0, 2, 5], [0, 5, 2], [0, 2**40], [-1, 5], [[0, 5]])))
            else:
                file.create_dataset(name, shape=rng.choice(((), (0,), (0, 0), (1,) * 30)), dtype="f4")
        if matlab and trap == 8:
            group = file
            for _ in range(200):
                group = group.create_group("deep")
    content = bytearray(path.read_bytes())
    path.unlink()
    if matlab:
        content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM"
    return {main: bytes(content)}


def parquet_bomb(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Very many rows or columns in few bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    shape = rng.choice(((2 * 10**6, 3), (10, 5000), (2 * 10**5, 1), (3, 1)))
    key = workshop / f"bomb-{shape[0]}-{shape[1]}.parquet"
    if not key.exists():
        if shape[1] == 1:
            lists = pa.array([[0.0] * 10] * shape[0] if shape[0] < 10**4 else [[]] * shape[0], pa.list_(pa.float32()))
            table = pa.table({"x": lists})
        else:
            zeros = pa.array(np.zeros(shape[0], np.float32))
            table = pa.table({f"c{i}": zeros for i in range(shape[1])})
        parquet.write_table(table, key, compression="zstd")
    data = key.read_bytes()
    data = change_footer(data, rng) if rng.random() < 0.5 else data
    return dict.fromkeys(tree, data)


def captions_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Captions that name files outside, ids twice, absurd fields."""
    name = rng.choice(
        (
            "../canary/secret.bin",
            "/etc/passwd",
            "..",
            "images/../../x",
            "\0",
            "a" * 300,
            "out.png",
            "C:\\x",
            "images",
            ".",
            "\ud800",
            "\x1b[2J",
        )
    )
    row = {
        "image": name,
        "text": rng.choice(("x", "", None, 5, ["a"], "y" * 10**6, {"a": 1})),
        "labels": rng.choice(([], "a;b", [1], "x" * 10**5, None, ["\ud800"])),
        "id": rng.choice(("", "k1", 7, None, "x" * 10**4)),
    }
    extra: Tree = {
        "photos/out.png": Link(rng.choice(("{canary}/secret.image", "../../canary/secret.image", "/etc/passwd")))
    }
    if rng.random() < 0.5:
        extra["photos/captions.jsonl"] = (
            dumps(row)
            + b"\n"
            + rng.choice(
                (b"", b"[" * 10**5, b"{}", b'{"image": NaN}', b"9" * 10**5, b'{"image": ' + b"9" * 6000 + b"}")
            )
        )
        tree = {key: data for key, data in tree.items() if not key.endswith(".csv")}
    else:
        line = f'"{name}","text","{row["labels"]}","{row["id"]}"\n'
        extra["photos/captions.csv"] = b"image,caption,labels,id\n" + line.encode(
            "utf-8", "surrogatepass"
        ) * rng.choice((1, 2))
    if rng.random() < 0.2:
        extra["photos/5.txt"] = rng.choice((Link("{canary}/secret.bin"), Fifo(), b"\xff" * 10**6))
    return {**tree, **extra}


def names_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A collection whose state names models and encoders outside of its folder."""
    path = workshop / "names.db"
    data = tree.get("c.collection/items.db")
    if not isinstance(data, bytes):
        return tree
    path.write_bytes(data)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
        [(content,)] = connection.execute("SELECT content FROM state").fetchall()
        state = json.loads(content)
        field = rng.choice(("model", "image_encoder", "text_encoder"))
        state[field] = rng.choice(
            ("x/../../../canary/secret", "../../canary/secret.model", "/etc/passwd", "\0", "x" * 5000, ".", "")
        )
        text = json.dumps(state)
        connection.execute("UPDATE state SET content = ?, checksum = ?", (text, zlib.crc32(text.encode())))
    except sqlite3.Error:
        pass
    finally:
        connection.close()
    content = bytearray(path.read_bytes())
    path.unlink()
    content[18:20] = b"\x02\x02"
    return {**tree, "c.collection/items.db": bytes(content)}


# -- which kind gets what -----------------------------------------------------------------------------------------


def _mutator_of(name: str, kind: str) -> Bytes | None:
    """The structural mutator for one file, by its name."""
    if name.endswith(".npy"):
        return change_npy
    if name.endswith(".npz"):
        return change_npz
    if name.endswith(".zip"):
        return change_zarr_zip
    if kind == "mat5":
        return change_mat
    if name.endswith((".parquet", ".pq")):
        return change_footer
    if name.endswith((".safetensors", ".encoder")) or "/model-" in name:
        return change_safetensors
    if name.endswith((".json", ".zarray", ".zattrs", ".zgroup")):
        return change_json
    if name.endswith((".yaml",)):
        return change_yaml
    if name.endswith((".csv", ".jsonl", "address.txt")):
        return change_lines
    if name.endswith((".fhi", ".db")):
        return change_pages
    return change_png if name.endswith(".png") else None


TRAPS: dict[str, tuple[Trap, ...]] = {
    "zarr": (zarr_code, zarr_bomb, zarr_code, zarr_bomb), "mat73": (hdf5_trap,) * 4, "hdf5": (hdf5_trap,) * 4,
    "parquet": (parquet_bomb,), "photos": (captions_out,) * 6, "collection": (names_out,) * 2, "image": (picture_bomb,),
}  # fmt: skip
PIPE_SHARE = 0.2
TRAP_SHARE = {"zarr": 0.4, "mat73": 0.5, "hdf5": 0.3, "photos": 0.6, "collection": 0.15}


def mutated(kind: str, samples: dict[str, list[Tree]], rng: Random, workshop: Path) -> tuple[Tree, list[str]]:
    """A hostile tree of a kind, and the names of what was done to it."""
    tree, applied = dict(rng.choice(samples[kind])), list[str]()
    if rng.random() < TRAP_SHARE.get(kind, 0.04):
        folder = any("/" in name for name in tree)
        pipes = () if kind == "hdf5" else (pipe,)  # the user opens that file, with h5py
        trap = rng.choice((*TRAPS.get(kind, ()), gone, *pipes, *((link_out,) if folder else ())))
        if trap is not pipe or rng.random() < PIPE_SHARE:  # pipes are few: each that is waited for takes long
            with contextlib.suppress(Exception):  # an earlier trap has taken what this one needs
                tree = trap(tree, rng, workshop)
                applied.append(trap.__name__)
    if rng.random() < 0.04:
        tree = foreign(samples, tree, rng)
        applied.append("foreign")
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if not applied else rng.choice((0, 0, 1))):
        names = [name for name, data in tree.items() if isinstance(data, bytes)]
        if names:
            name = rng.choice(names)
            mutator = _mutator(name, kind, rng, workshop)
            try:
                tree[name] = mutator(tree[name], rng)  # type: ignore[arg-type]
            except Exception:  # an earlier change has made the format unreadable
                tree[name] = flip(tree[name], rng)  # type: ignore[arg-type]
            applied.append(mutator.__name__)
    return tree, applied


def _mutator(name: str, kind: str, rng: Random, workshop: Path) -> Bytes:
    if name.endswith((".db", ".fhi")) and rng.random() < 0.4:

        def change_rows(data: bytes, rng: Random) -> bytes:
            return change_sqlite(data, rng, workshop)

        return change_rows
    special = _mutator_of(name, kind)
    return special if special is not None and rng.random() < 0.55 else rng.choice(PLAIN)
