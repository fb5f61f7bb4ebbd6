"""Intermediates that only one node has go to another that has room, where the first job in turn needs theirs and there is no place to spill
to: all nodes together are one cache.

May know: the state. One rule: only the first job of all, or outputs that wait for space, may have others moved, from one node at a time,
and never to a node that waits for room itself; so nothing is moved to and fro.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from heapq import heappop, heappush

from stager.planning.space import pooled_bytes
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.copying import give_copy, migrations_under_way
from stager.scheduler.decision import Decision
from stager.scheduler.eviction import clear, delete_replica, is_current
from stager.scheduler.holding import room_kept_to
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState

PRIORITY = 1
# Of those used farthest away, so many are looked at for one that there is a place for.
LOOKS_MAX = 8
# Of one file: what cannot be read, or not be written elsewhere, is not tried for ever.
FAILURES_MAX = 5


def safe_bytes(state: State, node: NodeEntry, run: RunEntry) -> int:
    """The bytes that the runs that cannot spill may hold on all nodes together, or this one on those that it stays on."""
    if len(state.nodes) == 1:
        return node.capacity_bytes
    if kept := [other.capacity_bytes for name in room_kept_to(state, run) if not (other := state.nodes[name]).draining]:
        return pooled_bytes(kept, run.largest_bytes, run.largest_footprint_bytes)
    if state.capacities_bytes is None:
        state.capacities_bytes = capacities_of(state)
    runs = [run for run_id in state.active if (run := state.runs[run_id]).plan.spill_origin is None]
    largest = max((run.largest_bytes for run in runs), default=0)
    return pooled_bytes(state.capacities_bytes, largest, max((run.largest_footprint_bytes for run in runs), default=0))


def capacities_of(state: State) -> list[int]:
    return [node.capacity_bytes for node in state.nodes.values() if node.reachable and not node.draining]


def is_first(state: State, run: RunEntry, job: JobEntry) -> bool:
    """Of all jobs the one in turn: everybody else can wait for it."""
    return oldest_run(state) is run and job.order == run.head


def oldest_run(state: State) -> RunEntry | None:
    """Of those that may start jobs."""
    return next((state.runs[run] for run in state.active if state.runs[run].may_start), None)


def migrate(
    decision: Decision, node: NodeEntry, need_bytes: int, protect: frozenset[str] = frozenset(), kept_to: Collection[str] = ()
) -> bool:
    """Sends away as much as is missing for `need_bytes` beside what is about to be free; asked again at the next event. False: nothing is
    on its way that could help. `kept_to`: to these nodes alone; none: to any.
    """
    state = decision.state
    if len(state.nodes) == 1:
        return False
    moves = migrations_under_way(state)
    if any(move.source != node.id and not state.can_be_had(state.files[move.file]) for move in moves):
        return True
    gap = need_bytes - node.free_bytes - node.deleting_bytes - node.cancelling_bytes - node.spilling_bytes
    gap -= sum(move.size_bytes for move in moves if move.source == node.id)
    looked: list[tuple[int, str, str]] = []
    helps = gap <= 0
    while gap > 0 and node.movable and len(looked) < LOOKS_MAX:
        entry = heappop(node.movable)
        file = state.files[entry[1]]
        if not is_current(decision, node, entry) or not state.holds_only_copy(file):
            continue
        looked.append(entry)
        if file.id not in protect and may_migrate(state, file, node):
            sent = send(decision, node, file, kept_to)
            helps = helps or sent is not Sent.NOWHERE
            gap -= file.size_bytes if sent is Sent.NOW else 0
    for entry in looked:
        heappush(node.movable, entry)
    return helps


def may_migrate(state: State, file: FileEntry, node: NodeEntry) -> bool:
    """It is not on its way anywhere yet, nor was it moved in vain again and again."""
    return file.moves_failed < FAILURES_MAX and not file.spilling and all(other == node.id for other in file.copies)


class Sent(Enum):
    """The outcome of wanting to send something away. LATER: a node makes room for it now, of what can be had again."""

    NOW = "now"
    LATER = "later"
    NOWHERE = "nowhere"


def send(decision: Decision, node: NodeEntry, file: FileEntry, kept_to: Collection[str] = ()) -> Sent:
    size_bytes = file.copies[node.id].size_bytes
    for other in places(decision.state, node):
        if other.id in file.copies or (kept_to and other.id not in kept_to):
            continue
        if clear(decision, other, size_bytes):
            give_copy(decision, other, file, file.run, node.id, cmd.Purpose.MOVE, PRIORITY)
            return Sent.NOW
        if other.deleting_bytes or other.cancelling_bytes:
            return Sent.LATER
    return Sent.NOWHERE


def places(state: State, node: NodeEntry) -> Iterator[NodeEntry]:
    """The roomiest first. A node that waits for room itself takes nothing in."""
    able = [other for other in state.nodes.values() if other is not node and other.reachable and not other.draining]
    able = [other for other in able if not other.waiting_attempts]
    able.sort(key=lambda other: (-other.spare_bytes, other.id))
    return (other for other in able if not first_waits_on(state, other))


def first_waits_on(state: State, node: NodeEntry) -> bool:
    run = oldest_run(state)
    if run is None or run.head >= len(run.by_order):
        return False
    job = run.jobs[run.by_order[run.head]]
    return job.node == node.id and job.state is JobState.READY


def is_wanted_elsewhere(state: State, node: NodeEntry) -> bool:
    """Whether what is free on this node may be for others to send here: then nothing is brought ahead, which would be called off again at
    once, and so on for ever.
    """
    if len(state.nodes) == 1:
        return False
    if state.closed and anything_leaves(state):
        return True
    if any(other.movable and other.waiting_attempts for other in state.nodes.values() if other is not node):
        return True
    run = oldest_run(state)
    if run is None or run.head >= len(run.by_order):
        return False
    job = run.jobs[run.by_order[run.head]]
    theirs = state.nodes[job.node]
    if theirs is node or not theirs.movable or job.state is not JobState.READY:
        return False
    missing = sum(file.size_bytes for file in inputs_of(state, run, job.id) if theirs.id not in file.copies)
    return missing + job.reserve_bytes > theirs.free_bytes


def anything_leaves(state: State) -> bool:
    """Whether a node that drains has something to give away that has no place yet."""
    draining = (state.nodes[node_id] for node_id in state.closed)
    return any(node.draining and node.reachable and node.leaving for node in draining)


def delete_migrated(decision: Decision) -> None:
    """A file that was moved is deleted where it came from, before anybody counts on it there."""
    state = decision.state
    moved, state.moved = state.moved, []
    for node_id, file_id in moved:
        file = state.files[file_id]
        copy = file.copies.get(node_id)
        if copy is None or copy.state is not CopyState.PRESENT or copy.pins or state.holders(file) < 2:
            continue
        why = "its node drains" if state.nodes[node_id].draining else "the next job needs its room"
        delete_replica(decision, node_id, file_id, copy.generation, copy.size_bytes, f"moved to another node: {why}")
