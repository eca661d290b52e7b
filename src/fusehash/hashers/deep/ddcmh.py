"""DDCMH: codes from labels, an image head that learns them, and a text head that learns their means."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, integer, rng_for
from fusehash.views import BLOCK_ROWS, Floats

SAMPLE_ITEMS, SWEEPS = 1000, 5  # items whose codes are learned first, and passes over the bits


class DDCMH(DeepHasher):
    """Dual Deep Cross-Modal Hashing: three stages, each of which learns from the one before.

    1. Codes B of the training items from labels alone: min |K S - B B'|^2, S_ij = 1 if two items share a label, else
       -1, bit by bit; of a sample of the items first, then of the others against the sample.
    2. The image head learns B: binary cross-entropy of sigmoid(z). Its codes B_x are [z > 0].
    3. t_i = (l_i L' B_x) / (l_i L' 1) is the mean code of all items, weighted by the labels they share with item i.
       The text head learns t by the same cross-entropy.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, image_hidden : int, default 4096, 4096
        Width of the two hidden layers of the text head, and of the hidden layer of the image head (0: none).
    epochs, batch_size : int, default 50, 128
        Passes over the rows for each head, pairs per step.
    learning_rate : float, default .001
        Rate of Adam.
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows.
    objective_ : ndarray of shape (2 epochs,)
        Mean cross-entropy of every epoch of the image head, then of the text head.

    Notes
    -----
    No program is public; widths, rates and epochs are ours. The authors train AlexNet through. Their codes of labels
    are those of COSDISH, which solves the same problem on one sample of columns after the other. With few classes that
    finds bits that only tell the sample from the rest, so here the sample is settled within itself first.

    References
    ----------
    J.-B. Zhong, L. Zhang, et al. Dual Deep Neural Networks Cross-Modal Hashing. AAAI 2018.
    W.-C. Kang, W.-J. Li, Z.-H. Zhou. Column Sampling Based Discrete Supervised Hashing. AAAI 2016.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.DDCMH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "ddcmh"
    summary: ClassVar[str] = "codes from labels, learned by the image head, their means by the text head"
    supervised: ClassVar[bool] = True
    PARAMETERS: ClassVar[dict[str, Rule]] = {"image_hidden": integer(0)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 4096,
        image_hidden: int = 4096,
        epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 0.001,
        center: bool = False,
        device: str | None = None,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden = hidden
        self.image_hidden = image_hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(filter(None, (self.image_hidden,))), tuple(filter(None, (self.hidden, self.hidden)))

    def _learn(self, training: Any, labels: Any) -> Any:
        image, text = training.heads(self._layers(), self.n_bits)
        B = codes_of_labels(labels, self.n_bits, rng_for(self._seed, "codes"))
        self._fit_head(training, image, training.image, (B + 1.0) / 2.0, first=0)
        with training.no_grad():
            outputs = [image(training.rows(training.image, rows), learning=False) for rows in training.blocks()]
        bits_of_image = np.vstack([(z > 0.0).cpu().numpy() for z in outputs]).astype(np.float64)
        self._fit_head(training, text, training.text, mean_codes(labels, bits_of_image), first=self.epochs)
        return image, text

    def _fit_head(self, training: Any, head: Any, name: str, targets: Floats, first: int) -> None:
        """Binary cross-entropy of the bits of one view against targets in [0, 1]."""
        optimizer = training.adam(head.weights, self.learning_rate)
        T = training.tensor(targets)

        @training.recorded
        def step(X: Any, index: Any) -> None:
            training.step(cross_entropy(head(X), T[index]), optimizer)

        for _ in training.epochs(self.epochs, first, 2 * self.epochs):
            for rows in training.batches(self.batch_size, drop_last=False):
                step(training.rows(name, rows), training.index(rows))


def cross_entropy(outputs: Array, targets: Array) -> Array:
    """Of sigmoid(outputs) against targets in [0, 1], the mean over all bits."""
    return (-outputs.abs()).exp().log1p().add(outputs.clamp(min=0.0)).sub(targets * outputs).mean()


def codes_of_labels(labels: Floats, n_bits: int, rng: np.random.Generator) -> Floats:
    """B of +1 and -1 with a small |K S - B B'|^2: of a sample of items first, then of each other item against it."""
    n = len(labels)
    some = np.sort(rng.choice(n, min(n, SAMPLE_ITEMS), replace=False))
    rest = np.setdiff1d(np.arange(n), some)
    B = signs_of(rng.standard_normal((n, n_bits)))
    B[some] = descend(B[some], agreement(labels[some], labels[some]), SWEEPS)
    for start in range(0, len(rest), BLOCK_ROWS):
        rows = rest[start : start + BLOCK_ROWS]
        B[rows] = follow(B[rows], B[some], agreement(labels[rows], labels[some]), SWEEPS)
    return B


def agreement(labels: Floats, others: Floats) -> Floats:
    """S: 1 if two items share a label, else -1."""
    return np.where(labels @ others.T > 0.0, 1.0, -1.0)


def descend(B: Floats, S: Floats, n_sweeps: int) -> Floats:
    """|K S - B B'|^2 off the diagonal falls, item by item of every bit; the new B."""
    B = B.copy()
    missing = B.shape[1] * S - B @ B.T
    for k in [*range(B.shape[1])] * n_sweeps:
        b = B[:, k]
        missing += np.outer(b, b)  # what bit k has to explain
        np.fill_diagonal(missing, 0.0)
        for i in range(len(b)):
            b[i] = _sign(missing[i] @ b, b[i])
        missing -= np.outer(b, b)
    return B


def follow(B: Floats, known: Floats, S: Floats, n_sweeps: int) -> Floats:
    """|K S - B known'|^2 falls, bit by bit; the new B."""
    B = B.copy()
    missing = B.shape[1] * S - B @ known.T
    for k in [*range(B.shape[1])] * n_sweeps:
        missing += np.outer(B[:, k], known[:, k])
        B[:, k] = _sign(missing @ known[:, k], B[:, k])
        missing -= np.outer(B[:, k], known[:, k])
    return B


def _sign(values: Any, before: Any) -> Any:
    """The signs of numbers; where one is 0, the bit stays what it was."""
    return np.where(values == 0.0, before, np.sign(values))


def mean_codes(labels: Floats, B: Floats) -> Floats:
    """t_i = (l_i L' B) / (l_i L' 1); a row without labels gets the mean of all codes."""
    totals = labels @ labels.sum(axis=0)
    means = (labels @ (labels.T @ B)) / np.where(totals > 0.0, totals, 1.0)[:, None]
    return np.where((totals > 0.0)[:, None], means, B.mean(axis=0))
