"""Models that a library downloads: at once an error instead of a minute of retries where there is no network."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, build_opener

from fusehash.extras import is_installed

SECONDS = 3.0  # to reach the host of the models
REFUSED_BY_PROXY = (407, 502, 503, 504)
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
    """Whether the host answers, through a proxy where one is set."""
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        opener = build_opener()  # urlopen would keep the proxies of its first call
        with opener.open(Request(address, method="HEAD"), timeout=SECONDS):
            return True
    except HTTPError as error:
        return error.code not in REFUSED_BY_PROXY
    except (OSError, ValueError, HTTPException):  # no such host, no answer, or a proxy that opens no tunnel
        return False
