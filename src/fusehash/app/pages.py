"""The page itself: a handful of files, read once, answered with an ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# address -> (file, media type)
PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/theme.js": ("theme.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/keyboard.js": ("keyboard.js", "text/javascript; charset=utf-8"),
    "/overview.js": ("overview.js", "text/javascript; charset=utf-8"),
    "/tools.js": ("tools.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/api/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}


def etag(content: bytes) -> str:
    """What changes when the content does."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def tagged(request: Request, content: bytes, media_type: str, cache: str) -> Response:
    """The content, or 304 where the browser has it already."""
    headers = {"ETag": etag(content), "Cache-Control": cache}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def routes() -> list[Route]:
    """One route a file; nothing in an address is ever taken for a path."""
    folder = files("fusehash.app") / "static"
    return [
        Route(address, _page((folder / name).read_bytes(), kind), include_in_schema=False)
        for address, (name, kind) in PAGES.items()
    ]


def _page(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return tagged(request, content, kind, "no-cache")

    return page
