"""UCCH: both views contrasted with a memory of binary codes, and a ranking loss with a margin."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.deep.similarities import unit
from fusehash.hashers.deep.skeleton import FLOAT_BYTES, DeepHasher
from fusehash.numerics.arrays import Array, namespace
from fusehash.parameters import Progress, Rule, between, flag, integer, real
from fusehash.views import PairedViews

SCORE_ALL_ROWS = 2**16  # with at most so many rows, the scores of all memories are cheaper than gathered memories


class UCCH(DeepHasher):
    """Unsupervised Contrastive Cross-modal Hashing: a memory of binary codes is contrasted with both views.

    u = unit(tanh f(x)) and v = unit(tanh g(y)); every pair i has a memory M_i in R^K. With k drawn at random:

        L_c = - mean log softmax_0 [ <sgn(M_i), u_i>, <sgn(M_k), u_i>: n_negatives k ] / (tau sqrt(K))  + the same for v
        M_i <- unit(d M_i + (1 - d) unit((u_i + v_i) / 2))
        L_r = mean_i (log sum_j exp(s_ij) - s_ii + m) + the same over columns,   s_ij = <u_i, v_j>, and entries
              below s_ii - m are lowered by `shift` first
        loss = a L_c + (1 - a) L_r

    In the first epoch the codes of the batch itself, sgn((u + v) / 2), are in the place of the memory, and d is 0.

    Parameters
    ----------
    n_bits, random_state, callback : int, default 64; optional
        Code length, a multiple of 8; seed; called as callback(step, total, message) after every epoch.
    hidden, epochs, batch_size : int, default 8192, 20, 256
        Width of the hidden layers (two for the image, one for the text), passes over the rows, pairs per step.
    learning_rate : float, default 1e-4
        Rate of Adam, with weight decay 1e-6; the norm of the gradient is clipped at 1.
    contrast_weight, margin, shift : float, default .7, .2, .1
        a, m and how far entries beyond the margin are lowered.
    n_negatives, temperature, memory_momentum : int, default 4096; float, default .9, .4
        How many memories a row is contrasted with, tau and d.
    mixed_precision : bool, default False
        Multiply in bfloat16 in the heads while they learn; losses and weights stay in single precision.
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
    Settings are those of the authors on MIRFlickr; on IAPR TC-12 they have a = .9 and a shift of 1. The authors choose
    the epoch with labels of database rows; here the last epoch counts. Beyond the memory of n x K numbers, what is held
    does not depend on the number of rows.

    References
    ----------
    P. Hu, H. Zhu, J. Lin, D. Peng, Y.-P. Zhao, X. Peng. Unsupervised Contrastive Cross-modal Hashing. TPAMI 2023.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.UCCH(n_bits=16, hidden=32, epochs=2, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "ucch"
    summary: ClassVar[str] = "deep heads, contrasted with a memory of binary codes"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "contrast_weight": between(0.0, 1.0),
        "margin": real(),
        "shift": real(),
        "n_negatives": integer(1),
        "temperature": real(strict=True),
        "memory_momentum": between(0.0, 1.0),
        "mixed_precision": flag(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        hidden: int = 8192,
        epochs: int = 20,
        batch_size: int = 256,
        learning_rate: float = 1e-4,
        contrast_weight: float = 0.7,
        margin: float = 0.2,
        shift: float = 0.1,
        n_negatives: int = 4096,
        temperature: float = 0.9,
        memory_momentum: float = 0.4,
        mixed_precision: bool = False,
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
        self.contrast_weight = contrast_weight
        self.margin = margin
        self.shift = shift
        self.n_negatives = n_negatives
        self.temperature = temperature
        self.memory_momentum = memory_momentum
        self.mixed_precision = mixed_precision
        self.center = center
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def _layers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        layers = (self.hidden,) if self.hidden else ()
        return layers * 2, layers

    def _contents(self, views: PairedViews) -> dict[str, int]:
        n = views.n_rows
        compared = f"{self.batch_size:,} rows compared with {self.n_negatives:,} memories each"
        n_compared = 2 * n if n <= SCORE_ALL_ROWS else self.n_bits * (min(self.n_negatives, n) + 1)
        return {
            **super()._contents(views),
            f"a memory of {n:,} rows": FLOAT_BYTES * n * self.n_bits,
            compared: FLOAT_BYTES * min(self.batch_size, n) * n_compared,
        }

    def _learn(self, training: Any, labels: Any) -> Any:
        image, text = training.heads(self._layers(), self.n_bits)
        optimizer = training.adam([*image.weights, *text.weights], self.learning_rate, weight_decay=1e-6)
        n_negatives = min(self.n_negatives, max(training.n_rows - 1, 1))
        memory = unit(training.normal(training.n_rows, self.n_bits).sign())

        def step(F_I: Any, F_T: Any, rows: Any, drawn: Any = None) -> None:
            with training.mixed(self.mixed_precision):
                h_I, h_T = image(F_I), text(F_T)
            u, v = unit(h_I.float().tanh()), unit(h_T.float().tanh())
            first = drawn is None
            contrasted = self._contrast_in_batch(u, v) if first else self._contrast(memory, rows, drawn, u, v)
            ranked = ranking_loss(u @ v.T, self.margin, self.shift)
            loss = self.contrast_weight * contrasted + (1.0 - self.contrast_weight) * ranked
            training.step(loss, optimizer, clip=1.0)
            d = 0.0 if first else self.memory_momentum
            memory[rows] = unit(d * memory[rows] + (1.0 - d) * unit((u + v).detach() / 2.0))

        first_step, later_step = training.recorded(step), training.recorded(step)
        for epoch in training.epochs(self.epochs):
            for rows in training.batches(self.batch_size):
                F_I, F_T = training.pair(rows)
                if epoch:
                    drawn = training.numbers(training.n_rows, (len(rows), n_negatives))
                    later_step(F_I, F_T, training.index(rows), drawn)
                else:
                    first_step(F_I, F_T, training.index(rows))
        return image, text

    @property
    def _scale(self) -> float:
        return 1.0 / (self.temperature * float(np.sqrt(self.n_bits)))

    def _contrast(self, memory: Array, own: Array, drawn: Array, u: Array, v: Array) -> Array:
        """L_c: of the memories of the rows themselves and those that were drawn, only the first belongs to a row."""
        columns = namespace(u).concat([own[:, None], drawn], axis=1)
        if len(memory) <= SCORE_ALL_ROWS:
            all_codes = memory.sign()
            scores = [(w @ all_codes.T).gather(1, columns) for w in (u, v)]
        else:
            both = memory[columns].sign() @ namespace(u).stack([u, v], axis=2)  # memories are read once for both
            scores = [both[:, :, 0], both[:, :, 1]]
        return sum((-first_log_share(score * self._scale)).mean() for score in scores)

    def _contrast_in_batch(self, u: Array, v: Array) -> Array:
        """L_c of the first epoch: the codes of the batch are the memories."""
        codes = (u + v).detach().sign()
        logits = [w @ codes.T * self._scale for w in (u, v)]
        return sum((score.logsumexp(1) - score.diagonal()).mean() for score in logits)


def first_log_share(scores: Array) -> Array:
    """log softmax of the first column."""
    return scores[:, 0] - scores.logsumexp(1)


def ranking_loss(S: Array, margin: float, shift: float) -> Array:
    """L_r: the pairs lead their rows and columns by a margin."""
    xp, own = namespace(S), S.diagonal()
    rows = xp.where(own[:, None] - S > margin, S - shift, S)
    columns = xp.where(own[None] - S > margin, S - shift, S)
    return (rows.logsumexp(1) - own + margin).mean() + (columns.logsumexp(0) - own + margin).mean()
