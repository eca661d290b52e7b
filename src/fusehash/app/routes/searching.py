"""Search by words, images, items and codes."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

from fastapi import APIRouter, Depends, File, Query, Request, Response, UploadFile

from fusehash.app import records
from fusehash.app.cache import check_image
from fusehash.app.errors import ApiError
from fusehash.app.routes.common import DEFAULT_RESULTS, Context, answers, filters, links_to
from fusehash.collection import Filters, Hits
from fusehash.collection.question import MAX_PARTS
from fusehash.errors import DataError


def searching(context: Context) -> APIRouter:
    """Routes that search."""
    router = APIRouter(prefix="/api", tags=["search"])
    collection, limits = context.collection, context.limits
    text_query = Query(
        None,
        min_length=1,
        max_length=limits.text_length,
        pattern=records.NOT_BLANK,
        description='Words to look for; also "phrases", -exclusions, label:NAME, before:DATE, after:DATE and OR.',
    )
    like_query = Query([], max_length=MAX_PARTS, description="Ids of items that the results should be like.")
    unlike_query = Query([], max_length=MAX_PARTS, description="Ids of items that they should not be like.")
    k_query = Query(DEFAULT_RESULTS, ge=1, le=limits.results, description="How many results at most.")
    offset_query = Query(0, ge=0, le=limits.max_offset, description="How many of the best results are skipped.")
    rerank_query = Query(True, description="Order candidates by more than their codes.")
    chosen_filters, image_file = Depends(filters), File(description="JPEG, PNG, GIF, WEBP, BMP, TIFF, AVIF or HEIC.")
    confidence_query = Query(0.0, ge=0.0, le=1.0, description="Leave out results with a lower confidence.")
    from_hit = links_to("/hits/0/item/id") | {"search_code": {"code": "/hits/0/code", "generation": "/generation"}}
    described: dict[str, Any] = {"response_model": records.SearchAnswer}

    @router.get(
        "/search", **described, responses=answers(400, 404, 422, **from_hit), summary="Search by text, items or code"
    )
    async def search(
        text: str | None = text_query,
        like: list[records.Id] = like_query,
        unlike: list[records.Id] = unlike_query,
        code: str | None = Query(
            None, pattern="^([0-9a-fA-F]{2}){1,512}$", description="A code of this collection in hexadecimal."
        ),
        picture: str | None = Query(
            None, pattern="^[A-Za-z0-9_-]{4,11000}$", description="The images of an earlier search, from its answer."
        ),
        generation: int | None = Query(
            None, ge=1, le=records.MAX_ID, description="The generation of the code; an error if another one is current."
        ),
        k: int = k_query,
        offset: int = offset_query,
        rerank: bool = rerank_query,
        min_confidence: float = confidence_query,
        chosen: Filters = chosen_filters,
    ) -> Response:
        """At least one of `text`, `like`, `unlike`, `picture` and `code`, and `code` only alone; otherwise 400."""
        parts = bool(text) + bool(like or unlike) + (picture is not None)
        if parts + (code is not None) == 0 or (code is not None and parts):
            raise ApiError(400, "bad_request", "A search needs a text, an item or a picture, or else a code alone.")

        def work() -> Response:
            packed = None if code is None else bytes.fromhex(code)
            if packed is not None and 8 * len(packed) != (n_bits := collection.settings.n_bits):
                raise DataError(f"A code of this collection has {n_bits // 4} hexadecimal digits.")
            query: dict[str, Any] = {"text": text, "code": packed, "picture": _decoded(picture)}
            return answered(
                query, like, unlike, generation=generation, **bounds(k, offset, rerank, min_confidence, chosen)
            )

        return await context.searches.run(work)

    @router.post(
        "/search",
        **described,
        responses=answers(400, 403, 404, 408, 413, 415, 422, **from_hit),
        summary="Search by image",
    )
    async def search_by_image(
        request: Request,
        image: UploadFile = image_file,
        text: str | None = text_query,
        like: list[records.Id] = like_query,
        unlike: list[records.Id] = unlike_query,
        k: int = k_query,
        offset: int = offset_query,
        rerank: bool = rerank_query,
        min_confidence: float = confidence_query,
        chosen: Filters = chosen_filters,
    ) -> Response:
        """The image is not stored. With a text or items, all of them together are the query."""

        def work(data: bytes) -> Response:
            query: dict[str, Any] = {"text": text, "image": data}
            return answered(query, like, unlike, **bounds(k, offset, rerank, min_confidence, chosen))

        if context.slots.statistics().tasks_waiting >= limits.uploads:
            raise ApiError(503, "busy", "Too many images are waiting; try again in a moment.", {"Retry-After": "2"})
        async with context.slots:
            if await request.is_disconnected():
                return Response(status_code=499)  # nobody reads it
            data = await image.read(limits.upload_bytes + 1)
            in_thread = asyncio.get_running_loop().run_in_executor
            async with context.memory.taking(await in_thread(context.decoders, check_image, data, limits)):
                return await in_thread(context.decoders, work, data)

    def bounds(k: int, offset: int, rerank: bool, min_confidence: float, chosen: Filters) -> dict[str, Any]:
        some = None if chosen.is_empty else chosen
        return {"k": k, "offset": offset, "rerank": rerank, "min_confidence": min_confidence, "filters": some}

    def answered(query: dict[str, Any], like: list[int], unlike: list[int], **options: Any) -> Response:
        # Written in the thread of the search: FastAPI would check and write it again in the event loop.
        examples = {id: context.record(context.existing(id)) for id in (*like, *unlike)}
        hits: Hits = collection.search(**query, like=like or None, unlike=unlike or None, **options)
        answer = records.SearchAnswer(
            code=hits.code.hex(),
            n_bits=collection.settings.n_bits,
            generation=hits.generation,
            like=[examples[id] for id in like],
            unlike=[examples[id] for id in unlike],
            total=hits.total,
            matching=hits.matching,
            missing=hits.missing,
            note=hits.note,
            picture=base64.urlsafe_b64encode(hits.picture).decode().rstrip("="),
            offset=options["offset"],
            hits=[records.HitRecord.of(hit, show_path=context.show_paths) for hit in hits],
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    return router


def _decoded(picture: str | None) -> bytes | None:
    try:
        return None if picture is None else base64.urlsafe_b64decode(picture + "=" * (-len(picture) % 4))
    except binascii.Error:
        raise DataError("A picture must be what an earlier answer holds. Got something else.") from None
