"""The effect of an end on the state: of a transfer that moved nothing, of a copy that is lost or no good, of what an attempt took.

One rule: the same as for all events: what changes, and nothing that is decided.
"""

from __future__ import annotations

from heapq import heappush

from stager.scheduler.accounting import (
    add_garbage,
    count_parents,
    drop_copy,
    make_ready_or_wait,
    move_copy,
    queue_start,
    release_admission,
    resize,
    settle,
    unpin,
    withdraw,
)
from stager.scheduler.apply_calls import end_old
from stager.scheduler.apply_stripes import let_go_of_source
from stager.scheduler.commands import Purpose
from stager.scheduler.copies_wanted import may_want_extra_copy
from stager.scheduler.linking import part_if_gone
from stager.scheduler.peers import tell_other_nodes
from stager.scheduler.profiles import end_early_span
from stager.scheduler.slots import free_slot, take_scratch
from stager.scheduler.spending import attempt_over
from stager.scheduler.state import AttemptEntry, Copy, FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import ADMITTED, PRESENT, WANTED


def transfer_vanished(state: State, transfer_id: str) -> None:
    """Under way by our state, unknown to the node: as if it had never been asked for."""
    transfer = state.transfers.pop(transfer_id, None)
    if transfer is not None:
        end_transfer(state, transfer)


def fetched(state: State, file: FileEntry, node_id: str, blake3: str, size_bytes: int | None = None) -> None:
    copy = move_copy(state, file, node_id, PRESENT, size_bytes)
    if (other := state.transfers.pop(copy.generation, None)) is not None:
        let_go_of_source(state, other)
    file.fetch, file.whole = None, False
    state.retrying.pop((file.id, False), None)
    file.blake3 = file.blake3 or blake3
    if size_bytes is not None:
        resize(state, file, size_bytes)
    for _, run_id, job_id in file.uses[file.use_at :]:
        job = state.job(run_id, job_id) if run_id in state.active else None
        if job is not None and job.state is ADMITTED and job.node == node_id:
            job.inputs_missing -= 1
            if job.inputs_missing == 0:
                queue_start(state, state.runs[run_id], job)
    for holder in file.copies:
        # Others are not the only ones any more.
        settle(state, file, holder)
    if len(state.nodes) > 1:
        tell_other_nodes(state, file)


def end_transfer(state: State, transfer: TransferEntry) -> None:
    """It moved nothing that counts: a pinned copy is wanted again, any other is dropped; an upload lets go of its copy."""
    if transfer.old:
        end_old(state, transfer)
        return
    file = state.files[transfer.file]
    if transfer.is_fetch:
        let_go_of_source(state, transfer)
        copy = file.copies[transfer.node]
        if copy.pins:
            # Also of one that was called off: for its parts, or its source, are gone.
            move_copy(state, file, transfer.node, WANTED)
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
    unpin_upload(state, transfer)


def unpin_upload(state: State, transfer: TransferEntry) -> None:
    if transfer.copy is not None:
        unpin(state, state.files[transfer.file_read], transfer.node, transfer.copy)


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
        if job is not None and job.state is ADMITTED and job.node == node_id:
            withdraw(state, state.runs[run_id], job)
            job.waits_for = count_parents(state, state.runs[run_id], job_id)
            make_ready_or_wait(state, job, state.now)
    for transfer in [t for t in state.transfers.values() if t.file_read == file.id and t.node == node_id and not t.is_fetch]:
        state.transfers.pop(transfer.id)
        end_transfer(state, transfer)
    copy.pins = 0
    if node_id in file.copies:
        drop_copy(state, file, node_id)
    part_if_gone(state, file)
    state.lost.append((file.id, node_id))
    may_want_extra_copy(state, file)


def input_gone(state: State, run: RunEntry, job: JobEntry, subject: str) -> None:
    """Of the inputs of a job, the one that its node does not know, by its lfn or as the node calls it."""
    for file, copy in run.pinned.get(job.id, ()):
        if file.id == run.file_ids.get(subject, subject):
            copy_gone(state, file, job.node, copy)


def copy_gone(state: State, file: FileEntry, node_id: str, copy: Copy) -> None:
    """The node has no sound one. Nobody else says so where it was lost while the scheduler was away, before it heard that it was made."""
    if file.copies.get(node_id) is copy and copy.state is PRESENT:
        give_up_copy(state, file, node_id)


def attempt_lost(state: State, attempt_id: str) -> AttemptEntry:
    """Its result will not count, whoever brings it. The job is left for the handlers to send back."""
    attempt = state.attempts.pop(attempt_id)
    run = state.runs[attempt.run]
    job = run.jobs[attempt.job]
    state.nodes[attempt.node].waiting_attempts.pop(attempt_id, None)
    if attempt.needed_bytes is None:
        free_slot(state, attempt)
    take_scratch(state, attempt, -attempt.reserve_bytes)
    run.attempts_live -= 1
    job.attempt = ""
    state.finish_checks[run.id] = None
    end_early_span(run, job)
    release_admission(state, job, attempt.reserve_bytes)
    attempt_over(state, run, attempt_id)
    return attempt
