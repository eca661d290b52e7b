"""The web app: a collection as one page and an HTTP API. `create_app(collection)` makes it; `fusehash serve` runs it.

The page and the API are for one collection. Nothing is fetched from elsewhere, and nothing that a visitor sends is ever
taken for a path or an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusehash.app.limits import Limits
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fusehash.collection import Collection

__all__ = ["Limits", "create_app"]


def create_app(
    collection: Collection,
    *,
    writable: bool = False,
    token: str | None = None,
    limits: Limits | None = None,
    hosts: tuple[str, ...] = (),
) -> FastAPI:
    """The app of one collection.

    Parameters
    ----------
    collection : an open collection; the caller closes it after the app has stopped.
    writable : whether items may be added and removed; needs a ``token``.
    token : what a writer must show as "Authorization: Bearer TOKEN".
    limits : how much one visitor may ask for.
    hosts : names by which the app may be addressed, besides those of this machine itself ("localhost" and so on);
        "*" stands for any address of digits.
    """
    make = _make()
    return make(collection, writable=writable, token=token, limits=limits or Limits(), hosts=hosts)


def _make() -> Any:
    try:
        from fusehash.app.assembly import assemble
    except ImportError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in ("fastapi", "starlette", "pydantic", "uvicorn", "python_multipart", "anyio"):
            raise
        raise DataError(f"Serving needs the package {missing}; pip install 'fusehash[serve]' brings it.") from error
    return assemble
