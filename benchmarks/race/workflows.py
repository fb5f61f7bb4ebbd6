"""The workflows that are raced, in a form that no engine owns: tasks with a command and the files that it reads and writes.

May know: the project's readers, its workflows and the records that setup makes. One rule: a file has one path, in the directory of every
task, at the origin and in every engine, so that all engines run the very same commands.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stager.adapters.origin_access import IonodeOriginAccess
from stager.model.workflow import Job, Origin, OriginKind, Workflow, graph_of
from stager.readers import wfcommons
from stager.readers.replay import make_replay
from stager.readers.sniff import read_workflow
from tests.testbed.places import PROJECT, recorded

JOB = Path(__file__).with_name("job.py")
# Of all that is there before a race. What is young could still change, and some engines wait for it.
LONG_AGO = (1_700_000_000, 1_700_000_000)


@dataclass(frozen=True)
class Task:
    """`command` is a text for bash. `inputs` has scripts too."""

    name: str
    type: str
    command: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Race:
    """`tasks` stand behind those that they read from. `external` lies at the origin, `scripts` beside the workflow. `edited` takes the
    place of the task of its name in the last part.
    """

    name: str
    tasks: tuple[Task, ...]
    external: Mapping[str, Path]
    scripts: Mapping[str, Path]
    finals: tuple[str, ...]
    edited: Task

    @property
    def after_edit(self) -> tuple[Task, ...]:
        return tuple(self.edited if task.name == self.edited.name else task for task in self.tasks)

    @property
    def touched(self) -> set[str]:
        """The tasks that an edit makes run again: the edited one and all that follow."""
        found, made = {self.edited.name}, set(self.edited.outputs)
        for task in self.tasks:
            if made & set(task.inputs):
                found.add(task.name)
                made |= set(task.outputs)
        return found

    @property
    def about(self) -> str:
        fetched = sum(path.stat().st_size for path in self.external.values())
        return f"{self.name}: {len(self.tasks)} jobs, {len(self.external)} inputs ({fetched / 1e6:.0f} MB), {len(self.finals)} finals"


def montage(place: Path) -> Race:
    """workflows/montage, as it is. The edit leaves the background of one image as it was: three of 76 jobs run again."""
    shutil.copytree(PROJECT / "workflows" / "montage", place / "workflows" / "montage", ignore=shutil.ignore_patterns("__pycache__"))
    own = place / "workflows" / "montage"
    subprocess.run([sys.executable, own / "make_tiles.py", place / "demo-out" / "survey"], check=True, stdout=subprocess.DEVNULL)
    workflow = read_workflow(own / "workflow.yml", access=IonodeOriginAccess(os.environ), options={})
    paths = paths_of(workflow)
    external, scripts = {}, {}
    for lfn, file in workflow.files.items():
        if file.is_external:
            source = file.sources[0].location
            if source.origin == "survey":
                external[paths[lfn]] = place / "demo-out" / "survey" / source.path
            else:
                scripts[paths[lfn]] = own / source.path
    tasks = tasks_of(workflow, lambda job: job.shell or shlex.join(job.argv))
    edited = next(task for task in tasks if task.type == "background")
    copies = (f"cp projected/{Path(path).name} {path}" for path in edited.outputs)
    edited = replace(edited, command=" && ".join(["mkdir -p corrected", *copies]))
    return race_of("montage", workflow, tasks, external, scripts, edited)


def replayed(record: str, bytes_scale: float, time_scale: float, edited_type: str) -> Callable[[Path], Race]:
    """A recipe of WfCommons. Its jobs wait as long as was recorded, scaled; the edit is another edition of the first job of a type."""

    def made(place: Path) -> Race:
        origin = Origin("lab", OriginKind.FILE, f"file:{place}")
        scales = {"bytes_scale": f"{bytes_scale:g}", "time_scale": f"{time_scale:g}", "seed": 1}
        workflow, inputs = make_replay(wfcommons.read(recorded(record)), origin=origin, output_origin=origin, **scales)
        external = {entry.path: place / entry.path for entry in inputs}
        for entry in inputs:
            external[entry.path].parent.mkdir(parents=True, exist_ok=True)
            external[entry.path].write_bytes(random.Random(entry.path).randbytes(entry.size_bytes))
        tasks = tasks_of(workflow, lambda job: command_of(workflow, job), JOB.name)
        edited = next(task for task in tasks if task.type == edited_type)
        edited = replace(edited, command=edited.command.replace(" first ", " second ", 1))
        return race_of(record, workflow, tasks, external, {JOB.name: JOB}, edited)

    return made


RACES: Mapping[str, Callable[[Path], Race]] = {
    "montage": montage,
    # Much comes in, hardly anything goes out.
    "blast": replayed("blast", 0.035, 0.0003, "blastall"),
    # What is made on the way is many times what comes in and goes out.
    "bwa": replayed("bwa", 80, 0.005, "bwa"),
}


def command_of(workflow: Workflow, job: Job) -> str:
    sizes = {output.path: workflow.files[output.lfn].size_bytes for output in job.outputs}
    words = ["python3", "-I", "-S", JOB.name, f"{job.compute_s or 0:.6f}", "first", *(entry.path for entry in job.inputs)]
    return shlex.join([*words, "--", *(f"{path}:{size}" for path, size in sizes.items())])


def tasks_of(workflow: Workflow, command: Callable[[Job], str], *scripts: str) -> tuple[Task, ...]:
    """Numbered: every engine takes such names."""
    paths, found = paths_of(workflow), []
    for number, name in enumerate(graph_of(workflow).order):
        job = workflow.jobs[name]
        inputs = tuple(dict.fromkeys([*(paths[entry.lfn] for entry in job.inputs), *scripts]))
        type_ = job.job_type.rpartition("/")[2]
        safe = "".join(letter if letter.isalnum() else "_" for letter in type_)
        found.append(Task(f"t{number:04d}_{safe}", type_, command(job), inputs, tuple(paths[entry.lfn] for entry in job.outputs)))
    return tuple(found)


def paths_of(workflow: Workflow) -> dict[str, str]:
    """The one path of each file; fails where a file has two."""
    paths: dict[str, str] = {}
    for job in workflow.jobs.values():
        for entry in (*job.inputs, *job.outputs):
            assert paths.setdefault(entry.lfn, entry.path) == entry.path, f"{entry.lfn} is called {entry.path} and {paths[entry.lfn]}"
    return paths


def race_of(
    name: str, workflow: Workflow, tasks: tuple[Task, ...], external: Mapping[str, Path], scripts: Mapping[str, Path], edited: Task
) -> Race:
    paths = paths_of(workflow)
    finals = tuple(sorted(paths[lfn] for lfn, file in workflow.files.items() if file.is_final))
    race = Race(name, tasks, external, scripts, finals, edited)
    assert edited not in tasks and {path for task in tasks for path in task.inputs} >= set(external), f"{name} is no race"
    plain = {*external, *scripts, *(path for task in tasks for path in task.outputs)}
    odd = [path for path in plain if not all(letter.isalnum() or letter in "._-/" for letter in path)]
    assert not odd, f"make would not take {odd[:3]}"
    return race


def lay_scripts(race: Race, directory: Path) -> None:
    for path, source in race.scripts.items():
        put(directory / path, source.read_text())
        os.utime(directory / path, LONG_AGO)


def put(path: Path, text: str) -> None:
    """Only what is other than before is written: its time of change is what some engines go by."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def directories(paths: Iterable[str]) -> list[str]:
    return sorted({str(Path(path).parent) for path in paths})
