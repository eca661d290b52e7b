"""The page, and the HTTP API under /api: search, read, and with the token add and remove."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import anyio
from fastapi import APIRouter, File, Path, Query, Request, Response, Security, UploadFile
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from fusehash.app import records
from fusehash.app.cache import AnswerCache, check_image
from fusehash.app.errors import ApiError
from fusehash.app.guard import Limits
from fusehash.app.pools import Budget, Pool
from fusehash.collection import Collection, Hits, Item, NewItem
from fusehash.errors import DataError
from fusehash.version import __version__

MAX_ID = 2**53 - 1  # JavaScript rounds larger numbers
DEFAULT_RESULTS = 24
SCRIPTS = ("app.js", "theme.js", "charts.js", "keyboard.js", "overview.js", "tools.js", "docs.js")
PAGES = {"/": "index.html", "/api/docs": "docs.html"} | {f"/{name}": name for name in ("app.css", "icon.svg", *SCRIPTS)}
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NO_ITEM = "There is no item with this id."


def pages() -> list[Route]:
    """One route per file of the page; nothing in an address is used as a path."""
    folder = files("fusehash.app") / "static"

    def route(address: str, name: str) -> Route:
        content, media_type = (folder / name).read_bytes(), MEDIA_TYPES[name.rpartition(".")[2]]

        async def page(request: Request) -> Response:
            return _tagged(request, content, media_type, "no-cache")

        return Route(address, page, include_in_schema=False)

    return [route(address, name) for address, name in PAGES.items()]


def _tagged(request: Request, content: bytes, media_type: str, cache: str) -> Response:
    """The content with an ETag, or 304 if the browser has it."""
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": cache}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _answers(*statuses: int, **links: dict[str, str]) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, and where its answer leads, for the OpenAPI document.

    A link is named after the operation that it leads to, up to an underscore, and says where its parameters are.
    """
    answers: dict[int | str, dict[str, Any]] = {
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
    return {200: {"links": named}, **answers} if links else answers


def _links_to(id: str) -> dict[str, dict[str, str]]:
    """Where the id of an item leads."""
    return {"item": {"id": id}, "thumbnail": {"id": id}, "search_like": {"like": id}, "remove": {"id": id}}


def reading(collection: Collection, limits: Limits, name: str, writable: bool) -> APIRouter:
    """Routes that search and read."""
    router = APIRouter(prefix="/api")
    overviews, counts = AnswerCache(collection, limits), AnswerCache(collection, limits)
    searches, reads = Pool(limits.searches, limits.waiting), Pool(limits.searches, limits.waiting)
    health_checks = Pool(1, limits.waiting)
    slots, memory = anyio.Semaphore(limits.encoders), Budget(limits.decoding_bytes)
    # Threads of their own, and few: each keeps some of the memory that it has decoded with.
    decoders = ThreadPoolExecutor(limits.encoders, "decoder")
    k_query = Query(DEFAULT_RESULTS, ge=1, le=limits.results, description="How many results at most.")
    label_query = Query(None, min_length=1, max_length=200, description="Only items with this label.")
    rerank_query = Query(True, description="Order candidates by more than their codes.")
    id_path = Path(ge=1, le=MAX_ID)
    image_file = File(description="JPEG, PNG, GIF, WEBP, BMP, TIFF, AVIF or HEIC.")
    search_route: dict[str, Any] = {"tags": ["search"], "response_model": records.SearchAnswer}
    jpeg = {**_answers(404, 422), 200: {"content": {"image/jpeg": {}}}, 304: {"description": "Not changed."}}
    from_hit = _links_to("/hits/0/item/id") | {"search_code": {"code": "/hits/0/code", "generation": "/generation"}}

    @router.get(
        "/search", **search_route, responses=_answers(400, 404, 422, **from_hit), summary="Search by text, item or code"
    )
    async def search(
        text: str | None = Query(
            None,
            min_length=1,
            max_length=limits.text_length,
            pattern=records.NOT_BLANK,
            description="Words to look for.",
        ),
        like: int | None = Query(None, ge=1, le=MAX_ID, description="Id of an item; finds similar ones."),
        code: str | None = Query(
            None, pattern="^([0-9a-fA-F]{2}){1,128}$", description="A code of this collection in hexadecimal."
        ),
        generation: int | None = Query(
            None, ge=1, le=MAX_ID, description="The generation of the code; an error if another one is current."
        ),
        k: int = k_query,
        label: str | None = label_query,
        rerank: bool = rerank_query,
    ) -> Response:
        """Exactly one of `text`, `like` and `code`; otherwise, status 400."""
        if sum(query is not None for query in (text, like, code)) != 1:
            raise ApiError(400, "bad_request", "A search needs exactly one of text, like and code.")

        def work() -> Response:
            source = None if like is None else existing(like)
            packed = None if code is None else bytes.fromhex(code)
            if packed is not None and 8 * len(packed) != (n_bits := collection.settings.n_bits):
                raise DataError(f"A code of this collection has {n_bits // 4} hexadecimal digits.")
            query: dict[str, Any] = {"text": text, "like": like, "code": packed, "generation": generation}
            return answered(collection.search(**query, k=k, label=label, rerank=rerank), source)

        return await searches.run(work)

    @router.post(
        "/search",
        **search_route,
        responses=_answers(400, 403, 408, 413, 415, 422, **from_hit),
        summary="Search by image",
    )
    async def search_by_image(
        request: Request,
        image: UploadFile = image_file,
        k: int = k_query,
        label: str | None = label_query,
        rerank: bool = rerank_query,
    ) -> Response:
        """The image is not stored."""

        def work(data: bytes) -> Response:
            return answered(collection.search(image=data, k=k, label=label, rerank=rerank), None)

        if slots.statistics().tasks_waiting >= limits.uploads:
            raise ApiError(503, "busy", "Too many images are waiting; try again in a moment.", {"Retry-After": "2"})
        async with slots:
            if await request.is_disconnected():
                return Response(status_code=499)  # nobody reads it
            data = await image.read(limits.upload_bytes + 1)
            in_thread = asyncio.get_running_loop().run_in_executor
            async with memory.taking(await in_thread(decoders, check_image, data, limits)):
                return await in_thread(decoders, work, data)

    @router.get(
        "/items", tags=["items"], responses=_answers(422, **_links_to("/items/0/id")), summary="Items in order of id"
    )
    async def items(
        offset: int = Query(0, ge=0, le=MAX_ID),
        limit: int = Query(DEFAULT_RESULTS, ge=1, le=limits.results),
        label: str | None = label_query,
    ) -> records.ItemsAnswer:
        def work(total: int | None) -> records.ItemsAnswer:
            listed = [records.ItemRecord.of(item) for item in collection.items(offset, limit, label)]
            return records.ItemsAnswer(total=len(collection) if total is None else total, offset=offset, items=listed)

        total = None if label is None else (await counts.get(collection.labels)).get(label, 0)
        return await reads.run(work, total)

    @router.get("/items/{id}", tags=["items"], responses=_answers(404, 422, **_links_to("/id")), summary="One item")
    async def item(id: int = id_path) -> records.ItemRecord:
        return records.ItemRecord.of(await reads.run(existing, id))

    @router.get(
        "/items/{id}/thumbnail", tags=["items"], response_class=Response, responses=jpeg, summary="A small JPEG"
    )
    async def thumbnail(request: Request, id: int = id_path) -> Response:
        content = await reads.run(collection.thumbnail, id)
        if content is None:
            raise ApiError(404, "no_image", "There is no item with this id, or it has no image.")
        return _tagged(request, content, "image/jpeg", "private, max-age=300")

    @router.get(
        "/labels", tags=["collection"], response_model=records.LabelsAnswer, responses=_answers(), summary="All labels"
    )
    async def labels() -> Response:
        return Response(await counts.get(label_list), media_type="application/json")

    grouping = _answers(**_links_to("/clusters/0/examples/0/id"))

    @router.get("/clusters", tags=["collection"], responses=grouping, summary="Groups of similar items")
    async def clusters() -> records.ClustersAnswer:
        return await overviews.get(grouped)

    @router.get("/codes", tags=["collection"], responses=_answers(), summary="How the codes use their bits")
    async def codes() -> records.CodesAnswer:
        return records.CodesAnswer(**await overviews.get(collection.code_stats))

    @router.get("/stats", tags=["collection"], responses=_answers(), summary="What the collection holds")
    async def stats() -> records.StatsAnswer:
        stats_now = await counts.get(collection.stats, seconds=1.0)
        facts = {key: value for key, value in stats_now.items() if key in records.StatsAnswer.model_fields}
        bounds = {key: getattr(limits, key) for key in records.LimitsRecord.model_fields}
        return records.StatsAnswer(**facts, name=name, writable=writable, limits=records.LimitsRecord(**bounds))

    @router.get("/health", tags=["collection"], responses=_answers(), summary="Whether the server works")
    async def health() -> records.HealthAnswer:
        def work() -> records.HealthAnswer:
            collection.check()
            return records.HealthAnswer(status="ok", version=__version__, items=len(collection))

        return await health_checks.run(work)

    def existing(id: int) -> Item:
        try:
            return collection.item(id)
        except DataError:
            raise ApiError(404, "not_found", NO_ITEM) from None

    def answered(hits: Hits, source: Item | None) -> Response:
        # Written in the thread of the search: FastAPI would check and write it again in the event loop.
        answer = records.SearchAnswer(
            code=hits.code.hex(),
            n_bits=8 * len(hits.code),
            generation=hits.generation,
            like=None if source is None else records.ItemRecord.of(source),
            hits=[records.HitRecord.of(hit) for hit in hits],
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    def label_list() -> bytes:
        listed = [records.LabelRecord(name=name, count=count) for name, count in collection.labels().items()]
        return records.LabelsAnswer(labels=listed).model_dump_json().encode()

    def grouped() -> records.ClustersAnswer:
        groups = []
        for group in collection.clusters():
            examples = []
            for id in group.pop("examples"):
                with contextlib.suppress(DataError):  # removed meanwhile
                    examples.append(records.ItemRecord.of(collection.item(id)))
            groups.append(records.ClusterRecord(**group, examples=examples))
        return records.ClustersAnswer(clusters=groups)

    return router


def writing(collection: Collection, limits: Limits) -> APIRouter:
    """Routes that add and remove items; guard.py has checked the token."""
    bearer = Security(HTTPBearer(auto_error=False, description="The token of the server."))
    router = APIRouter(prefix="/api/items", tags=["writing"], dependencies=[bearer])
    lock = anyio.Lock()

    added = _answers(400, 401, 403, 408, 413, 415, 422, **_links_to("/ids/0"))

    @router.post("", responses=added, summary="Add items, all or none")
    async def add(request: records.AddRequest) -> records.ReportAnswer:
        """An existing key is an error. The items are encoded with the current model."""
        if len(request.items) > limits.batch_items:
            raise ApiError(413, "too_many", f"At most {limits.batch_items:,} items may be added in one request.")

        def work() -> records.ReportAnswer:
            new = [NewItem(item.key, decoded(item), item.text, tuple(item.labels)) for item in request.items]
            return records.ReportAnswer.of(collection.add(new))

        async with lock:
            return await run_in_threadpool(work)

    @router.delete("/{id}", responses=_answers(401, 403, 404, 422), summary="Remove an item")
    async def remove(id: int = Path(ge=1, le=MAX_ID)) -> records.ReportAnswer:
        def work() -> records.ReportAnswer:
            try:
                return records.ReportAnswer.of(collection.remove([id]))
            except DataError:
                raise ApiError(404, "not_found", NO_ITEM) from None

        async with lock:
            return await run_in_threadpool(work)

    def decoded(item: records.NewItemRecord) -> bytes | None:
        if item.image is None:
            return None
        data = base64.b64decode(item.image)
        check_image(data, limits)
        return data

    return router
