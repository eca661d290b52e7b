"""The engine "torch": the exact search of gpu.py behind a HammingIndex (extra ``gpu``).

"torch" takes the first CUDA device and, where there is none, the processor; "torch:cuda:1" or "torch:cpu" name one.
Codes are sent to the device at the first search and stay there until the index changes or lets go of them.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import DataError, ParameterError
from fusehash.numerics.arrays import host
from fusehash.search.engines.scan import Distances, Ints
from fusehash.search.engines.torch import search as gpu
from fusehash.search.rows import Rows


class TorchEngine:
    """Searches with PyTorch on ``device``; None for the first CUDA device or else the processor."""

    def __init__(self, device: str | None = None) -> None:
        self.name = "torch" if device is None else f"torch:{device}"
        self._wanted = device
        self._lock = threading.Lock()
        self._rows: weakref.ref[Rows] | None = None  # weak: what an index has let go of is not kept here
        self._resident: gpu.Resident | None = None
        self._device: Any = None
        if device is not None:
            self._find()  # a name that is none is said now, not at the first search

    def top_k(
        self, rows: Rows, queries: Codes, k: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Distances, Ints]:
        distances, positions = gpu.top_k(self._sent(rows), self._send(queries), k, allowed=self._send(allowed))
        return host(distances), host(positions)

    def within(
        self, rows: Rows, queries: Codes, radius: int, *, allowed: Ints | None = None, threads: int | None = None
    ) -> tuple[Ints, Distances, Ints]:
        offsets, distances, positions = gpu.within(
            self._sent(rows), self._send(queries), radius, allowed=self._send(allowed)
        )
        return host(offsets), host(distances), host(positions)

    def stats(self) -> dict[str, Any]:
        resident = self._resident
        return {
            "device": None if self._device is None else str(self._device),
            "device_bytes": 0 if resident is None else resident.nbytes,
        }

    def _find(self) -> Any:
        """The device, looked for once."""
        if self._device is None:
            torch = _import()
            name = self._wanted or ("cuda" if torch.cuda.is_available() else "cpu")
            try:
                self._device = torch.empty(0, device=name).device
            except (RuntimeError, AssertionError) as error:  # unknown name, no such device, built without CUDA
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ParameterError(
                    "HammingIndex", "engine", f"'torch:' and a device that PyTorch has here ({reason})", self.name
                ) from None
        return self._device

    def _send(self, array: Any) -> Any:
        return None if array is None else _import().tensor(np.ascontiguousarray(array), device=self._find())

    def _sent(self, rows: Rows) -> gpu.Resident:
        """These rows on the device."""
        with self._lock:
            if self._resident is None or self._rows is None or self._rows() is not rows:
                self._resident = None  # its memory is free before more is asked for
                self._resident = gpu.Resident(self._send(rows.codes))
                self._rows = weakref.ref(rows, self._let_go)
            return self._resident

    def _let_go(self, gone: weakref.ref[Rows]) -> None:
        if gone is self._rows:
            self._resident = None


def _import() -> Any:
    try:
        import array_api_compat  # noqa: F401
        import torch
    except ImportError as error:
        raise DataError(
            "The torch engine needs the packages torch and array-api-compat; pip install 'fusehash[gpu]' brings them."
        ) from error
    return torch
