"""The page in a real browser: typing, clicking, dropping, pasting, the keyboard, a phone, and what goes wrong."""

from __future__ import annotations

import base64
import io
import os
import shutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest

REQUIRED = os.environ.get("FUSEHASH_REQUIRE") == "all"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SEND_FILE = """([content, kind, how]) => {
    const common = { bubbles: true, cancelable: true };
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "given", { type: kind }));
    if (how === "paste") {
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, ...common }));
    } else {
        for (const name of ["dragenter", "dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, ...common }));
        }
    }
}"""


@pytest.fixture(scope="module")
def browser(optional: Callable[[str], ModuleType]) -> Iterator[Any]:
    """Chromium, as this machine has it."""
    playwright = optional("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if REQUIRED:
            pytest.fail("chromium is required (FUSEHASH_REQUIRE=all) and is not installed")
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, served: str) -> Iterator[Callable[..., Any]]:
    """`open_page("#text=red")`: the page, once it shows something; nothing may go wrong on it unless foreseen."""
    problems: list[str] = []
    contexts: list[Any] = []

    def opened(
        address: str = "", *, shows: str | None = ".card", foreseen: bool = False, width: int = 1200, **options: Any
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)

        def look(request: Any) -> None:
            parts = urlsplit(request.url)
            if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}/" != served:
                problems.append(f"asked elsewhere: {request.url}")

        page.on("request", look)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        if not foreseen:
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(served + address)
        if shows:
            page.wait_for_selector(shows)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


def status(page: Any, expected: str) -> None:
    """Wait until the live region says so."""
    page.wait_for_function("expected => document.getElementById('status').textContent.includes(expected)", arg=expected)


def labels_of(page: Any, count: int) -> list[str]:
    return [str(page.locator(".card").nth(i).get_attribute("title")) for i in range(count)]


def test_type_and_find(open_page: Callable[..., Any]) -> None:
    page = open_page()
    status(page, "62 items")
    page.fill("#text", "a green triangle on the left")
    page.keyboard.press("Enter")
    status(page, "24 results")
    assert labels_of(page, 1) == ["a green triangle on the left"]
    assert page.url.endswith("#text=a+green+triangle+on+the+left")
    assert page.title().startswith("a green triangle")
    assert "bits differ" in page.locator(".card .count").first.inner_text()
    # The strip of each result shows as many differing bits as it tells.
    count = int(page.locator(".card .count b").nth(5).inner_text())
    drawn = page.evaluate(
        """() => [...document.querySelectorAll(".card")][5].querySelectorAll(".off, .off-zero").values()
            .reduce((sum, path) => sum + path.getAttribute("d").split("M").length - 1, 0)"""
    )
    assert drawn == count
    assert f"{count} of 64 bits differ" in str(page.locator(".card .strip").nth(5).get_attribute("aria-label"))


@pytest.mark.slow
def test_click_to_find_more_and_go_back(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+blue+square+on+the+left")
    page.wait_for_selector("#query:not([hidden])")
    first = page.locator(".card").first
    wanted, title = first.get_attribute("href"), first.get_attribute("title")
    first.click()
    page.wait_for_selector("#query img.seen")
    assert page.url.endswith(str(wanted))
    assert page.locator("#query .main").inner_text() == title
    page.go_back()
    page.wait_for_selector("#query >> text=“a blue square on the left”")
    assert page.input_value("#text") == "a blue square on the left"
    page.go_forward()
    page.wait_for_selector("#query img.seen")
    page.reload()
    page.wait_for_selector("#query img.seen")
    assert page.url.endswith(str(wanted))


@pytest.mark.parametrize(
    "how", ["drop", pytest.param("paste", marks=pytest.mark.slow), pytest.param("button", marks=pytest.mark.slow)]
)
def test_search_by_image(open_page: Callable[..., Any], draw: Callable[..., bytes], how: str) -> None:
    page = open_page("#tab=collection" if how == "drop" else "", shows=".facts" if how == "drop" else ".card")
    image = draw("yellow", "triangle", "on the left")
    if how == "button":
        with page.expect_file_chooser() as chooser:
            page.click("#pick")
        chooser.value.set_files({"name": "given.png", "mimeType": "image/png", "buffer": image})
    else:
        page.evaluate(SEND_FILE, [base64.b64encode(image).decode(), "image/png", how])
    page.wait_for_selector("#query img.seen")
    assert "a yellow triangle on the left" in labels_of(page, 6)
    assert "#image=" in page.url
    assert page.locator("#drop").is_hidden()
    page.select_option("#label", "square")
    status(page, "with the label “square”")
    assert all("square" in label for label in labels_of(page, 3))
    page.go_back()
    status(page, "24 results")
    page.reload()  # the image is gone, its code is not
    page.wait_for_selector("#query >> text=its code is what is left")
    assert page.locator(".card").count() == 24


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
    status(page, "24 results")
    assert page.locator("#message").is_hidden()


@pytest.mark.slow
def test_keyboard_alone(open_page: Callable[..., Any]) -> None:
    page = open_page()
    focused = "document.activeElement.id || [...document.querySelectorAll('.card')].indexOf(document.activeElement)"
    page.keyboard.press("/")
    assert page.evaluate(focused) == "text"
    page.keyboard.type("a red/square on the left")  # a slash in the box is a slash
    page.keyboard.press("Enter")
    status(page, "24 results")
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
    page.keyboard.press("End")
    assert page.evaluate(focused) == 23
    page.keyboard.press("Home")
    assert page.evaluate(focused) == 0
    page.keyboard.press("Enter")
    page.wait_for_selector("#query img.seen")
    page.wait_for_function("() => document.activeElement.classList.contains('card')")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "text"
    page.keyboard.press("Escape")
    status(page, "62 items")
    assert page.locator("#query").is_hidden()
    assert page.evaluate(focused) == "text"


@pytest.mark.slow
def test_label_filter(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+red+shape")
    page.select_option("#label", "triangle")
    status(page, "20 results with the label “triangle”")
    assert all("triangle" in label for label in labels_of(page, 20))
    assert "label=triangle" in page.url
    page.locator(".card").first.click()
    status(page, "19 results with the label")
    page.select_option("#label", "")
    status(page, "24 results")


@pytest.mark.slow
def test_more_results(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=circle")
    for expected in (48, 62):
        page.click("#more")
        status(page, f"{expected} results")
    assert page.locator("#more").is_hidden()
    page = open_page()
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 48")


@pytest.mark.slow
def test_collection_tab(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.click("#tab-collection")
    page.wait_for_selector(".charts svg")
    assert page.locator(".charts svg").count() == 2
    assert page.locator(".charts svg").first.locator("rect").count() == 64
    assert page.locator(".facts dd").first.inner_text() == "62"
    sizes = [int(text.split()[0]) for text in page.locator(".group header span").all_inner_texts()]
    assert sum(sizes) == 62
    page.locator(".film a").first.click()
    page.wait_for_selector("#query:not([hidden])")
    page.go_back()
    page.wait_for_selector(".charts svg")
    assert page.get_attribute("#tab-collection", "aria-current") == "page"


@pytest.mark.slow
def test_text_is_never_markup(open_page: Callable[..., Any]) -> None:
    page = open_page("#label=note")
    assert "<script>alert(1)</script>" in page.locator(".card blockquote").inner_text()
    assert "<b>note</b>" in page.locator(".card .caption").inner_text()
    page = open_page("#text=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E+red", shows="#query .main")
    assert "<img src=x" in page.locator("#query .main").inner_text()


@pytest.mark.slow
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
    status(page, "24 results")


@pytest.mark.slow
def test_waiting_is_shown(open_page: Callable[..., Any]) -> None:
    page = open_page()
    held: list[Any] = []
    page.route("**/api/search*", lambda route: held.append(route))
    page.fill("#text", "red")
    page.keyboard.press("Enter")
    page.wait_for_selector("#grid.stale")
    status(page, "Searching")
    assert page.get_attribute("#grid", "aria-busy") == "true"
    held[0].continue_()
    status(page, "24 results")
    assert page.locator("#grid.stale").count() == 0


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
    page.wait_for_selector("#query >> text=“a blue circle in the middle”")
    for route in held:  # the page may have given up the request itself
        route.abort()
    page.wait_for_timeout(200)  # for what must not happen
    assert "blue circle" in page.locator("#query .main").inner_text()
    assert page.locator("#message").is_hidden()


@pytest.mark.slow
def test_phone(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+red+circle+on+the+left", width=390, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".card").first.bounding_box()["width"] < 190
    page.locator(".card").first.tap()
    page.wait_for_selector("#query img.seen")
    page.locator("#tab-collection").tap()
    page.wait_for_selector(".charts svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for button in ("#pick", "#theme"):
        assert page.locator(button).bounding_box()["height"] >= 38


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
def test_every_control_has_a_name(open_page: Callable[..., Any]) -> None:
    page = open_page("#like=1")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input:not([hidden]), select, img, svg.strip")]
            .filter((node) => node.offsetParent !== null || node.tagName === "svg")
            .filter((node) => !(node.getAttribute("aria-label") || node.getAttribute("alt") !== null
                || node.textContent.trim() || node.closest("label")))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []
    stops = page.locator(".card[tabindex='0']").count()
    assert stops == 1  # one stop of the Tab key for the whole grid


@pytest.mark.slow
def test_docs_page(open_page: Callable[..., Any]) -> None:
    page = open_page("api/docs", shows="article")
    assert page.locator("article").count() >= 10
    assert page.locator("article", has_text="/api/items/{id}/thumbnail").count() == 1


@pytest.mark.slow
def test_the_legend_has_every_color_of_a_strip(open_page: Callable[..., Any]) -> None:
    page = open_page("#text=a+blue+square+on+the+left")
    page.wait_for_selector(".strip .off-zero")
    colors = page.evaluate(
        """() => {
            const all = (selector, color) => [...new Set([...document.querySelectorAll(selector)].map(color))].sort();
            return [
                all(".strip path", (path) => getComputedStyle(path).fill),
                all(".legend span", (span) => getComputedStyle(span, "::before").backgroundColor),
            ];
        }"""
    )
    assert colors[0] == colors[1]
    assert len(colors[0]) == 4
    scores = [float(text.split()[1]) for text in page.locator(".card .count span:last-child").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 24


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
