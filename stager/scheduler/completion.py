"""How runs end, and what a standstill means. One rule: a run that cannot go on says so by name; it never just waits."""

from __future__ import annotations

from stager.model.errors import AWAY_CODE, ErrorClass, Fault
from stager.model.units import format_size
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.calls import refuse
from stager.scheduler.decision import Decision
from stager.scheduler.events import EngineOutcome
from stager.scheduler.handlers import withdraw_admitted
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import JobState, RunState

NO_SPACE_CODE = "no_space_node"


def end_runs(decision: Decision) -> bool:
    """True if one ended."""
    ended = False
    state = decision.state
    checks, state.finish_checks = state.finish_checks, {}
    for run_id in checks:
        run = state.runs[run_id]
        if run.state is RunState.DRAINING:
            withdraw_admitted(decision, run)
        outcome = outcome_of(run)
        if outcome is not None:
            decision.emit(cmd.FinishRun, run=run_id, outcome=outcome, fault=reason_of(run))
            ended = True
    return ended


def reason_of(run: RunEntry) -> Fault | None:
    """Of all that went wrong, what somebody must mend: room or an origin that was away are the reason only where there is no other."""
    failed = [job.fault for job in run.jobs.values() if job.state is JobState.FAILED] if run.failed else []
    faults = [fault for fault in (run.fault, *failed, *run.finals_given_up.values()) if fault is not None]
    lesser = (NO_SPACE_CODE, AWAY_CODE)
    return min(faults, key=lambda fault: lesser.index(fault.code) + 1 if fault.code in lesser else 0, default=None)


def outcome_of(run: RunEntry) -> cmd.RunOutcome | None:
    """None: not over yet."""
    if run.state is RunState.FINISHED or run.attempts_live:
        return None
    if run.state in (RunState.STOPPING, RunState.CANCELLING):
        if run.uploads_live:
            return None
        return cmd.RunOutcome.CANCELLED if run.state is RunState.CANCELLING else cmd.RunOutcome.INTERRUPTED
    if run.is_engines:
        return engine_outcome_of(run)
    if run.finals_open or (run.unended and run.state is RunState.ACTIVE):
        return None
    if run.failed:
        return cmd.RunOutcome.FAILED
    if run.unended:
        return cmd.RunOutcome.INTERRUPTED
    return cmd.RunOutcome.NOT_DURABLE if run.finals_given_up else cmd.RunOutcome.SUCCEEDED


def engine_outcome_of(run: RunEntry) -> cmd.RunOutcome | None:
    """As its engine said, once its finals are home. Until it says so it may call any job again."""
    if run.finals_open or (run.engine_outcome is None and run.state is RunState.ACTIVE):
        return None
    if run.engine_outcome is None:
        return cmd.RunOutcome.INTERRUPTED
    if run.engine_outcome is EngineOutcome.FAILED:
        return cmd.RunOutcome.FAILED
    return cmd.RunOutcome.NOT_DURABLE if run.finals_given_up else cmd.RunOutcome.SUCCEEDED


def refuse_if_stuck(decision: Decision) -> bool:
    """Nothing runs, moves, is being freed or is due later, and yet the next job does not fit: more room is the only help. True if a run, or
    an engine's call, was refused.
    """
    state = decision.state
    if state.attempts or state.transfers or state.timers or not state.active:
        return False
    if any(not host.answers for node in state.nodes.values() for host in node.hosts.values()):
        return False
    for node in state.nodes.values():
        if not node.reachable or node.deleting_bytes or node.cancelling_bytes or node.admitted_waiting:
            return False
    for node in state.nodes.values():
        head = next(((run, job) for _, run, job in sorted(node.ready) if is_waiting(state, run, job)), None)
        if head is not None:
            run = state.runs[head[0]]
            if run.is_engines:
                refuse(decision, run, run.jobs[head[1]], no_space(state, node, run, head[1]))
                return True
            decision.emit(cmd.FinishRun, run=run.id, outcome=cmd.RunOutcome.REFUSED, fault=no_space(state, node, run, head[1]))
            return True
    return False


def is_waiting(state: State, run_id: str, job_id: str) -> bool:
    run = state.runs[run_id]
    return run.may_start and run.jobs[job_id].state is JobState.READY


def no_space(state: State, node: NodeEntry, run: RunEntry, job_id: str) -> Fault:
    job = run.jobs[job_id]
    need = job.reserve_bytes + sum(file.size_bytes for file in inputs_of(state, run, job_id) if node.id not in file.copies)
    message = (
        f"job {job_id!r} needs {format_size(need)} more on node {node.id!r}, where {format_size(max(0, node.free_bytes))} of "
        f"{format_size(node.capacity_bytes)} are free and nothing else may go (intermediates that are still wanted and finals that "
        "could not be written back stay): give it more capacity or a spill origin, then resume"
    )
    return Fault(ErrorClass.REFUSED, "no_space_node", message, job_id)
