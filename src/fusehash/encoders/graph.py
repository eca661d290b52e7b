"""ONNX graphs of convolutions, written as protocol buffers by hand: `onnxruntime` reads them, `onnx` is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fusehash.encoders.base import Single

IR_VERSION, OPERATOR_SET = 8, 13
FLOAT = 1  # type of a tensor
INT, INTS = 2, 7  # types of an attribute


@dataclass
class Graph:
    """A graph with one input and one output; every method adds a node and returns the name of its result."""

    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)

    def constant(self, values: Single) -> str:
        name = f"c{len(self.constants)}"
        shape = b"".join(_number(1, side) for side in values.shape)
        raw = np.ascontiguousarray(values, "<f4").tobytes()
        self.constants.append(shape + _number(2, FLOAT) + _bytes(8, name.encode()) + _bytes(9, raw))
        return name

    def node(self, operation: str, inputs: Sequence[str], **attributes: int | Sequence[int]) -> str:
        name = f"n{len(self.nodes)}"
        parts = [_bytes(1, each.encode()) for each in inputs]
        parts += [_bytes(2, name.encode()), _bytes(4, operation.encode())]
        for attribute, value in attributes.items():
            if isinstance(value, int):
                content = _number(3, value) + _number(20, INT)
            else:
                content = b"".join(_number(8, each) for each in value) + _number(20, INTS)
            parts.append(_bytes(5, _bytes(1, attribute.encode()) + content))
        self.nodes.append(b"".join(parts))
        return name

    def model(self, source: str, shape: Sequence[int], result: str, width: int) -> bytes:
        """The content of an ONNX file: `source` of any number of rows of this shape, `result` of so many columns."""
        graph = [_bytes(1, node) for node in self.nodes]
        graph.append(_bytes(2, b"fusehash"))
        graph += [_bytes(5, constant) for constant in self.constants]
        graph += [_bytes(11, _value(source, shape)), _bytes(12, _value(result, (width,)))]
        versions = _number(1, IR_VERSION) + _bytes(8, _bytes(1, b"") + _number(2, OPERATOR_SET))
        return versions + _bytes(7, b"".join(graph))


def _value(name: str, shape: Sequence[int]) -> bytes:
    """What is known about an input or an output: floats, with any number of rows."""
    sides = _bytes(1, _bytes(2, b"rows")) + b"".join(_bytes(1, _number(1, side)) for side in shape)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, FLOAT) + _bytes(2, sides)))


def _bytes(tag: int, content: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(content)) + content


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; all but the last have the highest bit set."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
