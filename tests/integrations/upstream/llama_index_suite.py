"""LlamaIndex has no shared tests of vector stores: its in-memory store is the reference here."""

from __future__ import annotations

import numpy as np
import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from fusehash.integrations.llama_index import FusehashVectorIndex

RNG = np.random.default_rng(0)
NODES = [
    TextNode(
        id_=f"n{i}",
        text=f"text {i}",
        metadata={"year": 2000 + i % 5, "kind": "ab"[i % 2], "tags": ["x", "y"][: 1 + i % 2]},
        embedding=RNG.standard_normal(12).tolist(),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc{i % 3}")},
    )
    for i in range(40)
]
CONDITIONS = [
    ("year", "==", 2002), ("year", "!=", 2002), ("year", ">", 2002), ("year", ">=", 2002), ("year", "<", 2002),
    ("year", "<=", 2002), ("year", "in", [2001, 2003]), ("year", "nin", [2001, 2003]), ("tags", "contains", "y"),
    ("tags", "any", ["y", "z"]), ("tags", "all", ["x", "y"]), ("kind", "text_match", "a"), ("none", "is_empty", None),
    ("kind", "text_match_insensitive", "A"),
]  # fmt: skip


@pytest.fixture
def stores(tmp_path):
    mine, reference = FusehashVectorIndex(tmp_path / "nodes.fhd"), SimpleVectorStore()
    for store in (mine, reference):
        store.add(NODES)
    yield mine, reference
    mine.close()


def asked(filters=None, **options):
    return VectorStoreQuery(query_embedding=NODES[7].embedding, similarity_top_k=6, filters=filters, **options)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_filters_are_those_of_the_reference(stores, condition):
    key, operator, value = condition
    filters = MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])
    mine, reference = (store.query(asked(filters)) for store in stores)
    assert mine.ids == reference.ids
    assert np.allclose(mine.similarities, reference.similarities)


def test_filters_combine_and_nest(stores):
    two = [MetadataFilter(key="year", value=2001), MetadataFilter(key="kind", value="a")]
    for condition in ("and", "or"):
        filters = MetadataFilters(filters=two, condition=condition)
        assert stores[0].query(asked(filters)).ids == stores[1].query(asked(filters)).ids
    nested = MetadataFilters(
        filters=[MetadataFilters(filters=two, condition="or"), MetadataFilter(key="kind", value="b")]
    )
    ids = {node.node_id for node in stores[0].get_nodes(filters=nested)}
    assert ids == {node.node_id for node in NODES if node.metadata["year"] == 2001 and node.metadata["kind"] == "b"}


def test_queries_nodes_and_documents_are_those_of_the_reference(stores):
    mine, reference = stores
    found = mine.query(asked())
    assert found.ids == reference.query(asked()).ids
    assert [node.get_content() for node in found.nodes] == [f"text {id[1:]}" for id in found.ids]
    assert mine.query(asked(node_ids=["n1", "n2"])).ids == reference.query(asked(node_ids=["n1", "n2"])).ids
    assert {int(id[1:]) % 3 for id in mine.query(asked(doc_ids=["doc1"])).ids} == {1}
    for store in stores:
        store.delete("doc1")
    assert mine.query(asked()).ids == reference.query(asked()).ids
    mine.delete_nodes(["n0", "n2"])
    assert mine.get_nodes(["n0", "n2", "n3"])[0].metadata == NODES[3].metadata
    mine.clear()
    assert mine.query(asked()).ids == []


def test_nodes_survive(stores, tmp_path):
    stores[0].close()
    again = FusehashVectorIndex(tmp_path / "nodes.fhd")
    (node,) = again.get_nodes(["n5"])
    assert node.metadata == NODES[5].metadata
    assert node.ref_doc_id == "doc2"
    assert np.array_equal(node.embedding, NODES[5].embedding)
    again.close()
