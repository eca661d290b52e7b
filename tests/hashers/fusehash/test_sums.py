"""The parts of partial_fit by themselves: means of later rows, the aligned rotation, even samples."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes

from fusehash.hashers.fusehash.fitted import Embedding
from fusehash.hashers.fusehash.frame import Frame, least_of
from fusehash.hashers.fusehash.kept_sums import SAMPLE_ROWS, Sample
from fusehash.hashers.fusehash.partial_fit import aligned_rotation
from fusehash.numerics.rotation import learned_rotation, random_orthogonal


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.6), st.integers(0, 5))
def test_later_means_are_taken_off_exactly(seed: int, lost: float, n_graph: int) -> None:
    rng = np.random.default_rng(seed)
    n, spans = 40, {"a": slice(0, 3), "b": slice(3, 7)}
    E = np.ones((n, 3))
    E[:, 1:] = rng.random((n, 2)) >= lost
    seen = np.repeat(E[:, 1:], (3, 4), axis=1)
    raw, S = rng.standard_normal((n, 7)) + 2.0, rng.random((n, n_graph))
    frame = object.__new__(Frame)
    frame.spans, frame.n_features = spans, 7
    frame.means = {name: rng.standard_normal(span.stop - span.start) for name, span in spans.items()}
    F = (raw - np.concatenate(list(frame.means.values()))) * seen
    A = np.hstack([F, S, E])
    means = frame.later_means(A.T @ A)
    centered = (raw - np.concatenate(list(means.values()))) * seen
    np.testing.assert_allclose(centered.sum(axis=0), 0.0, atol=1e-9)
    mu = frame.shift(means)
    sums = frame.moments(A.T @ A, mu)
    assert sums["count"] == n
    truth = {
        "F": centered.sum(axis=0),
        "S": S.sum(axis=0),
        "FF": centered.T @ centered,
        "FS": centered.T @ S,
        "SS": S.T @ S,
    }
    for name, expected in truth.items():
        np.testing.assert_allclose(sums[name], expected, atol=1e-8)
    embedding = Embedding(rng.standard_normal((7, 2)), rng.standard_normal((n_graph, 2)))
    Y = centered @ embedding.on_features + S @ embedding.on_graph
    np.testing.assert_allclose(A @ frame.on_columns(embedding, mu), Y, atol=1e-9)
    np.testing.assert_allclose(frame.codes_of(A, embedding, mu), Y, atol=1e-9)


def test_alignment_is_one_step_of_itq() -> None:
    rng = np.random.default_rng(1)
    Y = rng.standard_normal((500, 16)) * np.linspace(2.0, 0.5, 16)
    R = random_orthogonal(16, rng)
    C = Y.T @ np.where(Y @ R > 0, 1.0, -1.0)
    np.testing.assert_allclose(aligned_rotation(C, ()), learned_rotation(Y, R, 1), atol=1e-9)
    C = rng.standard_normal((16, 40))  # the columns of three rotations: 14, 13, 13
    R = aligned_rotation(C, ())
    for part in (slice(0, 14), slice(14, 27), slice(27, 40)):
        np.testing.assert_allclose(R[:, part].T @ R[:, part], np.eye(part.stop - part.start), atol=1e-9)
    R = aligned_rotation(C[:, :16], (8,))
    assert not R[8:, :8].any()
    np.testing.assert_allclose(R[:8, :8], orthogonal_procrustes(np.eye(8), C[:8, :8])[0], atol=1e-9)


def test_every_row_is_as_likely_in_a_sample() -> None:
    """Rows of three unequal days, joined in any order; the sample is even over all of them."""
    rng, counts = np.random.default_rng(3), (300, 2400, 900)

    parts = []
    for number, n in enumerate(counts):
        count = min(n, SAMPLE_ROWS)
        columns, codes = np.full((count, 1), float(number)), np.zeros((count, 1), np.uint8)
        parts.append(Sample(least_of(n, count, rng), columns, codes))
    a, b, c = parts
    one, other = a.joined(b).joined(c), c.joined(a).joined(b)
    assert np.array_equal(np.sort(one.priority), np.sort(other.priority))
    shares = [float(np.mean(one.columns == number)) for number in range(3)]
    np.testing.assert_allclose(shares, np.array(counts) / sum(counts), atol=0.05)


def test_the_least_of_many_numbers() -> None:
    rng = np.random.default_rng(0)
    ours = np.array([least_of(20, 5, rng) for _ in range(20_000)])
    truth = np.sort(rng.random((20_000, 20)), axis=1)[:, :5]
    np.testing.assert_allclose(ours.mean(axis=0), truth.mean(axis=0), atol=0.003)
    np.testing.assert_allclose(np.cov(ours.T), np.cov(truth.T), atol=0.0005)
    whole = least_of(7, 7, rng)
    assert (np.diff(whole) > 0).all()
    assert 0.0 < whole[0] < whole[-1] < 1.0
