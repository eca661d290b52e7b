"""Searches in folders with a model and codes: a retriever, or what `fusehash quantize` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fusehash.commands import inputs
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.encoders.base import Encoder
    from fusehash.hashers.base import CrossModalHasher


@dataclass(frozen=True)
class VectorQuery:
    """What is searched for: a text or a .npy file, or pictures; and its view, if the user says so."""

    query: str | None
    images: list[Path]
    view: str | None


def search_retriever(
    folder: Path, question: VectorQuery, k: int, candidates: int | None, allowed: Any, **options: Any
) -> tuple[Any, Any]:
    """Ids and scores; options as in `Retriever.open`."""
    from fusehash.retriever import Retriever

    with Retriever.open(folder, **options) as retriever:
        X, view = _rows(question, folder, retriever.model, retriever.encoders)
        return retriever.search(X, k, view=view, candidates=candidates, allowed=allowed)


def search_codes(
    folder: Path, question: VectorQuery, k: int, items: str | None, allowed: Any, **options: Any
) -> tuple[Any, Any]:
    """Rows of the file of codes as ids, and scores; options as in `HammingIndex`."""
    from fusehash.bits import check_codes
    from fusehash.hashers import load
    from fusehash.retriever import Retriever
    from fusehash.search import HammingIndex

    model = load(folder / "model.safetensors")
    X, view = _rows(question, folder, model, {})
    names = model.view_names_
    name = items or next((other for other in names if other != view), view)
    if name not in names:
        raise DataError(f"--items must be a view of {folder}: {_listed(model)}. Got {name!r} instead.")
    codes, pairs = folder / f"{name}.npy", folder / "factors" / f"{name}.npy"
    factors = inputs.load_npy(pairs) if pairs.exists() else None
    index = HammingIndex(model.n_bits, factors=factors is not None, **options)
    index.add(check_codes(inputs.load_npy(codes), model.n_bits, what=f"Codes in {codes}"), factors=factors)
    return Retriever(folder, model, index).search(X, k, view=view, allowed=allowed)


def _rows(
    question: VectorQuery, folder: Path, model: CrossModalHasher, encoders: Mapping[str, Encoder]
) -> tuple[Any, str]:
    """Rows of a view, or what its encoder takes, and the name of the view."""
    if (question.query is None) == (not question.images):
        raise typer.BadParameter("give a text, a .npy file or --image.", param_hint="'QUERY'")
    if question.view is not None and question.view not in model.n_features_:
        raise DataError(f"--view must be a view of {folder}: {_listed(model)}. Got {question.view!r} instead.")
    if question.query is not None and question.query.endswith(".npy"):
        X = inputs.load_npy(Path(question.query))
        X = X[None] if X.ndim == 1 else X
        return X, question.view or _view_of_width(X, Path(question.query), folder, model)
    modality = "image" if question.images else "text"
    views = [view for view, encoder in encoders.items() if encoder.modality == modality]
    if question.view is not None:
        views = [view for view in views if view == question.view]
    if not views:
        whose = f"view {question.view!r}" if question.view else "no view"
        has = "has no" if question.view else "has an"
        problem = f"{folder} takes rows of its views in a .npy file ({_listed(model)}): {whose} {has} encoder"
        raise DataError(f"{problem} for {modality}s. Got {'a picture' if question.images else repr(question.query)}.")
    if len(views) > 1:
        raise typer.BadParameter(f"choose one: {', '.join(views)}.", param_hint="'--view'")
    return list(question.images) or [question.query], views[0]


def _view_of_width(X: Any, path: Path, folder: Path, model: CrossModalHasher) -> str:
    """The view that a file is named after, or the only one with as many columns."""
    width = X.shape[1] if X.ndim == 2 else None
    views = [view for view, features in model.n_features_.items() if features == width]
    if not views:
        raise DataError(f"Queries must be rows of a view of {folder}: {_listed(model)}. Got shape {X.shape} instead.")
    if path.stem in views:
        return path.stem
    if len(views) > 1:
        raise typer.BadParameter(
            f"say which view the rows of {path} are: {' or '.join(views)}. Both have {width} columns."
            if len(views) == 2
            else f"say which view the rows of {path} are: {', '.join(views)}. All have {width} columns.",
            param_hint="'--view'",
        )
    return views[0]


def _listed(model: CrossModalHasher) -> str:
    return ", ".join(f"{view} with {width:,} columns" for view, width in model.n_features_.items())
