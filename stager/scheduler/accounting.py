"""Accounting: every change of a copy's, pin's or job's state goes through here, so that sums and queues stay true.

One rule: nothing here decides; it moves numbers from one account to another.
"""

from __future__ import annotations

from heapq import heappush

from stager.scheduler.awaiting import forget_wait
from stager.scheduler.copies_wanted import copies_asked_for, is_one_of_those_wanted
from stager.scheduler.keeping import count_kept, rank_of
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.profiles import end_early_span
from stager.scheduler.spending import not_going_home
from stager.scheduler.state import NEVER, Copy, FileEntry, JobEntry, Retries, RunEntry, State, TransferEntry
from stager.scheduler.states import (
    BACKOFF,
    CANCELLING,
    COPY_TRANSITIONS,
    DELETING,
    DONE,
    ENDED,
    FETCHING,
    JOB_TRANSITIONS,
    PRESENT,
    READY,
    RUN_TRANSITIONS,
    TRANSFER_TRANSITIONS,
    WAITING,
    WANTED,
    CopyState,
    JobState,
    RunState,
    TransferState,
)

FAILED_STATES = (JobState.FAILED, JobState.SKIPPED)
COPY_BEGINNINGS = COPY_TRANSITIONS[None]
IN_FETCHING = (WANTED, FETCHING, CANCELLING)


def note_illegal(state: State, what: str, old: str | None, new: str | None) -> None:
    """A defect, which the checkers of tests and simulations find. Production goes on with what it has."""
    told = f"{what} went from {old or 'nothing'} to {new or 'nothing'}"
    state.illegal[told] = state.illegal.get(told, 0) + 1


def account(node: NodeEntry, copy: Copy, sign: int) -> None:
    """Adds (or takes back) what this copy holds. Room that is free again makes no node dirty: a node that waits for room is not idle."""
    size, state = sign * copy.size_bytes, copy.state
    if state is PRESENT:
        node.present_bytes += size
    elif state is DELETING:
        node.present_bytes += size
        node.deleting_bytes += size
    else:
        node.fetching_bytes += size
        if state is CANCELLING:
            node.cancelling_bytes += size
    if not node.dirty and size > 0 and node.free_bytes < 0:
        node.dirty = True


def no_prefetch(node: NodeEntry, file: FileEntry) -> None:
    """Another may come in its place, if it was one."""
    if file.id in node.prefetching:
        del node.prefetching[file.id]
        node.dirty = True


def count_idle(node: NodeEntry, copy: Copy, idle: bool) -> None:
    """That it may go when there is need of room, or not any more: it stands in one of the node's two queues of such."""
    if copy.idle is not idle:
        copy.idle = idle
        node.idle_bytes += copy.size_bytes if idle else -copy.size_bytes
    if not idle and copy.result_rank:
        count_kept(node, copy, 0)


def add_copy(state: State, file: FileEntry, node_id: str, copy: Copy) -> None:
    if copy.state not in COPY_BEGINNINGS or node_id in file.copies:
        note_illegal(state, "a copy", file.copies[node_id].state if node_id in file.copies else None, copy.state)
    file.copies[node_id] = copy
    account(state.nodes[node_id], copy, +1)
    if not file.is_external:
        recount_live(state, file)


def recount_live(state: State, file: FileEntry) -> None:
    """Whether this is content of a run that only our copy of it could give back. To be called after anything that bears on it."""
    if file.is_external:
        return
    run, live = state.runs.get(file.run), 0
    if run is None:
        return
    if (file.copies or file.lender) and file.durable is None and file.spilled is None:
        wanted = file.destination is not None or state.next_use(file) != NEVER or (run.is_engines and run.engine_outcome is None)
        live = file.size_bytes if wanted else 0
    if live != file.live_bytes:
        run.live_bytes += live - file.live_bytes
        file.live_bytes = live


def promise(state: State, job: JobEntry, size_bytes: int) -> None:
    """Sets space aside for a job's outputs, or with a minus sign gives it back."""
    state.nodes[job.node].promised_bytes += size_bytes
    state.runs[job.run].promised_bytes += size_bytes


def move_copy(state: State, file: FileEntry, node_id: str, new: CopyState, size_bytes: int | None = None) -> Copy:
    copy, node = file.copies[node_id], state.nodes[node_id]
    if copy.idle:
        count_idle(node, copy, idle=False)
    if new not in COPY_TRANSITIONS[copy.state]:
        note_illegal(state, "a copy", copy.state, new)
    if copy.state is FETCHING:
        no_prefetch(node, file)
    account(node, copy, -1)
    copy.state = new
    if size_bytes is not None:
        copy.size_bytes = size_bytes
    account(node, copy, +1)
    return copy


def drop_copy(state: State, file: FileEntry, node_id: str) -> None:
    """Its space is free again. If somebody will read it and it can be had, it becomes a candidate for prefetch."""
    copy, node = file.copies.pop(node_id), state.nodes[node_id]
    if copy.idle:
        count_idle(node, copy, idle=False)
    account(node, copy, -1)
    if copy.state is FETCHING:
        no_prefetch(node, file)
    if copy.span is not None:
        end_span(state, copy)
    if not file.is_external:
        recount_live(state, file)
    for other in file.copies:
        # It may be the only one now.
        settle(state, file, other)
    if file.use_at < len(file.uses):
        offer_for_prefetch(state, file, node_id)
    if file.destination is not None:
        close_if_lost(state, file)
    if file.lent_to and not any(other.state is PRESENT for other in file.copies.values()):
        lend_no_more(state, file)


def lend_no_more(state: State, file: FileEntry) -> None:
    """It is nowhere: the finals that were to go home of it are lost with it."""
    finals, file.lent_to = [state.files[final] for final in file.lent_to], {}
    for final in finals:
        final.lender, final.made_at = "", 0.0
        recount_live(state, final)
        close_if_lost(state, final)
        state.lost.append((final.id, ""))


def begin_transfer(state: State, transfer: TransferEntry) -> TransferEntry:
    if state.transfers.setdefault(transfer.id, transfer) is not transfer:
        note_illegal(state, "a transfer", state.transfers[transfer.id].state, transfer.state)
        state.transfers[transfer.id] = transfer
    return transfer


def call_off(state: State, transfer: TransferEntry) -> None:
    if TransferState.CANCELLING not in TRANSFER_TRANSITIONS[transfer.state]:
        note_illegal(state, "a transfer", transfer.state, TransferState.CANCELLING)
    transfer.state = TransferState.CANCELLING


def move_run(state: State, run: RunEntry, new: RunState) -> None:
    if new is not run.state and new not in RUN_TRANSITIONS[run.state]:
        note_illegal(state, "a run", run.state, new)
    run.state = new


def end_span(state: State, copy: Copy) -> None:
    """It no longer lies ahead of its use."""
    if copy.span is not None:
        run_id, low, high = copy.span
        run = state.runs.get(run_id)
        if run is not None and run.ahead is not None:
            run.ahead.add(low, high, -copy.size_bytes)
        copy.span = None


def pin(state: State, file: FileEntry, node_id: str) -> Copy:
    copy = file.copies[node_id]
    copy.pins += 1
    copy.prefetched = copy.extra_copy = False
    node = state.nodes[node_id]
    if copy.idle:
        count_idle(node, copy, idle=False)
    if copy.state is FETCHING:
        no_prefetch(node, file)
    return copy


def unpin(state: State, file: FileEntry, node_id: str, copy: Copy) -> None:
    """The copy that was pinned, which may have been lost and replaced since."""
    copy.pins -= 1
    if file.copies.get(node_id) is not copy:
        if copy.pins == 0 and (file.id, copy.generation) in state.nodes[node_id].garbage:
            state.useless.append((node_id, file.id, copy.generation))
            for holder in file.copies:
                # Its reader is done, of the newer making too.
                settle(state, file, holder)
        return
    if copy.pins == 0 and copy.state is WANTED:
        drop_copy(state, file, node_id)
        return
    for holder in file.copies:
        # With a reader done here its next use is another everywhere.
        settle(state, file, holder)


def settle(state: State, file: FileEntry, node_id: str) -> None:
    """Puts an unpinned, present copy into the queue it belongs to: useless, evictable, spillable, or movable where there is no place to
    spill to.
    """
    copy = file.copies.get(node_id)
    if copy is None or copy.pins or copy.state is not PRESENT:
        return
    node, use, goes, rank = state.nodes[node_id], state.next_use(file), False, 0
    if node.draining:
        heappush(node.leaving, (use, file.id))
    if file.lent_to and state.is_lent(file):
        # It stays until that is home, as a final of its own would.
        copy.extra_copy = False
    elif file.is_external:
        goes = True
        heappush(node.evictable, (-eviction_key(copy, use), file.id, copy.generation))
    elif use == NEVER and file.durable is None and not state.owes_upload(file) and not state.stays(file):
        rank = rank_of(state, file, copy) if state.policy.keep_results_bytes else 0
        if not rank:
            state.useless.append((node_id, file.id, copy.generation))
    elif state.holds_only_copy(file):
        copy.extra_copy = False
        if not file.spilling and not state.owes_upload(file):
            goes = state.runs[file.run].plan.spill_origin is not None
            heappush(node.spillable if goes else node.movable, (-use, file.id, copy.generation))
    else:
        goes = True
        if copies_asked_for(state, file) > 1:
            copy.kept = is_one_of_those_wanted(state, file)
        heappush(node.evictable, (-eviction_key(copy, use), file.id, copy.generation))
    goes = goes or rank > 0
    if copy.idle is not goes:
        count_idle(node, copy, goes)
    if copy.result_rank != rank:
        file.kept_at = file.kept_at if copy.result_rank else state.now
        count_kept(node, copy, rank)
    if rank:
        heappush(node.evictable, (-eviction_key(copy, use), file.id, copy.generation))


def eviction_key(copy: Copy, next_use: int) -> int:
    """The greatest goes first: what is there for later runs only, then extra copies, then what nobody will read; those that are to be kept
    last.
    """
    if copy.result_rank:
        return NEVER + 1 + copy.result_rank
    if copy.kept:
        return -1
    return NEVER + 1 if copy.extra_copy else next_use


def move_job(state: State, job: JobEntry, new: JobState) -> None:
    old, run = job.state, state.runs[job.run]
    if new not in JOB_TRANSITIONS[old]:
        raise AssertionError(f"job {job.id!r} of run {job.run!r} cannot go from {old} to {new}")
    job.state = new
    if job.awaits is not None:
        forget_wait(state, job)
    if old in ENDED or new in ENDED:
        run.unended += (new not in ENDED) - (old not in ENDED)
        run.failed += (new in FAILED_STATES) - (old in FAILED_STATES)
    if new in ENDED:
        state.finish_checks[run.id] = None
        if state.awaited and job.id in state.awaited.get(run.id, ()):
            state.awaited_ended.append((run.id, job.id))
        if run.guessed and new is DONE:
            state.done_of_guess.append((run.id, job.id))
        while run.head < len(run.by_order) and run.jobs[run.by_order[run.head]].state in ENDED:
            run.head += 1
    elif job.order < run.head:
        run.head = job.order


def make_ready_or_wait(state: State, job: JobEntry, not_before: float) -> None:
    """Where a job goes that is not done: waiting for parents, its engine's call or another run's job, for a time, or ready."""
    run = state.runs[job.run]
    if job.awaits is not None or (run.is_engines and not job.call_open):
        if job.state is not WAITING:
            move_job(state, job, WAITING)
        return
    if job.waits_for:
        if job.state is not WAITING:
            move_job(state, job, WAITING)
        if any(run.jobs[parent].state in (JobState.FAILED, JobState.SKIPPED) for parent in run.graph.parents[job.id]):
            skip_with_descendants(state, run, job)
        return
    if job.state is WAITING:
        move_job(state, job, READY)
    elif job.state is not READY or not_before > state.now:
        move_job(state, job, BACKOFF if not_before > state.now else READY)
    if job.state is BACKOFF:
        job.not_before = not_before
        heappush(state.timers, (not_before, "job", job.run, job.id))
        return
    node = state.nodes[job.node]
    node.ready.push(run.lane, (run.key(job.order), job.run, job.id))
    node.dirty = True


def skip_with_descendants(state: State, run: RunEntry, job: JobEntry) -> None:
    """It cannot run, nor can what is below it and has not begun. Files that they would have read may go if space is short."""
    if job.state is not JobState.FAILED:
        move_job(state, job, JobState.SKIPPED)
    skipped = [job]
    for above in skipped:
        for child_id in run.graph.children[above.id]:
            child = run.jobs[child_id]
            if child.state in (WAITING, READY, BACKOFF):
                move_job(state, child, JobState.SKIPPED)
                skipped.append(child)
    for above in skipped:
        for file in inputs_of(state, run, above.id):
            for node_id in file.copies:
                settle(state, file, node_id)
        for output in run.workflow.jobs[above.id].outputs:
            close_if_lost(state, state.files[run.file_ids[output.lfn]])


def close_if_lost(state: State, file: FileEntry) -> None:
    """A final that is nowhere, and whose producer made it once and is not done any more: nobody waits for it. It is open again when it is
    made again, which a run that drains does not see to.
    """
    run = state.runs.get(file.run)
    if run is None or file.copies or file.lender or file.id not in run.finals_open:
        return
    maker = run.jobs[file.producer].state
    if maker in FAILED_STATES or not (maker is DONE or run.is_engines):
        del run.finals_open[file.id]
        not_going_home(run, file.id)
        state.finish_checks[run.id] = None


def count_parents(state: State, run: RunEntry, job_id: str) -> int:
    """Those that it waits for, and the members that it stands for. An engine sees to that itself."""
    if run.is_engines:
        return 0
    return sum([run.jobs[parent].state is not DONE for parent in run.graph.parents[job_id]]) + (job_id in run.assumed)


def inputs_of(state: State, run: RunEntry, job_id: str) -> list[FileEntry]:
    """Those that a node must hold for it, each file once though it has several names, in the order of writing; what it reads directly is
    none of them.
    """
    inputs = run.inputs.get(job_id)
    if inputs is None:
        lfns = [entry.lfn for entry in run.workflow.jobs[job_id].inputs]
        if run.direct:
            lfns = [lfn for lfn in lfns if not run.reads_directly(lfn)]
        inputs = run.inputs[job_id] = [state.files[name] for name in dict.fromkeys([run.file_ids[lfn] for lfn in lfns])]
    return inputs


def footprints_of(state: State, run: RunEntry) -> list[int]:
    """Bytes that each job needs at once, in the run's order. Summed once and kept true: looking ahead asks for many at every step."""
    if not run.footprints_bytes:
        jobs = [run.jobs[job_id] for job_id in run.by_order]
        run.footprints_bytes = [sum(file.size_bytes for file in inputs_of(state, run, job.id)) + job.reserve_bytes for job in jobs]
    return run.footprints_bytes


def resize(state: State, file: FileEntry, size_bytes: int) -> None:
    """Its true size is known."""
    if not file.is_external and (owner := state.runs.get(file.run)) is not None and size_bytes > owner.largest_bytes:
        owner.largest_bytes = size_bytes
    more = size_bytes - file.size_bytes
    if not more:
        return
    readers = [(state.runs[run], state.job(run, job).order) for _, run, job in file.uses]
    if more > 0 and len(state.nodes) > 1:
        # Looked up by whoever comes first; here at the latest, so that the largest is the same after a restart.
        for run, order in readers:
            run.largest_footprint_bytes = max(run.largest_footprint_bytes, footprints_of(state, run)[order] + more)
    for run, order in readers:
        if run.footprints_bytes:
            run.footprints_bytes[order] += more
    file.size_bytes = size_bytes


def reserve(run: RunEntry, job: JobEntry, size_bytes: int) -> None:
    """So much is to be set aside for its outputs from now on."""
    if run.footprints_bytes:
        run.footprints_bytes[job.order] += size_bytes - job.reserve_bytes
    job.reserve_bytes = size_bytes


def release_admission(state: State, job: JobEntry, reserve_bytes: int) -> None:
    """Gives back the promise and the pins of an admitted or running job."""
    promise(state, job, -reserve_bytes)
    for file, copy in state.runs[job.run].pinned.pop(job.id, ()):
        unpin(state, file, job.node, copy)


def withdraw(state: State, run: RunEntry, job: JobEntry) -> None:
    """Takes back an admission whose job has not started."""
    node = state.nodes[job.node]
    node.count_waiting(run.tenant, -1)
    end_early_span(run, job)
    release_admission(state, job, job.reserve_bytes)


def queue_start(state: State, run: RunEntry, job: JobEntry) -> None:
    """All its inputs are on its node."""
    node = state.nodes[job.node]
    entry = (run.key(job.order), run.id, job.id)
    if run.is_engines:
        heappush(node.calls_startable, entry)
    else:
        node.startable.push(run.lane, entry)
    node.dirty = True


def reopen_uses(state: State, file: FileEntry) -> None:
    """A reader that was done will read it again: it has a next use again, earlier than was thought."""
    file.use_at = 0
    for node in state.nodes.values():
        if node.id in file.copies:
            settle(state, file, node.id)
        else:
            offer_for_prefetch(state, file, node.id)


def add_garbage(node: NodeEntry, file_id: str, generation: str, size_bytes: int) -> None:
    """A replica made by an attempt or transfer that no longer counts: it holds space until the node has deleted it."""
    if (file_id, generation) in node.garbage:
        return
    node.garbage[file_id, generation] = size_bytes
    node.present_bytes += size_bytes
    node.deleting_bytes += size_bytes
    node.dirty = True


def drop_garbage(node: NodeEntry, file_id: str, generation: str) -> bool:
    size_bytes = node.garbage.pop((file_id, generation), None)
    if size_bytes is None:
        return False
    node.present_bytes -= size_bytes
    node.deleting_bytes -= size_bytes
    return True


def take_over(state: State, file: FileEntry, run: RunEntry) -> None:
    """From now on an external file is fetched from where this run says. Both runs have the same first source, so it is the same content."""
    if file.run == run.id or not file.is_external:
        return
    before = state.runs.get(file.run)
    if before is not None:
        before.shared[file.id] = file.lfn
    retries = file.fetch
    file.run, file.lfn = run.id, run.shared.pop(file.id)
    file.sources, file.source_at, file.fetch = run.workflow.files[file.lfn].sources, 0, None
    if (
        before is not None
        and before.id in state.active
        and retries is not None
        and retries.fault is None
        and retries.away_since is not None
    ):
        # The wait goes on, and the first source was tried enough.
        file.fetch = Retries(outages=retries.outages, away_since=retries.away_since, rounds=1, had_by=[*retries.had_by, before.id])
