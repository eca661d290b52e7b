"""JDSH: the joint similarity is sharpened where its distribution says that pairs are alike or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.deep.similarities import mse, unit
from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array, host, namespace
from fusehash.parameters import Progress, Rule, real
from fusehash.views import Floats

SAMPLE_ROWS = 1000  # rows whose batches show the distribution of S
WITHIN = 0.1  # weight of the terms within a view
DROPOUT = 0.5  # of AlexNet in train mode, with `as_released`


class JDSH(DeepHasher):
    """Joint-modal Distribution-based Similarity Hashing: a joint similarity, sharpened by its own distribution.

    For every batch with unit rows, S_I = 2 F_I F_I' - 1 and S_T alike; P = unit(S_I) unit(S_T)' by rows:

        S = a S_I + b S_T + l (P + P') / 2
        S_ij < left:   S_ij (1 + L1 exp(-(S_ij - low)))        S_ij > right:  S_ij (1 + L2 exp(S_ij - high))
        S <- mu S
        loss = .1 mse(cos(B_I, B_I), S) + .1 mse(cos(B_T, B_T), S) + 2 mse(cos(B_I, B_T), S) - mean cos of the pairs

    with B = tanh(sqrt(epoch) h). With the median m of S over random batches, left = m - A sL and right = m + B sR: sL
    is the root mean square distance of the entries below m (a normal distribution), sR the mean excess above it (a
    Laplace distribution); low and high are the extremes.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, epochs, batch_size : int, default 4096, 300, 32
        Width of the hidden layer of each head (0: none), passes over the rows, pairs per step.
    learning_rate : float, default .01
        Rate of stochastic gradient descent with momentum .9 and weight decay 5e-4.
    image_weight, text_weight, joint_weight, mu : float, default .5, .1, .4, 1.4
        a, b, l and the scale of S.
    left_width, right_width, left_gain, right_gain : float, default 2, 4, .1, .2
        A, B, L1 and L2.
    as_released : bool, default False
        Noise of dropout in the image features, as in the authors' code (see Notes).
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows.
    thresholds_ : dict of str to float
        left, right, low and high.
    objective_ : ndarray of shape (epochs,)
        Mean loss of every epoch.

    Notes
    -----
    The authors print thresholds for AlexNet features and tags (MIRFlickr: -.528 and -.138); here they are fitted to the
    data. Their AlexNet stays in train mode, so that dropout noise is in the features, in S and in every training code;
    `as_released` repeats that. They report the best of the epochs on the queries; here the last epoch counts.
    Memory does not depend on the number of rows.

    References
    ----------
    S. Liu, S. Qian, Y. Guan, J. Zhan, L. Ying. Joint-modal Distribution-based Similarity Hashing for Large-scale
    Unsupervised Deep Cross-modal Retrieval. SIGIR 2020.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.JDSH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "jdsh"
    summary: ClassVar[str] = "deep heads, joint similarity sharpened by its distribution"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "image_weight": real(),
        "text_weight": real(),
        "joint_weight": real(),
        "mu": real(strict=True),
        "left_width": real(),
        "right_width": real(),
        "left_gain": real(),
        "right_gain": real(),
    }

    thresholds_: dict[str, float]

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 4096,
        epochs: int = 300,
        batch_size: int = 32,
        learning_rate: float = 0.01,
        image_weight: float = 0.5,
        text_weight: float = 0.1,
        joint_weight: float = 0.4,
        mu: float = 1.4,
        left_width: float = 2.0,
        right_width: float = 4.0,
        left_gain: float = 0.1,
        right_gain: float = 0.2,
        as_released: bool = False,
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
        self.image_weight = image_weight
        self.text_weight = text_weight
        self.joint_weight = joint_weight
        self.mu = mu
        self.left_width = left_width
        self.right_width = right_width
        self.left_gain = left_gain
        self.right_gain = right_gain
        self.as_released = as_released
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _learn(self, training: Any, labels: Any) -> Any:
        image, text = training.heads(self._layers(), self.n_bits)
        settings = {"momentum": 0.9, "weight_decay": 5e-4}
        optimizer = training.sgd([*image.weights, *text.weights], self.learning_rate, **settings)
        thresholds = self._thresholds(training)
        self.thresholds_ = vars(thresholds).copy()

        @training.recorded
        def step(F_I: Any, F_T: Any, alpha: Any) -> None:
            S = self.mu * sharpened(self._similarity(F_I, F_T), thresholds, self.left_gain, self.right_gain)
            B_I, B_T = (alpha * image(F_I)).tanh(), (alpha * text(F_T)).tanh()
            training.step(preserving_loss(B_I, B_T, S), optimizer)

        for epoch in training.epochs(self.epochs):
            alpha = training.tensor(np.sqrt(epoch + 1))
            for rows in training.batches(self.batch_size):
                step(*self._features(training, rows), alpha)
        return image, text

    def _features(self, training: Any, rows: Any) -> tuple[Array, Array]:
        F_I, F_T = training.pair(rows)
        return (unit(training.drop(F_I, DROPOUT)) if self.as_released else F_I), F_T

    def _similarity(self, F_I: Array, F_T: Array) -> Array:
        return joint_similarity(F_I, F_T, self.image_weight, self.text_weight, self.joint_weight)

    def _thresholds(self, training: Any) -> Thresholds:
        """Fitted to S of random batches."""
        entries = []
        for rows in training.draw(max(1, SAMPLE_ROWS // self.batch_size), self.batch_size):
            S = host(self._similarity(*self._features(training, rows)))
            entries.append(S[~np.eye(len(S), dtype=bool)])
        return Thresholds.of(np.concatenate(entries).astype(np.float64), self.left_width, self.right_width)


@dataclass(frozen=True)
class Thresholds:
    """Where pairs are taken for different (below left) or alike (above right); low and high are the extremes."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def of(cls, entries: Floats, left_width: float, right_width: float) -> Thresholds:
        """A normal distribution fitted below the median of the entries, a Laplace distribution above it."""
        m = float(np.median(entries))
        below = float(np.sqrt(np.mean((entries[entries <= m] - m) ** 2)))
        above = float(np.mean(entries[entries >= m] - m))
        return cls(m - left_width * below, m + right_width * above, float(entries.min()), float(entries.max()))


def preserving_loss(B_I: Array, B_T: Array, S: Array) -> Array:
    """Cosines within and across the views follow S, and those of the pairs grow."""
    X, Y = unit(B_I), unit(B_T)
    within = WITHIN * (mse(X @ X.T, S) + mse(Y @ Y.T, S))
    return within + 2.0 * mse(X @ Y.T, S) - (X * Y).sum(1).mean()


def joint_similarity(F_I: Array, F_T: Array, image: float, text: float, joint: float) -> Array:
    """S = a S_I + b S_T + l (P + P') / 2,  P = unit(S_I) unit(S_T)', for unit rows."""
    S_I, S_T = 2.0 * F_I @ F_I.T - 1.0, 2.0 * F_T @ F_T.T - 1.0
    P = unit(S_I) @ unit(S_T).T
    return image * S_I + text * S_T + joint * (P + P.T) / 2.0


def sharpened(S: Array, at: Thresholds, left_gain: float, right_gain: float) -> Array:
    """S with the entries beyond the thresholds moved further out."""
    xp = namespace(S)
    lowered = S * (1.0 + left_gain * xp.exp(-(S - at.low)))
    raised = S * (1.0 + right_gain * xp.exp(S - at.high))
    return xp.where(at.left > S, lowered, xp.where(at.right < S, raised, S))
