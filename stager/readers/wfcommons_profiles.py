"""The measurements of job types in a WfCommons instance, as samples, and those of it that are not taken.

May know: the model, recorded tasks. One rule: only numbers that mean the same in every instance are taken; what is left out is said.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from stager.model.ids import digest_of
from stager.model.profiling import Kind, Sample, Side, group_files
from stager.readers.wfcommons import job_type_of
from stager.readers.wfcommons_formats import Record, Task, read_record

STORE = "wfcommons"
# What instances have: 2020-12-26T01:35:40+00:00, 20200401T050758+0000, 03-23-21T05:57:15Z.
MONTH_FIRST = re.compile(r"\A(\d\d)-(\d\d)-(\d\d)T")


def read_samples(path: Path | str) -> tuple[list[Sample], tuple[str, ...]]:
    """(samples, notes). Raises InvalidInput with all that is wrong in the file."""
    record = read_record(path)
    identity = identity_of(record)
    at = seconds_of(record.executed_at)
    unsized = all(not record.sizes.get(name) for name in external_names(record))
    samples = [sample_of(record, task, identity, at, unsized) for task in record.tasks]
    return samples, notes_of(record, unsized)


def identity_of(record: Record) -> str:
    """The same run under another file name, or written with other white space, is the same."""
    words = [record.name, record.executed_at]
    for task in record.tasks:
        words += [
            task.id,
            task.name,
            repr(task.runtime_s),
            repr(task.cpu_percent),
            repr(task.memory_bytes),
            *task.inputs,
            "",
            *task.outputs,
        ]
    return digest_of(*words, *(f"{name} {size}" for name, size in sorted(record.sizes.items())))


def external_names(record: Record) -> list[str]:
    made = {name for task in record.tasks for name in task.outputs}
    return [name for task in record.tasks for name in task.inputs if name not in made]


def sample_of(record: Record, task: Task, identity: str, at: float, unsized: bool) -> Sample:
    """A time or a memory of 0 is below what the recorder could tell. An average use of the CPU makes no seconds without a time."""
    wall_s = task.runtime_s or None
    inputs = [(name, None if unsized else record.sizes.get(name)) for name in task.inputs]
    outputs = [(name, record.sizes.get(name)) for name in task.outputs]
    return Sample(
        store=STORE,
        attempt=f"{identity}/{task.id}",
        job_type=job_type_of(task),
        run=f"{record.name}/{identity}",
        kind=Kind.RECORD,
        at=at,
        wall_s=wall_s,
        cpu_s=wall_s * task.cpu_percent / 100 if wall_s is not None and task.cpu_percent is not None else None,
        memory_peak_bytes=task.memory_bytes,
        input_bytes=total(inputs),
        input_files=len(inputs),
        output_bytes=total(outputs),
        output_files=len(outputs),
        files=group_files(Side.INPUT, inputs) + group_files(Side.OUTPUT, outputs),
    )


def total(files: list[tuple[str, int | None]]) -> int | None:
    sizes = [size_bytes for _, size_bytes in files if size_bytes is not None]
    return sum(sizes) if len(sizes) == len(files) else None


def seconds_of(written: str) -> float:
    """Since 1970; 0, which makes it the oldest, where it says nothing that is understood."""
    try:
        found = datetime.fromisoformat(MONTH_FIRST.sub(r"20\3-\1-\2T", written))
    except ValueError:
        return 0.0
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def notes_of(record: Record, unsized: bool) -> tuple[str, ...]:
    count = len(record.tasks)
    notes = ["times are those of the machines it ran on; they count until a job of the type was measured here"]
    carried = sum(task.has_io for task in record.tasks)
    if carried:
        notes.append(
            f"left out: readBytes and writtenBytes of {carried} of {count} tasks: recorders disagree on what they count "
            "(libraries, reads again, even the unit), so bytes read are unknown"
        )
    else:
        notes.append("bytes read are unknown: the instance does not carry them")
    for what, missing in (
        ("time", sum(not task.runtime_s for task in record.tasks)),
        ("use of the CPU", sum(task.cpu_percent is None for task in record.tasks)),
        ("memory", sum(task.memory_bytes is None for task in record.tasks)),
    ):
        if missing:
            notes.append(f"left out: {what} of {missing} of {count} tasks: not recorded, or recorded as 0")
    if unsized and external_names(record):
        notes.append("left out: the sizes of inputs: those from outside are all recorded as 0, so nothing is known of what jobs were given")
    return tuple(notes)
