"""A child that is killed at a chosen moment, and what it could still tell: for the tests of kill -9."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def told_before_kill(work: Callable[[int], None], seconds: float, told_first: int = 0) -> int:
    """Fork, let the child call work(pipe), kill it with SIGKILL; the number of bytes it wrote to the pipe.

    It is killed some seconds after it has told so many bytes: on a busy machine, too, it has done something by then.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            work(writer)
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        os._exit(0)
    os.close(writer)
    told = 0
    while told < told_first and (part := os.read(reader, told_first - told)):
        told += len(part)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    while part := os.read(reader, 4096):
        told += len(part)
    os.close(reader)
    os.waitpid(pid, 0)
    return told
