"""Workers in other processes (worker.py), seen from the test: sent commands, killed, forked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

POOL = 4  # processes that wait for their next use
EXIT_SECONDS = 300.0
HANGS = 900.0  # seconds without an answer, on a busy computer


class Process:
    """One process, with the folder that each of its handles was opened in."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(HANGS)
        self._answers, self._requests = connection.makefile("r"), connection.makefile("w")
        connection.close()
        self.pid = int(self._listen()["pid"])
        self.handles: dict[str, str] = {}

    def begin(self, command: str, **arguments: Any) -> None:
        self._requests.write(json.dumps({"do": command, **arguments}) + "\n")
        self._requests.flush()

    def acknowledged(self, count: int) -> int:
        """Wait for so many calls of `change`; returns how many of them there were before it ended."""
        for number in range(count):
            answer = self._listen()
            if "acknowledged" not in answer:
                self._early = answer
                return number
        return count

    _early: dict[str, Any] | None = None

    def end(self) -> dict[str, Any]:
        """The answer to what was begun, {} if the process died, with the number of calls that were acknowledged."""
        count = 0
        while True:
            answer, self._early = self._early or self._listen(), None
            if "acknowledged" not in answer:
                return {**answer, "acknowledged": count}
            count += 1

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.begin(command, **arguments)
        return self.end()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def _listen(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except ConnectionResetError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line.endswith("\n") else {}
        return answer

    def leave(self) -> None:
        """Let the process end by itself."""
        self.begin("exit")
        self._requests.close()
        self._answers.close()


class Nursery:
    """Starts processes that have fusehash imported and nothing open."""

    def __init__(self, kind: str) -> None:
        memory = Path("/dev/shm")  # where fsync costs nothing; what it is good for is tested in tests/hostile/power
        self.folder = Path(tempfile.mkdtemp(prefix="fh", dir=memory if os.access(memory, os.W_OK) else None))
        address = str(self.folder / "socket")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address)
        self._socket.listen()
        self._socket.settimeout(HANGS)
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("worker.py")), address, kind]
        self._started = subprocess.Popen(command, env=one_thread)
        self._first = Process(self._socket.accept()[0])
        self._free: list[Process] = []
        self._first.ask("warm_up", folder=str(self.folder / "warm"))

    def spawn(self) -> Process:
        """A process with nothing open."""
        return self._free.pop() if self._free else self._new("fork", self._first)

    def take_back(self, process: Process) -> None:
        """Use a process again, with its handles closed, or let it end if there are enough."""
        if len(self._free) < POOL and "done" in process.ask("close_all"):
            process.handles.clear()
            self._free.append(process)
        else:
            process.leave()

    def fork(self, process: Process) -> Process:
        """A child of this process, which goes on with copies of its handles."""
        child = self._new("fork", process)
        child.handles = dict(process.handles)
        return child

    def _new(self, command: str, parent: Process) -> Process:
        parent.begin(command)
        process = Process(self._socket.accept()[0])
        assert parent.end()["done"] == process.pid
        return process

    def close(self) -> None:
        for process in (*self._free, self._first):
            process.leave()
        try:
            self._started.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._started.kill()
            raise
        self._socket.close()
        shutil.rmtree(self.folder)
