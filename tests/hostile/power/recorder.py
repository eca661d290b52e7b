"""Records what a program asks of the disk below one folder, call by call, by tracing its system calls.

The kernel reports every call of the program and its threads and children (ptrace), so nothing escapes, whether Python,
SQLite or a compiled package makes it, and nothing has to be installed. Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = tuple[Any, ...]  # ("write", inode, offset, data) and the like, see disk.py

_TRACEME, _SYSCALL, _SET_OPTIONS, _SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # mark system calls; follow fork, vfork and clone; end with the tracer
_WAIT_ALL = 0x40000000  # for threads, too
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_INFO = struct.Struct("B3xI2Q7Q")  # of a call that begins: kind, architecture, two pointers, number, six arguments
_AT_FOLDER = -100
_CALLS = {
    1: "write", 2: "open", 9: "mmap", 18: "pwrite", 20: "writev", 40: "sendfile", 74: "fsync", 75: "fsync",
    76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link", 87: "unlink",
    162: "sync", 257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat",
    285: "fallocate", 296: "pwritev", 306: "syncfs", 316: "renameat", 326: "copy_file_range",
    328: "pwritev", 437: "openat2",
}  # fmt: skip
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_NOT_REPLAYED = ("sendfile", "copy_file_range", "openat2", "pwritev")


def obstacle() -> str:
    """Why nothing can be recorded on this machine; empty if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the recorder knows the system calls of Linux on x86-64 only"
    pid = os.fork()
    if pid == 0:
        os._exit(_ptrace(_TRACEME, 0, 0, None, check=False) & 1)
    return "" if os.waitpid(pid, 0)[1] == 0 else "ptrace is forbidden here (a container without SYS_PTRACE?)"


def record(folder: Path, work: Callable[[Callable[[str], None]], None]) -> list[Call]:
    """Fork, call work(mark) in the child and return its calls below `folder`; mark(text) becomes a ("mark", text)."""
    marks = folder.with_name(folder.name + ".marks")
    marks.touch()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            handle = os.open(marks, os.O_WRONLY)
            _ptrace(_TRACEME, 0, 0, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            work(lambda text: os.write(handle, text.encode()) and None)
            status = 0
        except BaseException as error:
            os.write(2, f"the recorded program: {error!r}\n".encode())
        os._exit(status)
    os.waitpid(pid, os.WUNTRACED)
    _ptrace(_SET_OPTIONS, pid, 0, ctypes.c_void_p(_OPTIONS))
    try:
        return _Tracer(folder, marks).follow(pid)
    finally:
        marks.unlink()


class _Tracer:
    def __init__(self, folder: Path, marks: Path) -> None:
        self._root, self._marks = os.path.realpath(folder), os.path.realpath(marks)
        self._calls: list[Call] = []
        self._entered: dict[int, tuple[str, list[int]]] = {}  # by thread, the call that it is in

    def follow(self, first: int) -> list[Call]:
        running = {first}
        _ptrace(_SYSCALL, first, 0, None)
        while running:
            pid, status = os.waitpid(-1, _WAIT_ALL)
            if not os.WIFSTOPPED(status):
                running.discard(pid)
                if pid == first and status:
                    raise RuntimeError("the recorded program failed")
                continue
            stop, passed_on = os.WSTOPSIG(status), 0
            if stop == _SYSCALL_STOP:
                self._at_call(pid)
            elif pid not in running:
                running.add(pid)  # a new thread or child begins with a stop
            elif not status >> 16:
                passed_on = stop
            _ptrace(_SYSCALL, pid, 0, ctypes.c_void_p(passed_on), check=False)  # it may just have been killed
        return self._calls

    def _at_call(self, pid: int) -> None:
        info = ctypes.create_string_buffer(_INFO.size)
        _ptrace(_SYSCALL_INFO, pid, _INFO.size, info)
        kind, _, _, _, first, *arguments = _INFO.unpack(info.raw)
        if kind == 1:  # the call begins, first is its number
            if first in _CALLS:
                self._entered[pid] = _CALLS[first], arguments
        elif pid in self._entered:  # it has ended, first is its result
            name, arguments = self._entered.pop(pid)
            result = first - (1 << 64) if first >> 63 else first
            if result >= 0:
                self._note(pid, name, arguments, result)

    def _note(self, pid: int, name: str, arguments: list[int], result: int) -> None:
        a, b, c, d = arguments[:4]
        if name in ("open", "creat"):
            flags = os.O_CREAT | os.O_TRUNC if name == "creat" else b
            self._opened(pid, self._path(pid, _AT_FOLDER, a), flags, result)
        elif name == "openat":
            self._opened(pid, self._path(pid, a, b), c, result)
        elif name in ("write", "writev", "pwrite"):
            self._written(pid, name, a, b, c, d, result)
        elif name in ("fsync", "ftruncate", "fallocate"):
            if (inode := self._inode(pid, a)) is not None:
                call: Call = ("sync", inode) if name == "fsync" else ("truncate", inode, b)
                self._calls.append(("extend", inode, c + d) if name == "fallocate" else call)
        elif name == "truncate":
            path = self._path(pid, _AT_FOLDER, a)
            if self._is_inside(path):
                self._calls.append(("truncate", Path(path).stat().st_ino, b))
        elif name in ("mkdir", "mkdirat"):
            path = self._path(pid, _AT_FOLDER, a) if name == "mkdir" else self._path(pid, a, b)
            if self._is_inside(path):
                self._calls.append(("mkdir", self._relative(path), Path(path).stat().st_ino))
        elif name in ("rename", "link", "renameat", "linkat"):
            is_short = name in ("rename", "link")
            old = self._path(pid, _AT_FOLDER, a) if is_short else self._path(pid, a, b)
            new = self._path(pid, _AT_FOLDER, b) if is_short else self._path(pid, c, d)
            if self._is_inside(old) or self._is_inside(new):
                self._calls.append((name.removesuffix("at"), self._relative(old), self._relative(new)))
        elif name in ("unlink", "rmdir", "unlinkat"):
            path = self._path(pid, a, b) if name == "unlinkat" else self._path(pid, _AT_FOLDER, a)
            if self._is_inside(path):
                self._calls.append(("unlink", self._relative(path)))
        elif name in ("sync", "syncfs"):
            self._calls.append(("sync all",))
        elif name == "mmap":
            if d & 1 and c & 2:  # shared and writable
                self._refuse(pid, _signed(arguments[4]), "a shared mapping")
        elif name in _NOT_REPLAYED:
            for handle in (result, _signed(a), _signed(c)):
                self._refuse(pid, handle, name)

    def _opened(self, pid: int, path: str, flags: int, handle: int) -> None:
        if not self._is_inside(path) or path.endswith("-shm"):
            return
        inode = Path(f"/proc/{pid}/fd/{handle}").stat().st_ino
        if flags & os.O_CREAT:
            self._calls.append(("create", self._relative(path), inode))  # which changes nothing if it exists
        if flags & os.O_TRUNC:
            self._calls.append(("truncate", inode, 0))

    def _written(self, pid: int, name: str, handle: int, address: int, length: int, offset: int, count: int) -> None:
        target = self._target(pid, handle)
        if target == self._marks:
            self._calls.append(("mark", self._memory(pid, address, count).decode()))
        elif (inode := self._inode(pid, handle)) is not None:
            if name != "pwrite":
                information = Path(f"/proc/{pid}/fdinfo/{handle}").read_text()
                offset = int(information.split("pos:", 1)[1].split()[0]) - count
            if name == "writev":
                vector = struct.iter_unpack("QQ", self._memory(pid, address, 16 * length))
                data = b"".join(self._memory(pid, start, size) for start, size in vector)[:count]
            else:
                data = self._memory(pid, address, count)
            self._calls.append(("write", inode, offset, data))

    def _refuse(self, pid: int, handle: int, what: str) -> None:
        if self._inode(pid, handle) is not None:
            raise RuntimeError(f"{self._target(pid, handle)} is written through {what}, which cannot be replayed")

    def _target(self, pid: int, handle: int) -> str:
        try:
            return str(Path(f"/proc/{pid}/fd/{handle}").readlink())
        except OSError:
            return ""

    def _inode(self, pid: int, handle: int) -> int | None:
        """The inode of an open file or folder below the folder, 0 for the folder itself.

        None for all others, and for a file that need not survive because SQLite makes it again.
        """
        target = self._target(pid, handle)
        if not self._is_inside(target) or target.removesuffix(" (deleted)").endswith("-shm"):
            return None
        return 0 if target == self._root else Path(f"/proc/{pid}/fd/{handle}").stat().st_ino

    def _path(self, pid: int, folder: int, address: int) -> str:
        name = b""
        while b"\0" not in name:
            page_end = 4096 - (address + len(name)) % 4096
            name += self._memory(pid, address + len(name), page_end)
        path = os.fsdecode(name.partition(b"\0")[0])
        start = str(Path(f"/proc/{pid}/cwd").readlink()) if _signed(folder) == _AT_FOLDER else self._target(pid, folder)
        return os.path.normpath(os.path.join(start, path))  # noqa: PTH118

    def _memory(self, pid: int, address: int, count: int) -> bytes:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), count, address)

    def _is_inside(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root + "/")

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)


def _signed(value: int) -> int:
    """A C int in an argument, such as -1 or AT_FDCWD."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _ptrace(request: int, pid: int, address: int, data: Any, *, check: bool = True) -> int:
    result = int(_LIBRARY.ptrace(ctypes.c_long(request), pid, ctypes.c_void_p(address), data))
    if result == -1 and check:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
