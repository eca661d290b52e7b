"""Runs the app with uvicorn on a socket that is bound before anything is said."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from fusehash.app.guard import ANY_ADDRESS
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fastapi import FastAPI


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise DataError(f"The host must be an address of this machine. {host!r} is none ({error}).") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        other = "; --port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise DataError(f"Port {port} of {host} could not be opened: {error.strerror}{other}.") from error
    return listening


def is_local(host: str) -> bool:
    """Whether nobody but this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def hosts_of(host: str) -> tuple[str, ...]:
    """What a Host header may say, for an address that was bound.

    Bound to every address of this machine, any address of digits will do: it takes a name to lead a browser here by
    DNS rebinding.
    """
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host.strip("[]")).is_unspecified:
            return (ANY_ADDRESS, socket.gethostname())
    return (host,)


def address(listening: socket.socket, host: str) -> str:
    """Where a browser finds it."""
    bare, port = host.strip("[]"), listening.getsockname()[1]
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(bare).is_unspecified:
            bare = "localhost"
    return f"http://{f'[{bare}]' if ':' in bare else bare}:{port}/"


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until Ctrl-C or SIGTERM; what is under way is finished first."""
    import logging

    import uvicorn

    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what is wrong with a request is told to its sender

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="off",
        timeout_keep_alive=15, timeout_graceful_shutdown=10, ws="none",
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a server is meant to end
        Server(config).run(sockets=[listening])
