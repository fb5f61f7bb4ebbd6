"""Bodies about what a run did: its events, its timeline, its history, what it came to. One rule: they only retell what is recorded."""

from __future__ import annotations

from stager.wire.body import Body, ErrorBody
from stager.wire.money import BudgetView


class RunSummary(Body):
    """The cost of a run, written when it finishes. `jobs_reused`: of those that are done, what earlier runs made.

    `wall_s`: from submit to end; `interrupted_s` of it the run had ended and was not yet resumed.
    `hit_rate` (in `RunStatus`: so far): share of the bytes handed to jobs that were not fetched for this run or read directly.
    `direct_read_bytes`: as the plan predicted it of the jobs that are done; what passes a mount nobody counts. `finals`: how many, by how
    they were verified.
    `adopted_bytes`: of finals that were at their destination already, which nobody uploaded. `params` and `budget`: as in `RunStatus`.
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
    jobs_reused: int = 0
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
    direct_read_bytes: int = 0
    adopted_bytes: int = 0
    finals_superseded: list[str] = []
    params: dict[str, str] = {}
    budget: BudgetView | None = None


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


class Explanation(Body):
    """The timeline of one file or job: what happened, in order, each with its cause."""

    subject: str
    lines: list[str]


class AttemptSpan(Body):
    """One attempt that ended, in seconds since the run was submitted. `host`: empty where the scheduler knew of one host only."""

    job: str
    job_type: str
    begun_s: float
    ended_s: float
    outcome: str
    host: str = ""


class HostOfRun(Body):
    """A compute host that was there while the run went on, beside its I/O node. Memory and scratch space None: not watched."""

    host: str
    node: str
    cores: int
    memory_bytes: int | None = None
    scratch_bytes: int | None = None


class MoveSpan(Body):
    """One transfer that ended well. `verified`: how an upload was."""

    direction: str
    lfn: str
    origin: str
    size_bytes: int
    begun_s: float
    ended_s: float
    verified: str = ""


class PathSpan(Body):
    """A part of the critical path, in seconds since the run was submitted. `cause`: computing | cores | fetches | copies | room | starts |
    commits | uploads | retries | engine | others | drained | interrupted | scheduler (docs/operating/cost-estimate.md). `about`: an
    origin or a node. `job` and `lfn`: whose wait it was.
    """

    begun_s: float
    ended_s: float
    cause: str
    about: str = ""
    job: str = ""
    lfn: str = ""


class RunHistory(Body):
    """The history of a run, read from the journal. `occupancy`: bytes on all nodes together after each change, those of other runs
    included. `path`: where its time went, from its submit to its end without a gap. `capacities`: of each of `nodes`, in bytes. `hosts`:
    none where jobs are processes of the scheduler's own machine and nothing else.

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
    path: list[PathSpan] = []
    capacities: dict[str, int] = {}
    hosts: list[HostOfRun] = []
