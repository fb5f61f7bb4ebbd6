"""The Machine's memory: nodes, files and their copies, runs and their jobs, transfers, attempts, and the queues that make each decision
O(log n).

May know: the model and planning. One rule: only accounting.py and the apply modules change it; queues are lazy: an entry may be out of date
and is checked when it is taken. A comment beside a field says what holds after each event, and invariants.py checks it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stager.model.errors import Fault
from stager.model.files import Destination, FileKind, Source
from stager.model.record import StateEntry
from stager.model.scatter import Rows
from stager.model.topology import Host
from stager.model.workflow import Graph, Workflow
from stager.planning.budget import Budget
from stager.planning.plan import FilePlan, GuessedJob, Plan
from stager.planning.policy import Limits, Policy
from stager.planning.space import SpaceProfile
from stager.scheduler.attempt_entry import AttemptEntry as AttemptEntry
from stager.scheduler.budget_entry import BudgetEntry
from stager.scheduler.commands import Purpose, RunOutcome
from stager.scheduler.events import EngineOutcome
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.spill_entry import ErasedSpill
from stager.scheduler.states import ACTIVE, DONE, ENDED, PRESENT, CopyState, JobState, RunState, TransferState
from stager.scheduler.stripe_entries import PartEntry, StripedFetch
from stager.scheduler.tenant_entry import TenantEntry

NEVER = 1 << 62
RUN_STRIDE = 1 << 32
BRINGING = (Purpose.DEMAND, Purpose.PREFETCH, Purpose.EXTRA_COPY, Purpose.MOVE, Purpose.RELAY)


class Copy(StateEntry):
    """One file on one node. `pins` counts admitted jobs and uploads that need it; `span` is what it adds to the run's space profile while
    it is ahead of its use. `extra_copy`: it is there against the loss of another node, and nobody has read it. `kept`: it is one of as many
    as the policy wants, and goes last. `idle`: it may go when there is need of room. `result_rank`: it is there for later runs only, and
    goes first, of several the one of the greatest rank; 0: it is not.
    """

    state: CopyState
    generation: str  # empty only while WANTED
    size_bytes: int
    pins: int = 0  # as many as admitted and running jobs hold, and transfers that read it; none while DELETING, some while WANTED
    prefetched: bool = False
    span: tuple[str, int, int] | None = None
    extra_copy: bool = False
    kept: bool = False
    idle: bool = False  # only PRESENT without pins
    result_rank: int = 0  # only while idle


class Retries(StateEntry):
    """Tries of one direction of one file. `fault`: given up for it.

    `copies_failed` are those of copies from other nodes, `failures` those of this source that answered; `outages` those in a row of
    sources that could not be reached, `outages_here` of this one, since `away_since`. `hopeless`: numbers of the sources not to be tried
    again, `rounds`: how often all others were. `had_by`: runs that waited for it before this one, in the same row. `last`: what `origin`
    met, at `last_at`.
    """

    failures: int = 0
    not_before: float = 0.0
    fault: Fault | None = None
    transfer: str = ""
    outages: int = 0
    outages_here: int = 0
    away_since: float | None = None
    hopeless: list[int] = []
    rounds: int = 0
    had_by: list[str] = []
    last: Fault | None = None
    origin: str = ""
    copies_failed: int = 0
    last_at: float = 0.0


@dataclass(slots=True)
class HeldAt:
    """A content seen at an origin, verified there."""

    origin: str
    path: str
    token: str
    verified: str
    synced: str = ""


class FileEntry(StateEntry):
    """`run` makes it. An external file may be shared by many runs: `run` is the one whose `lfn`, `sources` and tries (`fetch`) these are.

    `uses` are (order key, run, job) of its readers, sorted; `use_at` skips those that are done. A produced file is remembered by content:
    `blake3` of its first making. `whole`: stripes were given up, so one node is to fetch it, until it was had.
    `extra_copies`: how many were begun. `left`: an earlier making of it that we wrote at its destination. `made_at`: when the making that
    counts was made; 0 of an external one. `remake_s`: what its making took, and what its inputs would cost.

    `links`: of a file that other runs took over from the one that made it, all of these runs, each with its name for it. `run` answers for
    it: one of them that is active, if any is. `kept_at`: since when it is there for later runs only. `tenant`: of a file whose run is not
    known any more.

    `lender`: of a final, the file of another run with the same content, whose copies go to its place. `lent_to`: finals it is lent to.
    """

    id: str
    lfn: str
    run: str
    size_bytes: int
    kind: FileKind = FileKind.FILE
    executable: bool = False
    sha256: str = ""
    blake3: str = ""
    sources: tuple[Source, ...] = ()
    source_at: int = 0
    producer: str = ""
    destination: Destination | None = None
    durable: HeldAt | None = None
    spilled: HeldAt | None = None
    uses: list[tuple[int, str, str]] = []  # sorted
    use_at: int = 0  # within `uses`
    copies: dict[str, Copy] = {}  # by node, each of them known
    fetch: Retries | None = None
    upload: Retries | None = None
    spilling: str = ""  # empty, or a transfer of it that is under way
    live_bytes: int = 0  # at most `size_bytes`
    whole: bool = False
    extra_copies: int = 0
    moves_failed: int = 0
    left: HeldAt | None = None
    made_at: float = 0.0
    remake_s: float = 0.0
    links: dict[str, str] = {}
    kept_at: float = 0.0
    tenant: str = ""
    lender: str = ""
    lent_to: dict[str, None] = {}  # exactly those whose `lender` it is
    is_external: bool = False  # by its id; a field, since it is asked for at each change of each copy

    def __post_init__(self) -> None:
        self.is_external = self.id[0] == "x"


class JobEntry(StateEntry):
    """`outages`: attempts in a row that met an origin away which they were to read directly, since `away_since`.

    Of an engine's job: its newest `call`, since `called_at`; `call_open`: that is not over. `fault`: why it is over, of one that is not
    done. `pins_only`: it wants no directory with its inputs. `reused_from`: the run that made what it would make, where that stands for it.
    `awaits`: the same job of an earlier run, as (run, job), that goes on: this one waits for what it makes, and neither runs nor is ready.
    """

    id: str
    run: str
    order: int
    node: str
    reserve_bytes: int
    state: JobState = JobState.WAITING
    waits_for: int = 0  # parents that are not DONE, until it is admitted
    inputs_missing: int = 0  # while ADMITTED: pinned copies that are not PRESENT
    attempts: int = 0
    failures: int = 0
    attempt: str = ""  # while RUNNING: one of the attempts under way
    not_before: float = 0.0
    fault: Fault | None = None
    early_span: tuple[int, int, int] | None = None
    rehomed: int = 0  # how often
    outages: int = 0
    away_since: float | None = None
    call: str = ""
    call_open: bool = False
    called_at: float = 0.0
    calls_before: tuple[str, ...] = ()
    pins_only: bool = False
    reused_from: str = ""  # only while DONE
    awaits: tuple[str, str] | None = None  # only while WAITING


class TransferEntry(StateEntry):
    """`source`: the node it is copied from; empty for what goes from or to an origin. `copy`: what is read, pinned for as long.
    `assembles`: it makes the file of its parts on several nodes. `old`: what it moves is no longer what the file is. `reads`: the file
    whose copy is read, where that is another.
    """

    id: str
    node: str
    file: str
    run: str
    purpose: Purpose
    origin: str
    path: str
    size_bytes: int
    started_at: float
    state: TransferState = TransferState.UNDER_WAY  # of one that brings a replica, as its copy: FETCHING or CANCELLING
    copy: Copy | None = None  # None only of what comes from an origin, or is assembled
    source: str = ""
    assembles: bool = False
    old: bool = False
    reads: str = ""

    @property
    def cancelled(self) -> bool:
        return self.state is TransferState.CANCELLING

    @property
    def is_fetch(self) -> bool:
        """Whether it brings a replica to its node, from wherever."""
        return self.purpose in BRINGING

    @property
    def on_line(self) -> bool:
        """Whether its node fetches it from an origin itself, and whole."""
        return self.is_fetch and not self.source and not self.assembles

    @property
    def file_read(self) -> str:
        return self.reads or self.file

    @property
    def reads_on(self) -> str:
        """The node whose copy it reads: of a copy its source, of an upload its own."""
        return self.source or self.node


@dataclass(slots=True)
class RunEntry:
    """`shared`: its names of external files that are another run's now (`FileEntry.run`). `head` is the first order whose job has not
    ended; `live_bytes` what its produced files hold that nothing else could give back, `promised_bytes` what its admitted and running jobs
    may add.

    `direct`: its names of the files that its plan has read directly. `inputs` (looked up once) and `pinned` (of admitted and running jobs)
    are by job, and not in it: a job names others, it holds none. `footprints_bytes`: what each job needs at once, inputs and outputs, by
    order; empty until somebody asks. `stays_from`: by node, its capacity and cores, and from which place on the inputs of each job may come
    there (planning/staying.py). `fell_back`: its names of files that were to be read directly, and why they are not; `direct_bytes`: what
    done jobs were predicted to read directly. `adopted_bytes`: finals that were at their destination already. `finals_superseded`: those
    that do not go home, since what is there was changed after they were made, while we were away.

    `ids`: how its external files are named (`RunSubmitted`). Of an engine's run (`is_engines`): how it ended (`engine_outcome`), and when
    it was heard of last. `attempts_before`: of a run whose definition changed, how often its jobs had been tried by then, also those that
    it does not have any more. `passed`: as in `RunSubmitted`, of variables that had the same value whenever the run was resumed.
    """

    id: str
    sequence: int
    workflow: Workflow
    plan: Plan
    graph: Graph
    submitted_at: float
    file_ids: dict[str, str]
    jobs: dict[str, JobEntry]
    by_order: list[str]
    planned: dict[str, FilePlan]
    direct: frozenset[str]
    shared: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[FileEntry]] = field(default_factory=dict)
    footprints_bytes: list[int] = field(default_factory=list)  # inputs and reserved outputs of each job
    stays_from: dict[str, tuple[int, int, list[int]]] = field(default_factory=dict)
    pinned: dict[str, list[tuple[FileEntry, Copy]]] = field(default_factory=dict)  # of ADMITTED jobs: all their inputs
    state: RunState = ACTIVE
    outcome: RunOutcome | None = None  # not None exactly while FINISHED
    fault: Fault | None = None
    finished_at: float = 0.0
    head: int = 0  # all before it have ended, it has not
    unended: int = 0  # jobs that have not ended
    failed: int = 0  # jobs that are FAILED or SKIPPED
    attempts_live: int = 0  # its attempts under way
    finals_open: dict[str, None] = field(default_factory=dict)  # none of them durable
    finals_given_up: dict[str, Fault] = field(default_factory=dict)
    finals_superseded: dict[str, Fault] = field(default_factory=dict)
    live_bytes: int = 0  # sum over the files it makes
    promised_bytes: int = 0  # sum over its admitted jobs and its attempts
    safety: SpaceProfile | None = None
    largest_bytes: int = 0
    largest_footprint_bytes: int = 0
    ahead: SpaceProfile | None = None
    uploads_live: int = 0  # its uploads under way, without spills
    interrupted_s: float = 0.0
    interrupted_by: str = ""
    ids: int = 1
    fetched_bytes: int = 0
    fetches: int = 0
    copied_bytes: int = 0
    uploaded_bytes: int = 0
    adopted_bytes: int = 0
    read_bytes: int = 0
    fell_back: dict[str, str] = field(default_factory=dict)
    direct_bytes: int = 0
    engine_outcome: EngineOutcome | None = None
    heard_at: float = 0.0
    attempts_before: dict[str, int] = field(default_factory=dict)
    is_engines: bool = False
    tenant: str = ""
    priority: int = 0
    passed: dict[str, str] = field(default_factory=dict)
    budget: Budget | None = None
    spent: BudgetEntry | None = None  # where there is a budget
    members: dict[str, Rows] = field(default_factory=dict)  # by entry, those of which its jobs have not been made yet
    assumed: frozenset[str] = frozenset()  # jobs that stand for such: none of them has begun
    guessed: dict[str, GuessedJob] = field(default_factory=dict)  # by job, as in `Sharing`

    @property
    def lane(self) -> tuple[str, int]:
        """Of the queues of a node, the one that its jobs wait in."""
        return self.tenant, -self.priority

    def reads_directly(self, lfn: str) -> bool:
        """Whether its jobs read this file at its origin, so that no node ever holds it for them."""
        return lfn in self.direct and lfn not in self.fell_back

    def key(self, order: int) -> int:
        return self.sequence * RUN_STRIDE + order

    @property
    def may_start(self) -> bool:
        """Whether jobs of this run may be admitted and started now."""
        return self.state is ACTIVE and self.engine_outcome is None


@dataclass(slots=True)
class State:
    policy: Policy
    limits: Limits
    now: float = 0.0
    epoch: int = 0
    started_at: float = 0.0  # the scheduler that lives now
    events_seen: int = 0
    commands_made: int = 0
    stale: int = 0
    # Transitions that no table allows, and how often each was made. Always empty.
    illegal: dict[str, int] = field(default_factory=dict)
    runs_seen: int = 0
    wake_at: float | None = None
    spare: dict[str, None] = field(default_factory=dict)  # nodes that could have done with more when they were last worked
    looked_at: float = -1.0  # when no job was found that one of these would have sooner
    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    # Each with a run, and each that was set.
    tenants: dict[str, TenantEntry] = field(default_factory=dict)
    # A host was reported once: all cores are those of hosts. The node of each host that is not gone. When the newest of them came.
    on_hosts: bool = False
    hosts: dict[str, str] = field(default_factory=dict)
    host_came_at: float = 0.0
    # READY jobs that are in no queue: by their node, those that wait for one of its hosts; under "" those that no node can take now.
    parked: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    stranded: list[str] = field(default_factory=list)  # nodes that have a host less for their jobs to wait for; empty after each event
    # The one that was gone last, and why; and whose jobs alone ran there.
    host_gone: tuple[Host, str] | None = None
    host_gone_of: str = ""
    files: dict[str, FileEntry] = field(default_factory=dict)
    runs: dict[str, RunEntry] = field(default_factory=dict)
    active: dict[str, None] = field(default_factory=dict)  # exactly the runs that are not FINISHED
    budgeted: dict[str, None] = field(default_factory=dict)  # those of them that have a budget
    attempts: dict[str, AttemptEntry] = field(default_factory=dict)
    transfers: dict[str, TransferEntry] = field(default_factory=dict)  # under way or CANCELLING
    relay_waits: dict[str, None] = field(default_factory=dict)  # files that lacked room on a node that reaches their place
    relaying: dict[str, None] = field(default_factory=dict)  # exactly those under way that were begun for a final
    paused_origins: dict[tuple[str, ...], Fault] = field(default_factory=dict)
    due_uploads: list[tuple[int, str]] = field(default_factory=list)
    uploads_live: int = 0  # transfers that bring no replica
    useless: list[tuple[str, str, str]] = field(default_factory=list)
    to_fetch: list[tuple[str, str]] = field(default_factory=list)
    spills_to_erase: list[tuple[str, HeldAt, str]] = field(default_factory=list)
    # By run and job, the jobs of later runs that wait for what it makes. Those of them that ended: empty after each event.
    awaited: dict[str, dict[str, list[tuple[str, str]]]] = field(default_factory=dict)
    awaited_ended: list[tuple[str, str]] = field(default_factory=list)
    done_of_guess: list[tuple[str, str]] = field(default_factory=list)  # (run, job) where the run has guesses: empty after each event
    lost: list[tuple[str, str]] = field(default_factory=list)  # empty after each event
    timers: list[tuple[float, str, str, str]] = field(default_factory=list)
    finish_checks: dict[str, None] = field(default_factory=dict)
    # (file, whether its upload) of transfers that failed and are tried again; an entry may be out of date.
    retrying: dict[tuple[str, bool], None] = field(default_factory=dict)
    # By the identity of an origin: when it was last reached, as far as something was being tried again then. Those that were not reached
    # since a transfer met nobody there; and of these, those that were reached by this very event.
    reached: dict[tuple[str, ...], float] = field(default_factory=dict)
    away: dict[tuple[str, ...], None] = field(default_factory=dict)
    back: list[tuple[str, ...]] = field(default_factory=list)
    striped: dict[str, StripedFetch] = field(default_factory=dict)
    parts: dict[str, PartEntry] = field(default_factory=dict)
    # By what was to assemble them, why: parts of which one was lost. Empty after each event, as is what nobody will assemble.
    broken_stripes: dict[str, str] = field(default_factory=dict)
    orphaned_parts: list[str] = field(default_factory=list)
    # Intermediates that may want an extra copy, by their next use; and the transfers of extra copies. Both may be out of date.
    to_replicate: list[tuple[int, str]] = field(default_factory=list)
    replicating: dict[str, None] = field(default_factory=dict)
    # Transfers that move intermediates to other nodes: may be out of date. (node, file) of those that were moved: empty after each event.
    moving: dict[str, None] = field(default_factory=dict)
    moved: list[tuple[str, str]] = field(default_factory=list)
    # Nodes that take no jobs: gone, draining, or never heard of but in a plan.
    closed: dict[str, None] = field(default_factory=dict)
    # By origin and path: spills that a node was asked to erase and has not yet.
    erasing: dict[tuple[str, str], ErasedSpill] = field(default_factory=dict)
    # Of the nodes that can be reached. None: one came, went or changed its own since they were last asked for.
    capacities_bytes: list[int] | None = None

    def job(self, run: str, job: str) -> JobEntry:
        return self.runs[run].jobs[job]

    def file_of(self, run: str, lfn: str) -> FileEntry:
        return self.files[self.runs[run].file_ids[lfn]]

    def enter_node(self, name: str) -> NodeEntry:
        """Known from now on, if it was not; it takes no jobs before it has reported."""
        if name not in self.nodes:
            self.nodes[name] = NodeEntry(name, cores=0 if self.on_hosts else self.limits.cores)
            self.closed[name] = None
        return self.nodes[name]

    def want(self, node: str, file: FileEntry) -> None:
        """Its transfer to this node is to be begun, if it is still wanted there."""
        self.to_fetch.append((node, file.id))
        self.nodes[node].dirty = True

    def paused(self, run: str, origin: str) -> Fault | None:
        """The denial for which an origin of this run is left alone, whichever run met it and whatever that calls the origin."""
        return self.paused_origins.get(self.runs[run].workflow.origins[origin].identity) if self.paused_origins else None

    def origin_identity(self, run: str, origin: str) -> tuple[str, ...]:
        """The identity of an origin of this run, whatever that calls it. Empty: it is none of its origins."""
        found = self.runs[run].workflow.origins.get(origin) if run in self.runs else None
        return found.identity if found is not None else ()

    def reopen_origins(self, run: RunEntry) -> None:
        """Those of this run, which may have brought new credentials."""
        for origin in run.workflow.origins.values():
            self.paused_origins.pop(origin.identity, None)

    def next_use(self, file: FileEntry) -> int:
        """Order key of the first reader that has to run in an active run, or NEVER. Amortised O(1): `use_at` moves over ended uses."""
        uses, at = file.uses, file.use_at
        while at < len(uses):
            # As `use_is_over`, written out: this is asked ten times for each job of a run.
            order, run_id, job_id = uses[at]
            run = self.runs.get(run_id)
            if run is not None and run.jobs[job_id].state is not DONE and (run.outcome is None or run.outcome not in OVER):
                return order
            at = file.use_at = at + 1
        return NEVER

    def use_is_over(self, use: tuple[int, str, str]) -> bool:
        run = self.runs.get(use[1])
        return run is None or run.jobs[use[2]].state is DONE or run.outcome in OVER

    def can_be_had(self, file: FileEntry) -> bool:
        """From an origin, without its producer."""
        return file.spilled is not None or file.durable is not None or file.source_at < len(file.sources)

    def holds_only_copy(self, file: FileEntry) -> bool:
        """Deleting its copy would lose content."""
        return not (len(file.copies) > 1 and self.holders(file) > 1) and self.is_nowhere_else(file)

    def is_nowhere_else(self, file: FileEntry) -> bool:
        """Than on nodes. Work of a run that has ended can be made again if it is resumed; its unflushed finals cannot be counted on."""
        if file.lent_to and self.is_lent(file):
            return True
        if file.is_external or file.durable is not None or file.spilled is not None:
            return False
        run = self.runs.get(file.run)
        if run is None or (run.outcome is not None and run.outcome in OVER):
            return False
        if file.destination is not None and self.owes_upload(file):
            return True
        if run.is_engines:
            return run.id in self.active and run.engine_outcome is None
        if file.destination is None and self.next_use(file) == NEVER:
            # Nobody will read it: it is there for later runs.
            return False
        return run.id in self.active and not (run.failed and self.only_ended_jobs_want(file))

    def stays(self, file: FileEntry) -> bool:
        """Made for an engine, which may call any job again until its run is over, and after that if it failed. Or it is to be had nowhere
        else, since it was superseded at its destination.
        """
        run = None if file.is_external else self.runs.get(file.run)
        if run is not None and file.id in run.finals_superseded and run.outcome is not RunOutcome.CANCELLED:
            return True
        return run is not None and run.is_engines and run.outcome not in OVER and run.engine_outcome is not EngineOutcome.SUCCEEDED

    def holders(self, file: FileEntry) -> int:
        """Nodes that can be reached and hold it."""
        return sum(copy.state is PRESENT and self.nodes[node].reachable for node, copy in file.copies.items())

    def is_lent(self, file: FileEntry) -> bool:
        """A final of another run goes home of it."""
        return bool(file.lent_to) and any(self.owes_upload(self.files[final]) for final in file.lent_to)

    def holding(self, file: FileEntry) -> FileEntry:
        """The entry whose copies have its content."""
        return self.files[file.lender] if file.lender else file

    def owes_upload(self, file: FileEntry) -> bool:
        """A final that is not at its destination yet and is to get there, of a run that was not called off."""
        if file.destination is None or file.durable is not None:
            return False
        run = self.runs.get(file.run)
        return run is not None and run.outcome not in OVER and file.id not in run.finals_superseded

    def only_ended_jobs_want(self, file: FileEntry) -> bool:
        return all(self.runs[run].jobs[job].state in ENDED for _, run, job in file.uses[file.use_at :] if run in self.active)


OVER = frozenset({RunOutcome.SUCCEEDED, RunOutcome.CANCELLED})
