"""A few processes that work through a list of jobs; one that dies takes only its own job with it.

concurrent.futures gives up the whole pool when one of its processes is killed, without saying whose job it was. Here
every process has a pipe of its own: the job of a dead one is known, and another process takes its place.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")

PATIENCE = 10.0  # seconds that a process gets to tidy up before it is killed


@dataclass(frozen=True)
class Outcome(Generic[Job]):
    """How a job ended: its result, or the sentence that says why there is none."""

    job: Job
    result: Any = None
    error: str | None = None


@dataclass
class _Worker(Generic[Job]):
    process: SpawnProcess
    pipe: Connection
    job: Job | None = None


def work_through(
    jobs: Sequence[Job],
    start: Callable[..., Callable[[Any], Any]],
    arguments: tuple[Any, ...],
    n_workers: int,
    on_start: Callable[[Job], None] | None = None,
) -> Generator[Outcome[Job], None, None]:
    """Yield the outcome of every job as it ends.

    Parameters
    ----------
    jobs : taken in this order
    start : called once in every process as start(*arguments); returns the function that does a job
    n_workers : processes at a time
    on_start : called when a job is given to a process

    An exception of a job is an outcome. When the caller stops early or is interrupted (Ctrl-C), the processes are ended
    and everything that they had begun is undone by their own cleaning up.
    """
    waiting = deque(jobs)
    workers: list[_Worker[Job]] = []

    def give(worker: _Worker[Job]) -> None:
        worker.job = waiting.popleft()
        if on_start is not None:
            on_start(worker.job)
        with suppress(OSError):  # it died between two jobs: its end of the pipe says so to the loop below
            worker.pipe.send(worker.job)

    try:
        while waiting or workers:
            while waiting and len(workers) < n_workers:
                workers.append(_launch(start, arguments))
                give(workers[-1])
            ready = wait([worker.pipe for worker in workers])
            for worker in [one for one in workers if one.pipe in ready]:
                job = worker.job
                assert job is not None
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    yield Outcome(job, error=_obituary(worker.process))
                    continue
                yield Outcome(job, result=content) if kind == "result" else Outcome(job, error=content)
                if waiting:
                    give(worker)
                else:
                    workers.remove(worker)
                    _dismiss(worker)
    finally:
        _end(workers)


def _launch(start: Callable[..., Any], arguments: tuple[Any, ...]) -> _Worker[Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, start, arguments), daemon=True)
    with _ctrl_c_held_back():
        process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return _Worker(process, ours)


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """A process started in here never sees Ctrl-C, which a terminal sends to all; ours comes a moment later."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, start: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    """The life of a process: jobs come in, outcomes go out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            do = start(*arguments) if do is None else do
            answer = ("result", do(job))
        except Exception as error:
            answer = ("error", sentence(error))
        try:
            pipe.send(answer)
        except OSError:  # nobody listens any more
            return


def _leave(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signal_number)  # and not the default, which leaves temporary files behind


def sentence(error: BaseException) -> str:
    """One line that says what went wrong, and where if it was not meant to happen."""
    from fusehash.errors import FusehashError

    text = " ".join(str(error).split())
    if isinstance(error, FusehashError):
        return text
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({place.tb_frame.f_globals.get('__name__')}, line {place.tb_lineno})"
    return f"{type(error).__name__}: {text}{where}"


def _obituary(process: SpawnProcess) -> str:
    process.join(PATIENCE)
    code = process.exitcode
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in {one.value for one in signal.Signals} else str(-code)
        hint = "; perhaps the memory was not enough" if name == "SIGKILL" else ""
        return f"The process was killed by {name}{hint}."
    return f"The process ended by itself with exit code {code}."


def _dismiss(worker: _Worker[Any]) -> None:
    worker.pipe.close()
    worker.process.join(PATIENCE)


def _end(workers: list[_Worker[Any]]) -> None:
    """End processes that are still at work; first all politely, then those that do not listen."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
