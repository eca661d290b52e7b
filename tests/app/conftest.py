"""A small collection of drawn pictures, an app on it, a server, and a browser, each made once."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest

from fusehash.collection import Collection, NewItem, read_folder

TOKEN = "a-token-for-tests-only"
REQUIRED = os.environ.get("FUSEHASH_REQUIRE") == "all"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SMALL: dict[str, Any] = {"image_encoder": "classical:n_words=8,n_keypoints=20", "text_encoder": "tfidf"}
COLORS = {"red": (205, 45, 45), "green": (40, 150, 70), "blue": (45, 80, 200), "yellow": (225, 190, 40)}
SHAPES = ("circle", "square", "triangle")
PLACES = ("on the left", "in the middle", "on the right", "at the top", "at the bottom")


def _draw(color: str, shape: str, place: str) -> bytes:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (160, 120), (236, 233, 226))
    pen = ImageDraw.Draw(image)
    number = PLACES.index(place)
    x, y = [(40, 60), (80, 60), (120, 60), (80, 38), (80, 82)][number]
    size = 22 + 3 * number
    box = (x - size, y - size, x + size, y + size)
    if shape == "circle":
        pen.ellipse(box, fill=COLORS[color])
    elif shape == "square":
        pen.rectangle(box, fill=COLORS[color])
    else:
        pen.polygon([(x, y - size), (x + size, y + size), (x - size, y + size)], fill=COLORS[color])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def draw(optional: Callable[[str], ModuleType]) -> Callable[..., bytes]:
    """`draw("red", "circle")`: a picture, as PNG bytes."""
    optional("PIL")
    return lambda color, shape, place="in the middle": _draw(color, shape, place)


@pytest.fixture(scope="session")
def pictures(
    optional: Callable[[str], ModuleType], draw: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a collection of 62 items; nobody writes to it."""
    optional("cv2")
    folder = tmp_path_factory.mktemp("app") / "shapes.collection"
    items = [
        NewItem(f"{color}-{shape}-{i}.png", draw(color, shape, place), f"a {color} {shape} {place}", (color, shape))
        for color in COLORS
        for shape in SHAPES
        for i, place in enumerate(PLACES)
    ]
    items.append(NewItem("<b>note</b>", None, "a <script>alert(1)</script> red circle & nothing but text", ("note",)))
    items.append(NewItem("wordless.png", draw("red", "square", "on the left"), None, ()))
    with Collection.create(
        folder,
        n_bits=64,
        image_params={"n_words": 32, "n_keypoints": 60},
        image_encoder="classical",
        text_encoder="tfidf",
    ) as collection:
        collection.build(items)
    return folder


@pytest.fixture(scope="session")
def collection(pictures: Path) -> Iterator[Collection]:
    """That collection, open."""
    with Collection.open(pictures) as opened:
        yield opened


@pytest.fixture
def own_collection(pictures: Path, tmp_path: Path) -> Iterator[Collection]:
    """A copy that may be written to."""
    shutil.copytree(pictures, tmp_path / "own.collection")
    with Collection.open(tmp_path / "own.collection") as opened:
        yield opened


@pytest.fixture(scope="session")
def client_of(optional: Callable[[str], ModuleType]) -> Callable[..., Any]:
    """`client_of(collection, **options)`: a client of an app that runs in this process."""
    optional("fastapi")
    optional("python_multipart")
    testing = optional("starlette.testclient")
    from fusehash.app import create_app

    return lambda collection, **options: testing.TestClient(
        create_app(collection, **options), base_url="http://localhost"
    )


@pytest.fixture(scope="session")
def client(collection: Collection, client_of: Callable[..., Any]) -> Any:
    """A client of an app for reading only."""
    return client_of(collection)


@pytest.fixture
def writer(own_collection: Collection, client_of: Callable[..., Any]) -> Any:
    """A client that has the token, of an app on a copy."""
    made = client_of(own_collection, writable=True, token=TOKEN)
    made.headers["Authorization"] = f"Bearer {TOKEN}"
    return made


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of `fusehash serve`, in a process of its own."""
    command = [sys.executable, "-m", "fusehash.cli", "serve", str(folder), "--port", "0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            yield found.group()
        finally:
            process.terminate()
            process.wait(120)


@pytest.fixture(scope="session")
def served(pictures: Path, optional: Callable[[str], ModuleType]) -> Iterator[str]:
    """The address of a server for reading only."""
    optional("fastapi")
    optional("uvicorn")
    with serving(pictures) as address:
        yield address


@pytest.fixture
def writable_server(pictures: Path, tmp_path: Path, optional: Callable[[str], ModuleType]) -> Iterator[str]:
    """The address of a server that takes changes, of a copy."""
    optional("fastapi")
    optional("uvicorn")
    shutil.copytree(pictures, tmp_path / "own.collection")
    (tmp_path / "token.txt").write_text(TOKEN)
    with serving(tmp_path / "own.collection", "--writable", "--token-file", str(tmp_path / "token.txt")) as address:
        yield address


@pytest.fixture(scope="session")
def photo_folder(optional: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of large pictures; two are equal."""
    image = optional("PIL.Image")
    folder = tmp_path_factory.mktemp("photos")
    for color, paint in COLORS.items():
        for number in range(3):
            picture = image.new("RGB", (640, 480), tuple(max(0, value - 30 * number) for value in paint))
            exif = picture.getexif()
            exif[0x010F], exif[0x8825] = "Maker <b>", {1: "N"}
            picture.save(folder / f"{color}{number}.png", exif=exif)
            (folder / f"{color}{number}.txt").write_text(f"a {color} wall number{number}")
    shutil.copyfile(folder / "blue0.png", folder / "zcopy.png")
    return folder


@pytest.fixture(scope="session")
def photo_collection(photo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection of these pictures."""
    folder = tmp_path_factory.mktemp("photo") / "photos.collection"
    with Collection.create(folder, n_bits=32, **SMALL) as collection:
        collection.build(read_folder(photo_folder))
    return folder


@pytest.fixture(scope="session")
def photo_server(photo_collection: Path, optional: Callable[[str], ModuleType]) -> Iterator[str]:
    """The address of a server of these pictures."""
    optional("fastapi")
    optional("uvicorn")
    with serving(photo_collection) as address:
        yield address


@pytest.fixture(scope="session")
def album_server(optional: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of pictures in three folders and of three years; two have the same name."""
    image = optional("PIL.Image")
    optional("fastapi")
    optional("uvicorn")
    folder = tmp_path_factory.mktemp("album")
    for number in range(12):
        place = folder / "photos" / ("beach", "hills", "hills/north")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        picture = image.effect_noise((320, 240), 20 + 10 * number).convert("RGB")
        taken = datetime(2019 + number // 4, 5, number + 1, 12, tzinfo=UTC)
        exif = picture.getexif()
        exif.get_ifd(0x8769)[0x9003] = taken.strftime("%Y:%m:%d %H:%M:%S")
        name = "view.jpg" if number < 2 else f"{number}.jpg"
        picture.save(place / name, exif=exif)
        os.utime(place / name, (taken.timestamp(), taken.timestamp()))
        (place / name).with_suffix(".txt").write_text(f"a {place.name} view number{number}")
    with Collection.create(folder / "album.collection", n_bits=32, **SMALL) as collection:
        collection.build(read_folder(folder / "photos"))
    with serving(folder / "album.collection") as address:
        yield address


@pytest.fixture(scope="session")
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
        address: str = "",
        *,
        server: str = served,
        shows: str | None = ".card",
        foreseen: bool = False,
        width: int = 1200,
        height: int = 800,
        **options: Any,
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)

        def look(request: Any) -> None:
            parts = urlsplit(request.url)
            if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}/" != server:
                problems.append(f"asked elsewhere: {request.url}")

        page.on("request", look)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        if not foreseen:
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(server + address)
        if shows:
            page.wait_for_selector(shows)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def open_writable(writable_server: str, open_page: Callable[..., Any]) -> Callable[..., Any]:
    """The same, of a server that takes changes and ends after the page."""
    return partial(open_page, server=writable_server)
