"""Several processes on one index or collection, in any order: nothing is lost, torn, or reported as damaged or done
when it is not. They are killed, they fork, and the folder is moved, replaced and removed under them."""

from __future__ import annotations

import itertools
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from hostile.processes.processes import Nursery, Process
from hostile.scale import cases, report

STEPS_PER_EXAMPLE = 20
PROCESSES, HANDLES = 4, 2
EVENTS = ("kills", "forks", "replacements", "opens while writing", "writes by two")
FAULTS = ("lost", "torn", "false alarm", "false done")
WORDS = ["red", "green", "blue", "tall", "small", "round", "old", "new"]
Content = dict[str, str]
Call = tuple[str, Content]
chances = st.integers(0, 2**32).map(random.Random)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")


def after(content: Content, call: Call) -> Content:
    name, entries = call
    if name == "remove":
        return {key: value for key, value in content.items() if key not in entries}
    return {**content, **entries} if name in ("add", "replace") else content


class Machine(RuleBasedStateMachine):
    """The folder at one path, others that were there before, and processes with handles on any of them.

    `contents` is what was acknowledged, by folder; every folder has a name of its own that stays when it is moved.
    """

    kind: ClassVar[str]
    nursery: ClassVar[Nursery]
    counts: ClassVar[Counter[str]]
    new_value: ClassVar[Callable[[random.Random], str]]
    new_key: ClassVar[Callable[[int], str]]
    numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.base = self.nursery.folder / f"example-{next(self.numbers)}"
        self.base.mkdir()
        self.path = self.base / "here"
        self.here: str | None = None  # the name of the folder at the path
        self.aside: list[str] = []  # names of folders that were moved away
        self.contents: dict[str, Content] = {}
        self.history: list[str] = []
        self.processes = [self.nursery.spawn() for _ in range(2)]
        self.reader = self.nursery.spawn()
        self.create(random.Random(0))

    # -- what processes do -------------------------------------------------------------------------------------------

    @rule(chance=chances)
    def create(self, chance: random.Random) -> None:
        """Make a new folder where there is none."""
        if self.here is not None:
            return
        process, handle = self.process(chance), self.slot(chance)
        self.log("create", process, handle)
        self.close_handle(process, handle)
        self.must_work(process.ask("open", handle=handle, folder=str(self.path), create=True))
        self.here = f"folder-{len(self.contents)}"
        self.contents[self.here] = {}
        process.handles[handle] = self.here
        self.expect_change(process, handle, [("add", self.new_entries(chance, 6))])

    @rule(chance=chances)
    def open(self, chance: random.Random) -> None:
        process, handle = self.process(chance), self.slot(chance)
        self.log("open", process, handle)
        self.close_handle(process, handle)
        answer = process.ask("open", handle=handle, folder=str(self.path))
        if self.here is None:
            self.must_refuse(answer)
        else:
            self.must_work(answer)
            process.handles[handle] = self.here

    @rule(chance=chances)
    def close(self, chance: random.Random) -> None:
        for process, handle in self.some_handle(chance):
            self.log("close", process, handle)
            self.close_handle(process, handle)

    @rule(chance=chances)
    def change(self, chance: random.Random) -> None:
        for process, handle in self.some_handle(chance):
            calls = self.plan(chance, chance.choice((1, 1, 3)))
            self.log("change", process, handle, calls)
            self.expect_change(process, handle, calls)

    @rule(chance=chances)
    def read(self, chance: random.Random) -> None:
        for process, handle in self.some_handle(chance):
            self.log("read", process, handle)
            answer = process.ask("read", handle=handle)
            if process.handles[handle] != self.here:
                self.must_refuse(answer)
            else:
                self.compare(self.must_work(answer), [self.content])

    @rule(chance=chances)
    def search(self, chance: random.Random) -> None:
        for process, handle in self.some_handle(chance):
            value = chance.choice([*self.content.values(), self.new_value(chance)])
            self.log("search", process, handle, value)
            answer = process.ask("search", handle=handle, value=value)
            if process.handles[handle] != self.here:
                self.must_refuse(answer)
            else:
                keys = sorted(key for key, other in self.content.items() if other == value)
                self.check(sorted(self.must_work(answer)) == keys, "torn", f"a search shows {answer}, not {keys}")

    # -- how processes come and go -----------------------------------------------------------------------------------

    @rule(chance=chances)
    def kill(self, chance: random.Random) -> None:
        """kill -9 between two calls or inside one."""
        process = self.process(chance)
        if self.here is not None and chance.random() < 0.8:
            handle, calls, content = self.handle_here(process), self.plan(chance, 6), self.content
            self.log("kill while writing", process, handle, calls)
            process.begin("change", handle=handle, calls=calls)
            count = process.acknowledged(chance.randrange(4))
            time.sleep(chance.choice((0, 0.001, 0.003, 0.01)))
            process.kill()
            count += process.end()["acknowledged"]
            self.settle(content, calls, count)
        else:
            self.log("kill", process)
            process.kill()
            process.end()
        self.counts["kills"] += 1
        self.processes[self.processes.index(process)] = self.nursery.spawn()

    @rule(chance=chances)
    def leave(self, chance: random.Random) -> None:
        """A process ends without closing anything."""
        process = self.process(chance)
        self.log("leave", process)
        process.leave()
        self.processes[self.processes.index(process)] = self.nursery.spawn()

    @rule(chance=chances)
    def fork(self, chance: random.Random) -> None:
        process = self.process(chance)
        if len(self.processes) == PROCESSES:
            other = self.processes.pop(0 if self.processes[0] is not process else 1)
            self.log("leave", other)
            other.leave()
        self.processes.append(self.nursery.fork(process))
        self.log("fork", process, self.processes[-1].pid)
        self.counts["forks"] += 1

    # -- at the same time --------------------------------------------------------------------------------------------

    @rule(chance=chances)
    def open_while_another_writes(self, chance: random.Random) -> None:
        if self.here is None:
            return
        process = self.process(chance)
        handle, calls, states = self.handle_here(process), self.plan(chance, 8), [self.content]
        self.log("open while another writes", process, handle, calls)
        for call in calls:
            states.append(after(states[-1], call))
        process.begin("change", handle=handle, calls=calls)
        contents = self.must_work(self.reader.ask("watch", folder=str(self.path), times=6))
        self.must_work(process.end())
        self.contents[self.here] = states[-1]
        for content in contents:
            self.compare(content, states)
            while states[0] != content:  # what was seen once is never unseen
                states.pop(0)
        self.counts["opens while writing"] += len(contents)

    @rule(chance=chances)
    def two_write(self, chance: random.Random) -> None:
        if self.here is None:
            return
        first, second = chance.sample(self.processes, 2)
        first_handle, second_handle = self.handle_here(first), self.handle_here(second)
        content = self.content
        plans = [self.plan(chance, 4, share) for share in (0, 1)]
        self.log("two write", first, first_handle, second.pid, second_handle, plans)
        first.begin("change", handle=first_handle, calls=plans[0])
        second.begin("change", handle=second_handle, calls=plans[1])
        self.must_work(first.end())
        self.must_work(second.end())
        for call in (*plans[0], *plans[1]):
            content = after(content, call)
        self.contents[str(self.here)] = content
        self.counts["writes by two"] += 1

    # -- what happens to the folder ----------------------------------------------------------------------------------

    @rule(chance=chances)
    def move_away(self, chance: random.Random) -> None:
        """Also while a process writes."""
        if self.here is None:
            return
        handles = [pair for pair in self.some_handle(chance) if pair[0].handles[pair[1]] == self.here]
        folder, content, calls = self.here, self.content, self.plan(chance, 6)
        self.log("move away", folder, handles and handles[0][0].pid, calls)
        if handles and chance.random() < 0.7:
            process, handle = handles[0]
            process.begin("change", handle=handle, calls=calls)
            count = process.acknowledged(chance.randrange(4))
            self.path.rename(self.base / folder)
            answer = process.end()
            count += answer["acknowledged"]
            if count < len(calls):
                self.must_refuse(answer)
        else:
            handles, count = [], 0
            self.path.rename(self.base / folder)
        self.here = None
        self.aside.append(folder)
        self.counts["replacements"] += 1
        if handles:
            self.settle(content, calls, count, folder)

    @rule(chance=chances)
    def move_back(self, chance: random.Random) -> None:
        if self.here is None and self.aside:
            self.here = self.aside.pop(chance.randrange(len(self.aside)))
            self.log("move back", self.here)
            (self.base / self.here).rename(self.path)

    @rule(chance=chances)
    def replace(self, chance: random.Random) -> None:
        """Another folder comes in place of this one."""
        if self.here is not None and self.aside:
            folder = self.aside.pop(chance.randrange(len(self.aside)))
            self.log("replace", self.here, folder)
            self.path.rename(self.base / self.here)
            (self.base / folder).rename(self.path)
            self.aside.append(self.here)
            self.here = folder
            self.counts["replacements"] += 1

    @rule(chance=chances)
    def remove(self, chance: random.Random) -> None:
        if self.here is not None and chance.random() < 0.3:
            self.log("remove", self.here)
            shutil.rmtree(self.path)
            self.here = None
            self.counts["replacements"] += 1

    # -- checks --------------------------------------------------------------------------------------------------

    @rule(chance=chances)
    def check_content(self, chance: random.Random) -> None:
        if self.here is not None:
            self.log("check content")
            self.look()

    def teardown(self) -> None:
        try:
            if self.here is not None:
                self.look()
            while self.aside:
                if self.path.exists():
                    self.path.rename(self.base / "gone")
                self.here = self.aside.pop()
                (self.base / self.here).rename(self.path)
                self.look()
                shutil.rmtree(self.path)
        finally:
            for process in (*self.processes, self.reader):
                self.nursery.take_back(process)
            shutil.rmtree(self.base, ignore_errors=True)

    def look(self) -> None:
        """A process that opens it now sees what was acknowledged."""
        answer = self.reader.ask("watch", folder=str(self.path), times=1)
        self.compare(self.must_work(answer)[0], [self.content])

    def compare(self, content: Content, expected: list[Content]) -> None:
        if content not in expected:
            lost = [key for key in expected[0] if key in expected[-1] and key not in content]
            self.check(False, "lost" if lost else "torn", f"it holds {content}, not {expected}")

    def settle(self, content: Content, calls: list[Call], count: int, folder: str | None = None) -> None:
        """Find out whether the call after the acknowledged ones was carried out."""
        states = [content]
        for call in calls:
            states.append(after(states[-1], call))
        where = self.path if folder is None else self.base / folder
        answer = self.reader.ask("watch", folder=str(where), times=1)
        current = self.must_work(answer)[0]
        self.compare(current, states[count : count + 2])
        self.contents[str(folder or self.here)] = current

    def expect_change(self, process: Process, handle: str, calls: list[Call]) -> None:
        answer = process.ask("change", handle=handle, calls=calls)
        folder = process.handles[handle]
        if folder != self.here:
            self.must_refuse(answer)
            self.check(answer["acknowledged"] == 0, "false done", f"{calls} was acknowledged")
            return
        self.must_work(answer)
        for call in calls:
            self.contents[folder] = after(self.contents[folder], call)

    def must_work(self, answer: dict[str, Any]) -> Any:
        self.check("done" in answer, "false alarm", f"it says {answer}")
        return answer["done"]

    def must_refuse(self, answer: dict[str, Any]) -> None:
        """The folder at the path is another one, or there is none."""
        self.check("done" not in answer, "false done", f"it says {answer}")
        self.check(answer.get("error") == "unavailable", "false alarm", f"it says {answer}")

    def check(self, is_right: bool, fault: str, sentence: str) -> None:
        if not is_right:
            self.counts[fault] += 1
            raise AssertionError(f"{fault}: {sentence}\n" + "\n".join(self.history[-25:]))

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def content(self) -> Content:
        return self.contents.get(self.here or "", {})

    def log(self, *parts: object) -> None:
        self.counts["steps"] += 1
        self.history.append(" ".join(str(part.pid) if isinstance(part, Process) else str(part) for part in parts))

    def process(self, chance: random.Random) -> Process:
        return chance.choice(self.processes)

    def slot(self, chance: random.Random) -> str:
        return str(chance.randrange(HANDLES))

    def some_handle(self, chance: random.Random) -> list[tuple[Process, str]]:
        """A process and one of its handles, or nothing; rather one on the folder at the path."""
        pairs = [(process, handle) for process in self.processes for handle in process.handles]
        good = [pair for pair in pairs if pair[0].handles[pair[1]] == self.here]
        pairs = good if good and chance.random() < 0.8 else pairs
        return [chance.choice(pairs)] if pairs else []

    def handle_here(self, process: Process) -> str:
        """A handle of a process on the folder at the path, opened if it has none."""
        for handle, folder in process.handles.items():
            if folder == self.here:
                return handle
        self.close_handle(process, "0")
        self.must_work(process.ask("open", handle="0", folder=str(self.path)))
        process.handles["0"] = str(self.here)
        return "0"

    def close_handle(self, process: Process, handle: str) -> None:
        if process.handles.pop(handle, None):
            self.must_work(process.ask("close", handle=handle))

    def new_entries(self, chance: random.Random, count: int) -> Content:
        return {self.new_key(next(self.numbers)): self.new_value(chance) for _ in range(count)}

    def plan(self, chance: random.Random, count: int, share: int | None = None) -> list[Call]:
        """Calls that are right one after the other; with a share, 0 or 1, on one half of the keys."""
        content = {k: v for k, v in self.content.items() if share is None or sum(map(ord, k)) % 2 == share}
        calls: list[Call] = []
        while len(calls) < count:
            name = chance.choice(("add", "add", "add", "remove", "replace", "compact"))
            entries: Content = {}
            if name == "add":
                entries = self.new_entries(chance, chance.choice((1, 1, 3, 20)))
                entries = {k: v for k, v in entries.items() if share is None or sum(map(ord, k)) % 2 == share}
            elif name != "compact":
                keys = chance.sample(sorted(content), min(len(content), chance.choice((1, 2, 15))))
                entries = {key: self.new_value(chance) for key in keys}
            if entries or name == "compact":
                calls.append((name, entries))
                content = after(content, calls[-1])
        return calls


def run(machine: type[Machine], steps: int) -> None:
    """Examples until so many steps were made, with a summary of all."""
    machine.nursery, machine.counts = Nursery(machine.kind), Counter()
    options = settings(
        max_examples=max(10, steps // STEPS_PER_EXAMPLE),
        stateful_step_count=STEPS_PER_EXAMPLE,
        phases=[Phase.generate],  # other processes do not do the same twice: nothing can be made smaller
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    started = time.monotonic()
    try:
        for number in itertools.count():
            run_state_machine_as_test(seed(number)(machine), settings=options)
            if machine.counts["steps"] >= steps:
                break
    finally:
        machine.nursery.close()
        outcome = {name: machine.counts[name] for name in ("steps", *EVENTS, *FAULTS)}
        report("processes", machine.kind, {**outcome, "seconds": round(time.monotonic() - started)})
    assert steps < 1000 or all(machine.counts[event] for event in EVENTS), outcome


class IndexMachine(Machine):
    kind = "index"
    new_key = staticmethod(lambda number: str(number * 0x9E3779B97F4A7C15 % 2**63 - 2**62))
    new_value = staticmethod(lambda chance: chance.randbytes(8).hex())


class CollectionMachine(Machine):
    kind = "collection"
    new_key = staticmethod("item {}".format)
    new_value = staticmethod(lambda chance: " ".join(chance.choices(WORDS, k=3)))


@pytest.mark.slow
def test_an_index_in_many_processes() -> None:
    run(IndexMachine, cases(200, 7000))


@pytest.mark.slow
def test_a_collection_in_many_processes() -> None:
    run(CollectionMachine, cases(100, 3000))
