"""Inputs that jobs read in place, at their origin: no node holds them, so they are neither fetched, reserved nor pinned.

May know: the state; what decides is handed the turn. One rule: what cannot be had in place is fetched instead by a recorded decision; an
origin that is away is waited for, one that denies is paused, and one whose file has changed fails the job, as for a fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stager.model.errors import AWAY_CODE, CANNOT_MOUNT_CODE, ErrorClass, Fault
from stager.model.files import Source
from stager.model.units import format_duration
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import JobState

if TYPE_CHECKING:
    from stager.scheduler.turn import Turn

NO_BIND = "jobs on node {node} cannot be given mounts"


def lfns_in_place(run: RunEntry, job: str) -> Iterator[tuple[str, Source]]:
    """Of this job, each once, with where it is read."""
    for lfn in dict.fromkeys(entry.lfn for entry in run.workflow.jobs[job].inputs):
        if run.reads_in_place(lfn):
            yield lfn, run.workflow.files[lfn].sources[0]


def staged_in_place(state: State, run: RunEntry, lfn: str, path: str) -> cmd.StagedInput:
    """As its origin had it when the plan was made."""
    source, file = run.workflow.files[lfn].sources[0], state.file_of(run.id, lfn)
    where = source.location
    return cmd.StagedInput(lfn, file.id, "", path, Access.DIRECT, where.origin, where.path, file.size_bytes, source.token or "")


def foretold(run: RunEntry, job: str) -> tuple[int, float]:
    """(bytes, seconds) that the plan has this job read in place; of what it does not tell, the whole file in no time."""
    size_bytes, read_s, job_type = 0, 0.0, run.workflow.jobs[job].job_type
    for lfn, _ in lfns_in_place(run, job):
        planned = run.planned[lfn]
        reads = planned.in_place.reads if planned.in_place is not None else ()
        mine = next(((read.size_bytes, read.read_s) for read in reads if read.job_type == job_type), (planned.expected_bytes, 0.0))
        size_bytes, read_s = size_bytes + mine[0], read_s + mine[1]
    return size_bytes, read_s


def has_begun(event: ev.AttemptEnded) -> bool:
    """A job that a signal or its timeout ended has no exit code; only one that ran has a wall time."""
    return event.outcome is not ev.Outcome.FAILED or event.exit_code is not None or event.measures.wall_s is not None


def note_outage(state: State, run: RunEntry, job: JobEntry, event: ev.AttemptEnded) -> None:
    """Whether it could not begin because an origin is away that it reads in place at. Any other end ends the row."""
    met = event.fault is not None and event.fault.code == "origin_unreachable" and not has_begun(event)
    if met and any(lfns_in_place(run, job.id)):
        job.outages += 1
        job.away_since = state.now if job.away_since is None else job.away_since
    else:
        job.outages, job.away_since = 0, None


def may_read_in_place(turn: Turn, run: RunEntry, job: JobEntry) -> bool:
    """False: it failed, for an origin that it would read at denies."""
    for _, source in lfns_in_place(run, job.id) if turn.state.paused_origins else ():
        fault = turn.state.paused(run.id, source.location.origin)
        if fault is not None:
            turn.give(cmd.FailJob, run=run.id, job=job.id, fault=fault)
            return False
    return True


def fetch_where_no_mounts(turn: Turn, runs: Iterable[str]) -> None:
    """A node that cannot give jobs mounts has all of it fetched, and from the start: no job may have taken room that this wants."""
    state = turn.state
    bare = {node.id for node in state.nodes.values() if node.incarnation and not node.can_link}
    for run in [state.runs[run_id] for run_id in runs if run_id in state.active] if bare else ():
        for lfn in [entry.lfn for entry in run.plan.files if run.reads_in_place(entry.lfn)]:
            where = next((run.jobs[job].node for job in run.graph.readers[lfn] if run.jobs[job].node in bare), "")
            if where:
                fetch_instead(turn, run, lfn, NO_BIND.format(node=where))


def fetch_instead(turn: Turn, run: RunEntry, lfn: str, why: str) -> None:
    """Its readers that have not begun wait for it from now on, those admitted without it first give back what was set aside."""
    for job_id in run.graph.readers[lfn]:
        if run.jobs[job_id].state is JobState.ADMITTED:
            turn.give(cmd.RequeueJob, run=run.id, job=job_id, not_before=turn.state.now, counts=False, why=f"{lfn} is fetched: {why}")
    turn.give(cmd.FetchInstead, run=run.id, file=run.file_ids[lfn], lfn=lfn, why=why)


def unread_in_place(turn: Turn, run: RunEntry, job: JobEntry, fault: Fault) -> bool:
    """Of an attempt that could not begin: whether that was for want of an input in place, and is answered here."""
    reads = list(lfns_in_place(run, job.id))
    if not reads:
        return False
    state, facts = turn.state, {"run": run.id, "job": job.id}
    if fault.code == CANNOT_MOUNT_CODE:
        for lfn, source in reads:
            if fault.subject in (source.location.origin, ""):
                fetch_instead(turn, run, lfn, fault.message)
        turn.give(cmd.RequeueJob, not_before=state.now, counts=False, why=fault.message, **facts)
    elif fault.error_class is ErrorClass.DENIED:
        origins = [source.location.origin for _, source in reads if fault.subject in (source.location.origin, source.location.path)]
        turn.give(cmd.PauseOrigin, run=run.id, origin=(origins or [reads[0][1].location.origin])[0], fault=fault)
        turn.give(cmd.FailJob, fault=fault, **facts)
    elif not job.outages:
        return False
    elif state.now - (job.away_since or 0.0) >= state.policy.outage_s_max:
        turn.give(cmd.FailJob, fault=given_up(state, run, fault), **facts)
    else:
        not_before = turn.retry_at(job.outages, f"{run.id}/{job.id}")
        turn.give(cmd.RequeueJob, not_before=not_before, counts=False, why=f"what it reads in place is away: {fault.message}", **facts)
    return True


def given_up(state: State, run: RunEntry, fault: Fault) -> Fault:
    long = format_duration(state.policy.outage_s_max)
    message = f"an origin that jobs read in place at could not be reached for {long} ({fault.message}); when it answers again: "
    return Fault(ErrorClass.TRANSIENT, AWAY_CODE, f"{message}stager resume {run.id}", fault.subject)
