"""The compute hosts: those that tenants share, and those of a tenant's own pool. One rule: no name of a job is told, nor a host of another
tenant's pool.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stager import wire
from stager.service.hosts import HostService
from stager.service.rest.callers import Administrator, Reader
from stager.service.rest.pages import TAGGED, tagged


def hosts_router(hosts: HostService) -> APIRouter:
    router = APIRouter(tags=["places"])

    @router.get("/hosts", response_model=wire.HostList, responses=TAGGED)
    async def listed_hosts(request: Request, caller: Reader) -> Response:
        """The compute hosts that jobs of the caller may run on: their states, how large each is, and what of it jobs have."""
        return tagged(request, wire.HostList(hosts=await hosts.listed(caller.only)))

    @router.post("/hosts/{host}/drain")
    async def drain_host(host: str, caller: Administrator) -> wire.HostView:
        """Nothing more is started there. It is open again once its worker is started anew."""
        return await hosts.drain(host)

    @router.post("/hosts/{host}/forget")
    async def forget_host(host: str, body: wire.HostForget, caller: Administrator) -> wire.HostView:
        """It does not come back: its attempts are lost, and their jobs run elsewhere. 409 `host_answers`: it does answer."""
        return await hosts.forget(host, body, caller.tenant)

    return router
