"""Retriever: a fitted model, an index of codes and, if wanted, encoders and vectors to rescore with, in one folder.

model.safetensors   the model, as `save` writes it
codes.db            the index, see `fusehash.search.file`; every change is durable when its call has returned
codes.db-vectors-1  its vectors, numbered, if it keeps any
encoder-0.encoder   encoders, numbered, if there are any; as `fusehash.encoders.save` writes them
retriever.json      written last: format, version, and the SHA-256 of the model and the encoders
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError, FusehashError, ParameterError, warn
from fusehash.files import draft_folder, sync_folder, write_atomically
from fusehash.hashers import load
from fusehash.hashers.base import CrossModalHasher
from fusehash.numerics.arrays import host
from fusehash.parameters import integer
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.trust import open_file, parse_json, sha256_of

_MODEL, _INDEX, _SETTINGS = "model.safetensors", "codes.db", "retriever.json"
if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder

_ENCODER = re.compile(r"encoder-[0-9]+\.encoder")
_FORMAT, _VERSION = "fusehash-retriever", 2  # version 1 has no encoders
_MAX_SETTINGS = 1 << 16  # bytes
_K, _CANDIDATES = integer(1), integer(1)


class RetrieverError(FusehashError, OSError):
    """The folder of a retriever is missing, is in use, or is not an intact retriever."""


class Retriever:
    """Vectors, texts or pictures in, ids and scores out: a model and an index in one folder.

    Make one with `create` and open it with `open`; use it in a `with` statement. Items and queries are rows of any view
    of the model. Items are stored as codes, and as factors if the model has them (`encode(..., with_factors=True)`);
    queries keep their projections (see `HammingIndex.search`). With `vectors`,
    the index also keeps the rows themselves, and `search(..., candidates=C)` orders the C best codes by cosine: for
    views that share a space, as those of CLIP do. With `encoders`, items and queries may also be what the encoder of a
    view takes: a text or a list of texts, a picture (path, bytes or PIL.Image) or a list of them.

    Attributes
    ----------
    model : CrossModalHasher
    index : HammingIndex
    encoders : dict of str to Encoder
        By view; empty if there are none.

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

    def __init__(
        self, folder: Path, model: CrossModalHasher, index: HammingIndex, encoders: Mapping[str, Encoder] | None = None
    ) -> None:
        self.folder, self.model, self.index, self.encoders = folder, model, index, dict(encoders or {})

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        model: CrossModalHasher,
        *,
        vectors: str | None = None,
        dim: int | None = None,
        encoders: Mapping[str, Encoder] | None = None,
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
        encoders : mapping of str to Encoder, optional
            Fitted encoders of `fusehash.encoders` for some views of the model, whose features it was fitted on.

        Returns
        -------
        Retriever

        Raises
        ------
        RetrieverError
            If the folder exists or cannot be made.
        ParameterError
            If a parameter is out of range, or an encoder is not fitted, not one of fusehash's, or has another number of
            features than its view.
        """
        chosen = _checked_encoders(model, encoders or {})
        HammingIndex(model.n_bits, vectors=vectors, dim=dim)  # raises before the folder is made
        target = Path(path).absolute()
        try:
            if target.exists():
                raise FileExistsError(None, "there is something already")
            with draft_folder(target) as draft:
                model.save(draft / _MODEL)
                options: dict[str, Any] = {"vectors": vectors, "dim": dim, "factors": _has_factors(model)}
                HammingIndex.open(draft / _INDEX, model.n_bits, warm=False, **options).close()
                content: dict[str, Any] = {"format": _FORMAT, "version": 1, "model": _digest(draft / _MODEL)}
                if chosen:
                    content |= {"version": 2, "encoders": _save_encoders(chosen, draft)}
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
        model, encoders = load(folder / _MODEL), _load_encoders(folder, content.get("encoders", {}))
        index = HammingIndex.open(folder / _INDEX, model.n_bits, engine=engine, threads=threads, timeout=timeout)
        return cls(folder, model, index, encoders)

    def __len__(self) -> int:
        return len(self.index)

    def add(self, X: Any, *, view: str | int, ids: ArrayLike | None = None) -> Ids:
        """Add items of a view, under `ids` or numbers that count up.

        Parameters
        ----------
        X : matrix, shape (n, d), or list of texts or pictures
            Rows of the view, or what its encoder takes.
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
            If an item or ids cannot be used; nothing was added.
        """
        X = self._rows(X, view)
        codes, factors = self._codes(X, view)
        return self.index.add(codes, ids, self._vectors(X), factors)

    def replace(self, X: Any, ids: ArrayLike, *, view: str | int) -> None:
        """Replace items that are there; arguments as in `add`."""
        X = self._rows(X, view)
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
        X : matrix, shape (n_queries, d), or text, picture or list of them
            Rows of the view, or what its encoder takes.
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
            If a query cannot be used, or `candidates` is passed and no vectors are kept.
        """
        k = int(_K.check("Retriever.search", "k", k))
        X = self._rows(X, view)
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

    def _rows(self, X: Any, view: str | int) -> Any:
        """Rows of a view as they are; for texts and pictures, their features."""
        items = [X] if _is_raw(X) else list(X) if isinstance(X, (list, tuple)) and any(map(_is_raw, X)) else None
        if items is None:
            return X
        name = self.model._view_name(view)
        if name not in self.encoders:
            raise DataError(f"Texts and pictures need an encoder, and view {name!r} has none in this retriever.")
        features, problems = self.encoders[name].encode(items)
        if problems:
            first = min(problems)
            others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise DataError(f"Items must be readable. Item {first}{others} is not: {problems[first].rstrip('.')}.")
        unknown = np.flatnonzero(~np.asarray(features).any(axis=1))
        if len(unknown):
            others = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            warn(
                f"The encoder of view {name!r} knows nothing of item {unknown[0]}{others}: its neighbors are arbitrary."
            )
        return features

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


def _is_raw(item: Any) -> bool:
    """Whether an item is for an encoder: a text, a path, bytes or a picture."""
    return isinstance(item, (str, bytes, Path)) or hasattr(item, "convert")


def _checked_encoders(model: CrossModalHasher, encoders: Mapping[str, Encoder]) -> dict[str, Encoder]:
    from fusehash.encoders import ENCODERS

    for view, encoder in encoders.items():
        if view not in model.view_names_:
            expected = f"encoders by view, of {', '.join(map(repr, model.view_names_))}"
            raise ParameterError("Retriever", "encoders", expected, view)
        if (getattr(encoder, "name", None), getattr(encoder, "modality", None)) not in ENCODERS:
            raise ParameterError("Retriever", "encoders", "encoders of fusehash.encoders", encoder)
        width = model.n_features_[view]
        if getattr(encoder, "n_features_", None) != width:
            got = f"{getattr(encoder, 'n_features_', 'none: it is not fitted')}"
            raise ParameterError("Retriever", "encoders", f"fitted, with {width} features for view {view!r}", got)
    return dict(encoders)


def _save_encoders(chosen: Mapping[str, Encoder], folder: Path) -> dict[str, Any]:
    from fusehash import encoders

    written = {}
    for number, (view, encoder) in enumerate(chosen.items()):
        name = f"encoder-{number}.encoder"
        encoders.save(encoder, folder / name)
        written[view] = {"file": name, "sha256": _digest(folder / name)}
    return written


def _load_encoders(folder: Path, listed: Any) -> dict[str, Encoder]:
    from fusehash import encoders

    loaded = {}
    try:
        files = [(str(view), str(entry["file"]), entry["sha256"]) for view, entry in listed.items()]
    except (AttributeError, KeyError, TypeError) as error:
        raise RetrieverError(f"{folder / _SETTINGS} must describe a retriever. It is damaged.") from error
    for view, name, digest in files:
        path = folder / name
        if not _ENCODER.fullmatch(name) or path.is_symlink() or not path.is_file():
            raise RetrieverError(f"The retriever {folder} must hold the encoder of {view!r}. It is missing or a link.")
        if _digest(path) != digest:
            raise RetrieverError(f"The encoder {path} must be the one it was made with. It is another one.")
        loaded[view] = encoders.load(path)
    return loaded


def _digest(path: Path) -> str:
    with open_file(path, str(path), RetrieverError, follow_links=False) as file:
        return sha256_of(file)
