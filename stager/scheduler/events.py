"""Facts that reach the Machine: one frozen class per fact. `at` is seconds since 1970 and never goes back; `cause` is the id of the command that led to it, or who asked.

One rule: an event that exists is well-formed; the Machine decides what it means, and ignores and counts what is stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stager.model.errors import Fault
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.planning.policy import Limits, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStarted:
    """First event of every epoch. After a crash the journal is replayed first, then this arrives, then what the nodes and executors report."""

    at: float
    cause: str = ""
    epoch: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    at: float
    cause: str = ""
    policy: Policy
    limits: Limits


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    file: str
    generation: str
    size_bytes: int
    blake3: str = ""
    quarantined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported:
    """All of one node's state: at its first contact, after its restart (new incarnation), and after a gap in its events. Where numbers disagree the node's win.

    `transfers` are those it knows and has not ended; what the Machine believes under way and is not listed has to be asked for again.
    """

    at: float
    cause: str = ""
    node: str
    incarnation: str
    capacity_bytes: int
    can_link: bool
    replicas: tuple[ReplicaSeen, ...]
    transfers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost:
    """The node does not answer. Its replicas are not gone, they cannot be asked for."""

    at: float
    cause: str = ""
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    at: float
    cause: str = ""
    node: str
    capacity_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubmitted:
    """The expanded, resolved workflow and its plan enter as values."""

    at: float
    cause: str = ""
    run: str
    workflow: Workflow
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """Asked for again: failed jobs and transfers get a new set of tries, paused origins are tried again (new credentials may be there)."""

    at: float
    cause: str = ""
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrained:
    """Start no more jobs of this run; let running jobs and uploads of finals end; then it is `interrupted`, resumable."""

    at: float
    cause: str = ""
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped:
    """Interrupted at once: kill attempts, cancel transfers; resumable."""

    at: float
    cause: str = ""
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled:
    """For good: kill, cancel, drop what nobody else needs."""

    at: float
    cause: str = ""
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDone:
    """A fetch is committed and verified on the node's disk; an upload is verified at the origin. `verified` says how (docs/formats/ionode-api.md), `""` for a fetch."""

    at: float
    cause: str = ""
    node: str
    transfer: str
    size_bytes: int
    blake3: str
    token: str = ""
    verified: str = ""
    bytes_moved: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFailed:
    at: float
    cause: str = ""
    node: str
    transfer: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCancelled:
    at: float
    cause: str = ""
    node: str
    transfer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDeleted:
    at: float
    cause: str = ""
    node: str
    file: str
    generation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBusy:
    """A delete was refused: a job still has it open."""

    at: float
    cause: str = ""
    node: str
    file: str
    generation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCorrupt:
    """The node found it damaged or gone and quarantined it."""

    at: float
    cause: str = ""
    node: str
    file: str
    generation: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillErased:
    at: float
    cause: str = ""
    origin: str
    path: str


class Outcome(StrEnum):
    """How an attempt ended. LOST: it and its result are gone (the executor was asked and knows nothing). KILLED: we ended it."""

    OK = "ok"
    FAILED = "failed"
    LOST = "lost"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class OutputMade:
    lfn: str
    file: str
    generation: str
    size_bytes: int
    blake3: str
    sha256: str = ""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Measures:
    """What one attempt used. None: not seen."""

    wall_s: float | None = None
    cpu_s: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWaits:
    """The job's process ended well, but its outputs need more space than was reserved: they wait in the sandbox for `GrantSpace`."""

    at: float
    cause: str = ""
    attempt: str
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    at: float
    cause: str = ""
    run: str
    job: str
    attempt: str
    outcome: Outcome
    fault: Fault | None = None
    exit_code: int | None = None
    outputs: tuple[OutputMade, ...] = ()
    measures: Measures = Measures()
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """The time asked for with WakeAt has come."""

    at: float
    cause: str = ""


Event = (
    SchedulerStarted
    | PolicySet
    | NodeReported
    | NodeLost
    | CapacityChanged
    | RunSubmitted
    | RunResumed
    | RunDrained
    | RunStopped
    | RunCancelled
    | TransferDone
    | TransferFailed
    | TransferCancelled
    | ReplicaDeleted
    | ReplicaBusy
    | ReplicaCorrupt
    | SpillErased
    | AttemptWaits
    | AttemptEnded
    | Woken
)
