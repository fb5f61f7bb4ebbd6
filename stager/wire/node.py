"""The answers and events of an I/O node (docs/formats/ionode-api.md), as values.

May know: the model. One rule: a newer node may say more than is named here, and kinds of events that are not: what nobody here knows is
left out.
"""

from __future__ import annotations

import msgspec

from stager.model.errors import ErrorClass, Fault

NOTHING = msgspec.Raw(b"null")


class NodeMessage(msgspec.Struct, frozen=True):
    """Each field by its name on the wire."""


class NodeError(NodeMessage, frozen=True, kw_only=True):
    error_class: ErrorClass = msgspec.field(name="class")
    code: str
    message: str
    subject: str | None = None
    retry_after_s: float | None = None

    def fault(self) -> Fault:
        return Fault(self.error_class, self.code, self.message, self.subject or "")


class ErrorAnswer(NodeMessage, frozen=True, kw_only=True):
    """An error answer; further fields beside the error depend on its code."""

    error: NodeError


class NodeAbout(NodeMessage, frozen=True, kw_only=True):
    """GET /v1/node. `store_id`: empty of nodes before it was told."""

    node_id: str
    incarnation: str
    pid: int
    capacity_bytes: int
    used_bytes: int
    reserved_bytes: int
    can_link: bool
    draining: bool
    version: str = ""
    store_id: str = ""
    # A node of an older version does not say.
    can_assemble: bool = False


class HeldStripes(NodeMessage, frozen=True, kw_only=True):
    """The stripes of a file that a replica holds, where it is not the whole."""

    index: int
    count: int
    stripe_bytes: int
    file_bytes: int


class NodeReplica(NodeMessage, frozen=True, kw_only=True):
    file_id: str
    generation: str
    kind: str
    size_bytes: int
    blake3: str
    crc64nvme: str
    sha256: str | None
    executable: bool
    members: int | None
    token: str | None
    state: str
    stripes: HeldStripes | None = None


class NodeTransfer(NodeMessage, frozen=True, kw_only=True):
    transfer_id: str
    state: str
    bytes_done: int
    bytes_total: int


class NodeTransfers(NodeMessage, frozen=True, kw_only=True):
    """GET /v1/transfers."""

    transfers: list[NodeTransfer]


class AttemptElsewhere(NodeMessage, frozen=True, kw_only=True):
    """One on another host that nobody closed. `state`: open | committed | released."""

    attempt_id: str
    epoch: int
    state: str


class NodeState(NodeMessage, frozen=True, kw_only=True):
    """GET /v1/state. `next_seq`: of the first event that is not part of it."""

    incarnation: str
    next_seq: int
    replicas: list[NodeReplica]
    transfers: list[NodeTransfer]
    attempts: list[AttemptElsewhere] = []


class NodeEvent(NodeMessage, frozen=True, kw_only=True):
    """One of a kind that is not known here is this class itself."""

    seq: int
    kind: str
    command_id: str | None = None


class TransferDone(NodeEvent, frozen=True, kw_only=True):
    transfer_id: str
    size_bytes: int
    blake3: str
    token: str | None
    verified: str | None
    bytes_moved: int
    duration_s: float
    synced: str | None = None


class TransferFailed(NodeEvent, frozen=True, kw_only=True):
    transfer_id: str
    error: NodeError


class TransferCancelled(NodeEvent, frozen=True, kw_only=True):
    transfer_id: str


class ReplicaDeleted(NodeEvent, frozen=True, kw_only=True):
    file_id: str
    generation: str


class ReplicaCorrupt(NodeEvent, frozen=True, kw_only=True):
    file_id: str
    generation: str
    error: NodeError


class SpaceChanged(NodeEvent, frozen=True, kw_only=True):
    capacity_bytes: int


EVENT_KINDS: dict[str, type[NodeEvent]] = {
    "transfer_done": TransferDone,
    "transfer_failed": TransferFailed,
    "transfer_cancelled": TransferCancelled,
    "replica_deleted": ReplicaDeleted,
    "replica_corrupt": ReplicaCorrupt,
    "space": SpaceChanged,
}


def decode_event(said: bytes | msgspec.Raw) -> NodeEvent:
    head = msgspec.json.decode(said, type=NodeEvent)
    kind = EVENT_KINDS.get(head.kind)
    return head if kind is None else msgspec.json.decode(said, type=kind)


class EventPage(NodeMessage, frozen=True, kw_only=True):
    """GET /v1/events. `gap`: the node has forgotten some that were not acknowledged."""

    events: list[msgspec.Raw]
    gap: bool

    def node_events(self) -> list[NodeEvent]:
        return [decode_event(said) for said in self.events]


class TransferAnswer(NodeMessage, frozen=True, kw_only=True):
    """To PUT /v1/transfers/ID. `event`: how it ended, where it has."""

    state: str = ""
    event: msgspec.Raw = NOTHING

    def end(self) -> NodeEvent | None:
        return None if bytes(self.event) == bytes(NOTHING) else decode_event(self.event)


class AskedAnswer(TransferAnswer, frozen=True, kw_only=True):
    """One of those to POST /v1/transfers. `error`: why it was refused."""

    error: NodeError | None = None


class AskedAnswers(NodeMessage, frozen=True, kw_only=True):
    answers: list[AskedAnswer]


class DeletedAnswer(NodeMessage, frozen=True, kw_only=True):
    """`error`: why it was refused."""

    error: NodeError | None = None


class DeletedAnswers(NodeMessage, frozen=True, kw_only=True):
    """To POST /v1/replicas/delete, in the order of what was asked."""

    answers: list[DeletedAnswer]


class StatEntry(NodeMessage, frozen=True, kw_only=True):
    """The entry at a path of an origin. `error`: why nothing can be said of it."""

    path: str
    token: str | None = None
    error: NodeError | None = None


class StatAnswer(NodeMessage, frozen=True, kw_only=True):
    entries: list[StatEntry]


class ProbeAnswer(NodeMessage, frozen=True, kw_only=True):
    """`findings`: what keeps the origin, or a directory of it, from being used."""

    findings: list[NodeError] = []


class MountAnswer(NodeMessage, frozen=True, kw_only=True):
    origin_id: str
    mount_path: str
    state: str


class AllowanceAnswer(NodeMessage, frozen=True, kw_only=True):
    connections: int


class EraseAnswer(NodeMessage, frozen=True, kw_only=True):
    erased: bool


class OrderedMount(NodeMessage, frozen=True, kw_only=True):
    """A mount that the reaper makes in a sandbox."""

    source: str
    target: str
    directory: bool


class StagedIn(NodeMessage, frozen=True, kw_only=True):
    mounts: list[OrderedMount]
    copied_bytes: int


class ChangedInput(NodeMessage, frozen=True, kw_only=True):
    file_id: str
    generation: str


class DirectInputState(NodeMessage, frozen=True, kw_only=True):
    """`state`: same | changed | unknown, at its origin after the job."""

    path: str
    state: str


class Released(NodeMessage, frozen=True, kw_only=True):
    """`changed`: inputs that are not as they were given. `direct`: None where nothing was read directly."""

    changed: list[ChangedInput]
    direct: list[DirectInputState] | None = None


class StagedOut(NodeMessage, frozen=True, kw_only=True):
    outputs: list[NodeReplica]
    undeclared: list[str]
    undeclared_count: int
    released: Released | None = None


class OpenedInput(NodeMessage, frozen=True, kw_only=True):
    """An input of an attempt on another host, and which content it is."""

    file_id: str
    generation: str
    path: str
    kind: str
    size_bytes: int
    blake3: str
    executable: bool


class OpenedAttempt(NodeMessage, frozen=True, kw_only=True):
    """PUT /v1/attempts/{id}. `ticket` is a secret."""

    ticket: str
    inputs: list[OpenedInput]

    def __repr__(self) -> str:
        return f"OpenedAttempt(inputs={self.inputs!r})"


class ClosedAttempt(NodeMessage, frozen=True, kw_only=True):
    """DELETE /v1/attempts/{id}. `state`: closed, or committed where the commit came first."""

    state: str
    outputs: list[NodeReplica]


class Brief(NodeMessage, frozen=True, kw_only=True):
    brief: object


class ForgottenNode(NodeMessage, frozen=True, kw_only=True):
    """`key_sha256`: of the public key in its certificate. Whoever joins under its name with another key is another one."""

    node_id: str
    key_sha256: str


class NoAnswer(NodeMessage, frozen=True, kw_only=True):
    """Of calls that answer nothing that is wanted."""
