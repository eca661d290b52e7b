"""Weights in torch's old file format (.pth), read without torch: numbers and their shapes, and never any code.

Such a file is a program for a small stack machine, followed by raw numbers: three constants, a dict of tensors, the
list of storages, and for each storage its length and its little-endian values. `read_weights` runs only the operations
of a fixed list that build numbers, strings, tuples, lists and dicts; the only functions that it knows by name are those
of `_NAMES`, and it does not import them.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.encoders.base import Single
from fusehash.errors import DataError

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
MAX_OPERATIONS = 1_000_000
_MARK = object()
_NAMES = {
    "collections OrderedDict": "dict",
    "torch._utils _rebuild_tensor_v2": "tensor",
    "torch FloatStorage": "<f4",
    "torch LongStorage": "<i8",
}


@dataclass(frozen=True)
class _Storage:
    """A run of numbers that tensors are made of."""

    key: str
    dtype: str
    size: int


@dataclass(frozen=True)
class _Tensor:
    """A part of a storage, with its strides in numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_weights(path: Path, sha256: str) -> dict[str, Single]:
    """The arrays of a .pth file by name, in C order.

    Parameters
    ----------
    path : Path
        The file.
    sha256 : str
        What its digest must be, so that nothing but the known weights is ever read.

    Raises
    ------
    DataError
        If the file is another one, or is damaged.
    """
    subject = f"The weights {path.name}"
    with trust.open_file(path, subject) as file:
        if trust.sha256_of(file) != sha256:
            raise DataError(f"{subject} must be those that this fusehash knows. They are others, or damaged.")
        file.seek(0)
        return parse_weights(file, subject)


def parse_weights(file: BinaryIO, subject: str) -> dict[str, Single]:
    """The arrays in an open file; see `read_weights`."""
    size = os.fstat(file.fileno()).st_size
    try:
        if _Machine(file).run() != MAGIC or _Machine(file).run() != PROTOCOL:
            raise ValueError("another format")
        _Machine(file).run()  # sizes of numbers on the machine that wrote it; the values are little-endian
        tensors, keys = _Machine(file).run(), _Machine(file).run()
        dtypes = {each.storage.key: each.storage for each in tensors.values() if isinstance(each, _Tensor)}
        values: dict[str, Any] = {}
        for key in keys:
            (count,) = struct.unpack("<q", _exactly(file, 8))
            if count != dtypes[key].size:
                raise ValueError("a storage has another size")
            n_bytes = count * np.dtype(dtypes[key].dtype).itemsize
            trust.check_size(subject, n_bytes, size)
            values[key] = np.frombuffer(_exactly(file, n_bytes), dtypes[key].dtype)
        named = ((name, tensor) for name, tensor in tensors.items() if isinstance(tensor, _Tensor))
        return {name: _array(tensor, values[tensor.storage.key]) for name, tensor in named}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{subject} must be an intact file of torch. It is damaged or of another kind.") from error


def _array(tensor: _Tensor, values: Any) -> Single:
    """The numbers of a tensor; kernels are stored permuted, so strides count."""
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    count = math.prod(int(side) for side in tensor.shape)
    if (
        min((tensor.offset, *tensor.shape, *tensor.strides)) < 0
        or count > len(values)
        or (count and last >= len(values))
    ):
        raise ValueError("a tensor is outside of its storage")
    strides = [stride * values.itemsize for stride in tensor.strides]
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides, writeable=False)
    return np.array(view, dtype=np.float32, order="C")


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = file.read(count - len(data))
        if not part:
            raise ValueError("the file ends too early")
        data += part
    return data


class _Machine:
    """The stack machine: one run reads one value."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_OPERATIONS):
            operation = _exactly(self.file, 1)
            if operation == b".":
                (value,) = self.stack
                return value
            if operation not in _OPERATIONS:
                raise ValueError(f"the operation {operation!r} is not allowed")
            _OPERATIONS[operation](self)
        raise ValueError("too many operations")

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, _exactly(self.file, struct.calcsize(layout)))[0])

    def line(self) -> str:
        text = b""
        while (byte := _exactly(self.file, 1)) != b"\n":
            text += byte
            if len(text) > 200:
                raise ValueError("a name is too long")
        return text.decode("ascii")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("there is no mark")
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        return values

    def name(self) -> None:
        self.push(_NAMES[f"{self.line()} {self.line()}"])

    def text(self) -> None:
        size = self.number("<I")
        if size > 1000:
            raise ValueError("a text is too long")
        self.push(_exactly(self.file, size).decode("utf-8"))

    def long_number(self) -> None:
        self.push(int.from_bytes(_exactly(self.file, self.number("<B")), "little", signed=True))

    def storage(self) -> None:
        kind, dtype, key, _, size, *_ = self.stack.pop()
        if kind != "storage" or dtype not in ("<f4", "<i8") or not isinstance(key, str) or type(size) is not int:
            raise ValueError("not a storage")
        self.push(_Storage(key, dtype, size))

    def call(self) -> None:
        function, given = self.last(2)
        if function == "dict" and given == ():
            self.push({})
        elif function == "tensor" and isinstance(given[0], _Storage):
            storage, offset, shape, strides = given[:4]
            if not all(type(number) is int for number in (offset, *shape, *strides)):
                raise ValueError("not the shape of a tensor")
            self.push(_Tensor(storage, offset, tuple(shape), tuple(strides)))
        else:
            raise ValueError("a call that is not allowed")

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(values) % 2 or not all(isinstance(key, str) for key in values[::2]):
            raise ValueError("not the items of a dict")
        target.update(zip(values[::2], values[1::2], strict=True))

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("not a list")
        target.extend(values)


_OPERATIONS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda machine: machine.number("<B"),  # the version of the format
    b"c": _Machine.name,
    b"(": lambda machine: machine.push(_MARK),
    b")": lambda machine: machine.push(()),
    b"]": lambda machine: machine.push([]),
    b"}": lambda machine: machine.push({}),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"K": lambda machine: machine.push(machine.number("<B")),
    b"M": lambda machine: machine.push(machine.number("<H")),
    b"J": lambda machine: machine.push(machine.number("<i")),
    b"\x8a": _Machine.long_number,
    b"X": _Machine.text,
    b"t": lambda machine: machine.push(tuple(machine.since_mark())),
    b"\x85": lambda machine: machine.push(machine.last(1)),
    b"\x86": lambda machine: machine.push(machine.last(2)),
    b"\x87": lambda machine: machine.push(machine.last(3)),
    b"q": lambda machine: machine.memo.__setitem__(machine.number("<B"), machine.stack[-1]),
    b"r": lambda machine: machine.memo.__setitem__(machine.number("<I"), machine.stack[-1]),
    b"h": lambda machine: machine.push(machine.memo[machine.number("<B")]),
    b"j": lambda machine: machine.push(machine.memo[machine.number("<I")]),
    b"Q": _Machine.storage,
    b"R": _Machine.call,
    b"s": lambda machine: machine.set_items(list(machine.last(2))),
    b"u": lambda machine: machine.set_items(machine.since_mark()),
    b"a": lambda machine: machine.extend(list(machine.last(1))),
    b"e": lambda machine: machine.extend(machine.since_mark()),
    b"b": lambda machine: machine.last(1),  # attributes of a dict, which are not needed
}
