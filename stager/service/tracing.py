"""One job of a workflow under the tracer: the workflow that runs it and what it needs and nothing else, and what its trace says.

May know: the model, strace's lines. One rule: nothing is written to any origin, and what could not be followed is unknown.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stager.adapters.strace import FileTrace, Trace
from stager.model.errors import InvalidInput, Refused
from stager.model.files import File, Location, Source
from stager.model.profile import pattern_of
from stager.model.profiling import FileGroup, Kind, Sample, Side
from stager.model.workflow import Job, Origin, OriginKind, Workflow, graph_of
from stager.readers.lines import nearest

GIVEN = "given"


@dataclass(frozen=True, slots=True)
class TracedFile:
    """One input. `touched_bytes`, `read_bytes` and `sequential_bytes` None: it was mapped, or read in a way that cannot be followed
    (`why_unknown`).
    """

    lfn: str
    path: str
    size_bytes: int | None
    opened: bool
    touched_bytes: int | None
    read_bytes: int | None
    sequential_bytes: int | None
    why_unknown: str = ""


def find_strace(environ: Mapping[str, str]) -> str:
    found = shutil.which("strace", path=environ.get("PATH"))
    if found is None:
        text = "strace is not installed (not on PATH), and it is what traces; install it: apt-get install strace (dnf install strace)"
        raise Refused(text, code="tracer_missing", subject="strace")
    return found


def traced_type(job_type: str) -> str:
    """Its times under the tracer are not those of its type."""
    return f"{job_type} (traced)"


def job_named(workflow: Workflow, job_id: str) -> Job:
    if job_id not in workflow.jobs:
        text = f"workflow {workflow.name!r} has no job {job_id!r}{nearest(job_id, workflow.jobs)}; `stager plan` lists its jobs"
        raise InvalidInput(text, subject=job_id)
    return workflow.jobs[job_id]


def traced_workflow(workflow: Workflow, job_id: str, prefix: Sequence[str], given: Mapping[str, Path]) -> Workflow:
    """The job behind the tracer's command, with all jobs it needs; those that make only what is `given` (lfn to local file) are left out.

    No file of it is a final. Raises InvalidInput for a job, or an input of it, that is not there.
    """
    job = job_named(workflow, job_id)
    if job.image is not None:
        text = f"job {job_id!r} runs in a container, and the tracer is a program of this host; trace it with `container: none`"
        raise InvalidInput(text, subject=job_id)
    inputs = {entry.lfn for entry in job.inputs}
    strange = [lfn for lfn in given if lfn not in inputs]
    if strange:
        raise InvalidInput(f"job {job_id!r} has no input {strange[0]!r}{nearest(strange[0], sorted(inputs))}", subject=strange[0])
    needed = jobs_needed(workflow, job_id, given)
    jobs = {name: workflow.jobs[name] for name in workflow.jobs if name in needed}
    # What traces it writes its record beside the sandbox.
    prefixed = replace(job, argv=(*prefix, *job.command), shell="", interpreter=(), isolate=False)
    jobs[job_id] = replace(prefixed, retries=0, job_type=traced_type(job.job_type), kept_by="")
    jobs = {name: replace(entry, after=tuple(name for name in entry.after if name in needed)) for name, entry in jobs.items()}
    used = {lfn for entry in jobs.values() for lfn in entry.lfns}
    files = {lfn: given_file(workflow.files[lfn], given) for lfn in workflow.files if lfn in used}
    origins = dict(workflow.origins)
    if given:
        origins[GIVEN] = Origin(GIVEN, OriginKind.FILE, "file:///")
    hints = dict(workflow.hints)
    if job.job_type in hints:
        hints[traced_type(job.job_type)] = hints[job.job_type]
    return replace(workflow, name="trace", files=files, jobs=jobs, origins=origins, hints=hints, spill_origin=None, source_path="")


def jobs_needed(workflow: Workflow, job_id: str, given: Mapping[str, Path]) -> set[str]:
    producer = graph_of(workflow).producer
    needed, waiting = {job_id}, [job_id]
    while waiting:
        job = workflow.jobs[waiting.pop()]
        first = job.id == job_id
        wanted = [producer[entry.lfn] for entry in job.inputs if entry.lfn in producer and not (first and entry.lfn in given)]
        for name in (*wanted, *job.after):
            if name not in needed:
                needed.add(name)
                waiting.append(name)
    return needed


def given_file(file: File, given: Mapping[str, Path]) -> File:
    if file.lfn not in given:
        return replace(file, destination=None)
    place = given[file.lfn].resolve()
    if not place.exists():
        raise InvalidInput(f"there is no {given[file.lfn]}, which was given for {file.lfn!r}", subject=file.lfn)
    return File(file.lfn, file.kind, sources=(Source(Location(GIVEN, str(place).lstrip("/"))),), executable=file.executable)


def traced_files(trace: Trace, job: Job, state_dir: Path, sizes: Mapping[str, int | None]) -> list[TracedFile]:
    """The job's inputs in the order of the workflow. `sizes` by lfn; an input that is a directory is all files below it."""
    sandbox = re.compile(re.escape(str(state_dir.resolve())) + r"/attempts/[^/]+/sandbox/")
    inside = {path[found.end() :]: file for path, file in trace.files.items() if (found := sandbox.match(path))}
    executed = {posixpath.normpath(sandbox.sub("", path)) for path in trace.executed}
    traced = []
    for lfn, path in {entry.lfn: entry.path for entry in job.inputs}.items():
        parts = [file for name, file in inside.items() if name == path or name.startswith(f"{path}/")]
        why = why_unknown(trace, path, parts, any(name == path or name.startswith(f"{path}/") for name in executed))
        traced.append(
            TracedFile(
                lfn,
                path,
                sizes.get(lfn),
                bool(parts),
                touched_bytes=None if why else sum(part.touched_bytes for part in parts),
                read_bytes=None if why else sum(part.read_bytes for part in parts),
                sequential_bytes=None if why else sum(part.sequential_bytes for part in parts),
                why_unknown=why,
            )
        )
    return traced


def why_unknown(trace: Trace, path: str, parts: Sequence[FileTrace], executed: bool) -> str:
    if any(part.mapped for part in parts):
        return "mapped into memory (mmap)"
    if executed:
        return "executed: the kernel maps it"
    if trace.asynchronous:
        return "the job reads asynchronously (io_uring or aio)"
    if not trace.renamed.isdisjoint(path.split("/")):
        return "renamed, linked or replaced"
    return "" if all(part.followed for part in parts) else "read through a descriptor from elsewhere, or cloned"


def trace_sample(measured: Sample, store: str, job_type: str, files: Sequence[TracedFile]) -> Sample:
    """The part of the traced attempt's sample that counts for its type: sizes, and the bytes that it touched of its inputs. Not its times,
    memory and counters: those are of the tracer too.
    """
    by_pattern: dict[str, list[TracedFile]] = {}
    for file in files:
        by_pattern.setdefault(pattern_of(file.lfn), []).append(file)
    groups = tuple(
        group if group.side is Side.OUTPUT or group.pattern not in by_pattern else with_trace(group, by_pattern[group.pattern])
        for group in measured.files
    )
    touched, read = (total([getattr(file, name) for file in files]) for name in ("touched_bytes", "read_bytes"))
    return replace(
        measured,
        store=store,
        job_type=job_type,
        kind=Kind.TRACE,
        wall_s=None,
        cpu_s=None,
        memory_peak_bytes=None,
        read_bytes=None,
        written_bytes=None,
        touched_bytes=touched,
        reread_bytes=None if touched is None or read is None else read - touched,
        files=groups,
    )


def with_trace(group: FileGroup, files: Sequence[TracedFile]) -> FileGroup:
    touched, read, sequential = (
        total([getattr(file, name) for file in files]) for name in ("touched_bytes", "read_bytes", "sequential_bytes")
    )
    return replace(group, touched_bytes=touched, read_bytes=read, sequential_bytes=sequential)


def total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
