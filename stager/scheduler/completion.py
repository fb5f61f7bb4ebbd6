"""How runs end, and what a standstill means. One rule: a run that cannot go on says so by name; it never just waits."""

from __future__ import annotations

from stager.model.errors import AWAY_CODE, NO_NODE_CODE, ErrorClass, Fault
from stager.model.units import format_size
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.calls import refuse
from stager.scheduler.decision import Decision
from stager.scheduler.events import EngineOutcome
from stager.scheduler.handlers import withdraw_admitted
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.placing import Prospect, prospect_of
from stager.scheduler.shares import pool_of
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import ACTIVE, JobState, RunState

NO_SPACE_CODE = "no_space_node"
# Of the nodes that take no jobs, so many are told.
NAMED = 5


def end_runs(decision: Decision) -> bool:
    """True if one ended."""
    ended = False
    state = decision.state
    checks, state.finish_checks = state.finish_checks, {}
    for run_id in checks:
        run = state.runs[run_id]
        if run.state is not ACTIVE and run.state is RunState.DRAINING:
            withdraw_admitted(decision, run)
        outcome = outcome_of(run)
        if outcome is not None:
            decision.emit(cmd.FinishRun, run=run_id, outcome=outcome, fault=reason_of(run) or pause_of(run, outcome))
            ended = True
    return ended


def reason_of(run: RunEntry) -> Fault | None:
    """Of all that went wrong, what somebody must mend: room or an origin that was away are the reason only where there is no other."""
    failed = [job.fault for job in run.jobs.values() if job.state is JobState.FAILED] if run.failed else []
    faults = [fault for fault in (run.fault, *failed, *run.finals_given_up.values()) if fault is not None]
    lesser = (NO_SPACE_CODE, AWAY_CODE)
    return min(faults, key=lambda fault: lesser.index(fault.code) + 1 if fault.code in lesser else 0, default=None)


def pause_of(run: RunEntry, outcome: cmd.RunOutcome) -> Fault | None:
    """Of one that was paused and had more to do."""
    return run.spent.paused if run.spent is not None and outcome is cmd.RunOutcome.INTERRUPTED else None


def outcome_of(run: RunEntry) -> cmd.RunOutcome | None:
    """None: not over yet."""
    if run.attempts_live or run.state is RunState.FINISHED:
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
    nodes = list(state.nodes.values())
    if any(node.is_open for node in nodes):
        # Jobs of the others are sent to these.
        nodes = [node for node in nodes if node.id not in state.closed]
    elif not any(node.incarnation or node.gone for node in nodes):
        return False
    if any(not host.answers for node in nodes if not node.gone for host in node.hosts.values()):
        return False
    for node in nodes:
        if node.id in state.closed and not node.reachable:
            continue
        if not node.reachable or node.deleting_bytes or node.cancelling_bytes or node.admitted_waiting:
            return False
    for node in nodes:
        head = next(((run, job) for _, run, job in sorted(node.ready) if is_waiting(state, run, job)), None)
        if head is not None:
            run = state.runs[head[0]]
            if run.is_engines:
                refuse(decision, run, run.jobs[head[1]], no_space(state, node, run, head[1]))
                return True
            decision.emit(cmd.FinishRun, run=run.id, outcome=cmd.RunOutcome.REFUSED, fault=no_space(state, node, run, head[1]))
            return True
    return bool(state.closed) and refuse_without_node(decision)


def refuse_without_node(decision: Decision) -> bool:
    """A run whose next job waits for a host, where all that could take it are beside nodes that take no jobs. True if there was one."""
    state = decision.state
    waiting = [entry for entries in state.parked.values() for entry in entries if is_waiting(state, *entry)]
    for run_id, job_id in waiting:
        run = state.runs[run_id]
        pool, spec, reserve_bytes = pool_of(state, run), run.workflow.jobs[job_id], run.jobs[job_id].reserve_bytes
        able = (node for node in state.nodes.values() if node.is_open)
        if all(prospect_of(node, pool, spec, reserve_bytes) is Prospect.NEVER for node in able):
            decision.emit(cmd.FinishRun, run=run_id, outcome=cmd.RunOutcome.REFUSED, fault=no_node(state, run, job_id))
            return True
    return False


def is_waiting(state: State, run_id: str, job_id: str) -> bool:
    run = state.runs[run_id]
    return run.may_start and run.jobs[job_id].state is JobState.READY


def no_space(state: State, node: NodeEntry, run: RunEntry, job_id: str) -> Fault:
    job = run.jobs[job_id]
    if node.id in state.closed:
        return no_node(state, run, job_id)
    need = job.reserve_bytes + sum(file.size_bytes for file in inputs_of(state, run, job_id) if node.id not in file.copies)
    message = (
        f"job {job_id!r} needs {format_size(need)} more on node {node.id!r}, where {format_size(max(0, node.free_bytes))} of "
        f"{format_size(node.capacity_bytes)} are free and nothing else may go (intermediates that are still wanted and finals that "
        "could not be written back stay): give it more capacity or a spill origin, then resume"
    )
    return Fault(ErrorClass.REFUSED, "no_space_node", message, job_id)


def no_node(state: State, run: RunEntry, job_id: str) -> Fault:
    told = [f"{name} {state.nodes[name].why_closed}" for name in state.closed]
    message = (
        f"job {job_id!r} has no I/O node to run on: {'; '.join(told[:NAMED])}{'; …' if len(told) > NAMED else ''}; "
        f"when there is one: stager resume {run.id}"
    )
    return Fault(ErrorClass.REFUSED, NO_NODE_CODE, message, job_id)
