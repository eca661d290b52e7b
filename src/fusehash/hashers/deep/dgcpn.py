"""DGCPN: a similarity of neighborhoods over all training rows, followed by real and by binary codes."""

from __future__ import annotations

from typing import Any, ClassVar

from fusehash.hashers.deep.similarities import mse, unit
from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array, nearest_columns, put_rows
from fusehash.parameters import Progress, Rule, between, real

PAIR_COSINE = 1.5  # what the cosine of a pair is drawn to
OUTPUT_STD = 0.3  # of the output layer of the text


class DGCPN(DeepHasher):
    """Deep Graph-neighbor Coherence Preserving Network: cosines of codes follow shared neighborhoods.

    P = w cos(T, T) + (1 - w) cos(I, I) over all n training rows. W keeps the k largest entries of each row of P without
    its diagonal, scaled to sum 1:

        S = 2 ((1 - g) P + g c n W W') - 1
        loss(B_I, B_T) = mse(diag C_IT, 1.5) + sum over {IT, II, TT} mse(C, S) off the diagonal
                         + mse(C_IT, C_II) + mse(C_IT, C_TT) + mse(C_II, C_TT) + mse(C_IT, C_IT')

    with B = tanh h and C_XY the cosines of B_X and B_Y. Every batch makes three steps: both heads; the image against
    sgn(B_T); the text against sgn(B_I).

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, epochs, batch_size : int, default 4096, 100, 32
        Width of the hidden layer of each head (0: none), passes over the rows, pairs per step.
    learning_rate, dropout : float, default .005, .5
        Rate of stochastic gradient descent with momentum .9 and weight decay 5e-4; dropout of the hidden layer.
    text_weight, graph_weight, neighbors, scale : float, default .01, .3, .4, .8
        w, g, k as a share of the rows, and c.
    max_rows, subsample : int, default 10000; bool, default False
        With more pairs than this raise DataError, or learn from random ones; `codes_` are those of all rows.
    center : bool, default False
        Subtract the training mean before rows are scaled to unit length.
    device : str, optional
        Where to train, such as "cuda"; the CPU by default.

    Attributes
    ----------
    heads_, means_ : dict
        Layers of each head, and what is subtracted from rows.
    objective_ : ndarray of shape (epochs,)
        Mean loss of every step of an epoch.

    Notes
    -----
    The `knn_number` of the authors' code is how many neighbors are dropped: 3,000 of 5,000 rows, which leaves 40 %; its
    weight of the graph, 4,000, is .8 of these rows. They stop early on labeled validation rows; here the last epoch
    counts. What their program prints as MAP@50 in the final test is computed of the first 5 items.

    References
    ----------
    J. Yu, H. Zhou, Y. Zhan, D. Tao. Deep Graph-neighbor Coherence Preserving Network for Unsupervised Cross-modal
    Hashing. AAAI 2021.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.DGCPN(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "dgcpn"
    summary: ClassVar[str] = "deep heads whose cosines follow shared neighborhoods"
    pair_matrices: ClassVar[int] = 3
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "text_weight": real(),
        "graph_weight": real(),
        "neighbors": between(0.0, 1.0),
        "scale": real(strict=True),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 4096,
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 0.005,
        dropout: float = 0.5,
        text_weight: float = 0.01,
        graph_weight: float = 0.3,
        neighbors: float = 0.4,
        scale: float = 0.8,
        max_rows: int = 10_000,
        subsample: bool = False,
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
        self.dropout = dropout
        self.text_weight = text_weight
        self.graph_weight = graph_weight
        self.neighbors = neighbors
        self.scale = scale
        self.max_rows = max_rows
        self.subsample = subsample
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _learn(self, training: Any, labels: Any) -> Any:
        image, text = training.heads(self._layers(), self.n_bits, dropout=self.dropout, output_std=OUTPUT_STD)
        settings = {"momentum": 0.9, "weight_decay": 5e-4}
        of_image = training.sgd(image.weights, self.learning_rate, **settings)
        of_text = training.sgd(text.weights, self.learning_rate, **settings)
        S = self._similarity(*training.pair(slice(None)))

        @training.recorded
        def steps(F_I: Any, F_T: Any, index: Any) -> None:
            target = S[index][:, index]
            training.step(coherence_loss(image(F_I).tanh(), text(F_T).tanh(), target), of_image, of_text)
            B_I, B_T = image(F_I).tanh(), text(F_T).tanh()
            training.step(coherence_loss(B_I, B_T.detach().sign(), target), of_image)
            training.step(coherence_loss(B_I.detach().sign(), B_T, target), of_text)

        for _ in training.epochs(self.epochs):
            for rows in training.batches(self.batch_size):
                steps(*training.pair(rows), training.index(rows))
        return image, text

    def _similarity(self, F_I: Array, F_T: Array) -> Array:
        k = max(1, min(round(self.neighbors * len(F_I)), len(F_I) - 1))
        return neighborhood_similarity(F_I, F_T, self.text_weight, self.graph_weight, k, self.scale)


def neighborhood_similarity(F_I: Array, F_T: Array, text: float, graph: float, k: int, scale: float) -> Array:
    """S of all rows, for unit rows."""
    P = text * (F_T @ F_T.T) + (1.0 - text) * (F_I @ F_I.T)
    W = P * (P > 0.0)
    W[range(len(W)), range(len(W))] = 0.0
    values, columns = nearest_columns(-W, k)
    W = put_rows((len(W), len(W)), columns, -values)
    W = W / (W.sum(1) + (W.sum(1) == 0.0))[:, None]
    return 2.0 * ((1.0 - graph) * P + graph * scale * len(W) * (W @ W.T)) - 1.0


def coherence_loss(B_I: Array, B_T: Array, S: Array) -> Array:
    """The loss of one batch."""
    X, Y = unit(B_I), unit(B_T)
    across, images, texts = X @ Y.T, X @ X.T, Y @ Y.T
    n = len(S)
    similar = sum(((C - S) ** 2).sum() - ((C - S).diagonal() ** 2).sum() for C in (across, images, texts)) / n**2
    coherent = mse(across, images) + mse(across, texts) + mse(images, texts) + mse(across, across.T)
    return mse(across.diagonal(), PAIR_COSINE) + similar + coherent
