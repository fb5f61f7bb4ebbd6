"""What all tenants share: the nodes; and what was measured, of which each sees its own. One rule: no name of another's job or file."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from fastapi import APIRouter, Request, Response

from stager import rest
from stager.adapters.profiles_store import read_samples
from stager.model.profiling import Sample, profile_of
from stager.service.app import Scheduler
from stager.service.occupancy import occupancy_now
from stager.service.profiles import profile_to_dict
from stager.service.rest.callers import Reader
from stager.service.rest.pages import TAGGED, tagged


def places_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(tags=["places"])

    @router.get("/nodes", response_model=rest.NodeList, responses=TAGGED)
    async def nodes(request: Request, caller: Reader) -> Response:
        """The I/O nodes, how full they are and what of it could go."""
        held = await scheduler.ask(lambda: occupancy_now(scheduler))
        seen = await scheduler.node_view.nodes()
        found = [rest.Node(**node.model_dump(exclude={"pid"}), occupancy=held.get(node.node)) for node in seen]
        return tagged(request, rest.NodeList(nodes=found))

    @router.get("/profiles", response_model=rest.ProfileList, responses=TAGGED)
    async def profiles(request: Request, caller: Reader) -> Response:
        """What was measured of job types, by your own runs."""
        await scheduler.ask(lambda: scheduler.profiles.try_to(scheduler.profiles.write))
        seen = await scheduler.ask(lambda: scheduler.records.names(caller.only))
        found = await asyncio.to_thread(measured, scheduler.state_dir.profiles, seen)
        return tagged(request, rest.ProfileList(profiles=found))

    return router


def measured(path: Path, runs: set[str]) -> dict[str, dict[str, object]]:
    samples, store = read_samples(path)
    by_type: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.store == store and sample.run in runs:
            for job_type in (sample.job_type, sample.also) if sample.also else (sample.job_type,):
                by_type[job_type].append(sample)
    return {job_type: profile_to_dict(profile_of(job_type, found, store)) for job_type, found in sorted(by_type.items())}
