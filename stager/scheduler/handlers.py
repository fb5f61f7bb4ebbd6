"""The decisions because of one event in particular: tries of jobs by error class, the answer to lost content, ends of runs that were asked
for.

One rule: only what this event makes necessary; the queues are worked in admission.py, uploads.py and eviction.py after every event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stager.model.errors import SANDBOX_FULL_CODE, ErrorClass, Fault, is_permanent
from stager.model.units import format_size
from stager.model.workflow import Job
from stager.scheduler import calls, leaving
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.accounting import inputs_of
from stager.scheduler.decision import Decision
from stager.scheduler.direct_access import has_begun
from stager.scheduler.direct_fallback import direct_read_failed, fetch_where_no_mounts
from stager.scheduler.eviction import delete_replica, let_go_old
from stager.scheduler.placing import call_back_stranded, capacity_elsewhere
from stager.scheduler.rehoming import rehome_jobs
from stager.scheduler.remade import conflict_of
from stager.scheduler.retries import go_on_at_once, not_again, transfer_failed
from stager.scheduler.scatter import lacks_members, other_members, pending, standing_for
from stager.scheduler.state import NEVER, AttemptEntry, FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import ACTIVE, ADMITTED, DELETING, DONE, FETCHING, PRESENT, RUNNING, RunState
from stager.scheduler.stripes import give_up_broken

RESERVE_BYTES_MIN = 64 * 1024
Subject = AttemptEntry | TransferEntry | leaving.Attempts | None


def subject_of(state: State, event: ev.Event) -> Subject:
    """The facts of the state before the event was applied that the handler must know. Few kinds of events have such."""
    return SUBJECTS[type(event)](state, event)


def handle(decision: Decision, event: ev.Event, subject: Subject) -> None:
    state, handler = decision.state, HANDLERS.get(type(event))
    if handler is not None:
        handler(decision, event, subject)
    if state.broken_stripes:
        give_up_broken(decision)
    if state.stranded:
        call_back_stranded(decision)
    if state.lost:
        remake_lost(decision)
    if state.back:
        go_on_at_once(decision)


def attempt_ended(decision: Decision, event: ev.AttemptEnded, attempt: AttemptEntry | None) -> None:
    if attempt is None:
        return
    run = decision.state.runs[attempt.run]
    if run.is_engines:
        calls.attempt_ended(decision, event, attempt)
        return
    job, spec = run.jobs[attempt.job], run.workflow.jobs[attempt.job]
    if job.state is not RUNNING:
        return
    conflict = conflict_of(decision.state, run, job.id, event.outputs) or other_members(run, job.id, event) if not attempt.void else None
    if conflict is not None:
        decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=conflict)
        return
    fault = event.fault or Fault(ErrorClass.TRANSIENT, event.outcome.value, f"job {job.id!r} ended as {event.outcome.value}", job.id)
    known = attempt.needed_bytes if attempt.needed_bytes is not None and attempt.needed_bytes > job.reserve_bytes else None
    began = has_begun(event)
    is_unread = event.outcome is ev.Outcome.OK and not attempt.void and lacks_members(run, job.id, event)
    if is_unread:
        fault = Fault(ErrorClass.TRANSIENT, "members_unknown", f"job {job.id!r} ended, and what its outputs name was not read", job.id)
    if event.outcome in (ev.Outcome.KILLED, ev.Outcome.OK) and not is_unread:
        decision.emit(
            cmd.RequeueJob, run=run.id, job=job.id, not_before=decision.state.now, counts=False, why=fault.message, reserve_bytes=known
        )
    elif is_fault_of_node(decision.state, attempt, job, spec, fault, began):
        not_before = decision.retry_at(job.failures + 1, f"{run.id}/{job.id}")
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=not_before, counts=False, why=fault.message)
    elif not began and direct_read_failed(decision, run, job, fault):
        return
    elif began and not spec.idempotent:
        decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=not_again(job.id, fault))
    elif fault.code == SANDBOX_FULL_CODE:
        ask_for_more(decision, run, job, event)
    elif is_permanent(fault) or job.failures >= spec.retries:
        decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=fault)
    else:
        not_before = decision.retry_at(job.failures + 1, f"{run.id}/{job.id}")
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=not_before, counts=True, why=fault.message)


def is_fault_of_node(state: State, attempt: AttemptEntry, job: JobEntry, spec: Job, fault: Fault, began: bool) -> bool:
    """Its input was damaged there, or there was less room than was thought, which is no failure of the job; but a node where that never
    ends must not be tried for ever.
    """
    if began and not (attempt.void and spec.idempotent):
        return False
    is_nodes = attempt.void or fault.error_class is ErrorClass.CORRUPT or fault.code == "no_space_node"
    return is_nodes and job.attempts <= spec.retries + state.policy.transfer_attempts_max


def ask_for_more(decision: Decision, run: RunEntry, job: JobEntry, event: ev.AttemptEnded) -> None:
    """It outgrew what was reserved and the sandbox space too: again with at least twice as much, for nobody knows what it would have made.
    That is no failure of its own; when all that its node has was not enough, nor what any other could give it, it is.
    """
    state = decision.state
    node, held_bytes = state.nodes[job.node], sum(file.size_bytes for file in inputs_of(state, run, job.id))
    most_bytes = node.capacity_bytes - held_bytes
    if most_bytes <= job.reserve_bytes:
        more_bytes = job.reserve_bytes + 1
        most_bytes = capacity_elsewhere(state, run, job, held_bytes + more_bytes, more_bytes) - held_bytes
    wanted = min(most_bytes, max(RESERVE_BYTES_MIN, 2 * job.reserve_bytes, event.fitted_bytes or 0))
    if wanted > job.reserve_bytes:
        why = f"its sandbox was full; {format_size(wanted)} are set aside for its outputs now"
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why=why, reserve_bytes=wanted)
        return
    message = (
        f"job {job.id!r} made more than {format_size(job.reserve_bytes)}, all that node {node.id!r} of {format_size(node.capacity_bytes)} "
        "has beside its inputs, and its sandbox was full: give more capacity, or more space to the file system of the state directory"
    )
    decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=Fault(ErrorClass.REFUSED, "no_space_node", message, job.id))


def end_run_early(decision: Decision, event: ev.RunDrained | ev.RunStopped | ev.RunCancelled, _: None) -> None:
    """Admitted jobs go back; for a stop or a cancel attempts are killed and transfers called off as well."""
    state, run_id = decision.state, event.run
    run = state.runs.get(run_id)
    if run is None or run.state in (ACTIVE, RunState.FINISHED):
        return
    withdraw_admitted(decision, run)
    if run.state is RunState.DRAINING:
        return
    for attempt_id, attempt in list(state.attempts.items()):
        if attempt.run == run_id and not attempt.killed:
            void = run.state is RunState.CANCELLING
            decision.emit(cmd.KillAttempt, node=attempt.node, run=run_id, job=attempt.job, attempt=attempt_id, void=void)
    for transfer in list(state.transfers.values()):
        if transfer.run == run_id and not transfer.cancelled and not shared_with_others(state, transfer):
            decision.emit(cmd.CancelTransfer, node=transfer.node, transfer=transfer.id)


def withdraw_admitted(decision: Decision, run: RunEntry) -> None:
    if run.is_engines:
        calls.end_calls(decision, run)
        return
    for job in run.jobs.values():
        if job.state is ADMITTED:
            decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=decision.state.now, counts=False, why="the run is ending")


def shared_with_others(state: State, transfer: TransferEntry) -> bool:
    file = state.files[transfer.file]
    wanted = any(run in state.active and run != transfer.run for _, run, _ in file.uses[file.use_at :])
    pinned = transfer.is_fetch and file.copies[transfer.node].pins > 0
    return transfer.is_fetch and (wanted or pinned)


def void_readers(decision: Decision, file: FileEntry, node_id: str) -> None:
    """A job that is reading damaged content must not be believed."""
    state = decision.state
    for attempt_id, attempt in list(state.attempts.items()):
        pinned = state.runs[attempt.run].pinned.get(attempt.job, ())
        reads = any(entry is file and copy is not file.copies.get(node_id) for entry, copy in pinned)
        if reads and attempt.node == node_id and not attempt.void:
            decision.emit(cmd.KillAttempt, node=attempt.node, run=attempt.run, job=attempt.job, attempt=attempt_id, void=True)


def run_submitted(decision: Decision, event: ev.RunSubmitted, _: None) -> None:
    rehome_jobs(decision, (event.run,))
    fetch_where_no_mounts(decision, (event.run,))
    if event.sharing is not None and event.sharing.joins and len(decision.state.active) > 1:
        # Few runs have others beside them, and a scheduler starts sooner without this.
        from stager.scheduler.joining import join_others

        join_others(decision, decision.state.runs[event.run], event.sharing)
    let_go_old(decision)


def run_resumed(decision: Decision, event: ev.RunResumed, _: None) -> None:
    rehome_jobs(decision, (event.run,))


def run_scattered(decision: Decision, event: ev.RunScattered, _: None) -> None:
    run = decision.state.runs.get(event.run)
    if run is None:
        return
    if event.fault is not None:
        for each in pending(run):
            if each.name == event.scatter:
                decision.emit(cmd.FailJob, run=run.id, job=standing_for(run, each)[0], fault=event.fault)
        return
    rehome_jobs(decision, (event.run,))
    fetch_where_no_mounts(decision, (event.run,))


def node_reported(decision: Decision, event: ev.NodeReported, attempts: leaving.Attempts) -> None:
    leaving.node_came(decision, event, attempts)
    delete_again(decision, event)
    let_go_old(decision)
    if not event.can_link:
        fetch_where_no_mounts(decision, list(decision.state.active))


def delete_again(decision: Decision, event: ev.NodeReported) -> None:
    """Replicas that do not count, and deletes whose word was lost."""
    state, node = decision.state, decision.state.nodes[event.node]
    for replica in event.replicas:
        copy = state.files[replica.file].copies.get(node.id) if replica.file in state.files else None
        deleting = copy is not None and copy.generation == replica.generation and copy.state is DELETING
        rubbish = (replica.file, replica.generation) in node.garbage and not is_read(state, replica.file, replica.generation)
        if deleting or rubbish:
            why = "the node holds it and nobody wants it"
            delete_replica(decision, node.id, replica.file, replica.generation, replica.size_bytes, why)


def is_read(state: State, file_id: str, generation: str) -> bool:
    """An earlier making, by an engine's task that was given it."""
    runs = [state.runs[run_id] for run_id in state.active if state.runs[run_id].is_engines]
    pinned = (pin for run in runs for pins in run.pinned.values() for pin in pins)
    return any(copy.pins > 0 and file.id == file_id and copy.generation == generation for file, copy in pinned)


def remake_lost(decision: Decision) -> None:
    """Content that is gone and still wanted: from an origin if it can be had, else its producer runs again."""
    state = decision.state
    while state.lost:
        file_id, node_id = state.lost.pop()
        file = state.files[file_id]
        if node_id:
            void_readers(decision, file, node_id)
        copies = state.holding(file).copies.values()
        held = any(copy.state is PRESENT or copy.state is DELETING for copy in copies)
        if file.is_external or held or state.can_be_had(file):
            continue
        stop_waiting_for(decision, file)
        if (run := state.runs.get(file.run)) is None:
            continue
        if run.is_engines:
            calls.lost_final(decision, run, file)
            continue
        wanted = state.owes_upload(file) or state.next_use(file) != NEVER
        if wanted and run.id in state.active and run.jobs[file.producer].state is DONE:
            decision.emit(cmd.RemakeFile, run=run.id, file=file.id, job=file.producer)


def stop_waiting_for(decision: Decision, file: FileEntry) -> None:
    """Nobody has it any more: who was to get a copy of it on another node waits for its producer instead."""
    state = decision.state
    for _, run_id, job_id in list(file.uses[file.use_at :]) if file.copies else ():
        job = state.job(run_id, job_id)
        if run_id in state.active and job.state is ADMITTED and job.node in file.copies:
            why = f"the only copy of {file.lfn} is gone"
            decision.emit(cmd.RequeueJob, run=run_id, job=job_id, not_before=state.now, counts=False, why=why)
    for copy in list(file.copies.values()):
        if copy.state is FETCHING:
            decision.emit(cmd.CancelTransfer, node=state.transfers[copy.generation].node, transfer=copy.generation)


SUBJECTS: dict[type, Callable[[State, Any], Subject]] = {
    ev.AttemptEnded: lambda state, event: state.attempts.get(event.attempt),
    ev.TransferFailed: lambda state, event: state.transfers.get(event.transfer),
    ev.NodeGone: lambda state, event: leaving.attempts_on(state, event.node),
    ev.NodeReported: lambda state, event: leaving.attempts_on(state, event.node),
}
HANDLERS: dict[type, Callable[[Decision, Any, Any], None]] = {
    ev.TransferFailed: transfer_failed,
    ev.AttemptEnded: attempt_ended,
    ev.RunDrained: end_run_early,
    ev.RunStopped: end_run_early,
    ev.RunCancelled: end_run_early,
    ev.JobCalled: calls.job_called,
    ev.CallFailed: calls.call_failed,
    ev.EngineRunEnded: calls.engine_run_ended,
    ev.NodeReported: node_reported,
    ev.NodeGone: leaving.node_gone,
    ev.NodeDraining: leaving.node_draining,
    ev.RunSubmitted: run_submitted,
    ev.RunResumed: run_resumed,
    ev.RunScattered: run_scattered,
}
