"""Bodies about a run as it stands: its state, jobs, transfers, ledger, logs. One rule: telemetry is told apart from facts."""

from __future__ import annotations

from stager.wire.admin import NodeView
from stager.wire.body import Body, ErrorBody
from stager.wire.money import BudgetView


class RunInfo(Body):
    """One line of `stager runs`. `state`: active | draining | succeeded | failed | not_durable | refused | interrupted | cancelled.
    `tenant` empty: submitted over the owner's socket. `took_s`: until it ended, or until now, by the scheduler's clock, which need not be
    that of who reads this. `part_of`: what an engine calls that of which the run is a part. `parts`: so many runs are told in this line;
    with more than one, `run` is the first of them, times and jobs are of all, and `state` is that of what goes on, else the worst.
    `jobs_reused`: of those that are done, what earlier runs made; 0 of a run that the scheduler knows by its record only.
    """

    run: str
    workflow: str
    state: str
    submitted_at: float
    finished_at: float | None = None
    took_s: float = 0.0
    jobs_total: int = 0
    jobs_done: int = 0
    jobs_reused: int = 0
    source_path: str = ""
    removed: bool = False
    tenant: str = ""
    part_of: str = ""
    parts: int = 1


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


class FileCounts(Body):
    files: int = 0
    size_bytes: int = 0


class LedgerTotals(Body):
    """Of produced files that are still needed or final.

    `at_risk`: on no verified disk yet. `safe`: on a node. `written`: at the origin, checked by size only. `durable`: verified there.
    `superseded`: it does not replace what is newer at its destination. `kept`: no longer needed, and on a node for later runs until its
    room is wanted.
    """

    at_risk: FileCounts = FileCounts()
    safe: FileCounts = FileCounts()
    written: FileCounts = FileCounts()
    durable: FileCounts = FileCounts()
    superseded: FileCounts = FileCounts()
    kept: FileCounts = FileCounts()


class WaitingView(Body):
    """Transfers that failed for one reason at one origin and are tried again; or a `node` that does not answer and holds what the run
    needs (code `node_away`), or is gone with what is made again (`node_gone`); or a compute `host` that does not answer
    while jobs of the run are there (`host_away`), or is gone (`host_gone`); or that no host answers (`no_host`); or an engine that says
    nothing (`engine_silent`); or a quota of the run's tenant (`quota_cores`, `quota_bytes`).

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
    node: str = ""
    host: str = ""


class RunStatus(Body):
    """`upload_bytes_guessed`: of those planned, what nobody declared, measured or made yet. `params`: the values of the parameters that
    its workflow file was read with. `budget`: of one that was submitted with a budget or a time to finish by. `jobs_assumed`: how many of
    them are only there since members are not known yet.
    """

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
    upload_bytes_guessed: int = 0
    params: dict[str, str] = {}
    budget: BudgetView | None = None
    jobs_assumed: int = 0


class LedgerEntry(Body):
    """`state`: not_made | at_risk | safe | written | durable | superseded | released (an intermediate whose last reader is done) |
    kept (one that is still there for later runs).

    `synced`: what the origin was told to put on its disk, and said it had: nothing (it cannot be told to) | content |
    content_and_name | by_server (its answer means that); empty where it is not known.
    """

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
    synced: str = ""


class Ledger(Body):
    run: str
    files: list[LedgerEntry]


class WaitResponse(Body):
    """`finished` with the outcome, or after the timeout not; with an lfn asked for, `durable` tells of that file, and `superseded` why it
    never will be, where something newer is at its destination. `interrupted_by` of one that is drained, stopped or interrupted:
    `service`, which ended, or as whom somebody asked for it.
    """

    run: str
    finished: bool
    state: str
    fault: ErrorBody | None = None
    durable: bool | None = None
    superseded: str = ""
    interrupted_by: str = ""


class JobView(Body):
    """Of its newest attempt: when it began, for how long its program ran, and the largest resident set of any one of its processes; None:
    it has not ended, or that was not measured. `running_s`: of one that runs, for how long, by the clock that `started_at` is of; who looks
    may have another. `sandbox_kept`: `stager shell` looks into what it left. `reused_from`: the run that made what stands for what it
    makes. `assumed`: it is only there since it stands for members of a scatter that are not known, or goes over what such jobs make.
    """

    job: str
    job_type: str
    state: str
    attempts: int
    exit_code: int | None = None
    fault: ErrorBody | None = None
    started_at: float | None = None
    duration_s: float | None = None
    running_s: float | None = None
    memory_peak_bytes: int | None = None
    sandbox_kept: bool = False
    reused_from: str = ""
    assumed: bool = False


class JobList(Body):
    run: str
    jobs: list[JobView]


class AttemptLog(Body):
    """Paths on the scheduler's host; `text` is the last `tail_bytes` of it, or what comes first behind the bytes that were asked for;
    `next_byte`: the one behind the text, where it is to be gone on.
    """

    attempt: str
    stream: str
    path: str
    size_bytes: int
    text: str
    next_byte: int = 0


class JobLogs(Body):
    run: str
    job: str
    logs: list[AttemptLog]


class Mount(Body):
    source: str
    target: str
    directory: bool


class ImageRoot(Body):
    """The unpacked image that was a job's root directory, and where in it the job found its sandbox."""

    root_dir: str
    sandbox_at: str


class Sandbox(Body):
    """The sandbox that a failed job left, over the owner's socket only. `directory` is used while `lock` is held shared. `program` enters
    it with `mounts`. `before`: the first words of what runs there. `env_pass`: what the job takes from its submitter besides. `missing`:
    inputs that are not on the node now.
    """

    run: str
    job: str
    number: int
    directory: str
    lock: str
    program: str
    command: list[str]
    env: dict[str, str]
    env_pass: list[str]
    mounts: list[Mount]
    missing: list[str]
    ended: str
    before: list[str] = []
    container: ImageRoot | None = None


class Losses(Body):
    """The bytes that a cancel would lose: produced ones that are not durable."""

    run: str
    files: list[str]
    size_bytes: int
    jobs_running: int
