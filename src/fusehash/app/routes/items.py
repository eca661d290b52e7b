"""Read items: lists, details, thumbnails and original pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from fusehash.app import records
from fusehash.app.errors import ApiError
from fusehash.app.routes.common import DEFAULT_RESULTS, Context, answers, filters, links_to, tagged
from fusehash.collection import Filters
from fusehash.collection.originals import Original, exif_of

PART = 1 << 18  # bytes of a file that are read at once
Order = Literal["id", "newest", "oldest", "name", "added"]


def reading_items(context: Context) -> APIRouter:
    """Routes that read items."""
    router = APIRouter(prefix="/api", tags=["items"])
    collection, limits = context.collection, context.limits
    id_path = Path(ge=1, le=records.MAX_ID)
    order_query = Query("id", description="By id, by date, by name, or the last added first.")
    chosen_filters = Depends(filters)
    pictures: dict[str, Any] = {
        f"image/{kind}": {} for kind in ("jpeg", "png", "gif", "webp", "bmp", "tiff", "heif", "avif")
    }
    picture: dict[int | str, Any] = {200: {"content": pictures}, 304: {"description": "Not changed."}}

    @router.get("/items", responses=answers(422, **links_to("/items/0/id")), summary="Items, filtered and ordered")
    async def items(
        offset: int = Query(0, ge=0, le=records.MAX_ID),
        limit: int = Query(DEFAULT_RESULTS, ge=1, le=limits.results),
        order: Order = order_query,
        chosen: Filters = chosen_filters,
    ) -> records.ItemsAnswer:
        def work() -> records.ItemsAnswer:
            listed = [context.record(item) for item in collection.items(offset, limit, filters=chosen, order=order)]
            total = len(collection) if chosen.is_empty else collection.count(filters=chosen)
            return records.ItemsAnswer(total=total, offset=offset, items=listed)

        return await context.reads.run(work)

    @router.get("/items/{id}", responses=answers(404, 422, **links_to("/id")), summary="One item")
    async def item(id: int = id_path) -> records.ItemRecord:
        return context.record(await context.reads.run(context.existing, id))

    @router.get("/items/{id}/details", responses=answers(404, 422), summary="All that is known about an item")
    async def details(id: int = id_path) -> records.DetailsAnswer:
        def work() -> records.DetailsAnswer:
            item, original = context.existing(id), collection.original(id)
            size, exif = 0, {}
            if original is not None:
                with original.file:
                    size, exif = original.size, exif_of(original)
            near = [
                records.NearRecord(item=context.record(collection.item(other)), distance=distance, same_image=same)
                for other, distance, same in collection.near(id)
            ]
            return records.DetailsAnswer(item=context.record(item), bytes=size, exif=exif, near=near)

        return await context.files.run(work)

    @router.get(
        "/items/{id}/thumbnail",
        response_class=Response,
        responses=answers(404, 422) | picture,
        summary="A small picture",
    )
    async def thumbnail(request: Request, id: int = id_path) -> Response:
        content = await context.reads.run(collection.thumbnail, id)
        if content is None:
            raise ApiError(404, "no_image", "There is no item with this id, or it has no image.")
        media_type = "image/webp" if content[8:12] == b"WEBP" else "image/jpeg"  # older collections have JPEG
        return tagged(request, content, media_type, "private, max-age=300")

    partial = {206: {"content": pictures, "description": "A part of it."}}

    @router.get(
        "/items/{id}/image",
        response_class=Response,
        responses=answers(404, 416, 422) | picture | partial,
        summary="The original picture",
    )
    async def original(request: Request, id: int = id_path) -> Response:
        """Streamed from where it was indexed, if its content is still the same. One range of bytes may be asked for."""
        opened = await context.files.run(collection.original, id)
        if opened is None:
            message = "There is no original: no such item, no picture, or its file is gone or has changed."
            raise ApiError(404, "no_image", message)
        return _streamed(request, opened)

    return router


def _streamed(request: Request, original: Original) -> Response:
    """The whole file, the part that was asked for, or 304."""
    tag = f'"{original.content.hex()}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        original.file.close()
        return Response(status_code=304, headers=headers)
    first, last, status = 0, original.size - 1, 200
    if request.headers.get("if-range", tag) == tag and (asked := request.headers.get("range")) is not None:
        part = _range(asked, original.size)
        if part is not None and part[0] > part[1]:
            original.file.close()
            message = f"The range must be within the {original.size:,} bytes of the file."
            raise ApiError(416, "no_range", message, {"Content-Range": f"bytes */{original.size}"})
        if part is not None:
            first, last = part
            status = 206
            headers["Content-Range"] = f"bytes {first}-{last}/{original.size}"
    headers["Content-Length"] = str(last - first + 1)
    content = _parts(original.file, first, last - first + 1)
    return StreamingResponse(content, status, headers, media_type=original.media_type)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """The first and last byte of a range, the wrong way around if it has none; None if it is not one of bytes."""
    unit, _, spec = text.partition("=")
    first, dash, last = spec.strip().partition("-")
    is_plain = all(part == "" or (part.isascii() and part.isdecimal() and len(part) < 20) for part in (first, last))
    if unit.strip().lower() != "bytes" or not dash or not is_plain or not (first or last):
        return None
    if not first:
        return max(0, size - int(last)), (size - 1 if int(last) else -1)
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last), size - 1) if last else size - 1


def _parts(file: BinaryIO, first: int, count: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        while count > 0 and (part := file.read(min(PART, count))):
            count -= len(part)
            yield part
