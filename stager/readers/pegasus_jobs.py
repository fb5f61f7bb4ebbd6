"""The jobs of a Pegasus workflow as they are written: what each uses, runs and waits for.

May know: Pegasus 5 workflows. One rule: what stager does not run is refused by name, with the jobs and a way out; nothing is run half.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from stager.readers.lines import Place
from stager.readers.paths import clean_path
from stager.readers.pegasus_catalogs import Key, Profiles, has_hooks, key_of, profiles_of, sha256_of
from stager.readers.pegasus_form import CheckedMapping, Reports

SUB_WORKFLOWS = frozenset({"pegasusWorkflow", "condorWorkflow", "dax", "dag"})
REFUSED_USES = {
    "inout": "inputs are never changed, so no job runs that changes one in place (type: inout); read one name and write another",
    "checkpoint": "checkpoint files are not kept between attempts; take them out, or make each part a job of its own",
}
USE_TYPES = ("input", "output", "none")
QUOTES = frozenset("\\'\" \t\r\n\f\v")


@dataclass(frozen=True, slots=True)
class Use:
    """`path` is the lfn as a path in the sandbox, where the program looks for it."""

    lfn: str
    path: str
    place: Place
    stage_out: bool = False
    optional: bool = False
    executable: bool = False
    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(slots=True)
class PegasusJob:
    id: str
    place: Place
    key: Key
    arguments: tuple[str, ...] = ()
    inputs: dict[str, Use] = field(default_factory=dict)
    outputs: dict[str, Use] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    profiles: Profiles = field(default_factory=dict)
    after: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Jobs:
    """`excused` are files of jobs that were refused: that they are missing is no second finding."""

    by_id: dict[str, PegasusJob] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)


def read_jobs(reports: Reports, workflow: CheckedMapping) -> Jobs:
    jobs = Jobs()
    if has_hooks(workflow):
        place = workflow.members["hooks"].place
        reports.refuse(
            workflow.file,
            place,
            "hooks",
            "hooks are not run; take them out, and run their commands before `stager submit` or after `stager wait`",
        )
    for entry in workflow.entries("jobs"):
        read_job(reports, entry, jobs)
    if not jobs.by_id and not jobs.refused:
        reports.wrong(workflow.file, workflow.place, "jobs", "there are no jobs; a workflow has at least one")
    read_dependencies(reports, workflow, jobs)
    return jobs


def read_job(reports: Reports, entry: CheckedMapping, jobs: Jobs) -> None:
    job_id = entry.text("id", required=True)
    if not job_id:
        return
    if job_id in jobs.by_id or job_id in jobs.refused:
        reports.wrong(entry.file, entry.place, "jobs", f"two jobs have the id {job_id!r}; ids must be unique")
        return
    if has_hooks(entry):
        message = "hooks of jobs are not run; take them out, or make the command a job of its own"
        reports.refuse_in(job_id, entry.members["hooks"].place, "jobs.hooks", message)
    kind = entry.text("type", "job")
    if kind in SUB_WORKFLOWS:
        message = f"sub-workflows (type: {kind}) are not run; run the inner workflow first, as a workflow of its own"
        reports.refuse_in(job_id, entry.place, "jobs.type", message)
        jobs.refused.add(job_id)
        jobs.excused.update(use.text("lfn") for use in entry.entries("uses"))
        return
    if kind != "job":
        reports.wrong(entry.file, entry.place, "jobs.type", f"{kind!r} is not a type of job; stager runs type: job")
    job = PegasusJob(job_id, entry.place, key_of(entry), profiles=profiles_of(entry))
    job.arguments = argv_of(reports, job, entry.texts("arguments"))
    for use in entry.entries("uses"):
        read_use(reports, job, use, jobs)
    read_streams(reports, job, entry)
    jobs.by_id[job_id] = job


def read_use(reports: Reports, job: PegasusJob, entry: CheckedMapping, jobs: Jobs) -> None:
    lfn, kind = entry.text("lfn", required=True), entry.text("type", required=True)
    if kind in REFUSED_USES:
        reports.refuse_in(f"{job.id} with {lfn!r}", entry.place, "jobs.uses.type", REFUSED_USES[kind])
        jobs.excused.add(lfn)
        return
    if kind not in ("input", "output"):
        if kind and kind not in USE_TYPES:
            reports.wrong(entry.file, entry.place, entry.key("type"), f"{kind!r} is not one of {', '.join(USE_TYPES)}")
        return
    path = path_of(reports, job, lfn, entry.place)
    if not path:
        return
    if entry.flag("registerReplica", False) and kind == "output":
        reports.note("registerReplica is not done: stager writes no replica catalog", job.id)
    use = Use(
        lfn,
        path,
        entry.place,
        stage_out=kind == "output" and entry.flag("stageOut", True),
        optional=entry.flag("optional", False),
        executable=entry.flag("executable", False),
        size_bytes=entry.size_bytes(),
        sha256=sha256_of(entry),
    )
    (job.inputs if kind == "input" else job.outputs).setdefault(lfn, use)


def path_of(reports: Reports, job: PegasusJob, lfn: str, place: Place) -> str:
    """Programs find files under their lfns, so an lfn that is no safe path cannot be given another name."""
    try:
        return clean_path(lfn)
    except ValueError as error:
        reports.wrong_in(job.id, place, "jobs.uses.lfn", str(error))
        return ""


def read_streams(reports: Reports, job: PegasusJob, entry: CheckedMapping) -> None:
    """Pegasus lists streams among the uses as well; where a writer forgot it, a stream is a file that stays in the workflow."""
    for stream, side in (("stdin", job.inputs), ("stdout", job.outputs), ("stderr", job.outputs)):
        lfn = entry.text(stream)
        path = path_of(reports, job, lfn, entry.place) if lfn else ""
        if path:
            job.streams[stream] = path
            side.setdefault(lfn, Use(lfn, path, entry.place))


def read_dependencies(reports: Reports, workflow: CheckedMapping, jobs: Jobs) -> None:
    for entry in workflow.entries("jobDependencies"):
        parent = entry.text("id", required=True)
        for child in entry.texts("children"):
            for name in (parent, child):
                if name and name not in jobs.by_id and name not in jobs.refused:
                    reports.wrong(entry.file, entry.place, entry.where, f"there is no job {name!r}")
            if child in jobs.by_id and parent in jobs.by_id:
                jobs.by_id[child].after[parent] = None


def argv_of(reports: Reports, job: PegasusJob, arguments: list[str]) -> tuple[str, ...]:
    """As Pegasus does it: joined by spaces, then split again; quotes hold words together, a backslash outside of quotes keeps a sign."""
    if any("\0" in word for word in arguments):
        reports.wrong_in(job.id, job.place, "jobs.arguments", "an argument holds a NUL character; no program can be given it")
        return ()
    if not any(QUOTES & set(word) for word in arguments):
        return tuple(word for word in arguments if word)
    splitter = shlex.shlex(" ".join(arguments), posix=True, punctuation_chars=False)
    splitter.whitespace_split, splitter.commenters, splitter.escapedquotes = True, "", ""
    try:
        return tuple(splitter)
    except ValueError as error:
        reports.wrong_in(job.id, job.place, "jobs.arguments", f"cannot be split into words: {str(error).lower()}; close the quote")
        return ()
