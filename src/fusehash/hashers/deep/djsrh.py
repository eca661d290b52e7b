"""DJSRH: heads whose cosines follow a joint similarity of the features; DSAH by switches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.deep.similarities import cosines, mse, unit
from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array
from fusehash.parameters import Progress, Rule, flag, real

ALIGNED_VIEWS, ALIGNED_PAIRS = 0.1, 2.0  # weights of DSAH's two alignment terms


class DJSRH(DeepHasher):
    """Deep Joint-Semantics Reconstructing Hashing: cosines of codes follow a joint similarity of both views.

    For every batch of b pairs with unit rows F_I and F_T, S_I = 2 F_I F_I' - 1 and S_T = 2 F_T F_T' - 1,

        S~ = beta S_I + (1 - beta) S_T,      S = mu ((1 - eta) S~ + eta S~ S~' / b)
        loss = mse(cos(B_I, B_T), S) + w mse(cos(B_I, B_I), S) + w mse(cos(B_T, B_T), S)
        B_I = tanh(a h_I),  B_T = tanh(a h_T),   a = sqrt(epoch),  h the outputs of the heads

    DSAH is the same with other terms. ``alignment=True``, with C_XY = cos(B_X, B_Y):

        loss = mse(C_TT, S) + mse(C_IT, S) + mse(C_II, S) + mse(diag C_IT, mu) + 2 mse(C_IT, C_IT')
               + .1 (mse(C_II, mu S_I) + mse(C_TT, mu S_T))

    and ``decoders=True`` adds mse(D_I B_T, F_I) + mse(D_T B_I, F_T) with linear decoders D. The settings of DSAH are
    ``DJSRH(alignment=True, decoders=True, beta=.9, eta=0, learning_rate=.005, momentum=.7, nesterov=True,
    epochs=200)``.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, epochs, batch_size : int, default 4096, 80, 32
        Width of the hidden layer of each head (0: none), passes over the rows, pairs per step.
    learning_rate, momentum, nesterov : float, default .01, .9; bool, default False
        Settings of stochastic gradient descent; the weight decay is 5e-4.
    beta, eta, mu, intra_weight : float, default .6, .4, 1.5, .1
        Share of the image in S~, share of the second order, scale of S, and w.
    alignment, decoders, as_released : bool, default False
        The terms of DSAH; with `as_released` its decoders see sgn(B), as in its code (see Notes). Without `decoders` it
        changes nothing: the released program of DJSRH computes what its paper says.
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows.
    objective_ : ndarray of shape (epochs,)
        Mean loss of every epoch.

    Notes
    -----
    The authors fine-tune AlexNet and take S from a second, frozen one; here both use the given features. They chose
    beta and w per data set: .3 and .3 on Wiki, .9 and .1 on MIRFlickr, .6 and .1 on NUS-WIDE. The decoders of DSAH's
    code take sgn(B), whose gradient is zero, so that they cannot change a code; without `as_released` they take B. DSAH
    reports its best epoch on the queries; here the last epoch counts. Memory does not depend on the number of rows.

    References
    ----------
    S. Su, Z. Zhong, C. Zhang. Deep Joint-Semantics Reconstructing Hashing for Large-Scale Unsupervised Cross-Modal
    Retrieval. ICCV 2019.
    D. Yang, D. Wu, W. Zhang, H. Zhang, B. Li, W. Wang. Deep Semantic-Alignment Hashing for Unsupervised Cross-Modal
    Retrieval. ICMR 2020.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.DJSRH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "djsrh"
    summary: ClassVar[str] = "deep heads whose cosines follow a joint similarity of the features"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "momentum": real(),
        "nesterov": flag(),
        "beta": real(),
        "eta": real(),
        "mu": real(strict=True),
        "intra_weight": real(),
        "alignment": flag(),
        "decoders": flag(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 4096,
        epochs: int = 80,
        batch_size: int = 32,
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        nesterov: bool = False,
        beta: float = 0.6,
        eta: float = 0.4,
        mu: float = 1.5,
        intra_weight: float = 0.1,
        alignment: bool = False,
        decoders: bool = False,
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
        self.momentum = momentum
        self.nesterov = nesterov
        self.beta = beta
        self.eta = eta
        self.mu = mu
        self.intra_weight = intra_weight
        self.alignment = alignment
        self.decoders = decoders
        self.as_released = as_released
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _learn(self, training: Any, labels: Any) -> Any:
        image, text = training.heads(self._layers(), self.n_bits)
        weights = [*image.weights, *text.weights]
        if self.decoders:
            to_image = training.linear("image decoder", self.n_bits, training.views.n_features[training.image])
            to_text = training.linear("text decoder", self.n_bits, training.views.n_features[training.text])
            weights += [*to_image, *to_text]
        settings = {"momentum": self.momentum, "nesterov": self.nesterov, "weight_decay": 5e-4}
        optimizer = training.sgd(weights, self.learning_rate, **settings)

        @training.recorded
        def step(F_I: Any, F_T: Any, alpha: Any) -> None:
            B_I, B_T = (alpha * image(F_I)).tanh(), (alpha * text(F_T)).tanh()
            S_I, S_T = 2.0 * F_I @ F_I.T - 1.0, 2.0 * F_T @ F_T.T - 1.0
            S = joint_similarity(S_I, S_T, self.beta, self.eta, self.mu)
            if self.alignment:
                loss = aligned_loss(B_I, B_T, S, S_I, S_T, self.mu)
            else:
                loss = reconstruction_loss(B_I, B_T, S, self.intra_weight)
            if self.decoders:
                C_I, C_T = (B_I.sign(), B_T.sign()) if self.as_released else (B_I, B_T)
                loss = loss + mse(C_T @ to_image[0] + to_image[1], F_I) + mse(C_I @ to_text[0] + to_text[1], F_T)
            training.step(loss, optimizer)

        for epoch in training.epochs(self.epochs):
            alpha = training.tensor(np.sqrt(epoch + 1))
            for rows in training.batches(self.batch_size):
                step(*training.pair(rows), alpha)
        return image, text


def joint_similarity(S_I: Array, S_T: Array, beta: float, eta: float, mu: float) -> Array:
    """S = mu ((1 - eta) S~ + eta S~ S~' / b),  S~ = beta S_I + (1 - beta) S_T."""
    S = beta * S_I + (1.0 - beta) * S_T
    return mu * ((1.0 - eta) * S + eta * S @ S.T / len(S))


def reconstruction_loss(B_I: Array, B_T: Array, S: Array, weight: float) -> Array:
    """DJSRH: cosines across the views, and with a weight those within, follow S."""
    X, Y = unit(B_I), unit(B_T)
    return mse(X @ Y.T, S) + weight * (mse(X @ X.T, S) + mse(Y @ Y.T, S))


def aligned_loss(B_I: Array, B_T: Array, S: Array, S_I: Array, S_T: Array, mu: float) -> Array:
    """DSAH without its decoders."""
    across, images, texts = cosines(B_I, B_T), cosines(B_I, B_I), cosines(B_T, B_T)
    semantic = mse(texts, S) + mse(across, S) + mse(images, S) + mse(across.diagonal(), mu)
    aligned = ALIGNED_PAIRS * mse(across, across.T)
    return semantic + aligned + ALIGNED_VIEWS * (mse(images, mu * S_I) + mse(texts, mu * S_T))
