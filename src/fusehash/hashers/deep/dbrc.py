"""DBRC: one layer of bits from which both views are rebuilt. Reconstructed from descriptions of the method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array, namespace
from fusehash.parameters import Progress, Rule, real
from fusehash.views import Floats


class DBRC(DeepHasher):
    """Deep Binary Reconstruction: an auto-encoder of both views whose joint layer becomes binary.

    Each view has an encoder of two layers, a(x); both meet in one joint layer, and decoders of mirrored widths rebuild
    the rows:

        h = tanh(s (W_x a(x) + W_y a(y) + b)),   s > 0 trainable, one per bit
        loss = mean of |D_x h - x|^2 + |D_y h - y|^2 + penalty mean(1 / s^2)

    The last term drives s up, so that h becomes binary. Every batch is shown three times: with both views, with the
    image alone and with the text alone, and both views are rebuilt each time; so one view gives a code.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, epochs, batch_size : int, default 512, 100, 128
        Width of the two layers of each encoder (0: none), passes over the rows, pairs per step.
    learning_rate, penalty : float, default .001, .01
        Rate of Adam, and the weight of 1 / s^2.
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows. The last bias is b in both; fusion adds it once.
    objective_ : ndarray of shape (epochs,)
        Mean loss of every epoch.

    Notes
    -----
    No program is public, and widths, rates and epochs are not printed where we could read. What is certain: the joint
    layer, the trainable tanh, the reconstruction of both views, no labels. The authors start from stacked restricted
    Boltzmann machines; here the layers start at random. Memory does not depend on the number of rows.

    References
    ----------
    X. Li, D. Hu, F. Nie. Deep Binary Reconstruction for Cross-modal Hashing. ACM MM 2017; TMM 2019.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.DBRC(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "dbrc"
    summary: ClassVar[str] = "auto-encoder of both views with one joint layer of bits"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"penalty": real()}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 512,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 0.001,
        penalty: float = 0.01,
        center: bool = False,
        device: str | None = None,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        layers = (self.hidden, self.hidden) if self.hidden else ()
        return layers, layers

    def _learn(self, training: Any, labels: Any) -> Any:
        heads = training.heads(self._layers(), self.n_bits)
        decoders = training.decoders(self._layers(), self.n_bits)
        image, text = heads
        text.weights[-1] = image.weights[-1]  # one b for both views
        log_s = training.parameter(training.zeros(self.n_bits))
        weights = [*image.weights, *text.weights[:-1], *decoders[0].weights, *decoders[1].weights, log_s]
        optimizer = training.adam(weights, self.learning_rate)

        @training.recorded
        def step(*pair: Any) -> None:
            of_image, of_text = image(pair[0]), text(pair[1])
            joint = (of_image + of_text - image.weights[-1], of_image, of_text)
            training.step(joint_loss(joint, log_s.exp(), decoders, pair, self.penalty), optimizer)

        for _ in training.epochs(self.epochs):
            for rows in training.batches(self.batch_size, drop_last=False):
                step(*training.pair(rows))
        for head in heads:
            head.scale_outputs(log_s.exp())
        return heads

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        first = next(iter(blocks))
        return sum(self._project_block(X, name) for name, X in blocks.items()) - self._double(first)[-1]


def joint_loss(joint: Sequence[Array], s: Array, decoders: Sequence[Any], pair: Sequence[Array], penalty: float) -> Any:
    """Both views rebuilt from the joint layer tanh(s z) of both, of the image and of the text, and lambda |1 / s|^2."""
    loss = penalty * (1.0 / s**2).mean()
    for z in joint:
        h = namespace(z).tanh(s * z)
        loss = loss + sum(rebuilding_error(D(h), X) for D, X in zip(decoders, pair, strict=True))
    return loss


def rebuilding_error(rebuilt: Array, X: Array) -> Array:
    """The mean squared distance of rows from what they should be."""
    return ((rebuilt - X) ** 2).sum(1).mean()
