"""Cases with tenants: runs of several, with weights, priorities and quotas, and hosts that are one tenant's alone.

One rule: everything follows from the seed, as in cases.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from stager.model.topology import Host
from stager.planning.policy import TenantShare
from stager.scheduler import commands as cmd
from stager.scheduler.machine import Machine
from stager.scheduler.shares import pool_of
from stager.scheduler.slots import host_of
from stager.sim.world import Violation

NAMES = ("alice", "bob", "")


def with_tenants(case: Any, seed: int) -> Any:
    """The case with its runs handed out among tenants. Some tenants have hosts of their own: copies of all that there are."""
    random = Random(f"tenants/{seed}")
    tenants = tuple((random.choice(NAMES), random.choice((0, 0, 5, -5))) for _ in case.workflows)
    on_hosts = any(case.topology.hosts) and any(node.hosts for node in case.topology.nodes)
    shares = {name: share_of(random, may_have_pool=on_hosts) for name in NAMES if name and random.random() < 0.8}
    parts = {"tenants": tenants, "shares": shares, "slack_s": 3.0 * case.slack_s}
    if not on_hosts:
        return replace(case, **parts)
    topology, host_tenants = with_pools(case.topology, [name for name, share in shares.items() if share.has_pool])
    return replace(case, topology=topology, host_tenants=host_tenants, **parts)


def share_of(random: Random, *, may_have_pool: bool) -> TenantShare:
    weight, has_pool = random.choice((0.25, 1.0, 1.0, 8.0)), may_have_pool and random.random() < 0.5
    return TenantShare(weight, has_pool, random.choice((None, None, 1, 3)), random.choice((None, None, 1, 500)))


def with_pools(topology: Any, tenants: Sequence[str]) -> tuple[Any, Mapping[str, str]]:
    nodes, host_tenants = [], {}
    for node in topology.nodes:
        hosts = list(node.hosts)
        for tenant in tenants:
            for host in node.hosts:
                own = Host(f"{host.id}-{tenant}", host.cores, host.memory_bytes, host.scratch_bytes)
                hosts.append(own)
                host_tenants[own.id] = tenant
        nodes.append(replace(node, hosts=tuple(hosts)))
    return replace(topology, nodes=tuple(nodes)), host_tenants


class TenantWatch:
    """Each attempt begins on a host where its tenant may run, and within the cores that its tenant may have."""

    def __call__(self, machine: Machine, events: Any, commands: Sequence[Any]) -> None:
        state = machine.state
        started: dict[str, int] = {}
        for command in commands:
            if type(command) is not cmd.StartAttempt or command.attempt not in state.attempts:
                continue
            run, attempt = state.runs[command.run], state.attempts[command.attempt]
            host = host_of(state, command.host)
            if host is not None and host.tenant != pool_of(state, run):
                raise Violation(f"{command.attempt} of {run.tenant!r} is on a host of {host.tenant!r}")
            started[run.tenant] = started.get(run.tenant, 0) + attempt.slot_cores
        for name, cores in started.items():
            tenant = state.tenants[name]
            quota = tenant.share.quota_cores
            its = [attempt for attempt in state.attempts.values() if state.runs[attempt.run].tenant == name and attempt.slot_cores]
            if quota is not None and tenant.cores_used > quota and len(its) > 1:
                raise Violation(f"tenant {name!r} has {tenant.cores_used} cores, {cores} of them new, and may have {quota}")
