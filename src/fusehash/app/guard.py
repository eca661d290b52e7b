"""Checks before every request: the host, the writer, the size of what is sent; and headers of every answer.

A page on another site can make a browser send requests here. It cannot read the answers (no CORS headers), cannot reach
the app under another name (the Host header is checked, against DNS rebinding), and cannot write (no browser sends the
token by itself).
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fusehash.app.errors import ApiError, answer_to
from fusehash.numerics.parallel import n_cores
from fusehash.parameters import integer

LOCAL = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = "*"
EDIT_BYTES = 200_000  # of a caption and labels
GRACE_SECONDS = 5.0  # before the rate of an upload counts
SEARCH, ITEMS = "/api/search", "/api/items"
REMOVE, LABEL, UNDO = "/api/remove", "/api/label", "/api/undo"
WITH_BODY = ("POST", "PATCH")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limits:
    """Bounds on what is read, computed and answered; together they bound the memory and the time of a request.

    Parameters
    ----------
    upload_bytes, upload_pixels : int
        Of an image; larger ones are refused before they are decoded.
    upload_seconds, upload_rate : int
        That a body may take in all, and bytes per second that must have arrived after the first 5 seconds.
    uploads : int
        Bodies of `upload_bytes` that may be on their way or waiting, half of them from one address. Bytes count, not
        requests: slow uploads take no place from others. Also how many images may wait to be encoded.
    encoders, searches : int
        Images that are encoded, and other searches, at a time; images take half of the cores by default.
    decoding_bytes : int
        Memory for the images that are decoded at a time; one that needs more is decoded alone.
    waiting : int
        Searches, or other requests, that may wait for a thread; the next one is answered with 503.
    connections : int
        At a time. A new one takes the place of one that has not sent a request.
    header_seconds, answer_seconds : int
        Until the head of a request must be there, and until the client must have taken an answer.
    text_length, results, max_offset : int
        Characters of a text query, results per search or page, and how many results of a search may be skipped.
    batch_items, batch_bytes : int
        That may be added in one request.
    """

    upload_bytes: int = 10_000_000
    upload_pixels: int = 32_000_000
    upload_seconds: int = 300
    upload_rate: int = 20_000
    uploads: int = 32
    encoders: int = field(default_factory=lambda: max(1, n_cores() // 2))
    searches: int = 2
    decoding_bytes: int = 400_000_000
    waiting: int = 200
    connections: int = 512
    header_seconds: int = 10
    answer_seconds: int = 30
    text_length: int = 1_000
    results: int = 200
    max_offset: int = 20_000
    batch_items: int = 100
    batch_bytes: int = 40_000_000

    def __post_init__(self) -> None:
        for limit in fields(self):
            integer(1).check("Limits", limit.name, getattr(self, limit.name))


@dataclass
class Guard:
    """ASGI middleware; errors that nothing else has caught get the common shape too."""

    app: ASGIApp
    limits: Limits
    hosts: frozenset[str]
    token: str | None  # None: nobody may write
    _held: Counter[str] = field(default_factory=Counter)  # bytes of bodies, by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, body = False, None

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["method"] in WITH_BODY and (body is None or not body.is_complete):
                    headers["Connection"] = "close"  # nobody will read the rest
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_writer(scope, headers)
            if scope["method"] in WITH_BODY:
                address = (scope.get("client") or ("",))[0]
                body = Body(receive, self._check_body(scope, headers), self.limits, self._held, address)
                with body:
                    await self.app(scope, body, guarded_send)
            else:
                await self.app(scope, receive, guarded_send)
        except Exception as error:
            if started:
                raise
            await answer_to(error)(scope, receive, guarded_send)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if name in self.hosts or (ANY_ADDRESS in self.hosts and ip_address(name) is not None):
            return
        message = "This server does not go by that name; --allow-host of 'fusehash serve' gives it one."
        raise ApiError(421, "unknown_host", message)

    def _check_writer(self, scope: Scope, headers: Headers) -> None:
        path, method = scope["path"], scope["method"]
        is_item = path.startswith(f"{ITEMS}/") and method in ("DELETE", "PATCH")
        if not (is_item or (path in (ITEMS, REMOVE, LABEL, UNDO) and method == "POST")):
            return
        if self.token is None:
            raise ApiError(403, "read_only", "This collection is served for reading only.")
        kind, _, shown = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self.token.encode())
        if kind.lower() != "bearer" or not matches:
            message = "Writing needs 'Authorization: Bearer' and the right token."
            raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
        self._check_origin(headers)

    def _check_origin(self, headers: Headers) -> None:
        """A browser says which site a request comes from: only this one may write, even with the token."""
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
        is_own = origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
        if site not in ("same-origin", "none") or not is_own:
            raise ApiError(403, "cross_site", "Other sites may not write here.")

    def _check_body(self, scope: Scope, headers: Headers) -> int:
        """Check the media type and the announced size; returns how many bytes may be sent."""
        path, kind = scope["path"], headers.get("content-type", "").partition(";")[0].strip().lower()
        limit, expected = {
            SEARCH: (self.limits.upload_bytes + 10_000, "multipart/form-data"),  # the parts have headers of their own
            ITEMS: (self.limits.batch_bytes, "application/json"),
            REMOVE: (EDIT_BYTES, "application/json"),
            LABEL: (EDIT_BYTES, "application/json"),
        }.get(path, (EDIT_BYTES, "application/json") if scope["method"] == "PATCH" else (10_000, kind))
        if kind != expected:
            raise ApiError(415, "unsupported_media_type", f"This address takes {expected} and nothing else.")
        if headers.get("sec-fetch-site") == "cross-site":
            raise ApiError(403, "cross_site", "Other sites may not send anything here.")
        length = headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > limit:
            raise _too_large(limit)
        return limit


class Body(AbstractContextManager["Body"]):
    """The body of a request: stops at the limit, whatever Content-Length was, and when the sender is too slow.

    Until the end of the request its bytes count among those that the server holds for all addresses.
    """

    def __init__(self, receive: Receive, most: int, limits: Limits, held: Counter[str], address: str) -> None:
        self._receive, self._most, self._limits, self._held, self._address = receive, most, limits, held, address
        self._started, self._seen = time.monotonic(), 0
        self.is_complete = False

    def __exit__(self, *error: object) -> None:
        self._held[self._address] -= self._seen
        if not self._held[self._address]:
            del self._held[self._address]

    async def __call__(self) -> Message:
        if self.is_complete:
            return await self._receive()  # which reports whether the client is still there
        seconds = min(self._limits.upload_seconds, GRACE_SECONDS + self._seen / self._limits.upload_rate)
        try:
            with anyio.fail_after(max(0.0, self._started + seconds - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(408, "too_slow", "The upload took too long.") from None
        self._count(len(message.get("body", b"")))
        self.is_complete = not message.get("more_body", False)
        return message

    def _count(self, size: int) -> None:
        self._seen += size
        self._held[self._address] += size
        if self._seen > self._most:
            raise _too_large(self._most)
        room = max(self._limits.uploads * self._limits.upload_bytes, self._most)
        if self._held.total() > room or self._held[self._address] > max(room // 2, self._most):
            message = "Too many uploads are under way; try again in a moment."
            raise ApiError(503, "busy", message, {"Retry-After": "2"})


def allowed_hosts(hosts: tuple[str, ...]) -> frozenset[str]:
    """The names that a Host header may have."""
    return frozenset((*LOCAL, *(name.strip("[]").lower().rstrip(".") for name in hosts)))


def ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a name is, or None."""
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "too_large", f"At most {limit:,} bytes may be sent here.")
