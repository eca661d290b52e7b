"""What all routes share: the context of the app, parameters, descriptions of answers."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from typing import Any

import anyio
from fastapi import Query, Request, Response

from fusehash.app import records
from fusehash.app.cache import AnswerCache
from fusehash.app.errors import ApiError
from fusehash.app.guard import Limits
from fusehash.app.pools import Budget, Pool
from fusehash.collection import Collection, Filters, Item
from fusehash.errors import DataError

DEFAULT_RESULTS = 24
NO_ITEM = "There is no item with this id."
DAY = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"


@dataclass
class Context:
    """A collection that is served, and what its routes share."""

    collection: Collection
    limits: Limits
    name: str
    writable: bool
    show_paths: bool

    def __post_init__(self) -> None:
        limits = self.limits
        self.overviews, self.counts = AnswerCache(self.collection, limits), AnswerCache(self.collection, limits)
        self.searches, self.reads = Pool(limits.searches, limits.waiting), Pool(limits.searches, limits.waiting)
        self.files = Pool(limits.searches, limits.waiting)
        self.health_checks = Pool(1, limits.waiting)
        self.slots, self.memory = anyio.Semaphore(limits.encoders), Budget(limits.decoding_bytes)
        # Threads of their own, and few: each keeps some of the memory that it has decoded with.
        self.decoders = ThreadPoolExecutor(limits.encoders, "decoder")

    def existing(self, id: int) -> Item:
        try:
            return self.collection.item(id)
        except DataError:
            raise ApiError(404, "not_found", NO_ITEM) from None

    def record(self, item: Item) -> records.ItemRecord:
        return records.ItemRecord.of(item, show_path=self.show_paths)


def filters(
    label: str | None = Query(None, min_length=1, max_length=200, description="Only items with this label."),
    folder: str | None = Query(None, max_length=500, description="Only items in this folder or below it."),
    has_text: bool | None = Query(None, description="Only items with, or without, a caption."),
    after: str | None = Query(None, pattern=DAY, description="Only items of this day or later."),
    before: str | None = Query(None, pattern=DAY, description="Only items of earlier days."),
) -> Filters:
    """The parameters that filter."""
    return Filters(label, folder, has_text, _day(after), _day(before))


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise DataError(f"A date must be a day of the calendar. Got {text}.") from None


def tagged(request: Request, content: bytes, media_type: str, cache: str) -> Response:
    """The content with an ETag, or 304 if the browser has it."""
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": cache}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def answers(*statuses: int, **links: dict[str, str]) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, and where its answer leads, for the OpenAPI document.

    A link is named after the operation that it leads to, up to an underscore, and says where its parameters are.
    """
    described: dict[int | str, dict[str, Any]] = {
        status: {"model": records.ErrorAnswer, "description": HTTPStatus(status).phrase}
        for status in (*statuses, 500, 503)
    }
    named = {
        name: {
            "operationId": name.partition("_")[0],
            "parameters": {parameter: f"$response.body#{where}" for parameter, where in parameters.items()},
        }
        for name, parameters in links.items()
    }
    return {200: {"links": named}, **described} if links else described


def links_to(id: str) -> dict[str, dict[str, str]]:
    """Where the id of an item leads."""
    leads = ("item", "thumbnail", "original", "details", "edit", "remove")
    return {**{name: {"id": id} for name in leads}, "search_like": {"like": id}}
