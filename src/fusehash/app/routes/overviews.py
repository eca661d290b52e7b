"""Overviews of the collection: counts, labels and other facets, groups, duplicates, codes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from fastapi import APIRouter, Query, Response

from fusehash.app import records
from fusehash.app.routes.common import Context, answers
from fusehash.errors import DataError
from fusehash.version import __version__

MAX_DUPLICATES = 200  # groups in one answer, and items of a group


def overviews(context: Context) -> APIRouter:
    """Routes that describe the collection."""
    router = APIRouter(prefix="/api", tags=["collection"])
    collection = context.collection

    @router.get("/labels", response_model=records.LabelsAnswer, responses=answers(), summary="All labels")
    async def labels() -> Response:
        return Response(await context.counts.get(label_list), media_type="application/json")

    @router.get("/facets", response_model=records.FacetsAnswer, responses=answers(), summary="What to filter by")
    async def facets() -> Response:
        return Response(await context.counts.get(facet_list), media_type="application/json")

    grouping = answers(item={"id": "/clusters/0/examples/0/id"})

    @router.get("/clusters", responses=grouping, summary="Groups of similar items")
    async def clusters() -> records.ClustersAnswer:
        return await context.overviews.get(grouped)

    @router.get("/duplicates", responses=answers(422), summary="Groups of items that are nearly the same")
    async def duplicates(
        offset: int = Query(0, ge=0, le=1_000_000), limit: int = Query(24, ge=1, le=MAX_DUPLICATES)
    ) -> records.DuplicatesAnswer:
        """Pictures that are equal byte by byte, or look the same in small."""
        groups = await context.overviews.get(duplicated)

        def work() -> records.DuplicatesAnswer:
            listed = [_records(context, group[:MAX_DUPLICATES]) for group in groups[offset : offset + limit]]
            return records.DuplicatesAnswer(total=len(groups), groups=listed)

        return await context.reads.run(work)

    @router.get("/codes", responses=answers(), summary="How the codes use their bits")
    async def codes() -> records.CodesAnswer:
        return records.CodesAnswer(**await context.overviews.get(collection.code_stats))

    @router.get("/stats", responses=answers(), summary="What the collection holds")
    async def stats() -> records.StatsAnswer:
        stats_now = await context.counts.get(collection.stats, seconds=1.0)
        facts = {key: value for key, value in stats_now.items() if key in records.StatsAnswer.model_fields}
        bounds = {key: getattr(context.limits, key) for key in records.LimitsRecord.model_fields}
        facts |= {"name": context.name, "writable": context.writable, "limits": records.LimitsRecord(**bounds)}
        return records.StatsAnswer(**facts)

    @router.get("/health", responses=answers(), summary="Whether the server works")
    async def health() -> records.HealthAnswer:
        def work() -> records.HealthAnswer:
            collection.check()
            return records.HealthAnswer(status="ok", version=__version__, items=len(collection))

        return await context.health_checks.run(work)

    def label_list() -> bytes:
        listed = [records.LabelRecord(name=name, count=count) for name, count in collection.labels().items()]
        return records.LabelsAnswer(labels=listed).model_dump_json().encode()

    def facet_list() -> bytes:
        facets = collection.facets()
        return (
            records.FacetsAnswer(
                labels=[records.LabelRecord(name=name, count=count) for name, count in facets["labels"].items()],
                folders=[records.FolderRecord(name=name, count=count) for name, count in facets["folders"].items()],
                years=[records.YearRecord(year=year, count=count) for year, count in facets["years"].items()],
                with_text=facets["with_text"],
                without_text=facets["without_text"],
            )
            .model_dump_json()
            .encode()
        )

    def grouped() -> records.ClustersAnswer:
        groups = []
        for group in collection.clusters():
            examples = _records(context, group.pop("examples"))
            groups.append(records.ClusterRecord(**group, examples=examples))
        return records.ClustersAnswer(clusters=groups)

    def duplicated() -> list[list[int]]:
        return collection.duplicates()

    return router


def _records(context: Context, ids: Iterable[int]) -> list[records.ItemRecord]:
    """The items of some ids that still exist."""
    listed = []
    for id in ids:
        with contextlib.suppress(DataError):  # removed meanwhile
            listed.append(context.record(context.collection.item(id)))
    return listed
