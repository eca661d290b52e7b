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

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.files import contiguous
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.fusehash.closed_form import BLOCK_ROWS, feature_gram, hash_functions, target_softness
from fusehash.hashers.fusehash.fitted import Arrays, Choices, Fitted
from fusehash.hashers.fusehash.frame import Frame
from fusehash.hashers.fusehash.kept_sums import FrameSums, Sample, Seen, targets_of_map
from fusehash.hashers.fusehash.nested import check_nested
from fusehash.hashers.fusehash.spectrum import spectrum
from fusehash.numerics.arrays import Array, convert, host, namespace, to_device_of
from fusehash.numerics.parallel import one_blas_thread
from fusehash.numerics.rotation import groups
from fusehash.views import PairedViews, ViewsLike

Model = TypeVar("Model", bound="Incremental")


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
