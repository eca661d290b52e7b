"""Sums over rows that stay comparable from day to day, and what can be told from them alone.

Everything that is fixed by the first fit (preparations, feature maps, their means, anchors, first embedding, latent
anchors) is the frame. In it every row has the columns

    A = [F, S, 1, E],     F features, S graph row, E = 1 where a view is present,

and was given the real code y and the bits b = sgn(y). Kept are A'A, A'b, A'y and sum y^2, which are added over rows of
all days, and A and b of a few rows, drawn evenly from all. Any later map y_new = A M then has its moments over all rows
without touching them: A'y_new = (A'A) M. New means mu of the features are such a map too, F - E mu, so that spectrum
and hash functions are centered exactly, also where views are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from fusehash import bits
from fusehash.files import storable
from fusehash.hashers.fusehash.closed_form import BLOCK_ROWS, Moments, exact
from fusehash.hashers.fusehash.fitted import Embedding, Fitted, GraphMap, Masks
from fusehash.hashers.fusehash.rows import RowMaps
from fusehash.numerics.arrays import Array, cast, host, namespace, precision, to_device_of, zeros
from fusehash.numerics.rotation import groups, signs_of
from fusehash.streams.row_passes import Block, RowPasses

# Rows of the sample: the share of bits that change is known to less than a hundredth.
SAMPLE_ROWS = 500


@storable
@dataclass
class Sums:
    """Of the rows of some days: A'A, A'b, A'y and sum y^2. To be kept, A'A is packed: the lower triangle, by rows."""

    gram: Array
    with_bits: Array
    with_codes: Array
    squares: Array

    def add(self, other: Sums) -> None:
        self.gram += other.gram
        self.with_bits += other.with_bits
        self.with_codes += other.with_codes
        self.squares += other.squares

    def plus(self, other: Sums | None) -> Sums:
        if other is None:
            return self
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def packed(self) -> Sums:
        return replace(self, gram=np.concatenate([row[: i + 1] for i, row in enumerate(self.gram)]))

    def whole(self) -> Sums:
        q = len(self.with_bits)
        gram, start = np.empty((q, q)), 0
        for i in range(q):
            gram[i, : i + 1] = gram[: i + 1, i] = self.gram[start : start + i + 1]
            start += i + 1
        return replace(self, gram=gram)


@storable
@dataclass
class Sample:
    """A few rows, each as likely as any other: those of the least priority, a number drawn evenly for every row."""

    priority: Array
    columns: Array  # A
    codes: Array  # as given out, packed

    def joined(self, other: Sample) -> Sample:
        """A sample of the rows of both."""
        both = [np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)]
        least = np.sort(np.argsort(both[0], kind="stable")[:SAMPLE_ROWS])
        return Sample(*(part[least] for part in both))


def least_of(n: int, count: int, rng: np.random.Generator) -> Array:
    """The least `count` of n numbers drawn evenly from 0 to 1, ascending, without drawing the others."""
    steps = rng.random(count) ** (1.0 / (n - np.arange(count)))
    return 1.0 - np.cumprod(steps)


@storable
@dataclass
class Kept:
    """All that is kept of some rows."""

    sums: Sums  # packed, on the host
    sample: Sample  # on the host

    def plus(self, other: Kept | None) -> Kept:
        if other is None:
            return self
        return Kept(self.sums.plus(other.sums), self.sample.joined(other.sample))


@storable
@dataclass
class MovedGraph(GraphMap):
    """The graph of the first fit for features with later means: the first embedding is moved back by as much."""

    offsets: dict[str, Array] | None = None  # of the first embedding, for every view

    def embedded(self, F: Array, S: Array, present: Masks) -> Array:
        Y = super().embedded(F, S, present)
        for name, offset in (self.offsets or {}).items():
            seen = present[name]
            Y = Y + (offset if seen is None else cast(seen, precision(Y))[:, None] * offset)
        return Y


class Frame:
    """What the first fit has fixed."""

    def __init__(self, fitted: Fitted, means: dict[str, Array], n_rows: int = 0) -> None:
        """`fitted` of any day, the means of the first, and the number of rows that will be passed over."""
        self.maps, self.means, graph = fitted.maps, means, fitted.graph
        if isinstance(graph, MovedGraph):
            graph = GraphMap(**{f.name: getattr(graph, f.name) for f in fields(GraphMap)})
        self.graph: GraphMap | None = graph
        cuts = np.cumsum([0, *(m.n_features for m in self.maps.values())])
        self.spans = {name: slice(int(cuts[i]), int(cuts[i + 1])) for i, name in enumerate(self.maps)}
        self.n_features = int(cuts[-1])
        self.rows = RowMaps(self.maps, graph, n_rows, means)

    def shift(self, means: dict[str, Array]) -> Array:
        """mu, so that [1, E] mu is what later means take off the features further."""
        like = next(iter(means.values()))
        mu = zeros((1 + len(self.spans), self.n_features), like)
        for i, (name, span) in enumerate(self.spans.items(), start=1):
            mu[i, span] = cast(means[name], "float64") - cast(self.means[name], "float64")
        return mu

    def later_means(self, gram: Array) -> dict[str, Array]:
        """Means over all rows of A'A in which a view is present."""
        start = len(gram) - len(self.spans)
        found = {}
        for i, (name, span) in enumerate(self.spans.items(), start=start):
            count = max(float(gram[i, i]), 1.0)
            mean = cast(self.means[name], "float64") + gram[i, span] / count
            found[name] = cast(mean, precision(self.means[name]))
        return found

    def moments(self, gram: Array, mu: Array) -> Moments:
        """What the spectrum needs, of features with later means."""
        D, q = self.n_features, len(gram) - len(mu)
        EA = gram[q:]
        EF, EE = EA[:, :D], EA[:, q:]
        FF = gram[:D, :D] - EF.T @ mu - mu.T @ EF + mu.T @ EE @ mu
        FS = gram[:D, D:q] - mu.T @ EA[:, D:q]
        F = EF[0] - EE[0] @ mu
        return Moments(round(float(gram[q, q])), F, EA[0, D:q], FF, FS, gram[D:q, D:q])

    def on_columns(self, embedding: Embedding, mu: Array) -> Array:
        """M with Y = A M for an embedding of features with later means."""
        on_features = cast(embedding.on_features, "float64")
        parts = [on_features, cast(embedding.on_graph, "float64"), -(mu @ on_features)]
        return namespace(on_features).concat(parts, axis=0)

    def moved_graph(self, mu: Array) -> GraphMap | None:
        """The same graph for features with later means."""
        graph = self.graph
        if graph is None or graph.first is None:
            return graph
        on_features, dtype = cast(graph.first.on_features, "float64"), precision(graph.first.on_features)
        offsets = {
            name: cast(mu[i, span] @ on_features[span], dtype)
            for i, (name, span) in enumerate(self.spans.items(), start=1)
        }
        return MovedGraph(**{f.name: getattr(graph, f.name) for f in fields(GraphMap)}, offsets=offsets)

    # -- passes --------------------------------------------------------------------------------------------------

    def columns(self, block: Block, rows: RowMaps | None = None) -> Array:
        """A of some rows."""
        F, S = (rows or self.rows)(block)
        xp, dtype = namespace(F), precision(F)
        ones = xp.ones_like(F[:, :1])
        masks = [block.present[name] for name in self.maps]
        E = [ones if mask is None else cast(mask, dtype)[:, None] for mask in masks]
        return xp.concat([F, S, ones, *E], axis=1)

    def codes_of(self, A: Array, code_map: Embedding, mu: Array) -> Array:
        """y of some rows."""
        D, q = self.n_features, A.shape[1] - len(mu)
        return code_map(A[:, :D] - A[:, q:] @ cast(mu, precision(A)), A[:, D:q])

    def grams(self, data: RowPasses, code_map: Embedding, mu: Array) -> tuple[Array, Array]:
        """A'A of new rows, and A'b for the bits that a map would give them."""

        def of_block(block: Block) -> tuple[None, Sums]:
            A = self.columns(block)
            B, none = signs_of(self.codes_of(A, code_map, mu)), zeros((0, 0), A)
            return None, Sums(product(A, A), product(A, B), none, none)

        sums = data.total(of_block, BLOCK_ROWS)[1]
        return sums.gram, sums.with_bits

    def give_codes(self, data: RowPasses, code_map: Embedding, mu: Array, gram: Array) -> tuple[Array, Sums]:
        """Packed codes of new rows, and their sums."""

        def of_block(block: Block) -> tuple[tuple[Array], Sums]:
            A = self.columns(block)
            Y = self.codes_of(A, code_map, mu)
            return (bits.pack(Y),), _given(A, signs_of(Y), Y, zeros((0, 0), A))

        lines, sums = data.total(of_block, BLOCK_ROWS)
        assert lines is not None
        return lines[0], replace(sums, gram=gram)

    def sample(self, data: RowPasses, codes: bits.Codes, rng: np.random.Generator) -> Sample:
        """A few of the rows, with their codes."""
        n, count = data.n_rows, min(data.n_rows, SAMPLE_ROWS)
        rows = rng.choice(n, count, replace=False)
        priority = least_of(n, count, rng)
        order = np.argsort(rows)
        some, row_maps = data.select(rows[order]), self.rows.over(count)
        parts = [host(part) for part in some.each(lambda block: self.columns(block, row_maps), some.blocks(BLOCK_ROWS))]
        return Sample(priority[order], np.concatenate(parts), codes[rows[order]])

    def first_sums(self, data: RowPasses, code_map: Embedding, codes: bits.Codes) -> Sums:
        """The sums of rows whose codes are known already."""
        n_bits = code_map.on_features.shape[1]
        mu = self.shift(self.means)

        def of_block(block: Block, given: bits.Codes) -> tuple[None, Sums]:
            A = self.columns(block)
            B = to_device_of(bits.unpack(given, n_bits).astype(precision(A)), A)
            return None, _given(A, B, self.codes_of(A, code_map, mu), product(A, A))

        sums: Sums = data.total(of_block, BLOCK_ROWS, [codes])[1]
        return sums


def product(A: Array, B: Array) -> Array:
    """A'B in double precision, of rows as products are taken of them."""
    A = exact(A)
    return cast(A.T @ cast(B, precision(A)), "float64")


def _given(A: Array, B: Array, Y: Array, gram: Array) -> Sums:
    squares = namespace(Y).sum(cast(Y, "float64") ** 2, axis=0)
    return Sums(gram, product(A, B), product(A, Y), squares)


# -- what sums tell --------------------------------------------------------------------------------------------------


def aligned_rotation(C: Array, nested: tuple[int, ...]) -> Array:
    """Y b' of all rows -> the rotation that brings Y closest to the bits there are: one step of ITQ from them.

    C = Y'B is (r, n_bits). The columns come in the groups of `nested_rotations`, each a part of one rotation.
    """
    r, n_bits = C.shape
    known = host(C)
    R = np.zeros((r, n_bits))
    for start, stop, seen in _groups(r, n_bits, nested):
        U, _, Vt = np.linalg.svd(known[:seen, start:stop], full_matrices=False)
        R[:seen, start:stop] = U @ Vt
    return to_device_of(R, C)


def _groups(r: int, n_bits: int, nested: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """First and last column of every rotation, and the directions that it sees."""
    for start, stop in pairwise((0, *nested, n_bits)):
        seen = min(stop, r)
        for width in groups(seen, stop - start):
            yield start, start + width, seen
            start += width


def spread(total: Array, squares: Array, count: float) -> tuple[Array, Array]:
    """Mean and standard deviation of codes from their sums."""
    xp = namespace(total)
    mean = total / count
    return mean, xp.sqrt(xp.clip(squares / count - mean**2, 1e-30, None))


def gaussian_bits(with_ones: Array, AY: Array, Y: Array, squares: Array, count: float) -> Array:
    """A' sgn(y), had A and y a joint normal distribution (Price 1958; Bussgang 1952 for zero means):

    E[a sgn(y)] = E[a] (2 Phi(t) - 1) + 2 phi(t) cov(a, y) / sd(y),     t = E[y] / sd(y).
    """
    mean, deviation = spread(Y, squares, count)
    t = host(mean / deviation)
    tilt = to_device_of(2.0 * ndtr(t) - 1.0, AY)
    slope = to_device_of(2.0 / np.sqrt(2.0 * np.pi) * np.exp(-(t**2) / 2.0), AY)
    covariance = AY - with_ones[:, None] * mean
    return with_ones[:, None] * tilt + covariance * (slope / deviation)


def bits_of_map(sums: Sums, M: Array, one: int) -> Array:
    """A'b of rows that are gone, for the bits of a later map A M; `one` is the column of ones.

    The bits as given out are known; the normal distribution has to tell only what changes.
    """
    gram, count = sums.gram, float(sums.gram[one, one])
    AY = gram @ M
    then = gaussian_bits(gram[one], sums.with_codes, sums.with_codes[one], sums.squares, count)
    now = gaussian_bits(gram[one], AY, AY[one], namespace(M).sum(M * AY, axis=0), count)
    return sums.with_bits + now - then


def changed_bits(sample: Sample, Y: Array) -> float:
    """Share of the bits of a sample that are not those of later codes Y."""
    n_bits = Y.shape[1]
    return float(np.mean(bits.unpack(sample.codes, n_bits) != bits.unpack(host(bits.pack(Y)), n_bits)))
