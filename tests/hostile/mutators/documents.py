"""JSON, YAML, CSV and lines of JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hostile.mutators.plain import flip
from hostile.mutators.values import VALUES


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


def change_yaml(data: bytes, rng: Random) -> bytes:
    return yaml_bomb(data, rng) if rng.random() < 0.1 else change_lines(data, rng)
