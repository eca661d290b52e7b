"""The web app: a collection as one page and an HTTP API. `create_app` makes it, `fusehash serve` runs it.

Nothing is loaded from other hosts, and nothing that a visitor sends is used as a path or an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusehash import extras
from fusehash.errors import ParameterError
from fusehash.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fusehash.app.guard import Limits
    from fusehash.collection import Collection

__all__ = ["Limits", "create_app"]


def create_app(
    collection: Collection,
    *,
    writable: bool = False,
    token: str | None = None,
    limits: Limits | None = None,
    hosts: tuple[str, ...] = (),
    show_paths: bool = False,
) -> FastAPI:
    """Make the app of an open collection.

    Parameters
    ----------
    collection : Collection
        Close it after the app has stopped.
    writable, token : bool, default=False; str, optional
        Whether items may be added and removed, and what a writer sends as "Authorization: Bearer TOKEN".
    limits : Limits, optional
        How much a visitor may ask for.
    hosts : tuple of str, default=()
        Host names of the app, in addition to "localhost" and its addresses; "*" allows any IP address.
    show_paths : bool, default=False
        Whether visitors see where on this machine an image was read from.

    Returns
    -------
    fastapi.FastAPI

    Raises
    ------
    MissingPackageError
        If the extra "serve" is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from fusehash.app import create_app
    >>> from fusehash.collection import Collection
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/my.collection") as collection:
    ...     app = create_app(collection)
    >>> app.title
    'fusehash'
    """
    for package in ("fastapi", "uvicorn"):
        extras.require(package, "Serving a collection")
    from fastapi import FastAPI

    from fusehash.app import errors, guard, routes
    from fusehash.app.routes.common import Context

    if writable and (not token or not token.isascii()):
        raise ParameterError("create_app", "token", "a non-empty ASCII string if writable is true", "none")
    limits = limits or guard.Limits()
    app = FastAPI(
        title="fusehash",
        summary="Find images by texts and texts by images, by the Hamming distance of their codes.",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts; /api/docs does not
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    errors.install(app)
    name = collection.path.name.removesuffix(".collection") or "collection"
    routes.install(app, Context(collection, limits, name, writable, show_paths))
    app.add_middleware(guard.Guard, limits=limits, hosts=guard.allowed_hosts(hosts), token=token if writable else None)
    return app


def __getattr__(name: str) -> Any:
    if name != "Limits":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fusehash.app.guard import Limits

    return Limits
