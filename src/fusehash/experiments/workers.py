"""A few processes that work through a list of jobs; a process that dies loses only its job.

concurrent.futures abandons the whole pool when one process is killed, and does not say which job it had. Here every
process has its own pipe, so that the job of a dead process is known and another process replaces it.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from fusehash.errors import FusehashError

Job = TypeVar("Job")

SECONDS_TO_EXIT = 10.0  # for a process to clean up before it is killed


@dataclass(frozen=True)
class JobOutcome(Generic[Job]):
    """How a job ended: its result, or an error as one sentence."""

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
    on_start: Callable[[Job], None],
) -> Generator[JobOutcome[Job], None, None]:
    """Yield the outcome of every job as it ends.

    Parameters
    ----------
    jobs : taken in this order
    start : called once in every process as start(*arguments); returns the function that does a job
    n_workers : processes at a time
    on_start : called when a process gets a job

    An exception of a job is an outcome. If the caller stops early or is interrupted (Ctrl-C), the processes are ended
    and clean up what they had begun.
    """
    waiting = deque(jobs)
    workers: list[_Worker[Job]] = []

    def assign(worker: _Worker[Job]) -> None:
        worker.job = waiting.popleft()
        on_start(worker.job)
        with suppress(OSError):  # it died between two jobs; the loop below notices
            worker.pipe.send(worker.job)

    try:
        while waiting or workers:
            while waiting and len(workers) < n_workers:
                workers.append(_launch(start, arguments))
                assign(workers[-1])
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                job = worker.job
                assert job is not None
                try:
                    result, error = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    yield JobOutcome(job, error=_cause_of_death(worker.process))
                    continue
                yield JobOutcome(job, result, error)
                if waiting:
                    assign(worker)
                else:
                    workers.remove(worker)
                    worker.pipe.close()  # the process sees it and exits
                    worker.process.join(SECONDS_TO_EXIT)
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
    """A process started in here never gets Ctrl-C, which a terminal sends to all processes."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, start: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    """Receive jobs and send outcomes until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the default leaves temporary files
    do: Callable[[Any], Any] | None = None
    answer: tuple[Any, str | None]
    with suppress(EOFError, OSError):  # the parent has closed the pipe
        while True:
            job = pipe.recv()
            try:
                do = start(*arguments) if do is None else do
                answer = (do(job), None)
            except Exception as error:
                answer = (None, _sentence(error))
            pipe.send(answer)


def _sentence(error: Exception) -> str:
    """One line that says what went wrong, and where if it is not one of fusehash's own errors."""
    text = " ".join(str(error).split())
    if isinstance(error, FusehashError):
        return text
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__}: {text} ({frame.f_globals.get('__name__')}, line {line})"


def _cause_of_death(process: SpawnProcess) -> str:
    process.join(SECONDS_TO_EXIT)
    code = process.exitcode
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        hint = "; perhaps the memory was not enough" if name == "SIGKILL" else ""
        return f"The process was killed by {name}{hint}."
    return f"The process ended by itself with exit code {code}."


def _end(workers: list[_Worker[Any]]) -> None:
    """Terminate processes that still work, and kill those that do not exit."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join(SECONDS_TO_EXIT)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
