"""The fallback for an input that cannot be read directly.

May know: the state. One rule: it is fetched after all by a recorded decision; an origin that is away is waited for, one that denies is
paused, and one whose file has changed fails the job, as for a fetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from stager.model.errors import AWAY_CODE, CANNOT_MOUNT_CODE, ErrorClass, Fault
from stager.model.units import format_duration
from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.direct_access import direct_lfns
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import JobState

NO_BIND = "jobs on node {node} cannot be given mounts"


def may_read_directly(decision: Decision, run: RunEntry, job: JobEntry) -> bool:
    """False: it failed, for an origin that it would read at denies."""
    for _, source in direct_lfns(run, job.id) if decision.state.paused_origins else ():
        fault = decision.state.paused(run.id, source.location.origin)
        if fault is not None:
            decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=fault)
            return False
    return True


def fetch_where_no_mounts(decision: Decision, runs: Iterable[str]) -> None:
    """A node that cannot give jobs mounts has all of it fetched, and from the start: no job may have taken room that this wants."""
    state = decision.state
    bare = {node.id for node in state.nodes.values() if node.incarnation and not node.can_link}
    for run in [state.runs[run_id] for run_id in runs if run_id in state.active] if bare else ():
        for lfn in [entry.lfn for entry in run.plan.files if run.reads_directly(entry.lfn)]:
            where = next((run.jobs[job].node for job in run.graph.readers[lfn] if run.jobs[job].node in bare), "")
            if where:
                fall_back_to_fetch(decision, run, lfn, NO_BIND.format(node=where))


def fall_back_to_fetch(decision: Decision, run: RunEntry, lfn: str, why: str) -> None:
    """Its readers that have not begun wait for it from now on, those admitted without it first give back what was set aside."""
    for job_id in run.graph.readers[lfn]:
        if run.jobs[job_id].state is JobState.ADMITTED:
            decision.emit(
                cmd.RequeueJob, run=run.id, job=job_id, not_before=decision.state.now, counts=False, why=f"{lfn} is fetched: {why}"
            )
    decision.emit(cmd.FallBackToFetch, run=run.id, file=run.file_ids[lfn], lfn=lfn, why=why)


def direct_read_failed(decision: Decision, run: RunEntry, job: JobEntry, fault: Fault) -> bool:
    """Of an attempt that could not begin: whether that was for want of direct access to an input, and is answered here."""
    reads = list(direct_lfns(run, job.id))
    if not reads:
        return False
    state, facts = decision.state, {"run": run.id, "job": job.id}
    if fault.code == CANNOT_MOUNT_CODE:
        for lfn, source in reads:
            if fault.subject in (source.location.origin, ""):
                fall_back_to_fetch(decision, run, lfn, fault.message)
        decision.emit(cmd.RequeueJob, not_before=state.now, counts=False, why=fault.message, **facts)
    elif fault.error_class is ErrorClass.DENIED:
        origins = [source.location.origin for _, source in reads if fault.subject in (source.location.origin, source.location.path)]
        decision.emit(cmd.PauseOrigin, run=run.id, origin=(origins or [reads[0][1].location.origin])[0], fault=fault)
        decision.emit(cmd.FailJob, fault=fault, **facts)
    elif not job.outages:
        return False
    elif state.now - (job.away_since or 0.0) >= state.policy.outage_s_max:
        decision.emit(cmd.FailJob, fault=given_up(state, run, fault), **facts)
    else:
        not_before = decision.retry_at(job.outages, f"{run.id}/{job.id}")
        decision.emit(
            cmd.RequeueJob, not_before=not_before, counts=False, why=f"the origin of a direct read is away: {fault.message}", **facts
        )
    return True


def given_up(state: State, run: RunEntry, fault: Fault) -> Fault:
    long = format_duration(state.policy.outage_s_max)
    message = f"an origin that jobs read directly at could not be reached for {long} ({fault.message}); when it answers again: "
    return Fault(ErrorClass.TRANSIENT, AWAY_CODE, f"{message}stager resume {run.id}", fault.subject)
