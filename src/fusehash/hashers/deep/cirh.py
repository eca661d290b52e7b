"""CIRH: a graph auto-encoder of both views gives the codes that the heads learn."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.deep.similarities import cosines, mse, unit
from fusehash.hashers.deep.skeleton import DeepHasher
from fusehash.numerics.arrays import Array, namespace
from fusehash.parameters import Progress, Rule, between, integer, real

OWN, SECOND, THIRD = 0.7, 0.2, 0.1  # shares of a row and of its second and third neighbor
REBUILDING = 10.0  # weight of rebuilt rows
FEWEST_ROWS = 4  # of a batch: neighbors are counted from the end
NORM_TINY = 1e-5


class CIRH(DeepHasher):
    """Correlation-Identity Reconstruction Hashing: a graph auto-encoder finds B, and the heads regress on it.

    S1 = a1 cos(I, I) + (1 - a1) cos(T, T), of every row the smallest entries set to 0; S2 = 2 sigmoid(S1) - 1 + 1,
    symmetrized; S = a2 S1 + (1 - a2) S2. In every batch x <- .7 x + .2 x_2 + .1 x_3 with its second and third neighbor,
    and BN for batch normalization:

        E = unit(relu(BN(x W))) of each view,   G = relu(BN(S E W)),   J from both views over the graph [[S, 1], [1, S]]
        H_I = BN(W [G_I, J]),  H_T = BN(W [J, G_T]),  H_J = BN(W J),   H = tanh(BN(W [H_I, H_J, H_T])),   B = sgn(H)
        loss 1 = 10 (mse(D_I(H + tanh H_I), x) + mse(D_T(H + tanh H_T), y))
                 + sum over {H_I, H_T, H} mse(cos, S) + mse(H, B)
        loss 2 = mse(f, B) + mse(g, B) + mse(f, g) + beta sum over {fg, ff, gg} mse(cos, S)

    An epoch is a pass with loss 1, which collects B, and one with loss 2, in which the heads f and g learn.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, graph_hidden, epochs, batch_size : int, default 4096, 512, 60, 512
        Width of the hidden layer of each head (0: none) and of the layers of the graph network, passes over the rows,
        pairs per step.
    learning_rate, graph_rate, dropout : float, default .001, .001, .3
        Rates of Adam for the heads and for the graph network; dropout of the hidden layers of the heads.
    image_weight, own_weight, neighbors, beta : float, default .5, .5, .4, .01
        a1, a2, the share of every row of S1 that is kept, and beta.
    as_released : bool, default False
        S of loss 2 in the stored order of the rows, as in the authors' code (see Notes).
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
        Mean of both losses in every epoch.

    Notes
    -----
    The authors' code takes S of loss 2 in the stored order while rows and B are shuffled; `as_released` repeats that.
    Their heads start at N(0, 1) and learn at 1e-4; here they start as PyTorch starts linear layers and learn at 1e-3.
    Their graph network sees raw features, here unit rows, as the heads. They keep the best epoch on the queries; here
    the last one counts. S is computed for each batch, so that memory does not grow with the square of the rows;
    `max_rows` bounds the time.

    References
    ----------
    L. Zhu, X. Wu, J. Li, Z. Zhang, W. Guan, H. T. Shen. Work Together: Correlation-Identity Reconstruction Hashing for
    Unsupervised Cross-modal Retrieval. TKDE 2022.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.CIRH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "cirh"
    summary: ClassVar[str] = "graph auto-encoder of both views, whose codes deep heads learn"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "graph_hidden": integer(1),
        "graph_rate": real(strict=True),
        "image_weight": real(),
        "own_weight": real(),
        "neighbors": between(0.0, 1.0),
        "beta": real(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 4096,
        graph_hidden: int = 512,
        epochs: int = 60,
        batch_size: int = 512,
        learning_rate: float = 0.001,
        graph_rate: float = 0.001,
        dropout: float = 0.3,
        image_weight: float = 0.5,
        own_weight: float = 0.5,
        neighbors: float = 0.4,
        beta: float = 0.01,
        as_released: bool = False,
        max_rows: int = 10_000,
        subsample: bool = False,
        center: bool = False,
        device: str | None = None,
        random_state: Any = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden = hidden
        self.graph_hidden = graph_hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.graph_rate = graph_rate
        self.dropout = dropout
        self.image_weight = image_weight
        self.own_weight = own_weight
        self.neighbors = neighbors
        self.beta = beta
        self.as_released = as_released
        self.max_rows = max_rows
        self.subsample = subsample
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _learn(self, training: Any, labels: Any) -> Any:
        heads = image, text = training.heads(self._layers(), self.n_bits, dropout=self.dropout)
        network = GraphNetwork(training, self.graph_hidden, self.n_bits)
        of_network = training.adam(network.weights, self.graph_rate)
        of_heads = training.adam([*image.weights, *text.weights], self.learning_rate)
        floors = self._floors(training)
        B = training.zeros(training.n_rows, self.n_bits)

        @training.recorded
        def network_step(F_I: Any, F_T: Any, index: Any) -> None:
            S = self._similarity(F_I, F_T, floors[index])
            x, y = (with_neighbors(F, S) for F in (F_I, F_T))
            H_I, H_T, H, rebuilt_x, rebuilt_y = network(x, y, S)
            B[index] = H.detach().sign()
            training.step(graph_loss((H_I, H_T, H), (rebuilt_x, rebuilt_y), (x, y), S), of_network)

        @training.recorded
        def heads_step(F_I: Any, F_T: Any, index: Any, S_I: Any, S_T: Any, stored: Any) -> None:
            S = self._similarity(S_I, S_T, floors[stored])
            training.step(heads_loss(image(F_I).tanh(), text(F_T).tanh(), B[index], S, self.beta), of_heads)

        for _ in training.epochs(self.epochs):
            B[:] = 0.0
            for rows in training.batches(self.batch_size, drop_last=False):
                network_step(*training.pair(rows), training.index(rows))
            start = 0
            for rows in training.batches(self.batch_size, drop_last=False):
                stored = np.arange(start, start + len(rows)) if self.as_released else rows
                start += len(rows)
                indices = training.index(rows), training.index(stored)
                heads_step(*training.pair(rows), indices[0], *training.pair(stored), indices[1])
        return heads

    def _cosines(self, F_I: Array, F_T: Array, G_I: Array, G_T: Array) -> Array:
        return self.image_weight * F_I @ G_I.T + (1.0 - self.image_weight) * F_T @ G_T.T

    def _floors(self, training: Any) -> Array:
        """Of every row, the smallest entry of S1 that is kept."""
        everything = training.pair(slice(None))
        n_kept = max(1, round(self.neighbors * training.n_rows))
        floors = training.zeros(training.n_rows)
        for rows in training.blocks():
            floors[rows] = self._cosines(*training.pair(rows), *everything).topk(n_kept, 1).values[:, -1]
        return floors

    def _similarity(self, F_I: Array, F_T: Array, floors: Array) -> Array:
        """S of a batch."""
        return correlation(self._cosines(F_I, F_T, F_I, F_T), floors, self.own_weight)


def graph_loss(codes: tuple[Array, ...], rebuilt: tuple[Array, ...], views: tuple[Array, ...], S: Array) -> Array:
    """Loss 1: both views are rebuilt, cosines of H_I, H_T and H follow S, and H is near its signs."""
    H = codes[-1]
    rebuilding = sum(mse(R, X) for R, X in zip(rebuilt, views, strict=True))
    return REBUILDING * rebuilding + sum(mse(cosines(Z, Z), S) for Z in codes) + mse(H, namespace(H).sign(H))


def heads_loss(f: Array, g: Array, B: Array, S: Array, beta: float) -> Array:
    """Loss 2: the heads regress on B, agree with each other, and their cosines follow S."""
    follow = mse(cosines(f, g), S) + mse(cosines(f, f), S) + mse(cosines(g, g), S)
    return mse(f, B) + mse(g, B) + mse(f, g) + beta * follow


def correlation(C: Array, floors: Array, own: float) -> Array:
    """S = a2 S1 + (1 - a2) S2 from weighted cosines C; entries of a row below its floor are dropped from S1."""
    xp = namespace(C)
    S1 = xp.where(floors[:, None] <= C, C, C * 0.0)
    S2 = xp.tanh(S1 / 2.0)  # 2 sigmoid(S1) - 1
    S2 = S2 + xp.eye(len(C), dtype=C.dtype, device=C.device)
    return own * S1 + (1.0 - own) * (S2 + S2.T) / 2.0


def with_neighbors(X: Array, S: Array) -> Array:
    """Every row mixed with the rows that come second and third in its row of S, itself the first."""
    if len(X) < FEWEST_ROWS:
        return X
    order = namespace(S).argsort(S, axis=1)
    return OWN * X + SECOND * X[order[:, -3]] + THIRD * X[order[:, -4]]


class GraphNetwork:
    """The graph auto-encoder; it is not needed to encode. A layer is W, b, and gain and bias of its normalization."""

    def __init__(self, training: Any, hidden: int, n_bits: int) -> None:
        self._training = training
        self._layers: dict[str, tuple[Array, ...]] = {}
        for view, width in zip("xy", training.views.n_features.values(), strict=True):
            self._add(f"encode {view}", width, hidden)
            self._add(f"graph {view}", hidden, hidden)
            self._add(f"code {view}", 2 * hidden, n_bits)
            self._add(f"decode {view}", n_bits, hidden)
            self._add(f"rebuild {view}", hidden, width)
        self._add("graph joint", hidden, hidden)
        self._add("code joint", hidden, n_bits)
        self._add("code", 3 * n_bits, n_bits)

    def _add(self, name: str, n_inputs: int, n_outputs: int) -> None:
        W, b = self._training.linear(f"graph network, {name}", n_inputs, n_outputs)
        gain, bias = self._training.zeros(n_outputs) + 1.0, self._training.zeros(n_outputs)
        self._layers[name] = W, b, gain.requires_grad_(), bias.requires_grad_()

    @property
    def weights(self) -> list[Array]:
        return [weight for layer in self._layers.values() for weight in layer]

    def __call__(self, x: Array, y: Array, S: Array) -> tuple[Array, ...]:
        """H_I, H_T, H and both views rebuilt."""
        xp = namespace(x)
        E_x, E_y = unit(self._layer("encode x", x).relu()), unit(self._layer("encode y", y).relu())
        G_x = self._normalized("graph x", S @ self._linear("graph x", E_x)).relu()
        G_y = self._normalized("graph y", S @ self._linear("graph y", E_y)).relu()
        u, v = self._linear("graph joint", E_x), self._linear("graph joint", E_y)
        both = self._normalized("graph joint", xp.concat([S @ u + v, u + S @ v], axis=0))
        J = (both[: len(x)] + both[len(x) :]).relu()
        H_I = self._layer("code x", xp.concat([G_x, J], axis=1))
        H_T = self._layer("code y", xp.concat([J, G_y], axis=1))
        H = self._layer("code", xp.concat([H_I, self._layer("code joint", J), H_T], axis=1)).tanh()
        return H_I, H_T, H, self._rebuilt(H + H_I.tanh(), "x"), self._rebuilt(H + H_T.tanh(), "y")

    def _rebuilt(self, code: Array, view: str) -> Array:
        return self._layer(f"rebuild {view}", self._layer(f"decode {view}", code).relu())

    def _layer(self, name: str, X: Array) -> Array:
        return self._normalized(name, self._linear(name, X))

    def _linear(self, name: str, X: Array) -> Array:
        return X @ self._layers[name][0] + self._layers[name][1]

    def _normalized(self, name: str, X: Array) -> Array:
        """Columns of mean 0 and variance 1 over the batch, then a gain and a bias."""
        centered = X - X.mean(0)
        scaled = centered / ((centered * centered).mean(0) + NORM_TINY) ** 0.5
        return scaled * self._layers[name][2] + self._layers[name][3]
