"""LlamaIndex: a vector store over binary codes, `pip install "fusehash[llama-index]"`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.integrations.documents import Accept, DocumentFile
from fusehash.integrations.rows import StoredDocument

_PURPOSE = "The vector store for LlamaIndex"
_types: Any = require("llama_index.core.vector_stores.types", _PURPOSE)
_utils: Any = require("llama_index.core.vector_stores.utils", _PURPOSE)
_schema: Any = require("llama_index.core.schema", _PURPOSE)
_private: Any = require("llama_index.core.bridge.pydantic", _PURPOSE).PrivateAttr
_Operator = _types.FilterOperator
_COMPARE: dict[Any, Callable[[Any, Any], bool]] = {
    _Operator.EQ: lambda value, wanted: value == wanted,
    _Operator.GT: lambda value, wanted: value > wanted,
    _Operator.GTE: lambda value, wanted: value >= wanted,
    _Operator.LT: lambda value, wanted: value < wanted,
    _Operator.LTE: lambda value, wanted: value <= wanted,
    _Operator.IN: lambda value, wanted: value in wanted,
    _Operator.CONTAINS: lambda value, wanted: wanted in value,
    _Operator.ANY: lambda value, wanted: any(entry in value for entry in wanted),
    _Operator.ALL: lambda value, wanted: all(entry in value for entry in wanted),
    _Operator.TEXT_MATCH: lambda value, wanted: wanted in value,
    _Operator.TEXT_MATCH_INSENSITIVE: lambda value, wanted: wanted.lower() in value.lower(),
}


class FusehashVectorIndex(_types.BasePydanticVectorStore):
    """Nodes in one file, found by the Hamming distance of their codes and sorted by cosine.

    Parameters
    ----------
    path : path, optional
        The file, which is made if it is not there; by default a temporary one.
    n_bits, model, view
        As for `DocumentFile`: the length of the codes, or a fitted hasher that makes them.

    Examples
    --------
    store = FusehashVectorIndex("nodes.fhd")
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    """

    stores_text: bool = True
    flat_metadata: bool = False
    _file: Any = _private()

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, n_bits: int = 256, model: Any = None,
        view: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(stores_text=True)
        self._file = DocumentFile(path, n_bits=n_bits, model=model, view=view)

    @classmethod
    def class_name(cls) -> str:
        return "FusehashVectorIndex"

    @property
    def client(self) -> DocumentFile:
        """The file of documents."""
        file: DocumentFile = self._file
        return file

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, nodes: Sequence[Any], **kwargs: Any) -> list[str]:
        """Write nodes with their embeddings; a node with a known id is replaced."""
        rows = []
        for node in nodes:
            metadata = _utils.node_to_metadata_dict(node, remove_text=False, flat_metadata=False)
            content = {"node": metadata, "ref": node.ref_doc_id, "text": node.get_content(_schema.MetadataMode.NONE)}
            rows.append(StoredDocument(node.node_id, content, np.asarray(node.get_embedding(), dtype=np.float64)))
        self._file.put(rows)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes of a document."""
        self._file.delete([row.id for row in self._file.all(lambda row: row.content["ref"] == ref_doc_id)])

    def delete_nodes(self, node_ids: list[str] | None = None, filters: Any = None, **delete_kwargs: Any) -> None:
        """Delete nodes by id, by a filter, or by both."""
        if node_ids is None and filters is None:
            return
        self._file.delete([row.id for row in self._chosen(node_ids, filters)])

    def clear(self) -> None:
        """Delete all nodes."""
        self._file.delete([row.id for row in self._file.all()])

    def get_nodes(self, node_ids: list[str] | None = None, filters: Any = None) -> list[Any]:
        """Nodes by id, by a filter, or by both."""
        return [_node(row) for row in self._chosen(node_ids, filters)]

    def _chosen(self, node_ids: list[str] | None, filters: Any) -> list[StoredDocument]:
        accept = accepts(filters)
        rows = self._file.all() if node_ids is None else self._file.get(node_ids)
        return [row for row in rows if accept is None or accept(row)]

    def query(self, query: Any, **kwargs: Any) -> Any:
        """The nodes nearest to the embedding of a query, with their cosines."""
        if query.mode != _types.VectorStoreQueryMode.DEFAULT:
            raise DataError(f"A query must be of mode 'default' here. Got {query.mode.value!r} instead.")
        if query.query_embedding is None:
            raise DataError("A query must have an embedding here. Got none.")
        chosen = [set(ids) for ids in (query.node_ids, query.doc_ids) if ids is not None]
        passes = accepts(query.filters)

        def accept(row: StoredDocument) -> bool:
            in_nodes = query.node_ids is None or row.id in chosen[0]
            in_documents = query.doc_ids is None or row.content["ref"] in chosen[-1]
            return in_nodes and in_documents and (passes is None or passes(row))

        narrowed = accept if chosen or passes is not None else None
        found = self._file.search(query.query_embedding, query.similarity_top_k, narrowed)
        return _types.VectorStoreQueryResult(
            nodes=[_node(row) for row, _ in found],
            similarities=[score for _, score in found],
            ids=[row.id for row, _ in found],
        )


def accepts(filters: Any) -> Accept:
    """Metadata filters, nested ones too, as a function of stored nodes."""
    if filters is None or not filters.filters:
        return None
    return lambda row: _matches(filters, row.content["node"])


def _matches(filters: Any, metadata: dict[str, Any]) -> bool:
    results = (
        _matches(part, metadata) if isinstance(part, _types.MetadataFilters) else _matches_one(part, metadata)
        for part in filters.filters
    )
    condition = filters.condition or _types.FilterCondition.AND
    if condition == _types.FilterCondition.NOT:
        return not any(results)
    return any(results) if condition == _types.FilterCondition.OR else all(results)


def _matches_one(filter: Any, metadata: dict[str, Any]) -> bool:
    value, operator = metadata.get(filter.key), filter.operator
    if operator == _Operator.IS_EMPTY:
        return value in (None, "", [])
    if operator in (_Operator.NE, _Operator.NIN):
        equal = value == filter.value if operator == _Operator.NE else value in filter.value
        return value is None or not equal
    try:
        return value is not None and bool(_COMPARE[operator](value, filter.value))
    except (TypeError, AttributeError):  # text and a number have no order; a number contains nothing
        return False


def _node(row: StoredDocument) -> Any:
    node = _utils.metadata_dict_to_node(row.content["node"], text=row.content["text"])
    node.embedding = None if row.vector is None else row.vector.tolist()
    return node
