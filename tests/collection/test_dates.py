"""The day of a picture is the one that its camera wrote into it, else that of its file."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sqlite3
from datetime import date, timedelta
from pathlib import Path

import pytest
from PIL import Image

from fusehash.collection import Collection, CorruptCollectionError, NewItem, read_folder, store
from fusehash.collection.dates import day_in, day_taken
from fusehash.collection.queries.filters import Filters

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER_TAGS = (0x9003, 0x9004)
FILE_DAY = 1_577_880_000  # 2020-01-01


def picture(tags: dict[int, str], kind: str = "JPEG", shade: int = 90) -> bytes:
    image, file = Image.effect_noise((24, 16), shade).convert("RGB"), io.BytesIO()
    exif = image.getexif()
    for tag, value in tags.items():
        (exif.get_ifd(0x8769) if tag in FOLDER_TAGS else exif)[tag] = value
    image.save(file, kind, exif=exif.tobytes())
    return file.getvalue()


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    os.utime(path, (FILE_DAY, FILE_DAY))
    return path


@pytest.fixture
def collection(tmp_path, fakes):
    with Collection.create(tmp_path / "c", n_bits=16) as made:
        yield made


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_the_day_is_that_of_the_best_tag(kind):
    first, second, third = "2019:05:03 23:59:59", "2018:04:02 00:00:00", "2017:03:01 12:00:00"
    assert day_taken(picture({0x9003: first, 0x9004: second, 0x0132: third}, kind)) == "2019-05-03"
    assert day_taken(picture({0x9003: "0000:00:00 00:00:00", 0x9004: second, 0x0132: third}, kind)) == "2018-04-02"
    assert day_taken(picture({0x0132: third}, kind)) == "2017-03-01"
    assert day_taken(picture({}, kind)) == ""


def test_a_picture_is_not_decoded_for_its_day(monkeypatch):
    data = [picture({}, "PNG"), picture({0x9003: "2019:05:03 10:00:00"}, "PNG")]
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    assert [day_taken(each) for each in data] == ["", "2019-05-03"]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("data", [b"", b"text", b"\xff\xd8\xff\xe1\x00\x10Exif\0\0MM\0*\xff\xff\xff\xff"])
def test_what_is_no_picture_has_no_day(data):
    assert day_taken(data) == ""


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("2019:05:03 10:00:00", "2019-05-03"),
        ("2019-05-03T10:00:00+02:00", "2019-05-03"),
        (b"2020:02:29\0", "2020-02-29"),
        ("1826:01:01 00:00:00", "1826-01-01"),
        ("1825:12:31 00:00:00", ""),
        ("0000:00:00 00:00:00", ""),
        ("    :  :     :  :  ", ""),
        ("2019:02:29 10:00:00", ""),
        ("2019:13:01 10:00:00", ""),
        ("2019:05:031", ""),
        ("٢٠١٩:٠٥:٠٣ 10:00:00", ""),
        ("9999:12:31 23:59:59", ""),
        ("yesterday", ""),
        (20190503, ""),
        (None, ""),
    ],
)
def test_only_possible_days_count(value, day):
    assert day_in(value) == day


def test_tomorrow_is_possible_and_the_day_after_is_not():
    days = [date.today() + timedelta(days=ahead) for ahead in (0, 1, 3)]
    assert [day_in(f"{day:%Y:%m:%d} 00:00:00") for day in days] == [days[0].isoformat(), days[1].isoformat(), ""]


def test_filters_orders_and_facets_use_the_day(collection, tmp_path):
    put(tmp_path / "b.jpg", picture({0x9003: "2021:01:31 08:00:00"}))
    put(tmp_path / "c.jpg", picture({0x9003: "9999:99:99 08:00:00"}))
    put(tmp_path / "a.jpg", picture({0x9003: "2017:06:07 08:00:00"}))
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"thing {name}")
    collection.build(read_folder(tmp_path))
    collection.add([NewItem("bytes", picture({0x9003: "1999:12:31 08:00:00"}))])
    assert {item.key: item.day for item in collection.items()} == {
        "a.jpg": "2017-06-07", "b.jpg": "2021-01-31", "c.jpg": "2020-01-01", "bytes": "1999-12-31",
    }  # fmt: skip
    assert [item.key for item in collection.items(order="newest")] == ["b.jpg", "c.jpg", "a.jpg", "bytes"]
    assert [item.key for item in collection.items(filters=Filters(before=date(2017, 6, 7)))] == ["bytes"]
    assert {hit.item.key for hit in collection.search("after:2020")} == {"b.jpg", "c.jpg"}
    assert {hit.item.key for hit in collection.search("before:2020")} == {"a.jpg", "bytes"}
    years = collection.facets()["years"]
    assert {str(year): count for year, count in dict(years).items()} == {"2021": 1, "2020": 1, "2017": 1, "1999": 1}


def test_the_day_follows_the_content_of_the_file(collection, photos):
    path = put(photos / "red0.png", picture({0x9003: "2018:01:02 08:00:00"}, "PNG"))
    collection.build(read_folder(photos))
    id = collection.search("before:2018-01-03")[0].id
    [saved] = collection.saved([id])
    collection.label([id], add=["kept"])
    collection.update([NewItem("red0.png", None, "another text")])
    collection.reindex()
    assert collection.item(id).day == "2018-01-02"
    put(path, picture({0x9003: "2016:03:04 08:00:00"}, "PNG", shade=50))
    collection.update([NewItem("red0.png", path)])
    assert collection.item(id).day == "2016-03-04"
    put(path, picture({}, "PNG", shade=40))
    collection.build(read_folder(photos))
    assert collection.item(id).day == "2020-01-01"
    collection.remove([id])
    collection.restore([saved])
    assert collection.item(id).day == "2018-01-02"
    with Collection.open(collection.path) as other:
        assert other.item(id).day == "2018-01-02"


def as_format_2(folder: Path) -> None:
    """Make a collection what it was before days were stored."""
    with sqlite3.connect(folder / "items.db", isolation_level=None) as database:
        database.execute("BEGIN")
        state = store.CollectionState.read(database)
        changes = {row[0]: {"taken": None} for row in store.read_rows(database)}
        store.amend(database, state, changes).write(database)
        database.execute("ALTER TABLE item DROP COLUMN taken")
        database.execute("PRAGMA user_version = 2")
        database.execute("COMMIT")


def test_an_older_collection_learns_the_days_from_unchanged_files(collection, photos):
    put(photos / "red0.png", picture({0x9003: "2018:01:02 08:00:00"}, "PNG"))
    collection.build(read_folder(photos))
    id, folder = collection.search("before:2018-01-03")[0].id, collection.path
    collection.close()
    as_format_2(folder)
    with Collection.open(folder) as reader, Collection.open(folder) as writer:
        assert reader.item(id).day == writer.item(id).day == "2020-01-01"
        everything = reader.items()
        assert [hit.id for hit in reader.search("before:2018-01-03")] == []
        writer.add([NewItem("another", None, "a red thing")])  # from format 2 to 3
        assert reader.items(limit=len(everything)) == everything
        report = writer.build(read_folder(photos))
        assert (report.unchanged, report.changed, report.added) == (25, 0, 0)
        assert [hit.id for hit in reader.search("before:2018-01-03")] == [id]
        revision = writer.revision
        writer.build(read_folder(photos))
        assert writer.revision == revision  # the pictures without a day are not asked again


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_between_the_formats_leaves_the_older_one(collection, photos):
    collection.build(read_folder(photos))
    before, folder = collection.items(), collection.path
    collection.close()
    as_format_2(folder)
    child = os.fork()
    if child == 0:
        try:
            with Collection.open(folder) as doomed:
                die = lambda sql: os.kill(os.getpid(), signal.SIGKILL) if "user_version = " in sql else None  # noqa: E731
                doomed._items.connection().set_trace_callback(die)
                doomed.add([NewItem("another", None, "a red thing")])
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with sqlite3.connect(folder / "items.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
        assert "taken" not in [column[1] for column in database.execute("PRAGMA table_info(item)")]
    with Collection.open(folder) as again:
        assert again.items() == before
        again.add([NewItem("another", None, "a red thing")])
        assert again.items()[:-1] == before


def refuse(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied")


def test_a_file_that_can_no_longer_be_read_stays_without_a_day(collection, photos, monkeypatch):
    collection.build(read_folder(photos))
    folder = collection.path
    collection.close()
    as_format_2(folder)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with Collection.open(folder) as writer:
        before = writer.items()
        assert writer.build(read_folder(photos)).unchanged == 24
        assert writer.items() == before


def test_an_older_collection_that_is_only_read_stays_as_it_is(tmp_path):
    for name, format in (("2026-11-second-design", 1), ("2026-11-stable-signs", 2)):
        shutil.copytree(GOLDEN / name / "small.collection", tmp_path / name)
        with Collection.open(tmp_path / name) as reader:
            assert reader.items(order="newest")
        with sqlite3.connect(tmp_path / name / "items.db") as database:
            assert database.execute("PRAGMA user_version").fetchone() == (format,)


@pytest.mark.parametrize("value", ["2018-01-03", "", None])
def test_another_day_is_damage(collection, photos, value):
    put(photos / "red0.png", picture({0x9003: "2018:01:02 08:00:00"}, "PNG"))
    collection.build(read_folder(photos))
    id = collection.search("before:2018-01-03")[0].id
    with sqlite3.connect(collection.path / "items.db") as database:
        assert database.execute("SELECT taken FROM item WHERE id = ?", (id,)).fetchone() == ("2018-01-02",)
        database.execute("UPDATE item SET taken = ? WHERE id = ?", (value, id))
    with Collection.open(collection.path) as other:
        for ask in (lambda: other.item(id), lambda: other.search("after:2017"), other.facets):
            with pytest.raises(CorruptCollectionError, match="damaged"):
                ask()
