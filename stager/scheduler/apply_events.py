"""The effect of each event on the state, and no decision. Events about unknown or superseded transfers, attempts and runs are counted as
stale and change nothing.

One rule: the same state and event give the same state, whoever replays it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

from stager.model.errors import UNKNOWN_CODE
from stager.scheduler import events as ev
from stager.scheduler.accounting import (
    add_copy,
    add_garbage,
    count_parents,
    drop_copy,
    drop_garbage,
    due_upload,
    inputs_of,
    make_ready_or_wait,
    may_want_extra_copy,
    move_copy,
    move_job,
    queue_start,
    recount_live,
    release_admission,
    resize,
    settle,
    slot_of,
    unpin,
    withdraw,
)
from stager.scheduler.apply_calls import call_failed, end_old, engine_run_ended, job_called, published, supersede
from stager.scheduler.apply_retries import note_failure
from stager.scheduler.apply_runs import run_cancelled, run_drained, run_resumed, run_stopped, run_submitted
from stager.scheduler.apply_stripes import end_part, let_go_of_source, part_damaged, part_done, parts_reported
from stager.scheduler.apply_timers import woken
from stager.scheduler.commands import Purpose
from stager.scheduler.direct_access import note_outage, predicted
from stager.scheduler.peers import tell_other_nodes
from stager.scheduler.profiles import adjust_profile, end_early_span
from stager.scheduler.reconcile import adopt_unknown, count_foreign
from stager.scheduler.remade import conflict_of, differs, is_kept
from stager.scheduler.state import (
    NEVER,
    AttemptEntry,
    Copy,
    FileEntry,
    HeldAt,
    JobEntry,
    NodeEntry,
    RunEntry,
    State,
    TransferEntry,
)
from stager.scheduler.states import CopyState, JobState


def apply_event(state: State, event: ev.Event) -> None:
    if event.at > state.now:
        state.now = event.at
    state.events_seen += 1
    APPLY[type(event)](state, event)


def scheduler_started(state: State, event: ev.SchedulerStarted) -> None:
    """Nothing is asked of a node before it has said how things are: what we believe of it may be old."""
    state.epoch = event.epoch
    state.wake_at = state.capacities_bytes = None
    for node in state.nodes.values():
        node.reachable = False


def policy_set(state: State, event: ev.PolicySet) -> None:
    state.policy, state.limits = event.policy, event.limits
    for node in state.nodes.values():
        node.dirty = True


def node_lost(state: State, event: ev.NodeLost) -> None:
    if event.node not in state.nodes:
        return
    state.nodes[event.node].reachable, state.capacities_bytes = False, None
    for transfer in [t for t in state.transfers.values() if t.node == event.node and t.is_fetch]:
        # Nobody knows when it will come: who waited to copy it from there looks elsewhere.
        tell_other_nodes(state, state.files[transfer.file])


def capacity_changed(state: State, event: ev.CapacityChanged) -> None:
    node = state.nodes[event.node]
    node.capacity_bytes, node.dirty, state.capacities_bytes = event.capacity_bytes, True, None


def node_reported(state: State, event: ev.NodeReported) -> None:
    """The node's word on copies and transfers is taken; what is gone is noted in `lost` for the handlers."""
    node = state.nodes.setdefault(event.node, NodeEntry(event.node))
    if not node.reachable:
        node.back_at = state.now
    node.reachable, node.incarnation, node.dirty = True, event.incarnation, True
    node.capacity_bytes, node.can_link, node.can_assemble = event.capacity_bytes, event.can_link, event.can_assemble
    state.capacities_bytes = None
    seen = {(replica.file, replica.generation): replica for replica in event.replicas if not replica.quarantined}
    damaged = {(replica.file, replica.generation) for replica in event.replicas if replica.quarantined}
    known = set(event.transfers)
    for file in [file for file in state.files.values() if event.node in file.copies]:
        copy = file.copies.get(event.node)
        if copy is None:
            # The loss of another file sent back the job that wanted this one.
            continue
        here = (file.id, copy.generation) in seen
        if (file.id, copy.generation) in damaged:
            let_go_of_source(state, state.transfers.pop(copy.generation, None))
            copy_lost(state, file, event.node)
            tell_other_nodes(state, file)
        elif copy.state in (CopyState.FETCHING, CopyState.CANCELLING) and not here:
            if copy.generation not in known:
                transfer_vanished(state, copy.generation)
        elif copy.state in (CopyState.FETCHING, CopyState.CANCELLING):
            fetched(state, file, event.node, seen[file.id, copy.generation].blake3)
        elif copy.state in (CopyState.PRESENT, CopyState.DELETING) and not here:
            copy_lost(state, file, event.node)
        elif copy.state is CopyState.DELETING and (state.next_use(file) != NEVER or state.owes_upload(file)):
            # The word to delete it was lost, and it is wanted again.
            move_copy(state, file, event.node, CopyState.PRESENT)
            settle(state, file, event.node)
        elif copy.state is CopyState.PRESENT:
            tell_other_nodes(state, file)
    for transfer in [t for t in state.transfers.values() if t.node == event.node and (t.old or not t.is_fetch) and t.id not in known]:
        transfer_vanished(state, transfer.id)
    parts_reported(state, node.id, seen, frozenset(known))
    adopt_unknown(state, node, event.replicas)
    count_foreign(state, node, event.replicas)


def transfer_vanished(state: State, transfer_id: str) -> None:
    """Under way by our state, unknown to the node: as if it had never been asked for."""
    transfer = state.transfers.pop(transfer_id, None)
    if transfer is not None:
        end_transfer(state, transfer)


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
    note_reached(state, transfer)
    file, run = state.files[transfer.file], state.runs.get(transfer.run)
    if transfer.is_fetch:
        let_go_of_source(state, transfer)
        fetched(state, file, transfer.node, event.blake3, event.size_bytes)
        if transfer.purpose is Purpose.MOVE:
            state.moved.append((transfer.source, file.id))
        if run is not None and (transfer.source or transfer.assembles):
            run.copied_bytes += event.size_bytes
        elif run is not None:
            run.fetched_bytes += event.size_bytes
        if run is not None and not transfer.source:
            run.fetches += 1
        return
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
            run.finals_superseded.pop(file.id, None)
            if event.verified == ev.ADOPTED:
                run.adopted_bytes += event.size_bytes
            else:
                run.uploaded_bytes += event.size_bytes
            state.finish_checks[run.id] = None
    recount_live(state, file)
    unpin_upload(state, file, transfer)
    if file.spilled is not None and state.next_use(file) == NEVER and not state.stays(file):
        state.spills_to_erase.append((file.id, file.spilled, transfer.node))


def fetched(state: State, file: FileEntry, node_id: str, blake3: str, size_bytes: int | None = None) -> None:
    copy = move_copy(state, file, node_id, CopyState.PRESENT, size_bytes)
    let_go_of_source(state, state.transfers.pop(copy.generation, None))
    file.fetch, file.whole = None, False
    state.retrying.pop((file.id, False), None)
    file.blake3 = file.blake3 or blake3
    if size_bytes is not None:
        resize(state, file, size_bytes)
    for _, run_id, job_id in file.uses[file.use_at :]:
        job = state.job(run_id, job_id) if run_id in state.active else None
        if job is not None and job.state is JobState.ADMITTED and job.node == node_id:
            job.inputs_missing -= 1
            if job.inputs_missing == 0:
                queue_start(state, state.runs[run_id], job)
    for holder in file.copies:
        # Others are not the only ones any more.
        settle(state, file, holder)
    tell_other_nodes(state, file)


def transfer_failed(state: State, event: ev.TransferFailed) -> None:
    transfer = state.transfers.pop(event.transfer, None)
    if transfer is None:
        end_part(state, event.transfer, event.fault.message)
        return
    file = state.files[transfer.file]
    retries = file.fetch if transfer.is_fetch else file.upload
    unasked = transfer.purpose in (Purpose.EXTRA_COPY, Purpose.MOVE)
    file.moves_failed += transfer.purpose is Purpose.MOVE
    if not (transfer.cancelled or transfer.assembles or unasked or transfer.old) and retries is not None and transfer.run == file.run:
        note_failure(state, file, retries, transfer, event.fault)
    end_transfer(state, transfer)
    if event.fault.code == UNKNOWN_CODE and transfer.copy is not None:
        copy_gone(state, file, transfer.reads_on, transfer.copy)


def note_reached(state: State, transfer: TransferEntry) -> None:
    """Its origin is there. Asked for only while something waits for one."""
    if not state.retrying or transfer.source or transfer.assembles:
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


def end_transfer(state: State, transfer: TransferEntry) -> None:
    """It moved nothing that counts: a pinned copy is wanted again, any other is dropped; an upload lets go of its copy."""
    if transfer.old:
        end_old(state, transfer)
        return
    file = state.files[transfer.file]
    if transfer.is_fetch:
        let_go_of_source(state, transfer)
        copy = file.copies[transfer.node]
        if copy.pins and (transfer.assembles or not transfer.cancelled):
            move_copy(state, file, transfer.node, CopyState.WANTED)
            state.want(transfer.node, file)
        else:
            drop_copy(state, file, transfer.node)
        tell_other_nodes(state, file)
        if transfer.purpose is Purpose.EXTRA_COPY and not transfer.cancelled:
            may_want_extra_copy(state, file)
        return
    state.uploads_live -= 1
    if transfer.purpose is Purpose.SPILL:
        state.nodes[transfer.node].spilling_bytes -= transfer.size_bytes
    else:
        run = state.runs[transfer.run]
        run.uploads_live -= 1
        state.finish_checks[run.id] = None
        if file.upload is not None:
            file.upload.transfer = ""
        heappush(state.due_uploads, (run.key(run.jobs[file.producer].order), file.id))
    if transfer.purpose is Purpose.SPILL:
        file.spilling = ""
    unpin_upload(state, file, transfer)


def unpin_upload(state: State, file: FileEntry, transfer: TransferEntry) -> None:
    if transfer.copy is not None:
        unpin(state, file, transfer.node, transfer.copy)


def replica_deleted(state: State, event: ev.ReplicaDeleted) -> None:
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    if drop_garbage(state.nodes[event.node], event.file, event.generation):
        return
    if file is None or copy is None or copy.generation != event.generation or copy.state is not CopyState.DELETING:
        state.stale += 1
        return
    drop_copy(state, file, event.node)


def replica_busy(state: State, event: ev.ReplicaBusy) -> None:
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    if (event.file, event.generation) in state.nodes[event.node].garbage:
        heappush(state.timers, (state.now + state.policy.retry_delay_s, "garbage", event.node, f"{event.file} {event.generation}"))
        return
    if file is None or copy is None or copy.generation != event.generation or copy.state is not CopyState.DELETING:
        state.stale += 1
        return
    move_copy(state, file, event.node, CopyState.PRESENT)
    heappush(state.timers, (state.now + state.policy.retry_delay_s, "settle", event.node, file.id))


def replica_corrupt(state: State, event: ev.ReplicaCorrupt) -> None:
    part = state.parts.get(event.generation)
    if part is not None and part.here and part.node == event.node:
        part_damaged(state, part, f"its part on {event.node} is damaged")
        return
    file = state.files.get(event.file)
    copy = file.copies.get(event.node) if file is not None else None
    if file is None or copy is None or copy.generation != event.generation or copy.state not in (CopyState.PRESENT, CopyState.DELETING):
        state.stale += 1
        return
    give_up_copy(state, file, event.node)


def give_up_copy(state: State, file: FileEntry, node_id: str) -> None:
    """It is no good. The bytes of it that the node still holds go."""
    copy = file.copies[node_id]
    copy_lost(state, file, node_id)
    add_garbage(state.nodes[node_id], file.id, copy.generation, copy.size_bytes)
    state.useless.append((node_id, file.id, copy.generation))


def copy_lost(state: State, file: FileEntry, node_id: str) -> None:
    """Gone or damaged. Jobs that were admitted on it go back; running ones meet the error themselves. Whether it is made again is for the
    handlers.
    """
    copy = file.copies[node_id]
    for _, run_id, job_id in file.uses[file.use_at :]:
        job = state.job(run_id, job_id) if run_id in state.active else None
        if job is not None and job.state is JobState.ADMITTED and job.node == node_id:
            withdraw(state, state.runs[run_id], job)
            job.waits_for = count_parents(state, state.runs[run_id], job_id)
            make_ready_or_wait(state, job, state.now)
    for transfer in [t for t in state.transfers.values() if t.file == file.id and t.node == node_id and not t.is_fetch]:
        state.transfers.pop(transfer.id)
        end_transfer(state, transfer)
    copy.pins = 0
    if node_id in file.copies:
        drop_copy(state, file, node_id)
    state.lost.append((file.id, node_id))
    may_want_extra_copy(state, file)


def attempt_waits(state: State, event: ev.AttemptWaits) -> None:
    """The cores are free again; the outputs stay in the sandbox."""
    attempt = state.attempts.get(event.attempt)
    if attempt is None or attempt.needed_bytes is not None:
        state.stale += 1
        return
    attempt.needed_bytes = event.needed_bytes
    free_slot(state, attempt)
    state.nodes[attempt.node].waiting_attempts[event.attempt] = None


def input_gone(state: State, run: RunEntry, job: JobEntry, subject: str) -> None:
    """Of the inputs of a job, the one that its node does not know, by its lfn or as the node calls it."""
    for file, copy in run.pinned.get(job.id, ()):
        if file.id == run.file_ids.get(subject, subject):
            copy_gone(state, file, job.node, copy)


def copy_gone(state: State, file: FileEntry, node_id: str, copy: Copy) -> None:
    """The node has no sound one. Nobody else says so where it was lost while the scheduler was away, before it heard that it was made."""
    if file.copies.get(node_id) is copy and copy.state is CopyState.PRESENT:
        give_up_copy(state, file, node_id)


def free_slot(state: State, attempt: AttemptEntry) -> None:
    node, (cores, memory_bytes) = state.nodes[attempt.node], slot_of(state, state.runs[attempt.run], attempt.job)
    node.cores_used -= cores
    node.memory_used_bytes -= memory_bytes
    node.dirty = True


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
    run.attempts_live -= 1
    job.attempt = ""
    note_outage(state, run, job, event)
    state.finish_checks[run.id] = None
    believed = event.outcome is ev.Outcome.OK and job.state is JobState.RUNNING and not attempt.void
    if believed and conflict_of(state, run, job.id, event.outputs) is None:
        commit(state, run, job, event)
    else:
        end_early_span(run, job)
        for made in event.outputs:
            add_garbage(node, made.file, made.generation, made.size_bytes)
            state.useless.append((node.id, made.file, made.generation))
        if event.fault is not None and event.fault.code == UNKNOWN_CODE:
            input_gone(state, run, job, event.fault.subject)
    release_admission(state, job, attempt.reserve_bytes)
    if job.state is JobState.DONE:
        tell_children(state, run, job)
        run.read_bytes += sum([file.size_bytes for file in inputs_of(state, run, job.id)])
        run.direct_bytes += predicted(run, job.id)[0] if run.direct else 0


def commit(state: State, run: RunEntry, job: JobEntry, event: ev.AttemptEnded) -> None:
    move_job(state, job, JobState.DONE)
    for made in event.outputs:
        file = state.files[made.file]
        if run.is_engines:
            supersede(state, run, file, made)
        if run.is_engines or not file.made_at:
            # What our own jobs make again is what they made before.
            file.made_at = min(state.now, event.made_at or state.now)
        if job.node in file.copies or (differs(file, made) and is_kept(file)):
            add_garbage(state.nodes[job.node], made.file, made.generation, made.size_bytes)
            state.useless.append((job.node, made.file, made.generation))
            if file.destination is not None and file.durable is None:
                due_upload(state, run, file)
            continue
        adjust_profile(run, job, file, made.size_bytes - file.size_bytes)
        file.executable = made.executable
        resize(state, file, made.size_bytes)
        file.blake3, file.sha256 = made.blake3, made.sha256
        add_copy(state, file, job.node, Copy(CopyState.PRESENT, made.generation, made.size_bytes))
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
        if child.state is not JobState.WAITING:
            # It began before this job had to run again, and does not wait for it.
            continue
        child.waits_for -= 1
        if child.waits_for == 0:
            make_ready_or_wait(state, child, state.now)
    for file in inputs_of(state, run, job.id):
        recount_live(state, file)
        if file.spilled is not None and state.next_use(file) == NEVER and not state.stays(file):
            state.spills_to_erase.append((file.id, file.spilled, job.node))


def spill_erased(state: State, event: ev.SpillErased) -> None:
    """Nothing hangs on it any more."""


APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.SchedulerStarted: scheduler_started,
    ev.PolicySet: policy_set,
    ev.NodeReported: node_reported,
    ev.NodeLost: node_lost,
    ev.CapacityChanged: capacity_changed,
    ev.RunSubmitted: run_submitted,
    ev.RunResumed: run_resumed,
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
