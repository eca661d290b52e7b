"""Similarities and losses of deep methods against loops over a few rows; NumPy is enough for these."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from fusehash.hashers.deep import cirh, dbrc, dcmh, ddcmh, dgcpn, djsrh, jdsh, ucch
from fusehash.hashers.deep.similarities import unit

RNG = np.random.default_rng(0)
N = 5
F_I, F_T = unit(RNG.standard_normal((N, 7))), unit(RNG.standard_normal((N, 4)) + 0.5)
B_I, B_T = np.tanh(RNG.standard_normal((N, 6))), np.tanh(RNG.standard_normal((N, 6)))


def cos(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def table(entry):
    """A matrix from entry(i, j)."""
    return np.array([[entry(i, j) for j in range(N)] for i in range(N)])


S_I, S_T = table(lambda i, j: 2 * cos(F_I[i], F_I[j]) - 1), table(lambda i, j: 2 * cos(F_T[i], F_T[j]) - 1)


def squared(entry, rows=range(N)):
    """The mean of entry(i, j) ** 2 over all pairs."""
    return np.mean([entry(i, j) ** 2 for i in rows for j in range(N)])


def test_djsrh():
    joint = table(lambda i, j: 0.3 * S_I[i, j] + 0.7 * S_T[i, j])
    second = table(lambda i, j: sum(joint[i, k] * joint[j, k] for k in range(N)) / N)
    S = djsrh.joint_similarity(S_I, S_T, 0.3, 0.4, 1.5)
    assert np.allclose(S, table(lambda i, j: 1.5 * (0.6 * joint[i, j] + 0.4 * second[i, j])))
    expected = squared(lambda i, j: cos(B_I[i], B_T[j]) - S[i, j])
    expected += 0.1 * squared(lambda i, j: cos(B_I[i], B_I[j]) - S[i, j])
    expected += 0.1 * squared(lambda i, j: cos(B_T[i], B_T[j]) - S[i, j])
    assert np.isclose(djsrh.reconstruction_loss(B_I, B_T, S, 0.1), expected)


def test_dsah():
    S = 1.5 * (0.9 * S_I + 0.1 * S_T)
    expected = squared(lambda i, j: cos(B_I[i], B_T[j]) - S[i, j])
    expected += squared(lambda i, j: cos(B_I[i], B_I[j]) - S[i, j])
    expected += squared(lambda i, j: cos(B_T[i], B_T[j]) - S[i, j])
    expected += np.mean([(cos(B_I[i], B_T[i]) - 1.5) ** 2 for i in range(N)])
    expected += 2 * squared(lambda i, j: cos(B_I[i], B_T[j]) - cos(B_I[j], B_T[i]))
    expected += 0.1 * squared(lambda i, j: cos(B_I[i], B_I[j]) - 1.5 * S_I[i, j])
    expected += 0.1 * squared(lambda i, j: cos(B_T[i], B_T[j]) - 1.5 * S_T[i, j])
    assert np.isclose(djsrh.aligned_loss(B_I, B_T, S, S_I, S_T, 1.5), expected)


def test_jdsh():
    P = table(lambda i, j: cos(S_I[i], S_T[j]))
    S = table(lambda i, j: 0.5 * S_I[i, j] + 0.1 * S_T[i, j] + 0.4 * (P[i, j] + P[j, i]) / 2)
    assert np.allclose(jdsh.joint_similarity(F_I, F_T, 0.5, 0.1, 0.4), S)
    at = jdsh.Thresholds(left=-0.3, right=0.2, low=-0.8, high=0.9)

    def moved(i, j):
        s = S[i, j]
        if s < at.left:
            return s * (1 + 0.1 * exp(-(s - at.low)))
        return s * (1 + 0.2 * exp(s - at.high)) if s > at.right else s

    assert np.allclose(jdsh.sharpened(S, at, 0.1, 0.2), table(moved))
    assert (at.left > S).any()
    assert (at.right < S).any()
    expected = 2 * squared(lambda i, j: cos(B_I[i], B_T[j]) - S[i, j])
    expected += 0.1 * squared(lambda i, j: cos(B_I[i], B_I[j]) - S[i, j])
    expected += 0.1 * squared(lambda i, j: cos(B_T[i], B_T[j]) - S[i, j])
    expected -= np.mean([cos(B_I[i], B_T[i]) for i in range(N)])
    assert np.isclose(jdsh.preserving_loss(B_I, B_T, S), expected)


def test_the_thresholds_of_jdsh_are_those_of_known_distributions():
    """Of a normal distribution to the left of its median and a Laplace distribution to the right."""
    rng = np.random.default_rng(0)
    left, right = -np.abs(rng.normal(0, 0.02, 200_000)), np.abs(rng.laplace(0, 0.09, 200_000))
    at = jdsh.Thresholds.of(np.concatenate([left, right]) - 0.5, 2.0, 4.0)
    assert np.isclose(at.left, -0.5 - 2 * 0.02, atol=1e-3)
    assert np.isclose(at.right, -0.5 + 4 * 0.09, atol=3e-3)
    assert (at.low, at.high) == (left.min() - 0.5, right.max() - 0.5)


def test_dgcpn():
    k, n = 2, N
    P = table(lambda i, j: 0.4 * cos(F_T[i], F_T[j]) + 0.6 * cos(F_I[i], F_I[j]))
    W = np.zeros((n, n))
    for i in range(n):
        others = sorted((j for j in range(n) if j != i and P[i, j] > 0), key=lambda j: -P[i, j])[:k]
        for j in others:
            W[i, j] = P[i, j] / sum(P[i, m] for m in others)
    shared = table(lambda i, j: sum(W[i, m] * W[j, m] for m in range(n)))
    S = dgcpn.neighborhood_similarity(F_I, F_T, 0.4, 0.3, k, 0.8)
    assert np.allclose(S, table(lambda i, j: 2 * (0.7 * P[i, j] + 0.3 * 0.8 * n * shared[i, j]) - 1))
    C = {
        "it": table(lambda i, j: cos(B_I[i], B_T[j])),
        "ii": table(lambda i, j: cos(B_I[i], B_I[j])),
        "tt": table(lambda i, j: cos(B_T[i], B_T[j])),
    }
    expected = np.mean([(C["it"][i, i] - 1.5) ** 2 for i in range(n)])
    for matrix in C.values():
        expected += sum((matrix[i, j] - S[i, j]) ** 2 for i in range(n) for j in range(n) if i != j) / n**2
    for a, b in (("it", "ii"), ("it", "tt"), ("ii", "tt")):
        expected += np.mean((C[a] - C[b]) ** 2)
    expected += np.mean((C["it"] - C["it"].T) ** 2)
    assert np.isclose(dgcpn.coherence_loss(B_I, B_T, S), expected)


def test_cirh():
    C = table(lambda i, j: 0.6 * cos(F_I[i], F_I[j]) + 0.4 * cos(F_T[i], F_T[j]))
    floors = np.sort(C, axis=1)[:, -3]
    S1 = table(lambda i, j: C[i, j] if C[i, j] in sorted(C[i])[-3:] else 0.0)
    S2 = table(lambda i, j: 2 / (1 + exp(-S1[i, j])) - 1 + (i == j))
    expected = table(lambda i, j: 0.7 * S1[i, j] + 0.3 * (S2[i, j] + S2[j, i]) / 2)
    assert np.allclose(cirh.correlation(C, floors, 0.7), expected)
    S = RNG.permuted(np.arange(N * N).reshape(N, N) / 25.0, axis=1) + 2 * np.eye(N)
    for i, row in enumerate(cirh.with_neighbors(F_I, S)):
        order = sorted(range(N), key=lambda j: -S[i, j])
        assert order[0] == i
        assert np.allclose(row, 0.7 * F_I[i] + 0.2 * F_I[order[2]] + 0.1 * F_I[order[3]])


def test_the_losses_of_cirh():
    S, B, H = RNG.random((N, N)), np.sign(B_I + B_T), np.tanh(B_I * B_T)
    R_I, R_T = F_I + RNG.standard_normal(F_I.shape), F_T + RNG.standard_normal(F_T.shape)
    expected = sum(squared(lambda i, j, Z=Z: cos(Z[i], Z[j]) - S[i, j]) for Z in (B_I, B_T, H))
    expected += 10 * (np.mean((R_I - F_I) ** 2) + np.mean((R_T - F_T) ** 2)) + np.mean((H - np.sign(H)) ** 2)
    assert np.isclose(cirh.graph_loss((B_I, B_T, H), (R_I, R_T), (F_I, F_T), S), expected)
    follow = sum(
        squared(lambda i, j, X=X, Y=Y: cos(X[i], Y[j]) - S[i, j]) for X, Y in ((B_I, B_T), (B_I, B_I), (B_T, B_T))
    )
    fitting = np.mean((B_I - B) ** 2) + np.mean((B_T - B) ** 2) + np.mean((B_I - B_T) ** 2)
    assert np.isclose(cirh.heads_loss(B_I, B_T, B, S, 0.3), fitting + 0.3 * follow)


def test_the_loss_of_dbrc():
    W_I, W_T, s = RNG.standard_normal((6, 7)), RNG.standard_normal((6, 4)), RNG.uniform(0.5, 2.0, 6)
    expected = 0.1 * np.mean([1 / value**2 for value in s])
    for z in (B_I + B_T, B_I, B_T):
        for i in range(N):
            h = [np.tanh(s[k] * z[i, k]) for k in range(6)]
            expected += (sum((h @ W_I - F_I[i]) ** 2) + sum((h @ W_T - F_T[i]) ** 2)) / N
    decoders = (lambda h: h @ W_I, lambda h: h @ W_T)
    assert np.isclose(dbrc.joint_loss((B_I + B_T, B_I, B_T), s, decoders, (F_I, F_T), 0.1), expected)


def test_the_likelihood_of_dcmh_and_its_gradient():
    rng = np.random.default_rng(1)
    F, G, S = rng.standard_normal((3, 4)), rng.standard_normal((6, 4)), (rng.random((3, 6)) < 0.4).astype(float)
    gradient, value = dcmh.likelihood(F, G, S)
    T = F @ G.T / 2
    assert np.isclose(value, sum(log(1 + exp(t)) - s * t for t, s in zip(T.ravel(), S.ravel(), strict=True)))
    assert np.allclose(gradient, slopes(lambda X: dcmh.likelihood(X, G, S)[1], F), atol=1e-6)
    assert np.isfinite(dcmh.likelihood(1e3 * F, 1e3 * G, S)[0].sum() + dcmh.likelihood(1e3 * F, 1e3 * G, S)[1])


def test_the_other_terms_of_dcmh_and_their_gradient():
    rng = np.random.default_rng(2)
    everything, B = rng.standard_normal((8, 4)), np.sign(rng.standard_normal((3, 4)))

    def value(F):
        total = F.sum(axis=0) + everything[3:].sum(axis=0)
        return dcmh.quantization(F, B, total, 0.7, 0.3)[1]

    gradient = dcmh.quantization(everything[:3], B, everything.sum(axis=0), 0.7, 0.3)[0]
    assert np.allclose(gradient, slopes(value, everything[:3]), atol=1e-6)
    expected = 0.7 * np.sum((B - everything[:3]) ** 2) + 0.3 * np.sum(everything.sum(axis=0) ** 2)
    assert np.isclose(value(everything[:3]), expected)


def test_the_items_of_dcmh_are_alike_where_they_share_a_label():
    L = np.array([[1.0, 0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0]])
    assert dcmh.shared_labels(L, L).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_the_ranking_loss_of_ucch():
    S = RNG.uniform(-1, 1, (N, N))
    expected = 0.0
    for M in (S, S.T):
        for i in range(N):
            lowered = [s if s >= M[i, i] - 0.2 else s - 0.3 for s in M[i]]
            expected += (log(sum(map(exp, lowered))) - M[i, i] + 0.2) / N
    assert np.isclose(_numpy_ranking(S), expected)


def _numpy_ranking(S):
    """`ranking_loss` uses methods of tensors for sums of exponentials."""

    class Sums(np.ndarray):
        def logsumexp(self, axis):
            return np.log(np.exp(np.asarray(self)).sum(axis))

    keep = np.where
    try:
        np.where = lambda *args: keep(*args).view(Sums)
        return float(ucch.ranking_loss(S, 0.2, 0.3))
    finally:
        np.where = keep


def test_codes_of_labels_explain_shared_labels_better_in_every_sweep():
    rng = np.random.default_rng(3)
    labels = np.eye(4)[rng.integers(0, 4, 60)]
    S = ddcmh.agreement(labels, labels)
    assert np.array_equal(S == 1, labels.argmax(axis=1)[:, None] == labels.argmax(axis=1)[None])
    B, others = np.sign(rng.standard_normal((40, 16))), np.sign(rng.standard_normal((20, 16)))
    losses = []
    for _ in range(4):
        missed = 16 * S[:40, :40] - B @ B.T
        np.fill_diagonal(missed, 0.0)
        losses.append([np.sum(missed**2), np.sum((16 * S[40:, :40] - others @ B.T) ** 2)])
        others = ddcmh.follow(others, B, S[40:, :40], 1)
        assert np.sum((16 * S[40:, :40] - others @ B.T) ** 2) <= losses[-1][1]
        B = ddcmh.descend(B, S[:40, :40], 1)
    assert np.all(np.diff([first for first, _ in losses]) <= 0)


@pytest.mark.parametrize("sample", [1000, 50])
def test_codes_of_labels_tell_classes_apart_in_every_bit(monkeypatch, sample):
    monkeypatch.setattr(ddcmh, "SAMPLE_ITEMS", sample)
    labels = np.eye(4)[np.random.default_rng(3).integers(0, 4, 90)]
    B = ddcmh.codes_of_labels(labels, 16, np.random.default_rng(0))
    assert np.array_equal(np.abs(B), np.ones((90, 16)))
    assert np.abs(B.mean(axis=0)).max() < 0.7
    agree, S = B @ B.T, ddcmh.agreement(labels, labels)
    assert agree[S > 0].mean() > 14
    assert agree[S < 0].mean() < -2


def test_the_targets_of_the_text_head_of_ddcmh():
    rng = np.random.default_rng(4)
    labels, B = (rng.random((9, 3)) < 0.4).astype(float), (rng.random((9, 5)) < 0.5).astype(float)
    labels[2] = 0
    for i, row in enumerate(ddcmh.mean_codes(labels, B)):
        shared = np.array([labels[i] @ labels[j] for j in range(9)])
        assert np.allclose(row, shared @ B / shared.sum() if shared.sum() else B.mean(axis=0))


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_rows_of_every_size_get_unit_length(factor):
    from fusehash.numerics.features import unit_rows

    X = np.vstack([RNG.standard_normal((3, 5)), np.zeros(5)]) * factor
    lengths = np.linalg.norm(unit_rows(X), axis=1)
    assert np.allclose(lengths, [1, 1, 1, 0])


def slopes(function, at, step=1e-5):
    """Central differences of a function of a matrix."""
    gradient = np.zeros_like(at)
    for place in np.ndindex(*at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        gradient[place] = (function(at + moved) - function(at - moved)) / (2 * step)
    return gradient
