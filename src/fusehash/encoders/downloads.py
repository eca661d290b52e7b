"""Models that a library downloads: at once an error instead of a minute of retries where there is no network."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from fusehash.extras import is_installed

SECONDS = 3.0  # to reach the host of the models
_LOCK = threading.RLock()


@contextmanager
def loading_models() -> Iterator[None]:
    """Load models one at a time; without a network, only those that are on this machine are looked for."""
    with _LOCK:
        if not is_installed("huggingface_hub") or _is_reachable():
            yield
            return
        from huggingface_hub import constants

        hub: Any = constants
        before, hub.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE, True
        try:
            yield
        finally:
            hub.HF_HUB_OFFLINE = before


def _is_reachable() -> bool:
    """Whether the host answers; a proxy is taken at its word."""
    if getproxies():
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        with socket.create_connection((address.hostname or "huggingface.co", port), SECONDS):
            return True
    except (OSError, ValueError):
        return False
