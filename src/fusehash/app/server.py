"""Run the app with uvicorn, on a socket that is bound before anything is printed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusehash.app.guard import ANY_ADDRESS, Limits, ip_address
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 1024  # connections that the system keeps until they are accepted
ACCEPTED_AT_ONCE = 64  # before the event loop turns to something else
# The event loop waits this long for the interpreter's lock after every system call while a thread computes.
SWITCH_SECONDS = 0.0005


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
        listening.listen(BACKLOG)
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


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None], limits: Limits | None = None) -> None:
    """Serve until Ctrl-C or SIGTERM; requests in progress are finished first."""
    import uvicorn

    from fusehash.app.connections import Connections, FewLines, protocol_for

    connections = Connections(limits or Limits())

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listening.listen(BACKLOG)
            self.sweeping = asyncio.create_task(connections.sweep())
            ready()

    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    bounds: dict[str, Any] = {"timeout_keep_alive": 15, "timeout_graceful_shutdown": 10, "backlog": ACCEPTED_AT_ONCE}
    protocols: dict[str, Any] = {"http": protocol_for(connections), "ws": "none", "lifespan": "off"}
    config = uvicorn.Config(app, **quiet, **bounds, **protocols, proxy_headers=False)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the sender gets the error
    few_lines = FewLines()
    for name in ("asyncio", "fusehash.app", "uvicorn.error"):
        logging.getLogger(name).addFilter(few_lines)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # or every full collection looks at all that was imported, 0.2 s in which nobody is answered
    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listening])
