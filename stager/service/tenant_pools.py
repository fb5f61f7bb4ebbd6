"""The pools of tenants, as tenants.toml names them now.

May know: the executors, the Machine's state (asked). One rule: a tenant without a pool has no hosts: what was begun there is given up, and
nothing of it begins on hosts of others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stager.model.tenants import Tenant, tenant_of_host
from stager.scheduler import events as ev
from stager.service.live_nodes import this_host
from stager.service.machine_side import MachineSide
from stager.service.node_side import NodeSide
from stager.service.settings import Settings
from stager.tasks import Tasks

WHY_GONE = "its tenant has no pool any more"


class TenantPools:
    """On the event loop's thread. `has_hosts`: the Machine knows of hosts, or will in a moment."""

    def __init__(self, settings: Settings, node: NodeSide, machine: MachineSide, tasks: Tasks, *, has_hosts: bool) -> None:
        self.settings, self.tasks, self.has_hosts = settings, tasks, has_hosts
        self.executors, self.gateways = node.executors, node.gateways
        self.inquiry, self.put, self.state = machine.inquiry, machine.inbox.put, machine.past.machine.state
        self.followed: dict[str, str] | None = None

    def follow(self, by_name: Mapping[str, Tenant]) -> None:
        wanted = {name: tenant.pool for name, tenant in by_name.items() if tenant.pool}
        if wanted == self.followed:
            return
        self.followed = wanted
        if wanted and not self.has_hosts:
            # Jobs of all others go on here.
            self.has_hosts = True
            self.put(this_host(self.settings))
        for tenant in wanted:
            self.executors.of_tenant(tenant)
        for tenant, pool in self.gateways.items():
            pool.move(wanted.get(tenant, ""))
        self.tasks.start("the giving up of hosts without a pool", self._give_up(wanted))

    async def _give_up(self, wanted: Collection[str]) -> None:
        for host in await self.inquiry.ask(lambda: sorted(self.state.hosts)):
            tenant = tenant_of_host(host)
            if tenant and tenant not in wanted:
                self.put(ev.HostGone(at=0.0, cause="tenants", host=host, why=WHY_GONE))
