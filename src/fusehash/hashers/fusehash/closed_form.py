"""FuseHash in closed form: one spectrum, one rotation, one regression, instead of a loop from random codes.

For a fixed graph S and with every W_m eliminated, the objective of the paper over B is

    max Tr(B' M B),   M = sum_m a_m Q_m Q_m' + mu S L^-1 S',   Q_m = F_m (F_m'F_m + ridge I)^-1/2,

F_m the features of view m. Adding the constraint that the paper lacks, B'B = N I (without it, constant bits are
optimal), gives

    Z = [sqrt(a_1) Q_1, ..., sqrt(a_M) Q_M, sqrt(mu) centered(S L^-1/2)],     M = Z Z'
    (w, V): top r eigenpairs of Z'Z,     Y = sqrt(N) Z V diag(w)^(p - 1/2)
    R: rotation by ITQ,     B = sgn(Y R),     W_m = (F_m'F_m + ridge_h I)^-1 F_m'B.

The graph is fused in two steps: first from the raw views, then once more with a graph over Y itself, in which
neighbors agree in all views at once; the two are blended. The data is touched only through passes over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fusehash import bits
from fusehash.hashers.fusehash.fitted import Choices, Embedding, Fitted, GraphMap, features_of, usual_graph_weight
from fusehash.hashers.fusehash.nested import nested_rotations
from fusehash.hashers.fusehash.rows import RowMaps
from fusehash.numerics.arrays import Array, cast, host, is_accelerated, namespace, precision, zeros
from fusehash.numerics.features import FeatureMap
from fusehash.numerics.linalg import leading_eigenpairs, ridge_solver, solve_ridge, whitening
from fusehash.numerics.rotation import signs_of
from fusehash.streams.row_passes import Block, RowPasses, concat

BLOCK_ROWS = 2048
SOFTNESS = 0.3  # of the rotation's signs; makes it steady, see fusehash.numerics.rotation
ROTATION_ROWS = 20_000  # enough for the rotation, and for the mean features of large data


@dataclass
class Moments:
    """Sums over rows: what the spectrum needs."""

    count: int
    F: Array
    S: Array
    FF: Array | None
    FS: Array
    SS: Array

    @classmethod
    def of(cls, F: Array, S: Array, *, with_features: bool) -> Moments:
        xp = namespace(F)
        F, S = exact(F), exact(S)
        return cls(
            len(F),
            xp.sum(F, axis=0, dtype=xp.float64),
            xp.sum(S, axis=0, dtype=xp.float64),
            cast(F.T @ F, "float64") if with_features else None,
            cast(F.T @ S, "float64"),
            cast(S.T @ S, "float64"),
        )

    def add(self, other: Moments) -> None:
        self.count += other.count
        self.F += other.F
        self.S += other.S
        if self.FF is not None and other.FF is not None:
            self.FF += other.FF
        self.FS += other.FS
        self.SS += other.SS


def exact(F: Array) -> Array:
    """Features as products are taken of them: a GPU sums hundreds of thousands of rows at once, and does so in double.

    The spectrum and the ridge divide by small numbers; blocks of the host are short enough for single precision.
    """
    return cast(F, "float64") if is_accelerated(F) else F


@dataclass
class Sum:
    """One matrix, summed over rows."""

    value: Array

    def add(self, other: Sum) -> None:
        self.value += other.value


class ClosedForm:
    """Fits the closed form on rows."""

    def __init__(
        self,
        data: RowPasses,
        maps: dict[str, FeatureMap],
        graph: GraphMap | None,
        choices: Choices,
        rows: RowMaps | None = None,
    ) -> None:
        """`rows`: what is known of these rows already, from a form with the same maps."""
        self.data, self.choices = data, choices
        self.rows = RowMaps(maps, graph, data.n_rows) if rows is None else rows.with_graph(graph)
        usual = usual_graph_weight(data.n_rows)
        self.graph_weight = usual * choices.graph_weight
        self.latent_weight = usual / 2.0 * choices.latent_weight
        cuts = np.cumsum([0, *(m.n_features for m in maps.values())])
        self.spans = {name: slice(int(cuts[i]), int(cuts[i + 1])) for i, name in enumerate(maps)}

    def center_features(self) -> None:
        """Mean feature of every view over the rows where it is present (over some 20,000 rows of large data)."""
        rows, spans = self.rows.with_means({}), self.spans

        def of_block(block: Block) -> tuple[dict[str, int], Array]:
            found = rows.features(block)
            xp = namespace(found.F)
            seen = {name: len(found.F) if mask is None else int(xp.sum(cast(mask, "int64"))) for name, mask in
                    found.present.items()}  # fmt: skip
            return seen, xp.sum(found.F, axis=0, dtype=xp.float64)

        counts, parts = dict.fromkeys(spans, 0), []
        for seen, part in self.data.each(of_block, self._some_blocks()):
            parts.append(part)
            for name in counts:
                counts[name] += seen[name]
        total: Array = sum(parts[1:], parts[0])
        dtypes = {name: feature_map.preparation.dtype for name, feature_map in rows.maps.items()}
        means = {name: cast(total[span] / max(counts[name], 1), dtypes[name]) for name, span in spans.items()}
        self.rows = self.rows.with_means(means)

    def moments(self, *, with_features: bool) -> Moments:
        """One pass: sums of products of features and graph rows (features among themselves only where asked)."""
        rows = self.rows

        def of_block(block: Block) -> tuple[None, Moments]:
            return None, Moments.of(*rows(block), with_features=with_features)

        sums: Moments = self.data.total(of_block, BLOCK_ROWS)[1]
        return sums

    def spectrum(self, sums: Moments, FF: Array, rank: int) -> tuple[Embedding, Array]:
        """Top of Z'Z, as a map from centered features and graph rows to Y (before rotation)."""
        c, xp = self.choices, namespace(FF)
        N, D, P = sums.count, len(FF), len(sums.S)
        view_weights = c.view_weights or (1.0,) * len(self.spans)
        T = {name: whitening(FF[span, span], c.ridge) for name, span in self.spans.items()}
        scales = {name: float(np.sqrt(a)) for name, a in zip(self.spans, view_weights, strict=True)}
        G = zeros((D + P, D + P), FF)
        for a, left in self.spans.items():
            for b, right in self.spans.items():
                G[left, right] = scales[a] * scales[b] * (T[a].T @ FF[left, right] @ T[b])
        if P:
            mean = sums.S / N
            alive = cast(sums.S > 1e-9, "float64")
            root = alive * float(np.sqrt(self.graph_weight)) / xp.sqrt(xp.clip(sums.S, 1e-9, None))
            FS = (sums.FS - sums.F[:, None] * mean) * root
            for a, left in self.spans.items():
                G[left, D:] = scales[a] * (T[a].T @ FS[left])
                G[D:, left] = G[left, D:].T
            G[D:, D:] = (sums.SS - N * mean[:, None] * mean) * (root[:, None] * root)
        w, V = leading_eigenpairs(G, rank)
        keep = int(np.sum(host(w) > 1e-6 * float(w[0])))
        w, V = w[:keep], V[:, :keep]
        V = V * (float(np.sqrt(N)) / xp.sqrt(w) * (w / w[0]) ** c.spectral_power)
        on_features = xp.concat([scales[a] * (T[a] @ V[span]) for a, span in self.spans.items()], axis=0)
        on_graph = root[:, None] * V[D:] if P else zeros((0, keep), V)
        return Embedding(cast(on_features, self._dtype), cast(on_graph, self._dtype)), w

    @property
    def _dtype(self) -> str:
        return next(iter(self.rows.maps.values())).preparation.dtype

    def fit(
        self,
        n_bits: int,
        rank: int,
        rng: np.random.Generator,
        *,
        n_rotation_steps: int,
        nested: tuple[int, ...] = (),
        all_rows: RowPasses | None = None,
        report: Callable[[str], None] = lambda message: None,
    ) -> tuple[Fitted, bits.Codes, Array]:
        """Fitted maps, the packed codes, and the eigenvalues.

        With `all_rows`, the data is a sample of them: the spectrum comes from the sample, and all rows are encoded.
        """
        if not self.rows.means:
            report("feature means")
            self.center_features()
        report("sums")
        sums = self.moments(with_features=True)
        assert sums.FF is not None
        FF = sums.FF
        embedding, w = self.spectrum(sums, FF, rank)
        if self.rows.graph is not None and self.latent_weight > 0 and len(embedding.on_graph):
            report("latent graph")
            self.rows = self.rows.with_graph(self.with_latent_graph(embedding))
            embedding, w = self.spectrum(self.moments(with_features=False), FF, rank)
        report("rotation")
        Y = cast(self.sample(embedding), "float64")
        R = nested_rotations(Y, n_bits, nested, rng, n_rotation_steps, SOFTNESS)
        code_map = embedding.rotated(R)
        report("codes")
        if all_rows is not None:
            FF = FF * (all_rows.n_rows / self.data.n_rows)
            self.data, self.rows = all_rows, self.rows.over(all_rows.n_rows)
        codes, FB = self.codes(code_map)
        W = self.hash_functions(FF, FB)
        fitted = Fitted(self.rows.maps, self.rows.means, W, dict.fromkeys(self.spans, 1.0), self.rows.graph, code_map)
        return fitted, codes, w

    def with_latent_graph(self, first: Embedding) -> GraphMap:
        """The same graph, blended with one over the first embedding (anchors: the same items)."""
        graph = self.rows.graph
        assert graph is not None
        present = graph.anchors_present()
        F = features_of(self.rows.maps, self.rows.means, graph.anchors, present)
        anchors = first(F, graph.raw(graph.anchors, present))
        return replace(graph, latent_weight=self.latent_weight, latent_anchors=anchors, first=first)

    def sample(self, embedding: Embedding) -> Array:
        """Y of some 20,000 rows."""
        rows = self.rows
        parts = list(self.data.each(lambda block: embedding(*rows(block)), self._some_blocks()))
        whole = concat(parts)  # a block of a device has more rows than are wanted: not only its first ones
        return whole[:: max(len(whole) // ROTATION_ROWS, 1)][:ROTATION_ROWS]

    def _some_blocks(self) -> list[slice]:
        """Blocks spread over the data, enough for ROTATION_ROWS rows."""
        blocks = self.data.blocks(BLOCK_ROWS)
        rows = blocks[0].stop - blocks[0].start
        wanted = -(-ROTATION_ROWS // rows)
        step = max(len(blocks) // wanted, 1)
        return blocks[::step][:wanted]

    def codes(self, code_map: Embedding) -> tuple[Array, Array]:
        """B = sgn(Y R) of every row, packed, and the sums F'B."""
        rows = self.rows

        def of_block(block: Block) -> tuple[tuple[Array], Sum]:
            F, S = rows(block)
            Y = code_map(F, S)
            F = exact(F)
            return (bits.pack(Y),), Sum(cast(F.T @ cast(signs_of(Y), precision(F)), "float64"))

        lines, FB = self.data.total(of_block, BLOCK_ROWS)
        assert lines is not None
        return lines[0], FB.value

    def hash_functions(self, FF: Array, FB: Array) -> dict[str, Array]:
        """W_m = (F_m'F_m + ridge I)^-1 F_m'B."""
        ridge = self.choices.hash_ridge
        return {name: solve_ridge(ridge_solver(FF[span, span], ridge), FB[span]) for name, span in self.spans.items()}
