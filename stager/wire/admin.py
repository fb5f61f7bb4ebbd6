"""Bodies about the scheduler itself: that it lives, its nodes, what it takes and clears up. One rule: no secret is in any of them."""

from __future__ import annotations

import msgspec

from stager.model.workflow import Origin
from stager.wire.body import Body


class NodeView(Body):
    """`connected` False: it does not answer right now, `problem` says why, and the numbers are the last known. `excluded`: it refused this
    scheduler, which asks nothing more of it until it is started again. `embedded`: the scheduler has started it, with the capacity that the
    scheduler was given; older schedulers have no other. `state`: up, away (it does not answer), draining, gone (for good, `why` by whose
    word), refused (as `excluded`), unknown (never heard of); empty where nobody looked. `since`: when it came into that state. `address`:
    where the scheduler calls it. `store_id`: which store it has. The `unsafe` ones: what would be lost with it now; None where nobody
    looked. `kept_bytes`: of `used_bytes`, results that are kept for later runs and are the first to go.
    """

    node: str
    connected: bool
    incarnation: str = ""
    pid: int | None = None
    capacity_bytes: int = 0
    used_bytes: int = 0
    reserved_bytes: int = 0
    can_link: bool = False
    embedded: bool = True
    excluded: bool = False
    problem: str = ""
    state: str = ""
    why: str = ""
    since: float | None = None
    address: str = ""
    store_id: str = ""
    unsafe_files: int | None = None
    unsafe_bytes: int | None = None
    unsafe_jobs: int | None = None
    kept_bytes: int = 0


class NodeViews(Body):
    nodes: list[NodeView]


class NodeDrain(Body):
    """`undo`: let it take work again."""

    undo: bool = False


class NodeForget(Body):
    """`why`: in words. `force`: also where it answers and something would be lost with it. `dry_run`: only say what would be."""

    why: str = ""
    force: bool = False
    dry_run: bool = False


class NodeLoss(Body):
    """What goes with a node. `files`: the first of those that only it holds and that are made again, `files_total` of `size_bytes`.
    `not_again`: those of them whose job may not run twice. `fetched_bytes`: of inputs that come from their origins again.
    """

    node: str
    forgotten: bool
    files: list[str] = []
    files_total: int = 0
    size_bytes: int = 0
    not_again: list[str] = []
    fetched_bytes: int = 0
    jobs_running: int = 0


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


class Resumed(Body):
    """`notes`: what differs from what the run had, a line for each thing."""

    notes: list[str] = []


class RunNeeds(Body):
    """The needs of a resume: the origins to resolve and the variables to pass."""

    run: str
    origins: list[dict[str, object]]
    env_pass: list[str]

    def origin_values(self) -> list[Origin]:
        return [msgspec.convert(entry, Origin) for entry in self.origins]


class GcRequest(Body):
    """`runs`: those wholly, with ledger and report; none named: of all that are over for good what they left beside these, and with
    `records` them too. `cache`: also replicas and images that no unfinished run needs. `results`: of the replicas, those that nodes
    keep for later runs and that no result names any more. `logs` False: nothing but replicas and images.
    """

    runs: list[str] = []
    cache: bool = False
    dry_run: bool = False
    records: bool = False
    results: bool = False
    logs: bool = True


class GcOnHost(Body):
    """What went of images and environments on a compute host, or would. `left_bytes`: of those that stay. `problem`: why it is not known
    what went there; empty: it is.
    """

    host: str
    images: int = 0
    environments: int = 0
    freed_bytes: int = 0
    left_bytes: int = 0
    problem: str = ""


class GcReport(Body):
    """`runs`: of which nothing is known any more. `freed_bytes`: of the nodes and of this machine; `hosts` have their own. `logs`: of how
    many runs what their jobs printed went. `sandboxes`: how many of failed jobs. `images`: unpacked ones, and archives that were pulled.
    `environments`: of packages. `made_bytes`: of unpacked images and environments that stay.
    """

    runs: list[str]
    freed_bytes: int
    replicas: int
    journal_compacted: bool
    logs: int = 0
    sandboxes: int = 0
    images: int = 0
    environments: int = 0
    made_bytes: int = 0
    hosts: list[GcOnHost] = []
