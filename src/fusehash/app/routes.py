"""The HTTP API under /api: searching, looking, and for those with the token adding and removing."""

from __future__ import annotations

import base64
import binascii
import contextlib
from typing import Any

import anyio
from fastapi import APIRouter, File, Path, Query, Request, Response, Security, UploadFile
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

import fusehash
from fusehash.app import records
from fusehash.app.cache import Memory, check_image
from fusehash.app.errors import Problem
from fusehash.app.limits import Limits
from fusehash.app.pages import tagged
from fusehash.collection import Collection, Hits, Item, NewItem
from fusehash.errors import DataError

LARGEST = 2**53 - 1  # beyond it JavaScript rounds
FIRST = 24  # results, where nobody says how many
NO_ITEM = "There is no item with this id."
DESCRIBED = {
    400: "Not even readable.",
    401: "No token, or the wrong one.",
    403: "Not allowed here.",
    404: "No such item.",
    408: "The upload took too long.",
    413: "More than may be sent.",
    415: "Not the kind of content that this address takes.",
    422: "Something in the request cannot be used.",
    500: "The server has failed.",
    503: "Busy, or the collection is damaged.",
}


def says(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the OpenAPI document."""
    return {
        status: {"model": records.ErrorAnswer, "description": DESCRIBED[status]} for status in (*statuses, 500, 503)
    }


def reading(collection: Collection, limits: Limits, name: str, writable: bool) -> APIRouter:
    """Searching and looking."""
    router = APIRouter(prefix="/api")
    memory = Memory(collection)
    encoders = anyio.Semaphore(limits.encoders)
    searches = anyio.CapacityLimiter(limits.searches)
    k_query = Query(FIRST, ge=1, le=limits.results, description="How many results at most.")
    label_query = Query(None, min_length=1, max_length=200, description="Only items with this label.")
    rerank_query = Query(True, description="Order candidates by more than the signs of the query's bits.")
    id_path = Path(ge=1, le=LARGEST)
    image_file = File(description="JPEG, PNG, GIF, WEBP, BMP or TIFF.")

    @router.get(
        "/search",
        tags=["search"],
        responses=says(404, 422),
        response_model=records.SearchAnswer,
        summary="Search by text, item or code",
    )
    async def search(
        text: str | None = Query(None, min_length=1, max_length=limits.text_length, description="Words to look for."),
        like: int | None = Query(None, ge=1, le=LARGEST, description="Id of an item to find others like."),
        code: str | None = Query(
            None, pattern="^([0-9a-fA-F]{2}){1,128}$", description="A code of this collection in hexadecimal."
        ),
        generation: int | None = Query(
            None, ge=1, le=LARGEST, description="What the code is of: an error where another generation is in force."
        ),
        k: int = k_query,
        label: str | None = label_query,
        rerank: bool = rerank_query,
    ) -> Response:
        """Exactly one of `text`, `like` and `code`."""
        if sum(given is not None for given in (text, like, code)) != 1:
            raise DataError("A search needs exactly one of text, like and code.")

        def work() -> Response:
            own = None if like is None else existing(like)
            packed = None if code is None else bytes.fromhex(code)
            if packed is not None and 8 * len(packed) != (n_bits := collection.settings.n_bits):
                raise Problem(422, "invalid", f"A code of this collection has {n_bits // 4} hexadecimal digits.")
            found = collection.search(
                text, like=like, code=packed, k=k, label=label, rerank=rerank, generation=generation
            )
            return searched(found, own)

        return await anyio.to_thread.run_sync(work, limiter=searches)

    @router.post(
        "/search",
        tags=["search"],
        responses=says(400, 403, 408, 413, 415, 422),
        response_model=records.SearchAnswer,
        summary="Search by image",
    )
    async def search_by_image(
        image: UploadFile = image_file,
        k: int = k_query,
        label: str | None = label_query,
        rerank: bool = rerank_query,
    ) -> Response:
        """The image is looked at and forgotten."""
        data = await image.read(limits.upload_bytes + 1)

        def work() -> Response:
            check_image(data, limits)
            return searched(collection.search(image=data, k=k, label=label, rerank=rerank), None)

        async with encoders:
            return await run_in_threadpool(work)

    @router.get("/items", tags=["items"], responses=says(422), summary="Items in order of id")
    def items(
        offset: int = Query(0, ge=0, le=LARGEST),
        limit: int = Query(FIRST, ge=1, le=limits.results),
        label: str | None = label_query,
    ) -> records.ItemsAnswer:
        total = len(collection) if label is None else collection.labels().get(label, 0)
        listed = [records.ItemRecord.of(item) for item in collection.items(offset, limit, label)]
        return records.ItemsAnswer(total=total, offset=offset, items=listed)

    @router.get("/items/{id}", tags=["items"], responses=says(404, 422), summary="One item")
    def item(id: int = id_path) -> records.ItemRecord:
        return records.ItemRecord.of(existing(id))

    @router.get(
        "/items/{id}/thumbnail",
        tags=["items"],
        responses={**says(404, 422), 200: {"content": {"image/jpeg": {}}}, 304: {"description": "As you have it."}},
        response_class=Response,
        summary="A small JPEG",
    )
    def thumbnail(request: Request, id: int = id_path) -> Response:
        jpeg = collection.thumbnail(id)
        if jpeg is None:
            raise Problem(404, "no_image", "There is no item with this id, or it has no image.")
        return tagged(request, jpeg, "image/jpeg", "private, max-age=300")

    @router.get("/labels", tags=["collection"], responses=says(), summary="All labels")
    def labels() -> records.LabelsAnswer:
        listed = [records.LabelRecord(name=name, count=count) for name, count in collection.labels().items()]
        return records.LabelsAnswer(labels=listed)

    @router.get("/clusters", tags=["collection"], responses=says(), summary="Groups of alike items")
    def clusters() -> records.ClustersAnswer:
        answer: records.ClustersAnswer = memory.get("clusters", grouped)
        return answer

    @router.get("/codes", tags=["collection"], responses=says(), summary="How the codes use their bits")
    def codes() -> records.CodesAnswer:
        answer: records.CodesAnswer = memory.get("codes", lambda: records.CodesAnswer(**collection.code_stats()))
        return answer

    @router.get("/stats", tags=["collection"], responses=says(), summary="What the collection holds")
    def stats() -> records.StatsAnswer:
        known = collection.stats()
        wanted = {part: known[part] for part in records.StatsAnswer.model_fields if part in known}
        told = {part: getattr(limits, part) for part in records.LimitsRecord.model_fields}
        return records.StatsAnswer(**wanted, name=name, writable=writable, limits=records.LimitsRecord(**told))

    @router.get("/health", tags=["collection"], responses=says(), summary="Whether the server can do its work")
    def health() -> records.HealthAnswer:
        collection.check()
        return records.HealthAnswer(status="ok", version=fusehash.__version__, items=len(collection))

    def existing(id: int) -> Item:
        try:
            return collection.item(id)
        except DataError:
            raise Problem(404, "not_found", NO_ITEM) from None

    def searched(found: Hits, own: Item | None) -> Response:
        # Written here, in the thread of the search: FastAPI would check and write it once more in the event loop.
        answer = records.SearchAnswer(
            code=found.code.hex(),
            n_bits=8 * len(found.code),
            generation=found.generation,
            like=None if own is None else records.ItemRecord.of(own),
            hits=[records.HitRecord.of(hit) for hit in found],
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    def grouped() -> records.ClustersAnswer:
        groups = []
        for group in collection.clusters():
            examples = []
            for id in group["examples"]:
                with contextlib.suppress(DataError):  # removed since
                    examples.append(records.ItemRecord.of(collection.item(id)))
            groups.append(records.ClusterRecord(words=group["words"], size=group["size"], examples=examples))
        return records.ClustersAnswer(clusters=groups)

    return router


def writing(collection: Collection, limits: Limits) -> APIRouter:
    """Adding and removing. That the token is right has been seen to before (guard.py)."""
    bearer = Security(HTTPBearer(auto_error=False, description="The token that the server was started with."))
    router = APIRouter(prefix="/api/items", tags=["writing"], dependencies=[bearer])
    one_at_a_time = anyio.Lock()

    @router.post("", responses=says(400, 401, 403, 408, 413, 415, 422), summary="Add items, all or none")
    async def add(request: records.AddRequest) -> records.ReportAnswer:
        """A key that is there already is an error. The codes come from what was learned before."""
        if len(request.items) > limits.batch_items:
            raise Problem(413, "too_many", f"At most {limits.batch_items:,} items may be added in one request.")

        def work() -> records.ReportAnswer:
            new = [NewItem(one.key, decoded(one), one.text, tuple(one.labels)) for one in request.items]
            return records.report(collection.add(new))

        async with one_at_a_time:
            return await run_in_threadpool(work)

    @router.delete("/{id}", responses=says(401, 403, 404, 422), summary="Remove an item")
    async def remove(id: int = Path(ge=1, le=LARGEST)) -> records.ReportAnswer:
        def work() -> records.ReportAnswer:
            try:
                return records.report(collection.remove([id]))
            except DataError:
                raise Problem(404, "not_found", NO_ITEM) from None

        async with one_at_a_time:
            return await run_in_threadpool(work)

    def decoded(one: records.NewItemRecord) -> bytes | None:
        if one.image is None:
            return None
        try:
            data = base64.b64decode(one.image, validate=True)
        except (binascii.Error, ValueError):
            raise DataError(f"The image of {one.key!r} must be in base64. It is not.") from None
        check_image(data, limits)
        return data

    return router
