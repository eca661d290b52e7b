"""The page in a real browser: several items selected, exports, and writing."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from browsing import hold, labels_of, shows, status

TOKEN = "#token=a-token-for-tests-only"
PHONE: dict[str, Any] = {"width": 390, "height": 780, "has_touch": True, "is_mobile": True}


def select(page: Any, *places: int) -> None:
    """Select some of the items on the screen."""
    for place in places:
        page.locator(".card").nth(place).hover()
        page.locator("#grid .tick").nth(place).click()
    page.wait_for_selector(f"#selection >> text={len(places)} item")


@pytest.mark.slow
def test_selection_and_export(open_page: Callable[..., Any], tmp_path: Path) -> None:
    page = open_page("#text=a+red+circle+on+the+left")
    select(page, 0, 1)
    with page.expect_download() as download:
        page.click("#selection >> text=CSV")
    download.value.save_as(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] or row["image"] for row in rows] == labels_of(page, 2)
    page.click("#selection >> text=More like these")
    page.wait_for_function("() => document.querySelectorAll('#query img.seen').length === 2")
    page.click("#selection >> text=Clear")
    assert page.locator("#selection").is_hidden()


@pytest.mark.slow
def test_a_zip_file_is_one(open_page: Callable[..., Any]) -> None:
    page = open_page()
    made = page.evaluate(
        """async () => {
            const { zipped } = await import("/export.js");
            const bytes = (text) => new TextEncoder().encode(text);
            const blob = new Blob(zipped([["a.txt", bytes("one")], ["é.txt", bytes("two".repeat(1000))]]));
            return [...new Uint8Array(await blob.arrayBuffer())];
        }"""
    )
    with zipfile.ZipFile(io.BytesIO(bytes(made))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["a.txt", "é.txt"]
        assert archive.read("é.txt") == b"two" * 1000


@pytest.mark.slow
def test_writing(open_writable: Callable[..., Any], draw: Callable[..., bytes]) -> None:
    page = open_writable(shows="#unlock:not([hidden])", foreseen=True)
    page.fill("#token", "wrong-token-0123456789")
    page.click("#unlock button")
    page.click("#undo")
    page.wait_for_selector("#toast >> text=right token")
    page = open_writable(TOKEN, shows="#writer:not([hidden])")
    assert "token" not in page.url
    with page.expect_file_chooser() as chooser:
        page.click("#add")
    picture = {"name": "new.png", "mimeType": "image/png", "buffer": draw("green", "circle") + b"new"}
    chooser.value.set_files(picture)
    page.wait_for_selector("#toast >> text=Added 1 picture")
    status(page, "63 items")
    page.click("#toast >> text=Undo")
    status(page, "62 items")
    page.locator(".card").first.click()
    page.click("#box >> text=Edit")
    page.fill("#edit-text", "an entirely new caption")
    page.fill("#edit-labels", "fresh; two words")
    page.click("#box >> text=Save")
    page.wait_for_selector("#box .whole >> text=an entirely new caption")
    assert page.locator("#box .chips a").all_inner_texts() == ["fresh", "two words"]
    page.click("#box >> text=Delete")
    status(page, "61 items")
    page.click("#toast >> text=Undo")
    status(page, "62 items")
    assert labels_of(page, 1) == ["an entirely new caption"]


@pytest.mark.slow
def test_the_zip_file_has_the_originals_and_a_table(
    open_page: Callable[..., Any], album_server: str, tmp_path: Path
) -> None:
    page = open_page("#text=view", server=album_server)
    select(page, 0)
    page.click("#selection >> text=All shown")
    page.wait_for_selector("#selection >> text=12 items selected")
    with page.expect_download() as download:
        page.click("#selection >> text=Pictures (zip)")
        page.wait_for_selector("#toast >> text=12 pictures and selection.csv")
    download.value.save_as(tmp_path / "pictures.zip")
    with zipfile.ZipFile(tmp_path / "pictures.zip") as archive:
        assert archive.testzip() is None
        rows = list(csv.DictReader(io.StringIO(archive.read("selection.csv").decode("utf-8-sig"), newline="")))
        assert sorted(archive.namelist()) == sorted([row["file"] for row in rows] + ["selection.csv"])
        for row in rows:
            assert archive.read(row["file"]) == Path(row["path"]).read_bytes()
    assert len({row["file"].lower() for row in rows}) == 12
    assert {"view.jpg", "view (2).jpg"} <= {row["file"] for row in rows}


@pytest.mark.slow
def test_a_zip_file_has_bounds(open_page: Callable[..., Any], album_server: str) -> None:
    page = open_page("#text=view", server=album_server, foreseen=True)
    large = {"content-length": "500000001", "content-type": "image/jpeg"}
    page.route("**/image", lambda route: route.fulfill(status=200, headers=large, body=b""))
    select(page, 0)
    page.click("#selection >> text=Pictures (zip)")
    page.wait_for_selector("#toast >> text=A zip file may hold 500 MB")
    page.unroute("**/image")
    page.route("**/image", lambda route: route.fulfill(status=404, body="{}"))
    page.click("#selection >> text=Pictures (zip)")
    page.wait_for_selector("#toast >> text=None of these items")


@pytest.mark.slow
def test_names_in_a_zip_file_differ_on_every_system(open_page: Callable[..., Any]) -> None:
    names = {
        "a.jpg": "a.jpg",
        "A.JPG": "A (2).JPG",
        "a (2).jpg": "a (2) (2).jpg",
        ".hidden": "_hidden",
        "..": "_",
        "": "picture",
        "x/y:z.png": "x_y_z.png",
        "no ending": "no ending",
        "NO ENDING": "NO ENDING (2)",
        "selection.csv": "selection (2).csv",
        "é.webp": "é.webp",
    }
    made = open_page().evaluate(
        """async (names) => {
            const { freeName } = await import("/export.js"), taken = new Set(["selection.csv"]);
            return names.map((name) => freeName(name, taken));
        }""",
        list(names),
    )
    assert made == list(names.values())


@pytest.mark.slow
def test_sizes_are_told_in_a_fitting_unit(open_page: Callable[..., Any], album_server: str) -> None:
    page = open_page("#item=1", shows="#box .exif", server=album_server)
    page.wait_for_selector("#box .exif dd >> text= kB")  # the size comes after the picture
    assert "320 × 240" in page.locator("#box .exif").inner_text()
    kilobytes = int(page.locator("#box .exif dd").first.inner_text().split(", ")[1].removesuffix(" kB"))
    assert 5 < kilobytes < 200
    sizes = [0, 1, 999, 1000, 41_400, 999_499, 999_500, 1_000_000, 9_949_999, 9_950_000, 10_000_001, 12_345_678_901]
    written = page.evaluate("async (sizes) => sizes.map((await import('/tools.js')).sizeOf)", sizes)
    assert written[:4] == ["0 bytes", "1 byte", "999 bytes", "1 kB"]
    assert written[4:8] == ["41 kB", "999 kB", "1.0 MB", "1.0 MB"]
    assert written[8:] == ["9.9 MB", "10 MB", "10 MB", "12,346 MB"]


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_several_items_are_labeled_and_deleted(open_writable: Callable[..., Any], phone: bool) -> None:
    page = open_writable(TOKEN, shows="#writer:not([hidden])", **(PHONE if phone else {}))
    shows(page, 48)
    for place in (0, 1, 2):
        page.locator("#grid .tick").nth(place).dispatch_event("click")
    page.wait_for_selector("#selection >> text=3 items selected")
    page.click("#selection >> text=Labels")
    page.fill("#selection input", "best; seen twice")
    bar = page.locator("#selection").bounding_box()
    assert bar["x"] >= 0
    assert bar["x"] + bar["width"] <= page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.click("#selection button[value=add]")
    page.wait_for_selector("#toast >> text=Changed the labels of 3 items")
    page.wait_for_selector("#label option[value=best]", state="attached")
    with page.expect_download() as download:
        page.click("#selection >> text=CSV")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"), newline="")))
    assert [row["labels"].split(";")[-2:] for row in rows] == [["best", "seen twice"]] * 3
    page.click("#undo")  # the message may have gone meanwhile
    page.wait_for_selector("#label option[value=best]", state="detached")
    page.click("#selection >> text=Delete")
    page.wait_for_selector("#toast >> text=Removed 3 items")
    status(page, "59 items")
    assert page.locator("#selection").is_hidden()
    page.click("#toast >> text=Undo")
    status(page, "62 items")


@pytest.mark.slow
def test_pictures_are_added_by_drop(
    open_writable: Callable[..., Any], draw: Callable[..., bytes], tmp_path: Path
) -> None:
    files = []
    for color in ("green", "red"):
        files.append(tmp_path / f"dropped {color}.png")
        files[-1].write_bytes(draw(color, "circle") + b"dropped")
    page = open_writable(shows=None)
    held = hold(page, "**/api/stats", "**/api/facets")
    address = page.url
    page.goto("about:blank")
    page.goto(f"{address}{TOKEN}")
    shows(page, 48)
    session = page.context.new_cdp_session(page)

    def drag(kind: str, x: float, y: float) -> None:
        data = {"items": [], "files": list(map(str, files)), "dragOperationsMask": 1}
        session.send("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": data})

    drag("dragEnter", 600, 400)
    page.wait_for_selector("#drop:not([hidden])")
    assert page.locator("#drop-add").is_hidden()  # whether one may write is not known yet
    held["**/api/stats"].continue_()  # what there is to filter by stays unknown
    for address in held:
        page.unroute(address)
    page.wait_for_selector("#drop-add:not([hidden])")
    place = page.locator("#drop-add").bounding_box()
    middle = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    drag("dragOver", *middle)
    drag("drop", *middle)
    page.wait_for_selector("#toast >> text=Added 2 pictures")
    status(page, "64 items")
    assert page.locator("#drop").is_hidden()
    page.select_option("#order", "added")
    page.wait_for_function("() => document.querySelector('.card')?.title === 'dropped red.png'")
    assert labels_of(page, 2) == ["dropped red.png", "dropped green.png"]


@pytest.mark.slow
def test_a_message_stays_while_it_is_used(open_writable: Callable[..., Any]) -> None:
    page = open_writable(shows=None)
    page.clock.install()
    address = page.url
    page.goto("about:blank")
    page.goto(f"{address}{TOKEN}")
    page.wait_for_selector("#writer:not([hidden])")
    shows(page, 48)
    held = hold(page, "**/api/facets")
    page.locator("#grid .tick").first.dispatch_event("click")
    with page.expect_request("**/api/facets"):
        page.click("#selection >> text=Delete")
    page.wait_for_selector("#toast >> text=Removed 1 item")
    page.clock.fast_forward(60_000)
    assert page.locator("#toast").is_visible()  # what was removed is still on the screen
    held["**/api/facets"].continue_()
    status(page, "61 items")
    page.hover("#toast")
    page.clock.fast_forward(60_000)
    assert page.locator("#toast").is_visible()
    page.mouse.move(5, 5)
    page.clock.fast_forward(60_000)
    page.wait_for_selector("#toast", state="hidden")


@pytest.mark.slow
def test_writing_on_a_phone(open_writable: Callable[..., Any]) -> None:
    page = open_writable(shows="#unlock:not([hidden])", **PHONE)
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= 390
    page.fill("#token", TOKEN.partition("=")[2])
    page.locator("#unlock button").tap()
    page.wait_for_selector("#writer:not([hidden])")
    page.locator(".card").first.tap()
    page.locator("#box >> text=Edit").tap()
    page.fill("#edit-text", "written with a thumb")
    assert page.evaluate(width) <= 390
    page.locator("#box >> text=Save").tap()
    page.wait_for_selector("#box .whole >> text=written with a thumb")
    page.locator("#toast >> text=Undo").tap()
    page.locator("#box [data-key=close]").tap()
    page.wait_for_function("() => document.querySelector('.card').title.startsWith('a red circle')")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_nothing_where_one_may_write(
    open_writable: Callable[..., Any], optional: Callable[[str], ModuleType], width: int
) -> None:
    axe = optional("axe_playwright_python.sync_playwright")
    options = {"width": width, "bypass_csp": True, "color_scheme": "dark"}

    def check() -> None:
        results = axe.Axe().run(page).response
        assert {each["id"]: [node["html"][:200] for node in each["nodes"][:3]] for each in results["violations"]} == {}
        assert len(results["passes"]) > 15

    page = open_writable(shows="#unlock:not([hidden])", **options)
    check()
    page = open_writable(TOKEN, shows="#writer:not([hidden])", **options)
    shows(page, 48)
    page.locator("#grid .tick").first.dispatch_event("click")
    page.click("#selection >> text=Labels")
    check()
    page.locator(".card").nth(1).click()
    page.click("#box >> text=Edit")
    page.wait_for_selector("#box form.edit:not([hidden])")
    check()
