"""LangChain: a vector store over binary codes, `pip install "fusehash[langchain]"`."""

from __future__ import annotations

import operator
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.integrations.documents import Accept, DocumentFile
from fusehash.integrations.rows import StoredDocument

Filter: TypeAlias = Mapping[str, Any] | Callable[[Any], bool] | None

_documents: Any = require("langchain_core.documents", "The vector store for LangChain")
_vectorstores: Any = require("langchain_core.vectorstores", "The vector store for LangChain")
_mmr: Any = require("langchain_core.vectorstores.utils", "The vector store for LangChain")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda value, listed: value in listed,
    "$nin": lambda value, listed: value not in listed,
}
_ABSENT = object()


class FusehashVectorStore(_vectorstores.VectorStore):
    """Documents in one file, found by the Hamming distance of their codes and sorted by cosine.

    Parameters
    ----------
    embedding : Embeddings
        Makes the vectors of texts.
    path : path, optional
        The file, which is made if it is not there; by default a temporary one.
    n_bits, model, view
        As for `DocumentFile`: the length of the codes, or a fitted hasher that makes them.

    Examples
    --------
    store = FusehashVectorStore(embedding, "notes.fhd")
    store.add_texts(["a cat", "a dog"], metadatas=[{"year": 2024}, {"year": 2026}])
    store.similarity_search("animals", k=1, filter={"year": {"$gte": 2025}})
    """

    def __init__(
        self, embedding: Any, path: str | os.PathLike[str] | None = None, *, n_bits: int = 256, model: Any = None,
        view: str | None = None,
    ) -> None:  # fmt: skip
        self._embedding = embedding
        self._file = DocumentFile(path, n_bits=n_bits, model=model, view=view)

    @property
    def embeddings(self) -> Any:
        return self._embedding

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, *, ids: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> list[str]:  # fmt: skip
        """Embed and write texts; a document with a known id is replaced."""
        listed = list(texts)
        records = metadatas if metadatas is not None else [{} for _ in listed]
        names = [str(id) if id is not None else str(uuid.uuid4()) for id in ids or [None] * len(listed)]
        if not len(listed) == len(records) == len(names):
            counts = f"{len(listed)} texts, {len(records)} metadatas and {len(names)} ids"
            raise DataError(f"There must be one metadata and one id for each text. Got {counts}.")
        if listed:
            pairs = zip(listed, records, strict=True)
            contents = [{"text": text, "metadata": dict(metadata or {})} for text, metadata in pairs]
            vectors = self._embedding.embed_documents(listed)
            rows = zip(names, contents, vectors, strict=True)
            self._file.put(
                [StoredDocument(id, content, np.asarray(vector, dtype=np.float64)) for id, content, vector in rows]
            )
        return names

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id; without ids, all of them."""
        self._file.delete(ids if ids is not None else [document.id for document in self._file.all()])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Any]:
        return [_document(stored) for stored in self._file.get(ids)]

    def similarity_search(self, query: str, k: int = 4, filter: Filter = None, **kwargs: Any) -> list[Any]:
        """The k nearest documents; `filter` is {"key": value}, {"key": {"$gt": value}}, or a function of a document."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[tuple[Any, float]]:
        """The k nearest documents and their cosines."""
        found = self._file.search(self._embedding.embed_query(query), k, accepts(filter))
        return [(_document(stored), score) for stored, score in found]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[Any]:
        return [_document(stored) for stored, _ in self._file.search(embedding, k, accepts(filter))]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, filter: Filter = None, **kwargs: Any
    ) -> list[Any]:
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, filter)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, filter: Filter = None,
        **kwargs: Any,
    ) -> list[Any]:  # fmt: skip
        found = [stored for stored, _ in self._file.search(embedding, fetch_k, accepts(filter))]
        if not found:
            return []
        vectors = np.stack([stored.vector for stored in found if stored.vector is not None])
        chosen = _mmr.maximal_marginal_relevance(np.asarray(embedding), list(vectors), lambda_mult, k)
        return [_document(found[i]) for i in chosen]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: (1.0 + cosine) / 2.0

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Any, metadatas: list[dict[str, Any]] | None = None, *,
        ids: list[str] | None = None, **kwargs: Any,
    ) -> FusehashVectorStore:  # fmt: skip
        """A store with these texts; other arguments as for the class."""
        store = cls(embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store


def accepts(filter: Filter) -> Accept:
    """A filter as a function of stored documents."""
    if filter is None:
        return None
    if callable(filter):
        return lambda stored: bool(filter(_document(stored)))
    if not isinstance(filter, Mapping):
        raise DataError(f"A filter must be a dictionary or a function. Got {filter!r} instead.")
    conditions = filter
    _check(conditions)
    return lambda stored: _matches(conditions, stored.content["metadata"])


def _check(filter: Mapping[str, Any]) -> None:
    for key, wanted in filter.items():
        if key in ("$and", "$or"):
            for part in wanted:
                _check(part)
        elif key == "$not":
            _check(wanted)
        elif key.startswith("$"):
            raise DataError(f"A filter may combine by $and, $or and $not. Got {key!r} instead.")
        elif isinstance(wanted, Mapping):
            for name in wanted:
                if name not in _COMPARE:
                    raise DataError(f"A filter may compare by {', '.join(_COMPARE)}. Got {name!r} instead.")


def _matches(filter: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    return all(_matches_one(key, wanted, metadata) for key, wanted in filter.items())


def _matches_one(key: str, wanted: Any, metadata: Mapping[str, Any]) -> bool:
    if key == "$and":
        return all(_matches(part, metadata) for part in wanted)
    if key == "$or":
        return any(_matches(part, metadata) for part in wanted)
    if key == "$not":
        return not _matches(wanted, metadata)
    value = metadata.get(key, _ABSENT)
    tests = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    try:
        return all(_COMPARE[name](value, other) for name, other in tests.items())
    except TypeError:  # text and a number have no order
        return False


def _document(stored: StoredDocument) -> Any:
    return _documents.Document(id=stored.id, page_content=stored.content["text"], metadata=stored.content["metadata"])
