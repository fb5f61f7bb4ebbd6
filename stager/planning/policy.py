"""The knobs. One rule: a knob earns its place with a scenario that proves it matters; everything else is a constant where it is used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How to decide. Times in seconds, counts per node.

    `direct_access`: plans may have jobs read inputs at their origin where keeping them would not pay or they do not fit.
    `transfer_attempts_max`: of one source, where it answers. One that cannot be reached is waited for, at most `outage_s_max`.

    `copies`: on how many nodes what jobs make is to be, from its making until its last reader is done or it is home.

    `fan_out_bytes_min`: of a file this large a node gives one copy at a time; who else wants it waits for one more node that has it.
    Smaller ones are there before waiting would help.

    `keep_results_bytes`: of each node, how much may stay there of what jobs made and no run needs any more, for later runs; 0: nothing
    does. `keep_results_s`: for how long.
    """

    fetches_ahead_max: int = 64
    uploads_max: int = 1024
    admitted_waiting_max: int = 32
    retry_delay_s: float = 1.0
    retry_delay_s_max: float = 60.0
    transfer_attempts_max: int = 5
    outage_s_max: float = 6 * 3600.0
    lookahead: bool = True
    fan_out_bytes_min: int = 1_000_000
    direct_access: bool = True
    copies: int = 1
    keep_results_bytes: int = 0
    keep_results_s: float = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class TenantShare:
    """What one tenant has of a cluster. `weight`: beside those of other tenants. `has_pool`: its jobs run on hosts of its own alone. Of
    each quota None: as much as there is. `quota_cores` are those of its jobs that run; `quota_bytes` is what its runs make and have made
    that is nowhere but on nodes yet.
    """

    weight: float = 1.0
    has_pool: bool = False
    quota_cores: int | None = None
    quota_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of one compute node. Memory None: not watched."""

    cores: int = 1
    memory_bytes: int | None = None
    jobs_max: int = 1_000_000
    files_max: int = 10_000_000
