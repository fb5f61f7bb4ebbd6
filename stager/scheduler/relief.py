"""Jobs whose inputs are long in coming go to a node that would have them much sooner: the line of their own is slow, or more is on its way
over it than was thought.

May know: the state. One rule: only what has to come from an origin is called off and asked for again, never for a small gain, and no job
for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from math import floor, inf, log2
from typing import NamedTuple

from stager.planning.plan import Basis
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import count_parents, inputs_of
from stager.scheduler.admission import work_node
from stager.scheduler.balance import is_waiting
from stager.scheduler.copying import fastest
from stager.scheduler.decision import Decision
from stager.scheduler.holding import helping, keeps_to
from stager.scheduler.line import left_s, pace_of
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import peer_for
from stager.scheduler.placing import Prospect, prospect_of
from stager.scheduler.shares import pool_of
from stager.scheduler.sources import may_be_fetched
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import CopyState, JobState

# It must be there in less than a half of the time, and so much sooner besides: what is called off has begun, and estimates are estimates.
TIMES_SOONER, SECONDS_SOONER = 2.0, 1.0
# Of the jobs that wait on a node, so many are looked at, the last ones first; and so many nodes.
LOOKED_AT = 3
LOOKS_EACH_S = 0.5
REHOMED_MAX = 2


def relieve(decision: Decision) -> None:
    """Once all nodes have begun what they can. Where nothing was found, it is looked again a little later: it takes long with many."""
    state = decision.state
    if state.now < state.looked_at + LOOKS_EACH_S or not (idle := list(spare_nodes(state))):
        return
    took, late = False, late_lines(state)
    for node in sorted(idle, key=lambda node: (node.line_bytes, node.id))[:LOOKED_AT] if late else ():
        while node.has_spare and any(node is not other and take_last(decision, node, other) for other in late):
            took = True
            work_node(decision, node)
    if not took:
        state.looked_at = state.now


def spare_nodes(state: State) -> Iterator[NodeEntry]:
    return (node for node in helping(state, [state.nodes[name] for name in state.spare]) if node.has_spare)


def late_lines(state: State) -> list[NodeEntry]:
    """The nodes that will wait longest for what is on its way to them."""
    expected, now = fastest(state), state.now
    left = [(left_s(node, now, expected), node.id) for node in state.nodes.values() if node.line_bytes]
    return [state.nodes[name] for seconds, name in nlargest(LOOKED_AT, left) if seconds > SECONDS_SOONER]


def look_again_at(state: State) -> float:
    """While a node has nothing to do and another one waits for its line: after twice the time each time, since nothing may happen on it."""
    if not any(spare_nodes(state)):
        return inf
    if state.looked_at < state.now < state.looked_at + LOOKS_EACH_S:
        return state.looked_at + LOOKS_EACH_S
    due = inf
    for node in state.nodes.values():
        if node.line_bytes and (node.ready or node.admitted_waiting):
            waited_s = max(1.0, state.now - node.line_since + LOOKS_EACH_S)
            due = min(due, node.line_since + 2.0 ** (floor(log2(waited_s)) + 1))
    return due


def take_last(decision: Decision, node: NodeEntry, other: NodeEntry) -> bool:
    state = decision.state
    for run, job in last_waiting(state, other):
        moving = moving_of(state, node, other, run, job)
        if moving is None or not pays(state, node, other, run, moving) or not has_place(state, node, run, job, moving):
            continue
        why = f"node {node.id} has its inputs much sooner"
        if job.state is JobState.ADMITTED:
            decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why=why)
        for transfer in moving.called_off:
            if transfer.id in state.transfers and not transfer.cancelled:
                decision.emit(cmd.CancelTransfer, node=other.id, transfer=transfer.id)
        decision.emit(cmd.RehomeJob, run=run.id, job=job.id, node=node.id, why=why)
        return True
    return False


def last_waiting(state: State, node: NodeEntry) -> Iterator[tuple[RunEntry, JobEntry]]:
    """The last of the jobs that are ready there, then the last of those that wait for inputs. Not an engine's, which waits for it."""
    for queue in list(node.ready.by_lane.values()):
        for entry in nlargest(LOOKED_AT, queue):
            run = state.runs[entry[1]]
            if is_waiting(state, node, entry, JobState.READY) and may_leave(state, run, run.jobs[entry[2]]):
                yield run, run.jobs[entry[2]]
    for run in [state.runs[name] for name in state.active]:
        if run.may_start and not run.is_engines:
            admitted = [job for name in run.pinned if (job := run.jobs[name]).state is JobState.ADMITTED and job.node == node.id]
            late = [job for job in admitted if job.inputs_missing and may_leave(state, run, job)]
            for job in nlargest(LOOKED_AT, late, key=lambda job: job.order):
                yield run, job


def may_leave(state: State, run: RunEntry, job: JobEntry) -> bool:
    """Where one above it has to run again for another reader, it would wait for that once it was handed back."""
    return not run.is_engines and job.rehomed < REHOMED_MAX and count_parents(state, run, job.id) == 0


class Moving(NamedTuple):
    """What of a job's inputs would have to come from origins, what of these bytes nobody has asked for yet, what from other nodes, and
    the transfers that nobody else needs.
    """

    fetched_bytes: int
    unasked_bytes: int
    copied_bytes: int
    called_off: list[TransferEntry]


def moving_of(state: State, node: NodeEntry, other: NodeEntry, run: RunEntry, job: JobEntry) -> Moving | None:
    """None: something of it cannot come, or comes for others too."""
    fetched_bytes = unasked_bytes = copied_bytes = 0
    called_off = []
    for file in inputs_of(state, run, job.id):
        copy = file.copies.get(node.id)
        if copy is not None and copy.state is not CopyState.PRESENT:
            return None
        if copy is not None:
            continue
        if peer_for(state, file, node.id):
            copied_bytes += file.size_bytes
            continue
        if not may_be_fetched(state, file, run.id):
            return None
        fetched_bytes += file.size_bytes
        if not file.copies:
            unasked_bytes += file.size_bytes
            continue
        transfer = only_for(state, other, run, job, file)
        if transfer is None:
            return None
        called_off.append(transfer)
    return Moving(fetched_bytes, unasked_bytes, copied_bytes, called_off)


def only_for(state: State, node: NodeEntry, run: RunEntry, job: JobEntry, file: FileEntry) -> TransferEntry | None:
    """The transfer that brings the file to this node from an origin, and nowhere else, for this job alone."""
    copy = file.copies.get(node.id)
    if copy is None or len(file.copies) > 1 or copy.state is not CopyState.FETCHING:
        return None
    if any((use[1], use[2]) != (run.id, job.id) and not state.use_is_over(use) for use in file.uses[file.use_at :]):
        return None
    transfer = state.transfers.get(copy.generation)
    return transfer if transfer is not None and transfer.on_line and not transfer.cancelled else None


def pays(state: State, node: NodeEntry, other: NodeEntry, run: RunEntry, moving: Moving) -> bool:
    """Whether they would be there much sooner. What is under way is called off only for a node that has shown its pace."""
    if not moving.fetched_bytes or (moving.called_off and not node.line_done_bytes):
        return False
    expected = fastest(state)
    if not node.line_done_bytes and all(link.fetch_basis is Basis.DEFAULT for link in run.plan.links):
        return False
    stays_s = left_s(other, state.now, expected, moving.unasked_bytes)
    goes_s = left_s(node, state.now, expected, moving.fetched_bytes) + moving.copied_bytes / pace_of(other, state.now, expected)
    return stays_s > TIMES_SOONER * goes_s + SECONDS_SOONER


def has_place(state: State, node: NodeEntry, run: RunEntry, job: JobEntry, moving: Moving) -> bool:
    """Room, and cores on a host that may begin it now or later."""
    spec = run.workflow.jobs[job.id]
    if spec.cores > node.cores or not keeps_to(state, run, node):
        return False
    if state.on_hosts and prospect_of(node, pool_of(state, run), spec, job.reserve_bytes) is not Prospect.NOW:
        return False
    return moving.fetched_bytes + moving.copied_bytes + job.reserve_bytes <= node.free_bytes
