"""A plan is a value: order, access, replica counts, nodes, destinations, reservations. Start times in it are predictions.

One rule: nothing in a plan depends on anything but its inputs; no secret is ever in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PLAN_VERSION = 1


class Access(StrEnum):
    """How a job gets at an input: a read-only bind mount, a copy (reflink where there is one), or in place at the origin."""

    LINK = "link"
    COPY = "copy"
    DIRECT = "direct"


class Basis(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    DECLARED = "declared"
    PROFILE = "profile"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """`order` is the job's place in the serial order: one that fits `capacity_bytes`, at `smallest_capacity_bytes` the tightest known.

    `reserve_bytes` is its outputs; `footprint_bytes` inputs plus outputs.
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


@dataclass(frozen=True, slots=True)
class FilePlan:
    """`first_use` and `last_use` are orders of readers (-1: nobody reads it). `token` is what the listing saw of an external file."""

    lfn: str
    size_bytes: int
    size_basis: Basis
    access: Access
    node: str
    replicas: int
    first_use: int
    last_use: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """`smallest_capacity_bytes`: below it a run cannot finish, given the spill origin or its absence; `peak_live_bytes`: at and above it
    nothing need be fetched twice or spilled.

    Jobs stand in their order, files by lfn. `tightest_job` is the one that needs the smallest capacity, `tightest_files` the largest of
    what must be held while it runs.
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
