"""The effect of each event on the state, and no decision. Events about unknown or superseded transfers, attempts and runs are counted as
stale and change nothing.

One rule: the same state and event give the same state, whoever replays it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Final

from stager.model.errors import UNKNOWN_CODE
from stager.planning.policy import TenantShare
from stager.scheduler import events as ev
from stager.scheduler.accounting import (
    add_copy,
    add_garbage,
    drop_copy,
    drop_garbage,
    inputs_of,
    make_ready_or_wait,
    move_copy,
    move_job,
    recount_live,
    release_admission,
    resize,
    settle,
)
from stager.scheduler.apply_calls import call_failed, end_old, engine_run_ended, job_called, published, supersede
from stager.scheduler.apply_ends import (
    copy_gone,
    end_transfer,
    fetched,
    give_up_copy,
    input_gone,
    unpin_upload,
)
from stager.scheduler.apply_hosts import host_draining, host_gone, host_lost, host_reported, hosts_unheard, look_again
from stager.scheduler.apply_nodes import capacity_changed, node_draining, node_gone, node_lost, node_reported
from stager.scheduler.apply_retries import note_failure
from stager.scheduler.apply_runs import run_cancelled, run_drained, run_resumed, run_stopped, run_submitted
from stager.scheduler.apply_stripes import end_part, let_go_of_source, part_damaged, part_done
from stager.scheduler.apply_timers import woken
from stager.scheduler.commands import Purpose
from stager.scheduler.copies_wanted import may_want_extra_copy
from stager.scheduler.direct_access import note_outage, predicted
from stager.scheduler.going_home import due_upload, give_back
from stager.scheduler.keeping import remake_s
from stager.scheduler.linking import part_if_gone
from stager.scheduler.peers import tell_other_nodes
from stager.scheduler.profiles import adjust_profile, end_early_span
from stager.scheduler.reconcile import results_kept
from stager.scheduler.remade import conflict_of, differs, is_kept
from stager.scheduler.scatter import is_told, note_members, run_scattered
from stager.scheduler.shares import tenant_of
from stager.scheduler.slots import count_cores, free_slot, take_scratch
from stager.scheduler.spending import attempt_over, not_going_home, transfer_over
from stager.scheduler.state import NEVER, Copy, HeldAt, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import DELETING, DONE, PRESENT, RUNNING, WAITING

# Asked for at every fetch and every end: as in states.py.
MOVE: Final = Purpose.MOVE
OK: Final = ev.Outcome.OK


def apply_event(state: State, event: ev.Event) -> None:
    if event.at > state.now:
        state.now = event.at
    state.events_seen += 1
    APPLY[type(event)](state, event)


def scheduler_started(state: State, event: ev.SchedulerStarted) -> None:
    """Nothing is asked of a node before it has said how things are: what we believe of it may be old."""
    state.epoch, state.started_at = event.epoch, state.now
    state.wake_at = state.capacities_bytes = None
    for node in state.nodes.values():
        node.reachable = False
    if state.on_hosts:
        hosts_unheard(state)


def policy_set(state: State, event: ev.PolicySet) -> None:
    copies_before, keeps_before = state.policy.copies, state.policy.keep_results_bytes
    state.policy, state.limits = event.policy, event.limits
    for file in state.files.values() if event.policy.copies != copies_before else ():
        for node_id in file.copies:
            settle(state, file, node_id)
        may_want_extra_copy(state, file)
    if event.policy.keep_results_bytes < keeps_before:
        for file in state.files.values():
            for node_id in [node_id for node_id, copy in file.copies.items() if copy.result_rank]:
                settle(state, file, node_id)
                state.nodes[node_id].dirty = True
    for node in state.nodes.values():
        count_cores(state, node)


def tenants_set(state: State, event: ev.TenantsSet) -> None:
    """Jobs that wait for a host may have others now."""
    for name in {**state.tenants, **event.shares}:
        tenant_of(state, name).share = event.shares.get(name, TenantShare())
    for node in state.nodes.values():
        node.dirty = True
        state.stranded.append(node.id)
        look_again(state, node)


def transfer_done(state: State, event: ev.TransferDone) -> None:
    transfer = state.transfers.pop(event.transfer, None)
    if transfer is None:
        if (part := state.parts.get(event.transfer)) is not None:
            part_done(state, part, event.size_bytes)
        else:
            state.stale += 1
        return
    if transfer.old:
        end_old(state, transfer, event)
        return
    if state.retrying:
        note_reached(state, transfer)
    file, run = state.files[transfer.file], state.runs.get(transfer.run)
    if transfer.is_fetch:
        let_go_of_source(state, transfer, event.size_bytes)
        fetched(state, file, transfer.node, event.blake3, event.size_bytes)
        if transfer.purpose is MOVE:
            state.moved.append((transfer.source, file.id))
        if run is not None and (transfer.source or transfer.assembles):
            run.copied_bytes += event.size_bytes
        elif run is not None:
            run.fetched_bytes += event.size_bytes
        if run is not None and not transfer.source:
            run.fetches += 1
            transfer_over(run, transfer, event.size_bytes)
        return
    if run is not None and event.verified != ev.ADOPTED:
        transfer_over(run, transfer, event.size_bytes)
    held = HeldAt(transfer.origin, transfer.path, event.token, event.verified, event.synced)
    state.uploads_live -= 1
    state.retrying.pop((file.id, True), None)
    if transfer.purpose is Purpose.SPILL:
        state.nodes[transfer.node].spilling_bytes -= transfer.size_bytes
        file.spilling, file.spilled, file.upload = "", held, None
    else:
        file.durable, file.upload, file.left = held, None, None
        if run is not None:
            run.uploads_live -= 1
            run.finals_open.pop(file.id, None)
            not_going_home(run, file.id)
            run.finals_superseded.pop(file.id, None)
            if event.verified == ev.ADOPTED:
                run.adopted_bytes += event.size_bytes
            else:
                run.uploaded_bytes += event.size_bytes
            state.finish_checks[run.id] = None
    recount_live(state, file)
    unpin_upload(state, transfer)
    if file.lender:
        give_back(state, file)
    if file.spilled is not None and state.next_use(file) == NEVER and not state.stays(file):
        state.spills_to_erase.append((file.id, file.spilled, transfer.node))


def transfer_failed(state: State, event: ev.TransferFailed) -> None:
    transfer = state.transfers.pop(event.transfer, None)
    if transfer is None:
        end_part(state, event.transfer, event.fault.message)
        return
    file = state.files[transfer.file]
    retries = file.upload if transfer.purpose is Purpose.RELAY or not transfer.is_fetch else file.fetch
    unasked = transfer.purpose in (Purpose.EXTRA_COPY, Purpose.MOVE)
    file.moves_failed += transfer.purpose is Purpose.MOVE
    if not (transfer.cancelled or transfer.assembles or unasked or transfer.old) and retries is not None and transfer.run == file.run:
        note_failure(state, file, retries, transfer, event.fault)
    end_transfer(state, transfer)
    if event.fault.code == UNKNOWN_CODE and transfer.copy is not None:
        copy_gone(state, state.files[transfer.file_read], transfer.reads_on, transfer.copy)


def note_reached(state: State, transfer: TransferEntry) -> None:
    """Its origin is there. Asked for only while something waits for one."""
    if transfer.source or transfer.assembles:
        return
    identity = state.origin_identity(transfer.run, transfer.origin)
    state.reached[identity] = state.now
    if identity in state.away:
        del state.away[identity]
        state.back.append(identity)


def transfer_cancelled(state: State, event: ev.TransferCancelled) -> None:
    transfer = state.transfers.pop(event.transfer, None)
    if transfer is None:
        end_part(state, event.transfer, "its part was called off")
        return
    end_transfer(state, transfer)


def replica_deleted(state: State, event: ev.ReplicaDeleted) -> None:
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    node = state.nodes[event.node]
    if node.garbage and drop_garbage(node, event.file, event.generation):
        return
    if file is None or copy is None or copy.generation != event.generation or copy.state is not DELETING:
        state.stale += 1
        return
    drop_copy(state, file, event.node)
    if file.links:
        part_if_gone(state, file)


def replica_busy(state: State, event: ev.ReplicaBusy) -> None:
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    if (event.file, event.generation) in state.nodes[event.node].garbage:
        heappush(state.timers, (state.now + state.policy.retry_delay_s, "garbage", event.node, f"{event.file} {event.generation}"))
        return
    if file is None or copy is None or copy.generation != event.generation or copy.state is not DELETING:
        state.stale += 1
        return
    move_copy(state, file, event.node, PRESENT)
    heappush(state.timers, (state.now + state.policy.retry_delay_s, "settle", event.node, file.id))


def replica_corrupt(state: State, event: ev.ReplicaCorrupt) -> None:
    part = state.parts.get(event.generation)
    if part is not None and part.here and part.node == event.node:
        part_damaged(state, part, f"its part on {event.node} is damaged")
        return
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    if file is None or copy is None or copy.generation != event.generation or copy.state not in (PRESENT, DELETING):
        state.stale += 1
        return
    give_up_copy(state, file, event.node)


def attempt_waits(state: State, event: ev.AttemptWaits) -> None:
    """The cores are free again; the outputs stay in the sandbox."""
    attempt = state.attempts.get(event.attempt)
    if attempt is None or attempt.needed_bytes is not None:
        state.stale += 1
        return
    attempt.needed_bytes = event.needed_bytes
    free_slot(state, attempt)
    state.nodes[attempt.node].waiting_attempts[event.attempt] = None


def attempt_ended(state: State, event: ev.AttemptEnded) -> None:
    """The first commit of a job wins; whatever another attempt made is useless."""
    attempt = state.attempts.pop(event.attempt, None)
    if attempt is None:
        state.stale += 1
        return
    run, node = state.runs[attempt.run], state.nodes[attempt.node]
    job = run.jobs[attempt.job]
    node.waiting_attempts.pop(event.attempt, None)
    if attempt.needed_bytes is None:
        free_slot(state, attempt)
    take_scratch(state, attempt, -attempt.reserve_bytes)
    run.attempts_live -= 1
    job.attempt = ""
    note_outage(state, run, job, event)
    state.finish_checks[run.id] = None
    believed = event.outcome is OK and job.state is RUNNING and not attempt.void
    if believed and conflict_of(state, run, job.id, event.outputs) is None and is_told(run, job.id, event):
        commit(state, run, job, event)
        if event.members:
            note_members(run, event)
    else:
        end_early_span(run, job)
        for made in event.outputs:
            add_garbage(node, made.file, made.generation, made.size_bytes)
            state.useless.append((node.id, made.file, made.generation))
        if event.fault is not None and event.fault.code == UNKNOWN_CODE:
            input_gone(state, run, job, event.fault.subject)
    release_admission(state, job, attempt.reserve_bytes)
    attempt_over(state, run, event.attempt)
    if job.state is DONE:
        tell_children(state, run, job)
        run.read_bytes += sum([file.size_bytes for file in inputs_of(state, run, job.id)])
        run.direct_bytes += predicted(run, job.id)[0] if run.direct else 0


def commit(state: State, run: RunEntry, job: JobEntry, event: ev.AttemptEnded) -> None:
    move_job(state, job, DONE)
    took_s = event.measures.wall_s if event.measures.wall_s is not None else run.plan.jobs[job.order].compute_s
    remaking_s = (
        remake_s(took_s, sum([file.size_bytes for file in inputs_of(state, run, job.id)])) if state.policy.keep_results_bytes else 0.0
    )
    made_at = min(state.now, event.made_at or state.now)
    for made in event.outputs:
        file = state.files[run.file_ids.get(made.lfn, made.file)]
        if file.id != made.file:
            # What an earlier run made stands for it still.
            add_garbage(state.nodes[job.node], made.file, made.generation, made.size_bytes)
            state.useless.append((job.node, made.file, made.generation))
            continue
        if run.is_engines:
            supersede(state, run, file, made)
        if run.is_engines or not file.made_at:
            # What our own jobs make again is what they made before.
            file.made_at = made_at
        if job.node in file.copies or (file.blake3 and differs(file, made) and is_kept(file)):
            add_garbage(state.nodes[job.node], made.file, made.generation, made.size_bytes)
            state.useless.append((job.node, made.file, made.generation))
            if file.destination is not None and file.durable is None:
                due_upload(state, run, file)
            continue
        if made.size_bytes != file.size_bytes:
            adjust_profile(run, job, file, made.size_bytes - file.size_bytes)
        file.executable = made.executable
        resize(state, file, made.size_bytes)
        file.blake3, file.sha256, file.remake_s = made.blake3, made.sha256, remaking_s
        add_copy(state, file, job.node, Copy(PRESENT, made.generation, made.size_bytes))
        if file.lender:
            give_back(state, file)
        if len(state.nodes) > 1:
            tell_other_nodes(state, file)
        if file.destination is not None and file.durable is None:
            due_upload(state, run, file)
        settle(state, file, job.node)
        may_want_extra_copy(state, file)


def tell_children(state: State, run: RunEntry, job: JobEntry) -> None:
    """Its children may be ready, and what it read may be useless now."""
    if run.is_engines:
        published(state, run, job)
    for child_id in run.graph.children[job.id] if not run.is_engines else ():
        child = run.jobs[child_id]
        if child.state is not WAITING:
            # It began before this job had to run again, and does not wait for it.
            continue
        child.waits_for -= 1
        if child.waits_for == 0:
            make_ready_or_wait(state, child, state.now)
    for file in inputs_of(state, run, job.id):
        if not file.is_external:
            recount_live(state, file)
        if file.spilled is not None and state.next_use(file) == NEVER and not state.stays(file):
            state.spills_to_erase.append((file.id, file.spilled, job.node))


def spill_erased(state: State, event: ev.SpillErased) -> None:
    state.erasing.pop((event.origin, event.path), None)


APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.SchedulerStarted: scheduler_started,
    ev.PolicySet: policy_set,
    ev.TenantsSet: tenants_set,
    ev.ResultsKept: results_kept,
    ev.NodeReported: node_reported,
    ev.NodeLost: node_lost,
    ev.HostReported: host_reported,
    ev.HostLost: host_lost,
    ev.HostDraining: host_draining,
    ev.HostGone: host_gone,
    ev.NodeGone: node_gone,
    ev.NodeDraining: node_draining,
    ev.CapacityChanged: capacity_changed,
    ev.RunSubmitted: run_submitted,
    ev.RunResumed: run_resumed,
    ev.RunScattered: run_scattered,
    ev.RunDrained: run_drained,
    ev.RunStopped: run_stopped,
    ev.RunCancelled: run_cancelled,
    ev.JobCalled: job_called,
    ev.CallFailed: call_failed,
    ev.EngineRunEnded: engine_run_ended,
    ev.TransferDone: transfer_done,
    ev.TransferFailed: transfer_failed,
    ev.TransferCancelled: transfer_cancelled,
    ev.ReplicaDeleted: replica_deleted,
    ev.ReplicaBusy: replica_busy,
    ev.ReplicaCorrupt: replica_corrupt,
    ev.SpillErased: spill_erased,
    ev.AttemptWaits: attempt_waits,
    ev.AttemptEnded: attempt_ended,
    ev.Woken: woken,
}
