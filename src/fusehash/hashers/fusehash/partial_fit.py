"""Learning that goes on: rows of a later day are merged into a fitted model, and old rows are never needed again.

The first call is a fit and one more pass that keeps the sums of `fusehash.hashers.fusehash.sums`. A later call

    1. adds the sums of the new rows                      exact: those of one pass over all rows, up to rounding
    2. takes means and spectrum anew from the sums        exact for the frame of the first fit
    3. turns the embedding towards the bits there are     R = polar(Y'B), B as given out; new rows by the map so far
    4. gives codes to the new rows; old ones keep theirs  `drift_` tells how many of those bits the new map would change
    5. fits the hash functions to the bits of the map     exact for new rows; F'B of the old ones is approximate

What a fit on all rows at once would do besides, and this does not: learn preparations, anchors and the first embedding
from all rows, tune, and run ITQ to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from fusehash.bits import Codes
from fusehash.errors import DataError, ParameterError
from fusehash.files import contiguous, storable
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.fusehash.closed_form import ClosedForm
from fusehash.hashers.fusehash.fitted import Choices, Fitted
from fusehash.hashers.fusehash.nested import check_nested
from fusehash.hashers.fusehash.sums import Frame, Kept, Sample, Sums, aligned_rotation, bits_of_map, changed_bits
from fusehash.numerics.arrays import Array, convert, host, to_device_of
from fusehash.numerics.parallel import one_blas_thread
from fusehash.streams.row_passes import RowPasses
from fusehash.views import PairedViews, ViewsLike

Model = TypeVar("Model", bound="Incremental")


@storable
@dataclass
class Seen:
    """What is kept of all rows: the sums of the first call, those of later ones, and which rows these were."""

    means: dict[str, Array]  # of the features, by the first fit
    first: Kept
    later: Kept | None
    parts: list[list[Any]]  # [digest of the sums, number of rows] of every call, the first one first

    @property
    def total(self) -> Kept:
        """Of all rows, not packed."""
        total = self.first.plus(self.later)
        return replace(total, sums=total.sums.whole())

    def with_part(self, kept: Kept, parts: list[list[Any]]) -> Seen:
        return replace(self, later=kept.plus(self.later), parts=self.parts + parts)


class SummedRows(RowPasses):
    """Rows of which only the sums are left."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows

    @property
    def n_rows(self) -> int:
        return self._n_rows


class Incremental(CrossModalHasher):
    """`partial_fit` and `merge` for the closed form.

    Attributes
    ----------
    sums_ : what is kept of the rows seen so far; its size does not depend on their number.
    drift_ : after a later call, the share of the bits of earlier rows that the new map would change, measured on a
        sample of them. Codes of earlier rows are as given out; where it is large, encode those items anew.
    """

    rank: int | str
    nested: Any
    fitted_: Fitted
    tuning_: dict[str, Any]
    settings_: dict[str, Any]
    eigenvalues_: Any
    sums_: Seen
    drift_: float

    def partial_fit(self: Model, views: ViewsLike, y: Any = None) -> Model:
        """Learn from new rows only, and keep what was learned from the rows of earlier calls.

        The first call is `fit`; later ones take the same views of further items. `codes_` holds the codes of all rows
        in the order in which they came.
        """
        self._check_goes_on("partial_fit")
        if hasattr(self, "sums_"):
            self._learn_more(views)
            return self
        if hasattr(self, "codes_"):
            raise DataError(
                "partial_fit goes on from what partial_fit has learned, since fit keeps no sums. "
                "Give the first rows to partial_fit too."
            )
        try:
            paired = self._paired(views)
            self.fit(paired)
            with one_blas_thread():
                self._report(0, 0, "sums to go on from")
                data = self._passes(paired)
                fitted = convert(self.fitted_, lambda part: to_device_of(part, data.like))
                frame = Frame(fitted, fitted.means, data.n_rows)
                sums = convert(frame.first_sums(data, fitted.code_map, self.codes_), host)
                part = _part(sums, data.n_rows)
                kept = Kept(sums.packed(), frame.sample(data, self.codes_, _rng(part)))
        except BaseException:  # also Ctrl-C: it was not fitted before
            self._take_learned()
            raise
        self.sums_ = contiguous(Seen(self.fitted_.means, kept, None, [part]))
        self.drift_ = 0.0
        return self

    def merge(self: Model, other: Incremental) -> Model:
        """Take in what another model has learned since the first call, which both have in common.

        Both must come from one model after its first `partial_fit` (by a copy or a file), each with rows of its own.
        `codes_` is continued by the codes that `other` gave out after the first call.
        """
        self._check_goes_on("merge")
        for model in (self, other):
            if not isinstance(model, Incremental) or not hasattr(model, "sums_"):
                raise DataError("merge needs two models that partial_fit has learned. Got one without sums.")
        other._check_goes_on("merge")
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
            found = self._refit(self.fitted_, merged.means, total.sums.gram, total.sums.with_bits)
            n_first = theirs.parts[0][1]
            codes = np.concatenate([self.codes_, other.codes_[n_first:]])
            self._take_over(found, found.hash_functions(total.sums), total.sample, merged, codes)
        return self

    def _check_goes_on(self, what: str) -> None:
        owner = type(self).__name__
        if hasattr(self, "uncut_bits_"):
            raise DataError(f"{what} needs the whole model. Got one that was cut to {self.n_bits} bits.")
        if hasattr(self, "sums_") and self.fitted_.code_map.on_features.shape[1] != self.n_bits:
            learned = self.fitted_.code_map.on_features.shape[1]
            raise ParameterError(f"{owner}.{what}", "n_bits", f"{learned}, as in the first call", self.n_bits)

    def _learn_more(self, views: ViewsLike) -> None:
        data = self._passes(self._check_more(views))
        with one_blas_thread():
            total = self.sums_.total
            fitted, means, old = convert(
                (self.fitted_, self.sums_.means, total.sums), lambda p: to_device_of(p, data.like)
            )
            frame = Frame(fitted, means, data.n_rows)
            self._report(1, 3, "sums of the new rows")
            gram, with_bits = frame.grams(data, fitted.code_map, frame.shift(fitted.means))
            self._report(2, 3, "spectrum of all rows")
            found = self._refit(fitted, means, old.gram + gram, old.with_bits + with_bits)
            self._report(3, 3, "codes of the new rows")
            codes, new = frame.give_codes(data, found.fitted.code_map, found.mu, gram)
            W = found.hash_functions(old, new)
            codes, new = host(codes), convert(new, host)
            part = _part(new, data.n_rows)
            seen = self.sums_.with_part(Kept(new.packed(), frame.sample(data, codes, _rng(part))), [part])
            self._take_over(found, W, total.sample, seen, np.concatenate([self.codes_, codes]))

    def _check_more(self, views: ViewsLike) -> PairedViews:
        paired = self._paired(views if isinstance(views, PairedViews) else self._named(views))
        if set(paired.names) != set(self.view_names_):
            raise DataError(f"The views must be {self.view_names_}, as in the first call. Got {paired.names} instead.")
        for name, width in paired.n_features.items():
            if width != self.n_features_[name]:
                raise DataError(
                    f"View '{name}' must have {self.n_features_[name]} features, as in the first call. "
                    f"Got {width} instead."
                )
        return paired

    def _refit(self, fitted: Fitted, means: dict[str, Array], gram: Array, with_bits: Array) -> Refitted:
        """Means, spectrum and rotation from sums over all rows."""
        chosen = self.tuning_["chosen"]
        choices = Choices(**{**chosen, "view_weights": tuple(chosen["view_weights"])})
        frame = Frame(fitted, means)
        later_means = frame.later_means(gram)
        mu = frame.shift(later_means)
        moments = frame.moments(gram, mu)
        form = ClosedForm(SummedRows(moments.count), frame.maps, frame.graph, choices)
        rank = min(self.n_bits, 128) if self.rank == "auto" else int(self.rank)
        embedding, w = form.spectrum(moments, moments.FF, rank)
        M = frame.on_columns(embedding, mu)
        nested = check_nested(type(self).__name__, self.nested, self.n_bits)
        code_map = embedding.rotated(aligned_rotation(M.T @ with_bits, nested))
        changed = replace(fitted, means=later_means, graph=frame.moved_graph(mu), code_map=code_map)
        return Refitted(frame, form, mu, moments.FF, changed, w)

    def _take_over(self, found: Refitted, W: dict[str, Array], old: Sample, seen: Seen, codes: Codes) -> None:
        """Everything was computed; from here on nothing can fail."""
        fitted = convert(replace(found.fitted, weights=W), host)
        Y = found.frame.codes_of(old.columns, fitted.code_map, host(found.mu))
        learned = {
            "fitted_": fitted,
            "codes_": codes,
            "eigenvalues_": host(found.eigenvalues),
            "settings_": {**self.settings_, "rank": len(found.eigenvalues)},
            "n_samples_": len(codes),
            "sums_": seen,
            "drift_": changed_bits(old, Y),
        }
        self.__dict__.pop("_elsewhere", None)  # copies of the old model on devices
        self.__dict__.update(contiguous(learned))


@dataclass
class Refitted:
    """What the sums give, before the hash functions."""

    frame: Frame
    form: ClosedForm
    mu: Array
    FF: Array
    fitted: Fitted
    eigenvalues: Array

    def hash_functions(self, old: Sums, new: Sums | None = None) -> dict[str, Array]:
        """W_m for the bits of the new map: of rows that are gone, and of those at hand."""
        M = self.frame.on_columns(self.fitted.code_map, self.mu)
        q = len(M) - len(self.mu)
        AB = bits_of_map(old, M, q)
        AB = AB if new is None else AB + new.with_bits
        return self.form.hash_functions(self.FF, AB[: self.frame.n_features] - self.mu.T @ AB[q:])


def _part(sums: Sums, n_rows: int) -> list[Any]:
    """Tells rows from other rows by the sums of their columns."""
    columns = np.ascontiguousarray(np.diagonal(sums.gram))
    return [blake2b(columns.tobytes(), digest_size=16).hexdigest(), n_rows]


def _rng(part: list[Any]) -> np.random.Generator:
    """Chance of its own for every part, on whatever machine."""
    return np.random.default_rng(int(part[0], 16))
