"""The shares of tenants, told to the Machine as tenants.toml says them.

May know: the tenants of now, the Machine's state (read only, before it is driven). One rule: a file that cannot be used changes nothing;
what was told last counts until it is mended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping

from stager.model.errors import Refused
from stager.model.tenants import Tenant
from stager.planning.policy import TenantShare
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.state import State
from stager.service.tenancy import Tenancy

LOOK_EVERY_S = 2.0


class ShareBook:
    """On any thread. `state`: as it is when this begins."""

    def __init__(self, tenancy: Tenancy, put: Put, state: State) -> None:
        self.tenancy, self.put = tenancy, put
        self.lock = threading.Lock()
        self.told = {name: entry.share for name, entry in state.tenants.items() if entry.share != TenantShare()}

    def tell(self) -> Mapping[str, Tenant] | None:
        """What differs from what was told last. An event only where something does. The tenants of now; None: nobody knows them."""
        try:
            by_name = self.tenancy.now().by_name
        except Refused:
            return None
        with self.lock:
            apart = [name for name, share in self.told.items() if share.has_pool]
            found = {name: share_of(tenant, apart=name in apart) for name, tenant in by_name.items()}
            # Who is no tenant any more may have runs still.
            found |= {name: TenantShare(has_pool=True) for name in apart if name not in by_name}
            shares = {name: share for name, share in found.items() if share != TenantShare()}
            if shares != self.told:
                self.told = shares
                self.put(ev.TenantsSet(at=0.0, cause="tenants", shares=shares))
        return by_name

    async def keep_telling(self, follow: Callable[[Mapping[str, Tenant]], None]) -> None:
        """`follow`: is told of the tenants, too."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if (by_name := self.tell()) is not None:
                follow(by_name)


def share_of(tenant: Tenant, *, apart: bool = False) -> TenantShare:
    """`apart`: it had a pool of its own. Without one its jobs do not begin on hosts of others, unless programs of its may run there."""
    has_pool = tenant.pool != "" or (apart and not tenant.native_jobs)
    return TenantShare(tenant.weight, has_pool, tenant.quota_cores, tenant.quota_bytes)
