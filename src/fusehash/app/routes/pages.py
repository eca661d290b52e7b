"""The files of the page."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fusehash.app.routes.common import tagged

SCRIPTS = (
    "app.js",
    "charts.js",
    "docs.js",
    "export.js",
    "facets.js",
    "keyboard.js",
    "lightbox.js",
    "overview.js",
    "results.js",
    "selection.js",
    "theme.js",
    "tools.js",
    "writing.js",
)
PAGES = {"/": "index.html", "/api/docs": "docs.html"} | {f"/{name}": name for name in ("app.css", "icon.svg", *SCRIPTS)}
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def pages() -> list[Route]:
    """One route per file of the page; nothing in an address is used as a path."""
    folder = files("fusehash.app") / "static"

    def route(address: str, name: str) -> Route:
        content, media_type = (folder / name).read_bytes(), MEDIA_TYPES[name.rpartition(".")[2]]

        async def page(request: Request) -> Response:
            return tagged(request, content, media_type, "no-cache")

        return Route(address, page, include_in_schema=False)

    return [route(address, name) for address, name in PAGES.items()]
