"""Change a file of ours as somebody does who knows how its checksum is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from fusehash.files import CHECKSUM, checksum_of


def parts(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """The arrays and the entries of the header."""
    with safe_open(str(path), framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def seal(path: Path, arrays: dict[str, np.ndarray[Any, Any]], entries: dict[str, str]) -> None:
    """Write a file with the checksum that belongs to its content."""
    entries = {name: value for name, value in entries.items() if name != CHECKSUM}
    save_file(arrays, str(path), {**entries, CHECKSUM: checksum_of(entries, arrays)})
