"""A child process that is killed at a chosen moment, for the tests of kill -9."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def told_before_kill(work: Callable[[int], None], seconds: float, told_first: int = 0) -> int:
    """Fork, let the child call work(pipe), kill it with SIGKILL; return the number of bytes it wrote to the pipe.

    The child is killed ``seconds`` after it has written ``told_first`` bytes, so that it has done something by then
    even on a busy machine.
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
    written = 0
    while written < told_first and (part := os.read(reader, told_first - written)):
        written += len(part)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    while part := os.read(reader, 4096):
        written += len(part)
    os.close(reader)
    os.waitpid(pid, 0)
    return written
