"""The app put together: guard, page, API, and its description."""

from __future__ import annotations

from fastapi import FastAPI

import fusehash
from fusehash.app import errors as problems
from fusehash.app import pages, routes
from fusehash.app.guard import Guard, known_hosts
from fusehash.app.limits import Limits
from fusehash.collection import Collection
from fusehash.errors import ParameterError


def assemble(
    collection: Collection, *, writable: bool, token: str | None, limits: Limits, hosts: tuple[str, ...]
) -> FastAPI:
    """See `fusehash.app.create_app`."""
    if writable and (not token or not token.isascii()):
        raise ParameterError("create_app", "token", "a non-empty ASCII string where writable is true", "none")
    app = FastAPI(
        title="fusehash",
        summary="Find images by texts and texts by images, by the Hamming distance of their codes.",
        version=fusehash.__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # those pages load scripts from elsewhere; /api/docs is our own
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    name = collection.path.name.removesuffix(".collection") or "collection"
    app.include_router(routes.reading(collection, limits, name, writable))
    app.include_router(routes.writing(collection, limits))
    app.router.routes.extend(pages.routes())
    app.add_middleware(
        Guard,
        limits=limits,
        hosts=known_hosts(hosts),
        token=token if writable else None,
    )
    return app
