"""DeepHasher: what deep methods share. Two heads on features, one for each view; `_learn` trains them with PyTorch."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash.extras import require
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import checked_means
from fusehash.numerics.memory import check_memory
from fusehash.parameters import Rule, between, flag, integer, real
from fusehash.views import Floats, PairedViews

if TYPE_CHECKING:
    from fusehash.hashers.deep.training import Head, Training

SMALLEST = 1e-300  # length of a row below which it counts as zero
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
        self.means_ = {name: mean if self.center else np.zeros_like(mean) for name, mean in means.items()}
        rows: Any = slice(None)
        if hasattr(self, "max_rows"):
            rows = self._sample_rows(views.n_rows, self.max_rows)
        learned = views if isinstance(rows, slice) else views.rows(rows)
        with Training(learned, self._prepare, self._seed, self.device, self._report) as training:
            heads = self._learn(training, None if labels is None else labels[rows])
            self.heads_ = {name: head.arrays() for name, head in zip(views.names, heads, strict=True)}
            self.objective_ = np.array(training.losses)
        self.codes_ = self._codes_of(views)

    @abstractmethod
    def _learn(self, training: Training, labels: Any) -> tuple[Head, Head]:
        """The trained heads of the image and of the text."""

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of the hidden layers of both heads."""
        layers = (self.hidden,) if self.hidden else ()
        return layers, layers

    def _check_memory(self, views: PairedViews) -> None:
        if self.device is not None and not self.device.startswith("cpu"):
            return
        n_weights = 0
        for width, layers in zip(views.n_features.values(), self._layers(), strict=False):
            widths = [width, *layers, self.n_bits]
            n_weights += sum(a * b for a, b in pairwise(widths))
        owner = type(self).__name__
        check_memory(owner, f"{n_weights:,} weights", WEIGHT_COPIES * FLOAT_BYTES * n_weights)
        n_rows = min(views.n_rows, getattr(self, "max_rows", views.n_rows))
        check_memory(owner, f"{n_rows:,} x {n_rows:,} pairs", self.pair_matrices * FLOAT_BYTES * n_rows**2)

    # -- encoding ------------------------------------------------------------------------------------------------

    def _prepare(self, block: Floats, view: str) -> Floats:
        """Rows as the heads take them."""
        return unit_rows(block - self.means_[view])

    def _project_block(self, block: Floats, view: str) -> Floats:
        X = self._prepare(block, view)
        layers = self._double(view)
        for i in range(0, len(layers), 2):
            X = (np.maximum(X, 0.0) if i else X) @ layers[i] + layers[i + 1]
        return X

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


def unit_rows(X: Floats) -> Floats:
    """Rows scaled to unit length, however large or small their numbers are; a row of zeros stays zero."""
    largest = np.abs(X).max(axis=1, keepdims=True)
    X = X / np.where(largest > SMALLEST, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return X / np.where(length > SMALLEST, length, 1.0)


def _is_share(value: Any) -> bool:
    return between(0.0, 1.0).accepts(value) or (real().accepts(value) and value == 0)
