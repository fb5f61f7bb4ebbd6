"""The answer to a node's report that the state does not know of: external contents that may serve again, and replicas that nobody counts.

May know: the state. One rule: what is on a node holds space there, whoever it belongs to, until the node has deleted it.
"""

from __future__ import annotations

from stager.scheduler import events as ev
from stager.scheduler.accounting import add_copy, add_garbage, drop_garbage, settle
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import Copy, FileEntry, State
from stager.scheduler.states import CopyState


def results_kept(state: State, event: ev.ResultsKept) -> None:
    """Where they are, nodes say when they report."""
    for kept in event.files:
        if kept.file in state.files:
            continue
        file = FileEntry(kept.file, kept.file, "", kept.size_bytes, executable=kept.executable, blake3=kept.blake3)
        file.remake_s, file.tenant = kept.remake_s, kept.tenant
        state.files[kept.file] = file


def adopt_unknown(state: State, node: NodeEntry, replicas: tuple[ev.ReplicaSeen, ...]) -> None:
    """External contents found on the node are a cache that may serve again, and so are results of runs that are not known any more;
    anything else unknown is left to the handlers.
    """
    for replica in replicas:
        file = state.files.get(replica.file)
        known = file is not None and node.id in file.copies
        is_result = file is not None and not file.run and file.blake3 == replica.blake3
        if known or not (replica.file.startswith("x") or is_result) or replica.quarantined or replica.part:
            continue
        if file is None:
            file = state.files[replica.file] = FileEntry(replica.file, replica.file, "", replica.size_bytes)
        file.blake3 = file.blake3 or replica.blake3
        add_copy(state, file, node.id, Copy(CopyState.PRESENT, replica.generation, replica.size_bytes))
        settle(state, file, node.id)


def count_foreign(state: State, node: NodeEntry, replicas: tuple[ev.ReplicaSeen, ...]) -> None:
    """A replica on the node that is not ours holds space too, until it is deleted: a damaged one, and one of a transfer or an attempt that
    does not count any more.
    """
    reported = {(replica.file, replica.generation) for replica in replicas}
    for file_id, generation in [key for key in node.garbage if key not in reported and key[1] not in state.transfers]:
        drop_garbage(node, file_id, generation)
    for replica in replicas:
        copy = state.files[replica.file].copies.get(node.id) if replica.file in state.files else None
        ours = copy is not None and copy.generation == replica.generation and copy.state not in (CopyState.WANTED, CopyState.FETCHING)
        on_its_way = any(replica.generation in known for known in (state.attempts, state.transfers, state.parts))
        if not ours and not on_its_way:
            add_garbage(node, replica.file, replica.generation, replica.size_bytes)
