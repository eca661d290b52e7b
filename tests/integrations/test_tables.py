"""Data frames, DuckDB and Hugging Face datasets: the same views, codes and results as arrays give."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import HammingIndex, hashers
from fusehash.errors import DataError

RNG = np.random.default_rng(0)
IMAGE, TEXT = RNG.standard_normal((60, 5)), RNG.standard_normal((60, 3))
CODES = RNG.integers(0, 256, (60, 4), dtype=np.uint8)
COLUMNS = {"image": "vector", "text": ["a", "b", "c"]}
CONTENT = {"vector": IMAGE.tolist(), **{name: TEXT[:, i].tolist() for i, name in enumerate("abc")}}
FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}


@pytest.fixture(params=FRAMES)
def library(request, optional):
    optional("narwhals")
    return optional(request.param)


def frame_of(library, content):
    return getattr(library, FRAMES[library.__name__])(content)


# -- pandas, polars, Arrow -------------------------------------------------------------------------------------------


def test_a_table_as_views(library):
    from fusehash.integrations.dataframes import labels_of, views_of

    frame = frame_of(library, {**CONTENT, "kind": list(range(60))})
    views = views_of(frame, COLUMNS)
    assert np.array_equal(views["image"], IMAGE)
    assert np.array_equal(views["text"], TEXT)
    assert labels_of(frame, "kind").tolist() == list(range(60))


def test_null_is_a_missing_view(library):
    from fusehash.integrations.dataframes import views_of

    content = {
        "vector": [None, *IMAGE[1:].tolist()],
        **{n: [None if i == 2 else v for i, v in enumerate(CONTENT[n])] for n in "abc"},
    }
    views = views_of(frame_of(library, content), COLUMNS, allow_missing=True)
    assert not views.is_present("image")[0]
    assert not views.is_present("text")[2]
    assert views.is_present("image")[1:].all()
    with pytest.raises(DataError, match="finite numbers"):
        views_of(frame_of(library, content), COLUMNS)


def test_codes_as_a_table_and_back(library):
    from fusehash.integrations.dataframes import codes_of, codes_table

    table = codes_table(CODES, backend=library.__name__)
    assert type(table).__module__.partition(".")[0] == library.__name__
    assert np.array_equal(codes_of(table), CODES)


def test_wrong_tables_are_one_sentence(library):
    from fusehash.integrations.dataframes import codes_of, codes_table, views_of

    frame = frame_of(library, {**CONTENT, "word": ["x"] * 60, "ragged": [[1.0] * (1 + i % 2) for i in range(60)]})
    for columns, words in (
        ({"image": "nothing"}, "must be in the table, which has 'vector'"),
        ({"image": "word"}, "must hold numbers"),
        ({"image": ["a", "word"]}, "must hold numbers"),
        ({"image": "ragged"}, "one length"),
        ({"image": []}, "must have columns"),
        ({}, "at least one view"),
    ):
        with pytest.raises(DataError, match=words):
            views_of(frame, columns)
    with pytest.raises(DataError, match="must hold codes"):
        codes_of(frame, "word")
    with pytest.raises(DataError, match="backend must be"):
        codes_table(CODES, backend="excel")


def test_what_is_no_table_is_refused(optional):
    optional("narwhals")
    from fusehash.integrations.dataframes import views_of

    with pytest.raises(DataError, match="A table must be of pandas, polars or Arrow"):
        views_of([1, 2], COLUMNS)


# -- DuckDB ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(optional):
    optional("duckdb")
    from fusehash.integrations.duckdb import connect

    with connect() as opened:
        yield opened


def test_codes_in_a_database_are_searched_as_in_an_index(connection):
    from fusehash.integrations.duckdb import read_codes, search, write_codes

    ids = np.arange(60) * 3 + 7
    assert write_codes(connection, "codes", CODES, ids[::-1]) == 60
    found_ids, found = read_codes(connection, "codes")
    assert np.array_equal(found_ids, ids)
    assert np.array_equal(found, CODES[::-1])
    index = HammingIndex(32)
    index.add(found, found_ids)
    query = RNG.integers(0, 256, (1, 4), dtype=np.uint8)
    distances, nearest = index.search(query, 9)
    assert search(connection, "codes", query, 9) == list(zip(nearest[0].tolist(), distances[0].tolist(), strict=True))
    odd = search(connection, "codes", query, 60, "id % 2 = 1")
    assert [number for number, _ in odd] == [int(i) for i in index.search(query, 60)[1][0] if i % 2]


def test_codes_are_replaced_all_or_none(connection):
    from fusehash.integrations.duckdb import read_codes, write_codes

    write_codes(connection, "codes", CODES)
    write_codes(connection, "codes", CODES[:2] ^ 255, [4, 99])
    ids, found = read_codes(connection, "codes")
    assert ids.tolist() == [*range(60), 99]
    assert np.array_equal(found[4], CODES[0] ^ 255)
    with pytest.raises(DataError, match=r"holds codes of 32 bits. Got codes of 16"):
        write_codes(connection, "codes", CODES[:, :2], np.arange(200, 260))
    with pytest.raises(DataError, match="A table must be named"):
        write_codes(connection, "codes; DROP TABLE codes", CODES)
    assert len(read_codes(connection, "codes")[0]) == 61


def test_a_query_as_views(connection):
    from fusehash.integrations.duckdb import views_of

    connection.execute("CREATE TABLE items (id INT, vector DOUBLE[], a DOUBLE, b DOUBLE, c DOUBLE)")
    rows = [[i, IMAGE[i].tolist(), *TEXT[i].tolist()] for i in range(60)]
    connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?)", rows)
    views = views_of(connection, "FROM items WHERE id >= 10 ORDER BY id", COLUMNS)
    assert np.array_equal(views["image"], IMAGE[10:])
    assert np.array_equal(views["text"], TEXT[10:])
    with pytest.raises(DataError, match="must be in the result, which has id, vector"):
        views_of(connection, "FROM items", {"image": "nothing"})
    connection.execute("UPDATE items SET a = NULL WHERE id = 3")
    with pytest.raises(DataError, match="a number in every row"):
        views_of(connection, "FROM items ORDER BY id", COLUMNS)


# -- Hugging Face datasets -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_index_of_a_dataset(optional, tmp_path):
    datasets = optional("datasets")
    from fusehash.integrations.datasets import HammingDatasetIndex, add_hamming_index, views_of

    dataset = datasets.Dataset.from_dict({**CONTENT, "name": [f"n{i}" for i in range(60)]})
    views = views_of(dataset, COLUMNS)
    assert np.array_equal(views["image"], IMAGE)
    assert np.array_equal(views["text"], TEXT)
    model = hashers.make("random", n_bits=8, random_state=0).fit(views)
    add_hamming_index(dataset, "vector", model, view="image", query_view="text")
    index = HammingIndex(8)
    index.add(model.encode(IMAGE, view="image"))
    distances, rows = index.search(model.encode(TEXT[:3], view="text"), 4)
    scores, examples = dataset.get_nearest_examples_batch("vector", TEXT[:3], k=4)
    assert np.array_equal(scores, distances)
    assert [example["name"] for example in examples] == [[f"n{i}" for i in row] for row in rows]
    one = dataset.search("vector", TEXT[0], k=4)
    assert np.array_equal(one.indices, rows[0])
    dataset.get_index("vector").save(tmp_path / "codes.fhi")
    again = HammingDatasetIndex.load(tmp_path / "codes.fhi", model=model, query_view="text")
    assert np.array_equal(again.search_batch(TEXT[:3], 4).total_indices, rows)
    again.index.close()
    with pytest.raises(DataError, match="saved to a new file"):
        dataset.get_index("vector").save(tmp_path / "codes.fhi")
    with pytest.raises(DataError, match="must be in the Dataset"):
        views_of(dataset, {"image": "nothing"})
