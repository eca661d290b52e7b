"""What stands before every request: who is asked for, how much is sent, by whom, and what headers go with the answer.

A page elsewhere can make a browser send requests here. It cannot read the answers (no CORS headers are given), cannot
reach us under a name of its own (the Host header is checked, against DNS rebinding), and cannot write (a token is
needed that no browser sends by itself).
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from dataclasses import dataclass

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fusehash.app.errors import Problem, answer_to
from fusehash.app.limits import Limits

LOCAL = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = "*"
SEARCH, ITEMS = "/api/search", "/api/items"
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


@dataclass
class Guard:
    """ASGI middleware; see above. Answers errors that nothing else has caught in the one shape."""

    app: ASGIApp
    limits: Limits
    hosts: frozenset[str]
    token: str | None  # None: nobody may write
    _uploads: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        has_body = scope["method"] == "POST"
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_writer(scope, headers)
            limit = self._check_body(scope, headers) if has_body else 0
            if has_body and self._uploads >= self.limits.uploads:
                raise Problem(503, "busy", "Too many uploads are under way; try again in a moment.", _LATER)
            self._uploads += has_body
            try:
                await self.app(scope, self._counted(receive, limit), guarded_send)
            finally:
                self._uploads -= has_body
        except Exception as error:
            if started:
                raise
            await answer_to(error)(scope, receive, guarded_send)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if name in self.hosts or (ANY_ADDRESS in self.hosts and _is_address(name)):
            return
        raise Problem(
            421, "unknown_host", "This server does not go by that name; --allow-host of 'fusehash serve' gives it one."
        )

    def _check_writer(self, scope: Scope, headers: Headers) -> None:
        """Adding and removing need a token, before anything is read."""
        path, method = scope["path"], scope["method"]
        if not ((path == ITEMS and method == "POST") or (path.startswith(f"{ITEMS}/") and method == "DELETE")):
            return
        if self.token is None:
            raise Problem(403, "read_only", "This collection is served for reading only.")
        kind, _, shown = headers.get("authorization", "").partition(" ")
        known = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self.token.encode())
        if kind.lower() != "bearer" or not known:
            raise Problem(401, "unauthorized", "Writing needs 'Authorization: Bearer' and the right token.", _CHALLENGE)

    def _check_body(self, scope: Scope, headers: Headers) -> int:
        """How many bytes may come; the kind of content is the one that the address takes."""
        path, kind = scope["path"], headers.get("content-type", "").partition(";")[0].strip().lower()
        limit, wanted = {
            SEARCH: (self.limits.upload_bytes + 10_000, "multipart/form-data"),  # the parts have headers of their own
            ITEMS: (self.limits.batch_bytes, "application/json"),
        }.get(path, (10_000, kind))
        if kind != wanted:
            raise Problem(415, "unsupported_media_type", f"This address takes {wanted} and nothing else.")
        if headers.get("sec-fetch-site") == "cross-site":
            raise Problem(403, "cross_site", "Other sites may not send anything here.")
        length = headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > limit:
            raise _too_large(limit)
        return limit

    def _counted(self, receive: Receive, limit: int) -> Receive:
        """Stop reading at the limit, whatever Content-Length said, and where the sender dawdles."""
        deadline, seen = time.monotonic() + self.limits.upload_seconds, 0

        async def counted() -> Message:
            nonlocal seen
            if not limit:
                return await receive()
            try:
                with anyio.fail_after(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "too_slow", "The upload took too long.") from None
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large(limit)
            return message

        return counted


_LATER = {"Retry-After": "2"}
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def known_hosts(given: tuple[str, ...]) -> frozenset[str]:
    """The names that a Host header may have, for the addresses that were bound and the names that were allowed."""
    names = {name.strip("[]").lower().rstrip(".") for name in given}
    return frozenset((*LOCAL, *names))


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"At most {limit:,} bytes may be sent here.", {"Connection": "close"})
