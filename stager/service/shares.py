"""The shares of tenants, told to the Machine as tenants.toml says them.

May know: the tenants of now, the Machine's state (read only, before it is driven). One rule: a file that cannot be used changes nothing;
what was told last counts until it is mended.
"""

from __future__ import annotations

import asyncio

from stager.model.errors import Refused
from stager.model.tenants import Tenant
from stager.planning.policy import TenantShare
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.state import State
from stager.service.tenancy import Tenancy

LOOK_EVERY_S = 2.0


class ShareBook:
    """On the event loop's thread. `state`: as it is when this begins."""

    def __init__(self, tenancy: Tenancy, put: Put, state: State) -> None:
        self.tenancy, self.put = tenancy, put
        self.told = {name: entry.share for name, entry in state.tenants.items() if entry.share != TenantShare()}

    def tell(self) -> None:
        """What differs from what was told last. An event only where something does."""
        try:
            by_name = self.tenancy.now().by_name
        except Refused:
            return
        shares = {name: share for name, tenant in by_name.items() if (share := share_of(tenant)) != TenantShare()}
        if shares != self.told:
            self.told = shares
            self.put(ev.TenantsSet(at=0.0, cause="tenants", shares=shares))

    async def keep_telling(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.tell()


def share_of(tenant: Tenant) -> TenantShare:
    return TenantShare(tenant.weight, False, tenant.quota_cores, tenant.quota_bytes)
