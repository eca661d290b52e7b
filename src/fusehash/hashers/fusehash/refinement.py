"""A rotation refined on held-out pairs, so that partners rank first by their codes.

ITQ brings Y R close to its own signs, and knows nothing of how new rows that are seen in one view differ from their
partners: on the rows that were learned from, the views agree nearly perfectly. So the rows are divided into folds. The
rows outside of a fold give another spectrum and other regressions (without a graph, and from at most MAX_FEATURES
features of a view, which is enough for this), turned to Y R by the nearest rotation. These give the rows of the fold
real codes P_a and P_b as honest as those of new rows. With H = tanh(P Q), P in units of its root mean square, a matrix
Q is learned from Q = I by a few steps of gradient descent (Adam) on

    mean over pairs i of  -log softmax_j( t H_a[i] . H_b[j] )[i],  in both directions,

the likelihood of the true partner among the rows of a batch, with a pull towards I. R Q replaces R. Few steps and the
pull keep Q from fitting the noise of a few hundred pairs.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fusehash.hashers.fusehash.fitted import Choices
from fusehash.hashers.fusehash.spectrum import FeatureGram, spectrum
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.numerics.rotation import soft_signs

Floats32 = NDArray[np.float32]
MIN_PAIRS, MAX_PAIRS = 300, 4000  # of fewer, nothing was measured
N_FOLDS, MAX_FEATURES = 3, 512
N_STEPS, BATCH, RATE, PULL = 20, 256, 0.01, 10.0
TEMPERATURE = 0.2  # t at 64 bits; the spread of products grows with the square root of the bits
DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-8  # of Adam


def held_out_codes(
    features: dict[str, NDArray[np.floating]],
    targets: NDArray[np.floating],
    choices: Choices,
    rank: int,
    softness: float,
    rng: np.random.Generator,
) -> dict[str, Floats32]:
    """Real codes of every row by view, from hash functions that were learned without the fold of the row.

    `features` are centered; `targets` are Y R of the same rows, `softness` is what their soft signs need.
    """
    n_rows, n_bits = targets.shape
    F = {name: _some_columns(np.asarray(X, np.float64)) for name, X in features.items()}
    cuts = np.cumsum([0, *(X.shape[1] for X in F.values())])
    spans = {name: slice(int(cuts[i]), int(cuts[i + 1])) for i, name in enumerate(F)}
    every = np.hstack(list(F.values()))
    FF, sums = every.T @ every, every.sum(axis=0)
    plain = Choices(ridge=choices.ridge, spectral_power=choices.spectral_power, view_weights=choices.view_weights)
    codes = {name: np.empty((n_rows, n_bits), np.float32) for name in F}
    for fold in np.array_split(rng.permutation(n_rows), N_FOLDS):
        kept = np.setdiff1d(np.arange(n_rows), fold)
        gram = FeatureGram(FF - every[fold].T @ every[fold], spans)
        moments = {"S": np.zeros(0), "F": sums - every[fold].sum(axis=0), "FS": np.zeros((len(FF), 0))}
        found = spectrum({**moments, "SS": np.zeros((0, 0)), "count": len(kept)}, gram, plain, rank)
        Y = every[kept] @ found.on_features
        U, _, Vt = np.linalg.svd(Y.T @ targets[kept], full_matrices=False)
        turned = Y @ (U @ Vt)
        T = soft_signs(turned, softness * np.sqrt(np.mean(turned**2) / np.mean(targets**2)))
        for name, span in spans.items():
            W = solve_ridge(ridge_solver(gram.FF[span, span], choices.hash_ridge), every[kept, span].T @ T)
            codes[name][fold] = every[fold, span] @ W
    return codes


def refined_rotation(codes: dict[str, Floats32], rng: np.random.Generator) -> NDArray[np.float64]:
    """Q from real codes of held-out rows, row by row partners."""
    n_rows, n_bits = next(iter(codes.values())).shape
    scale = np.sqrt(np.mean([np.mean(P**2, dtype=np.float64) for P in codes.values()]))
    scaled = {name: (P / max(scale, TINY)).astype(np.float32) for name, P in codes.items()}
    temperature = TEMPERATURE * (64 / n_bits) ** 0.5
    pairs = list(combinations(scaled, 2))
    start = np.eye(n_bits, dtype=np.float32)
    Q, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, N_STEPS + 1):
        rows = rng.choice(n_rows, min(BATCH, n_rows), replace=False)
        gradients = [ranking_gradient(Q, scaled[a][rows], scaled[b][rows], temperature)[1] for a, b in pairs]
        gradient = np.mean(gradients, axis=0)
        mean = DECAY * mean + (1 - DECAY) * gradient
        square = SQUARE_DECAY * square + (1 - SQUARE_DECAY) * gradient**2
        change = mean / (1 - DECAY**step) / (np.sqrt(square / (1 - SQUARE_DECAY**step)) + TINY)
        Q = Q - np.float32(RATE) * (change + np.float32(PULL) * (Q - start))
    return Q.astype(np.float64)


def ranking_gradient(Q: Floats32, A: Floats32, B: Floats32, temperature: float) -> tuple[float, Floats32]:
    """The loss of the file's text (mean of both directions) over the rows of a batch, and its gradient by Q."""
    H_a, H_b = np.tanh(A @ Q), np.tanh(B @ Q)
    scores = temperature * (H_a @ H_b.T)
    own = np.diagonal(scores).copy()
    loss, G = 0.0, np.zeros_like(scores)
    for axis in (0, 1):
        top = scores.max(axis=axis, keepdims=True)
        likely = np.exp(scores - top)
        total = likely.sum(axis=axis, keepdims=True)
        loss += float(np.mean(np.log(total) + top) - own.mean()) / 2
        G += likely / total
    G[np.diag_indices(len(G))] -= 2
    G *= temperature / (2 * len(A))
    return loss, A.T @ ((G @ H_b) * (1 - H_a**2)) + B.T @ ((G.T @ H_a) * (1 - H_b**2))


def _some_columns(F: NDArray[np.float64]) -> NDArray[np.float64]:
    return F if F.shape[1] <= MAX_FEATURES else F[:, np.linspace(0, F.shape[1] - 1, MAX_FEATURES).astype(int)]
