"""`partial_fit` and `merge`: learn from new rows only, with sums in place of the earlier rows.

The first call fixes the frame: preparations, feature maps, their means, anchors, first embedding, latent anchors. In it
every row has the columns A = [F, S, 1, E] (features, graph row, one, E = 1 where a view is present), a real code y and
the bits b = sgn(y) with their soft form t. The model keeps A'A, A'b, A't, A'y and sum y^2, which are added over all
calls, and A and b of a few rows, drawn evenly from all. The moments of any later map y_new = A M follow without the
rows: A'y_new = (A'A) M. New means mu of the features are such a map too, F - E mu, so that spectrum and hash functions
are centered exactly, also where views are missing. A later call

    1. adds the sums of the new rows                      exact: the sums of one pass over all rows, up to rounding
    2. computes means and spectrum from the sums          exact in the frame of the first call
    3. rotates the embedding to the bits given so far     R = polar(Y'B); the bits of new rows by the map so far
    4. encodes the new rows; codes of old rows stay       `drift_`: share of the old bits that the new map would change
    5. fits the hash functions to the targets of the map  exact for new rows; F'T of old rows is approximate

Not repeated are the steps that need the rows themselves: learning the frame, tuning, running ITQ to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtr

from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.files import contiguous, storable
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.fusehash.closed_form import BLOCK_ROWS, feature_gram, hash_functions, target_softness
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Embedding, Fitted, GraphMap, Masks, RowMaps
from fusehash.hashers.fusehash.nested import check_nested
from fusehash.hashers.fusehash.spectrum import spectrum
from fusehash.numerics.arrays import Array, cast, convert, host, namespace, precision, to_device_of, zeros
from fusehash.numerics.parallel import one_blas_thread
from fusehash.numerics.rotation import groups, signs_of, soft_signs
from fusehash.streams.row_passes import Block, RowPasses, RowSums
from fusehash.views import PairedViews, ViewsLike

Model = TypeVar("Model", bound="Incremental")
SAMPLE_ROWS = 500  # the share of bits that change is then known to less than a hundredth


class Incremental(CrossModalHasher):
    """`partial_fit` and `merge` for FuseHash."""

    rank: int | str
    nested: Any
    fitted_: Fitted
    tuning_: dict[str, Any]
    settings_: dict[str, Any]
    eigenvalues_: Any
    sums_: Seen
    drift_: float
    _learns_on = (
        False  # while `partial_fit` fits the first rows: codes are then those of an embedding that it can rotate
    )

    def partial_fit(self: Model, views: ViewsLike, y: Any = None) -> Model:
        """Learn from new rows, and keep what was learned from the rows of earlier calls.

        The first call does what `fit` does, and keeps sums to continue from. `codes_` holds the codes of all rows in
        the order in which they came; `drift_` says how outdated the earlier ones are (docs/learning-on.md).

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            New rows, as in `fit`; after the first call, the same views with the same features.
        y : None
            Ignored.

        Returns
        -------
        self : FuseHash

        Raises
        ------
        DataError
            If the views differ from those of the first call, or the model was fitted by `fit` or shortened by `cut`.
        ParameterError
            If `n_bits` was changed since the first call.
        """
        self._check_can_continue("partial_fit")
        if hasattr(self, "sums_"):
            self._learn_more(views)
            return self
        if hasattr(self, "codes_"):
            raise DataError(
                "partial_fit continues what an earlier partial_fit has learned, since fit keeps no sums. "
                "Pass the first rows to partial_fit too."
            )
        try:
            paired = self._paired(views)
            self._learns_on = True
            self.fit(paired)
            with one_blas_thread():
                self._report(0, 0, "sums to continue from")
                data = self._passes(paired)
                fitted = convert(self.fitted_, lambda part: to_device_of(part, data.like))
                frame = Frame(fitted, fitted.means, data.n_rows)
                work = partial(frame.row_sums, fitted, frame.shift(fitted.means), True)
                sums = FrameSums.of(convert(data.total(work, BLOCK_ROWS, [self.codes_])[1], host))
                summary, part = frame.summary(data, sums, self.codes_)
        except BaseException:  # also Ctrl-C: it was not fitted before
            self._take_learned()
            raise
        finally:
            del self._learns_on
        self.sums_ = contiguous(Seen(self.fitted_.means, summary, None, [part]))
        self.drift_ = 0.0
        return self

    def merge(self: Model, other: Incremental) -> Model:
        """Add what another model has learned since the first call, which both have in common.

        Parameters
        ----------
        other : FuseHash
            A model that comes from the same first `partial_fit` (by a copy or a file) and has since seen other rows.
            It is not changed.

        Returns
        -------
        self : FuseHash
            `codes_` continues with the codes that `other` has given to its later rows.

        Raises
        ------
        DataError
            If the models do not share their first call, or have both seen the rows of a later call.
        """
        self._check_can_continue("merge")
        for model in (self, other):
            if not isinstance(model, Incremental) or not hasattr(model, "sums_"):
                raise DataError("merge needs two models that partial_fit has learned. Got one without sums.")
        other._check_can_continue("merge")
        mine, theirs = self.sums_, other.sums_
        if mine.parts[0] != theirs.parts[0] or self.n_bits != other.n_bits:
            raise DataError("Both models of a merge must come from one first partial_fit. Got two different ones.")
        common = {digest for digest, _ in mine.parts[1:]} & {digest for digest, _ in theirs.parts[1:]}
        if common:
            raise DataError(
                "The models of a merge must have seen different rows after the first partial_fit. "
                f"Got {len(common)} call{'s' if len(common) > 1 else ''} with the same rows."
            )
        if theirs.later is None:
            return self
        with one_blas_thread():
            merged = mine.with_part(theirs.later, theirs.parts[1:])
            total = merged.total
            refit = self._refit(self.fitted_, merged.means, total.sums.gram, total.sums.with_bits)
            codes = np.concatenate([self.codes_, other.codes_[theirs.parts[0][1] :]])
            self._adopt(refit, total.sums, None, total.sample, merged, codes)
        return self

    def _check_can_continue(self, method: str) -> None:
        if getattr(self, "target", "pairs") != "pairs":
            raise DataError(
                f'{method} continues models of target="pairs". This one has target={self.target!r}; use fit.'
            )
        if hasattr(self, "uncut_bits_"):
            raise DataError(f"{method} needs the whole model. Got one that was cut to {self.n_bits} bits.")
        if hasattr(self, "sums_") and (learned := self.fitted_.code_map.on_features.shape[1]) != self.n_bits:
            owner = f"{type(self).__name__}.{method}"
            raise ParameterError(owner, "n_bits", f"{learned}, as in the first call", self.n_bits)

    def _learn_more(self, views: ViewsLike) -> None:
        paired = self._paired(views if isinstance(views, PairedViews) else self._named(views))
        if set(paired.names) != set(self.view_names_):
            raise DataError(f"The views must be {self.view_names_}, as in the first call. Got {paired.names} instead.")
        for name, width in paired.n_features.items():
            self._check_width(name, width)
        data = self._passes(paired)
        with one_blas_thread():
            total = self.sums_.total
            kept = self.fitted_, self.sums_.means, total.sums
            fitted, means, old = convert(kept, lambda part: to_device_of(part, data.like))
            frame = Frame(fitted, means, data.n_rows)
            self._report(1, 3, "sums of the new rows")
            work = partial(frame.row_sums, fitted, frame.shift(fitted.means), True)
            so_far = data.total(work, BLOCK_ROWS)[1]
            self._report(2, 3, "spectrum of all rows")
            refit = self._refit(fitted, means, old.gram + so_far["gram"], old.with_bits + so_far["with_bits"])
            self._report(3, 3, "codes of the new rows")
            work = partial(frame.row_sums, refit.fitted, refit.mu, False)
            (codes,), new = data.total(work, BLOCK_ROWS)  # type: ignore[misc]
            codes, new = host(codes), FrameSums.of({**new, "gram": so_far["gram"]})
            summary, part = frame.summary(data, convert(new, host), codes)
            seen = self.sums_.with_part(summary, [part])
            self._adopt(refit, old, new, total.sample, seen, np.concatenate([self.codes_, codes]))

    def _refit(self, fitted: Fitted, means: Arrays, gram: Array, with_bits: Array) -> Refit:
        """Means, spectrum and rotation from sums over all rows."""
        choices, frame = self._chosen, Frame(fitted, means)
        later_means = frame.later_means(gram)
        mu = frame.shift(later_means)
        sums = frame.moments(gram, mu)
        rank = min(self.n_bits, 128) if self.rank == "auto" else int(self.rank)
        gram_of_features = feature_gram(sums["FF"], frame.maps, sums["count"], is_canonical=choices.is_canonical)
        found = spectrum(sums, gram_of_features, choices, rank)
        embedding, w = found.embedding(frame.maps.dtype), found.eigenvalues
        nested = check_nested(type(self).__name__, self.nested, self.n_bits)
        code_map = embedding.rotated(aligned_rotation(frame.on_columns(embedding, mu).T @ with_bits, nested))
        M = frame.on_columns(code_map, mu)
        mean_square = float(namespace(M).sum(M * (gram @ M))) / (sums["count"] * self.n_bits)
        softness = target_softness(mean_square) if fitted.softness else 0.0  # an older model goes on with signs
        graph = frame.moved_graph(mu)
        changed = replace(fitted, means=later_means, graph=graph, code_map=code_map, softness=softness)
        return Refit(frame, mu, sums["FF"], changed, w)

    @property
    def _chosen(self) -> Choices:
        chosen = self.tuning_["chosen"]
        return Choices(**{**chosen, "view_weights": tuple(chosen["view_weights"])})

    def _adopt(
        self, refit: Refit, old: FrameSums, new: FrameSums | None, sample: Sample, seen: Seen, codes: bits.Codes
    ) -> None:
        """Fit the hash functions to the bits of the new map, measure the drift, then take over everything at once."""
        frame, mu = refit.frame, refit.mu
        M = frame.on_columns(refit.fitted.code_map, mu)
        q = len(M) - len(mu)
        AT = targets_of_map(old, M, q, self.fitted_.softness, refit.fitted.softness)
        AT = AT if new is None else AT + new.with_targets
        FT = AT[: frame.n_features] - mu.T @ AT[q:]
        W = hash_functions(refit.FF, FT, frame.spans, self._chosen, refit.fitted.code_map)
        fitted = convert(replace(refit.fitted, weights=W), host)
        later = bits.pack(frame.codes_of(sample.columns, fitted.code_map, host(mu)))
        changed = bits.unpack(sample.codes, self.n_bits) != bits.unpack(later, self.n_bits)
        learned = {
            "fitted_": fitted,
            "codes_": codes,
            "eigenvalues_": host(refit.eigenvalues),
            "settings_": {**self.settings_, "rank": len(refit.eigenvalues)},
            "n_samples_": len(codes),
            "sums_": seen,
            "drift_": float(np.mean(changed)),
        }
        self._forget_device_copies()
        self.__dict__.update(contiguous(learned))


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


def least_of(n: int, count: int, rng: np.random.Generator) -> Array:
    """The least `count` of n numbers drawn evenly from 0 to 1, ascending, without drawing the others."""
    steps = rng.random(count) ** (1.0 / (n - np.arange(count)))
    return 1.0 - np.cumprod(steps)


@dataclass
class Refit:
    """What the sums give, before the hash functions."""

    frame: Frame
    mu: Array
    FF: Array
    fitted: Fitted
    eigenvalues: Array


def aligned_rotation(C: Array, nested: tuple[int, ...]) -> Array:
    """The rotation that brings Y closest to the bits given so far: one step of ITQ from them.

    C = Y'B is (r, n_bits). The columns come in the groups of `nested_rotations`, each a part of one rotation.
    """
    r, n_bits = C.shape
    on_host, R = host(C), np.zeros((r, n_bits))
    for start, stop in pairwise((0, *nested, n_bits)):
        seen = min(stop, r)
        for width in groups(seen, stop - start):
            U, _, Vt = np.linalg.svd(on_host[:seen, start : start + width], full_matrices=False)
            R[:seen, start : start + width] = U @ Vt
            start += width
    return to_device_of(R, C)


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


def targets_of_map(sums: FrameSums, M: Array, ones: int, before: float, after: float) -> Array:
    """A't of rows that are gone, for the targets of a later map A M; `ones` is the column of ones.

    A't of the earlier map is known, with its softness `before`; the normal distribution estimates only the change.
    """
    gram, count = sums.gram, float(sums.gram[ones, ones])
    AY = gram @ M
    then = gaussian_targets(gram[ones], sums.with_codes, sums.with_codes[ones], sums.squares, count, before)
    now = gaussian_targets(gram[ones], AY, AY[ones], namespace(M).sum(M * AY, axis=0), count, after)
    return sums.with_targets + now - then
