"""The default of AGSFH in closed form: one spectrum, one rotation, one regression, instead of a loop from random codes.

For a fixed graph S and with every W_m eliminated, the objective of the paper over B is

    max Tr(B' M B),   M = sum_m a_m Q_m Q_m' + mu S L^-1 S',   Q_m = F_m (F_m'F_m + ridge I)^-1/2,

F_m the features of view m. Adding the constraint that the paper lacks, B'B = N I (without it, constant bits are
optimal), gives

    Z = [sqrt(a_1) Q_1, ..., sqrt(a_M) Q_M, sqrt(mu) centred(S L^-1/2)],     M = Z Z'
    (w, V): top r eigenpairs of Z'Z,     Y = sqrt(N) Z V diag(w)^(p - 1/2)
    R: rotation by ITQ,     B = sgn(Y R),     W_m = (F_m'F_m + ridge_h I)^-1 F_m'B.

The graph is fused in two steps: first from the raw views, then once more with a graph over Y itself, in which
neighbours agree in all views at once; the two are blended. The data is touched only through sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from fusehash.hashers.closed_form_maps import (
    Choices,
    Embedding,
    Fitted,
    Floats,
    GraphMap,
    Masks,
    Single,
    features_of,
    usual_graph_weight,
)
from fusehash.kernels import FeatureMap
from fusehash.parallel import map_blocks
from fusehash.rotation import learned_rotations
from fusehash.spectrum import leading_eigenpairs, ridge_solver, whitening

ROTATION_ROWS = 20_000  # enough for the rotation, and for the mean features of large data
# What a pass computes of the rows is kept for the next up to this many entries (64 MiB); beyond, it is computed anew.
CACHED_ENTRIES = 2**24
Block = tuple[dict[str, Single], Masks, Single]


class Source(Protocol):
    """Training rows, prepared, in blocks."""

    @property
    def names(self) -> list[str]: ...
    @property
    def n_rows(self) -> int: ...
    def blocks(self) -> Iterator[slice]: ...
    def prepared(self, name: str, rows: slice) -> Single: ...
    def present(self, name: str, rows: slice) -> NDArray[np.bool_]: ...


@dataclass
class Moments:
    """Sums over rows: what the spectrum needs."""

    count: int
    F: Floats
    S: Floats
    FF: Floats | None
    FS: Floats
    SS: Floats

    def add(self, other: Moments) -> None:
        self.count += other.count
        self.F += other.F
        self.S += other.S
        if self.FF is not None and other.FF is not None:
            self.FF += other.FF
        self.FS += other.FS
        self.SS += other.SS


class ClosedForm:
    """Fits the closed form on a source of prepared rows."""

    def __init__(
        self,
        source: Source,
        maps: dict[str, FeatureMap],
        graph: GraphMap | None,
        choices: Choices,
        n_threads: int | None = None,
        raw_graphs: list[Single] | None = None,
    ) -> None:
        """`raw_graphs`: the graph of every view for all rows, where the caller has them already."""
        self.source, self.maps, self.graph, self.choices, self.n_threads = source, maps, graph, choices, n_threads
        self.raw_graphs = raw_graphs
        usual = usual_graph_weight(source.n_rows)
        self.graph_weight = usual * choices.graph_weight
        self.latent_weight = usual / 2.0 * choices.latent_weight
        self.means: dict[str, Single] = {}
        self._blocks: dict[int, Block] = {}
        self._graph_rows: dict[int, tuple[GraphMap, Single]] = {}
        cuts = np.cumsum([0, *(m.n_features for m in maps.values())])
        self.spans = {name: slice(cuts[i], cuts[i + 1]) for i, name in enumerate(maps)}

    def over(self, source: Source) -> ClosedForm:
        """The same maps over other rows."""
        other = ClosedForm(source, self.maps, self.graph, self.choices, self.n_threads)
        other.means = self.means
        return other

    def adopt_features(self, other: ClosedForm) -> None:
        """Take the features that another form with the same maps has computed over the same rows."""
        self.means, self._blocks = other.means, other._blocks

    def block(self, rows: slice) -> Block:
        """Prepared rows, where they are present, and their centred features; kept between the passes if small."""
        kept = self._blocks.get(rows.start)
        if kept is not None:
            return kept
        prepared = {name: self.source.prepared(name, rows) for name in self.maps}
        present = {name: self.source.present(name, rows) for name in self.maps}
        block = prepared, present, features_of(self.maps, self.means, prepared, present)
        width = block[2].shape[1] + sum(X.shape[1] for X in prepared.values())
        if self.is_centred and self.source.n_rows * width <= CACHED_ENTRIES:
            self._blocks[rows.start] = block
        return block

    @property
    def is_centred(self) -> bool:
        return any(mean.any() for mean in self.means.values())

    def graph_rows(self, rows: slice, block: Block) -> Single:
        """Rows of the fused graph; kept between the passes where they fit in CACHED_ENTRIES."""
        if self.graph is None:
            return np.zeros((rows.stop - rows.start, 0), np.float32)
        kept = self._graph_rows.get(rows.start)
        if kept is not None and kept[0] is self.graph:
            return kept[1]
        prepared, present, F = block
        raw = None if self.raw_graphs is None else [graph[rows] for graph in self.raw_graphs]
        S = self.graph(prepared, present, F, raw)
        if self.source.n_rows * S.shape[1] <= CACHED_ENTRIES:
            self._graph_rows[rows.start] = (self.graph, S)
        return S

    def centre_features(self) -> None:
        """Mean feature of every view over the rows where it is present (over some 20,000 rows of large data)."""
        self.means = {name: np.zeros(m.n_features, np.float32) for name, m in self.maps.items()}
        counts = dict.fromkeys(self.maps, 0)
        sums = {name: np.zeros(m.n_features) for name, m in self.maps.items()}

        def of_block(rows: slice) -> tuple[Masks, Single]:
            _, present, F = self.block(rows)
            return present, F

        for present, F in map_blocks(of_block, self._some_blocks(), self.n_threads):
            for name, span in self.spans.items():
                sums[name] += F[:, span].sum(axis=0, dtype=np.float64)
                counts[name] += int(present[name].sum())
        self.means = {name: (total / max(counts[name], 1)).astype(np.float32) for name, total in sums.items()}

    def moments(self, *, with_features: bool) -> Moments:
        """One pass: sums of products of features and graph rows (features among themselves only where asked)."""

        def of_block(rows: slice) -> Moments:
            block = self.block(rows)
            F, S = block[2], self.graph_rows(rows, block)
            return Moments(
                len(F),
                F.sum(axis=0, dtype=np.float64),
                S.sum(axis=0, dtype=np.float64),
                (F.T @ F).astype(np.float64) if with_features else None,
                (F.T @ S).astype(np.float64),
                (S.T @ S).astype(np.float64),
            )

        parts = map_blocks(of_block, self.source.blocks(), self.n_threads)
        total = next(parts)
        for part in parts:
            total.add(part)
        return total

    def spectrum(self, sums: Moments, FF: Floats, rank: int) -> tuple[Embedding, Floats]:
        """Top of Z'Z, as a map from centred features and graph rows to Y (before rotation)."""
        c = self.choices
        N, D, P = sums.count, len(FF), len(sums.S)
        view_weights = c.view_weights or (1.0,) * len(self.maps)
        T = {name: whitening(FF[span, span], c.ridge) for name, span in self.spans.items()}
        scales = {name: np.sqrt(a) for name, a in zip(self.maps, view_weights, strict=True)}
        G = np.zeros((D + P, D + P))
        for a, left in self.spans.items():
            for b, right in self.spans.items():
                G[left, right] = scales[a] * scales[b] * (T[a].T @ FF[left, right] @ T[b])
        if P:
            mean = sums.S / N
            root = np.where(sums.S > 1e-9, 1.0 / np.sqrt(np.maximum(sums.S, 1e-9)), 0.0) * np.sqrt(self.graph_weight)
            FS = (sums.FS - np.outer(sums.F, mean)) * root
            for a, left in self.spans.items():
                G[left, D:] = scales[a] * (T[a].T @ FS[left])
                G[D:, left] = G[left, D:].T
            G[D:, D:] = (sums.SS - N * np.outer(mean, mean)) * np.outer(root, root)
        w, V = leading_eigenpairs(G, rank)
        keep = w > 1e-6 * w[0]
        w, V = w[keep], V[:, keep]
        V = V * (np.sqrt(N) / np.sqrt(w) * (w / w[0]) ** c.spectral_power)
        on_features = np.vstack([scales[a] * (T[a] @ V[span]) for a, span in self.spans.items()])
        on_graph = root[:, None] * V[D:] if P else np.zeros((0, V.shape[1]))
        return Embedding(on_features.astype(np.float32), on_graph.astype(np.float32)), w

    def fit(
        self,
        n_bits: int,
        rank: int,
        rng: np.random.Generator,
        *,
        n_rotation_steps: int,
        n_refinements: int = 0,
        all_rows: Source | None = None,
        report: Callable[[str], None] = lambda message: None,
    ) -> tuple[Fitted, NDArray[np.int8], Floats]:
        """Fitted maps, the codes B (n, n_bits), and the eigenvalues.

        With `all_rows`, the source is a sample of them: the spectrum comes from the sample, and all rows are encoded.
        """
        if not self.means:
            report("feature means")
            self.centre_features()
        report("sums")
        sums = self.moments(with_features=True)
        assert sums.FF is not None
        FF = sums.FF
        embedding, w = self.spectrum(sums, FF, rank)
        if self.graph is not None and self.latent_weight > 0 and len(embedding.on_graph):
            report("latent graph")
            self.graph = self.with_latent_graph(embedding)
            embedding, w = self.spectrum(self.moments(with_features=False), FF, rank)
        report("rotation")
        sample = np.vstack(list(map_blocks(self._embed(embedding), self._some_blocks(), self.n_threads)))
        R = learned_rotations(sample[:ROTATION_ROWS].astype(np.float64), n_bits, rng, n_rotation_steps)
        code_map = embedding.rotated(R)
        report("codes")
        every = self if all_rows is None else self.over(all_rows)
        FF = FF * (every.source.n_rows / self.source.n_rows)
        B, FB = every.codes(code_map)
        W = self.hash_functions(FF, FB)
        for _ in range(n_refinements):
            B, FB = every.codes(code_map, W)
            W = self.hash_functions(FF, FB)
        fitted = Fitted(self.maps, self.means, W, dict.fromkeys(self.maps, 1.0), self.graph, code_map)
        return fitted, B, w

    def with_latent_graph(self, first: Embedding) -> GraphMap:
        """The same graph, blended with one over the first embedding (anchors: the same items)."""
        graph = self.graph
        assert graph is not None
        prepared = graph.anchors
        F = features_of(self.maps, self.means, prepared, graph.has_anchor)
        S = graph.raw(prepared, graph.has_anchor)
        return replace(
            graph, latent_weight=self.latent_weight, latent_anchors=first(F, S).astype(np.float32), first=first
        )

    def _embed(self, embedding: Embedding) -> Callable[[slice], Single]:
        def of_block(rows: slice) -> Single:
            block = self.block(rows)
            return embedding(block[2], self.graph_rows(rows, block))

        return of_block

    def _some_blocks(self) -> Iterator[slice]:
        """Blocks spread over the data, enough for ROTATION_ROWS rows."""
        blocks = list(self.source.blocks())
        rows = blocks[0].stop - blocks[0].start
        wanted = -(-ROTATION_ROWS // rows)
        step = max(len(blocks) // wanted, 1)
        yield from blocks[::step][:wanted]

    def codes(self, code_map: Embedding, W: dict[str, Floats] | None = None) -> tuple[NDArray[np.int8], Floats]:
        """B = sgn(Y R) of every row and the sums F'B; with W, one discrete AGSFH refinement: predictions are added."""

        def of_block(rows: slice) -> tuple[NDArray[np.int8], Floats]:
            block = self.block(rows)
            F = block[2]
            Y = code_map(F, self.graph_rows(rows, block))
            if W is not None:
                prediction = sum(F[:, span] @ W[name].astype(np.float32) for name, span in self.spans.items())
                Y = Y / np.abs(Y).mean() + prediction
            B = np.where(Y > 0.0, np.int8(1), np.int8(-1))
            return B, (F.T @ B.astype(np.float32)).astype(np.float64)

        parts = list(map_blocks(of_block, self.source.blocks(), self.n_threads))
        return np.vstack([B for B, _ in parts]), np.sum([FB for _, FB in parts], axis=0)

    def hash_functions(self, FF: Floats, FB: Floats) -> dict[str, Floats]:
        """W_m = (F_m'F_m + ridge I)^-1 F_m'B."""
        return {
            name: cho_solve((ridge_solver(FF[span, span], self.choices.hash_ridge), True), FB[span])
            for name, span in self.spans.items()
        }
