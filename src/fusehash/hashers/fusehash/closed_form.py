"""FuseHash in closed form: one spectrum, one rotation, one regression per view, instead of a loop from random codes.

For a fixed graph S and with every W_m eliminated, the objective of the paper over B is

    max Tr(B' M B),   M = sum_m a_m Q_m Q_m' + mu S L^-1 S',   Q_m = F_m (F_m'F_m + ridge I)^-1/2,

where F_m are the features of view m. Adding the constraint that the paper lacks, B'B = N I (without it, constant bits
are optimal), gives

    Z = [sqrt(a_1) Q_1, ..., sqrt(a_M) Q_M, sqrt(mu) centered(S L^-1/2)],     M = Z Z'
    (w, V): top r eigenpairs of Z'Z,     Y = sqrt(N) Z V diag(w)^(p - 1/2)
    R: rotation by ITQ,     B = sgn(Y R),     W_m = (F_m'F_m + ridge_h I)^-1 F_m' tanh(Y R / h).

The hash functions W_m regress on a soft B: signs near zero are noise, which plain signs would ask them to learn. h is
about half of the root mean square of Y R. With hash_functions="canonical", Y is the sum of the canonical variates of
the views instead, and W_m R gives those of one view: CCA-ITQ.

The graph is learned in two steps: first from the raw views, then blended with a graph over Y itself, in which neighbors
agree in all views at once. Each step below is one pass over blocks of rows, or works on the sums of such a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash import bits
from fusehash.errors import DataError
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Embedding, Fitted, GraphMap, RowMaps
from fusehash.hashers.fusehash.nested import nested_rotations
from fusehash.hashers.fusehash.refinement import MAX_PAIRS, MIN_PAIRS, held_out_codes, refined_rotation
from fusehash.hashers.fusehash.spectrum import FeatureGram, spectrum, usual_graph_weight
from fusehash.numerics.arrays import Array, Floats, cast, host, namespace, precision, take_rows, to_device_of
from fusehash.numerics.features import FeatureMap, Preparation, canonical
from fusehash.numerics.linalg import ridge_solver, solve_ridge
from fusehash.numerics.rotation import soft_signs
from fusehash.numerics.word_weights import are_words, similarities, word_weights
from fusehash.parameters import Progress
from fusehash.streams.row_passes import Block, RowPasses, RowSums, concat
from fusehash.views import PairedViews

Rng = np.random.Generator
Preparations = dict[str, Preparation]
BLOCK_ROWS = 2048
# Preparations and feature maps are learned from this many rows, and at most this many entries.
SAMPLE_ROWS, SAMPLE_ENTRIES = 4096, 2**24
ROTATION_ROWS = 20_000  # enough for the rotation, and for the mean features of large data
# The F'F of a sample with fewer rows per feature is too far from that of all rows to be solved for their F'T.
MIN_SAMPLE_PER_FEATURE = 10
SOFTNESS = 0.3  # of the signs in the rotation; see fusehash.numerics.rotation
TARGET_SOFTNESS = 0.53  # h relative to the root mean square
WORD_ROWS = 2000  # from which the weights of words are learned
WORD_POWER = 0.25  # of these weights, where views agree; .5 and more are worse (docs/study.md)


class InMemory:
    """Prepared rows that are present in every view, as one block: passes for small data."""

    def __init__(self, arrays: Arrays) -> None:
        self.n_rows = len(next(iter(arrays.values())))
        self.block = Block(slice(0, self.n_rows), arrays, dict.fromkeys(arrays))

    def blocks(self, size: int) -> list[slice]:
        return [self.block.rows]

    def each(self, work: Callable[[Block], Any], blocks: list[slice]) -> Iterator[Any]:
        return map(work, [self.block])

    def total(self, work: Callable[[Block], tuple[Any, Any]], size: int) -> tuple[Any, Any]:
        return work(self.block)


Passes = RowPasses | InMemory


def learn_preparations(data: RowPasses, dtype: str, rng: Rng) -> Preparations:
    """How each view is made comparable, from a sample of its rows; raises DataError for a view that does not vary."""
    preparations = {}
    for name in data.names:
        sample = _sample_of_view(data, name, rng)
        if _all_equal(sample) and _is_constant(data.views, name):
            raise DataError(f"View '{name}' must vary between rows. Every feature is constant.")
        preparations[name] = Preparation.learn(sample, dtype=dtype)
    return preparations


def weigh_words(preparations: Preparations, raw: Arrays, power: float) -> Preparations:
    """The same preparations with weights for the words of wide bags, from rows that are present in every view."""
    if not power or len(raw) < 2:
        return preparations
    rows = {name: preparations[name](X) for name, X in raw.items()}
    weighted = dict(preparations)
    for name in filter(lambda name: are_words(rows[name]), rows):
        K = similarities([rows[other] for other in rows if other != name])
        weighted[name] = replace(weighted[name], word_weights=word_weights(rows[name], K) ** (WORD_POWER * power))
    return weighted


def sample_for_words(data: RowPasses, rng: Rng) -> Arrays:
    """Rows that are present in every view, enough for `weigh_words`."""
    rows = data.views.complete_rows()
    rows = np.sort(rng.choice(rows, min(WORD_ROWS, len(rows)), replace=False))
    return {name: data.take(name, rows) for name in data.names}


def learn_maps(
    data: RowPasses, preparations: Preparations, choices: Choices, n_anchors: int, rng: Rng
) -> dict[str, FeatureMap]:
    """F_m as a function of rows: the prepared view, or RBF similarities or products with random anchors."""
    maps = {}
    for name, prepare in preparations.items():
        sample = prepare(_sample_of_view(data, name, rng))
        maps[name] = FeatureMap.learn(prepare, sample, choices.feature_map, choices.kernel_width, n_anchors, rng)
    return maps


def _sample_of_view(data: RowPasses, name: str, rng: Rng) -> Array:
    """Some rows of a view in which it is present."""
    rows = np.flatnonzero(data.views.is_present(name))
    n_dense = max(SAMPLE_ENTRIES // data.n_features[name], 256)
    n_rows = min(SAMPLE_ROWS, len(rows), SAMPLE_ROWS if data.stays_sparse(name) else n_dense)
    return data.take(name, np.sort(rng.choice(rows, n_rows, replace=False)))


def _all_equal(sample: Any) -> bool:
    """Whether all rows of a dense or sparse matrix are the same."""
    if sp.issparse(sample):
        rows = canonical(sample)
        counts = np.diff(rows.indptr)
        if (counts != counts[0]).any():
            return False
        entries = [part.reshape(rows.shape[0], -1) for part in (rows.indices, rows.data)]
        return all(bool((part == part[:1]).all()) for part in entries)
    return bool((sample == sample[0]).all())


def _is_constant(views: PairedViews, name: str) -> bool:
    if sp.issparse(views[name]):
        return _all_equal(views[name][np.flatnonzero(views.is_present(name))])
    present = views.is_present(name)
    first = views.block(name, np.flatnonzero(present)[:1])
    return all(bool((views.block(name, rows)[present[rows]] == first).all()) for rows in views.blocks())


def learn_means(data: Passes, maps: RowMaps) -> Arrays:
    """Mean feature of every view over the rows where it is present (over some 20,000 rows of large data)."""
    seen, parts = zip(*data.each(partial(_feature_sums, maps), some_blocks(data)), strict=True)
    total: Array = sum(parts[1:], parts[0])
    means = {}
    for name, span in maps.spans.items():
        count = max(sum(counts[name] for counts in seen), 1)
        means[name] = cast(total[span] / count, maps.maps[name].preparation.dtype)
    return means


def _feature_sums(maps: RowMaps, block: Block) -> tuple[dict[str, int], Array]:
    F, present = maps.features(block).F, block.present.items()
    xp = namespace(F)
    seen = {name: len(F) if mask is None else int(xp.sum(cast(mask, "int64"))) for name, mask in present}
    return seen, xp.sum(F, axis=0, dtype=xp.float64)


def some_blocks(data: Passes) -> list[slice]:
    """Blocks spread over the data, enough for ROTATION_ROWS rows."""
    blocks = data.blocks(BLOCK_ROWS)
    count = -(-ROTATION_ROWS // (blocks[0].stop - blocks[0].start))
    return blocks[:: max(len(blocks) // count, 1)][:count]


def learn_graph(
    data: RowPasses, preparations: Preparations, choices: Choices, n_anchors: int, n_neighbors: int, rng: Rng
) -> GraphMap | None:
    """S as a function of rows, with random anchors: rows that are present in every view if there are enough."""
    if not choices.has_graph:
        return None
    rows = data.views.complete_rows()
    rows = rows if len(rows) >= n_anchors else np.arange(data.n_rows)
    rows = np.sort(rng.choice(rows, min(n_anchors, len(rows)), replace=False))
    anchors = {name: preparations[name](data.take(name, rows)) for name in data.names}
    has_anchor = {name: data.views.is_present(name)[rows] for name in data.names}
    return GraphMap.over(anchors, n_neighbors, choices, has_anchor)


def with_latent_graph(maps: RowMaps, first: Embedding, weight: float) -> RowMaps:
    """The same maps with S blended with a graph over Y; the anchors are the same items."""
    graph = maps.graph
    assert graph is not None
    at_anchors = RowMaps(maps.maps, graph, maps.means, is_prepared=True)
    features = at_anchors.features(graph.anchor_block())
    anchors = first(features.F, at_anchors.graph_rows(features))
    graph = replace(graph, latent_weight=weight, latent_anchors=anchors, first=first)
    return replace(maps, graph=graph, kept_graphs={})


def moments(maps: RowMaps, block: Block, *, with_features: bool = True) -> tuple[None, RowSums]:
    """What the spectrum needs: sums of the features and graph rows of a block; F'F only `with_features`."""
    features = maps.features(block)
    F, S = maps.exact(features.F), maps.exact(maps.graph_rows(features))
    xp = namespace(F)
    sums = RowSums(count=len(F), FS=cast(F.T @ S, "float64"), SS=cast(S.T @ S, "float64"))
    sums.update(F=xp.sum(F, axis=0, dtype=xp.float64), S=xp.sum(S, axis=0, dtype=xp.float64))
    if with_features:
        sums["FF"] = cast(F.T @ F, "float64")
    return None, sums


def feature_gram(FF: Array, maps: RowMaps, count: int, *, is_canonical: bool = True) -> FeatureGram:
    """F'F, and what the ridge of canonical variates needs."""
    norms = maps.norms() if is_canonical else {}
    return FeatureGram(FF, maps.spans, {name: count * norm for name, norm in norms.items()})


def embedded(maps: RowMaps, embedding: Embedding, block: Block) -> Array:
    """Y of a block."""
    features = maps.features(block)
    return embedding(features.F, maps.graph_rows(features))


def variates(maps: RowMaps, embedding: Embedding, block: Block) -> Array:
    """What each view adds to Y, the views one below the other."""
    F = maps.features(block).F
    return concat([F[:, span] @ embedding.on_features[span] for span in maps.spans.values()])


def codes_of(
    maps: RowMaps, code_map: Embedding, softness: float, with_features: bool, block: Block
) -> tuple[tuple[Array], RowSums]:
    """B = sgn(Y R) of a block, packed, and the sums F'T with the soft targets T; F'F only `with_features`."""
    features = maps.features(block)
    Y, F = code_map(features.F, maps.graph_rows(features)), maps.exact(features.F)
    sums = RowSums(FT=cast(F.T @ cast(soft_signs(Y, softness), precision(F)), "float64"))
    if with_features:
        sums["FF"] = cast(F.T @ F, "float64")
    return (bits.pack(Y),), sums


def refinement_of(
    data: Passes, maps: RowMaps, code_map: Embedding, choices: Choices, rank: int, softness: float, rng: Rng
) -> Floats:
    """What makes partners rank first by codes (`refinement`), from some of the rows that every view has."""
    blocks = some_blocks(data)
    n_each = -(-MAX_PAIRS // len(blocks))
    parts = list(data.each(partial(complete_rows_of, maps, code_map, n_each), blocks))
    F, targets = (np.concatenate(part)[:MAX_PAIRS] for part in zip(*parts, strict=True))
    if len(F) < MIN_PAIRS:
        return np.eye(targets.shape[1])
    features = {name: F[:, span] for name, span in maps.spans.items()}
    return refined_rotation(held_out_codes(features, targets, choices, rank, softness, rng), rng)


def complete_rows_of(maps: RowMaps, code_map: Embedding, count: int, block: Block) -> tuple[Floats, Floats]:
    """Features and Y R of at most `count` rows of a block, of those that every view has."""
    features = maps.features(block)
    Y = code_map(features.F, maps.graph_rows(features))
    masks = [host(mask) for mask in block.present.values() if mask is not None]
    rows = np.flatnonzero(np.all(masks, axis=0)) if masks else np.arange(len(Y))
    rows = rows[:: max(len(rows) // count, 1)][:count]
    return host(take_rows(features.F, rows)), np.asarray(host(take_rows(Y, rows)), np.float64)


def target_softness(mean_square: float) -> float:
    """h from the mean square of Y R over rows and bits."""
    return TARGET_SOFTNESS * max(mean_square, 1e-30) ** 0.5


def hash_functions(FF: Array, FT: Array, spans: dict[str, slice], choices: Choices, code_map: Embedding) -> Arrays:
    """W_m = (F_m'F_m + ridge_h I)^-1 F_m'T; canonical ones are what each view adds to Y R."""
    if choices.is_canonical:
        return {name: cast(code_map.on_features[span], "float64") for name, span in spans.items()}
    ridge = choices.hash_ridge
    return {name: solve_ridge(ridge_solver(FF[span, span], ridge), FT[span]) for name, span in spans.items()}


def solve(
    data: Passes,
    all_rows: Passes,
    maps: RowMaps,
    choices: Choices,
    n_bits: int,
    rank: int,
    n_rotation_steps: int,
    nested: tuple[int, ...],
    rng: Rng,
    report: Progress = lambda step, total, message: None,
    gram: FeatureGram | None = None,
    refines: bool = False,
) -> tuple[Fitted, Array, Array]:
    """Learn from rows; returns the learned maps, the packed codes of the rows, and the eigenvalues w.

    The spectrum and the rotation come from `data`, which may be a sample of `all_rows`. The codes of all rows, and the
    hash functions that are fitted to them, come from `all_rows`. `gram` is that of the features of `data`, if known.
    """
    report(0, 0, "sums")
    sums: RowSums = data.total(partial(moments, maps, with_features=gram is None), BLOCK_ROWS)[1]
    gram = gram or feature_gram(sums["FF"], maps, sums["count"], is_canonical=choices.is_canonical)
    found = spectrum(sums, gram, choices, rank)
    latent_weight = usual_graph_weight(data.n_rows) / 2.0 * choices.latent_weight
    if maps.graph is not None and latent_weight > 0.0:
        report(0, 0, "latent graph")
        maps = with_latent_graph(maps, found.embedding(maps.dtype), latent_weight)
        sums = data.total(partial(moments, maps, with_features=False), BLOCK_ROWS)[1]
        found = spectrum(sums, gram, choices, rank, start=found.vectors)
    embedding, w = found.embedding(maps.dtype), found.eigenvalues
    report(0, 0, "rotation")
    to_rotate = partial(variates if choices.is_canonical else embedded, maps, embedding)
    Y = concat(list(data.each(to_rotate, some_blocks(data))))
    Y = Y[:: max(len(Y) // ROTATION_ROWS, 1)][:ROTATION_ROWS]  # blocks of a device are longer
    R = nested_rotations(cast(Y, "float64"), n_bits, nested, rng, n_rotation_steps, SOFTNESS)
    softness = target_softness(float(namespace(Y).mean((cast(Y, "float64") @ R) ** 2)))
    code_map = embedding.rotated(R)
    if refines:
        report(0, 0, "refined rotation")
        R = R @ to_device_of(refinement_of(data, maps, code_map, choices, len(R), softness, rng), R)
        softness = target_softness(float(namespace(Y).mean((cast(Y, "float64") @ R) ** 2)))
        code_map = embedding.rotated(R)
    report(0, 0, "codes")
    if all_rows is not data:
        maps = replace(maps, n_rows=all_rows.n_rows, kept_features={}, kept_graphs={})
    is_sample = all_rows is not data
    is_small = is_sample and data.n_rows < MIN_SAMPLE_PER_FEATURE * len(gram.FF)
    work = partial(codes_of, maps, code_map, softness, is_small)
    (codes,), target_sums = all_rows.total(work, BLOCK_ROWS)  # type: ignore[misc]
    FF = target_sums["FF"] if is_small else gram.FF * (all_rows.n_rows / data.n_rows) if is_sample else gram.FF
    W = hash_functions(FF, target_sums["FT"], maps.spans, choices, code_map)
    return Fitted(maps.maps, maps.means, W, dict.fromkeys(W, 1.0), maps.graph, code_map, softness), codes, w
