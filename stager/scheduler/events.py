"""Facts that reach the Machine: one frozen class per fact. `at` is seconds since 1970 and never goes back; `cause` is the id of the command
that led to it, or who asked.

One rule: an event that exists is well-formed; the Machine decides what it means, and ignores and counts what is stale.
"""

from __future__ import annotations

from enum import StrEnum

from stager.model.errors import Fault
from stager.model.record import Record
from stager.model.scatter import Rows
from stager.model.workflow import Workflow
from stager.planning.budget import Budget
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.planning.policy import Limits, Policy, TenantShare


class SchedulerStarted(Record, kw_only=True):
    """First event of every epoch. After a crash the journal is replayed first, then this arrives, then what the nodes and executors
    report.
    """

    at: float
    cause: str = ""
    epoch: int
    version: str


class PolicySet(Record, kw_only=True):
    at: float
    cause: str = ""
    policy: Policy
    limits: Limits


class TenantsSet(Record, kw_only=True):
    """What each tenant has from now on. One that is not named has weight 1 and no quota."""

    at: float
    cause: str = ""
    shares: dict[str, TenantShare]


class KeptFile(Record):
    """What a job made, by content. `remake_s`: what its making took, and what its inputs would cost."""

    file: str
    tenant: str
    size_bytes: int
    blake3: str
    executable: bool
    remake_s: float


class ResultsKept(Record, kw_only=True):
    """Files of runs whose part of the journal was folded away, which nodes may hold for later runs still: each says so by itself."""

    at: float
    cause: str = ""
    files: tuple[KeptFile, ...]


class ReplicaSeen(Record):
    """`part`: only some stripes of the file."""

    file: str
    generation: str
    size_bytes: int
    blake3: str = ""
    quarantined: bool = False
    part: bool = False


class NodeReported(Record, kw_only=True):
    """All of one node's state: at its first contact, after its restart (new incarnation), and after a gap in its events. Where numbers
    disagree the node's win.

    `transfers` are those it knows and has not ended; what the Machine believes under way and is not listed has to be asked for again.
    `can_assemble`: it can make a file of parts that other nodes hold. `store_id`: which store it has; a node that comes with another one
    has lost all that it held. Empty in journals of before. `apart`: it is on another host, and does not reach directories beside workflows.
    """

    at: float
    cause: str = ""
    node: str
    incarnation: str
    capacity_bytes: int
    can_link: bool
    replicas: tuple[ReplicaSeen, ...]
    transfers: tuple[str, ...]
    can_assemble: bool = False
    store_id: str = ""
    apart: bool = False


class NodeLost(Record, kw_only=True):
    """The node does not answer. Its replicas are not gone, they cannot be asked for."""

    at: float
    cause: str = ""
    node: str


class HostReported(Record, kw_only=True):
    """A compute host answers: at its first contact, and when it is back. Its jobs read from `node`, the I/O node on it or nearest to it.
    `pool`: whose it is, in its own words. `tenant`: whose jobs alone run there; empty: those of all who have no pool of their own. None:
    not watched.

    Attempts on it go on, whatever its incarnation is: of those that did not live on in another one the executor tells the end (LOST).
    """

    at: float
    cause: str = ""
    host: str
    node: str
    pool: str = ""
    cores: int
    memory_bytes: int | None = None
    scratch_bytes: int | None = None
    incarnation: str = ""
    tenant: str = ""


class HostLost(Record, kw_only=True):
    """The host does not answer. Its attempts may well go on."""

    at: float
    cause: str = ""
    host: str


class HostDraining(Record, kw_only=True):
    """Start nothing more there. It stays so until the host is gone, or is another incarnation."""

    at: float
    cause: str = ""
    host: str


class HostGone(Record, kw_only=True):
    """The host does not come back as it was. The executor tells the end of each of its attempts: that of one whose outputs are committed,
    or LOST once nothing of it can be committed any more.
    """

    at: float
    cause: str = ""
    host: str
    why: str = ""


class NodeGone(Record, kw_only=True):
    """It is gone for good, and what it held with it. `why`: by whose word. A node of its name that reports later is a stranger."""

    at: float
    cause: str = ""
    node: str
    why: str = ""


class NodeDraining(Record, kw_only=True):
    """It is to leave: it takes nothing more, and gives away what only it holds. `draining` False: it is to stay after all."""

    at: float
    cause: str = ""
    node: str
    draining: bool = True


class CapacityChanged(Record, kw_only=True):
    at: float
    cause: str = ""
    node: str
    capacity_bytes: int


# `ids` of a run that is submitted now.
IDS = 2


class RunSubmitted(Record, kw_only=True):
    """The expanded, resolved workflow and its plan enter as values. `ids`: how its external files are named. 1, as in journals of before:
    two servers with a bucket of one name are one. 2: each is its own. `tenant`: whose it is; empty: the owner's. `priority`: beside the
    other runs of the same tenant, higher first. `reused`: jobs that are done from the start. `passed`: of each variable of `env_pass` the
    digest of its value under the key of the state directory, which bears on what jobs make. `budget`: what it may cost, and by when it is
    to have ended; None: nobody said. `sharing`: what it may take over while it goes on; None: nothing, as in journals of before, and
    nobody looked at what earlier runs made.
    """

    at: float
    cause: str = ""
    run: str
    workflow: Workflow
    plan: Plan
    ids: int = 1
    tenant: str = ""
    priority: int = 0
    reused: tuple[ReusedJob, ...] = ()
    passed: dict[str, str] = {}
    budget: Budget | None = None
    sharing: Sharing | None = None


class RunResumed(Record, kw_only=True):
    """Asked for again: failed jobs and transfers get a new set of tries, paused origins are tried again (new credentials may be there).

    `workflow` and `plan`: what it goes on with, where its file or an input of it was mended since it ended; None: with what it had.
    `notes`: what differs, in words. `passed`: as in RunSubmitted, of the values that it goes on with. `budget`: what it may cost from now
    on, with what it has cost; None: what it might before.
    """

    at: float
    cause: str = ""
    run: str
    workflow: Workflow | None = None
    plan: Plan | None = None
    notes: tuple[str, ...] = ()
    passed: dict[str, str] = {}
    budget: float | None = None


class RunScattered(Record, kw_only=True):
    """The jobs of `scatter` follow from the members that a job of the run has named: what it goes on with. `also`: further scatters whose
    jobs are made with it. `members`: of all of them. `fault`: why no jobs can be made; `workflow` and `plan` are None then.
    """

    at: float
    cause: str = ""
    run: str
    scatter: str
    also: tuple[str, ...] = ()
    members: int = 0
    workflow: Workflow | None = None
    plan: Plan | None = None
    fault: Fault | None = None


# `by` of a run that is interrupted because its scheduler ends, and of one whose interrupter said no more than that.
BY_SERVICE, BY_REQUEST = "service", "request"
# Of one that was paused before its budget was used up.
BY_BUDGET = "budget"


class RunDrained(Record, kw_only=True):
    """Start no more jobs of this run; let running jobs and uploads of finals end; then it is `interrupted`, resumable. `by`: who asked."""

    at: float
    cause: str = ""
    run: str
    by: str = ""


class RunStopped(Record, kw_only=True):
    """Interrupted at once: kill attempts, cancel transfers; resumable. `by`: who asked."""

    at: float
    cause: str = ""
    run: str
    by: str = ""


class RunCancelled(Record, kw_only=True):
    """For good: kill, cancel, drop what nobody else needs."""

    at: float
    cause: str = ""
    run: str


class Stage(StrEnum):
    """The wish of a call for its job's inputs. PATHS: a directory of its own with all of them in it. PINS: they are held on their node, and
    the engine reads them there; its directory is for outputs.
    """

    PATHS = "paths"
    PINS = "pins"


class JobCalled(Record, kw_only=True):
    """The engine of the run begins a try of the job, which it names `call`. The same name again is the same call; another one takes the
    place of one that was lost.
    """

    at: float
    cause: str = ""
    run: str
    job: str
    call: str
    stage: Stage = Stage.PATHS


class CallFailed(Record, kw_only=True):
    """The engine says that this call has come to nothing, whether it was staged or still waiting. Of the newest call of a job only."""

    at: float
    cause: str = ""
    run: str
    job: str
    call: str
    message: str


class EngineOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class EngineRunEnded(Record, kw_only=True):
    """The engine calls no more jobs of this run: what is not done is not to be done, and finals go home."""

    at: float
    cause: str = ""
    run: str
    outcome: EngineOutcome
    message: str = ""


# How an upload was verified that found its content there: it was read and compared, and nothing was sent.
ADOPTED = "adopted"


class TransferDone(Record, kw_only=True):
    """A fetch is committed and verified on the node's disk; an upload is verified at the origin. `verified` says how, and `synced` what
    of it the origin put on its disk (docs/formats/ionode-api.md); `""` for a fetch, and in journals of before.
    """

    at: float
    cause: str = ""
    node: str
    transfer: str
    size_bytes: int
    blake3: str
    token: str = ""
    verified: str = ""
    synced: str = ""
    bytes_moved: int = 0
    duration_s: float = 0.0


class TransferFailed(Record, kw_only=True):
    at: float
    cause: str = ""
    node: str
    transfer: str
    fault: Fault


class TransferCancelled(Record, kw_only=True):
    at: float
    cause: str = ""
    node: str
    transfer: str


class ReplicaDeleted(Record, kw_only=True):
    at: float
    cause: str = ""
    node: str
    file: str
    generation: str


class ReplicaBusy(Record, kw_only=True):
    """A delete was refused: a job still has it open."""

    at: float
    cause: str = ""
    node: str
    file: str
    generation: str


class ReplicaCorrupt(Record, kw_only=True):
    """The node found it damaged or gone and quarantined it."""

    at: float
    cause: str = ""
    node: str
    file: str
    generation: str
    fault: Fault


class SpillErased(Record, kw_only=True):
    at: float
    cause: str = ""
    origin: str
    path: str


class Outcome(StrEnum):
    """How an attempt ended. LOST: it and its result are gone (the executor was asked and knows nothing). KILLED: we ended it, or
    a scheduler that starts gave up what the one before it had not begun.
    """

    OK = "ok"
    FAILED = "failed"
    LOST = "lost"
    KILLED = "killed"


class OutputMade(Record):
    lfn: str
    file: str
    generation: str
    size_bytes: int
    blake3: str
    sha256: str = ""
    executable: bool = False


class Measures(Record):
    """The measurements of one attempt. None: not seen."""

    wall_s: float | None = None
    cpu_s: float | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class AttemptWaits(Record, kw_only=True):
    """The job's process ended well, but its outputs need more space than was reserved: they wait in the sandbox for `GrantSpace`."""

    at: float
    cause: str = ""
    attempt: str
    needed_bytes: int


class AttemptEnded(Record, kw_only=True):
    """`fitted_bytes`: where the sandbox was full, what of its outputs had been written by then. `made_at`: when its process ended, or the
    engine said that its task had, which may be before a restart; None: with this event. `notes`: what is worth telling and no failure.
    `members`: by entry that scatters over one of its outputs, what that names.
    """

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
    fitted_bytes: int | None = None
    made_at: float | None = None
    notes: tuple[str, ...] = ()
    members: dict[str, Rows] = {}


class Woken(Record, kw_only=True):
    """The time asked for with WakeAt has come."""

    at: float
    cause: str = ""


Event = (
    SchedulerStarted
    | PolicySet
    | TenantsSet
    | ResultsKept
    | NodeReported
    | NodeLost
    | HostReported
    | HostLost
    | HostDraining
    | HostGone
    | NodeGone
    | NodeDraining
    | CapacityChanged
    | RunSubmitted
    | RunResumed
    | RunScattered
    | RunDrained
    | RunStopped
    | RunCancelled
    | JobCalled
    | CallFailed
    | EngineRunEnded
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
