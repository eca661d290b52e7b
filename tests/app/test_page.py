"""The page in a real browser: searches, the lightbox, filters, the keyboard, a phone, what goes wrong."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from datetime import date
from types import ModuleType
from typing import Any

import pytest

from browsing import SEND_FILE, hold, labels_of, shows, status
from fusehash.collection.queries.language import Clause, parse


def test_type_and_find(open_page: Callable[..., Any]) -> None:
    page = open_page()
    status(page, "62 items")
    page.fill("#text", "a green triangle on the left")
    page.keyboard.press("Enter")
    status(page, "1 caption has all words, of 62 items")
    assert labels_of(page, 1) == ["a green triangle on the left"]
    assert page.url.endswith("#text=a+green+triangle+on+the+left")
    assert page.title().startswith("a green triangle")
    assert page.locator(".legend, .card .strip").count() == 0  # bits are behind "Why this?"
    assert page.locator(".card mark").all_inner_texts()[:3] == ["green", "triangle", "left"]
    scores = [int(text.split()[0]) for text in page.locator(".card .score").all_inner_texts()]
    assert scores[0] == 100
    assert scores == sorted(scores, reverse=True)
    page.click("#clear")
    status(page, "62 items")
    assert page.input_value("#text") == ""


@pytest.mark.slow
def test_words_that_no_caption_has_are_said(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+red+castle")
    page.wait_for_selector("#note >> text=No caption contains “castle”; showing what looks closest.")
    page.fill("#text", "red -circle label:square")
    page.keyboard.press("Enter")
    status(page, "of 20 items")
    assert page.locator("#note").is_hidden()
    assert all("circle" not in label for label in labels_of(page, 10))


@pytest.mark.slow
def test_lightbox(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+blue+square+on+the+left")
    first = page.locator(".card").first
    title = first.get_attribute("title")
    first.click()
    page.wait_for_selector("#box[open] .exif")
    assert page.locator("#box .whole").inner_text() == title
    assert "item=" in page.url
    page.click("#box .why summary")
    assert "Its caption has exactly the words of the query" in page.locator("#box .why").inner_text()
    differing = int(page.locator("#box .why .note").inner_text().split()[0])
    drawn = page.evaluate(
        """() => [...document.querySelectorAll("#box .off, #box .off-zero")]
            .reduce((sum, path) => sum + path.getAttribute("d").split("M").length - 1, 0)"""
    )
    assert drawn == differing
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#box >> text=2 of ")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#box >> text=1 of ")
    page.keyboard.press("z")
    page.wait_for_selector("#box .stage.zoomed")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.getElementById('box').open && !location.hash.includes('item=')")
    first.click()
    page.wait_for_selector("#box[open]")
    page.go_back()
    page.wait_for_function("() => !document.getElementById('box').open")
    assert page.url.endswith("#text=a+blue+square+on+the+left")
    first.click()
    page.click("#box >> text=More like this")
    page.wait_for_selector("#query img.seen")
    assert not page.evaluate("document.getElementById('box').open")
    assert "#like=" in page.url
    page.locator(".card").first.click()
    page.click("#box >> text=Less like this")
    page.wait_for_selector("#query >> text=Less like")
    page.locator("#query >> text=Remove").last.click()
    page.wait_for_function("() => !location.hash.includes('unlike')")
    page.reload()
    page.wait_for_selector("#query img.seen")


@pytest.mark.slow
def test_originals_are_shown_with_their_paths(
    open_page: Callable[..., Any], photo_server: str, photo_folder: Any
) -> None:
    page = open_page("#item=1", shows="#box img.full", server=photo_server)
    page.wait_for_function("() => document.querySelector('#box img.full')?.naturalWidth === 640")
    assert page.locator("#box .path code").inner_text() == str(photo_folder / "blue0.png")
    page.click("#box .path button")
    page.wait_for_selector("#box >> text=Copied")
    page.wait_for_selector("#box h3 >> text=near-duplicate")
    page.goto(f"{photo_server}#tab=duplicates")
    page.wait_for_selector(".group .film a")


@pytest.mark.slow
def test_details_that_come_late_leave_the_picture_as_it_is(open_page: Callable[..., Any], photo_server: str) -> None:
    page = open_page(server=photo_server, foreseen=True)
    held = hold(page, "**/details")
    page.route("**/image", lambda route: route.fulfill(status=404, body="{}"))
    with page.expect_request("**/details"):
        page.locator(".card").first.click()
    page.wait_for_selector("#box .gone")
    page.locator("#box img.full").click()
    page.wait_for_selector("#box .stage.zoomed")
    page.focus("#box .stage")
    page.keyboard.press("End")
    top = "document.querySelector('#box .stage').scrollTop"
    still = f"new Promise((done) => setTimeout(() => done({top}), 300))"
    page.wait_for_function(f"async () => {top} > 0 && {top} === await {still}")  # keys scroll smoothly
    before = page.evaluate(top)
    held["**/details"].continue_()
    page.wait_for_selector("#box h3 >> text=near-duplicate")
    assert page.evaluate(top) == before
    assert page.evaluate("document.activeElement.className") == "stage zoomed"
    assert page.locator("#box .gone").count() == 1


@pytest.mark.parametrize(
    "how", ["drop", pytest.param("paste", marks=pytest.mark.slow), pytest.param("button", marks=pytest.mark.slow)]
)
def test_search_by_image(open_page: Callable[..., Any], draw: Callable[..., bytes], how: str) -> None:
    page = open_page("#tab=collection" if how == "drop" else "", shows=".facts" if how == "drop" else ".card")
    image = draw("yellow", "triangle", "on the left") + (b"" if how == "drop" else b" ")
    if how == "button":
        with page.expect_file_chooser() as chooser:
            page.click("#pick")
        chooser.value.set_files({"name": "given.png", "mimeType": "image/png", "buffer": image})
    else:
        page.evaluate(SEND_FILE, [base64.b64encode(image).decode(), "image/png", how])
    page.wait_for_selector("#query img.seen")
    assert "a yellow triangle on the left" in labels_of(page, 6)
    assert page.locator("#drop").is_hidden()
    if how == "drop":  # it is in the collection
        assert labels_of(page, 1) == ["a yellow triangle on the left"]
        assert page.locator(".card .score").first.inner_text() == "same picture"
    before = labels_of(page, 20)
    page.reload()
    page.wait_for_selector("#query img.seen")
    assert labels_of(page, 20) == before
    page.select_option("#label", "square")
    status(page, "20 items")
    assert all("square" in label for label in labels_of(page, 3))


@pytest.mark.slow
def test_what_is_no_image(open_page: Callable[..., Any]) -> None:
    page = open_page("#tab=collection", shows=".charts svg", foreseen=True)
    page.evaluate(SEND_FILE, [base64.b64encode(b"words").decode(), "text/plain", "drop"])
    page.wait_for_selector("#message >> text=drop an image file")
    page.click("#tab-collection")
    page.wait_for_selector(".charts svg")
    page.evaluate(SEND_FILE, [base64.b64encode(b"<svg/>").decode(), "image/svg+xml", "drop"])
    page.wait_for_selector("#message >> text=It is something else")
    page.evaluate(SEND_FILE, [base64.b64encode(bytes(10_000_001)).decode(), "image/png", "drop"])
    page.wait_for_selector("#message >> text=at most 10 MB")
    page.fill("#text", "a red circle on the left")
    page.keyboard.press("Enter")
    status(page, "of 62 items")
    assert page.locator("#message").is_hidden()


@pytest.mark.slow
def test_keyboard_alone(open_page: Callable[..., Any]) -> None:
    page = open_page()
    focused = "document.activeElement.id || [...document.querySelectorAll('.card')].indexOf(document.activeElement)"
    page.keyboard.press("/")
    assert page.evaluate(focused) == "text"
    page.keyboard.type("a red/square on the left")  # a slash in the box is a slash
    page.keyboard.press("Enter")
    status(page, "of 62 items")
    assert page.input_value("#text") == "a red/square on the left"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == 0
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == 1
    page.keyboard.press("ArrowDown")
    below = page.evaluate(focused)
    assert below > 2
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == below - 1
    page.keyboard.press("x")
    page.wait_for_selector("#selection >> text=1 item selected")
    page.keyboard.press("Home")
    assert page.evaluate(focused) == 0
    page.keyboard.press("Enter")
    page.wait_for_selector("#box[open] .exif")
    page.keyboard.press("Escape")
    page.wait_for_function("() => document.activeElement.classList.contains('card')")
    page.keyboard.press("m")
    page.wait_for_selector("#query img.seen")
    page.wait_for_function("() => document.activeElement.classList.contains('card')")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "text"
    page.keyboard.press("Escape")
    page.locator("#query").wait_for(state="hidden")
    status(page, "62 items")
    assert page.evaluate(focused) == "text"


@pytest.mark.slow
def test_filters_and_order(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+red+shape")
    page.select_option("#label", "triangle")
    status(page, "20 items")
    assert all("triangle" in label for label in labels_of(page, 20))
    assert "label=triangle" in page.url
    page.select_option("#caption", "false")
    page.click("#message >> text=Clear filters")
    status(page, "62 items")
    page.click("#clear")
    page.select_option("#order", "added")
    page.wait_for_function("() => document.querySelector('.card')?.title === 'wordless.png'")
    page.reload()
    page.wait_for_function("() => document.querySelector('.card')?.title === 'wordless.png'")


@pytest.mark.slow
def test_more_results_come_by_scrolling(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=circle", height=500)
    shows(page, 48)
    page.mouse.wheel(0, 20_000)
    shows(page, 62)
    assert page.locator("#more").is_hidden()
    titles = page.evaluate("[...document.querySelectorAll('.card')].map((card) => card.href.split('item=')[1])")
    assert len(set(titles)) == 62


@pytest.mark.slow
def test_collection_tab(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.click("#tab-collection")
    page.wait_for_selector(".charts svg")
    assert page.locator(".charts svg").count() == 2
    assert page.locator(".charts svg").first.locator("rect").count() == 64
    assert page.locator(".facts dd").first.inner_text() == "62"
    sizes = [int(text.split()[0]) for text in page.locator(".group header span:last-child").all_inner_texts()]
    assert sum(sizes) == 62
    page.locator(".film a").first.click()
    page.wait_for_selector("#box[open] .exif")
    page.go_back()
    page.wait_for_function("() => !document.getElementById('box').open")
    assert page.get_attribute("#tab-collection", "aria-current") == "page"


@pytest.mark.slow
def test_text_is_never_markup(open_page: Callable[..., Any]) -> None:
    page = open_page("#label=note")
    assert "<script>alert(1)</script>" in page.locator(".card blockquote").inner_text()
    page = open_page("#text=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E+red")
    page.wait_for_selector("#note >> text=“img”")
    page.locator(".card", has_text="<script>").first.click()
    page.wait_for_selector("#box .whole >> text=a <script>alert(1)</script> red circle & nothing but text")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("circle+label:nonexistent", "No item has the label “nonexistent”."),
        ("circle+after:2999-01-01", "No item has what the query asks for."),
    ],
)
def test_a_query_that_no_item_fits(open_page: Callable[..., Any], query: str, message: str) -> None:
    page = open_page(f"#text={query}", shows="#message:not([hidden])")
    page.wait_for_selector(f"#message >> text={message}")
    page.click("#message >> text=Clear the search")
    status(page, "62 items")


@pytest.mark.slow
def test_help(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=red")
    page.keyboard.press("?")
    page.wait_for_selector("#help")
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")
    assert page.url.endswith("#text=red")  # Escape has closed the help, not the search
    page.focus("#text")
    page.keyboard.type(" boat?")
    assert page.locator("#help").is_hidden()
    page.click("#ask")
    page.wait_for_selector("#help")
    examples = page.locator("#help dl").first.locator("dt").all_inner_texts()
    meant = [
        (Clause("a boat at sunset"),),
        (Clause("old town", phrases=("old town",)),),
        (Clause("boat", excluded=("people",)),),
        (Clause(labels=("beach",)),),
        (Clause(after=date(2019, 1, 1), before=date(2020, 6, 1)),),
        (Clause("red car"), Clause("blue bus")),
    ]
    assert [parse(example) for example in examples] == meant
    page.click("#help [aria-label=Close]")
    page.locator("#help").wait_for(state="hidden")


def test_nothing_found(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=qqqzzz", shows="#message:not([hidden])", foreseen=True)
    assert "None of the words" in page.locator("#message").inner_text()
    page = open_page("#like=4711", shows="#message:not([hidden])", foreseen=True)
    assert "There is no item" in page.locator("#message").inner_text()
    page = open_page("#label=none", shows="#message:not([hidden])")
    assert "Nothing found" in page.locator("#message").inner_text()


@pytest.mark.slow
def test_server_that_fails_and_comes_back(open_page: Callable[..., Any]) -> None:
    page = open_page(foreseen=True)
    page.route("**/api/search*", lambda route: route.abort())
    page.fill("#text", "red")
    page.keyboard.press("Enter")
    page.wait_for_selector("#message.wrong >> text=does not answer")
    page.unroute("**/api/search*")
    page.route("**/api/search*", lambda route: route.fulfill(status=502, body="<html>"))
    page.click("#message button")
    page.wait_for_selector("#message.wrong >> text=cannot be read")
    page.unroute("**/api/search*")
    page.click("#message button")
    status(page, "of 62 items")


@pytest.mark.slow
def test_waiting_is_shown(open_page: Callable[..., Any]) -> None:
    page = open_page()
    held: list[Any] = []
    page.route("**/api/search*", lambda route: held.append(route))
    page.fill("#text", "red")
    with page.expect_request("**/api/search*"):
        page.keyboard.press("Enter")
    page.wait_for_selector("#grid.stale")
    status(page, "Searching")
    assert page.get_attribute("#grid", "aria-busy") == "true"
    held[0].continue_()
    status(page, "of 62 items")
    assert page.locator("#grid.stale").count() == 0


@pytest.mark.slow
def test_a_slow_first_load_shows_a_skeleton(open_page: Callable[..., Any]) -> None:
    page = open_page(shows=None)
    page.goto("about:blank")
    held: list[Any] = []
    page.route("**/api/items?*", lambda route: held.append(route))
    with page.expect_request("**/api/items?*"):
        page.go_back()
    page.wait_for_selector("#grid .ghost")
    assert page.locator("#grid .ghost").count() == 12
    assert page.get_attribute("#grid", "aria-busy") == "true"
    size = page.locator("#grid .ghost").first.bounding_box()
    for route in held:
        route.continue_()
    shows(page, 48)
    assert page.locator("#grid .ghost").count() == 0
    assert page.get_attribute("#grid", "aria-busy") is None
    card = page.locator("#grid > li").first.bounding_box()
    assert (card["x"], card["y"], card["width"]) == (size["x"], size["y"], size["width"])


@pytest.mark.slow
def test_folders_and_years(open_page: Callable[..., Any], album_server: str) -> None:
    page = open_page(server=album_server)
    status(page, "12 items")
    options = "id => [...document.getElementById(id).options].map((option) => option.text)"
    page.wait_for_selector("#year option:nth-child(4)", state="attached")
    assert page.evaluate(options, "year") == ["any", "2021 (4)", "2020 (4)", "2019 (4)"]
    assert page.evaluate(options, "folder")[0] == "any"
    page.select_option("#year", "2020")
    status(page, "4 items")
    assert {title[-1] for title in labels_of(page, 4)} == set("4567")
    [hills] = [text for text in page.evaluate(options, "folder") if text.startswith("hills (")]
    page.select_option("#folder", label=hills)
    status(page, "3 items")  # in it and below it
    assert {title[-1] for title in labels_of(page, 3)} == set("457")
    page.fill("#text", "north view")
    page.keyboard.press("Enter")
    status(page, "of 3 items")
    page.reload()
    status(page, "of 3 items")
    assert page.input_value("#year") == "2020"
    page.click("#unfilter")
    status(page, "of 12 items")
    page.click("#clear")
    page.select_option("#order", "newest")
    page.wait_for_function("() => document.querySelector('.card')?.title.endsWith('number11')")


@pytest.mark.slow
def test_zoom(open_page: Callable[..., Any], album_server: str) -> None:
    page = open_page("#item=1", shows="#box img.full", server=album_server)
    page.wait_for_function("() => document.querySelector('#box img.full').naturalWidth === 320")
    image, stage = page.locator("#box img.full"), page.locator("#box .stage")
    before, room = image.bounding_box(), stage.bounding_box()
    image.click()
    page.wait_for_selector("#box .stage.zoomed")
    after = image.bounding_box()
    assert after["width"] > 1.4 * room["width"] > before["width"]
    assert after["width"] / after["height"] == pytest.approx(before["width"] / before["height"], rel=0.01)
    page.focus("#box .stage")
    page.keyboard.press("End")
    top = "document.querySelector('#box .stage').scrollTop"
    page.wait_for_function(f"() => {top} > 0")  # all of it can be reached
    image.click()
    page.wait_for_selector("#box .stage:not(.zoomed)")
    assert image.bounding_box() == before
    page.click("#box [data-key=zoom]")
    page.wait_for_selector("#box .stage.zoomed")


@pytest.mark.slow
def test_a_late_answer_does_not_replace_a_newer_one(open_page: Callable[..., Any]) -> None:
    page = open_page()
    held: list[Any] = []
    page.route("**/api/search*red*", lambda route: held.append(route))
    page.fill("#text", "red")
    page.keyboard.press("Enter")
    page.wait_for_selector("#grid.stale")
    page.fill("#text", "a blue circle in the middle")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.card')?.title === 'a blue circle in the middle'")
    for route in held:  # the page may have given up the request itself
        route.abort()
    page.wait_for_timeout(200)  # for what must not happen
    assert labels_of(page, 1) == ["a blue circle in the middle"]
    assert page.locator("#message").is_hidden()


@pytest.mark.slow
def test_phone(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+red+circle+on+the+left", width=390, has_touch=True, is_mobile=True)
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= 390
    page.locator("#ask").tap()
    box = page.locator("#help").bounding_box()
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    page.locator("#help [aria-label=Close]").tap()
    assert page.locator(".card").first.bounding_box()["width"] < 190
    page.locator(".card").first.tap()
    page.wait_for_selector("#box[open] .exif")
    assert page.evaluate(width) <= 390
    stage = page.locator("#box .stage").bounding_box()
    assert stage["width"] <= 390
    swipe = """([from, to]) => {
        const stage = document.querySelector("#box .stage img");
        const touch = (x) => new Touch({ identifier: 1, target: stage, clientX: x, clientY: 300 });
        const common = { bubbles: true, cancelable: true };
        stage.dispatchEvent(new TouchEvent("touchstart", { touches: [touch(from)], ...common }));
        stage.dispatchEvent(new TouchEvent("touchend", { changedTouches: [touch(to)], ...common }));
    }"""
    page.evaluate(swipe, [300, 100])
    page.wait_for_selector("#box >> text=2 of ")
    page.evaluate(swipe, [100, 300])
    page.wait_for_selector("#box >> text=1 of ")
    page.locator("#box [data-key=close]").tap()
    page.wait_for_function("() => !document.getElementById('box').open")
    page.locator("#tab-collection").tap()
    page.wait_for_selector(".charts svg")
    assert page.evaluate(width) <= 390
    for button in ("#pick", "#theme"):
        assert page.locator(button).bounding_box()["height"] >= 38


@pytest.mark.slow
def test_a_wide_screen_is_used(open_page: Callable[..., Any]) -> None:
    page = open_page(width=2200)
    boxes = [page.locator(".card").nth(i).bounding_box() for i in range(20)]
    assert len({box["x"] for box in boxes}) >= 8


@pytest.mark.slow
def test_the_end_of_the_results_is_said(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=circle", height=500)
    assert page.evaluate("async () => (await (await fetch('/api/stats')).json()).limits.max_offset") == 20_000

    def bounded(route: Any) -> None:
        stats = route.fetch().json()
        route.fulfill(json={**stats, "limits": {**stats["limits"], "max_offset": 30}})

    page.route("**/api/stats", bounded)
    page.reload()
    page.wait_for_function("() => document.getElementById('name').textContent !== 'fusehash'")  # the server's report
    page.fill("#text", "a square")
    page.keyboard.press("Enter")
    page.wait_for_selector("#end >> text=These are the best 48 of 62 items.")
    assert page.locator("#more").is_hidden()
    page.click("#clear")  # a list has no such bound
    page.wait_for_selector("#end", state="hidden")
    page.mouse.wheel(0, 20_000)
    shows(page, 62)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "shows"),
    [
        ("#text=a+red+castle", ".card"),
        ("#text=red&item=1", "#box .exif"),
        ("", "#help"),
        ("#tab=collection", ".charts svg"),
        ("#tab=duplicates", "#collection-view h2"),
        ("api/docs", "article"),
    ],
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_axe_finds_nothing(
    open_page: Callable[..., Any],
    optional: Callable[[str], ModuleType],
    address: str,
    shows: str,
    scheme: str,
    width: int,
) -> None:
    axe = optional("axe_playwright_python.sync_playwright")
    opens_help = shows == "#help"
    start = ".card" if opens_help else shows
    page = open_page(address, shows=start, color_scheme=scheme, width=width, bypass_csp=True)
    if opens_help:
        page.click("#ask")
        page.wait_for_selector(shows)
    results = axe.Axe().run(page).response
    found = {each["id"]: [node["html"][:200] for node in each["nodes"][:3]] for each in results["violations"]}
    assert found == {}
    assert len(results["passes"]) > 15


@pytest.mark.slow
def test_the_page_is_small(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=red")
    sizes = page.evaluate(
        """() => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith(".js"))
            .map(({ name, decodedBodySize }) => [name, decodedBodySize])"""
    )
    assert len(sizes) >= 8
    assert sum(size for _, size in sizes) < 60_000, sizes
    assert page.locator("h1").count() == 1


@pytest.mark.slow
def test_dark_and_light(open_page: Callable[..., Any]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (open_page(color_scheme=scheme).evaluate(ground) for scheme in ("light", "dark"))
    assert light != dark
    page = open_page(color_scheme="light")
    page.click("#theme")
    assert page.evaluate(ground) == dark
    page.reload()
    page.wait_for_selector(".card")
    assert page.evaluate(ground) == dark
    page.click("#theme")
    assert page.evaluate(ground) == light


@pytest.mark.slow
def test_nothing_jumps(open_page: Callable[..., Any]) -> None:
    """Pictures come late without moving anything."""
    page = open_page(shows=None)
    page.route("**/thumbnail", lambda route: None)
    page.goto("about:blank")
    page.go_back()
    page.wait_for_selector(".card")
    before = page.locator(".card").nth(9).bounding_box()
    page.unroute("**/thumbnail")
    page.reload()
    page.wait_for_function("() => [...document.querySelectorAll('.card img')].slice(0, 8).every((one) => one.complete)")
    assert page.locator(".card").nth(9).bounding_box() == before


@pytest.mark.slow
def test_motion_is_reduced_where_asked(open_page: Callable[..., Any]) -> None:
    page = open_page(reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.querySelector('.card')).transitionDuration") in ("0s", "0s, 0s")


@pytest.mark.slow
def test_docs_page(open_page: Callable[..., Any]) -> None:
    page = open_page("api/docs", shows="article")
    assert page.locator("article").count() >= 10
    assert page.locator("article", has_text="/api/items/{id}/thumbnail").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_white_or_transparent_picture_lies_on_its_own_ground(open_page: Callable[..., Any], scheme: str) -> None:
    from PIL import Image, ImageDraw

    page = open_page(color_scheme=scheme)
    grounds = {page.locator(".well").first.evaluate("well => getComputedStyle(well).backgroundColor")}
    assert page.locator(".well.white").count() == 0  # the pictures of this collection have a gray edge
    clear = Image.new("RGBA", (60, 120), (0, 0, 0, 0))
    ImageDraw.Draw(clear).ellipse((15, 30, 45, 90), fill=(200, 30, 30, 255))
    file = io.BytesIO()
    clear.save(file, "PNG")
    page.evaluate(SEND_FILE, [base64.b64encode(file.getvalue()).decode(), "image/png", "drop"])
    page.wait_for_selector("#query img.seen.white")
    grounds.add(page.locator("img.seen").evaluate("image => getComputedStyle(image).backgroundColor"))
    assert "rgb(255, 255, 255)" in grounds
    assert len(grounds) == 2
