"""Run the app with uvicorn, on a socket that is bound before anything is printed."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusehash.app.guard import ANY_ADDRESS, ip_address
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fastapi import FastAPI


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
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
    """Whether only this machine can reach an address."""
    address = ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def hosts_of(host: str) -> tuple[str, ...]:
    """What a Host header may contain; an app bound to all addresses allows any IP: DNS rebinding needs a name."""
    address = ip_address(host)
    return (ANY_ADDRESS, socket.gethostname()) if address is not None and address.is_unspecified else (host,)


def address(listening: socket.socket, host: str) -> str:
    """URL for a browser."""
    bare, port = host.strip("[]"), listening.getsockname()[1]
    if ANY_ADDRESS in hosts_of(host):
        bare = "localhost"
    return f"http://{f'[{bare}]' if ':' in bare else bare}:{port}/"


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; requests in progress are finished first."""
    import uvicorn

    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the sender gets the error

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    seconds: dict[str, Any] = {"timeout_keep_alive": 15, "timeout_graceful_shutdown": 10}
    config = uvicorn.Config(app, **quiet, **seconds, proxy_headers=False, lifespan="off", ws="none")
    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listening])
