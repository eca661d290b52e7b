"""What `partial_fit` keeps of rows that are gone: sums of products, and a few rows; see there for the letters."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from fusehash.files import storable
from fusehash.hashers.fusehash.fitted import Arrays
from fusehash.numerics.arrays import Array, host, namespace, to_device_of

SAMPLE_ROWS = 500  # the share of bits that change is then known to less than a hundredth


@storable("Sums")
@dataclass
class FrameSums:
    """A'A, A'b, A'y, sum y^2 and A't of some rows. In a model A'A is packed: the lower triangle, row by row."""

    gram: Array
    with_bits: Array
    with_codes: Array
    squares: Array
    with_targets: Array

    @classmethod
    def of(cls, sums: dict[str, Any]) -> FrameSums:
        return cls(**{f.name: sums[f.name] for f in fields(cls)})

    @classmethod
    def revive(cls, with_bits: Array, **others: Array) -> FrameSums:
        """Sums of models before format 4, whose hash functions were fitted to the bits."""
        return cls(with_bits=with_bits, with_targets=with_bits, **others)

    def plus(self, other: FrameSums) -> FrameSums:
        return FrameSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def packed(self) -> FrameSums:
        return replace(self, gram=self.gram[np.tri(len(self.gram), dtype=bool)])

    def whole(self) -> FrameSums:
        q = len(self.with_bits)
        gram, lower = np.empty((q, q)), np.tri(q, dtype=bool)
        gram[lower] = gram.T[lower] = self.gram
        return replace(self, gram=gram)


@storable
@dataclass
class Sample:
    """A few rows, each as likely as any other: those with the least of the numbers drawn evenly for every row."""

    priority: Array
    columns: Array  # A
    codes: Array  # as given out, packed

    def joined(self, other: Sample) -> Sample:
        """A sample of the rows of both."""
        both = [np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)]
        least = np.sort(np.argsort(both[0], kind="stable")[:SAMPLE_ROWS])
        return Sample(*(part[least] for part in both))


@storable("Kept")
@dataclass
class RowSummary:
    """All that is kept of some rows, on the host."""

    sums: FrameSums  # packed
    sample: Sample

    def plus(self, other: RowSummary | None) -> RowSummary:
        if other is None:
            return self
        return RowSummary(self.sums.plus(other.sums), self.sample.joined(other.sample))


@storable
@dataclass
class Seen:
    """What is kept of all rows: of the first call, of later calls, and how to recognize the rows of each call."""

    means: Arrays  # of the features, by the first call
    first: RowSummary
    later: RowSummary | None
    parts: list[list[Any]]  # [digest of the sums, number of rows] of every call

    @property
    def total(self) -> RowSummary:
        """Of all rows, not packed."""
        total = self.first.plus(self.later)
        return replace(total, sums=total.sums.whole())

    def with_part(self, summary: RowSummary, parts: list[list[Any]]) -> Seen:
        return replace(self, later=summary.plus(self.later), parts=self.parts + parts)


def targets_of_map(sums: FrameSums, M: Array, ones: int, before: float, after: float) -> Array:
    """A't of rows that are gone, for the targets of a later map A M; `ones` is the column of ones.

    A't of the earlier map is known, with its softness `before`; the normal distribution estimates only the change.
    """
    gram, count = sums.gram, float(sums.gram[ones, ones])
    AY = gram @ M
    then = gaussian_targets(gram[ones], sums.with_codes, sums.with_codes[ones], sums.squares, count, before)
    now = gaussian_targets(gram[ones], AY, AY[ones], namespace(M).sum(M * AY, axis=0), count, after)
    return sums.with_targets + now - then


def gaussian_targets(with_ones: Array, AY: Array, Y: Array, squares: Array, count: float, softness: float) -> Array:
    """A't, if A and y had a joint normal distribution (Price 1958; Bussgang 1952 for signs and zero means):

    E[a t] = E[a] (2 Phi(m) - 1) + 2 phi(m) cov(a, y) / d,     m = E[y] / d,     d^2 = var(y) + (2 / pi) h^2,

    with tanh(y / h) taken as 2 Phi(y / s) - 1, s = sqrt(2 / pi) h, which differs by .04 at most.
    """
    xp, mean = namespace(Y), Y / count
    deviation = xp.sqrt(xp.clip(squares / count - mean**2, 1e-30, None) + 2.0 / np.pi * softness**2)
    t = host(mean / deviation)
    tilt = to_device_of(2.0 * ndtr(t) - 1.0, AY)
    slope = to_device_of(2.0 / np.sqrt(2.0 * np.pi) * np.exp(-(t**2) / 2.0), AY)
    covariance = AY - with_ones[:, None] * mean
    return with_ones[:, None] * tilt + covariance * (slope / deviation)
