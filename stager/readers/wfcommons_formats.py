"""WfCommons instances 1.4 (flat), 1.5 and 1.6 (specification and execution) as one list of recorded tasks.

May know: JSON. One rule: all that is wrong in a file is found in one go, and each finding names the key.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stager.model.units import counted
from stager.readers.lines import Finding, Findings, Place, WorkflowInvalid, read_text

FLAT_VERSIONS = ("1.4",)
SPLIT_VERSIONS = ("1.5", "1.6")
VERSIONS = FLAT_VERSIONS + SPLIT_VERSIONS

# What a number of JSON says to the unit; the sum of many of them can still be kept.
NUMBER_MAX = 2**53
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(slots=True)
class Task:
    """One task as it is recorded. `parents` and `children` are ids once the record is read."""

    id: str
    name: str
    category: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    command: tuple[str, ...] = ()
    runtime_s: float | None = None
    cores: int = 1
    memory_bytes: int | None = None
    cpu_percent: float | None = None
    has_io: bool = False


@dataclass(slots=True)
class Record:
    """`executed_at`: when it ran, as it is written there."""

    name: str
    version: str
    tasks: list[Task]
    sizes: dict[str, int]
    notes: list[str]
    executed_at: str = ""


class Reading:
    """One file on its way to a Record."""

    def __init__(self, shown: str) -> None:
        self.findings = Findings(shown)
        self.sizes: dict[str, int] = {}
        self.differing: set[str] = set()

    def note(self, where: str, message: str) -> None:
        self.findings.note(Place(), where, message)

    def member(self, owner: Any, key: str, kind: type, where: str, required: bool = True) -> Any:
        """The value under the key if it has the kind; else an empty one of that kind, and a finding."""
        value = owner.get(key) if isinstance(owner, dict) else None
        if isinstance(value, kind):
            return value
        if required or value is not None:
            told = "is missing" if value is None else f"must be {KIND_NAMES[kind]}, it is {type(value).__name__}"
            self.note(f"{where}.{key}" if where else key, told)
        return kind()

    def names(self, owner: dict[str, Any], key: str, where: str, required: bool = True) -> list[str]:
        """A list of names without the second of two equal ones."""
        found = self.member(owner, key, list, where, required)
        for name in found:
            if not isinstance(name, str) or not name:
                self.note(f"{where}.{key}", f"{name!r} is not a name")
        return list(dict.fromkeys(name for name in found if isinstance(name, str) and name))

    def number(self, owner: dict[str, Any], key: str, where: str) -> float | None:
        value = owner.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= NUMBER_MAX:
            self.note(f"{where}.{key}", f"{value!r:.40} is not a number from 0 to {NUMBER_MAX:.3g}")
            return None
        return value

    def size(self, name: str, owner: dict[str, Any], where: str) -> None:
        """Records that differ happen in the flat format, where each task repeats the size; the larger one needs the space."""
        found = self.number(owner, "sizeInBytes", where)
        if found is None:
            return
        size_bytes = int(found)
        known = self.sizes.setdefault(name, size_bytes)
        if known != size_bytes:
            self.differing.add(name)
            self.sizes[name] = max(known, size_bytes)

    def measures(self, task: Task, owner: dict[str, Any], where: str) -> None:
        task.runtime_s = self.number(owner, "runtimeInSeconds", where)
        task.cores = max(1, math.ceil(self.number(owner, "coreCount" if "coreCount" in owner else "cores", where) or 1))
        memory_bytes = self.number(owner, "memoryInBytes", where)
        task.memory_bytes = int(memory_bytes) if memory_bytes else None
        task.cpu_percent = self.number(owner, "avgCPU", where)
        task.has_io = owner.get("readBytes") is not None or owner.get("writtenBytes") is not None
        command = self.member(owner, "command", dict, where, required=False)
        program = command.get("program")
        arguments = self.member(command, "arguments", list, f"{where}.command", required=False)
        task.command = tuple(str(word) for word in ([program] if program else []) + arguments)


KIND_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}


def read_record(path: Path | str) -> Record:
    """Raises WorkflowInvalid with all findings."""
    path = Path(path)
    shown = str(path)
    data = load_json(read_text(path, shown), shown)
    reading = Reading(shown)
    version = reading.member(data, "schemaVersion", str, "")
    if version and version not in VERSIONS:
        told = (
            f"WfFormat {version} is not read; {', '.join(VERSIONS)} are; WfFormat's tools/wfcommons-migrate-instance.py converts older ones"
        )
        reading.note("schemaVersion", told)
    workflow = reading.member(data, "workflow", dict, "")
    reading.findings.raise_if_any()
    tasks = read_flat(reading, workflow) if version in FLAT_VERSIONS else read_split(reading, workflow)
    if not tasks and not reading.findings:
        reading.note("workflow", "there are no tasks; an instance has at least one")
    reading.findings.raise_if_any()
    resolve_references(reading, tasks, settle_ids(tasks) if version in FLAT_VERSIONS else {})
    reading.findings.raise_if_any()
    name = reading.member(data, "name", str, "", required=False) or path.stem
    return Record(name, version, tasks, reading.sizes, notes_of(reading), executed_at(workflow))


def executed_at(workflow: dict[str, Any]) -> str:
    """Nothing but the age of what was measured follows from it."""
    execution = workflow.get("execution")
    return str((execution if isinstance(execution, dict) else workflow).get("executedAt") or "")


def load_json(text: str, shown: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        told = "half of a character is written as an escape (\\ud800 to \\udfff); write the character itself"
        raise WorkflowInvalid(shown, [Finding(shown, Place(), "", told)]) from None
    except json.JSONDecodeError as error:
        place = Place(error.lineno, error.colno)
        raise WorkflowInvalid(shown, [Finding(shown, place, "", f"this is not JSON: {error.msg}")]) from None
    except (RecursionError, ValueError) as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it has thousands of digits"
        raise WorkflowInvalid(shown, [Finding(shown, Place(), "", f"this JSON cannot be read: {told}")]) from None
    if not isinstance(data, dict):
        told = "a WfCommons instance is an object with 'schemaVersion' and 'workflow'"
        raise WorkflowInvalid(shown, [Finding(shown, Place(1, 1), "", told)])
    return data


def read_flat(reading: Reading, workflow: dict[str, Any]) -> list[Task]:
    tasks = []
    for position, entry in enumerate(reading.member(workflow, "tasks", list, "workflow")):
        where = f"workflow.tasks[{position}]"
        name = reading.member(entry, "name", str, where)
        if not name:
            continue
        task = Task(str(entry.get("id") or ""), name, category=str(entry.get("category") or ""))
        for number, use in enumerate(reading.member(entry, "files", list, where, required=False)):
            read_use(reading, task, use, f"{where}.files[{number}]")
        task.parents = reading.names(entry, "parents", where, required=False)
        task.children = reading.names(entry, "children", where, required=False)
        reading.measures(task, entry, where)
        tasks.append(task)
    return tasks


def read_use(reading: Reading, task: Task, use: Any, where: str) -> None:
    name = str(use.get("path") or "") + reading.member(use, "name", str, where) if isinstance(use, dict) else ""
    link = use.get("link") if isinstance(use, dict) else None
    if not name or link not in ("input", "output"):
        reading.note(where, "must be an object with 'name' and 'link': 'input' or 'output'")
        return
    reading.size(name, use, where)
    side = task.inputs if link == "input" else task.outputs
    if name not in side:
        side.append(name)


def read_split(reading: Reading, workflow: dict[str, Any]) -> list[Task]:
    specification = reading.member(workflow, "specification", dict, "workflow")
    for position, entry in enumerate(reading.member(specification, "files", list, "workflow.specification", required=False)):
        where = f"workflow.specification.files[{position}]"
        name = reading.member(entry, "id", str, where)
        if name:
            reading.size(name, entry, where)
    tasks = []
    for position, entry in enumerate(reading.member(specification, "tasks", list, "workflow.specification")):
        where = f"workflow.specification.tasks[{position}]"
        task = Task(reading.member(entry, "id", str, where), str(entry.get("name") or "") if isinstance(entry, dict) else "")
        if not task.id:
            continue
        task.name = task.name or task.id
        for key in ("inputs", "outputs", "parents", "children"):
            recorded = {"inputs": "inputFiles", "outputs": "outputFiles"}.get(key, key)
            setattr(task, key, reading.names(entry, recorded, where, required=False))
        tasks.append(task)
    add_execution(reading, workflow, {task.id: task for task in tasks})
    return tasks


def add_execution(reading: Reading, workflow: dict[str, Any], tasks: dict[str, Task]) -> None:
    """A workflow that never ran has no execution: then nothing is known of its times."""
    execution = reading.member(workflow, "execution", dict, "workflow", required=False)
    for position, entry in enumerate(reading.member(execution, "tasks", list, "workflow.execution", required=False)):
        where = f"workflow.execution.tasks[{position}]"
        task_id = reading.member(entry, "id", str, where)
        if task_id in tasks:
            reading.measures(tasks[task_id], entry, where)
        elif task_id:
            reading.note(f"{where}.id", f"{task_id!r} is no task of workflow.specification")


def settle_ids(tasks: list[Task]) -> dict[str, list[str]]:
    """Where names are unique, the flat format's name is what the split one calls id. Returns all words that may mean a task."""
    unique = len({task.name for task in tasks}) == len(tasks)
    meanings: dict[str, list[str]] = {}
    for task in tasks:
        recorded = task.id
        task.id = task.name if unique or not recorded else recorded
        for word in {task.name, recorded or task.name}:
            meanings.setdefault(word, []).append(task.id)
    return meanings


def resolve_references(reading: Reading, tasks: list[Task], meanings: dict[str, list[str]]) -> None:
    """Ids are unique, and parents and children are ids of tasks."""
    counts = Counter(task.id for task in tasks)
    for task_id, count in counts.items():
        if count > 1:
            reading.note("tasks", f"{count} tasks have the id {task_id!r}; ids must be unique")

    def resolved(words: list[str], task: str) -> list[str]:
        found = []
        for word in words:
            ids = [word] if word in counts else meanings.get(word, [])
            if len(ids) == 1:
                found.append(ids[0])
            else:
                told = "names more than one task" if ids else "is no task"
                reading.note("tasks", f"task {task!r} refers to {word!r}, and that {told}")
        return list(dict.fromkeys(found))

    for task in tasks:
        task.parents, task.children = resolved(task.parents, task.id), resolved(task.children, task.id)


def notes_of(reading: Reading) -> list[str]:
    if not reading.differing:
        return []
    some = ", ".join(sorted(reading.differing)[:3])
    return [f"{counted(len(reading.differing), 'file', 'is', 'are')} recorded with different sizes ({some}); the largest is taken"]
