"""What stands around a job: `stager submit` of a one-job workflow on this machine, from the command to its exit, with its parts.

The job copies one small input to one final. Three cases, in turn: a fresh state directory; one that was used before, whose scheduler has
ended; one whose scheduler lives. Beside them bare Python, and commands that only look. The parts come from marks in both Python
processes (`start_up_marks.py`) and from the journal, in rounds of their own: the wall times above them are of rounds without marks.
Target: 1.0 s of wall time for the whole command on a fresh state directory, and no more before the job starts.
Again: `python benchmarks/bench_start_up.py [--rounds N] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, verdict, watched
from stager.adapters.journal_sqlite import SqliteJournal
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.testbed.own_place import own_place
from tests.testbed.places import PROJECT
from tests.testbed.stager import Stager
from tests.testbed.usage import cpu_of, machine

TARGET_S = 1.0
WORKFLOW = """\
stager: 1
name: one
files:
  a.txt: here:in/a.txt
jobs:
  only:
    run: cp a.txt b.txt
    inputs: [a.txt]
    outputs:
      b.txt: {to: here:out/b.txt, on_exists: replace}
"""
BROKEN = WORKFLOW.replace("inputs:", "input:")
FRESH, USED, LIVING = "fresh state directory", "used state directory", "living scheduler"


@dataclass
class Marks:
    """Of one marked submit: spans by process and name, in seconds since the command was begun."""

    spans: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ended_s: float = 0.0

    def all(self, who: str, name: str) -> list[tuple[float, float]]:
        if not self.spans[who, name]:
            raise SystemExit(f"no mark {name!r} of the {who}: does benchmarks/start_up_marks.py still name the functions that there are?")
        return self.spans[who, name]

    def one(self, who: str, name: str) -> tuple[float, float]:
        return self.all(who, name)[0]

    def sum_s(self, who: str, name: str) -> float:
        return sum(end - begin for begin, end in self.all(who, name))


class Bench:
    """One place with one workflow, and a state directory that is made anew for each fresh start."""

    def __init__(self, place: Path) -> None:
        self.place, self.workflow, self.broken = place, place / "workflow.yml", place / "broken.yml"
        (place / "in").mkdir()
        (place / "in" / "a.txt").write_text("a small input\n")
        self.workflow.write_text(WORKFLOW)
        self.broken.write_text(BROKEN)
        (place / "first").mkdir()
        shutil.copyfile(Path(__file__).with_name("start_up_marks.py"), place / "first" / "sitecustomize.py")
        self.marks = place / "marks"
        self.stager = Stager(place / "s", place / "home", idle_exit_s=600)

    @contextmanager
    def marking(self) -> Iterator[None]:
        self.marks.unlink(missing_ok=True)
        self.stager.env = {"STAGER_BENCH_MARKS": str(self.marks), "PYTHONPATH": f"{self.place / 'first'}:{PROJECT}"}
        try:
            yield
        finally:
            self.stager.env = {}

    def prepare(self, case: str) -> None:
        """The state directory as the case wants it, from whatever the case before left."""
        if case != LIVING:
            self.stager.end()
        if case == FRESH:
            shutil.rmtree(self.place / "s", ignore_errors=True)

    def run(self, *words: str | Path, code: int = 0) -> tuple[float, float, float]:
        """Wall time, processor time of the command with its children, and how busy the machine was. Output goes nowhere, as in a pipe."""
        before = os.times()
        with watched() as watch:
            self.stager.run(*words, code=code)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return watch.took_s, used, watch.busy

    def submit(self) -> tuple[float, float, float]:
        """As `run`, with the processor time of the scheduler and of the I/O node since."""
        pids = [self.stager.scheduler_pid(), self.stager.node_pid()]
        before = sum(cpu_of(pid).own_s for pid in pids if pid)
        took_s, used_s, busy = self.run("submit", self.workflow, "--quiet")
        after = sum(cpu_of(pid).own_s for pid in (self.stager.scheduler_pid(), self.stager.node_pid()))
        return took_s, used_s + after - before, busy

    def marked_submit(self) -> Marks:
        with self.marking():
            begun = time.time()
            process = self.stager.start("submit", self.workflow, "--quiet")
            _, told = process.communicate(timeout=60)
            assert process.returncode == 0, told
            marks = read_marks(self.marks, process.pid, begun)
            marks.ended_s = time.time() - begun
        journal = next((self.place / "s").glob("journal*.sqlite"))
        for name, at in journal_marks(journal).items():
            marks.spans["journal", name] = [(at - begun, at - begun)]
        return marks


def read_marks(path: Path, command_pid: int, begun: float) -> Marks:
    """What has begun and not ended, as the life of a scheduler, lasts for nothing."""
    marks = Marks()
    for line in path.read_text().splitlines():
        pid, name, edge, at = line.split()
        spans = marks.spans["command" if int(pid) == command_pid else "scheduler", name]
        moment = float(at) - begun
        if edge == "begin":
            spans.append((moment, moment))
        else:
            spans[-1] = (spans[-1][0], moment)
    return marks


def journal_marks(path: Path) -> dict[str, float]:
    """When the last run was submitted, its job was started and ended, and it was over; when the node had reported."""
    found: dict[str, float] = {}
    kinds: dict[type, str] = {
        ev.NodeReported: "node", ev.RunSubmitted: "submitted", cmd.StartAttempt: "job", ev.AttemptEnded: "job_ended", cmd.FinishRun: "over"
    }  # fmt: skip
    for batch in SqliteJournal(path, "bench").read_beside():
        found |= {kinds[type(each)]: each.at for each in (*batch.events, *batch.commands) if type(each) in kinds}
    return found


Part = tuple[str, float, float]


def parts_of(marks: Marks, case: str) -> Iterator[Part]:
    """What, since when, for how long. Processes work beside each other, so the parts are no sum."""
    up, command = marks.one("command", "python")[0], marks.one("command", "command")[0]
    read, plan, connect = marks.one("command", "read"), marks.one("command", "plan"), marks.one("command", "connect")
    asked = marks.all("command", "ask")
    asked_in_reading_s = sum(end - begin for begin, end in asked if read[0] <= begin <= read[1])
    yield "command: interpreter", 0.0, up
    yield "command: imports", up, command - up
    yield "command: reads the workflow", read[0], read[1] - read[0] - asked_in_reading_s
    yield f"command: asks origins, {len(asked)} times", asked[0][0], marks.sum_s("command", "ask")
    yield "command: plans", plan[0], plan[1] - plan[0]
    yield "command: waits for the scheduler", connect[0], connect[1] - connect[0]
    if case != LIVING:
        yield from parts_of_scheduler(marks)
    submit, submitted, job = (marks.one(*each)[0] for each in (("command", "submit"), ("journal", "submitted"), ("journal", "job")))
    job_ended, over = marks.one("journal", "job_ended")[0], marks.one("journal", "over")[0]
    yield "submit until the run is in the journal's queue", submit, submitted - submit
    yield "admission and inputs", submitted, job - submitted
    yield "job, with stage-in and stage-out", job, job_ended - job
    yield "final to its destination", job_ended, over - job_ended
    yield "summary and exit of the command", over, marks.ended_s - over


def parts_of_scheduler(marks: Marks) -> Iterator[Part]:
    launch, up, wait = marks.one("command", "launch")[0], marks.one("scheduler", "python")[0], marks.one("scheduler", "wait")
    stores, replay, api, node = (marks.one("scheduler", name) for name in ("stores", "replay", "api", "node"))
    yield "scheduler: interpreter", launch, up - launch
    yield "scheduler: imports", up, wait[0] - up
    yield "scheduler: waits to be told", wait[0], wait[1] - wait[0]
    yield "scheduler: opens its stores", stores[0], stores[1] - stores[0] + replay[1] - replay[0]
    yield "scheduler: makes its API", api[0], api[1] - api[0]
    yield "node: starts and answers", node[0], node[1] - node[0]
    yield "node: reports its state", node[1], marks.one("journal", "node")[0] - node[1]


def measure(bench: Bench, rounds: int) -> tuple[Table, Table, dict[str, dict[str, list[tuple[float, float]]]], list[float]]:
    """Wall times, processor times, parts by case, and when the job started on a fresh state directory."""
    wall, used = Table("ms"), Table("ms")
    parts: dict[str, dict[str, list[tuple[float, float]]]] = {case: defaultdict(list) for case in (FRESH, USED, LIVING)}
    before_job: list[float] = []

    def note(case: str, side: str, found: tuple[float, float, float]) -> None:
        wall.add(case, side, found[0] * 1000, found[2])
        used.add(case, side, found[1] * 1000, found[2])

    looks: list[tuple[Any, ...]] = [("--help",), ("status",), ("runs",), ("plan", bench.workflow), ("validate", bench.workflow)]
    for _ in range(rounds):
        for case in (FRESH, USED, LIVING):
            bench.prepare(case)
            note("submit", case, bench.submit())
        for words in looks:
            note("looks", " ".join(map(str, words)).partition(" /")[0], bench.run(*words))
        note("looks", "submit of a broken file", bench.run("submit", bench.broken, code=2))
        note("peer", "python -c pass", bare(["-c", "pass"]))
        note("peer", "python -c 'import pydantic, click'", bare(["-c", "import pydantic, click"]))
        note("shutdown", "", bench.run("shutdown"))
        for case in (FRESH, USED, LIVING):
            bench.prepare(case)
            marks = bench.marked_submit()
            for name, since_s, took_s in parts_of(marks, case):
                parts[case][name].append((since_s * 1000, took_s * 1000))
            if case == FRESH:
                before_job.append(marks.one("journal", "job")[0])
    return wall, used, parts, before_job


def bare(words: list[str]) -> tuple[float, float, float]:
    before = os.times()
    with watched() as watch:
        subprocess.run([sys.executable, *words], check=True)
    after = os.times()
    return watch.took_s, after.children_user + after.children_system - before.children_user - before.children_system, watch.busy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="the disk that is measured; else that of temporary files")
    given = parser.parse_args()
    with own_place(given.dir) as made:
        bench = Bench(made)
        try:
            wall, used, parts, before_job = measure(bench, given.rounds)
        finally:
            bench.stager.end()
    print(f"medians of {given.rounds} rounds; {machine()}\nwall time\n{wall.text()}\n")
    print(f"processor time; of a submit with its scheduler and I/O node\n{used.text()}")
    for case, found in parts.items():
        print(f"\nparts of a submit, {case}; they overlap where two processes work\n{'':50}{'since ms':>10}{'took ms':>10}")
        for name, spans in found.items():
            print(f"{name:50}{middle(spans, 0):>10.0f}{middle(spans, 1):>10.0f}")
    took_s, job_s = wall.median("submit", FRESH) / 1000, statistics.median(before_job)
    print(f"\ngoal: a submit on a fresh state directory {took_s:.2f} s, wanted <= {TARGET_S:.1f} s: {verdict(took_s <= TARGET_S)}")
    print(f"goal: before its job, with marks, {job_s:.2f} s, wanted <= {TARGET_S:.1f} s: {verdict(job_s <= TARGET_S)}")
    return 0 if max(took_s, job_s) <= TARGET_S else 1


def middle(spans: list[tuple[float, float]], at: int) -> float:
    pick: Callable[[tuple[float, float]], float] = lambda span: span[at]  # noqa: E731
    return statistics.median(map(pick, spans))


if __name__ == "__main__":
    sys.exit(main())
