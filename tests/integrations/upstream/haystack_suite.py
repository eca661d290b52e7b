"""Haystack's own tests of document stores."""

from __future__ import annotations

import pytest
from haystack.dataclasses import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    DeleteAllTest,
    DeleteByFilterTest,
    DocumentStoreBaseTests,
    UpdateByFilterTest,
)

from fusehash.integrations.haystack import FusehashDocumentStore


class TestFusehashDocumentStore(
    DocumentStoreBaseTests, DeleteAllTest, DeleteByFilterTest, UpdateByFilterTest, CountDocumentsByFilterTest
):
    @pytest.fixture
    def document_store(self, tmp_path):
        store = FusehashDocumentStore(str(tmp_path / "documents.fhd"))
        yield store
        store.close()

    def test_write_documents(self, document_store):
        """The one test that every store writes itself: what the default policy does."""
        documents = [Document(content="test doc")]
        assert document_store.write_documents(documents) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents(documents, DuplicatePolicy.NONE)
