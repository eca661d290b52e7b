"""DeepHasher: what deep methods share. Two heads on features, one for each view; `_learn` trains them with PyTorch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.errors import ParameterError
from fusehash.extras import require
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import checked_means
from fusehash.numerics.arrays import Array, host, to_device, to_device_of
from fusehash.numerics.features import unit_rows
from fusehash.numerics.memory import check_memory
from fusehash.parameters import Rule, between, flag, integer, real
from fusehash.views import Floats, PairedViews

if TYPE_CHECKING:
    from fusehash.hashers.deep.training import Head, Training

FLOAT_BYTES = 4
WEIGHT_COPIES = 4  # weights, gradients and two moments of an optimizer


class DeepHasher(CrossModalHasher):
    """Two heads on features: each Linear - ReLU - ... - Linear, one output per bit. The sign of an output is a bit.

    The first view, in the order of the names, has the role of the image and the second that of the text. Rows are
    scaled to unit length, after the mean is subtracted with ``center=True``.

    Training needs PyTorch (``pip install "fusehash[deep]"``) and is done in single precision; on a CPU on one thread,
    so that a seed gives the same codes again. Encoding is two or three products in NumPy. A method implements
    ``_learn(training, labels)``, which returns the two trained heads.
    """

    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    scale_free: ClassVar[bool] = False  # rows are scaled to unit length around the origin of the features
    quadratic: ClassVar[bool] = False
    pair_matrices: ClassVar[int] = 0  # matrices of all pairs of rows that are held at once
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "hidden": integer(0),
        "epochs": integer(1),
        "batch_size": integer(2),
        "learning_rate": real(strict=True),
        "center": flag(),
        "dropout": Rule("0 or a number between 0 and 1", lambda value: _is_share(value)),
    }

    hidden: int
    epochs: int
    batch_size: int
    learning_rate: float
    center: bool
    n_threads = 1  # PyTorch has threads of its own
    heads_: dict[str, list[Floats]]  # W_1, b_1, W_2, b_2, ... of every view
    means_: dict[str, Floats]  # what is subtracted from the rows of every view
    objective_: Floats

    # -- learning ------------------------------------------------------------------------------------------------

    def _fit(self, views: PairedViews, labels: Any) -> None:
        require("torch", f"{type(self).__name__}.fit", extra="deep")
        from fusehash.hashers.deep.training import Training

        means = checked_means(views)
        self.means_ = {name: m if self._is_centered(name, views) else np.zeros_like(m) for name, m in means.items()}
        rows: Any = slice(None)
        if hasattr(self, "max_rows"):
            rows = self._sample_rows(views.n_rows, self.max_rows)
        learned = views if isinstance(rows, slice) else views.rows(rows)
        with Training(learned, self._prepare, self._seed, self.device, self._report) as training:
            heads = self._learn(training, None if labels is None else labels[rows])
            self.heads_ = {name: head.arrays() for name, head in zip(views.names, heads, strict=True)}
            self.objective_ = np.array(training.losses)
        self.codes_ = self._codes_of(views) if self._gpu is None else self._codes_there(views, self._gpu)

    def _is_centered(self, view: str, views: PairedViews) -> bool:
        return self.center

    @abstractmethod
    def _learn(self, training: Training, labels: Any) -> tuple[Head, Head]:
        """The trained heads of the image and of the text."""

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of the hidden layers of both heads."""
        layers = (self.hidden,) if self.hidden else ()
        return layers, layers

    @property
    def _gpu(self) -> str | None:
        """The device, if it is another than the CPU."""
        return None if self.device is None or self.device.startswith("cpu") else self.device

    def _check_params(self) -> None:
        if self.device is not None and self.device.startswith("cupy"):
            raise ParameterError(type(self).__name__, "device", "a device of PyTorch, such as 'cuda'", self.device)

    def _check_memory(self, views: PairedViews) -> None:
        for content, n_bytes in self._contents(views).items():
            check_memory(type(self).__name__, content, n_bytes, self._gpu)

    def _widths(self, views: PairedViews) -> list[int]:
        """How many inputs the linear layers of each head have."""
        return list(views.n_features.values())

    def _contents(self, views: PairedViews) -> dict[str, int]:
        """What training holds at once, and its bytes."""
        n_weights = 0
        for width, layers in zip(self._widths(views), self._layers(), strict=False):
            widths = [width, *layers, self.n_bits]
            n_weights += sum(a * b for a, b in pairwise(widths))
        n = min(views.n_rows, getattr(self, "max_rows", views.n_rows))
        return {
            f"{n_weights:,} weights": WEIGHT_COPIES * FLOAT_BYTES * n_weights,
            f"{n:,} x {n:,} pairs": self.pair_matrices * FLOAT_BYTES * n**2,
        }

    # -- encoding ------------------------------------------------------------------------------------------------

    def _prepare(self, block: Array, view: str) -> Array:
        """Rows as the heads take them, on the device of the block."""
        return unit_rows(block - to_device_of(self.means_[view], block))

    def _project_block(self, block: Array, view: str) -> Array:
        return through_layers(self._prepare(block, view), self._double(view))

    def _codes_there(self, views: PairedViews, device: str) -> bits.Codes:
        """Codes of training pairs as `_codes_of` has them, in double precision on a device."""
        there = copy(self)
        layers = {view: [to_device(layer, device) for layer in self._double(view)] for view in views}
        there.__dict__["_doubles"] = {view: (self.heads_[view], layers[view]) for view in views}
        codes = []
        for rows in views.blocks():
            blocks = {name: to_device(np.asarray(views.dense(name, rows)), device).double() for name in views}
            fused = there._project_complete_block(blocks)
            if fused is None:
                fused = sum(there._project_block(block, name) for name, block in blocks.items())
            codes.append(host(bits.pack(fused)))
        return np.vstack(codes)

    def _double(self, view: str) -> list[Floats]:
        """The layers of a head in double precision; they are stored in single."""
        copies: dict[str, tuple[Any, list[Floats]]] = self.__dict__.setdefault("_doubles", {})
        layers = self.heads_[view]
        if view not in copies or copies[view][0] is not layers:
            if len(layers) < 2 or len(layers) % 2:
                raise ValueError("not the layers of a head")
            copies[view] = layers, [np.asarray(layer, dtype=np.float64) for layer in layers]
        return copies[view][1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_doubles", None)
        return state


def through_layers(X: Array, layers: Sequence[Array]) -> Array:
    """X W_1 + b_1, then for every further layer relu(X) W + b."""
    for i in range(0, len(layers), 2):
        X = (X.clip(0.0) if i else X) @ layers[i] + layers[i + 1]
    return X


def _is_share(value: Any) -> bool:
    return between(0.0, 1.0).accepts(value) or (real().accepts(value) and value == 0)
