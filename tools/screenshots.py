"""The screenshots in docs/images, made new from the page as it is now.

    fusehash index /photos --captions /photos/captions.csv --out /tmp/photos
    python tools/screenshots.py /tmp/photos

Those in docs/images show 2,400 photos of IAPR TC-12, which is free of copyright restrictions; the paths that they show
are those on the machine. Needs Chromium, playwright and Pillow.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
SHOTS: dict[str, dict[str, Any]] = {
    "page": {"address": "#text=snow+covered+mountains"},
    "lightbox": {"address": "#text=a+city+at+night", "opens": 3},
    "phone": {"address": "#text=palm+trees+on+a+beach", "viewport": PHONE, "color_scheme": "dark"},
    "phone-lightbox": {"address": "#text=palm+trees+on+a+beach", "viewport": PHONE, "color_scheme": "dark", "opens": 1},
}
LOADED = (
    "() => [...document.images].every((image) => image.complete || image.getBoundingClientRect().top > innerHeight)"
)


def shoot(browser: Any, server: str, shot: dict[str, Any]) -> bytes:
    """One screenshot, as PNG."""
    viewport = shot.get("viewport", DESKTOP)
    is_phone = viewport is PHONE
    context = browser.new_context(
        viewport=viewport,
        device_scale_factor=1.5,
        is_mobile=is_phone,
        has_touch=is_phone,
        color_scheme=shot.get("color_scheme", "light"),
    )
    page = context.new_page()
    page.goto(server + shot["address"])
    page.wait_for_selector(".card")
    if "opens" in shot:
        page.locator(".card").nth(shot["opens"]).click()
        page.wait_for_selector("#box .exif")
        if not is_phone:
            page.click("#box .why summary")
        page.evaluate("document.activeElement.blur()")
    page.wait_for_load_state("networkidle")
    page.wait_for_function(LOADED)
    picture: bytes = page.screenshot()
    context.close()
    return picture


def main(folder: str) -> None:
    """Serve the collection and make all screenshots."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    command = [sys.executable, "-m", "fusehash.cli", "serve", folder, "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            if address is None:
                raise SystemExit("The server did not start.")
            with sync_playwright() as running:
                browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                for name, shot in SHOTS.items():
                    picture = Image.open(io.BytesIO(shoot(browser, address.group(), shot)))
                    picture.convert("RGB").save(IMAGES / f"{name}.webp", "WEBP", quality=82, method=6)
                    print(f"{name}.webp: {(IMAGES / f'{name}.webp').stat().st_size / 1e3:.0f} kB")
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
