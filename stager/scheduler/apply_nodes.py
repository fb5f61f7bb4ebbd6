"""The effect of what is heard of whole nodes on the state.

One rule: the same as for all events: what changes, and nothing that is decided; a node's word on what it holds is taken.
"""

from __future__ import annotations

from stager.scheduler import events as ev
from stager.scheduler.accounting import count_parents, drop_copy, drop_garbage, make_ready_or_wait, move_copy, settle, withdraw
from stager.scheduler.apply_ends import attempt_lost, copy_lost, fetched, transfer_vanished
from stager.scheduler.apply_hosts import look_again
from stager.scheduler.apply_stripes import let_go_of_source, lose_part, parts_reported
from stager.scheduler.copies_wanted import may_want_extra_copy
from stager.scheduler.linking import part_if_gone
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import tell_other_nodes
from stager.scheduler.reconcile import adopt_unknown, count_foreign
from stager.scheduler.state import NEVER, State
from stager.scheduler.states import CopyState, JobState


def node_lost(state: State, event: ev.NodeLost) -> None:
    if event.node not in state.nodes:
        return
    node = state.nodes[event.node]
    if node.reachable and not node.draining:
        node.since = state.now
    node.reachable, state.capacities_bytes = False, None
    for transfer in [t for t in state.transfers.values() if t.node == event.node and t.is_fetch]:
        # Nobody knows when it will come: who waited to copy it from there looks elsewhere.
        tell_other_nodes(state, state.files[transfer.file])


def capacity_changed(state: State, event: ev.CapacityChanged) -> None:
    node = state.nodes[event.node]
    node.capacity_bytes, node.dirty, state.capacities_bytes = event.capacity_bytes, True, None


def node_reported(state: State, event: ev.NodeReported) -> None:
    """The node's word on copies and transfers is taken; what is gone is noted in `lost` for the handlers."""
    node = state.enter_node(event.node)
    if event.store_id and node.store_id and event.store_id != node.store_id:
        lose_all(state, node)
    if node.gone or not (node.reachable or node.draining):
        node.since = state.now
    node.store_id, node.gone = event.store_id or node.store_id, ""
    if not node.draining:
        open_again(state, node)
    if not node.reachable:
        node.back_at = state.now
    node.reachable, node.incarnation, node.dirty = True, event.incarnation, True
    node.capacity_bytes, node.can_link, node.can_assemble = event.capacity_bytes, event.can_link, event.can_assemble
    node.apart = event.apart
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
        elif copy.state is CopyState.DELETING and (state.next_use(file) != NEVER or state.owes_upload(file) or state.is_lent(file)):
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


def open_again(state: State, node: NodeEntry) -> None:
    """It takes jobs. Some may have waited for hosts that are beside it."""
    if node.id in state.closed:
        del state.closed[node.id]
        look_again(state, node)


def node_gone(state: State, event: ev.NodeGone) -> None:
    """Whoever comes under its name later is a stranger, of which nothing is known."""
    node = state.nodes.get(event.node)
    if node is None or node.gone:
        state.stale += 1
        return
    lose_all(state, node)
    node.gone, node.store_id, node.draining, node.since = event.why or "it is gone", "", False, state.now
    state.closed[node.id] = None


def lose_all(state: State, node: NodeEntry) -> None:
    """All that it held is lost, and nothing is under way there any more. What others copy from it is for the handlers to call off."""
    node.reachable, state.capacities_bytes = False, None
    transfers = [transfer for transfer in state.transfers.values() if transfer.node == node.id]
    parts = [part for part in state.parts.values() if part.node == node.id]
    node.left = [transfer.id for transfer in transfers] + [part.id for part in parts]
    for attempt_id in [attempt_id for attempt_id, attempt in state.attempts.items() if attempt.node == node.id]:
        attempt_lost(state, attempt_id)
    for run in [state.runs[run_id] for run_id in state.active]:
        for job in [job for job in run.jobs.values() if job.state is JobState.ADMITTED and job.node == node.id]:
            withdraw(state, run, job)
            job.waits_for = count_parents(state, run, job.id)
            make_ready_or_wait(state, job, state.now)
    for part in parts:
        lose_part(state, part)
    for transfer in transfers:
        transfer_vanished(state, transfer.id)
    for file in [file for file in state.files.values() if node.id in file.copies]:
        file.copies[node.id].pins = 0
        drop_copy(state, file, node.id)
        part_if_gone(state, file)
        state.lost.append((file.id, ""))
        file.extra_copies = 0
        may_want_extra_copy(state, file)
        tell_other_nodes(state, file)
    for file_id, generation in list(node.garbage):
        drop_garbage(node, file_id, generation)
    node.startable.clear()
    for queue in (node.calls_startable, node.evictable, node.spillable, node.movable, node.leaving):
        queue.clear()
    state.to_fetch = [entry for entry in state.to_fetch if entry[0] != node.id]


def node_draining(state: State, event: ev.NodeDraining) -> None:
    """Of one that has not reported yet too: it is to get nothing when it does."""
    node = state.nodes.get(event.node)
    if node is None and event.draining:
        node = state.enter_node(event.node)
    if node is None or node.gone:
        state.stale += 1
        return
    if node.draining is not event.draining:
        node.since = state.now
    node.draining, node.dirty, state.capacities_bytes = event.draining, True, None
    if not event.draining:
        node.leaving.clear()
        if node.incarnation:
            open_again(state, node)
        return
    state.closed[node.id] = None
    for file in [file for file in state.files.values() if node.id in file.copies]:
        settle(state, file, node.id)
        may_want_extra_copy(state, file)
