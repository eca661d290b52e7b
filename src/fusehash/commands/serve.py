"""`fusehash serve`: a collection as a web page and an HTTP API."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from fusehash.commands.locations import check_collection
from fusehash.commands.terminal import complain
from fusehash.console import printable
from fusehash.errors import DataError
from fusehash.extras import require

EXAMPLE = """Example: fusehash serve my.collection

For other machines in your network: fusehash serve my.collection --host 0.0.0.0

With writing: fusehash serve my.collection --writable --token-file token.txt"""

MIN_TOKEN = 16
PACKAGES = ("fastapi", "uvicorn", "PIL.Image")


def serve(
    path: Annotated[Path, typer.Argument(metavar="COLLECTION", help="The folder of a collection.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of this server that browsers may use; repeat for more.")
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Clients with the token may add and remove.")] = False,
    paths: Annotated[
        bool | None,
        typer.Option(help="Show visitors where pictures are on this machine; by default only on this machine itself."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="The token for writing; default: a new one is shown.")] = None,
) -> None:
    """Serve a search page for a collection at http://127.0.0.1:8000, and an HTTP API documented at /api/docs."""
    for package in PACKAGES:
        require(package, "fusehash serve")
    from fusehash.app import cache, create_app, server
    from fusehash.collection import Collection

    if token_file is not None and not writable:
        raise typer.BadParameter("needs --writable.", param_hint="'--token-file'")
    token = _token(token_file) if writable else None
    if path.is_dir():
        check_collection(path)
    with Collection.open(path) as collection:
        names = (*server.hosts_of(host), *(allow_host or ()))
        is_local = server.is_local(host)
        show_paths = is_local if paths is None else paths
        app = create_app(collection, writable=writable, token=token, hosts=names, show_paths=show_paths)
        with server.bind(host, port) as listening:
            where = server.address(listening, host)
            if not is_local:
                complain(f"warning: everyone who can reach {host} can search this collection; there is no password.")
            if writable and token_file is None:
                complain(f"the token for writing is {token}")
                complain(f"a page that may write: {where}#token={token}")
            cache.warm_up(collection)
            title = f"Serving {printable(str(path))} at {where} (Ctrl-C stops)"
            server.serve(app, listening, lambda: typer.echo(title))


def _token(path: Path | None) -> str:
    """The token in a file, or a new one."""
    if path is None:
        return secrets.token_urlsafe(24)
    try:
        token = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        raise DataError(f"The token for writing must be at {path}. There is no file.") from None
    except OSError as error:
        raise DataError(f"The token for writing must be in a file. {path} cannot be read: {error.strerror}.") from error
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(f"A token must be at least {MIN_TOKEN} ASCII characters without spaces. {path} has another.")
    return token
