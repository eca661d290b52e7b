"""Haystack: a document store over binary codes and its retriever, `pip install "fusehash[haystack]"`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.extras import require
from fusehash.integrations.documents import Accept, DocumentFile, OnExisting
from fusehash.integrations.rows import ExistingDocumentError, StoredDocument

_PURPOSE = "The document store for Haystack"
_haystack: Any = require("haystack", _PURPOSE)
_types: Any = require("haystack.document_stores.types", _PURPOSE)
_errors: Any = require("haystack.document_stores.errors", _PURPOSE)
_filters: Any = require("haystack.utils.filters", _PURPOSE)
_invalid: Any = require("haystack.errors", _PURPOSE).FilterError
_ON_EXISTING: dict[Any, OnExisting] = {
    _types.DuplicatePolicy.NONE: "fail",
    _types.DuplicatePolicy.FAIL: "fail",
    _types.DuplicatePolicy.SKIP: "skip",
    _types.DuplicatePolicy.OVERWRITE: "replace",
}


class FusehashDocumentStore:
    """Documents in one file, found by the Hamming distance of their codes and sorted by cosine.

    Parameters
    ----------
    path : str, optional
        The file, which is made if it is not there; by default a temporary one.
    n_bits, model, view
        As for `DocumentFile`. A `model` is the path of a model that `save` wrote, so that a pipeline can be stored.

    Examples
    --------
    store = FusehashDocumentStore("documents.fhd")
    store.write_documents([Document(content="a cat", embedding=[0.1, 0.9])])
    FusehashEmbeddingRetriever(document_store=store).run(query_embedding=[0.2, 0.8], top_k=1)
    """

    def __init__(
        self, path: str | None = None, *, n_bits: int = 256, model: str | None = None, view: str | None = None
    ) -> None:
        from fusehash.hashers import load

        self._arguments = {"path": path, "n_bits": n_bits, "model": model, "view": view}
        self._file = DocumentFile(path, n_bits=n_bits, model=None if model is None else load(model), view=view)

    def to_dict(self) -> dict[str, Any]:
        """The store as a dictionary, for pipelines in files."""
        return dict(_haystack.default_to_dict(self, **self._arguments))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FusehashDocumentStore:
        """The store from what `to_dict` gave."""
        store: FusehashDocumentStore = _haystack.default_from_dict(cls, data)
        return store

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def count_documents(self) -> int:
        return len(self._file)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Any]:
        """The documents that match filters, in the order in which they were written."""
        return [_document(row) for row in self._file.all(accepts(filters))]

    def write_documents(self, documents: list[Any], policy: Any = _types.DuplicatePolicy.NONE) -> int:
        """Write documents, all or none, and return how many were written."""
        if not isinstance(documents, list) or not all(isinstance(entry, _haystack.Document) for entry in documents):
            raise ValueError(f"Documents must be a list of Document. Got {type(documents).__name__} instead.")
        rows = [_row(document) for document in documents]
        if _ON_EXISTING[policy] == "fail" and len({row.id for row in rows}) < len(rows):
            raise _errors.DuplicateDocumentError("Documents must have different ids. Two have the same.")
        try:
            return len(self._file.put(rows, _ON_EXISTING[policy]))
        except ExistingDocumentError as error:
            raise _errors.DuplicateDocumentError(str(error)) from error

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id, as far as they are there."""
        self._file.delete(document_ids)

    def delete_all_documents(self) -> None:
        self._file.delete([row.id for row in self._file.all()])

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match filters, and return how many did."""
        return self._file.delete([row.id for row in self._file.all(accepts(filters))])

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set some metadata of the documents that match filters, and return how many did."""
        rows = list(self._file.all(accepts(filters)))
        self._file.put([_with_meta(row, meta) for row in rows])
        return len(rows)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        return sum(1 for _ in self._file.all(accepts(filters)))

    def embedding_retrieval(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> list[Any]:
        """The documents nearest to an embedding, with their cosines as scores."""
        found = self._file.search(query_embedding, top_k, accepts(filters))
        return [_document(row, score) for row, score in found]


@_haystack.component
class FusehashEmbeddingRetriever:
    """The component of pipelines that asks a `FusehashDocumentStore`."""

    def __init__(
        self, document_store: FusehashDocumentStore, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        self.document_store, self.filters, self.top_k = document_store, filters, top_k

    def to_dict(self) -> dict[str, Any]:
        arguments = {"filters": self.filters, "top_k": self.top_k, "document_store": self.document_store.to_dict()}
        return dict(_haystack.default_to_dict(self, **arguments))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FusehashEmbeddingRetriever:
        arguments = dict(data["init_parameters"])
        arguments["document_store"] = FusehashDocumentStore.from_dict(arguments["document_store"])
        return cls(**arguments)

    @_haystack.component.output_types(documents=list[_haystack.Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Any]]:
        """Find the documents nearest to an embedding."""
        chosen, k = filters or self.filters, top_k or self.top_k
        return {"documents": self.document_store.embedding_retrieval(query_embedding, chosen, k)}


def accepts(filters: dict[str, Any] | None) -> Accept:
    """Haystack's filters as a function of stored documents."""
    if not filters:
        return None
    if not isinstance(filters, dict) or not {"operator"} <= set(filters):
        raise _invalid(f"Filters must be a dictionary with an operator. Got {filters!r} instead.")
    if "conditions" not in filters and "field" not in filters:
        raise _invalid(f"Filters must have conditions or a field. Got {filters!r} instead.")
    chosen = filters
    return lambda row: bool(_filters.document_matches_filter(chosen, _document(row)))


def _row(document: Any) -> StoredDocument:
    content = document.to_dict(flatten=False)
    content.pop("embedding")
    vector = None if document.embedding is None else np.asarray(document.embedding, dtype=np.float64)
    return StoredDocument(document.id, content, vector)


def _with_meta(row: StoredDocument, meta: dict[str, Any]) -> StoredDocument:
    content = {**row.content, "meta": {**(row.content.get("meta") or {}), **meta}}
    return StoredDocument(row.id, content, row.vector)


def _document(row: StoredDocument, score: float | None = None) -> Any:
    embedding = None if row.vector is None else row.vector.tolist()
    return _haystack.Document.from_dict({**row.content, "embedding": embedding, "score": score})
