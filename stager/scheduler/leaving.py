"""Nodes that leave: what follows when one is gone, and how one that drains gives away what only it holds.

May know: the state. One rule: what is safe stays safe; what only a node that is gone held is had from where it can be, or made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from stager.model.errors import ErrorClass, Fault
from stager.scheduler import calls
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.copies_wanted import copies_wanted
from stager.scheduler.decision import Decision
from stager.scheduler.migration import FAILURES_MAX, Sent, send
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.rehoming import rehome_jobs
from stager.scheduler.retries import not_again
from stager.scheduler.state import NEVER, AttemptEntry, FileEntry, State
from stager.scheduler.states import CopyState, JobState
from stager.scheduler.stripes import give_up_parts_on
from stager.scheduler.uploads import erase_again

GONE_CODE = "node_gone"
# From a node that drains, so many are on their way at once.
MOVES_MAX = 8
LOOKS_MAX = 8
# Of one file: a node that is to leave is worth more of them than a job's room.
TRIES_MAX = 4 * FAILURES_MAX


# By id, as they were before.
Attempts = list[tuple[str, AttemptEntry]]


def attempts_on(state: State, node_id: str) -> Attempts:
    return [(attempt_id, attempt) for attempt_id, attempt in state.attempts.items() if attempt.node == node_id]


def node_gone(decision: Decision, event: ev.NodeGone, attempts: Attempts) -> None:
    """What was there is accounted for already; `attempts` were under way beside it."""
    state = decision.state
    node = state.nodes.get(event.node)
    if node is None or not node.gone:
        return
    end_attempts(decision, node, attempts)
    call_off_copies_from(decision, node)
    rehome_jobs(decision, list(state.active))
    erase_again(decision)


def end_attempts(decision: Decision, node: NodeEntry, attempts: Attempts) -> None:
    """Nothing of theirs can be committed any more: whoever runs them is told to end them, and their jobs are tried elsewhere."""
    state = decision.state
    for attempt_id, attempt in attempts:
        facts = {"run": attempt.run, "job": attempt.job}
        decision.emit(cmd.KillAttempt, node=attempt.node, attempt=attempt_id, void=True, **facts)
        run = state.runs[attempt.run]
        job = run.jobs[attempt.job]
        message = f"node {node.id!r}, where it ran, is gone ({node.gone or 'another store has its name'})"
        fault = Fault(ErrorClass.TRANSIENT, GONE_CODE, message, node.id)
        if run.is_engines:
            lost = ev.AttemptEnded(at=state.now, run=run.id, job=job.id, attempt=attempt_id, outcome=ev.Outcome.LOST, fault=fault)
            calls.attempt_ended(decision, lost, attempt)
        elif job.state is not JobState.RUNNING:
            continue
        elif not run.workflow.jobs[job.id].idempotent:
            decision.emit(cmd.FailJob, fault=not_again(job.id, fault), **facts)
        else:
            needed = attempt.needed_bytes if (attempt.needed_bytes or 0) > job.reserve_bytes else None
            decision.emit(cmd.RequeueJob, not_before=state.now, counts=False, why=message, reserve_bytes=needed, **facts)


def call_off_copies_from(decision: Decision, node: NodeEntry) -> None:
    """Who was to have one looks for another source when its own node has let go of it."""
    for transfer in [transfer for transfer in decision.state.transfers.values() if transfer.source == node.id]:
        if not transfer.cancelled:
            decision.emit(cmd.CancelTransfer, node=transfer.node, transfer=transfer.id)


def node_came(decision: Decision, event: ev.NodeReported, attempts: Attempts) -> None:
    """One that is not what it was is told to end what it still does for us. With another store nothing that ran beside it can be
    committed; and what waited for some node goes there.
    """
    state = decision.state
    node = state.nodes[event.node]
    for transfer in event.transfers:
        if transfer in node.left and transfer not in state.transfers and transfer not in state.parts:
            decision.emit(cmd.CancelTransfer, node=node.id, transfer=transfer)
    lost = [(attempt_id, attempt) for attempt_id, attempt in attempts if attempt_id not in state.attempts]
    if node.left or lost:
        end_attempts(decision, node, lost)
        call_off_copies_from(decision, node)
    if any(state.nodes[other].ready or other in state.parked for other in state.closed):
        rehome_jobs(decision, list(state.active))
    erase_again(decision)


def node_draining(decision: Decision, event: ev.NodeDraining, _: None) -> None:
    """Attempts go on to their end. Jobs that were only admitted give back what was set aside, and nothing more comes."""
    state = decision.state
    node = state.nodes.get(event.node)
    if node is None or not node.draining:
        return
    why = f"node {node.id} drains"
    for job in [job for run in state.active for job in state.runs[run].jobs.values()]:
        if job.state is JobState.ADMITTED and job.node == node.id:
            decision.emit(cmd.RequeueJob, run=job.run, job=job.id, not_before=state.now, counts=False, why=why)
    give_up_parts_on(decision, node, node.capacity_bytes + 1)
    for transfer in list(state.transfers.values()):
        if transfer.node == node.id and transfer.is_fetch and not transfer.cancelled:
            decision.emit(cmd.CancelTransfer, node=node.id, transfer=transfer.id)
    rehome_jobs(decision, list(state.active))


def evacuate(decision: Decision) -> None:
    """From nodes that drain, what only they have goes to others, as far as there is room. Before anybody else is given that room."""
    state = decision.state
    for node in [state.nodes[node_id] for node_id in state.closed]:
        if node.draining and node.reachable and node.leaving:
            give_away(decision, node)


def give_away(decision: Decision, node: NodeEntry) -> None:
    state = decision.state
    kept: list[tuple[int, str]] = []
    while node.leaving and len(kept) < LOOKS_MAX and node.sending < MOVES_MAX:
        entry = heappop(node.leaving)
        file = state.files[entry[1]]
        if not is_to_be_moved(state, file, node):
            continue
        if send(decision, node, file) is not Sent.NOW:
            kept.append(entry)
    for entry in kept:
        heappush(node.leaving, entry)


def is_to_be_moved(state: State, file: FileEntry, node: NodeEntry) -> bool:
    """A final that is on its way home, or will be, does not go anywhere else first."""
    copy = file.copies.get(node.id)
    if copy is None or copy.state is not CopyState.PRESENT or file.spilling or file.moves_failed >= TRIES_MAX:
        return False
    goes_home = state.owes_upload(file) and not (file.upload is not None and file.upload.fault is not None)
    goes_home = goes_home or state.is_lent(file)
    return not goes_home and is_owed(state, file) and not held_elsewhere(state, file, coming=True)


def is_owed(state: State, file: FileEntry) -> bool:
    """Somebody counts on what was made, and only nodes have it."""
    if file.copies and state.is_lent(file):
        return True
    if file.is_external or file.durable is not None or file.spilled is not None or not file.copies:
        return False
    return state.owes_upload(file) or state.stays(file) or state.next_use(file) != NEVER


def held_elsewhere(state: State, file: FileEntry, coming: bool = False) -> int:
    """Nodes that stay and have it; `coming`: or are getting it."""
    counted = (CopyState.PRESENT, CopyState.FETCHING) if coming else (CopyState.PRESENT,)
    return sum(copy.state in counted and state.nodes[node].is_open for node, copy in file.copies.items())


@dataclass(frozen=True, slots=True)
class Unsafe:
    """What would be lost with a node now. `files`: their ids, names and sizes; `attempts`: those that run there."""

    files: tuple[tuple[str, str, int], ...]
    attempts: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(size_bytes for _, _, size_bytes in self.files)

    def __bool__(self) -> bool:
        return bool(self.files or self.attempts)


def unsafe_on(state: State, node_id: str) -> Unsafe:
    """Of what was made, all that fewer nodes would hold without this one than are to: as many as there are, if those are fewer. False where
    it can go without a loss. Walks all files.
    """
    others = sum(node.is_open for node in state.nodes.values() if node.id != node_id)
    found = []
    for file in state.files.values():
        copy = file.copies.get(node_id)
        if copy is None or copy.state is not CopyState.PRESENT or not is_owed(state, file):
            continue
        held = held_elsewhere(state, file) - state.nodes[node_id].is_open
        if held < max(1, min(copies_wanted(state, file), others)):
            found.append((file.id, file.lfn, copy.size_bytes))
    return Unsafe(tuple(found), tuple(attempt_id for attempt_id, _ in attempts_on(state, node_id)))
