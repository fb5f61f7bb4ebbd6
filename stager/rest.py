"""The messages between `stager serve` and its clients over TCP: the bodies of /api/v1 (docs/formats/rest.md).

May know: the model, wire. One rule: what a client sends is read strictly, so that a slip is named; what it is answered may grow.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt

from stager import wire
from stager.scheduler.states import JobState

API_PREFIX = "/api/v1"
PROBLEM_TYPE = "application/problem+json"
# Of the workflow and of each file beside it: a plain name, as readers look for them.
FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$"
# Of a file that is part of a workflow's text: below the workflow file, nothing hidden.
BESIDE_NAME = r"^(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,100}/){0,8}[A-Za-z0-9_][A-Za-z0-9._-]{0,100}$"
FILES_MAX = 100
MESSAGE_MAX = 4000
KEY_PATTERN = r"^[\x21-\x7e]{1,200}$"
BY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._:/@+-]{0,99}$"
# A run that goes on is `active`, whatever it is just doing.
RunStanding = Literal["active", "succeeded", "failed", "not_durable", "refused", "interrupted", "cancelled"]
# No control characters: it is shown on terminals.
PART_OF_MAX = 600
PART_OF_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
# Of the directories of one workflow.
SENT_FILES_MAX = 10_000
DIRECTORIES_MAX = 100
PATH_MAX = 3000
PARAM_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,199}$"
PARAMS_MAX = 1000
MEMBERS_MAX = 50_000
ParamValue = Annotated[str, Field(max_length=100_000)] | StrictBool | StrictInt | StrictFloat
ParamList = Annotated[list[ParamValue], Field(max_length=MEMBERS_MAX)]
ORIGIN_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
CALL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:+@~-]{0,199}$"


class Finding(wire.Body):
    """One thing that is wrong with a submitted file, and where in it."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    message: str


class Problem(wire.Body):
    """RFC 9457. `code` is what programs look at; `key`: what of the request it is about; `fix`: what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    key: str = ""
    fix: str = ""
    findings: list[Finding] = []


class Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


COPIES_MAX = 16
NAMES_MAX = 1000
JobName = Annotated[str, Field(min_length=1, max_length=4000)]
MONEY_MAX = 60
PRIORITY_MAX = 100


class Options(Sent):
    """As those of `stager submit`: an origin where intermediates may go when space is short, plans without what was measured, no input
    read directly, where the outputs of a Pegasus workflow go, on how many I/O nodes what jobs make is to be (null: as the service says),
    its place among the runs of the same tenant (higher first), and what is not made again. `reuse`: what earlier runs of the tenant made
    (null: as the service says). `rerun`: jobs by id or type, or `all`, that run all the same. `until`: only what is needed for these jobs,
    types or files. `begin`: these jobs run, with all that follows, and nothing before them does. `verify_inputs`: nothing is believed of
    inputs because an earlier run read them. `budget`: what it may cost, as in `20 USD`; `finish_by`: an instant of RFC 3339, or as in
    `+3h`; `objective`: what decides between ways that fit; `budget_anyway`: it begins also where it may cost more, and is paused before
    it does.
    """

    spill: str | None = Field(default=None, max_length=100)
    ignore_profiles: bool = False
    no_direct: bool = False
    output_origin: str | None = Field(default=None, max_length=4000)
    copies: int | None = Field(default=None, ge=1, le=COPIES_MAX)
    priority: int = Field(default=0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    reuse: bool | None = None
    rerun: list[JobName] = Field(default=[], max_length=NAMES_MAX)
    until: list[JobName] = Field(default=[], max_length=NAMES_MAX)
    begin: list[JobName] = Field(default=[], max_length=NAMES_MAX)
    verify_inputs: bool = False
    budget: str | None = Field(default=None, max_length=MONEY_MAX)
    finish_by: str | None = Field(default=None, max_length=MONEY_MAX)
    objective: Literal["time", "cost"] | None = None
    budget_anyway: bool = False


class Content(Sent):
    sha256: Annotated[str, Field(pattern=DIGEST_PATTERN)]
    size_bytes: Annotated[int, Field(ge=0, le=1 << 53, strict=True)]


class SentFile(Content):
    """A file of a directory, whose content was sent before."""

    path: Annotated[str, Field(min_length=1, max_length=PATH_MAX)]
    executable: Annotated[bool, Field(strict=True)] = False


class WorkflowText(Sent):
    """A workflow as text. `format`: what it is taken for, told by its content where nothing is said. `files`: the catalogs of a Pegasus
    workflow, or the files that are part of a native one, by their names from where it lies. `directories`: by the names of `file:`
    origins, `here` among them, the files of directories that are the sender's. `params`: values of its parameters.
    """

    workflow: str = Field(min_length=1)
    file_name: Annotated[str, Field(pattern=FILE_NAME)] = "workflow.yml"
    format: Literal["native", "pegasus", "wfcommons"] | None = None
    files: dict[Annotated[str, Field(pattern=BESIDE_NAME)], str] = Field(default={}, max_length=FILES_MAX)
    directories: dict[Annotated[str, Field(pattern=ORIGIN_NAME)], list[SentFile]] = Field(default={}, max_length=DIRECTORIES_MAX)
    params: dict[Annotated[str, Field(pattern=PARAM_NAME)], ParamValue | ParamList] = Field(default={}, max_length=PARAMS_MAX)
    options: Options = Options()


class Submission(WorkflowText):
    """`env`: values of the variables that jobs name in `env_pass`; the service has none of its own to give."""

    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,200}$")], str] = Field(default={}, max_length=1000)


class EngineSubmission(WorkflowText):
    """A native workflow that names the `engine` by which its jobs are run. `part_of`: what the engine calls that of which this run is a
    part; lists tell such runs in one line.
    """

    part_of: Annotated[str, Field(max_length=PART_OF_MAX, pattern=PART_OF_PATTERN)] = ""


class ContentsQuestion(Sent):
    """The contents that a workflow needs of its directory."""

    contents: list[Content] = Field(max_length=SENT_FILES_MAX)


class CallQuestion(Sent):
    """`call`: the engine's own name of this try. `stage`: its inputs are to be in a directory (`paths`), or only held on their node
    (`pins`).
    """

    call: Annotated[str, Field(pattern=CALL_PATTERN)]
    stage: Literal["paths", "pins"] = "paths"


class FinishQuestion(Sent):
    """`wait_s`: the answer may wait so long until what was made is taken."""

    wait_s: Annotated[float, Field(ge=0, le=60, strict=True)] = 20.0


class FailQuestion(Sent):
    message: Annotated[str, Field(max_length=MESSAGE_MAX)] = ""


class EndQuestion(Sent):
    """The engine calls no more jobs of this run, which came to that."""

    succeeded: Annotated[bool, Field(strict=True)]
    message: Annotated[str, Field(max_length=MESSAGE_MAX)] = ""


class EstimateQuestion(WorkflowText):
    """`topology`: text as in docs/formats/topology.md. `io_nodes`: so many, each asked about; 0: none."""

    topology: str | None = None
    io_nodes: list[Annotated[int, Field(ge=0, le=1000)]] = Field(default=[], max_length=8)


class Resumption(Sent):
    """`budget`: what the run may cost in all from now on, as in `30 USD`; empty: what it might before."""

    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,200}$")], str] = Field(default={}, max_length=1000)
    budget: str = Field(default="", max_length=MONEY_MAX)


class Submitted(wire.Body):
    """`repeated`: this idempotency key had made the run before. `jobs_reused`: of its jobs, those that need not run; `reuse`: what there is
    to say of that, and of the plan that was chosen by a budget or a deadline, in words.
    """

    run: str
    workflow: str
    jobs: int
    repeated: bool = False
    notes: list[str] = []
    jobs_reused: int = 0
    reuse: list[str] = []


class Validated(wire.Body):
    format: str
    name: str
    jobs: int
    files: int
    external: int
    finals: int
    params: dict[str, str] = {}
    notes: list[str] = []


class Planned(wire.Body):
    """`plan`: as `stager plan --json`. `fault`: why it could not run here, though it can be planned. `params`: the values that the file
    was read with. `jobs_reused` and `reuse`: as in Submitted.
    """

    plan: dict[str, Any]
    params: dict[str, str] = {}
    fault: wire.ErrorBody | None = None
    notes: list[str] = []
    jobs_reused: int = 0
    reuse: list[str] = []


class Estimated(wire.Body):
    """As `stager cost-estimate --json`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    workflow: str
    jobs: int
    choices: list[dict[str, Any]]


class RunPage(wire.Body):
    """The newest first, by when the first of a line was submitted. `next_cursor`: for the next page; none after the last."""

    runs: list[wire.RunInfo]
    next_cursor: str | None = None


class JobPage(wire.Body):
    """`total`: of all pages."""

    run: str
    jobs: list[wire.JobView]
    total: int
    next_cursor: str | None = None


class CallPage(wire.Body):
    run: str
    calls: list[wire.OpenCall]
    next_cursor: str | None = None


class FilePage(wire.Body):
    """The ledger: each file that the run makes."""

    run: str
    files: list[wire.LedgerEntry]
    next_cursor: str | None = None


class TransferPage(wire.Body):
    """Those under way or queued now."""

    run: str
    transfers: list[wire.TransferView]
    next_cursor: str | None = None


class Occupancy(wire.Body):
    """The bytes that the scheduler counts on a node; the parts and what is free make the capacity.

    `pinned`: of jobs that are admitted or run, and of transfers under way. `dirty`: made here, and nowhere else yet, else `clean`: it may
    go for room. `reserved`: set aside for what is on its way and for what jobs will make.
    """

    capacity_bytes: int
    pinned_bytes: int
    dirty_bytes: int
    clean_bytes: int
    reserved_bytes: int
    free_bytes: int


class Node(wire.NodeView):
    """`occupancy` None: the scheduler has not met it yet."""

    occupancy: Occupancy | None = None


class NodeList(wire.Body):
    nodes: list[Node]


class GraphJob(wire.Body):
    """`parents`: their places in the list. `depth`: the longest way from a job without parents. `assumed`: as of a JobView."""

    job: str
    job_type: str
    depth: int
    parents: list[int]
    assumed: bool = False


class RunGraph(wire.Body):
    """Jobs in a topological order. It stays the same, but for a run whose jobs are known only while it goes on, or that is resumed with
    another workflow file: `version` is another one then.
    """

    run: str
    jobs: list[GraphJob]
    version: str = ""


class JobStates(wire.Body):
    """In the order of the jobs of the graph that has this `version`."""

    run: str
    states: list[JobState]
    version: str = ""


class CostLine(wire.Body):
    name: str
    amount: float


class RunCost(wire.Body):
    """The cost of the run until now, `wall_s` after its submit, by the same formulas as `stager report` without a topology.

    `missing`: what the price table has no price of, and the bill leaves out. `final`: the run is over.
    """

    run: str
    final: bool
    currency: str
    prices_date: str
    instance: str
    nodes: int
    wall_s: float
    lines: list[CostLine]
    total: float
    missing: list[str]


class ProfileList(wire.Body):
    """By job type, as `stager profile list --json`: of a tenant, what its own runs measured."""

    profiles: dict[str, dict[str, Any]]


class Alive(wire.Body):
    status: Literal["ok"] = "ok"


class Ready(wire.Body):
    status: Literal["ready"] = "ready"
    version: str


class ContentReceived(wire.Body):
    """`received_bytes`: so many are here, from the first on. `complete`: all are, and they have this digest."""

    sha256: str
    received_bytes: int
    complete: bool = False


class ResultPart(wire.Body):
    """Bytes of a final that lies in a directory of the sender's. `sha256`: of these bytes."""

    content: Base64Bytes
    sha256: str
    size_bytes: int


class ContentsMissing(wire.Body):
    """`bytes_max`, `files_max`: the most that one directory may have."""

    missing: list[ContentReceived]
    bytes_max: int
    files_max: int


class Storage(wire.Body):
    """The S3 endpoint of the I/O node, path style, and a key for the buckets of one's own. The key is as secret as the token that got it;
    ask again before `expires_in_s` is over.
    """

    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str
    expires_at: int
    expires_in_s: int
    may_write: bool
