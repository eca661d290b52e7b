"""The file of documents behind the adapters: durable, exact where it says so, and careful with foreign files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fusehash import datasets, hashers
from fusehash.errors import DataError, ParameterError
from fusehash.integrations.documents import MIN_RERANKED, DocumentFile
from fusehash.integrations.rows import DocumentFileError, ExistingDocumentError, StoredDocument

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((300, 24))
SOURCE = Path(__file__).parents[2] / "src"


def documents(rows, vectors=VECTORS):
    return [StoredDocument(f"d{i}", {"text": f"t{i}", "year": int(i) % 7}, vectors[i]) for i in rows]


@pytest.fixture
def file(tmp_path):
    with DocumentFile(tmp_path / "a.fhd") as opened:
        opened.put(documents(range(300)))
        yield opened


def cosines(query):
    return VECTORS @ query / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(query)


def test_what_was_written_is_read(file, tmp_path):
    assert len(file) == 300
    assert [document.id for document in file.get(["d7", "nothing", "d2"])] == ["d7", "d2"]
    assert [document.content for document in file.all()] == [document.content for document in documents(range(300))]
    with DocumentFile(tmp_path / "a.fhd") as other:
        assert np.array_equal(other.get(["d3"])[0].vector, VECTORS[3])  # double precision is kept
        assert [d.id for d, _ in other.search(VECTORS[3], 5)] == [d.id for d, _ in file.search(VECTORS[3], 5)]


def test_results_are_sorted_by_cosine_and_the_best_is_found(file):
    for i in range(0, 300, 23):
        query = VECTORS[i] + 0.05 * RNG.standard_normal(24)
        found = file.search(query, 10)
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True)
        assert found[0][0].id == f"d{int(np.argmax(cosines(query)))}"
        expected = {d.id: s for d, s in zip(documents(range(300)), cosines(query), strict=True)}
        assert all(abs(expected[document.id] - score) < 1e-9 for document, score in found)


def test_as_many_results_as_are_compared_are_exact(file):
    """With as many results as documents, nothing is left to the codes."""
    query = RNG.standard_normal(24)
    order = [f"d{i}" for i in np.argsort(-cosines(query))]
    assert [document.id for document, _ in file.search(query, 300)] == order


@pytest.mark.parametrize("share", [1, 3, 7, 60])
def test_a_filter_loses_nothing(file, share):
    query = RNG.standard_normal(24)
    found = file.search(query, 300, lambda document: int(document.id[1:]) % share == 0)
    assert [d.id for d, _ in found] == [f"d{i}" for i in np.argsort(-cosines(query)) if i % share == 0]
    assert file.search(query, 5, lambda document: False) == []


def test_replace_skip_and_fail(file):
    other = documents([5], VECTORS[::-1])
    assert file.put(other, "skip") == []
    assert np.array_equal(file.get(["d5"])[0].vector, VECTORS[5])
    with pytest.raises(ExistingDocumentError, match=r"'d5' is in a.fhd"):
        file.put([StoredDocument("new", {}, VECTORS[0]), *other], "fail")
    assert file.get(["new"]) == []
    assert file.put(other) == ["d5"]
    assert np.array_equal(file.get(["d5"])[0].vector, VECTORS[294])
    assert len(file) == 300
    assert file.search(VECTORS[294], 2)[1][1] == pytest.approx(1.0)


def test_all_or_nothing(file):
    before = len(file)
    for wrong in ({"x": object()}, {"x": float("nan")}):
        with pytest.raises(DataError, match="what JSON can hold"):
            file.put([StoredDocument("new", {}, VECTORS[0]), StoredDocument("bad", wrong, VECTORS[1])])
    with pytest.raises(DataError, match=r"must have 24 numbers, as the others. Got 23"):
        file.put([StoredDocument("new", {}, VECTORS[0]), StoredDocument("bad", {}, VECTORS[1][:23])])
    assert len(file) == before
    assert file.get(["new"]) == []
    assert file.search(VECTORS[3], 1)[0][0].id == "d3"


def test_deleted_documents_are_not_found(file):
    assert file.delete(["d3", "d3", "nothing"]) == 1
    assert file.search(VECTORS[3], 1)[0][0].id != "d3"
    assert len(file) == 299
    file.put([StoredDocument("later", {}, VECTORS[3])])
    assert file.search(VECTORS[3], 1)[0][0].id == "later"


def test_documents_without_a_vector_are_kept_and_not_found(file):
    file.put([StoredDocument("plain", {"text": "no vector"}), StoredDocument("d3", {"text": "vector gone"})])
    assert file.get(["plain"])[0].vector is None
    assert "d3" not in {document.id for document, _ in file.search(VECTORS[3], 300)}


def test_two_processes_see_each_other(file, tmp_path):
    code = (
        "import numpy as np, sys; from fusehash.integrations.documents import DocumentFile, StoredDocument\n"
        "with DocumentFile(sys.argv[1]) as file:\n"
        "    file.put([StoredDocument('theirs', {}, np.arange(24.0))]); file.delete(['d1'])"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.fhd"], check=True, env={"PYTHONPATH": str(SOURCE)})
    assert file.search(np.arange(24.0), 1)[0][0].id == "theirs"
    assert "d1" not in {document.id for document, _ in file.search(VECTORS[1], 300)}


def test_a_model_makes_the_codes_and_must_be_the_same(tmp_path):
    data = datasets.make_paired(200, views={"image": 24, "text": 12}, random_state=0).views
    model, other = (hashers.make("random", n_bits=32, random_state=seed).fit(data) for seed in (0, 1))
    with DocumentFile(tmp_path / "m.fhd", model=model, view="image") as file:
        file.put([StoredDocument(str(i), {}, row) for i, row in enumerate(data["image"])])
        assert file.search(data["image"][9], 1)[0][0].id == "9"
    for wrong in ({"model": other, "view": "image"}, {}, {"n_bits": 64}):
        with pytest.raises(DataError, match="with the model that its codes are from"):
            DocumentFile(tmp_path / "m.fhd", **wrong)
    with pytest.raises(DataError, match="belong together"):
        DocumentFile(tmp_path / "n.fhd", model=model)


def test_a_temporary_file_ends_with_its_object():
    with DocumentFile() as file:
        path = file.path
        file.put(documents(range(MIN_RERANKED)))
        assert path.exists()
    assert not path.exists()


@pytest.mark.parametrize("wrong", [np.full(24, np.nan), np.ones((2, 24)), [], "text"])
def test_wrong_vectors_are_one_sentence(file, wrong):
    with pytest.raises(DataError, match="finite numbers"):
        file.search(wrong, 1)


def test_wrong_calls_are_one_sentence(file, tmp_path):
    with pytest.raises(ParameterError, match="'k'"):
        file.search(VECTORS[0], 0)
    with pytest.raises(ParameterError, match="'n_bits'"):
        DocumentFile(tmp_path / "b.fhd", n_bits=12)
    with pytest.raises(DataError, match="text that is not empty"):
        file.put([StoredDocument("", {}, VECTORS[0])])
    with pytest.raises(DataError, match=r"The query must have 24 numbers. Got 3"):
        file.search([1.0, 2.0, 3.0], 1)


def test_damage_and_foreign_files_are_noticed(file, tmp_path):
    file.close()
    path = tmp_path / "a.fhd"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE document SET content = replace(content, 't5', 't6') WHERE id = 'd5'")
    connection.close()
    with DocumentFile(path) as again, pytest.raises(DocumentFileError, match="is corrupt: document 6 is damaged"):
        again.get(["d5"])
    (tmp_path / "foreign").write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(DocumentFileError, match="was not written by fusehash"):
        DocumentFile(tmp_path / "foreign")
    with pytest.raises(DocumentFileError, match=r"could not be created|cannot be reached"):
        DocumentFile(tmp_path / "nowhere" / "a.fhd")
