"""Reads WfCommons instances (WfFormat 1.4, 1.5, 1.6): recorded runs of real workflows, for `validate`, `plan` and `replay`.

May know: the model. One rule: nothing here can run. A record names programs and sizes, not where data lives; it is replayed, not submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from stager.model.files import Destination, File, Location, Source
from stager.model.units import counted
from stager.model.workflow import CycleFound, Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.readers.graph_check import check_graph
from stager.readers.lines import Findings, Place
from stager.readers.wfcommons_formats import Record, Task, read_record
from stager.readers.wfcommons_paths import safe_paths
from stager.readers.wfcommons_versions import Lineage, split_versions

RECORDED = "recorded"
NUMBERED = re.compile(r"_(?:ID)?[0-9]+\Z")
WORD = re.compile(r"[\w.+-]+\Z")


def read(path: Path | str) -> Workflow:
    """Raises InvalidInput with all findings."""
    record = read_record(path)
    findings = Findings(str(path))
    try:
        lineage = Lineage(record.tasks)
    except CycleFound as cycle:
        findings.note(Place(), "tasks", f"tasks wait for each other: {' -> '.join(cycle.jobs)}")
        findings.raise_if_any()
        raise
    renamed, wrong = split_versions(record.tasks, lineage)
    for message in wrong:
        findings.note(Place(), "tasks", message)
    findings.raise_if_any()
    return build(record, lineage, renamed, str(path), findings)


def build(record: Record, lineage: Lineage, renamed: dict[str, str], source_path: str, findings: Findings) -> Workflow:
    produced = {name: task.id for task in record.tasks for name in task.outputs}
    read_names = dict.fromkeys(name for task in record.tasks for name in task.inputs)
    paths = safe_paths(dict.fromkeys([*read_names, *produced]))
    files = {}
    for name, path in paths.items():
        size_bytes = record.sizes.get(renamed.get(name, name), 0)
        files[name] = file_of(name, name in produced, name in read_names, path, size_bytes)
    jobs = {task.id: job_of(task, lineage, produced, paths) for task in record.tasks}
    origin = Origin(RECORDED, OriginKind.FILE, f"recorded:{record.name}")
    notes = notes_of(record, lineage, renamed, produced, paths)
    workflow = Workflow(record.name, files, jobs, {RECORDED: origin}, source_path=source_path, notes=notes)
    for finding in check_graph(workflow):
        findings.note(Place(), "tasks", finding.message)
    findings.raise_if_any()
    return workflow


def file_of(name: str, is_produced: bool, is_read: bool, path: str, size_bytes: int) -> File:
    """A product that nobody reads is what the workflow was run for: a final."""
    place = Location(RECORDED, path)
    if not is_produced:
        return File(name, size_bytes=size_bytes, sources=(Source(place, size_bytes, token=f"recorded;s={size_bytes}"),))
    return File(name, size_bytes=size_bytes, destination=None if is_read else Destination(place))


def job_of(task: Task, lineage: Lineage, produced: dict[str, str], paths: dict[str, str]) -> Job:
    by_data = {produced[name] for name in task.inputs if name in produced}
    return Job(
        id=task.id,
        job_type=job_type_of(task),
        argv=task.command or (task.name,),
        inputs=tuple(JobInput(name, paths[name]) for name in task.inputs),
        outputs=tuple(JobOutput(name, paths[name]) for name in task.outputs),
        after=tuple(parent for parent in lineage.parents[task.id] if parent not in by_data),
        cores=task.cores,
        memory_bytes=task.memory_bytes,
        compute_s=task.runtime_s,
    )


def job_type_of(task: Task) -> str:
    """`mProject` for all of mProject_ID0000001 ...: the recorded category, else the program, else the name without its number."""
    if task.category:
        return task.category
    numbered = NUMBERED.search(task.name)
    if numbered is None:
        return task.name
    program = task.command[0].rpartition("/")[2] if task.command else ""
    return program if WORD.match(program) else task.name[: numbered.start()] or task.name


def notes_of(record: Record, lineage: Lineage, renamed: dict[str, str], produced: dict[str, str], names: Iterable[str]) -> tuple[str, ...]:
    notes = list(record.notes)
    used = {renamed.get(name, name) for name in names}
    unknown = sorted(used - set(record.sizes))
    if unknown:
        notes.append(f"{counted(len(unknown), 'file', 'has', 'have')} no recorded size ({', '.join(unknown[:3])}); 0 bytes are taken")
    unused = set(record.sizes) - used
    if unused:
        notes.append(f"{len(unused)} recorded files are used by no task and left out")
    if renamed:
        some = ", ".join(sorted(set(renamed.values()))[:3])
        notes.append(f"{len(renamed)} contents that a task replaced under the same name ({some}) are kept apart as NAME@NUMBER")
    by_data = {(task.id, produced[name]) for task in record.tasks for name in task.inputs if name in produced}
    extra = sum(1 for task, parent in by_data if parent not in lineage.parents[task])
    if extra:
        notes.append(f"{extra} edges follow from files only: the reader is not recorded as a child of the producer")
    return tuple(notes)
