"""Every error has one shape: {"error": {"code": "...", "message": "one sentence"}}.

Errors about a query or an item are passed on to the visitor. Errors about files of the collection go to the log only,
because they name paths of this machine.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import Scope

from fusehash.collection import CorruptCollectionError
from fusehash.errors import DataError, FusehashError, ModelFileError, ParameterError

METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")  # that any route takes

log = logging.getLogger("fusehash.app")

# status -> (code, message), unless there is a more exact one.
DEFAULTS = {
    400: ("bad_request", "The request could not be understood."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
    500: ("internal", "Something went wrong inside the server; its log says what."),
    503: ("unavailable", "The collection cannot be reached just now; try again in a moment."),
}
DAMAGED = ("damaged", "The collection is damaged and cannot be searched; the server's log says which file it is.")


class ApiError(HTTPException):
    """An error that is answered to the visitor."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code


def answer(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    content = {"error": {"code": code, "message": " ".join(message.split())}}
    return JSONResponse(content, status, headers={"Cache-Control": "no-store", **(headers or {})})


def answer_to(error: Exception) -> JSONResponse:
    if isinstance(error, ApiError):
        return answer(error.status_code, error.code, str(error.detail), error.headers)
    if isinstance(error, HTTPException):
        code, message = DEFAULTS.get(error.status_code, ("refused", str(error.detail)))
        return answer(error.status_code, code, message, error.headers)
    if isinstance(error, RequestValidationError):
        return answer(422, "invalid", _sentence(error.errors()))
    if isinstance(error, DataError | ParameterError):
        return answer(422, "unusable", str(error))
    if isinstance(error, OSError):  # a CollectionError, or the folder is not there
        log.warning("%s", error)
        return answer(503, *DEFAULTS[503], {"Retry-After": "5"})
    if isinstance(error, CorruptCollectionError | ModelFileError):
        log.warning("%s", error)
        return answer(503, *DAMAGED)
    log.error("unexpected error", exc_info=error)
    return answer(500, *DEFAULTS[500])


def install(app: FastAPI) -> None:
    """Give every exception of a route the common shape."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        answered = answer_to(error)
        if answered.status_code == 405:
            answered.headers["Allow"] = ", ".join(_methods(app, request.scope))
        return answered

    for kind in (HTTPException, RequestValidationError, FusehashError):
        app.add_exception_handler(kind, handle)


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods of all routes at an address; Starlette names those of the first one only."""
    scopes = [{**scope, "method": method} for method in METHODS]
    return [s["method"] for s in scopes if any(route.matches(s)[0] is Match.FULL for route in app.router.routes)]


def _sentence(errors: Any) -> str:
    """The first error of pydantic, without what was sent."""
    first: dict[str, Any] = next(iter(errors), {})
    name = ".".join(str(part) for part in first.get("loc", ()) if part not in ("query", "path", "body"))
    reason = str(first.get("msg", "it cannot be read")).rstrip(".")
    subject = f"'{name}' of the request" if name else "The request"
    return f"{subject} is not valid: {reason}."
