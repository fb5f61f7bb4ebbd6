"""Compute hosts: listed, drained, forgotten. One rule: what a person says of a host is answered once the journal holds it."""

from __future__ import annotations

from stager import wire
from stager.service.api.housekeeping import OWNER_WORD
from stager.service.api.routing import Asked, Router
from stager.service.hosts import HostService


def hosts_router(hosts: HostService) -> Router:
    router = Router()

    @router.get("/hosts")
    async def listed(asked: Asked) -> wire.HostList:
        return wire.HostList(hosts=await hosts.listed())

    @router.post("/hosts/{host}/drain")
    async def drain(asked: Asked) -> wire.HostView:
        return await hosts.drain(asked.host)

    @router.post("/hosts/{host}/forget")
    async def forget(asked: Asked) -> wire.HostView:
        return await hosts.forget(asked.host, await asked.body_as(wire.HostForget), OWNER_WORD)

    return router
