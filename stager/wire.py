"""What the scheduler and its clients say to each other: the bodies of the REST API.

May know: the pure rooms. One rule: secrets travel in `Credentials` only, which never shows them and is never written anywhere.
Bodies that hold whole workflows are msgspec values (100,000 jobs in well under a second); everything else is pydantic.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from stager.model.errors import ErrorClass, Fault
from stager.model.workflow import Origin, Workflow
from stager.planning.plan import Plan

API_VERSION = 1
HOST = "stager"


class Credentials(msgspec.Struct, frozen=True):
    """What the submitter's environment gives a run.

    `origins`: the node's configuration of each origin, by its name (docs/formats/ionode-api.md). `env`: the variables named by `env_pass`.
    """

    origins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Credentials(origins={sorted(self.origins)}, env={sorted(self.env)})"


class SubmitRequest(msgspec.Struct, frozen=True):
    """`submit_id` makes a repeated submit answer with the run it made before."""

    workflow: Workflow
    plan: Plan
    credentials: Credentials = Credentials()
    submit_id: str = ""


class ResumeRequest(msgspec.Struct, frozen=True):
    credentials: Credentials = Credentials()


def encode(value: Any) -> bytes:
    """JSON of a body, a workflow or a plan as it travels; plans on paper are planning.plan_json's."""
    return msgspec.json.encode(value)


def builtins_of(value: Any) -> Any:
    """A value of the model as plain JSON values, for a place in a pydantic body."""
    return msgspec.to_builtins(value)


def decode_submit(body: bytes) -> SubmitRequest:
    return msgspec.json.decode(body, type=SubmitRequest)


def decode_resume(body: bytes) -> ResumeRequest:
    return msgspec.json.decode(body or b"{}", type=ResumeRequest)


def decode_workflow(body: bytes) -> Workflow:
    return msgspec.json.decode(body, type=Workflow)


def decode_plan(body: bytes) -> Plan:
    return msgspec.json.decode(body, type=Plan)


class Body(BaseModel):
    """Unknown keys of a newer scheduler are ignored by an older client."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ErrorBody(Body):
    """The same shape as the I/O node's errors; `class` is a word of Python, so it has an alias."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    error_class: ErrorClass = Field(alias="class")
    code: str
    message: str
    subject: str = ""

    @classmethod
    def of(cls, fault: Fault) -> ErrorBody:
        return cls(error_class=fault.error_class, code=fault.code, message=fault.message, subject=fault.subject)

    def fault(self) -> Fault:
        return Fault(self.error_class, self.code, self.message, self.subject)


class ErrorResponse(Body):
    error: ErrorBody


class NodeView(Body):
    """`connected` False: it does not answer right now; the numbers are then the last known."""

    node: str
    connected: bool
    incarnation: str = ""
    pid: int | None = None
    capacity_bytes: int = 0
    used_bytes: int = 0
    reserved_bytes: int = 0
    can_link: bool = False


class Health(Body):
    """Answered by GET /v1/health as soon as the scheduler holds the lock; `ready` once the journal is replayed and runs go on."""

    api: int
    version: str
    pid: int
    state_dir: str
    ready: bool
    epoch: int
    started_at: float
    active_runs: list[str]
    nodes: list[NodeView]
    stale: dict[str, int] = {}


class SubmitResponse(Body):
    run: str


class RunInfo(Body):
    """One line of `stager runs`. `state`: active | draining | succeeded | failed | not_durable | refused | interrupted | cancelled.
    `tenant` empty: submitted over the owner's socket.
    """

    run: str
    workflow: str
    state: str
    submitted_at: float
    finished_at: float | None = None
    jobs_total: int = 0
    jobs_done: int = 0
    source_path: str = ""
    removed: bool = False
    tenant: str = ""


class RunList(Body):
    runs: list[RunInfo]


class TransferView(Body):
    """`direction`: fetch | copy | upload; of a copy `origin` is the node that it comes from. Bytes are telemetry of the node, not yet a
    fact.
    """

    transfer: str
    direction: str
    lfn: str
    state: str
    purpose: str = ""
    origin: str = ""
    bytes_done: int = 0
    bytes_total: int = 0


class RunningJob(Body):
    job: str
    attempt: str
    number: int
    started_at: float
    call: str = ""


class CallRequest(Body):
    """`pins`: its inputs are to be held on their node, not copied. `message`: of one that failed."""

    job: str
    call: str
    pins: bool = False
    wait_s: float = 20.0
    message: str = ""


class EndRequest(Body):
    succeeded: bool
    message: str = ""


class CallState(StrEnum):
    """WAITING: for its inputs, for room, or for another call that is to publish. STAGED: its task may go on. PUBLISHING: it ended well, and
    what it made is being taken. DONE: that is there. REFUSED: the call is over without that, see its fault.
    """

    WAITING = "waiting"
    STAGED = "staged"
    PUBLISHING = "publishing"
    DONE = "done"
    REFUSED = "refused"


class CalledFile(Body):
    """`path`: in the call's directory, absolute; empty for an input that is only held on the node, as this replica of it."""

    lfn: str
    path: str
    file: str = ""
    generation: str = ""


class CallView(Body):
    """One call of an engine. `directory`: for its task, as long as it is staged: its inputs are there, its outputs are taken from there."""

    run: str
    job: str
    call: str
    state: CallState
    node: str = ""
    directory: str = ""
    inputs: list[CalledFile] = []
    outputs: list[CalledFile] = []
    fault: ErrorBody | None = None


class Place(Body):
    origin: str
    path: str


class FileWhere(Body):
    """`standing`: as in the ledger, or `external`. `places`: where an external is, or a final is to be. `nodes`: that hold it."""

    run: str
    lfn: str
    standing: str
    nodes: list[str]
    places: list[Place]
    size_bytes: int | None


class FileCounts(Body):
    files: int = 0
    size_bytes: int = 0


class LedgerTotals(Body):
    """Of produced files that are still needed or final.

    `at_risk`: on no verified disk yet. `safe`: on a node. `written`: at the origin, checked by size only. `durable`: verified there.
    """

    at_risk: FileCounts = FileCounts()
    safe: FileCounts = FileCounts()
    written: FileCounts = FileCounts()
    durable: FileCounts = FileCounts()


class WaitingView(Body):
    """Transfers that failed for one reason at one origin and are tried again.

    `since_s`: for how long it could not be reached; None: it answers. `next_try_s`: until the next of them is tried, 0 while one is.
    """

    origin: str
    code: str
    reason: str
    fetches: int
    uploads: int
    since_s: float | None
    next_try_s: float
    message: str


class RunStatus(Body):
    info: RunInfo
    jobs: dict[str, int]
    finals_total: int
    finals_durable: int
    ledger: LedgerTotals
    fetched_bytes: int
    fetch_bytes_planned: int
    uploaded_bytes: int
    upload_bytes_planned: int
    fetch_bytes_per_s: float
    upload_bytes_per_s: float
    eta_s: float | None
    transfers: list[TransferView]
    running: list[RunningJob]
    problems: list[ErrorBody]
    nodes: list[NodeView]
    waiting: list[WaitingView] = []
    hit_rate: float | None = None


class RunSummary(Body):
    """What a run cost, written when it finishes.

    `wall_s`: from submit to end; `interrupted_s` of it the run had ended and was not yet resumed.
    `hit_rate` (in `RunStatus`: so far): share of the bytes handed to jobs that were not fetched for this run or read in place.
    `read_in_place_bytes`: as the plan foretold it of the jobs that are done; what passes a mount nobody counts. `finals`: how many, by how
    they were verified.
    `adopted_bytes`: of finals that were at their destination already, which nobody uploaded.
    """

    run: str
    workflow: str
    outcome: str
    fault: ErrorBody | None = None
    submitted_at: float
    finished_at: float
    wall_s: float
    interrupted_s: float = 0.0
    jobs_total: int
    jobs_done: int
    jobs_failed: int
    attempts: int
    fetched_bytes: int
    staged_bytes: int
    read_bytes: int | None
    uploaded_bytes: int
    hit_rate: float | None
    finals_total: int
    finals_durable: int
    finals: dict[str, int]
    finals_missing: list[str]
    predicted_wall_s: float | None = None
    read_in_place_bytes: int = 0
    adopted_bytes: int = 0


class LedgerEntry(Body):
    """`state`: not_made | at_risk | safe | written | durable | released (an intermediate whose last reader is done)."""

    lfn: str
    state: str
    size_bytes: int | None = None
    blake3: str = ""
    final: bool = False
    origin: str = ""
    path: str = ""
    verified: str = ""
    token: str = ""
    fault: str = ""


class Ledger(Body):
    run: str
    files: list[LedgerEntry]


class WaitResponse(Body):
    """`finished` with the outcome, or after the timeout not; with an lfn asked for, `durable` tells of that file."""

    run: str
    finished: bool
    state: str
    fault: ErrorBody | None = None
    durable: bool | None = None


class JobView(Body):
    job: str
    job_type: str
    state: str
    attempts: int
    exit_code: int | None = None
    fault: ErrorBody | None = None


class JobList(Body):
    run: str
    jobs: list[JobView]


class AttemptLog(Body):
    """Paths on the scheduler's host; `text` is the last `tail_bytes` of it."""

    attempt: str
    stream: str
    path: str
    size_bytes: int
    text: str


class JobLogs(Body):
    run: str
    job: str
    logs: list[AttemptLog]


class ProgressEvent(Body):
    """One step of a run, for those who follow it. `kind` is the event's or command's class name in snake case. `transfer`: which, of steps
    of one. `outcome`: of an attempt or a run that ended. `duration_s`: what a transfer took.
    """

    seq: int
    at: float
    run: str
    kind: str
    subject: str = ""
    text: str = ""
    transfer: str = ""
    outcome: str = ""
    duration_s: float | None = None


class ProgressPage(Body):
    """`gap`: more happened than is kept; read the status again."""

    events: list[ProgressEvent]
    next_seq: int
    gap: bool = False


class RunNeeds(Body):
    """What a resume has to bring: the origins to resolve and the variables to pass."""

    run: str
    origins: list[dict[str, Any]]
    env_pass: list[str]

    def origin_values(self) -> list[Origin]:
        return [msgspec.convert(entry, Origin) for entry in self.origins]


class Losses(Body):
    """What a cancel would lose: produced bytes that are not durable."""

    run: str
    files: list[str]
    size_bytes: int
    jobs_running: int


class GcRequest(Body):
    """`runs` empty: all that finished for good. `cache`: also drop replicas that no unfinished run needs."""

    runs: list[str] = []
    cache: bool = False
    dry_run: bool = False


class GcReport(Body):
    runs: list[str]
    freed_bytes: int
    replicas: int
    journal_compacted: bool


class Explanation(Body):
    """The story of one file or job: what happened, in order, each with its cause."""

    subject: str
    lines: list[str]


class AttemptSpan(Body):
    """One attempt that ended, in seconds since the run was submitted."""

    job: str
    job_type: str
    begun_s: float
    ended_s: float
    outcome: str


class MoveSpan(Body):
    """One transfer that ended well. `verified`: how an upload was."""

    direction: str
    lfn: str
    origin: str
    size_bytes: int
    begun_s: float
    ended_s: float
    verified: str = ""


class RunHistory(Body):
    """What a run did, read from the journal. `occupancy`: bytes on all nodes together after each change, those of other runs included.

    `belady_hit_rate` and `best_hit_rate`: of the same reads in the same order, by Belady's rule and at most; None: nothing was read.
    """

    run: str
    nodes: list[str]
    cores: int
    memory_bytes: int | None
    capacity_bytes: int
    attempts: list[AttemptSpan]
    moves: list[MoveSpan]
    occupancy: list[tuple[float, int]]
    belady_hit_rate: float | None
    best_hit_rate: float | None
