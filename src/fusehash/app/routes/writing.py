"""Add, edit and remove items, and undo it; guard.py has checked the token and where the request comes from."""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import dataclass, field

import anyio
from fastapi import APIRouter, Path, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from fusehash.app import records
from fusehash.app.cache import check_image
from fusehash.app.errors import ApiError
from fusehash.app.routes.common import NO_ITEM, Context, answers, links_to
from fusehash.collection import NewItem, Report
from fusehash.collection.items import Saved
from fusehash.errors import DataError

MAX_UNDO, MAX_KEPT = 100, 5_000  # changes that can be undone, and items that are kept for it


@dataclass
class Step:
    """What undoes a change: ids to remove, and items to bring back."""

    added: list[int] = field(default_factory=list)
    before: list[Saved] = field(default_factory=list)


def writing(context: Context) -> APIRouter:
    """Routes that change items."""
    bearer = Security(HTTPBearer(auto_error=False, description="The token of the server."))
    router = APIRouter(prefix="/api", tags=["writing"], dependencies=[bearer])
    collection, limits, lock = context.collection, context.limits, anyio.Lock()
    steps: deque[Step] = deque()
    id_path = Path(ge=1, le=records.MAX_ID)

    added = answers(400, 401, 403, 408, 413, 415, 422, **links_to("/ids/0"))

    @router.post("/items", responses=added, summary="Add items, all or none")
    async def add(request: records.AddRequest) -> records.ReportAnswer:
        """An existing key is an error. The items are encoded with the current model."""
        if len(request.items) > limits.batch_items:
            raise ApiError(413, "too_many", f"At most {limits.batch_items:,} items may be added in one request.")

        def work() -> records.ReportAnswer:
            new = [NewItem(item.key, decoded(item), item.text, tuple(item.labels)) for item in request.items]
            report = collection.add(new)
            return done(report, Step(added=report.ids))

        async with lock:
            return await run_in_threadpool(work)

    @router.patch(
        "/items/{id}", responses=answers(400, 401, 403, 404, 408, 413, 415, 422), summary="Edit a caption or labels"
    )
    async def edit(request: records.EditRequest, id: int = id_path) -> records.ReportAnswer:
        """What is not given stays. An empty text removes the caption."""

        def work() -> records.ReportAnswer:
            before = saved([id])
            report = collection.edit(id, text=request.text, labels=request.labels)
            return done(report, Step(before=before if report.changed else []))

        async with lock:
            return await run_in_threadpool(work)

    @router.delete("/items/{id}", responses=answers(401, 403, 404, 422), summary="Remove an item")
    async def remove(id: int = id_path) -> records.ReportAnswer:
        """Its file is not touched."""

        def work() -> records.ReportAnswer:
            before = saved([id])
            return done(collection.remove([id]), Step(before=before))

        async with lock:
            return await run_in_threadpool(work)

    several = answers(400, 401, 403, 404, 408, 413, 415, 422)

    @router.post("/remove", responses=several, summary="Remove items, all or none")
    async def remove_several(request: records.RemoveRequest) -> records.ReportAnswer:
        """Their files are not touched. It is undone as one change."""

        def work() -> records.ReportAnswer:
            before = saved(list(dict.fromkeys(request.ids)))
            return done(collection.remove(request.ids), Step(before=before))

        async with lock:
            return await run_in_threadpool(work)

    @router.post("/label", responses=several, summary="Add and remove labels of items, all or none")
    async def label(request: records.LabelRequest) -> records.ReportAnswer:
        """First labels are removed, then others added. It is undone as one change."""

        def work() -> records.ReportAnswer:
            before = saved(list(dict.fromkeys(request.ids)))
            report = collection.label(request.ids, add=request.add, remove=request.remove)
            changed = set(report.ids)
            return done(report, Step(before=[each for each in before if each.entry.id in changed]))

        async with lock:
            return await run_in_threadpool(work)

    @router.post("/undo", responses=answers(401, 403, 404, 415, 422), summary="Undo the last change of this server")
    async def undo() -> records.ReportAnswer:
        """Added items go, removed ones come back with their ids, edited ones are what they were."""

        def work() -> records.ReportAnswer:
            if not steps:
                raise ApiError(404, "nothing_to_undo", "There is nothing to undo.")
            step = steps[-1]
            report = collection.restore(step.before) if step.before else Report()
            present = [id for id in step.added if exists(id)]
            if present:
                report.removed = collection.remove(present).removed
            steps.pop()
            return records.ReportAnswer.of(report)

        async with lock:
            return await run_in_threadpool(work)

    def done(report: Report, step: Step) -> records.ReportAnswer:
        if step.before or step.added:
            steps.append(step)
        while len(steps) > MAX_UNDO or (len(steps) > 1 and sum(len(each.before) for each in steps) > MAX_KEPT):
            steps.popleft()
        return records.ReportAnswer.of(report)

    def saved(ids: list[int]) -> list[Saved]:
        try:
            return collection.saved(ids)
        except DataError:
            message = NO_ITEM if len(ids) == 1 else "Nothing has been changed: some of the items do not exist."
            raise ApiError(404, "not_found", message) from None

    def exists(id: int) -> bool:
        try:
            return bool(collection.item(id))
        except DataError:
            return False

    def decoded(item: records.NewItemRecord) -> bytes | None:
        if item.image is None:
            return None
        data = base64.b64decode(item.image)
        check_image(data, limits)
        return data

    return router
