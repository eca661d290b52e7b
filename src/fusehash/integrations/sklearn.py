"""scikit-learn: codes as features of a pipeline. scikit-learn is always installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.hashers.base import CrossModalHasher
from fusehash.parameters import choice

ONE_VIEW = "features"


class HashTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One table in, hash features out: a hasher as a step of a scikit-learn pipeline.

    Parameters
    ----------
    hasher : CrossModalHasher, optional
        What learns; it is cloned, and stays as it is. By default `FuseHash` with 64 bits.
    columns : mapping of str to sequence, optional
        The columns of every view, by name for data frames or by number, as in {"image": ["a", "b"], "text": ["c"]}. By
        default all columns are one view.
    output : {"projections", "signs"}, default "projections"
        Real-valued projections, whose signs are the bits of the code, or these signs, -1 and 1.

    Attributes
    ----------
    hasher_ : CrossModalHasher
        The fitted hasher.
    n_features_in_, feature_names_in_
        As in scikit-learn; names are checked by `transform`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from fusehash.hashers import RegressionHasher
    >>> from fusehash.integrations.sklearn import HashTransformer
    >>> X = np.random.default_rng(0).standard_normal((60, 9))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> views = {"image": [0, 1, 2, 3], "text": [4, 5, 6, 7, 8]}
    >>> hasher = HashTransformer(RegressionHasher(n_bits=8, random_state=0), columns=views)
    >>> make_pipeline(hasher, LogisticRegression()).fit(X, y).predict(X).shape
    (60,)
    """

    def __init__(
        self,
        hasher: CrossModalHasher | None = None,
        *,
        columns: Mapping[str, Sequence[Any]] | None = None,
        output: str = "projections",
    ) -> None:
        self.hasher = hasher
        self.columns = columns
        self.output = output

    def fit(self, X: Any, y: Any = None) -> HashTransformer:
        """Learn from a table; `y` are the labels for hashers that learn from labels.

        Raises
        ------
        ParameterError, DataError
            If a parameter or the table cannot be used.
        """
        choice("projections", "signs").check("HashTransformer", "output", self.output)
        if self.hasher is not None and not isinstance(self.hasher, CrossModalHasher):
            raise ParameterError("HashTransformer", "hasher", "None or a hasher of fusehash", self.hasher)
        matrix = validate_data(self, X, dtype="numeric", ensure_min_samples=2)
        positions = self._positions(matrix.shape[1])
        hasher = self._hasher()
        views = {name: np.ascontiguousarray(matrix[:, chosen]) for name, chosen in positions.items()}
        self.hasher_ = hasher.fit(views, y if hasher.supervised else None)
        self.positions_ = positions
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The features of every row, shape (n, n_bits)."""
        check_is_fitted(self)
        matrix = validate_data(self, X, dtype="numeric", reset=False)
        views = {name: np.ascontiguousarray(matrix[:, chosen]) for name, chosen in self.positions_.items()}
        if self.output == "signs":
            return bits.unpack(self.hasher_.encode_fused(views), self.hasher_.n_bits)
        return np.asarray(self.hasher_.project_fused(views))

    @property
    def _n_features_out(self) -> int:
        return int(self.hasher_.n_bits)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.hasher is not None and self.hasher.supervised
        return tags

    def _hasher(self) -> CrossModalHasher:
        if self.hasher is not None:
            return clone(self.hasher)
        from fusehash.hashers.fusehash import FuseHash

        return FuseHash(n_bits=64, random_state=0)

    def _positions(self, n_columns: int) -> dict[str, NDArray[np.intp]]:
        """The column numbers of every view."""
        if self.columns is None:
            return {ONE_VIEW: np.arange(n_columns)}
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise ParameterError("HashTransformer", "columns", "None or a mapping from view to columns", self.columns)
        known = list(getattr(self, "feature_names_in_", []))
        positions: dict[str, NDArray[np.intp]] = {}
        for name, columns in self.columns.items():
            numbers = [known.index(column) if column in known else column for column in columns]
            for number in numbers:
                if not isinstance(number, int | np.integer) or not 0 <= number < n_columns:
                    raise DataError(f"Columns of view '{name}' must be in the table of {n_columns}. Got {number!r}.")
            positions[str(name)] = np.array(numbers, dtype=np.intp)
        return positions
