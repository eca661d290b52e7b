"""DCMH: the similarity of labels as the likelihood of products of codes, one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from fusehash.errors import DataError
from fusehash.hashers.deep.pixels import Shape, convolution_widths, convolved, flat_width
from fusehash.hashers.deep.skeleton import FLOAT_BYTES, DeepHasher, through_layers
from fusehash.numerics.arrays import Array, namespace
from fusehash.parameters import Progress, Rule, integer, optional, real
from fusehash.views import PairedViews

IMAGES_AT_ONCE = 256  # while encoding pixels
COLUMNS_AT_ONCE = 16_384  # buffered outputs that a batch is compared with at a time
LAST_RATE = 1e-6


def is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 3 and all(map(integer(1).accepts, value))


class DCMH(DeepHasher):
    """Deep Cross-Modal Hashing: products of codes follow shared labels.

    S_ij = 1 if items i and j share a label, else 0. F and G (n x K) are the outputs of the heads for all training
    items, kept from the last time an item was in a batch; T = F G' / 2:

        J = sum_ij (log(1 + e^T_ij) - S_ij T_ij) + gamma (|B - F|^2 + |B - G|^2) + eta (|F'1|^2 + |G'1|^2)
        B = sgn(F + G)
        dJ/dF_b = (sigmoid(T) - S) G / 2 + 2 gamma (F_b - B_b) + 2 eta 1'F,   over b n, for a batch of b items

    Every epoch makes n / b steps of the image head, as many of the text head, then B is set. A batch is drawn from all
    items again at every step. At search time each view uses its own head.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, image_hidden : int, default 8192, 0
        Width of the hidden layer of the text head and of the image head; 0 for none, as for the authors' image.
    image_shape : (int, int, int), optional
        (height, width, channels) of the images whose pixels are the rows of the image view. Its head is then a
        convolutional network, trained from random weights (see Notes).
    epochs, batch_size : int, default 100, 128
        Passes over the rows, pairs per step.
    learning_rate : float, default 10^-1.5
        First rate of gradient descent; it falls to 1e-6.
    gamma, eta : float, default 1
        Weights of quantization and of balance.
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows.
    objective_ : ndarray of shape (epochs,)
        Mean of J over its steps, per pair of items, in every epoch.

    Notes
    -----
    The authors train CNN-F through for 500 epochs; here the image is a vector of features with a linear head, as on
    their last layer. Their rate works on features whose entries are about 1, to which rows are scaled. Narrow views
    take ten times as much (.3 for 128 features); on deep features a hidden layer of 1,024 units in both heads,
    center=True and a rate of .1 did best (docs/deep.md). Adam was tried and is worse: its steps are too long for
    outputs that are compared with those of earlier steps. A public rewrite reports its best epoch on the queries; here
    the last epoch counts. With `image_shape` the path is that of the authors, from pixels to codes, with a network
    of our own: convolutions of 3 x 3 pixels with stride 2 and 32, 64, 128, ... channels, each with ReLU, down to at
    most 4 pixels of height or width, then linear layers. The mean image is subtracted and every image scaled to unit
    length. Encoding is in NumPy there, too. Beyond F, G and the labels, memory does not depend on the number of rows.

    References
    ----------
    Q.-Y. Jiang, W.-J. Li. Deep Cross-Modal Hashing. CVPR 2017.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.DCMH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "dcmh"
    summary: ClassVar[str] = "deep heads whose products follow shared labels"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "image_hidden": DeepHasher.PARAMETERS["hidden"],
        "image_shape": optional(Rule("three integers of at least 1: height, width, channels", is_shape)),
        "gamma": real(),
        "eta": real(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 8192,
        image_hidden: int = 0,
        image_shape: Sequence[int] | None = None,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 10**-1.5,
        gamma: float = 1.0,
        eta: float = 1.0,
        center: bool = False,
        device: str | None = None,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden = hidden
        self.image_hidden = image_hidden
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.gamma = gamma
        self.eta = eta
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(filter(None, (self.image_hidden,))), tuple(filter(None, (self.hidden,)))

    @property
    def _shape(self) -> Shape | None:
        if self.image_shape is None:
            return None
        height, width, channels = self.image_shape
        return height, width, channels

    def _is_centered(self, view: str, views: PairedViews) -> bool:
        return self.center or (self._shape is not None and view == views.names[0])

    def _fit(self, views: PairedViews, labels: Any) -> None:
        image, shape = views.names[0], self._shape
        if shape is not None and np.prod(shape) != (width := views.n_features[image]):
            raise DataError(f"Rows of view '{image}' must hold images of {shape} pixels. They have {width} features.")
        super()._fit(views, labels)

    def _project_block(self, block: Array, view: str) -> Array:
        layers = self._double(view)
        if (shape := self._shape) is None or len(layers[0]) == block.shape[1]:
            return super()._project_block(block, view)
        X, n_kernels = self._prepare(block, view), 2 * len(convolution_widths(shape))
        some = [X[start : start + IMAGES_AT_ONCE] for start in range(0, len(X), IMAGES_AT_ONCE)]
        parts = [through_layers(convolved(x, layers[:n_kernels], shape), layers[n_kernels:]) for x in some]
        return namespace(X).concat(parts, axis=0)

    def _contents(self, views: PairedViews) -> dict[str, int]:
        held = f"outputs and codes of {views.n_rows:,} rows"
        return {**super()._contents(views), held: 3 * FLOAT_BYTES * views.n_rows * self.n_bits}

    def _widths(self, views: PairedViews) -> list[int]:
        widths = super()._widths(views)
        return widths if self._shape is None else [flat_width(self._shape), *widths[1:]]

    def _learn(self, training: Any, labels: Any) -> Any:
        heads = training.heads(self._layers(), self.n_bits, image_shape=self._shape)
        optimizers = [training.sgd(head.weights, self.learning_rate) for head in heads]
        L = training.tensor(labels)
        F, G = (training.normal(training.n_rows, self.n_bits) for _ in heads)
        B = (F + G).sign()
        n_steps = max(1, training.n_rows // self.batch_size)
        rates = np.linspace(self.learning_rate, LAST_RATE, self.epochs + 1)
        steps = [
            training.recorded(self._step(training, head, (own, other, B, L), optimizer))
            for head, own, other, optimizer in zip(heads, (F, G), (G, F), optimizers, strict=True)
        ]
        for epoch in training.epochs(self.epochs):
            for optimizer in optimizers:
                training.set_rate(optimizer, rates[epoch])
            for name, step in zip((training.image, training.text), steps, strict=True):
                for rows in training.draw(n_steps, self.batch_size):
                    step(training.rows(name, rows), training.index(rows))
            B[:] = (F + G).sign()
        return heads

    def _step(self, training: Any, head: Any, known: tuple[Array, ...], optimizer: Any) -> Callable[..., None]:
        """A step of one head; F of its outputs, G of the other head, B and L are `known`."""
        F, G, B, L = known

        def step(X: Any, rows: Any) -> None:
            output, divisor = head(X), len(F) * len(X)
            F[rows] = output.detach()
            gradient, loss = self._gradient(rows, F, G, B, L)
            training.step_along(output, gradient / divisor, loss / divisor, optimizer)

        return step

    def _gradient(self, rows: Array, F: Array, G: Array, B: Array, L: Array) -> tuple[Array, Array]:
        """dJ/dF of a batch, and the part of J that has this batch in it."""
        gradient, loss = quantization(F[rows], B[rows], F.sum(0), self.gamma, self.eta)
        for start in range(0, len(G), COLUMNS_AT_ONCE):
            columns = slice(start, start + COLUMNS_AT_ONCE)
            more, cost = likelihood(F[rows], G[columns], shared_labels(L[rows], L[columns]))
            gradient, loss = gradient + more, loss + cost
        return gradient, loss


def shared_labels(L: Array, others: Array) -> Array:
    """S: whether two items share a label."""
    shared = L @ others.T
    return namespace(L).astype(shared > 0.0, shared.dtype)


def likelihood(F: Array, G: Array, S: Array) -> tuple[Array, Array]:
    """The gradient (sigmoid(T) - S) G / 2 of the negative log-likelihood with respect to F, and its value."""
    xp = namespace(F)
    T = F @ G.T / 2.0
    value = (xp.log1p(xp.exp(-xp.abs(T))) + (T + xp.abs(T)) / 2.0 - S * T).sum()
    sigmoid = (1.0 + xp.tanh(T / 2.0)) / 2.0
    return (sigmoid - S) @ G / 2.0, value


def quantization(F: Array, B: Array, total: Array, gamma: float, eta: float) -> tuple[Array, Array]:
    """The gradient 2 gamma (F - B) + 2 eta 1'F of the other terms, and their value; `total` is the sum of all rows."""
    gradient = 2.0 * gamma * (F - B) + 2.0 * eta * total
    return gradient, gamma * ((F - B) ** 2).sum() + eta * (total**2).sum()
