"""News of an I/O node, as facts for the Machine.

May know: the messages of nodes, the Machine's events. One rule: pure translation; `at` is 0 here, the world sets it when the event is
taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from stager.scheduler import events as ev
from stager.wire import node as said

UNENDED = frozenset({"queued", "running"})


def node_event(node: str, fact: said.NodeEvent) -> ev.Event | None:
    """None for kinds that are of no concern to the Machine, or newer than this version."""
    cause = fact.command_id or ""
    match fact:
        case said.TransferDone():
            return transfer_done(node, cause, fact)
        case said.TransferFailed():
            return ev.TransferFailed(at=0.0, cause=cause, node=node, transfer=fact.transfer_id, fault=fact.error.fault())
        case said.TransferCancelled():
            return ev.TransferCancelled(at=0.0, cause=cause, node=node, transfer=fact.transfer_id)
        case said.ReplicaDeleted():
            return ev.ReplicaDeleted(at=0.0, cause=cause, node=node, file=fact.file_id, generation=fact.generation)
        case said.ReplicaCorrupt():
            fault = fact.error.fault()
            return ev.ReplicaCorrupt(at=0.0, cause=cause, node=node, file=fact.file_id, generation=fact.generation, fault=fault)
        case said.SpaceChanged():
            return ev.CapacityChanged(at=0.0, cause=cause, node=node, capacity_bytes=fact.capacity_bytes)
    return None


def transfer_done(node: str, cause: str, fact: said.TransferDone) -> ev.Event:
    return ev.TransferDone(
        at=0.0,
        cause=cause,
        node=node,
        transfer=fact.transfer_id,
        size_bytes=fact.size_bytes,
        blake3=fact.blake3,
        token=fact.token or "",
        verified=fact.verified or "",
        synced=fact.synced or "",
        bytes_moved=fact.bytes_moved,
        duration_s=fact.duration_s,
    )


def node_reported(node: str, about: said.NodeAbout, state: said.NodeState, apart: bool = False) -> ev.NodeReported:
    return ev.NodeReported(
        at=0.0,
        node=node,
        incarnation=state.incarnation,
        capacity_bytes=about.capacity_bytes,
        can_link=about.can_link,
        can_assemble=about.can_assemble,
        replicas=replicas_seen(state.replicas),
        transfers=tuple(entry.transfer_id for entry in state.transfers if entry.state in UNENDED),
        store_id=about.store_id,
        apart=apart,
    )


def replicas_seen(entries: Sequence[said.NodeReplica]) -> tuple[ev.ReplicaSeen, ...]:
    return tuple(
        ev.ReplicaSeen(
            entry.file_id,
            entry.generation,
            entry.size_bytes,
            entry.blake3,
            entry.state == "quarantined",
            entry.stripes is not None,
        )
        for entry in entries
    )
