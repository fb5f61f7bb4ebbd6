"""The pools of tenants, as tenants.toml names them now.

May know: the executors, the Machine's state (asked). One rule: a tenant without a pool has no hosts: what was begun there is given up, and
nothing of it begins on hosts of others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from stager.adapters.executor_engine import Executors
from stager.model.tenants import Tenant, tenant_of_host
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.state import State
from stager.service.inquiry import Inquiry
from stager.tasks import Tasks

if TYPE_CHECKING:
    from stager.adapters.gateway_pool import GatewayPool

WHY_GONE = "its tenant has no pool any more"


class TenantPools:
    """On the event loop's thread. `here`: this machine, which the Machine has to hear of once it knows of other hosts; None: it has."""

    def __init__(
        self,
        executors: Executors,
        gateways: Mapping[str, GatewayPool],
        inquiry: Inquiry,
        state: State,
        put: Put,
        tasks: Tasks,
        here: ev.HostReported | None,
    ) -> None:
        self.executors, self.gateways, self.inquiry, self.state = executors, gateways, inquiry, state
        self.put, self.tasks, self.here = put, tasks, here
        self.followed: dict[str, str] | None = None

    def follow(self, by_name: Mapping[str, Tenant]) -> None:
        wanted = {name: tenant.pool for name, tenant in by_name.items() if tenant.pool}
        if wanted == self.followed:
            return
        self.followed = wanted
        if wanted and self.here is not None:
            # Jobs of all others go on here.
            self.put(self.here)
            self.here = None
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
