"""Runs cases in worker processes under limits; this module is the program of the process that forks them.

    campaign or test  <-- lines of JSON -->  this process: loads everything, forks, watches  <-->  a worker: runs cases

A worker that dies, hangs, leaks or has run many cases is replaced by a new fork, which takes milliseconds.
"""

from __future__ import annotations

import base64
import faulthandler
import gc
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # as pytest does

from hostile import corpus, mutators, surface, verdict  # noqa: E402

CASES_PER_WORKER = 3000
LEAK_BYTES = 200 << 20
IDLE_SECONDS = 10.0  # without CPU time: the worker hangs
BROKEN = 70  # exit code of a worker whose case could not be made
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
    "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "OMP_THREAD_LIMIT": "1", "COLUMNS": "200",
    "NUMEXPR_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1",
}  # fmt: skip


# -- the side of the campaign -------------------------------------------------------------------------------------


class Arena:
    """A process that runs cases, used from a campaign or a test."""

    def __init__(self, samples: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(samples), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip

    def run(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Run cases, in order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for request in requests:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"The process that runs cases ended with {self._process.wait()}.")
            yield json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def request_of(kind: str, tree: corpus.Tree, seed: str = "") -> dict[str, Any]:
    """A request to run a tree of files as it is."""
    return {"kind": kind, "seed": seed, "tree": pack(tree)}


def pack(tree: corpus.Tree) -> dict[str, Any]:
    """A tree as JSON."""
    return {
        name: {"link": content.target} if isinstance(content, corpus.Link)
        else {"fifo": True} if isinstance(content, corpus.Fifo) else base64.b64encode(content).decode()
        for name, content in tree.items()
    }  # fmt: skip


def unpack(packed: dict[str, Any]) -> corpus.Tree:
    """The tree that `pack` packed."""
    return {
        name: base64.b64decode(content) if isinstance(content, str)
        else corpus.Link(content["link"]) if "link" in content else corpus.Fifo()
        for name, content in packed.items()
    }  # fmt: skip


class Fixed(Random):
    """Draws the same number again and again, which chooses what is done with a sample."""

    def __init__(self, number: float) -> None:
        super().__init__(0)
        self._number = number

    def random(self) -> float:
        return self._number


# -- a worker -----------------------------------------------------------------------------------------------------


class Worker:
    """Runs cases one after the other in this process."""

    def __init__(self, samples: dict[str, list[corpus.Tree]], folder: Path) -> None:
        self.samples, self.case, self.temporary = samples, folder / "case", folder / "tmp"
        settings = folder / "settings"
        for path in (self.case, self.temporary, settings):
            path.mkdir(parents=True)
        os.environ |= {"TMPDIR": str(self.temporary), "XDG_CONFIG_HOME": str(settings)}
        secrets = {f"secret.{kind}": b"secret" * 100 for kind in ("bin", *corpus.KINDS)}
        secrets |= {f"secret.{kind}": next(iter(trees[0].values())) for kind, trees in samples.items()}
        self.canary = verdict.Canary(folder / "canary", secrets)
        self.auditor = verdict.Auditor()
        self.auditor.allow(self.case, self.temporary, settings)
        self.limited = False
        self.workshop = folder / "workshop"
        self.workshop.mkdir()
        os.chdir(self.case)

    def limit(self) -> None:
        """Take the limits of a worker; there is no way back."""
        size = _status("VmSize") + verdict.MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 30, 2 << 30))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        faulthandler.register(signal.SIGPROF, chain=True)
        self.limited = True

    def run(self, request: dict[str, Any], rng: Random | None = None) -> dict[str, Any]:
        kind, seed = request["kind"], request["seed"]
        if "tree" in request:
            tree, applied = unpack(request["tree"]), []
        else:
            tree, applied = mutators.mutated(kind, self.samples, Random(seed), self.workshop)
        corpus.write_tree(tree, self.case, self.canary.folder)
        result = {"kind": kind, "seed": seed, "mutations": applied}
        try:
            result |= self._judged(kind, rng or Random(f"use {seed}"))
        finally:
            for folder in (self.case, self.temporary):
                surface.clear(folder)
        return result

    def _judged(self, kind: str, rng: Random) -> dict[str, Any]:
        before = verdict.fingerprint(self.case)
        self.canary.events()
        outcome, detail, faults = "opened", "", self.auditor.violations
        faults.clear()
        _forget_peak()
        resident, started = _status("VmRSS"), time.process_time()
        if self.limited:  # not while everything is compiled
            signal.setitimer(signal.ITIMER_PROF, verdict.CPU_SECONDS)
        self.auditor.active = True
        try:
            surface.use(kind, self.case / corpus.KINDS[kind].main, rng)
        except BaseException as error:
            self.auditor.active = False
            outcome, detail = _outcome(error)
            error.__traceback__ = error.__context__ = error.__cause__ = None
            del error
        self.auditor.active = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        seconds, peak = time.process_time() - started, max(0, _status("VmHWM") - resident)
        if self.limited:
            gc.collect()  # open files and maps of this case
        if outcome not in ("opened", "refused"):
            faults.insert(0, (outcome, detail))
        faults += self.canary.events()
        names = [] if surface.state["writes"] else verdict.changed(before, verdict.fingerprint(self.case))
        if names:
            faults.append(("modified", f"{outcome}, then changed: {', '.join(names[:5])}"))
        surface.state["writes"] = False
        if seconds > verdict.CPU_SECONDS:
            faults.append(("cpu", f"{seconds:.1f} s"))
        fault, detail = faults[0] if faults else (outcome, detail)
        return {"verdict": fault, "outcome": outcome, "detail": detail, "cpu": round(seconds, 4), "memory": peak}


def _outcome(error: BaseException) -> tuple[str, str]:
    from fusehash.errors import FusehashError

    if isinstance(error, FusehashError | surface.RefusedByLibraryError):
        return "refused", type(error).__name__
    if isinstance(error, MemoryError):
        return "memory", verdict.describe(error)
    return "foreign", verdict.describe(error)


def _status(name: str) -> int:
    """Bytes, from /proc/self/status."""
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(name.encode()):
                return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123
            file.write("5")
    except OSError:  # then the largest memory of a kind is that of the worker so far
        pass


# -- the process that forks workers -------------------------------------------------------------------------------


class Nursery:
    """Forks workers, hands them requests one by one, and says how those ended that did not answer."""

    def __init__(self, worker: Worker, log: Path) -> None:
        self.worker, self.log = worker, log
        self.pid = 0

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.pid:
            self._fork()
        os.write(self.to_worker, json.dumps(request).encode() + b"\n")
        answer = self._answer()
        if answer is None:
            return {"kind": request["kind"], "seed": request["seed"], "mutations": [], **self._autopsy(request["kind"])}
        result: dict[str, Any] = json.loads(answer)
        if result.pop("last"):
            self._end()
        return result

    def _fork(self) -> None:
        readable, self.to_worker = os.pipe()
        self.from_worker, writable = os.pipe()
        self.buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.to_worker)
            os.close(self.from_worker)
            _work(self.worker, readable, writable, self.log)
        os.close(readable)
        os.close(writable)

    def _answer(self) -> bytes | None:
        """One line of the worker; None if it dies or hangs."""
        self.reason = ""
        idle_since, used = time.monotonic(), -1.0
        while b"\n" not in self.buffer:
            if select.select([self.from_worker], [], [], 1.0)[0]:
                data = os.read(self.from_worker, 1 << 20)
                if not data:
                    return None
                self.buffer += data
                continue
            now_used, running = _cpu_of(self.pid)
            if now_used > used or running:
                idle_since, used = time.monotonic(), now_used
            elif time.monotonic() - idle_since > IDLE_SECONDS:
                self.reason = "hang"
            if now_used > 30 + self.used_before or self.reason:
                os.kill(self.pid, signal.SIGKILL)
                return None
        line, _, self.buffer = self.buffer.partition(b"\n")
        self.used_before = _cpu_of(self.pid)[0]
        return line

    used_before = 0.0

    def _autopsy(self, kind: str) -> dict[str, Any]:
        status = self._end()
        text = self.log.read_text(errors="replace")
        stack = [line for line in text.splitlines() if "/fusehash/" in line]
        where = re.sub('"/[^"]*/src/', '"', stack[0].strip()) if stack else "?"
        self.log.write_text("")
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN:
            raise RuntimeError(f"the attack itself is broken: {text[-2000:]}")
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        name = signal.Signals(number).name if number else f"exit {os.waitstatus_to_exitcode(status)}"
        fault = self.reason or ("cpu" if number in (signal.SIGPROF, signal.SIGKILL) else "crash")
        if kind == "hdf5" and where == "?":  # in h5py.File, which the user calls, before fusehash sees anything
            fault = "refused"
        surface.clear(self.worker.case)
        surface.clear(self.worker.temporary)
        return {
            "verdict": fault,
            "outcome": fault,
            "detail": f"{name} in {where}",
            "cpu": verdict.CPU_SECONDS,
            "memory": 0,
        }

    def _end(self) -> int:
        os.close(self.to_worker)
        os.close(self.from_worker)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        self.used_before = 0.0
        return status


def _work(worker: Worker, readable: int, writable: int, log: Path) -> None:
    """The life of a worker."""
    handle = os.open(log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600)
    os.dup2(handle, 2)
    faulthandler.enable()
    worker.limit()
    start, count = _status("VmSize"), 0
    with os.fdopen(readable) as requests, os.fdopen(writable, "w") as answers:
        for line in requests:
            count += 1
            try:
                result = worker.run(json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(BROKEN)
            grown = _status("VmSize") - start > LEAK_BYTES or threading.active_count() > 30
            result["last"] = count >= CASES_PER_WORKER or grown
            answers.write(json.dumps(result) + "\n")
            answers.flush()
            if result["last"]:
                break
    os._exit(0)


def _cpu_of(pid: int) -> tuple[float, bool]:
    """Seconds of CPU time of a process, and whether it runs or waits for a disk or a core."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] in "RD"


def main(samples: Path, folder: Path) -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write into the answers
    worker = Worker(corpus.load(samples), folder)
    for kind, trees in worker.samples.items():  # import and compile everything, once
        for tree in trees:
            result = worker.run(request_of(kind, tree, "warm"), Fixed(0.5))
            if result["outcome"] != "opened":
                sys.exit(f"A valid sample of {kind} is not opened: {result}")
        for number in (0.0, 0.06, 0.85):
            worker.run(request_of(kind, trees[0], "warm"), Fixed(number))
    gc.collect()
    gc.freeze()
    nursery = Nursery(worker, folder / "stderr")
    for line in sys.stdin:
        answers.write(json.dumps(nursery.run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
