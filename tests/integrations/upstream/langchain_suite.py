"""LangChain's own tests of vector stores, sync and async."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from fusehash.integrations.langchain import FusehashVectorStore


class TestFusehashVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        store = FusehashVectorStore(self.get_embeddings(), tmp_path / "documents.fhd")
        yield store
        store.close()
