"""What the first call of `partial_fit` fixes, and the columns and sums of rows in it; see there for the letters."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.files import storable
from fusehash.hashers.fusehash.closed_form import BLOCK_ROWS
from fusehash.hashers.fusehash.fitted import Arrays, Embedding, Fitted, GraphMap, Masks, RowMaps
from fusehash.hashers.fusehash.kept_sums import SAMPLE_ROWS, FrameSums, RowSummary, Sample
from fusehash.numerics.arrays import Array, cast, host, namespace, precision, to_device_of, zeros
from fusehash.numerics.rotation import signs_of, soft_signs
from fusehash.streams.row_passes import Block, RowPasses, RowSums


class Frame:
    """What the first call has fixed: the maps, which any call has, with the means of the first."""

    def __init__(self, fitted: Fitted, means: Arrays, n_rows: int = 0) -> None:
        graph = fitted.graph
        if isinstance(graph, MovedGraph):
            graph = GraphMap(**{f.name: getattr(graph, f.name) for f in fields(GraphMap)})
        self.maps = RowMaps(fitted.maps, graph, means, n_rows)
        self.means, self.spans = means, self.maps.spans
        self.n_features = max(span.stop for span in self.spans.values())

    def shift(self, means: Arrays) -> Array:
        """mu, so that [1, E] mu is what later means subtract from F in addition."""
        mu = zeros((1 + len(self.spans), self.n_features), next(iter(means.values())))
        for i, (name, span) in enumerate(self.spans.items(), start=1):
            mu[i, span] = cast(means[name], "float64") - cast(self.means[name], "float64")
        return mu

    def later_means(self, gram: Array) -> Arrays:
        """Means over all rows of A'A in which a view is present."""
        means, start = {}, len(gram) - len(self.spans)
        for i, (name, span) in enumerate(self.spans.items(), start=start):
            mean = cast(self.means[name], "float64") + gram[i, span] / max(float(gram[i, i]), 1.0)
            means[name] = cast(mean, precision(self.means[name]))
        return means

    def moments(self, gram: Array, mu: Array) -> RowSums:
        """What the spectrum needs, for features with later means."""
        D, q = self.n_features, len(gram) - len(mu)
        EA = gram[q:]
        EF, EE = EA[:, :D], EA[:, q:]
        FF = gram[:D, :D] - EF.T @ mu - mu.T @ EF + mu.T @ EE @ mu
        FS = gram[:D, D:q] - mu.T @ EA[:, D:q]
        F = EF[0] - EE[0] @ mu
        return RowSums(count=round(float(gram[q, q])), F=F, S=EA[0, D:q], FF=FF, FS=FS, SS=gram[D:q, D:q])

    def on_columns(self, embedding: Embedding, mu: Array) -> Array:
        """M with Y = A M, for an embedding of features with later means."""
        on_features = cast(embedding.on_features, "float64")
        parts = [on_features, cast(embedding.on_graph, "float64"), -(mu @ on_features)]
        return namespace(on_features).concat(parts, axis=0)

    def moved_graph(self, mu: Array) -> GraphMap | None:
        """The same graph for features with later means."""
        graph = self.maps.graph
        if graph is None or graph.first is None:
            return graph
        on_features, dtype = cast(graph.first.on_features, "float64"), precision(graph.first.on_features)
        views = enumerate(self.spans.items(), start=1)
        offsets = {name: cast(mu[i, span] @ on_features[span], dtype) for i, (name, span) in views}
        return MovedGraph(**{f.name: getattr(graph, f.name) for f in fields(GraphMap)}, offsets=offsets)

    def columns(self, maps: RowMaps, block: Block) -> Array:
        """A of a block."""
        features = maps.features(block)
        F, S = features.F, maps.graph_rows(features)
        ones, masks = namespace(F).ones_like(F[:, :1]), (block.present[name] for name in maps.maps)
        E = [ones if mask is None else cast(mask, precision(F))[:, None] for mask in masks]
        return namespace(F).concat([F, S, ones, *E], axis=1)

    def codes_of(self, A: Array, code_map: Embedding, mu: Array) -> Array:
        """y of some rows."""
        D, q = self.n_features, A.shape[1] - len(mu)
        return code_map(A[:, :D] - A[:, q:] @ cast(mu, precision(A)), A[:, D:q])

    def row_sums(
        self, fitted: Fitted, mu: Array, with_gram: bool, block: Block, codes: bits.Codes | None = None
    ) -> tuple[tuple[Array], RowSums]:
        """Codes of a block and its sums; b are the signs of y, or the `codes` given out. A'A only `with_gram`."""
        A = self.columns(self.maps, block)
        Y = self.codes_of(A, fitted.code_map, mu)
        B = signs_of(Y) if codes is None else to_device_of(bits.unpack(codes, Y.shape[1]), A)
        T = soft_signs(Y, fitted.softness) if fitted.softness else B
        squares = namespace(Y).sum(cast(Y, "float64") ** 2, axis=0)
        left = self.maps.exact(A)
        rights = {"gram": A if with_gram else A[:, :0], "with_bits": B, "with_codes": Y, "with_targets": T}
        sums = {n: cast(left.T @ cast(right, precision(left)), "float64") for n, right in rights.items()}
        return (bits.pack(Y),), RowSums(sums, squares=squares)

    def summary(self, data: RowPasses, sums: FrameSums, codes: bits.Codes) -> tuple[RowSummary, list[Any]]:
        """All that is kept of the rows of one call, and what identifies them: a digest of their sums, their number."""
        diagonal = np.ascontiguousarray(np.diagonal(sums.gram))
        digest = blake2b(diagonal.tobytes(), digest_size=16).hexdigest()
        rng, n, count = np.random.default_rng(int(digest, 16)), data.n_rows, min(data.n_rows, SAMPLE_ROWS)
        rows = rng.choice(n, count, replace=False)
        priority, order = least_of(n, count, rng), np.argsort(rows)
        some = data.select(rows[order])
        maps = replace(self.maps, n_rows=count, kept_features={}, kept_graphs={})
        columns = [host(A) for A in some.each(partial(self.columns, maps), some.blocks(BLOCK_ROWS))]
        sample = Sample(priority[order], np.concatenate(columns), codes[rows[order]])
        return RowSummary(sums.packed(), sample), [digest, n]


@storable
@dataclass
class MovedGraph(GraphMap):
    """The graph of the first call for features with later means: offsets move the first embedding back."""

    offsets: Arrays | None = None  # of the first embedding, for every view

    def embedded(self, F: Array, S: Array, present: Masks) -> Array:
        Y = super().embedded(F, S, present)
        for name, offset in (self.offsets or {}).items():
            seen = present[name]
            Y = Y + (offset if seen is None else cast(seen, precision(Y))[:, None] * offset)
        return Y


def least_of(n: int, count: int, rng: np.random.Generator) -> Array:
    """The least `count` of n numbers drawn evenly from 0 to 1, ascending, without drawing the others."""
    steps = rng.random(count) ** (1.0 / (n - np.arange(count)))
    return 1.0 - np.cumprod(steps)
