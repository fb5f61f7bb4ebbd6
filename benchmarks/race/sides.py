"""What races: stager, and GNU make between two calls of rclone. Each runs all of a race, as its users do, on one host with so many cores.

May know: the engines' own files and words, the bed. One rule: the files of an engine are written before the clock runs, and no process of
it lives when it starts again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.race.sites import AT_ONCE, Site
from benchmarks.race.workflows import Race, Task, directories, lay_scripts, put
from tests.testbed.network import Host
from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH

CAPACITY_BYTES = 20_000_000_000


class OutOfTime(Exception):
    """It was stopped at the limit."""


@dataclass(frozen=True)
class Lane:
    """Where one engine runs one race: a directory of its own here, and `target` at the site for its finals."""

    race: Race
    site: Site
    node: Host
    place: Path
    target: str
    cores: int
    limit_s: float


class Side(ABC):
    name = ""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.work = lane.place / "work"
        self.work.mkdir(parents=True)
        self.home = lane.site.home(lane.place / "home")
        lane.site.make_directories(lane.target, lane.race.finals)
        lay_scripts(lane.race, self.work)
        self.said = ""

    @staticmethod
    def missing() -> str:
        """What has to be installed, and how; nothing where all is there."""
        return ""

    @abstractmethod
    def prepare(self, tasks: Sequence[Task]) -> None:
        """Writes what the engine reads."""

    @abstractmethod
    def run(self) -> None:
        """All of it until the finals are at their origin."""

    @abstractmethod
    def ran(self) -> int:
        """The jobs of the last run that were not spared."""

    def rest(self) -> None:  # noqa: B027 (most leave nothing)
        """Ends what still lives."""

    def call(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> str:
        """What it printed. Stopped with all its children at the limit."""
        own = {"PATH": JOB_PATH, "LANG": "C.UTF-8", "HOME": str(self.home)} | dict(self.lane.site.env) | dict(env or {})
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = self.lane.node.command(argv)
        program = subprocess.Popen(command, cwd=self.work, env=own, text=True, start_new_session=True, **streams)
        try:
            said, _ = program.communicate(timeout=self.lane.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
            raise OutOfTime from None
        assert program.returncode == 0, f"{argv[0]} ended with {program.returncode}: {said[-1500:]}"
        return said


class Ours(Side):
    name = "stager"

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        env = {**lane.site.env, "PATH": JOB_PATH, "STAGER_REUSE": "on", "STAGER_CORES": str(lane.cores)}
        env |= {"STAGER_CAPACITY": str(CAPACITY_BYTES)}
        self.stager = Stager(lane.place / "s", self.home, env=env, idle_exit_s=60, where=lane.node)

    def prepare(self, tasks: Sequence[Task]) -> None:
        lane = self.lane
        origin = {"url": lane.site.url, **lane.site.options}
        jobs = {task.name: self.job(task) for task in tasks}
        head = {"stager": 1, "name": f"race-{lane.race.name}", "origins": {"lab": origin}, "on_exists": "replace"}
        head |= {"defaults": {"env_pass": ["PATH"], "deterministic": True}}
        # JSON is YAML.
        put(self.work / "workflow.yml", json.dumps(head | {"jobs": jobs}, indent=1))

    def job(self, task: Task) -> dict[str, object]:
        race, finals = self.lane.race, set(self.lane.race.finals)
        sources = {path: f"lab:{race.name}/{path}" for path in race.external} | {path: f"here:{path}" for path in race.scripts}
        inputs = {path: sources.get(path, path) for path in task.inputs}
        outputs = {path: f"lab:{self.lane.target}/{path}" if path in finals else None for path in task.outputs}
        return {"type": task.type, "run": task.command, "inputs": inputs, "outputs": outputs}

    def run(self) -> None:
        self.stager.run("submit", self.work / "workflow.yml", "--quiet", deadline_s=self.lane.limit_s)

    def ran(self) -> int:
        return sum(job["attempts"] > 0 for job in self.stager.json("jobs"))

    def rest(self) -> None:
        self.stager.end()


class MakeAndRclone(Side):
    """Stage all in, make, stage all out. Each command stands in a file that its target depends on."""

    name = "make and rclone"

    @staticmethod
    def missing() -> str:
        absent = [name for name in ("make", "rclone") if shutil.which(name) is None]
        return f"not installed: {', '.join(absent)} (Debian: apt-get install {' '.join(absent)})" if absent else ""

    def prepare(self, tasks: Sequence[Task]) -> None:
        lines = ["SHELL := bash", ".DELETE_ON_ERROR:", f"all: {' '.join(self.lane.race.finals)}"]
        for task in tasks:
            put(self.work / "jobs" / f"{task.name}.sh", task.command + "\n")
            lines.append(f"{' '.join(task.outputs)} &: {' '.join(task.inputs)} jobs/{task.name}.sh")
            lines.append(f"\t@echo job {task.name}; bash -euo pipefail jobs/{task.name}.sh")
        put(self.work / "Makefile", "\n".join(lines) + "\n")
        put(self.work / "finals.list", "\n".join(self.lane.race.finals) + "\n")
        for directory in directories(path for task in tasks for path in task.outputs):
            (self.work / directory).mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        self.bring_in()
        self.said = self.call("make", "--no-print-directory", f"-j{self.lane.cores}")
        self.bring_out()

    def ran(self) -> int:
        return sum(line.startswith("job ") for line in self.said.splitlines())

    def bring_in(self) -> None:
        self.rclone(f"lab:{self.lane.site.rclone_root}/{self.lane.race.name}", ".")

    def bring_out(self) -> None:
        self.rclone("--files-from", "finals.list", ".", f"lab:{self.lane.site.rclone_root}/{self.lane.target}")

    def rclone(self, *words: str) -> None:
        at_once = ["--transfers", str(AT_ONCE), "--checkers", str(AT_ONCE)]
        self.call("rclone", "copy", "-q", *at_once, *words, env=self.lane.site.rclone_env())
