"""The things that all tenants share: the nodes; and measurements, of which each sees its own. One rule: no name of another's job
or file.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from fastapi import APIRouter, Request, Response

from stager import rest, wire
from stager.adapters.profiles_store import ProfilesStore, read_samples
from stager.adapters.run_records import RunRecords
from stager.model.profiling import Sample, profile_of
from stager.model.tenants import Scope
from stager.service.inquiry import Inquiry
from stager.service.nodes import NodeService
from stager.service.occupancy import NodeOccupancy
from stager.service.profiles import profile_to_dict
from stager.service.rest.callers import Administrator, Reader
from stager.service.rest.limits import Turns
from stager.service.rest.pages import TAGGED, tagged

# For administrators: where a node is, and which store it has.
OF_ADMINISTRATORS = {"address", "store_id"}


def places_router(occupancy: NodeOccupancy, node_service: NodeService, measured: MeasuredProfiles) -> APIRouter:
    router = APIRouter(tags=["places"])
    # Each reads all samples that there are.
    turns = Turns()

    @router.get("/nodes", response_model=rest.NodeList, responses=TAGGED)
    async def nodes(request: Request, caller: Reader) -> Response:
        """The I/O nodes: their states, what would be lost with each, how full they are and what of it could go."""
        held = await occupancy.now()
        hidden = {"pid"} if caller.scope is Scope.ADMIN else {"pid", *OF_ADMINISTRATORS}
        found = [rest.Node(**node.model_dump(exclude=hidden), occupancy=held.get(node.node)) for node in await node_service.listed()]
        return tagged(request, rest.NodeList(nodes=found))

    @router.post("/nodes/{node}/drain")
    async def drain_node(node: str, body: wire.NodeDrain, caller: Administrator) -> wire.NodeView:
        """It takes nothing more, and gives away what only it holds: it can go when nothing is unsafe there. `undo` takes that back."""
        return await node_service.drain(node, body)

    @router.post("/nodes/{node}/forget")
    async def forget_node(node: str, body: wire.NodeForget, caller: Administrator) -> wire.NodeLoss:
        """It is gone for good, and what only it held is made or fetched again. 409 `node_unsafe`: it answers, and not all is safe."""
        return await node_service.forget(node, body, caller.tenant)

    @router.get("/profiles", response_model=rest.ProfileList, responses=TAGGED)
    async def profiles(request: Request, caller: Reader) -> Response:
        """The measurements of job types, by your own runs."""
        async with turns.of(caller.tenant):
            return tagged(request, rest.ProfileList(profiles=await measured.of(caller.only)))

    return router


class MeasuredProfiles:
    """On the event loop's thread. `path`: of the store, read beside it."""

    def __init__(self, inquiry: Inquiry, profiles: ProfilesStore, records: RunRecords, path: Path) -> None:
        self.inquiry, self.profiles, self.records, self.path = inquiry, profiles, records, path

    async def of(self, tenant: str | None) -> dict[str, dict[str, object]]:
        """By the runs of this tenant; None: of all."""
        await self.inquiry.ask(lambda: self.profiles.try_to(self.profiles.write))
        seen = await self.inquiry.ask(lambda: self.records.names(tenant))
        return await asyncio.to_thread(measured_by, self.path, seen)


def measured_by(path: Path, runs: set[str]) -> dict[str, dict[str, object]]:
    samples, store = read_samples(path)
    by_type: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.store == store and sample.run in runs:
            for job_type in (sample.job_type, sample.also) if sample.also else (sample.job_type,):
                by_type[job_type].append(sample)
    return {job_type: profile_to_dict(profile_of(job_type, found, store)) for job_type, found in sorted(by_type.items())}
