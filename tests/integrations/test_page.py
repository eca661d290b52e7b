"""The code of docs/integrations.md runs with the real packages: one block for each extra."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fusehash as fh

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r'^```python title="needs fusehash\[([a-z-]+)\]"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
PACKAGES = {
    "langchain": "langchain_core", "llama-index": "llama_index.core", "haystack": "haystack",
    "dataframes": "narwhals", "duckdb": "duckdb", "datasets": "datasets",
}  # fmt: skip
RNG = np.random.default_rng(0)
ROWS = 60


def langchain():
    from langchain_core.embeddings import DeterministicFakeEmbedding

    return {"embedding": DeterministicFakeEmbedding(size=16)}


def llama_index():
    from llama_index.core import set_global_tokenizer
    from llama_index.core.embeddings import MockEmbedding

    set_global_tokenizer(str.split)  # the default one is downloaded
    return {"embed_model": MockEmbedding(embed_dim=8)}


def dataframes():
    import polars

    lists = {"image_embedding": RNG.standard_normal((ROWS, 5)).tolist()}
    columns = {f"tfidf_{i}": RNG.standard_normal(ROWS).tolist() for i in range(2)}
    return {"frame": polars.DataFrame({**lists, **columns})}


def duckdb():
    import duckdb as package

    with package.connect("items.duckdb") as connection:
        connection.execute("CREATE TABLE items (id BIGINT, image_vector DOUBLE[], a DOUBLE, b DOUBLE)")
        rows = [[i, RNG.standard_normal(4).tolist(), *RNG.standard_normal(2).tolist()] for i in range(ROWS)]
        connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
    views = {"image": RNG.standard_normal((ROWS, 4)), "text": RNG.standard_normal((ROWS, 2))}
    return {"model": fh.hashers.make("cvh", n_bits=16).fit(views), "query": views["text"][:1]}


def datasets():
    import datasets as package

    columns = {name: RNG.standard_normal((ROWS, 5)).tolist() for name in ("image_vector", "text_vector")}
    return {"dataset": package.Dataset.from_dict(columns), "text_vector": RNG.standard_normal(5)}


HAVE = {
    "langchain": langchain, "llama-index": llama_index, "haystack": dict, "dataframes": dataframes, "duckdb": duckdb,
    "datasets": datasets,
}  # fmt: skip


def outcome(extra, names):
    """What shows that a block did what its text says."""
    if extra == "langchain":
        found = names["store"].similarity_search("animals", k=2, filter={"year": {"$gte": 2025}})
        return [document.page_content for document in found] == ["a dog"]
    if extra == "llama-index":
        return Path("nodes.fhd").exists() and names["index"].vector_store.stores_text
    if extra == "haystack":
        return names["store"].count_documents() == 1
    if extra == "dataframes":
        return len(names["table"]) == ROWS
    if extra == "duckdb":
        return names["connection"].sql("SELECT count(*) FROM codes").fetchall() == [(ROWS,)]
    return len(names["scores"]) == len(names["examples"]["image_vector"]) == 10


def test_every_extra_has_a_block():
    assert BLOCKS.keys() == PACKAGES.keys() == HAVE.keys()
    assert set(re.findall(r'pip install "\.\[([a-z-]+)\]"', PAGE)) == BLOCKS.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("extra", BLOCKS)
def test_the_block_runs(extra, tmp_path, monkeypatch, optional):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    optional(PACKAGES[extra])
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__", **HAVE[extra]()}
    exec(compile(BLOCKS[extra], f"integrations.md, {extra}", "exec"), names)
    assert outcome(extra, names)


def test_adapters_are_short():
    for file in (ROOT / "src" / "fusehash" / "integrations").glob("*.py"):
        assert len(file.read_text(encoding="utf-8").splitlines()) < 250, file.name
