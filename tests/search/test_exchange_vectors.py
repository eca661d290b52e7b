"""Vectors and factors to other libraries and back: nothing is lost, and what has no place is named."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import servers
from fusehash.cli import app
from fusehash.errors import DataError, FusehashWarning
from fusehash.search import HammingIndex
from fusehash.search.exchange import Imported, export_codes, holds_vectors, import_codes

KEEPING = (".npz", ".sql", ".milvus.json", ".qdrant.jsonl", ".ndjson", ".parquet", ".arrow")
LEAVING_OUT = (".npy", ".faiss", ".usearch")
PACKAGES = {".faiss": "faiss", ".usearch": "usearch", ".parquet": "pyarrow", ".arrow": "pyarrow"}
N, DIM = 200, 24


def made(kind: str | None = "int8", factors: bool = True) -> HammingIndex:
    rng = np.random.default_rng(1)
    index = HammingIndex(64, vectors=kind, dim=None if kind is None else DIM, factors=factors)
    index.add(
        rng.integers(0, 256, (N, 8), dtype=np.uint8),
        rng.permutation(1000)[:N],
        None if kind is None else rng.standard_normal((N, DIM)) * rng.choice([1e-6, 1, 1e6], (N, 1)),
        np.abs(rng.standard_normal((N, 2))) if factors else None,
    )
    return index


def check_equal(imported: Imported, index: HammingIndex, **options: Any) -> None:
    """A new index of what was read has everything that the other one has; int8 vectors are rounded once more."""
    again = HammingIndex(imported.n_bits, **{**imported.index_options, **options})
    imported.add_to(again)
    assert_array_equal(again.ids, index.ids)
    assert_array_equal(again.get(index.ids), index.get(index.ids))
    assert (again.dim, again.has_factors) == (index.dim, index.has_factors)
    if index.dim is not None:
        stored, kept = again.get_vectors(index.ids), index.get_vectors(index.ids)
        if options:
            units = kept / np.linalg.norm(kept, axis=1, keepdims=True)
            assert np.all(np.abs(stored - units) <= 0.5 / 127 * np.abs(units).max(axis=1, keepdims=True) + 1e-6)
        else:
            assert_array_equal(stored, kept)
    if index.has_factors:
        assert_array_equal(again.get_factors(index.ids), index.get_factors(index.ids))


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("kind", [None, "int8", "float16", "float32"])
@pytest.mark.parametrize("suffix", KEEPING)
def test_nothing_is_lost(
    tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str, kind: str | None, factors: bool
) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    index, path = made(kind, factors), tmp_path / f"codes{suffix}"
    assert holds_vectors(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert export_codes(index, path) == N
    imported = import_codes(path)
    check_equal(imported, index)
    if kind is not None and suffix in (".npz", ".parquet", ".arrow"):
        assert imported.index_options["vectors"] == ("float16" if kind == "float16" else "float32")


@pytest.mark.parametrize("suffix", KEEPING)
def test_factors_that_look_like_int8_are_no_vectors(
    tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str
) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    index, path = HammingIndex(64, factors=True), tmp_path / f"codes{suffix}"
    index.add(np.zeros((3, 8), np.uint8), None, None, np.array([[127.0, 5], [1, -127], [127, 0]]))
    export_codes(index, path)
    imported = import_codes(path)
    assert imported.factors is not None
    assert imported.factors.dtype == np.float32
    check_equal(imported, index)


@pytest.mark.parametrize("suffix", [".sql", ".milvus.json", ".qdrant.jsonl", ".ndjson"])
def test_text_is_closed_when_it_was_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"codes{suffix}"
    export_codes(made(), path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        import_codes(path)
        gc.collect()
    assert not [one for one in seen if issubclass(one.category, ResourceWarning)]


def test_files_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusehash.search.exchange.formats._BLOCK_NUMBERS", 7 * DIM)
    index = made()
    for suffix in (".npz", ".milvus.json"):
        export_codes(index, tmp_path / f"codes{suffix}")
        check_equal(import_codes(tmp_path / f"codes{suffix}"), index)
    with np.load(tmp_path / "codes.npz") as file:
        assert_array_equal(file["vectors"], index.get_vectors(index.ids))
        assert_array_equal(file["factors"], index.get_factors(index.ids))


def test_a_milvus_file_may_be_larger_than_a_json_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, path = made(), tmp_path / "codes.milvus.json"
    export_codes(index, path)
    monkeypatch.setattr("fusehash.trust.MAX_DOCUMENT_BYTES", 1000)
    check_equal(import_codes(path), index)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(DataError, match="It was cut off"):
        import_codes(path)


@pytest.mark.parametrize("suffix", LEAVING_OUT)
def test_what_has_no_place_is_named(tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    path = tmp_path / f"codes{suffix}"
    assert not holds_vectors(path)
    for kind, factors, named in (
        ("int8", True, "vectors and factors"),
        ("int8", False, "vectors"),
        (None, True, "factors"),
    ):
        with pytest.warns(FusehashWarning, match=f"no place for the {named} of the index") as caught:
            export_codes(made(kind, factors), path)
        assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_codes(made(None, False), path)
    assert_array_equal(import_codes(path).codes, made().get(made().ids))


def test_what_the_index_does_not_keep_is_named(tmp_path: Path) -> None:
    export_codes(made(), tmp_path / "all.npz")
    export_codes(made(None, False), tmp_path / "codes.npz")
    with pytest.warns(FusehashWarning, match="keeps no vectors and factors"):
        import_codes(tmp_path / "all.npz").add_to(HammingIndex(64))
    with pytest.raises(DataError, match=r"The index keeps vectors, one row for each code. '.*' has none"):
        import_codes(tmp_path / "codes.npz").add_to(HammingIndex(64, vectors="int8", dim=DIM))
    with pytest.raises(DataError, match="The index keeps factors"):
        import_codes(tmp_path / "codes.npz").add_to(HammingIndex(64, factors=True))


def test_duckdb_finds_by_code_and_orders_by_vector(tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    duckdb = optional("duckdb")
    optional("pyarrow")
    index, path, other = made(), tmp_path / "codes.parquet", tmp_path / "theirs.parquet"
    export_codes(index, path)
    query = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
    found = duckdb.execute(
        f"SELECT id FROM '{path}' ORDER BY array_cosine_distance(vector::FLOAT[{DIM}], ?::FLOAT[{DIM}]), id LIMIT 5",
        [query.tolist()],
    ).fetchall()
    expected = index.search(index.get(index.ids[:1]), 5, rescore=query[None], candidates=N)[1][0]
    assert [id for (id,) in found] == expected.tolist()
    duckdb.sql(f"COPY (SELECT * FROM '{path}') TO '{other}' (FORMAT parquet)")
    check_equal(import_codes(other), index)


def test_pgvector(tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    psycopg, _ = optional("psycopg"), optional("pgvector")
    index, path, back = made(), tmp_path / "codes.sql", tmp_path / "dump.sql"
    export_codes(index, path)
    query = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
    with psycopg.connect(servers.server("postgresql").address().partition("?")[0]) as connection:
        connection.execute("CREATE SCHEMA exchange")  # rolled back at the end
        connection.execute("SET search_path TO exchange, public")
        connection.execute(path.read_text())
        found = connection.execute(
            f"SELECT id FROM codes ORDER BY vector <=> %s::vector({DIM}), id LIMIT 5", (str(query.tolist()),)
        ).fetchall()
        with back.open("wb") as file, connection.cursor().copy("COPY codes TO STDOUT") as copy:
            file.writelines(copy)
        rows = connection.execute("SELECT id, code::text, vector::text, factors FROM codes").fetchall()
        connection.rollback()
    expected = index.search(index.get(index.ids[:1]), 5, rescore=query[None], candidates=N)[1][0]
    assert [id for (id,) in found] == expected.tolist()
    check_equal(import_codes(back), index)
    lines = (f'{id},{code},"{vector}","{{{a!r},{b!r}}}"\n' for id, code, vector, (a, b) in rows)
    back.write_text("".join(lines))  # as CSV
    check_equal(import_codes(back), index)


def test_pgvector_has_a_limit(tmp_path: Path) -> None:
    index = HammingIndex(8, vectors="int8", dim=16_001)
    index.add(np.zeros((1, 1), np.uint8), vectors=np.ones((1, 16_001)))
    with pytest.raises(DataError, match=r"at most 16,000 numbers\. Those here have 16,001"):
        export_codes(index, tmp_path / "codes.sql")
    assert list(tmp_path.iterdir()) == []


def test_qdrant(tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    qdrant = optional("qdrant_client")
    index, path = made(), tmp_path / "codes.qdrant.jsonl"
    export_codes(index, path)
    client, models = qdrant.QdrantClient(":memory:"), qdrant.models
    spaces = {
        "code": models.VectorParams(size=64, distance=models.Distance.MANHATTAN, datatype=models.Datatype.UINT8),
        "vector": models.VectorParams(size=DIM, distance=models.Distance.COSINE),
    }
    client.create_collection("codes", vectors_config=spaces)
    client.upsert("codes", [models.PointStruct(**json.loads(line)) for line in path.read_text().splitlines()])
    query = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
    hits = client.query_points("codes", query=query.tolist(), using="vector", limit=5).points
    expected = index.search(index.get(index.ids[:1]), 5, rescore=query[None], candidates=N)[1][0]
    assert [hit.id for hit in hits] == expected.tolist()
    stored, _ = client.scroll("codes", limit=1000, with_vectors=True)
    points = ({"id": p.id, "vector": p.vector, "payload": p.payload} for p in stored)
    path.write_text("".join(json.dumps(point) + "\n" for point in points))
    imported = import_codes(path)
    assert imported.index_options["vectors"] == "float32"  # of length 1
    check_equal(imported, index, vectors="int8")


def test_milvus(tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    pymilvus = optional("pymilvus")
    index, path = made(), tmp_path / "codes.milvus.json"
    export_codes(index, path)
    rows = [{**row, "code": bytes(row["code"])} for row in json.loads(path.read_text())["rows"]]
    query = np.random.default_rng(3).standard_normal(DIM).astype(np.float32)
    server = servers.server("milvus-lite")
    client, name = pymilvus.MilvusClient(f"http://127.0.0.1:{server.port}"), servers.unused()
    try:
        schema, kinds = client.create_schema(), pymilvus.DataType
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("code", kinds.BINARY_VECTOR, dim=64)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=DIM)
        schema.add_field("factors", kinds.ARRAY, element_type=kinds.FLOAT, max_capacity=2)
        parameters = client.prepare_index_params()
        parameters.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        parameters.add_index("vector", index_type="FLAT", metric_type="COSINE")
        client.create_collection(name, schema=schema, index_params=parameters)
        client.insert(name, rows)
        client.load_collection(name)
        hits = client.search(name, [query.tolist()], limit=5, anns_field="vector", consistency_level="Strong")
        fields = ["id", "code", "vector", "factors"]
        stored = client.query(name, "id >= 0", fields, limit=1000, consistency_level="Strong")
        client.drop_collection(name)
    finally:
        client.close()
    expected = index.search(index.get(index.ids[:1]), 5, rescore=query[None], candidates=N)[1][0]
    assert [hit["id"] for hit in hits[0]] == expected.tolist()
    numbers = ({name: list(map(float, row[name])) for name in ("vector", "factors")} for row in stored)
    rows = [{"id": r["id"], "code": list(r["code"][0]), **n} for r, n in zip(stored, numbers, strict=True)]
    path.write_text(json.dumps({"rows": rows}))
    check_equal(import_codes(path), index, vectors="int8")


def test_elasticsearch_answers(tmp_path: Path) -> None:
    index, path = made(), tmp_path / "codes.ndjson"
    export_codes(index, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert_array_equal(np.float32(lines[1]["vector"]), index.get_vectors(index.ids[:1])[0])
    hits = [{"_id": a["index"]["_id"], "_source": b} for a, b in zip(lines[::2], lines[1::2], strict=True)]
    path.write_text("\n".join(map(json.dumps, hits)))
    check_equal(import_codes(path), index)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"vector": [1.0, 2.0]}, "must have 3 numbers as its vector, as the rows before it. Got 2 instead"),
        ({}, "must have 3 numbers as its vector, as the rows before it. Got none instead"),
        ({"vector": "1 2 3"}, "must have a list of numbers as its vector"),
        ({"vector": [1, 2, True]}, "must have a list of numbers as its vector"),
        ({"vector": [[1], [2], [3]]}, "must have a list of numbers as its vector"),
        ({"vector": [1, 2, 1e39]}, "must have finite numbers in single precision as its vector"),
        ({"vector": [1, 2, float("nan")]}, "must have finite numbers in single precision as its vector"),
        ({"vector": [1, 2, 10**30]}, "must have a list of numbers as its vector"),
        ({"vector": [1, 2, 3], "factors": [1, 2]}, "must have no numbers as its factors, as the rows before it"),
    ],
)
def test_wrong_vectors_take_one_sentence(tmp_path: Path, second: dict[str, Any], sentence: str) -> None:
    rows = [{"id": 1, "code": [1], "vector": [1.5, 2, 3]}, {"id": 2, "code": [2], **second}]
    (tmp_path / "codes.milvus.json").write_text(json.dumps({"rows": rows}))
    with pytest.raises(DataError, match=sentence):
        import_codes(tmp_path / "codes.milvus.json")


@pytest.mark.parametrize("name", ["vectors", "factors"])
def test_wrong_arrays_take_one_sentence(tmp_path: Path, name: str) -> None:
    codes = np.zeros((3, 1), np.uint8)
    for matrix in (np.ones((2, 2)), np.ones(3), np.array([["a"]] * 3)):
        np.savez(tmp_path / "codes.npz", codes=codes, **{name: matrix})
        with pytest.raises(DataError, match="must have 3 rows of numbers, one for each code"):
            import_codes(tmp_path / "codes.npz")


def test_wrong_columns_take_one_sentence(tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    pa, parquet, path = optional("pyarrow"), optional("pyarrow.parquet"), tmp_path / "codes.parquet"
    codes = pa.array([b"a", b"b"], pa.binary(1))
    for column, sentence in (
        (pa.array([1.0, 2.0]), "must have lists of floats or int8"),
        (pa.array([["x"], ["y"]]), "must have lists of floats or int8"),
        (pa.array([[1.0], None]), "must have lists of floats or int8"),
        (pa.array([[1.0], [1.0, 2.0]]), "must have one length"),
        (pa.array([[1.0], [None]], pa.list_(pa.float32())), "must have one length and no gaps"),
    ):
        parquet.write_table(pa.table({"code": codes, "vector": column}), path)
        with pytest.raises(DataError, match=sentence):
            import_codes(path)
    parquet.write_table(pa.table({"code": codes, "vector": pa.array([[1.0, 2.0], [3.0, 4.0]])}), path)
    assert_array_equal(import_codes(path).vectors, np.array([[1, 2], [3, 4]], np.float32))


def test_commands(tmp_path: Path) -> None:
    def call(*words: object) -> Any:
        return CliRunner().invoke(app, ["index", *map(str, words)], env={"COLUMNS": "200", "NO_COLOR": "1"})

    index = made()
    with HammingIndex.open(tmp_path / "a.db", 64, vectors="int8", dim=DIM, factors=True, warm=False) as file:
        file.add(index.get(index.ids), index.ids, index.get_vectors(index.ids), index.get_factors(index.ids))
        vectors = file.get_vectors(index.ids)
    result = call("export", tmp_path / "a.db", tmp_path / "codes.npz", "--json")
    assert json.loads(result.stdout)["vectors"] == f"int8, {DIM} numbers"
    result = call("import", tmp_path / "b.db", tmp_path / "codes.npz", "--json")
    kept = {"vectors": f"float32, {DIM} numbers", "factors": True}  # what int8 numbers stand for
    assert json.loads(result.stdout) == {"added": N, "count": N, "n_bits": 64, **kept}
    with HammingIndex.open(tmp_path / "b.db", warm=False) as again:
        assert_array_equal(again.get_vectors(index.ids), vectors)
        assert_array_equal(again.get_factors(index.ids), index.get_factors(index.ids))
    result = call("export", tmp_path / "a.db", tmp_path / "codes.npy", "--json")
    assert result.exit_code == 0
    assert "vectors" not in json.loads(result.stdout)
    assert "no place for the vectors and factors" in " ".join(result.stderr.split())
    for kind in ("float16", "float32"):
        result = call("import", tmp_path / f"{kind}.db", tmp_path / "codes.npz", "--vector-kind", kind, "--json")
        assert json.loads(result.stdout)["vectors"] == f"{kind}, {DIM} numbers"
    for file, target in (("codes.npy", "new.db"), ("codes.npz", "b.db")):
        result = call("import", tmp_path / target, tmp_path / file, "--vector-kind", "int8")
        assert result.exit_code == 1
        assert "--vector-kind is for" in result.stderr
    assert not (tmp_path / "new.db").exists()
    call("create", tmp_path / "plain.db")
    result = call("import", tmp_path / "plain.db", tmp_path / "codes.npz")
    assert result.exit_code == 0
    assert "keeps no vectors and factors" in " ".join(result.stderr.split())
    call("create", tmp_path / "wider.db", "--vector-kind", "int8", "--dim", DIM + 1, "--factors")
    result = call("import", tmp_path / "wider.db", tmp_path / "codes.npz")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
