"""The routes of the app: the files of the page, and the HTTP API under /api."""

from __future__ import annotations

from fastapi import FastAPI

from fusehash.app.routes.common import Context
from fusehash.app.routes.items import reading_items
from fusehash.app.routes.overviews import overviews
from fusehash.app.routes.pages import pages
from fusehash.app.routes.searching import searching
from fusehash.app.routes.writing import writing


def install(app: FastAPI, context: Context) -> None:
    """Add all routes to an app."""
    for routes in (searching, reading_items, overviews, writing):
        app.include_router(routes(context))
    app.router.routes.extend(pages())
