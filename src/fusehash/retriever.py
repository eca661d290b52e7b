"""Retriever: a fitted model, an index of codes and, if wanted, vectors to rescore with, in one folder.

model.safetensors   the model, as `save` writes it
codes.db            the index, see `fusehash.search.file`; every change is durable when its call has returned
retriever.json      written last: format, version, and the SHA-256 of the model whose codes are in the index
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError, FusehashError
from fusehash.files import draft_folder, sync_folder, write_atomically
from fusehash.hashers import load
from fusehash.hashers.base import CrossModalHasher
from fusehash.numerics.arrays import host
from fusehash.parameters import integer
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.trust import open_file, parse_json, sha256_of

_MODEL, _INDEX, _SETTINGS = "model.safetensors", "codes.db", "retriever.json"
_FORMAT, _VERSION = "fusehash-retriever", 1
_MAX_SETTINGS = 1 << 16  # bytes
_K, _CANDIDATES = integer(1), integer(1)


class RetrieverError(FusehashError, OSError):
    """The folder of a retriever is missing, is in use, or is not an intact retriever."""


class Retriever:
    """Vectors in, ids and scores out: a model and an index in one folder.

    Make one with `create` and open it with `open`; use it in a `with` statement. Items and queries are rows of any view
    of the model. Items are stored as codes, and as factors if the model has them (`encode(..., with_factors=True)`);
    queries keep their projections (see `HammingIndex.search`). With `vectors`,
    the index also keeps the rows themselves, and `search(..., candidates=C)` orders the C best codes by cosine: for
    views that share a space, as those of CLIP do.

    Attributes
    ----------
    model : CrossModalHasher
    index : HammingIndex

    Examples
    --------
    >>> import tempfile
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, views={"image": 12, "text": 12}, random_state=0)
    >>> model = fh.hashers.make("cvh", n_bits=16).fit(data.views)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fh.Retriever.create(f"{folder}/mine", model, vectors="int8", dim=12) as retriever:
    ...         ids = retriever.add(data.views["image"], view="image")
    ...     with fh.Retriever.open(f"{folder}/mine") as retriever:
    ...         ids, scores = retriever.search(data.views["image"][:2], k=3, view="image", candidates=50)
    >>> ids[:, 0], scores.shape
    (array([0, 1]), (2, 3))
    """

    def __init__(self, folder: Path, model: CrossModalHasher, index: HammingIndex) -> None:
        self.folder, self.model, self.index = folder, model, index

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        model: CrossModalHasher,
        *,
        vectors: str | None = None,
        dim: int | None = None,
        engine: str = "scan",
        threads: int | None = None,
    ) -> Retriever:
        """Make a retriever without items in a new folder, completely or not at all.

        Parameters
        ----------
        path : str or path-like
            The folder, which must not exist.
        model : CrossModalHasher
            A fitted model.
        vectors, dim, engine, threads
            As in `HammingIndex`. The views that you add and search must then all have `dim` columns.

        Returns
        -------
        Retriever

        Raises
        ------
        RetrieverError
            If the folder exists or cannot be made.
        ParameterError
            If a parameter is out of range.
        """
        HammingIndex(model.n_bits, vectors=vectors, dim=dim)  # raises before the folder is made
        target = Path(path).absolute()
        try:
            if target.exists():
                raise FileExistsError(None, "there is something already")
            with draft_folder(target) as draft:
                model.save(draft / _MODEL)
                options: dict[str, Any] = {"vectors": vectors, "dim": dim, "factors": _has_factors(model)}
                HammingIndex.open(draft / _INDEX, model.n_bits, warm=False, **options).close()
                content = {"format": _FORMAT, "version": _VERSION, "model": _digest(draft / _MODEL)}
                text = json.dumps(content, indent=2).encode()
                write_atomically(draft / _SETTINGS, lambda file: file.write(text))
                draft.rename(target)
                sync_folder(target.parent)
        except OSError as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise RetrieverError(f"The retriever {target} could not be created: {reason}.") from error
        return cls.open(target, engine=engine, threads=threads)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, engine: str = "scan", threads: int | None = None, timeout: float = 30.0
    ) -> Retriever:
        """Open a retriever; arguments as in `HammingIndex.open`.

        Raises
        ------
        RetrieverError
            If there is none, or one of its files is missing, damaged or a link.
        """
        folder = Path(path).absolute()
        if not (folder / _SETTINGS).is_file():
            raise RetrieverError(f"There is no retriever at {folder}.")
        for name in (_MODEL, _INDEX, _SETTINGS):
            if (folder / name).is_symlink() or not (folder / name).is_file():
                raise RetrieverError(f"The retriever {folder} must hold the file {name}. It is missing or a link.")
        with open_file(folder / _SETTINGS, str(folder / _SETTINGS), RetrieverError, follow_links=False) as file:
            text = file.read(_MAX_SETTINGS)
        try:
            content = parse_json(text, str(folder / _SETTINGS), RetrieverError)
            format, version, digest = content["format"], content["version"], content["model"]
        except (ValueError, KeyError, TypeError) as error:
            raise RetrieverError(f"{folder / _SETTINGS} must describe a retriever. It is damaged.") from error
        if format != _FORMAT or not isinstance(version, int):
            raise RetrieverError(f"{folder / _SETTINGS} must describe a retriever. It is damaged.")
        if version > _VERSION:
            raise RetrieverError(f"{folder} was written by a newer fusehash (format {version}).")
        if _digest(folder / _MODEL) != digest:
            raise RetrieverError(f"The model in {folder} must be the one that made its codes. It is another one.")
        model = load(folder / _MODEL)
        index = HammingIndex.open(folder / _INDEX, model.n_bits, engine=engine, threads=threads, timeout=timeout)
        return cls(folder, model, index)

    def __len__(self) -> int:
        return len(self.index)

    def add(self, X: Any, *, view: str | int, ids: ArrayLike | None = None) -> Ids:
        """Add items: rows of a view, under `ids` or numbers that count up.

        Parameters
        ----------
        X : matrix, shape (n, d)
            Rows of the view.
        view : str or int
            Which one.
        ids : array-like of int, optional
            As in `HammingIndex.add`.

        Returns
        -------
        ids : int64 array, shape (n,)

        Raises
        ------
        DataError
            If rows or ids cannot be used; nothing was added.
        """
        codes, factors = self._codes(X, view)
        return self.index.add(codes, ids, self._vectors(X), factors)

    def replace(self, X: Any, ids: ArrayLike, *, view: str | int) -> None:
        """Replace items that are there; arguments as in `add`."""
        codes, factors = self._codes(X, view)
        self.index.replace(codes, ids, self._vectors(X), factors)

    def remove(self, ids: ArrayLike) -> int:
        """Remove items; returns how many."""
        return self.index.remove(ids)

    def search(
        self,
        X: Any,
        k: int = 10,
        *,
        view: str | int,
        candidates: int | None = None,
        allowed: ArrayLike | None = None,
        threads: int | None = None,
    ) -> tuple[Ids, NDArray[Any]]:
        """Return the best items for every query.

        Parameters
        ----------
        X : matrix, shape (n_queries, d)
            Rows of the view.
        k : int, default 10
            Items per query.
        view : str or int
            The view of the queries.
        candidates : int, optional
            Order so many items, the best by their codes, by cosine with their vectors. By default codes alone decide.
        allowed, threads
            As in `HammingIndex.search`.

        Returns
        -------
        ids : int64 array, shape (n_queries, min(k, items))
            Best first; ties in order of id.
        scores : float array of the same shape
            With `candidates` the cosine of the vectors. Else for codes with factors their estimate, of the cosine up to
            a number per query for `FuseHash(target="floats")`; for others 1 - 2 s / sum |p_j| for projections p and the
            score s of `HammingIndex.search`, which is between -1 and 1.

        Raises
        ------
        DataError
            If the rows cannot be used, or `candidates` is passed and no vectors are kept.
        """
        k = int(_K.check("Retriever.search", "k", k))
        projections = np.asarray(host(self.model.project(X, view=view)), np.float64)
        if candidates is None:
            distances, ids = self.index.search(projections, k, allowed=allowed, threads=threads)
            if self.index.has_factors:
                return ids, -distances
            total = np.abs(projections).sum(axis=1, keepdims=True)
            return ids, 1.0 - 2.0 * distances / total
        count = int(_CANDIDATES.check("Retriever.search", "candidates", candidates))
        vectors = self._vectors(X)
        if vectors is None:
            raise DataError("Candidates are rescored with vectors, and this retriever keeps none. Create it with some.")
        distances, ids = self.index.search(
            projections, k, allowed=allowed, threads=threads, rescore=vectors, candidates=count
        )
        return ids, 1.0 - distances

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def __enter__(self) -> Retriever:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Retriever of {len(self):,} items in {self.folder}>"

    def _codes(self, X: Any, view: str | int) -> tuple[Codes, NDArray[np.float32] | None]:
        """Codes, and factors if the index keeps them."""
        if self.index.has_factors:
            codes, factors = self.model.encode(X, view=view, with_factors=True)
            return codes, factors
        return np.asarray(host(self.model.encode(X, view=view))), None

    def _vectors(self, X: Any) -> NDArray[np.float64] | None:
        """The rows themselves, if the index keeps vectors."""
        if self.index.dim is None:
            return None
        vectors = np.asarray(X.toarray() if hasattr(X, "toarray") else host(X))
        return vectors.astype(np.float64) if vectors.dtype.kind in "iu" else vectors


def _has_factors(model: CrossModalHasher) -> bool:
    return type(model)._factors_block is not CrossModalHasher._factors_block


def _digest(path: Path) -> str:
    with open_file(path, str(path), RetrieverError, follow_links=False) as file:
        return sha256_of(file)
