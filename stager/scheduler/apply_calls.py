"""The effects of an engine's calls on the state: jobs that wait for a call, jobs that are called again, and the files of their earlier
makings.

One rule: of a file only one making counts; what another was is held as long as somebody reads it, and no longer.
"""

from __future__ import annotations

from heapq import heappush

from stager.model.errors import ErrorClass, Fault
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.accounting import (
    account,
    add_garbage,
    count_idle,
    drop_garbage,
    end_span,
    inputs_of,
    make_ready_or_wait,
    move_job,
    no_prefetch,
    recount_live,
    reopen_uses,
    reserve,
    settle,
    unpin,
    withdraw,
)
from stager.scheduler.apply_runs import reset_retries
from stager.scheduler.apply_stripes import let_go_of_source
from stager.scheduler.commands import Purpose
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.remade import differs
from stager.scheduler.state import Copy, FileEntry, HeldAt, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import ENDED, CopyState, JobState, RunState


def job_called(state: State, event: ev.JobCalled) -> None:
    """The new call takes over the space that was set aside for a call that was lost. A fetch that failed for an earlier one is tried
    anew. An engine that calls has not ended its run, whatever it said.
    """
    run = state.runs.get(event.run)
    job = run.jobs.get(event.job) if run is not None else None
    taken = run is not None and run.is_engines and run.state is RunState.ACTIVE
    if run is None or job is None or not taken or event.call in (job.call, *job.calls_before):
        state.stale += 1
        return
    run.heard_at = state.now
    if run.engine_outcome is not None:
        reopen(state, run)
    if job.call:
        job.calls_before = (*job.calls_before, job.call)
    job.call, job.call_open, job.called_at = event.call, True, state.now
    job.fault, job.failures, job.pins_only = None, 0, event.stage is ev.Stage.PINS
    for file in inputs_of(state, run, job.id):
        if file.fetch is not None and file.fetch.fault is not None and file.run == run.id:
            reset_retries(state, file)
    if job.state is JobState.DONE:
        move_job(state, job, JobState.WAITING)
        for file in inputs_of(state, run, job.id):
            reopen_uses(state, file)
    if job.state in (JobState.WAITING, JobState.BACKOFF):
        make_ready_or_wait(state, job, state.now)


def reopen(state: State, run: RunEntry) -> None:
    run.engine_outcome = run.fault = None
    for job in run.jobs.values():
        if job.state is JobState.SKIPPED:
            move_job(state, job, JobState.WAITING)
    for file_id in run.file_ids.values():
        recount_live(state, state.files[file_id])


def call_failed(state: State, event: ev.CallFailed) -> None:
    """Why is kept until the call is over."""
    run = state.runs.get(event.run)
    job = run.jobs.get(event.job) if run is not None else None
    if run is None or job is None or not job.call_open or event.call != job.call or job.fault is not None:
        state.stale += 1
        return
    run.heard_at = state.now
    job.fault = Fault(ErrorClass.TRANSIENT, "task_failed", event.message or f"{run.workflow.engine} says that it failed", job.id)


def engine_run_ended(state: State, event: ev.EngineRunEnded) -> None:
    """Its intermediates need not stay any more."""
    run = state.runs.get(event.run)
    if run is None or not run.is_engines or run.state not in (RunState.ACTIVE, RunState.DRAINING) or run.engine_outcome is not None:
        state.stale += 1
        return
    run.heard_at, run.engine_outcome = state.now, event.outcome
    if event.outcome is ev.EngineOutcome.FAILED:
        message = event.message or f"{run.workflow.engine} says that the run failed"
        run.fault = Fault(ErrorClass.TRANSIENT, "engine_failed", message, run.id)
    state.finish_checks[run.id] = None
    for file in [state.files[file_id] for file_id in run.file_ids.values()]:
        recount_live(state, file)
        for node_id in file.copies:
            settle(state, file, node_id)


def end_call(state: State, command: cmd.EndCall) -> None:
    """A job that was called after it may have waited for a file that it was to publish."""
    run = state.runs[command.run]
    job = run.jobs[command.job]
    if job.state is JobState.ADMITTED:
        withdraw(state, run, job)
    job.call_open, job.fault = False, command.fault
    if command.reserve_bytes is not None:
        reserve(run, job, command.reserve_bytes)
    move_job(state, job, JobState.WAITING)
    call_again(state, run, job)


def published(state: State, run: RunEntry, job: JobEntry) -> None:
    job.call_open = False
    run.heard_at = state.now
    call_again(state, run, job)


def call_again(state: State, run: RunEntry, job: JobEntry) -> None:
    """Readers that wait for what this job publishes look again, for it does not run any more."""
    for child in [run.jobs[child_id] for child_id in run.graph.children[job.id]]:
        if child.state is JobState.BACKOFF:
            make_ready_or_wait(state, child, state.now)


def skip_uncalled(state: State, run: RunEntry) -> None:
    """Its engine has ended the run without them."""
    for job in run.jobs.values():
        if job.state not in ENDED:
            move_job(state, job, JobState.SKIPPED)


def supersede(state: State, run: RunEntry, file: FileEntry, made: ev.OutputMade) -> None:
    """Its job ran again. If that made something else, nothing of the earlier making is handed out any more."""
    run.finals_given_up.pop(file.id, None)
    run.finals_superseded.pop(file.id, None)
    if not differs(file, made):
        return
    for _, run_id, job_id in file.uses:
        reader = run.jobs[job_id] if run_id == run.id else None
        if reader is not None and reader.state is JobState.ADMITTED:
            withdraw(state, run, reader)
            make_ready_or_wait(state, reader, state.now)
    for transfer in state.transfers.values():
        if transfer.file == file.id:
            transfer.old = True
    for node_id, copy in list(file.copies.items()):
        set_apart(state, file, state.nodes[node_id], copy)
    if file.spilled is not None:
        state.spills_to_erase.append((file.id, file.spilled, job_node(run, file)))
    file.left = file.durable or file.left
    file.durable = file.spilled = None
    file.blake3, file.extra_copies, file.moves_failed = "", 0, 0
    recount_live(state, file)


def job_node(run: RunEntry, file: FileEntry) -> str:
    return run.jobs[file.producer].node


def set_apart(state: State, file: FileEntry, node: NodeEntry, copy: Copy) -> None:
    """It holds its space until it is read by nobody and the node has deleted it; what is still on its way, until that was called off."""
    del file.copies[node.id]
    count_idle(node, copy, idle=False)
    account(node, copy, -1)
    no_prefetch(node, file)
    end_span(state, copy)
    if copy.state is CopyState.WANTED:
        return
    add_garbage(node, file.id, copy.generation, copy.size_bytes)
    if copy.state is CopyState.PRESENT and not copy.pins:
        state.useless.append((node.id, file.id, copy.generation))


def end_old(state: State, transfer: TransferEntry, done: ev.TransferDone | None = None) -> None:
    """Of an earlier making. Written at its destination it may be replaced there, by its token; anywhere else it is rubbish."""
    file, node = state.files[transfer.file], state.nodes[transfer.node]
    if transfer.is_fetch:
        let_go_of_source(state, transfer)
        if done is None:
            drop_garbage(node, file.id, transfer.id)
        else:
            state.useless.append((node.id, file.id, transfer.id))
        return
    held = HeldAt(transfer.origin, transfer.path, done.token, done.verified, done.synced) if done is not None else None
    state.uploads_live -= 1
    state.retrying.pop((file.id, True), None)
    file.upload = None
    if transfer.purpose is Purpose.SPILL:
        node.spilling_bytes -= transfer.size_bytes
        file.spilling = ""
        if held is not None:
            state.spills_to_erase.append((file.id, held, node.id))
    else:
        run = state.runs[transfer.run]
        run.uploads_live -= 1
        state.finish_checks[run.id] = None
        file.left = held or file.left
        heappush(state.due_uploads, (run.key(run.jobs[file.producer].order), file.id))
    if transfer.copy is not None:
        unpin(state, file, transfer.node, transfer.copy)
    for node_id in file.copies:
        settle(state, file, node_id)
