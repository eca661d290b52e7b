"""RowEncoder: how a fitted model gives codes to rows of one view or of several (project, encode, fuse, score)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import pair_auc
from fusehash.numerics.arrays import Array, convert, device_of, host, is_foreign, namespace, to_device_of
from fusehash.numerics.parallel import one_blas_thread
from fusehash.streams import StoredMatrix, is_block_stream, open_view, writers
from fusehash.streams.formats import is_dask
from fusehash.streams.row_passes import device_rows
from fusehash.views import Floats, PairedViews, ViewsLike, check_view, named, to_dense

Self = TypeVar("Self", bound="RowEncoder")

# Rows are encoded in blocks of exactly this size (the last one padded), so that the products behind a row are the same
# products whether it comes alone or inside a batch.
ENCODE_ROWS = 64


class RowEncoder(BaseEstimator, ABC):
    """Codes of rows from learned hash functions: the half of `CrossModalHasher` that needs no fitting.

    A method implements ``_project_block`` and may override ``_project_complete_block`` and ``_fusion_weights``.
    """

    accelerated: ClassVar[bool] = False  # True: fits and encodes arrays of any library where they are

    n_bits: int
    codes_: bits.Codes
    view_names_: list[str]
    n_features_: dict[str, int]

    # -- what a method brings ------------------------------------------------------------------------------------

    @abstractmethod
    def _project_block(self, block: Floats, view: str) -> Floats:
        """Real-valued (rows, n_bits) projections of dense rows; their signs are the code."""

    def _project_complete_block(self, blocks: dict[str, Array]) -> Array | None:
        """Real-valued projections of rows seen in every view; None: the weighted sum is the fusion."""
        return None

    def _fusion_weights(self) -> dict[str, float]:
        return dict.fromkeys(self.view_names_, 1.0)

    @property
    def _encodes_tensors(self) -> bool:
        """Whether arrays of PyTorch and CuPy are encoded where they are, and not through the host."""
        return self.accelerated

    def _stays_sparse(self, name: str, learned: dict[str, Any]) -> bool:
        """Whether a fitted model never holds a dense row of a view."""
        return False

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if is_learned(name)}

    # -- codes ---------------------------------------------------------------------------------------------------

    def project(self, X: Any, *, view: str | int) -> Array:
        """Real-valued projections of items seen in one view; `encode` packs their signs.

        Parameters
        ----------
        X : array-like, sparse matrix or stored matrix, shape (n, d)
            Rows of the view.
        view : str or int
            Name of the view, or its position in `view_names_`.

        Returns
        -------
        projections : array, shape (n, n_bits)
            In the library and on the device of X for arrays of PyTorch and CuPy, else a NumPy array.

        Raises
        ------
        NotFittedError, DataError
            If the model is not fitted; if the view is unknown, or X does not have its features or holds NaN.
        """
        name = self._view_name(view)
        matrix = self._check_rows(X, name)
        if is_foreign(matrix):
            return self._project_foreign(matrix, name)
        projections = np.empty((matrix.shape[0], self.n_bits))
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # codes do not depend on threads
            for rows, block in _padded_blocks(matrix, keep_sparse=self._stays_sparse(name, self.__dict__)):
                projections[rows] = self._project_block(block, name)[: rows.stop - rows.start, : self.n_bits]
        return _checked(projections, f"View '{name}'")

    def _project_foreign(self, matrix: Array, name: str) -> Array:
        """The same for a tensor: where it is, or (for methods that know NumPy only) through the host."""
        if not self._encodes_tensors:
            return to_device_of(self.project(host(matrix), view=name), matrix)
        there = self._on_device_of(matrix)
        size = device_rows(matrix, matrix.shape[1])
        parts = [there._project_block(to_dense(matrix[i : i + size]), name) for i in range(0, len(matrix), size)]
        whole = parts[0] if len(parts) == 1 else namespace(matrix).concat(parts, axis=0)
        return whole if whole.shape[1] == self.n_bits else whole[:, : self.n_bits]

    def _on_device_of(self: Self, array: Array) -> Self:
        """This model with its arrays on the device of a tensor; copied once per device."""
        copies: dict[Any, Self] = self.__dict__.setdefault("_device_copies", {})
        key = device_of(array)
        if key not in copies:
            not_used = ("codes_", "sums_")  # by encoding
            used = {name: value for name, value in self._learned().items() if name not in not_used}
            copies[key] = copy(self)
            copies[key].__dict__.update(convert(used, lambda part: to_device_of(part, array)))
        return copies[key]

    def _forget_device_copies(self) -> None:
        self.__dict__.pop("_device_copies", None)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_device_copies", None)
        return state

    def encode(self, X: Any, *, view: str | int, out: str | Path | None = None, with_factors: bool = False) -> Any:
        """Packed codes of items seen in one view; raises as `project` does.

        Parameters
        ----------
        X : matrix, shape (n, d), or stream of blocks
            Rows of the view; anything that `fit` accepts for a view.
        view : str or int
            Name of the view, or its position in `view_names_`.
        out : path, optional
            Write the codes to this file block by block, instead of returning them.
        with_factors : bool, default False
            Also return two numbers per item, (n, 2) of float32. A query with projections p ranks an item with code b in
            {-1, +1} by ``factors[:, 0] * <b, p> + factors[:, 1]``, largest first. Codes that `FuseHash` learns of joint
            embeddings are then those that suit such queries best; without factors they are signs.

        Returns
        -------
        codes : array of uint8, shape (n, n_bits / 8), or Path
            A lazy dask array for a dask array, a generator of code blocks for a stream, and the path with `out`; with
            `with_factors`, a pair of codes and factors.
        """
        name = self._view_name(view)
        if with_factors:
            return self._encode_with_factors(X, name, out)
        if out is None and is_dask(X):
            return writers.encode_lazily(self, X, name)
        return self._encode(X if is_block_stream(X) else {name: open_view(X)}, name, out)

    def _encode_with_factors(self, X: Any, name: str, out: str | Path | None) -> tuple[Any, NDArray[np.float32]]:
        matrix, place = self._check_rows(host(X) if is_foreign(X) else X, name), f"View '{name}'"
        n_rows = int(matrix.shape[0])
        codes = np.empty((n_rows, bits.n_bytes(self.n_bits)), np.uint8)
        factors = np.empty((n_rows, 2), np.float32)
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for rows, block in _padded_blocks(matrix, keep_sparse=self._stays_sparse(name, self.__dict__)):
                projections, count = _checked(self._project_block(block, name), place), rows.stop - rows.start
                signs = self._item_signs(projections)
                codes[rows] = bits.pack(signs[:count])
                factors[rows] = self._factors_block(block, projections, signs, name)[:count]
        return (codes if out is None else writers.write_codes([codes], n_rows, codes.shape[1], out)), factors

    def _item_signs(self, projections: Floats) -> Floats:
        """Numbers with the signs of the codes that float queries score with factors, from uncut projections."""
        return projections[:, : self.n_bits]

    def _factors_block(self, block: Any, projections: Floats, signs: Floats, view: str) -> Floats:
        """Two numbers per item (rows, 2), from rows, their uncut projections, and what `_item_signs` gave.

        For methods that have them.
        """
        owner = f"{type(self).__name__}.encode"
        raise ParameterError(owner, "with_factors", "False: the codes of this method have no factors", True)

    def _encode(self, opened: Any, view: str | None, out: str | Path | None) -> Any:
        """Codes of a stream or of opened views: of one view, or of several that are fused (None)."""
        if is_block_stream(opened):
            blocks = writers.encode_blocks(self, opened, view)
            return blocks if out is None else writers.write_codes(blocks, None, bits.n_bytes(self.n_bits), out)
        fused = view is None
        is_stored = any(isinstance(matrix, StoredMatrix) for matrix in opened.values())
        has_tensors = any(is_foreign(matrix) for matrix in opened.values())
        if is_stored or (out is not None and not has_tensors):
            for name, matrix in opened.items():
                if not (fused and isinstance(matrix, StoredMatrix)):  # checked block by block
                    opened[name] = self._check_rows(matrix, name, allow_missing=fused)
            return writers.encode_rows(self, opened, fused=fused, out=out)
        return _packed(self.project_fused(opened) if view is None else self.project(opened[view], view=view), out)

    def project_fused(self, views: ViewsLike) -> Array:
        """Real-valued projections of items seen in any subset of the views; raises as `project` does.

        Items seen in every view are fused by the method; others get the weighted sum of the projections of their views.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            Some or all of the views. A row that is all NaN in a view is missing there.

        Returns
        -------
        projections : array, shape (n, n_bits)
        """
        opened = self._opened(views)
        if any(isinstance(matrix, StoredMatrix) for matrix in opened.values()):
            blocks = writers.paired_blocks(opened, allow_missing=True)
            return np.vstack([self.project_fused(block) for block in blocks])
        for name, matrix in opened.items():
            self._check_rows(matrix, name, allow_missing=True)
        present = views.present if isinstance(views, PairedViews) else None
        paired = PairedViews(opened, allow_missing=True, present=present).in_order()
        like = next(iter(paired.values()))
        is_mixed = len({device_of(view) if is_foreign(view) else None for view in paired.values()}) > 1
        if is_mixed or not self._encodes_tensors:  # views of several places meet on the host
            paired = paired.on_host()
        weights = self._fusion_weights()
        total: Array = None
        for name in paired:
            is_sparse = sp.issparse(paired[name]) and self._stays_sparse(name, self.__dict__)
            whole = paired.sparse if is_sparse else paired.dense
            matrix = paired[name] if name not in paired.present else whole(name, slice(None))
            part = self.project(matrix, view=name) * weights[name]
            if name in paired.present:
                seen = to_device_of(paired.present[name], part)[:, None]
                part = namespace(part).where(seen, part, namespace(part).zeros_like(part))
            total = part if total is None else total + part
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            self._replace_complete(paired, total)
        if is_foreign(total):
            return total
        total = _checked(total, "The views")
        return to_device_of(total, like) if is_foreign(like) and not is_mixed else total

    def _replace_complete(self, views: PairedViews, total: Array) -> None:
        """Items seen in every view get the method's own fusion where it has one."""
        if set(views.names) != set(self.view_names_):
            return
        there = is_foreign(total)
        model = self._on_device_of(total) if there else self
        rows = views.complete_rows()
        size = device_rows(total, sum(self.n_features_.values())) if there else ENCODE_ROWS
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            padded = some if there else np.concatenate([some, np.repeat(some[:1], size - len(some))])
            fused = model._project_complete_block({n: self._cut(views, n, padded, there) for n in self.view_names_})
            if fused is None:
                return
            fused = fused[: len(some), : self.n_bits]
            total[to_device_of(some, total)] = fused if is_foreign(fused) else to_device_of(fused, total)

    def _cut(self, views: PairedViews, name: str, rows: Any, there: bool) -> Array:
        """Some rows of a view: on its device if they are wanted `there`, sparse where this method keeps them so."""
        if there:
            return views.dense(name, rows)
        is_sparse = sp.issparse(views[name]) and self._stays_sparse(name, self.__dict__)
        return views.sparse(name, rows) if is_sparse else views.block(name, rows)

    def encode_fused(self, views: ViewsLike, *, out: str | Path | None = None) -> Any:
        """Packed codes of items seen in any subset of the views; raises as `project` does.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, PairedViews, or stream of blocks
            Some or all of the views. A row that is all NaN in a view is missing there.
        out : path, optional
            Write the codes to this file block by block, instead of returning them.

        Returns
        -------
        codes : array of uint8, shape (n, n_bits / 8), or Path
            A generator of code blocks for a stream, and the path with `out`.
        """
        self._check_fitted()
        if isinstance(views, PairedViews) and views.present:  # masks say where views are missing
            return _packed(self.project_fused(views), out)
        return self._encode(views if is_block_stream(views) else self._opened(views), None, out)

    def _opened(self, views: ViewsLike) -> dict[str, Any]:
        return {self._view_name(name): open_view(matrix) for name, matrix in self._named(views).items()}

    def score(self, views: ViewsLike, y: Any = None) -> float:
        """Mean pair AUC: how often the true partner of an item is nearer than another item, without labels.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            Paired rows, all of them present.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Mean over ordered pairs of views; .5 is chance, 1 is perfect. With one view, 1.
        """
        self._check_fitted()
        paired = PairedViews(self._named(views)).in_order()
        codes = {name: host(self.encode(paired[name], view=name)) for name in paired}
        scores = [pair_auc(codes[a], codes[b]) for a in codes for b in codes if a != b]
        return float(np.mean(scores)) if scores else 1.0

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "codes_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call 'fit' first.")

    def _named(self, views: ViewsLike) -> dict[str, Any]:
        self._check_fitted()
        if not isinstance(views, list | tuple):
            return named(views)
        names = self.view_names_  # a list stands for the views in this order
        if len(views) != len(names):
            raise DataError(f"A list of views must have one matrix for each of {names}. Got {len(views)} instead.")
        return dict(zip(names, views, strict=True))

    def _view_name(self, view: str | int) -> str:
        self._check_fitted()
        if isinstance(view, int | np.integer) and not isinstance(view, bool) and 0 <= view < len(self.view_names_):
            return self.view_names_[view]
        if view not in self.view_names_:
            names = ", ".join(repr(name) for name in self.view_names_)
            raise DataError(f"The view must be one of {names}. Got {view!r} instead.")
        return str(view)

    def _check_rows(self, X: Any, name: str, *, allow_missing: bool = False) -> Any:
        matrix, _ = check_view(X, name, allow_missing=allow_missing)
        self._check_width(name, matrix.shape[1])
        return matrix

    def _check_width(self, name: str, width: int) -> None:
        if width != (expected := self.n_features_[name]):
            raise DataError(f"View '{name}' must have {expected} features, as in fit. Got {width} instead.")


def is_learned(name: str) -> bool:
    """Whether an attribute of a model was learned by `fit`."""
    return name.endswith("_") and not name.startswith("_")


def _checked(projections: Floats, content: str) -> Floats:
    """The projections; raises DataError where features were so large that they are no numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(projections.sum()):  # no NaN and no infinity
            return projections
    finite = np.isfinite(projections).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(f"{content} must hold numbers that can be projected. Got too large ones in row {row}.")
    return projections


def _packed(projections: Array, out: str | Path | None) -> Any:
    """Their codes, or the path to which they were written."""
    codes = bits.pack(projections)
    return codes if out is None else writers.write_codes([host(codes)], len(codes), codes.shape[1], out)


def _padded_blocks(matrix: Any, *, keep_sparse: bool = False) -> Iterator[tuple[slice, Any]]:
    """Row blocks of exactly ENCODE_ROWS rows; the last is padded with copies of its first row."""
    if keep_sparse and sp.issparse(matrix):
        for start in range(0, matrix.shape[0], ENCODE_ROWS):
            stop = min(start + ENCODE_ROWS, matrix.shape[0])
            padded = np.concatenate([np.arange(start, stop), np.full(ENCODE_ROWS - (stop - start), start)])
            yield slice(start, stop), sp.csr_array(matrix[padded], dtype=np.float64)
        return
    starts = range(0, matrix.shape[0], ENCODE_ROWS)
    cuts: Iterable[Any] = (matrix[start : start + ENCODE_ROWS] for start in starts)
    if isinstance(matrix, StoredMatrix):
        cuts = writers.stored_blocks(matrix, ENCODE_ROWS)
    for start, cut in zip(starts, cuts, strict=True):
        block = np.ascontiguousarray(to_dense(cut))
        rows = slice(start, start + len(block))
        if len(block) < ENCODE_ROWS:
            block = np.vstack([block, np.repeat(block[:1], ENCODE_ROWS - len(block), axis=0)])
        yield rows, block
