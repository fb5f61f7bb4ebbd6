"""More room for attempts whose outputs are larger than what was set aside for them, and what becomes of one that cannot have it.

One rule: outputs that wait come before new jobs. Where nothing else is left to wait for, an attempt gives way, or its job fails by name.
"""

from __future__ import annotations

from stager.model.errors import ErrorClass, Fault
from stager.model.units import format_size
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.decision import Decision
from stager.scheduler.eviction import free_space
from stager.scheduler.migration import migrate
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.placing import capacity_elsewhere
from stager.scheduler.retries import not_again
from stager.scheduler.state import AttemptEntry, State
from stager.scheduler.states import ADMITTED, PRESENT


def grant(decision: Decision, node: NodeEntry) -> bool:
    """Outputs that were larger than reserved, oldest first. False while any waits: no new producer then."""
    state = decision.state
    for attempt_key in list(node.waiting_attempts):
        attempt = state.attempts[attempt_key]
        needed = attempt.needed_bytes or 0
        if attempt.killed:
            continue
        more = needed - attempt.reserve_bytes
        if not free_space(decision, node, more) and not (give_back_admitted(decision, node) and free_space(decision, node, more)):
            if not migrate(decision, node, more):
                break_deadlock(decision, node)
            return False
        decision.emit(cmd.GrantSpace, node=node.id, attempt=attempt_key, reserve_bytes=needed)
    return not node.waiting_attempts


def give_back_admitted(decision: Decision, node: NodeEntry) -> bool:
    """Jobs that were admitted and have not started hand back what was set aside for them."""
    jobs = (job for run in decision.state.active for job in decision.state.runs[run].jobs.values())
    admitted = [job for job in jobs if job.state is ADMITTED and job.node == node.id]
    why = "outputs that wait for space come first"
    for job in admitted:
        decision.emit(cmd.RequeueJob, run=job.run, job=job.id, not_before=decision.state.now, counts=False, why=why)
    return bool(admitted)


def break_deadlock(decision: Decision, node: NodeEntry) -> None:
    """If all that is left are waiting attempts, the youngest that may run again gives way and comes back with its true size: here, or on
    a node that is large enough for it. Where that cannot help its job fails.
    """
    state = decision.state
    waiting = [key for key in node.waiting_attempts if not state.attempts[key].killed]
    here = [attempt for attempt in state.attempts.values() if attempt.node == node.id]
    moving = len(here) > len(waiting) or node.deleting_bytes or node.cancelling_bytes or node.spilling_bytes or state.uploads_live
    if moving or node.fetching_bytes and state.transfers or not waiting:
        return
    key = next((key for key in reversed(waiting) if may_run_again(state, state.attempts[key])), waiting[-1])
    attempt = state.attempts[key]
    is_engines, is_too_large = state.runs[attempt.run].is_engines, size_of(state, attempt) > node.capacity_bytes
    fault = None if is_engines else why_it_fails(state, node, attempt, is_too_large, alone=len(waiting) == 1)
    if (is_engines or fault is not None) and not is_too_large and something_goes_later(state, node):
        return
    if fault is not None:
        decision.emit(cmd.FailJob, run=attempt.run, job=attempt.job, fault=fault)
    decision.emit(cmd.KillAttempt, node=node.id, run=attempt.run, job=attempt.job, attempt=key, void=True)


def size_of(state: State, attempt: AttemptEntry) -> int:
    """What its job needs at once."""
    return (attempt.needed_bytes or 0) + sum([file.size_bytes for file in inputs_of(state, state.runs[attempt.run], attempt.job)])


def something_goes_later(state: State, node: NodeEntry) -> bool:
    """Whether something there is to be written back, or spilled, when its origin is tried again."""
    for file in [state.files[file_id] for file_id, upload in state.retrying if upload]:
        copy, retries = state.holding(file).copies.get(node.id), file.upload
        if copy is not None and copy.state is PRESENT and retries is not None and retries.fault is None and retries.not_before > state.now:
            return True
    return False


def may_run_again(state: State, attempt: AttemptEntry) -> bool:
    run = state.runs[attempt.run]
    return run.is_engines or run.workflow.jobs[attempt.job].idempotent


def why_it_fails(state: State, node: NodeEntry, attempt: AttemptEntry, is_too_large: bool, alone: bool) -> Fault | None:
    """None: its job may run again, and has room then, since others are done by that time or since it goes to another node."""
    run, made_bytes = state.runs[attempt.run], attempt.needed_bytes or 0
    goes = is_too_large and capacity_elsewhere(state, run, run.jobs[attempt.job], size_of(state, attempt), made_bytes) > 0
    helps = goes or not alone
    if helps and may_run_again(state, attempt):
        return None
    message = (
        f"job {attempt.job!r} made {format_size(made_bytes)}, and node {node.id!r} of {format_size(node.capacity_bytes)} "
        "cannot hold that beside its inputs; give more capacity, or a spill origin"
    )
    fault = Fault(ErrorClass.REFUSED, "no_space_node", message, attempt.job)
    return not_again(attempt.job, fault) if helps else fault
