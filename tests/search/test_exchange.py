"""Codes to other libraries and back: the libraries read what we write, and find the same neighbors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import servers
from fusehash.bits import unpack
from fusehash.cli import app
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.search import HammingIndex
from fusehash.search.exchange import FORMATS, export_codes, import_codes, looks_reversed

SUFFIXES = (
    ".npz", ".faiss", ".usearch", ".sql", ".milvus.json", ".qdrant.jsonl", ".ndjson", ".parquet", ".arrow",
)  # fmt: skip
PACKAGES = {".faiss": "faiss", ".usearch": "usearch", ".parquet": "pyarrow", ".arrow": "pyarrow"}


@pytest.fixture
def index() -> HammingIndex:
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(rng.integers(0, 256, (300, 8), dtype=np.uint8), rng.permutation(1000)[:300])
    return index


def arrays(path: Path, **options: Any) -> tuple[Any, Any]:
    imported = import_codes(path, **options)
    return imported.ids, imported.codes


def signs(index: HammingIndex) -> np.ndarray:
    return unpack(index.get(index.ids), index.n_bits) > 0


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_exported_can_be_imported(
    index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str, order: str
) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    path = tmp_path / f"codes{suffix}"
    assert export_codes(index, path, bit_order=order) == 300
    says_its_order = suffix in (".npz", ".sql", ".qdrant.jsonl", ".parquet", ".arrow")
    ids, codes = arrays(path, bit_order=None if says_its_order else order)
    assert ids is not None
    at = np.argsort(ids)
    assert_array_equal(ids[at], index.ids)
    assert_array_equal(codes[at], index.get(index.ids))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_formats_without_ids_below_0_say_so(tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    index = HammingIndex(16)
    index.add(np.eye(3, 2, dtype=np.uint8), ids=[-(2**63), 0, 2**63 - 1])
    path = tmp_path / f"codes{suffix}"
    if suffix in (".usearch", ".qdrant.jsonl"):
        with pytest.raises(DataError, match="no ids below 0"):
            export_codes(index, path)
        assert list(tmp_path.iterdir()) == []  # nothing half-written
    else:
        export_codes(index, path)
        ids, codes = arrays(path)
        assert ids is not None
        assert_array_equal(np.sort(ids), index.ids)
        assert_array_equal(codes[np.argsort(ids)], index.get(index.ids))


def test_numpy_unpacks_the_bits_in_order(index: HammingIndex, tmp_path: Path) -> None:
    export_codes(index, tmp_path / "codes.npz")
    with np.load(tmp_path / "codes.npz") as file:
        assert_array_equal(np.unpackbits(file["codes"], axis=1), signs(index))
        assert_array_equal(file["ids"], index.ids)
    np.save(tmp_path / "codes.npy", np.packbits(signs(index), axis=1))
    ids, codes = arrays(tmp_path / "codes.npy")
    assert ids is None
    assert_array_equal(codes, index.get(index.ids))
    export_codes(index, tmp_path / "ours.npy", bit_order="little")
    assert_array_equal(np.load(tmp_path / "ours.npy"), index.get(index.ids))


def test_faiss(index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    faiss = optional("faiss")
    export_codes(index, tmp_path / "codes.faiss")
    theirs = faiss.read_index_binary(str(tmp_path / "codes.faiss"))
    queries = signs(index)[:20]
    distances, ids = theirs.search(np.packbits(queries, axis=1), 1)
    assert_array_equal(ids[:, 0], index.ids[:20])
    assert not distances.any()
    flat = faiss.IndexBinaryFlat(64)
    flat.add(np.packbits(signs(index), axis=1))
    faiss.write_index_binary(flat, str(tmp_path / "flat.faiss"))
    assert_array_equal(arrays(tmp_path / "flat.faiss")[1], index.get(index.ids))
    graph = faiss.IndexBinaryHNSW(64, 4)
    graph.add(np.packbits(signs(index), axis=1))
    faiss.write_index_binary(graph, str(tmp_path / "graph.faiss"))
    with pytest.raises(DataError, match="Got IndexBinaryHNSW"):
        import_codes(tmp_path / "graph.faiss")


def test_usearch(index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    usearch = optional("usearch.index")
    export_codes(index, tmp_path / "codes.usearch")
    theirs = usearch.Index.restore(str(tmp_path / "codes.usearch"))
    matches = theirs.search(np.packbits(signs(index)[:20], axis=1), 1, exact=True)
    assert_array_equal(matches.keys[:, 0], index.ids[:20])
    floats = usearch.Index(ndim=8, metric="cos", dtype="f32")
    floats.save(str(tmp_path / "floats.usearch"))
    with pytest.raises(DataError, match="one bit per dimension"):
        import_codes(tmp_path / "floats.usearch")


def test_pgvector(index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    psycopg, pgvector = optional("psycopg"), optional("pgvector")
    path = tmp_path / "codes.sql"
    export_codes(index, path)
    address = servers.server("postgresql").address().partition("?")[0]
    with psycopg.connect(address) as connection:  # rolled back at the end
        connection.execute("CREATE SCHEMA exchange")
        connection.execute("SET search_path TO exchange, public")
        connection.execute(path.read_text())
        bits = signs(index)
        query = pgvector.Bit(bits[5]).to_text()
        nearest = connection.execute(
            "SELECT id, code <~> %s::bit(64) FROM codes ORDER BY 2, 1 LIMIT 5", (query,)
        ).fetchall()
        expected = index.search(index.get(index.ids[5:6]), 5)
        assert [id for id, _ in nearest] == expected[1][0].tolist()
        assert [distance for _, distance in nearest] == expected[0][0].tolist()
        rows = connection.execute("SELECT id, code FROM codes ORDER BY id").fetchall()
        connection.rollback()
    back = tmp_path / "dump.sql"
    back.write_text("COPY codes (id, code) FROM stdin;\n" + "".join(f"{id}\t{code}\n" for id, code in rows) + "\\.\n")
    ids, codes = arrays(back)
    assert_array_equal(ids, index.ids)
    assert_array_equal(codes, index.get(index.ids))


def test_milvus(index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    pymilvus = optional("pymilvus")
    path = tmp_path / "codes.milvus.json"
    export_codes(index, path)
    rows = [{"id": row["id"], "code": bytes(row["code"])} for row in json.loads(path.read_text())["rows"]]
    server = servers.server("milvus-lite")
    client, name = pymilvus.MilvusClient(f"http://127.0.0.1:{server.port}"), servers.unused()
    try:
        schema = client.create_schema()
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field("code", pymilvus.DataType.BINARY_VECTOR, dim=64)
        parameters = client.prepare_index_params()
        parameters.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        client.create_collection(name, schema=schema, index_params=parameters)
        client.insert(name, rows)
        client.load_collection(name)
        asked = np.packbits(signs(index)[3]).tobytes()
        hits = client.search(name, [asked], limit=1, anns_field="code", consistency_level="Strong")
        assert hits[0][0]["id"] == index.ids[3]
        stored = client.query(name, "id >= 0", ["id", "code"], limit=1000, consistency_level="Strong")
        client.drop_collection(name)
    finally:
        client.close()
    rows = [{"id": row["id"], "code": list(row["code"][0])} for row in stored]
    path.write_text(json.dumps({"rows": rows}))
    ids, codes = arrays(path)
    assert ids is not None
    assert_array_equal(codes, index.get(ids))


def test_qdrant(index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]) -> None:
    qdrant = optional("qdrant_client")
    path = tmp_path / "codes.qdrant.jsonl"
    export_codes(index, path)
    client, models = qdrant.QdrantClient(":memory:"), qdrant.models
    vectors = models.VectorParams(size=64, distance=models.Distance.MANHATTAN, datatype=models.Datatype.UINT8)
    client.create_collection("codes", vectors_config=vectors)
    points = [models.PointStruct(**json.loads(line)) for line in path.read_text().splitlines()]
    client.upsert("codes", [models.PointStruct(id=p.id, vector=p.vector, payload={}) for p in points])
    hits = client.query_points("codes", query=signs(index)[7].astype(float).tolist(), limit=3).points
    distances, ids = index.search(index.get(index.ids[7:8]), 3)
    assert [hit.score for hit in hits] == distances[0].tolist()  # Manhattan is Hamming here
    assert hits[0].id == ids[0, 0]
    stored, _ = client.scroll("codes", limit=1000, with_vectors=True)
    path.write_text("".join(json.dumps({"id": point.id, "vector": point.vector}) + "\n" for point in stored))
    found, codes = arrays(path)
    assert found is not None
    assert_array_equal(codes, index.get(found))


def test_parquet_in_duckdb_and_arrow(
    index: HammingIndex, tmp_path: Path, optional: Callable[[str], ModuleType]
) -> None:
    duckdb, pa = optional("duckdb"), optional("pyarrow")
    path = tmp_path / "codes.parquet"
    export_codes(index, path)
    query = "".join("01"[bit] for bit in signs(index)[9].astype(int))
    found = duckdb.sql(
        f"SELECT id, bit_count(xor(code::BIT, '{query}'::BIT)) AS d FROM '{path}' ORDER BY d, id LIMIT 5"
    ).fetchall()
    distances, ids = index.search(index.get(index.ids[9:10]), 5)
    assert found == list(zip(ids[0].tolist(), distances[0].tolist(), strict=True))
    other = tmp_path / "theirs.parquet"  # DuckDB writes variable bytes, and no metadata
    duckdb.sql(f"COPY (SELECT id, code FROM '{path}' WHERE id % 2 = 0) TO '{other}' (FORMAT parquet)")
    some, codes = arrays(other)
    assert some is not None
    assert_array_equal(codes, index.get(some))
    assert len(some) == np.count_nonzero(index.ids % 2 == 0)
    export_codes(index, tmp_path / "codes.arrow")
    with pa.ipc.open_file(tmp_path / "codes.arrow") as file:
        table = file.read_all()
    assert table.column("id").to_pylist() == index.ids.tolist()
    assert table.schema.metadata == {b"fusehash.bit_order": b"big"}


def test_elasticsearch(index: HammingIndex, tmp_path: Path) -> None:
    path = tmp_path / "codes.ndjson"
    export_codes(index, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"index": {"_id": str(index.ids[0])}}
    assert bytes.fromhex(lines[1]["code"]) == np.packbits(signs(index)[0]).tobytes()
    hits = [  # as a search answers: signed bytes
        {"_id": str(id), "_source": {"code": code.view(np.int8).tolist()}}
        for id, code in zip(index.ids, np.packbits(signs(index), axis=1), strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, hits)))
    ids, codes = arrays(path)
    assert ids is not None
    assert_array_equal(codes, index.get(ids))


@pytest.mark.parametrize(("spread", "expected"), [("means", True), ("pairs", True), ("flat", False)])
def test_reversed_codes_are_noticed_where_codes_have_a_pattern(spread: str, expected: bool) -> None:
    rng = np.random.default_rng(0)

    def codes(n: int) -> np.ndarray:
        ones = rng.random((n, 64)) < (np.random.default_rng(4).uniform(0.3, 0.7, 64) if spread == "means" else 0.5)
        if spread == "pairs":  # even bits, of which some agree with the one before
            copied = np.flatnonzero(np.random.default_rng(5).random(63) < 0.3) + 1
            same = rng.random((n, len(copied))) < 0.6
            ones[:, copied] = np.where(same, ones[:, copied - 1], ones[:, copied])
        return np.packbits(ones, axis=1, bitorder="little")

    for n in (500, 30_000):
        like, right = codes(3000), codes(n)
        wrong = np.packbits(np.unpackbits(right, axis=1), axis=1, bitorder="little")
        assert looks_reversed(wrong, like) == expected
        assert not looks_reversed(right, like)
    assert not looks_reversed(right[:50], like)


def call(*words: object) -> Any:
    return CliRunner().invoke(app, ["index", *map(str, words)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_commands_convert_and_warn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ones = rng.random((2000, 64)) < np.linspace(0.2, 0.8, 64)
    with HammingIndex.open(tmp_path / "codes.db", 64, warm=False) as index:
        index.add(np.packbits(ones, axis=1, bitorder="little"))
    assert call("export", tmp_path / "codes.db", tmp_path / "codes.npz").exit_code == 0
    result = call("import", tmp_path / "other.db", tmp_path / "codes.npz", "--json")
    assert json.loads(result.stdout) == {"added": 2000, "count": 2000, "n_bits": 64}
    with HammingIndex.open(tmp_path / "other.db", warm=False) as index:
        assert_array_equal(unpack(index.get(index.ids), 64) > 0, ones)
    more = rng.random((2000, 64)) < np.linspace(0.2, 0.8, 64)
    np.save(tmp_path / "more.npy", np.packbits(more, axis=1))
    assert "reversed" not in call("import", tmp_path / "codes.db", tmp_path / "more.npy").stderr
    result = call("import", tmp_path / "codes.db", tmp_path / "more.npy", "--bit-order", "little")
    assert "look bit-reversed" in " ".join(result.stderr.split())
    for words in (
        ("export", tmp_path / "nothing.db", tmp_path / "x.npz"),
        ("export", tmp_path / "codes.db", tmp_path / "x.txt"),
        ("import", tmp_path / "codes.db", tmp_path / "nothing.npz"),
        ("import", tmp_path / "codes.db", tmp_path / "codes.npz", "--bit-order", "middle"),
        ("import", tmp_path / "codes.db", tmp_path / "codes.npz"),  # the ids are there already
    ):
        result = call(*words)
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("suffix", [".npy", *SUFFIXES])
@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x93NUMPY\x01\x00", b'{"rows": 3}', b"(1, B'01')\n(2, B'0')"])
def test_damaged_and_foreign_files_take_one_sentence(
    tmp_path: Path, optional: Callable[[str], ModuleType], suffix: str, content: bytes
) -> None:
    optional(PACKAGES.get(suffix, "numpy"))
    path = tmp_path / f"codes{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError):
        import_codes(path)


def test_wrong_arguments(index: HammingIndex, tmp_path: Path) -> None:
    for call_it in (export_codes, lambda index, path, *a, **b: import_codes(path, *a, **b)):
        for arguments, options in (
            ((tmp_path / "x.txt",), {}),
            ((tmp_path / "x.npz", "csv"), {}),
            ((tmp_path / "x.npz",), {"bit_order": "x"}),
        ):
            with pytest.raises(ParameterError, match="must be one of"):
                call_it(index, *arguments, **options)
    export_codes(index, tmp_path / "x.npz")
    with pytest.warns(FusehashWarning, match="says that its bits are in the order 'big'"):
        import_codes(tmp_path / "x.npz", bit_order="little")
    assert len(FORMATS) == 9
