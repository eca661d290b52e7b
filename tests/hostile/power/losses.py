"""Loss of power after every recorded call: `python losses.py FOLDER PROGRAM STATES SEED [FAULT]`.

Runs a program of programs.py once to learn what it leaves after each step, records it in another folder, and replays
the calls. Between any two of them the power may be lost; what is then on the disk (disk.py) must open, and hold the
content after the last acknowledged step or after the one under way. Every fifth time one must be able to go on from
there, too. Tries STATES such disks: a sample, or all moments in three ways, some more often. Prints what happened as
JSON. With a FAULT, the program is broken on purpose.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from disk import Disk, Survival
from programs import PROGRAMS, Program
from recorder import Call, obstacle, record

from fusehash import sqlite
from fusehash.files import atomic
from fusehash.search import file
from fusehash.search.vectors import file as vector_file
from fusehash.sqlite import creation

WAYS: tuple[Survival, ...] = ("everything", "nothing", "something")
REPORTED = 5  # sentences about failures


def damage(fault: str) -> None:
    """Break what the program relies on, in this process."""
    if fault == "no sync in SQLite":
        for name, kind in list(vars(file).items()):
            if isinstance(kind, sqlite.FileKind):
                setattr(file, name, replace(kind, settings=("synchronous=OFF",)))
    elif fault == "no sync of folders":
        atomic.sync_folder = creation.sync_folder = vector_file.sync_folder = lambda path: None
    elif fault == "no sync of files":
        os.fsync = lambda handle: None
    elif fault:
        raise ValueError(fault)


def contents_after_steps(program: Program, folder: Path) -> list[Any]:
    """The content at first and after each step of the program."""
    folder.mkdir()
    return [program.read(folder), *(program.read(folder) for _ in program.run(folder))]


def moments(calls: list[Call]) -> Iterator[tuple[Disk, int]]:
    """The disk and the number of acknowledged steps before the first call and after each that changed something."""
    disk, acknowledged = Disk(), 0
    yield disk, acknowledged
    for call in calls:
        if call[0] == "mark":
            acknowledged += 1
        else:
            disk.play(call)
        yield disk, acknowledged


def try_out(program: Program, folder: Path, contents: list[Any], acknowledged: int, *, go_on: bool) -> str:
    """What is wrong with the content of a folder; empty if nothing is."""
    try:
        content = program.read(folder)
        if content != contents[acknowledged] and content not in contents[acknowledged : acknowledged + 2]:
            earlier = [step for step, other in enumerate(contents) if other == content]
            return f"it holds the content of step {earlier[-1]}" if earlier else "it holds a content of no step"
        if go_on:
            program.go_on(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(folder: Path, name: str, states: int, seed: int, fault: str = "") -> None:
    if reason := obstacle():
        sys.stdout.write(json.dumps({"obstacle": reason}))
        return
    program, rng = PROGRAMS[name], random.Random(seed)
    contents = contents_after_steps(program, folder / "rehearsal")
    (folder / "recorded").mkdir()

    def work(mark: Callable[[str], None]) -> None:
        damage(fault)
        for step in program.run(folder / "recorded"):
            mark(step)

    calls = record(folder / "recorded", work)
    steps = [call[1] for call in calls if call[0] == "mark"]
    assert len(steps) == len(contents) - 1
    planned = [(moment, way) for moment in range(len(calls) + 1) for way in WAYS]
    if states < len(planned):
        planned = rng.sample(planned, states)
    planned += [(rng.randrange(len(calls) + 1), "something") for _ in range(states - len(planned))]
    failures = list[str]()
    for number, (disk, acknowledged) in enumerate(moments(calls)):
        for way in [way for moment, way in planned if moment == number]:
            disk.lose_power(folder / "left", way, rng)
            problem = try_out(program, folder / "left", contents, acknowledged, go_on=rng.random() < 0.2)
            if problem:
                after = steps[acknowledged - 1] if acknowledged else "the start"
                failures.append(f"call {number} of {len(calls)}, after {after!r}, {way} left: {problem}")
            shutil.rmtree(folder / "left")
    outcome = {"calls": len(calls), "steps": len(steps), "states": len(planned), "failed": len(failures)}
    sys.stdout.write(json.dumps({**outcome, "failures": failures[:REPORTED]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
