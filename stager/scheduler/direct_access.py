"""Inputs that jobs read directly, at their origin: no node holds them, so they are neither fetched, reserved nor pinned.

May know: the state. One rule: facts only; what is decided about them is in direct_fallback.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from stager.model.files import Source
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.state import JobEntry, RunEntry, State


def direct_lfns(run: RunEntry, job: str) -> Iterator[tuple[str, Source]]:
    """Of this job, each once, with where it is read."""
    for lfn in dict.fromkeys(entry.lfn for entry in run.workflow.jobs[job].inputs) if run.direct else ():
        if run.reads_directly(lfn):
            yield lfn, run.workflow.files[lfn].sources[0]


def staged_directly(state: State, run: RunEntry, lfn: str, path: str) -> cmd.StagedInput:
    """As its origin had it when the plan was made."""
    source, file = run.workflow.files[lfn].sources[0], state.file_of(run.id, lfn)
    where = source.location
    return cmd.StagedInput(lfn, file.id, "", path, Access.DIRECT, where.origin, where.path, file.size_bytes, source.token or "")


def predicted(run: RunEntry, job: str) -> tuple[int, float]:
    """(bytes, seconds) that the plan has this job read directly; of what it does not tell, the whole file in no time."""
    size_bytes, read_s, job_type = 0, 0.0, run.workflow.jobs[job].job_type
    for lfn, _ in direct_lfns(run, job):
        planned = run.planned[lfn]
        reads = planned.direct_access.reads if planned.direct_access is not None else ()
        mine = next(((read.size_bytes, read.read_s) for read in reads if read.job_type == job_type), (planned.expected_bytes, 0.0))
        size_bytes, read_s = size_bytes + mine[0], read_s + mine[1]
    return size_bytes, read_s


def has_begun(event: ev.AttemptEnded) -> bool:
    """A job that a signal or its timeout ended has no exit code; only one that ran has a wall time."""
    return event.outcome is not ev.Outcome.FAILED or event.exit_code is not None or event.measures.wall_s is not None


def note_outage(state: State, run: RunEntry, job: JobEntry, event: ev.AttemptEnded) -> None:
    """Whether it could not begin because an origin is away that it reads directly at. Any other end ends the row."""
    met = event.fault is not None and event.fault.code == "origin_unreachable" and not has_begun(event)
    if met and any(direct_lfns(run, job.id)):
        job.outages += 1
        job.away_since = state.now if job.away_since is None else job.away_since
    else:
        job.outages, job.away_since = 0, None
