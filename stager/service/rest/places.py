"""The things that all tenants share: the nodes; and measurements, of which each sees its own. One rule: no name of another's job
or file.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from fastapi import APIRouter, Request, Response

from stager import rest
from stager.adapters.profiles_store import ProfilesStore, read_samples
from stager.adapters.run_records import RunRecords
from stager.model.profiling import Sample, profile_of
from stager.service.inquiry import Inquiry
from stager.service.node_view import NodeWatch
from stager.service.occupancy import NodeOccupancy
from stager.service.profiles import profile_to_dict
from stager.service.rest.callers import Reader
from stager.service.rest.pages import TAGGED, tagged


def places_router(occupancy: NodeOccupancy, node_view: NodeWatch, measured: MeasuredProfiles) -> APIRouter:
    router = APIRouter(tags=["places"])

    @router.get("/nodes", response_model=rest.NodeList, responses=TAGGED)
    async def nodes(request: Request, caller: Reader) -> Response:
        """The I/O nodes, how full they are and what of it could go."""
        held = await occupancy.now()
        seen = await node_view.nodes()
        found = [rest.Node(**node.model_dump(exclude={"pid"}), occupancy=held.get(node.node)) for node in seen]
        return tagged(request, rest.NodeList(nodes=found))

    @router.get("/profiles", response_model=rest.ProfileList, responses=TAGGED)
    async def profiles(request: Request, caller: Reader) -> Response:
        """The measurements of job types, by your own runs."""
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
