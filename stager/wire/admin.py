"""Bodies about the scheduler itself: that it lives, its nodes, what it takes and clears up. One rule: no secret is in any of them."""

from __future__ import annotations

import msgspec

from stager.model.workflow import Origin
from stager.wire.body import Body


class NodeView(Body):
    """`connected` False: it does not answer right now, `problem` says why, and the numbers are the last known. `excluded`: it refused this
    scheduler, which asks nothing more of it until it is started again. `embedded`: the scheduler has started it, with the capacity that the
    scheduler was given; older schedulers have no other.
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
    `records` them too. `cache`: also replicas that no unfinished run needs.
    """

    runs: list[str] = []
    cache: bool = False
    dry_run: bool = False
    records: bool = False


class GcReport(Body):
    """`runs`: of which nothing is known any more. `logs`: of how many runs what their jobs printed went. `sandboxes`: how many of failed
    jobs.
    """

    runs: list[str]
    freed_bytes: int
    replicas: int
    journal_compacted: bool
    logs: int = 0
    sandboxes: int = 0
