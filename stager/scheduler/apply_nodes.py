"""The effect of what is heard of whole nodes on the state.

One rule: the same as for all events: what changes, and nothing that is decided; a node's word on what it holds is taken.
"""

from __future__ import annotations

from stager.scheduler import events as ev
from stager.scheduler.accounting import (
    move_copy,
    settle,
)
from stager.scheduler.apply_ends import (
    copy_lost,
    fetched,
    transfer_vanished,
)
from stager.scheduler.apply_stripes import let_go_of_source, parts_reported
from stager.scheduler.peers import tell_other_nodes
from stager.scheduler.reconcile import adopt_unknown, count_foreign
from stager.scheduler.state import NEVER, State
from stager.scheduler.states import CopyState


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
    node = state.enter_node(event.node)
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
