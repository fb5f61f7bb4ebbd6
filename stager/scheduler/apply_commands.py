"""The effect of each command on the state at the moment it is given. Applying never decides: a journal of events and commands rebuilds the
state without a single choice.

One rule: a command's effect on the state comes when it is given, its effect on the world when an event says so.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Final

from stager.model.errors import NEWER_CODE, ErrorClass
from stager.scheduler import commands as cmd
from stager.scheduler import line
from stager.scheduler.accounting import (
    add_copy,
    begin_transfer,
    call_off,
    count_parents,
    end_span,
    inputs_of,
    make_ready_or_wait,
    move_copy,
    move_job,
    move_run,
    pin,
    promise,
    queue_start,
    reopen_uses,
    reserve,
    settle,
    skip_with_descendants,
    take_over,
    withdraw,
)
from stager.scheduler.apply_calls import end_call, skip_uncalled
from stager.scheduler.apply_sharing import await_job, end_wait, take_over_job
from stager.scheduler.apply_stripes import begin_part, cancel_part, disband
from stager.scheduler.awaiting import forget_wait
from stager.scheduler.events import BY_BUDGET
from stager.scheduler.going_home import give_back, settle_all
from stager.scheduler.linking import begin_anew, pass_on
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.profiles import begin_early_span, hold_for_readers
from stager.scheduler.slots import take_scratch, take_slot
from stager.scheduler.spending import attempt_begins, not_going_home
from stager.scheduler.spill_entry import ErasedSpill
from stager.scheduler.state import OVER, AttemptEntry, Copy, FileEntry, Retries, RunEntry, State, TransferEntry
from stager.scheduler.states import ACTIVE, ADMITTED, DELETING, FETCHING, PRESENT, READY, RUNNING, WANTED, CopyState, JobState, RunState

# Asked for at every fetch: as in states.py.
PREFETCH: Final = cmd.Purpose.PREFETCH


def apply_command(state: State, command: cmd.Command) -> None:
    state.commands_made += 1
    APPLY[type(command)](state, command)


def fetch(state: State, command: cmd.Fetch) -> None:
    if command.stripe is not None:
        begin_part(state, command, command.stripe)
    else:
        begin_fetch(state, command)
        line.ask(state.nodes[command.node], command.size_bytes, command.at)


def assemble(state: State, command: cmd.AssembleStripes) -> None:
    """To its own node it is a fetch; the parts have their own entries."""
    begin_fetch(state, command)
    state.transfers[command.transfer].assembles = True


def give_up_stripes(state: State, command: cmd.GiveUpStripes) -> None:
    state.files[command.file].whole = True


def begin_fetch(state: State, command: cmd.Fetch | cmd.AssembleStripes) -> None:
    file = state.files[command.file]
    if file.run != command.run:
        take_over(state, file, state.runs[command.run])
    if len(file.sources) > 1:
        places = [(source.location.origin, source.location.path) for source in file.sources]
        file.source_at = places.index(place) if (place := (command.origin, command.path)) in places else file.source_at
    expect(state, file, command)
    file.fetch = file.fetch or Retries()
    file.fetch.transfer = command.transfer
    begin_transfer(state, transfer_of(command))


def copy_replica(state: State, command: cmd.CopyReplica) -> None:
    """A copy that is read stays where it is until it has been read."""
    file = state.files[command.file]
    take_over(state, file, state.runs[command.run])
    expect(state, file, command)
    file.fetch = file.fetch or Retries()
    if command.purpose is cmd.Purpose.EXTRA_COPY:
        file.extra_copies += 1
        file.copies[command.node].extra_copy = True
        state.replicating[command.transfer] = None
    elif command.purpose is cmd.Purpose.MOVE:
        state.moving[command.transfer] = None
    elif command.purpose is cmd.Purpose.RELAY:
        state.relaying[command.transfer] = None
        file.upload = file.upload or Retries()
        file.upload.transfer = command.transfer
    state.nodes[command.source].sending += 1
    size, at = command.size_bytes, command.at
    transfer = TransferEntry(command.transfer, command.node, file.id, command.run, command.purpose, "", "", size, at, source=command.source)
    begin_transfer(state, transfer).copy = pin(state, file, command.source)


def expect(state: State, file: FileEntry, command: cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica) -> None:
    """From now on it is on its way to that node."""
    node = state.nodes[command.node]
    if command.node in file.copies:
        copy = move_copy(state, file, command.node, FETCHING)
        copy.generation = command.transfer
    else:
        copy = Copy(FETCHING, command.transfer, command.size_bytes)
        add_copy(state, file, command.node, copy)
    if command.purpose is PREFETCH:
        copy.prefetched = True
        node.prefetching[file.id] = None
        lay_ahead(state, file, copy)


def lay_ahead(state: State, file: FileEntry, copy: Copy) -> None:
    """While it waits for its first reader it takes space from every job before that one."""
    state.next_use(file)
    if file.use_at >= len(file.uses):
        return
    _, run_id, job_id = file.uses[file.use_at]
    run = state.runs[run_id]
    order = run.jobs[job_id].order
    if run.ahead is not None and run.head < order:
        copy.span = (run_id, run.head, order)
        run.ahead.add(run.head, order, copy.size_bytes)


def transfer_of(command: cmd.Fetch | cmd.AssembleStripes | cmd.Upload) -> TransferEntry:
    return TransferEntry(
        command.transfer,
        command.node,
        command.file,
        command.run,
        command.purpose,
        command.origin,
        command.path,
        command.size_bytes,
        command.at,
    )


def reprioritize(state: State, command: cmd.Reprioritize) -> None:
    """A part comes for what assembles it, which is reprioritized too."""
    if command.transfer not in state.parts:
        state.transfers[command.transfer].purpose = cmd.Purpose.DEMAND


def upload(state: State, command: cmd.Upload) -> None:
    file = state.files[command.file]
    transfer = begin_transfer(state, transfer_of(command))
    transfer.reads = command.reads
    transfer.copy = pin(state, state.files[transfer.file_read], command.node)
    state.uploads_live += 1
    file.upload = file.upload or Retries()
    if command.purpose is cmd.Purpose.SPILL:
        file.spilling = command.transfer
        state.nodes[command.node].spilling_bytes += command.size_bytes
        return
    file.upload.transfer = command.transfer
    state.runs[command.run].uploads_live += 1


def cancel_transfer(state: State, command: cmd.CancelTransfer) -> None:
    part, transfer = state.parts.get(command.transfer), state.transfers.get(command.transfer)
    if part is not None:
        cancel_part(state, part)
    if transfer is None:
        # Or what a node that was gone and is back still has under way.
        return
    call_off(state, transfer)
    if transfer.is_fetch and not transfer.old:
        move_copy(state, state.files[transfer.file], transfer.node, CopyState.CANCELLING)
    if transfer.assembles:
        disband(state, transfer.id)


def retry_transfer_at(state: State, command: cmd.RetryTransferAt) -> None:
    file = state.files[command.file]
    retries = file.upload if command.upload else file.fetch
    if retries is not None:
        retries.not_before = command.not_before
        source_at = file.source_at + 1 if command.next_source else command.source_at
        if source_at is not None:
            retries.rounds += source_at <= file.source_at
            file.source_at, retries.failures, retries.outages_here = source_at, 0, 0
        state.retrying[file.id, command.upload] = None
    if command.upload and file.destination is not None:
        heappush(state.timers, (command.not_before, "upload", "", file.id))
    elif command.upload:
        for node in file.copies:
            heappush(state.timers, (command.not_before, "settle", node, file.id))
    else:
        # For all nodes that there are by then: one may come meanwhile.
        heappush(state.timers, (command.not_before, "fetch", "", file.id))


def give_up_transfer(state: State, command: cmd.GiveUpTransfer) -> None:
    file, run = state.files[command.file], state.runs[command.run]
    state.retrying.pop((file.id, command.upload), None)
    if command.upload:
        file.upload = Retries(fault=command.fault)
        run.finals_open.pop(file.id, None)
        not_going_home(run, file.id)
        if file.destination is not None:
            (run.finals_superseded if command.fault.code == NEWER_CODE else run.finals_given_up)[file.id] = command.fault
    else:
        take_over(state, file, run)
        file.fetch = Retries(fault=command.fault)
    if command.fault.error_class is ErrorClass.DENIED:
        for origin in [command.origin] if command.origin else origins_of(file, command.upload):
            state.paused_origins[run.workflow.origins[origin].identity] = command.fault
    state.finish_checks[run.id] = None


def origins_of(file: FileEntry, upload: bool) -> list[str]:
    """Any of these: what an older journal means."""
    if upload:
        return [file.destination.location.origin] if file.destination is not None else []
    return [source.location.origin for source in file.sources]


def delete_replica(state: State, command: cmd.DeleteReplica) -> None:
    file = state.files.get(command.file)
    copy = file.copies.get(command.node) if file is not None else None
    if file is not None and copy is not None and copy.generation == command.generation:
        if copy.state is not DELETING:
            # After a node was lost or an assembly ended, two queues may ask for the same delete; the second changes nothing.
            move_copy(state, file, command.node, DELETING)
        if copy.span is not None:
            end_span(state, copy)


def erase_spill(state: State, command: cmd.EraseSpill) -> None:
    """A node that goes before it has done so leaves it to another, when the file may have been spilled anew."""
    file = state.files[command.file]
    if file.spilled is not None and file.spilled.token == command.token:
        file.spilled = None
    state.erasing[command.origin, command.path] = ErasedSpill(command.node, command.run, command.file, command.token)


def admit_job(state: State, command: cmd.AdmitJob) -> None:
    """Space for its outputs is promised; inputs that are not there are wanted, which holds their space too."""
    run, node = state.runs[command.run], state.nodes[command.node]
    job = run.jobs[command.job]
    job.node = command.node
    move_job(state, job, ADMITTED)
    reserve(run, job, command.reserve_bytes)
    promise(state, job, command.reserve_bytes)
    node.count_waiting(run.tenant, 1)
    if job.order > run.head and (run.safety is not None or run.ahead is not None):
        begin_early_span(run, job, command.reserve_bytes)
    job.inputs_missing = 0
    pinned = run.pinned[job.id] = []
    for file in inputs_of(state, run, command.job):
        if command.node not in file.copies:
            add_copy(state, file, command.node, Copy(WANTED, "", file.size_bytes))
            state.want(command.node, file)
        copy = pin(state, file, command.node)
        pinned.append((file, copy))
        if copy.span is not None:
            end_span(state, copy)
        job.inputs_missing += copy.state is not PRESENT
    if job.inputs_missing == 0:
        queue_start(state, run, job)


def start_attempt(state: State, command: cmd.StartAttempt) -> None:
    run, node = state.runs[command.run], state.nodes[command.node]
    job = run.jobs[command.job]
    move_job(state, job, RUNNING)
    job.attempt, job.attempts = command.attempt, command.number
    node.count_waiting(run.tenant, -1)
    run.attempts_live += 1
    entry = AttemptEntry(run.id, job.id, node.id, command.number, command.reserve_bytes, command.at, call=job.call, host=command.host)
    state.attempts[command.attempt] = entry
    take_slot(state, entry)
    take_scratch(state, entry, command.reserve_bytes)
    attempt_begins(run, job, command.attempt, command.at)


def grant_space(state: State, command: cmd.GrantSpace) -> None:
    attempt, node = state.attempts[command.attempt], state.nodes[command.node]
    more_bytes = command.reserve_bytes - attempt.reserve_bytes
    promise(state, state.job(attempt.run, attempt.job), more_bytes)
    attempt.reserve_bytes = command.reserve_bytes
    attempt.needed_bytes = None
    node.waiting_attempts.pop(command.attempt)
    take_slot(state, attempt)
    take_scratch(state, attempt, more_bytes)


def kill_attempt(state: State, command: cmd.KillAttempt) -> None:
    """One whose node is gone is none of ours any more."""
    attempt = state.attempts.get(command.attempt)
    if attempt is not None:
        attempt.killed, attempt.void = True, attempt.void or command.void


def requeue_job(state: State, command: cmd.RequeueJob) -> None:
    run = state.runs[command.run]
    job = run.jobs[command.job]
    job.failures += command.counts
    if command.reserve_bytes is not None:
        reserve(run, job, command.reserve_bytes)
    if job.state is ADMITTED:
        withdraw(state, run, job)
    job.waits_for = count_parents(state, run, command.job)
    make_ready_or_wait(state, job, command.not_before)


def rehome_job(state: State, command: cmd.RehomeJob) -> None:
    run, node = state.runs[command.run], state.nodes[command.node]
    job = run.jobs[command.job]
    job.node = command.node
    job.rehomed += 1
    if job.state is READY:
        node.ready.push(run.lane, (run.key(job.order), run.id, job.id))
        node.dirty = True
    for file in inputs_of(state, run, job.id):
        if node.id not in file.copies:
            offer_for_prefetch(state, file, node.id)


def fail_job(state: State, command: cmd.FailJob) -> None:
    """All below it is skipped; what they would have read may go if space is short. What it made is what it needs if it is resumed."""
    run = state.runs[command.run]
    job = run.jobs[command.job]
    if job.state is ADMITTED:
        withdraw(state, run, job)
    if job.attempt and (state.attempts[job.attempt].needed_bytes or 0) > job.reserve_bytes:
        reserve(run, job, state.attempts[job.attempt].needed_bytes or 0)
    move_job(state, job, JobState.FAILED)
    job.fault = command.fault
    stop_if_asked(state, run, command)
    skip_with_descendants(state, run, job)


def stop_if_asked(state: State, run: RunEntry, command: cmd.FailJob) -> None:
    run.fault = run.fault or command.fault
    if run.workflow.on_failure == "stop" and run.state is ACTIVE:
        move_run(state, run, RunState.DRAINING)


def remake_file(state: State, command: cmd.RemakeFile) -> None:
    """Its producer is not done any more; children that have not begun wait for it again."""
    run = state.runs[command.run]
    job = run.jobs[command.job]
    if job.reused_from:
        begin_anew(state, run, job.id, command.file)
    give_back(state, state.files[command.file])
    move_job(state, job, JobState.WAITING)
    job.reused_from = ""
    job.waits_for = count_parents(state, run, job.id)
    for file in inputs_of(state, run, job.id):
        reopen_uses(state, file)
    for child_id in run.graph.children[job.id]:
        child = run.jobs[child_id]
        if child.state in (JobState.WAITING, READY, JobState.BACKOFF):
            child.waits_for += 1
            if child.state is not JobState.WAITING:
                move_job(state, child, JobState.WAITING)
    for lfn in [output.lfn for output in run.workflow.jobs[job.id].outputs]:
        # Others of the same making are lost with it, and made again with it.
        file = state.files[run.file_ids[lfn]]
        held = any(copy.state in (PRESENT, DELETING) for copy in state.holding(file).copies.values())
        if file.id == command.file or (file.id in run.finals_open and not held):
            run.finals_open.pop(file.id, None)
            not_going_home(run, file.id)
    # One that drains waited for this to be home, and makes nothing again.
    state.finish_checks[run.id] = None
    make_ready_or_wait(state, job, command.at)


def fall_back_to_fetch(state: State, command: cmd.FallBackToFetch) -> None:
    """Its readers are uses of it from now on, as if it had been planned so."""
    run, file = state.runs[command.run], state.files[command.file]
    run.fell_back[command.lfn] = command.why
    run.footprints_bytes = []
    uses = []
    for job_id in run.graph.readers[command.lfn]:
        run.inputs.pop(job_id, None)
        uses.append((run.key(run.jobs[job_id].order), run.id, job_id))
    file.uses, file.use_at = sorted(dict.fromkeys([*file.uses, *uses])), 0
    hold_for_readers(run, command.lfn, file.size_bytes)
    for node_id in file.copies:
        settle(state, file, node_id)
    for node_id in dict.fromkeys(run.jobs[job_id].node for _, _, job_id in uses):
        if node_id not in file.copies:
            offer_for_prefetch(state, file, node_id)


def pause_origin(state: State, command: cmd.PauseOrigin) -> None:
    state.paused_origins[state.runs[command.run].workflow.origins[command.origin].identity] = command.fault


def pause_run(state: State, command: cmd.PauseRun) -> None:
    run = state.runs[command.run]
    move_run(state, run, RunState.DRAINING)
    run.interrupted_by = BY_BUDGET
    if run.spent is not None:
        run.spent.paused = command.fault
    state.finish_checks[run.id] = None


def tell_forecast(state: State, command: cmd.TellForecast) -> None:
    spent = state.runs[command.run].spent
    if spent is not None:
        spent.told_cost = spent.told_cost or command.about is cmd.Forecast.COST
        spent.told_time = spent.told_time or command.about is cmd.Forecast.TIME


def finish_run(state: State, command: cmd.FinishRun) -> None:
    """Files that nobody wants any more are offered for deletion; those that a resumed run would want are kept while there is room."""
    run = state.runs[command.run]
    move_run(state, run, RunState.FINISHED)
    run.outcome, run.finished_at = command.outcome, command.at
    run.fault = command.fault or run.fault
    state.active.pop(run.id, None)
    state.budgeted.pop(run.id, None)
    run.safety = run.ahead = None
    if run.engine_outcome is not None:
        skip_uncalled(state, run)
    for job in run.jobs.values() if state.awaited else ():
        # One that goes on again runs them itself.
        forget_wait(state, job)
    for file_id in run.file_ids.values():
        file = state.files[file_id]
        if command.outcome in OVER and file.spilled is not None and file.run == run.id:
            state.spills_to_erase.append((file.id, file.spilled, next(iter(state.nodes))))
        if file.links and file.run == run.id:
            pass_on(state, file)
        for node_id in file.copies:
            settle(state, file, node_id)
        if file.lender:
            settle_all(state, state.files[file.lender])


def wake_at(state: State, command: cmd.WakeAt) -> None:
    state.wake_at = command.wake_at


APPLY: dict[type, Callable[[State, Any], None]] = {
    cmd.Fetch: fetch,
    cmd.AssembleStripes: assemble,
    cmd.GiveUpStripes: give_up_stripes,
    cmd.CopyReplica: copy_replica,
    cmd.Reprioritize: reprioritize,
    cmd.Upload: upload,
    cmd.CancelTransfer: cancel_transfer,
    cmd.RetryTransferAt: retry_transfer_at,
    cmd.GiveUpTransfer: give_up_transfer,
    cmd.DeleteReplica: delete_replica,
    cmd.EraseSpill: erase_spill,
    cmd.AdmitJob: admit_job,
    cmd.StartAttempt: start_attempt,
    cmd.GrantSpace: grant_space,
    cmd.KillAttempt: kill_attempt,
    cmd.RequeueJob: requeue_job,
    cmd.RehomeJob: rehome_job,
    cmd.FailJob: fail_job,
    cmd.EndCall: end_call,
    cmd.RemakeFile: remake_file,
    cmd.AwaitJob: await_job,
    cmd.StopAwaiting: end_wait,
    cmd.TakeOver: take_over_job,
    cmd.FallBackToFetch: fall_back_to_fetch,
    cmd.PauseOrigin: pause_origin,
    cmd.PauseRun: pause_run,
    cmd.TellForecast: tell_forecast,
    cmd.FinishRun: finish_run,
    cmd.WakeAt: wake_at,
}
