"""What an I/O node says, as facts for the Machine.

May know: the wire of docs/formats/ionode-api.md, the Machine's events. One rule: pure translation; `at` is 0 here, the world sets it when
the event is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stager.adapters.ionode import fault_of
from stager.scheduler import events as ev

UNENDED = frozenset({"queued", "running"})


def node_event(node: str, said: Mapping[str, Any]) -> ev.Event | None:
    """None for kinds that are of no concern to the Machine, or newer than this version."""
    maker = MAKERS.get(said["kind"])
    return maker(node, said.get("command_id") or "", said) if maker else None


def transfer_done(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    return ev.TransferDone(
        at=0.0,
        cause=cause,
        node=node,
        transfer=said["transfer_id"],
        size_bytes=said["size_bytes"],
        blake3=said["blake3"],
        token=said["token"] or "",
        verified=said["verified"] or "",
        synced=said.get("synced") or "",
        bytes_moved=said["bytes_moved"],
        duration_s=said["duration_s"],
    )


def transfer_failed(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    return ev.TransferFailed(at=0.0, cause=cause, node=node, transfer=said["transfer_id"], fault=fault_of(said["error"]))


def transfer_cancelled(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    return ev.TransferCancelled(at=0.0, cause=cause, node=node, transfer=said["transfer_id"])


def replica_deleted(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    return ev.ReplicaDeleted(at=0.0, cause=cause, node=node, file=said["file_id"], generation=said["generation"])


def replica_corrupt(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    fault = fault_of(said["error"])
    return ev.ReplicaCorrupt(at=0.0, cause=cause, node=node, file=said["file_id"], generation=said["generation"], fault=fault)


def space(node: str, cause: str, said: Mapping[str, Any]) -> ev.Event:
    return ev.CapacityChanged(at=0.0, cause=cause, node=node, capacity_bytes=said["capacity_bytes"])


MAKERS = {
    "transfer_done": transfer_done,
    "transfer_failed": transfer_failed,
    "transfer_cancelled": transfer_cancelled,
    "replica_deleted": replica_deleted,
    "replica_corrupt": replica_corrupt,
    "space": space,
}


def node_reported(node: str, about: Mapping[str, Any], state: Mapping[str, Any]) -> ev.NodeReported:
    """`about`: GET /v1/node. `state`: GET /v1/state."""
    return ev.NodeReported(
        at=0.0,
        node=node,
        incarnation=state["incarnation"],
        capacity_bytes=about["capacity_bytes"],
        can_link=about["can_link"],
        replicas=replicas_seen(state["replicas"]),
        transfers=tuple(entry["transfer_id"] for entry in state["transfers"] if entry["state"] in UNENDED),
    )


def replicas_seen(entries: Sequence[Mapping[str, Any]]) -> tuple[ev.ReplicaSeen, ...]:
    return tuple(
        ev.ReplicaSeen(
            entry["file_id"],
            entry["generation"],
            entry["size_bytes"],
            entry["blake3"],
            entry["state"] == "quarantined",
            entry.get("stripes") is not None,
        )
        for entry in entries
    )
