"""A plan is a value: order, access, replica counts, nodes, destinations, reservations. Start times in it are predictions.

One rule: nothing in a plan depends on anything but its inputs; no secret is ever in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stager.model.record import Record
from stager.model.topology import DEFAULT_DELETE_LATENCY_S, DEFAULT_DISK_BYTES_PER_S

PLAN_VERSION = 5


class Access(StrEnum):
    """How a job gets at an input: a read-only bind mount, a copy (reflink where there is one), or directly at the origin. HELD, in no plan:
    an engine's task reads it on its node, where it is pinned.
    """

    LINK = "link"
    COPY = "copy"
    DIRECT = "direct"
    HELD = "held"


class Transport(StrEnum):
    """How a file comes from its origin: whole over one node's line, in stripes over several, or as one of many small ones in a round trip
    each.
    """

    WHOLE = "whole"
    STRIPE = "stripe"
    PACK = "pack"


class Basis(StrEnum):
    """Where a number comes from: measured of this very file, declared for it or its job, measured of earlier jobs of the type (PROFILE), or
    a guess.
    """

    MEASURED = "measured"
    DECLARED = "declared"
    PROFILE = "profile"
    DEFAULT = "default"


# By names of their own, as in scheduler/states.py: these are asked for of every file and job.
LINK: Final = Access.LINK
COPY: Final = Access.COPY
DIRECT: Final = Access.DIRECT
MEASURED: Final = Basis.MEASURED
DECLARED: Final = Basis.DECLARED
DEFAULT: Final = Basis.DEFAULT


def tidy(seconds: float) -> float:
    """Microseconds are enough, and print the same everywhere."""
    return round(seconds, 6)


class JobPlan(Record):
    """`order` is the job's place in the serial order: one that fits `capacity_bytes`, at `smallest_capacity_bytes` the tightest known.

    `reserve_bytes` is its outputs, as large as they may get; `footprint_bytes` inputs plus outputs. `reserve_basis` is the weakest of its
    outputs'. `compute_spread`: it takes about between compute_s / spread and compute_s * spread; None: nobody knows. `other_node`: where it
    would have ended first of the nodes that were not chosen, and what it would have had to copy there; empty and None where there
    is one node.
    """

    job: str
    order: int
    rank_s: float
    node: str
    start_s: float
    finish_s: float
    compute_s: float
    compute_basis: Basis
    reserve_bytes: int
    footprint_bytes: int
    reserve_basis: Basis = Basis.DEFAULT
    compute_spread: float | None = None
    other_node: str = ""
    other_finish_s: float | None = None
    other_copies_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DirectRead:
    """One job's read of a file at its origin, by its type: so many bytes, in so many seconds while nobody else reads there."""

    job_type: str
    size_bytes: int
    read_s: float


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """The two ways to an input that could be read directly, side by side: what the run takes at least, and what crosses the WAN, with this
    file kept and with it read directly by all its readers. `why`: of what was chosen, in words.
    """

    kept_s: float
    kept_bytes: int
    direct_s: float
    direct_bytes: int
    reads: tuple[DirectRead, ...]
    why: str


class FilePlan(Record):
    """`first_use` and `last_use` are orders of readers (-1: nobody reads it). `token` is what the listing saw of an external file.

    `size_bytes` is what space is set aside for, `likely_bytes` what it will probably be (None, in a plan of version 1: the same), about
    between likely / `size_spread` and likely * `size_spread` (1: exactly that, None: nobody knows). `nodes`: where jobs will make
    or read it, in the order in which it gets there; empty where there is one node. `stripes`: how many nodes are to fetch a part of it; 1
    of what comes whole, and of what a job makes. `direct_access` None: it can only be kept.

    `safe_copies`: on how many nodes an intermediate is to be. `losing_s` and `copying_s` (None: no room, or no failure rate was given) are
    the seconds that one copy and two are expected to cost the run, `remake_s` what making it again takes, `must_copy`: that cannot be done
    (planning/durability.py).
    """

    lfn: str
    size_bytes: int
    size_basis: Basis
    access: Access
    node: str
    replicas: int
    first_use: int
    last_use: int
    token: str = ""
    likely_bytes: int | None = None
    size_spread: float | None = None
    nodes: tuple[str, ...] = ()
    transport: Transport = Transport.WHOLE
    stripes: int = 1
    safe_copies: int = 1
    losing_s: float = 0.0
    copying_s: float | None = None
    remake_s: float = 0.0
    must_copy: bool = False
    direct_access: DirectAccess | None = None

    @property
    def expected_bytes(self) -> int:
        return self.size_bytes if self.likely_bytes is None else self.likely_bytes


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """The way to one origin as the plan took it to be, and why: measured by transfers, declared (a topology file, the origin's `bandwidth`)
    or assumed. The `file` seconds are those of OriginLink; None: nothing is reckoned for each file. `login_s`, `dispatch_s` and
    `reads_back` are always measured, or None and false.
    """

    origin: str
    fetch_bytes_per_s: float
    fetch_basis: Basis
    upload_bytes_per_s: float
    upload_basis: Basis
    latency_s: float
    latency_basis: Basis
    upload_latency_s: float | None = None
    node_fetch_bytes_per_s: float | None = None
    node_upload_bytes_per_s: float | None = None
    fetch_file_s: float | None = None
    fetch_file_basis: Basis = Basis.DEFAULT
    upload_file_s: float | None = None
    upload_file_basis: Basis = Basis.DEFAULT
    login_s: float | None = None
    dispatch_s: float | None = None
    reads_back: bool = False


class ReusedOutput(Record):
    """`token`, `verified` and `synced` of a final: how it lies at its destination. All three are empty of what is not there. `kept`: the
    file, made by an earlier run, that nodes have and that stands for it; a final goes to its destination from there.
    """

    lfn: str
    size_bytes: int
    blake3: str
    executable: bool = False
    token: str = ""
    verified: str = ""
    synced: str = ""
    kept: str = ""


class ReusedJob(Record):
    """It need not run: `run` made of the same what it would make, as is remembered by `key`. An optional output that was not made is not in
    `outputs`.
    """

    job: str
    run: str
    key: str
    outputs: tuple[ReusedOutput, ...]


class GuessedJob(Record):
    """It need not run where each of its inputs in `needs`, which jobs that run make, comes out with this BLAKE3."""

    reused: ReusedJob
    needs: dict[str, str]


class Sharing(Record):
    """What a run may take over while it goes on. `joins`: the intermediates that jobs of active runs of the same tenant are making, where
    these jobs are the same as its own. `forced`: jobs that are to run whatever others make. `guessed`: jobs that an earlier run made of
    what the jobs above them made the last time.
    """

    joins: bool = False
    forced: tuple[str, ...] = ()
    guessed: tuple[GuessedJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`smallest_capacity_bytes`: below it a run cannot finish, given the spill origin or its absence; `peak_live_bytes`: at and above it
    nothing need be fetched twice or spilled. Files do not fill several nodes as they fill one: `smallest_node_bytes` is what each of
    `nodes` must have, `node_bytes` what the smallest of them has.

    Jobs stand in their order, files by lfn. `tightest_job` is the one that needs the smallest capacity, `tightest_files` the largest of
    what must be held while it runs. `overhead_s` is what the times have each attempt take beside its program, `overhead_file_s` what they
    add for each of its outputs; of several nodes the most.
    `makespan_least_s` and `makespan_most_s`: at least nine of ten runs should end between them (planning/beliefs.py); None: nobody asked.
    `profiles_ignored`: made as if nothing had been measured of any job type. `links`: of every origin, in the order of their names; empty
    in a plan of version 3. `copying_bytes_per_s`: what a copy from node to node gets, of several nodes the least,
    `copy_latency_s`: what it takes besides. `delete_latency_s`: what a delete takes until it has made room. `direct_read_bytes`:
    what jobs read at origins through mounts, in none of the other sums. `disk_bytes_per_s`: what jobs get of a node's disk, of several
    nodes the least. `keeps_to`: of more nodes, those that its jobs stay on while all of them can be reached; empty: all. `ahead_max`: of
    each node, how many jobs may wait for inputs and a core, and how many files may come before their jobs are admitted, or more where
    these do not keep the line busy; 0: as many as the policy says. `holds_max_bytes`: of each node's room, how much its jobs and what comes
    ahead for them may hold at once, and no room of other nodes than it keeps to; 0: all.
    `copies`: on how many nodes all that its jobs make is to be, as asked for; the policy's, where that is more.
    """

    version: int
    workflow: str
    workflow_digest: str
    capacity_bytes: int
    smallest_capacity_bytes: int
    peak_live_bytes: int
    spill_origin: str | None
    makespan_s: float
    fetch_bytes: int
    upload_bytes: int
    readback_bytes: int
    jobs: tuple[JobPlan, ...]
    files: tuple[FilePlan, ...]
    notes: tuple[str, ...] = ()
    tightest_job: str = ""
    tightest_files: tuple[str, ...] = ()
    overhead_s: float = 0.0
    overhead_basis: Basis = Basis.DEFAULT
    profiles_ignored: bool = False
    links: tuple[LinkPlan, ...] = ()
    copying_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    direct_read_bytes: int = 0
    nodes: int = 1
    node_bytes: int = 0
    smallest_node_bytes: int = 0
    overhead_file_s: float = 0.0
    overhead_file_basis: Basis = Basis.DEFAULT
    makespan_least_s: float | None = None
    makespan_most_s: float | None = None
    keeps_to: tuple[str, ...] = ()
    ahead_max: int = 0
    holds_max_bytes: int = 0
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    disk_basis: Basis = Basis.DEFAULT
    copies: int = 1
    copy_latency_s: float = 0.0
    copy_latency_basis: Basis = Basis.DEFAULT
    delete_latency_s: float = DEFAULT_DELETE_LATENCY_S
    delete_latency_basis: Basis = Basis.DEFAULT
