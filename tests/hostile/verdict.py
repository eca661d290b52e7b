"""What a hostile file must not do, and how it is noticed.

Allowed outcomes are success and an error of fusehash. Faults, by name:

foreign    an exception of another class than FusehashError, or a command that ends in more than one sentence
memory     MemoryError: more than 1 GiB was asked for
cpu        more than 5 s of CPU time
hang       no CPU time was used for several seconds and no answer came
crash      the process died by a signal
executed   code of the file ran: a canary was made, a pickle was read, a process or an exec was started
outside    a file outside of the case was opened or changed
network    a connection was tried
modified   the input was changed by reading it
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import fusehash

CPU_SECONDS = 5.0
MEMORY_BYTES = 1 << 30
FAULTS = ("foreign", "memory", "cpu", "hang", "crash", "executed", "outside", "network", "modified")

_IN_ACCESS, _IN_MODIFY, _IN_OPEN, _IN_CREATE, _IN_DELETE = 0x1, 0x2, 0x20, 0x100, 0x200
_EXECUTING = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen"}
_CONNECTING = {"socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname"}
_MAKING_CLASSES = (
    "dataclasses.py",
    "importlib._bootstrap",
    "collections/__init__.py",
    "/numba/",
    "/attr/",
    "/typing.py",
    "/inspect.py",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Auditor:
    """Notes what Python does while a case runs; what libraries in C open is seen by the `Canary`."""

    def __init__(self) -> None:
        self.active = self._busy = False
        self.violations: list[tuple[str, str]] = []
        installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        installed.add(str(Path(np.__file__).resolve().parents[1]))  # packages may be those of another environment
        ours = {str(Path(fusehash.__file__).parent), str(Path(__file__).resolve().parents[1])}
        roots = {*installed, *ours, sys.prefix, sys.base_prefix}
        self._readable = (*(f"{root}/" for root in roots), "/proc/", "/sys/", "/dev/", "/usr/", "/etc/", "/lib")
        self._writable: tuple[str, ...] = ("/dev/null",)
        sys.addaudithook(self._hook)

    def allow(self, *folders: Path) -> None:
        """Folders that a case may read and write."""
        cache = [str(Path(name).expanduser()) for name in ("~/.cache/", "~/.config/matplotlib/")]
        self._writable = ("/dev/null", "/dev/shm/sem.", *(f"{folder}" for folder in folders), *cache)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and not self._busy:
            self._busy = True
            try:
                fault = self._fault(event, arguments)
            finally:
                self._busy = False
            if fault is not None and self.active:
                self.violations.append(fault)

    def _fault(self, event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
        if event == "open":
            return self._opened(*arguments)
        if event in _EXECUTING:
            return "executed", f"{event} {arguments[:2]!r}"[:300]
        if event in _CONNECTING:
            return "network", f"{event} {arguments[1:]!r}"[:300]
        if event == "pickle.find_class":
            return None if _called_from("/numba/") else ("executed", f"{event} {arguments!r}"[:300])
        if event == "exec" and not _called_from(*_MAKING_CLASSES):
            name = getattr(arguments[0], "co_filename", "<text>")
            return None if name.startswith(self._readable) else ("executed", f"exec of {name} by {_callers()}")
        return None

    def _opened(self, path: Any, mode: Any, flags: Any) -> tuple[str, str] | None:
        if isinstance(path, int):
            return None
        name = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(path)))  # noqa: PTH109, PTH118 (in a hook)
        writes = isinstance(flags, int) and bool(flags & _WRITING)
        allowed = self._writable if writes else (*self._writable, *self._readable)
        if name.startswith(allowed) or f"{name}/" in self._readable or "__pycache__" in name:
            return None
        return "outside", f"open {name} {mode or flags}"


def _called_from(*parts: str) -> bool:
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return False
        if any(part in frame.f_code.co_filename for part in parts):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _callers() -> str:
    frame, names = sys._getframe(4), []
    while frame is not None and len(names) < 4:
        names.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(names)


class Canary:
    """A folder outside of the case that nothing may open, read or change; the kernel reports what happens in it."""

    def __init__(self, folder: Path, content: dict[str, bytes]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in content.items():
            (folder / name).write_bytes(data)
        self._names = set(content)
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = _IN_ACCESS | _IN_MODIFY | _IN_OPEN | _IN_CREATE | _IN_DELETE
        if self._handle < 0 or libc.inotify_add_watch(self._handle, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify is needed to notice what a file opens")

    def events(self) -> list[tuple[str, str]]:
        """What has happened since the last call; what was made is removed."""
        data, faults, position = self._drained(), [], 0
        while position < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, position)
            name = os.fsdecode(data[position + 16 : position + 16 + length].rstrip(b"\0"))
            position += 16 + length
            if mask & _IN_CREATE:
                faults.append(("executed", f"made {name} among the canaries"))
            else:
                faults.append(("outside", f"touched {name or 'the folder'} of the canaries ({mask & 0xFFF:#x})"))
        if faults:
            for extra in set(os.listdir(self.folder)) - self._names:  # noqa: PTH208
                path = self.folder / extra
                path.rmdir() if path.is_dir() else path.unlink()
            self._drained()
        return faults[:3]

    def _drained(self) -> bytes:
        try:
            return os.read(self._handle, 1 << 16)
        except BlockingIOError:
            return b""


def fingerprint(folder: Path) -> dict[str, str]:
    """What is in a folder: relative path -> hash."""
    content = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)  # noqa: PTH118 (many files)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:  # noqa: PTH123
                    digest = hashlib.blake2b(file.read(), digest_size=12).hexdigest()
            else:
                digest = os.readlink(path) if stat.S_ISLNK(mode) else str(stat.S_IFMT(mode))  # noqa: PTH115
            content[os.path.relpath(path, folder)] = digest
    return content


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Files that reading has changed, made or removed, except what is allowed.

    Allowed: SQLite's -shm and -wal files come and go; a SQLite file changes if its -wal was there, which is merged into
    it; lock files appear; a folder `o` or file `out.safetensors` is what a command was asked to write.
    """
    merged = {name.removesuffix("-wal") for name in before if name.endswith("-wal")}
    names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return sorted(
        name
        for name in names
        if not name.endswith(("-shm", "-wal", ".lock"))
        and name not in merged
        and name not in ("out.safetensors", "again.safetensors", "o")
        and not name.startswith("o/")
    )


def describe(error: BaseException) -> str:
    """Class, message and the line of fusehash that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fusehash/" in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:200]}"


def temporary_root() -> Path:
    """A folder in memory where there is one: cases write and sync many small files."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fusehash-attack-", dir=shared if os.access(shared, os.W_OK) else None))
