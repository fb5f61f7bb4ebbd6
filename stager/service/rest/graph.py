"""A run as a graph: its jobs and what they wait for, which seldom change, and their states, which often do. One rule: of one order, so
that the second needs no names; and both say of which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from zlib import crc32

from fastapi import APIRouter, Request, Response

from stager import rest
from stager.model.scatter import standing_jobs
from stager.model.workflow import Graph, Workflow
from stager.service.queries import JobQueries, RunQueries
from stager.service.rest.callers import Own, Reader
from stager.service.rest.limits import Turns
from stager.service.rest.pages import TAGGED, tagged


def graph_router(own: Own, queries: RunQueries, jobs: JobQueries) -> APIRouter:
    router = APIRouter(tags=["parts of a run"])
    # Of 100,000 jobs each takes a second of a thread.
    turns = Turns()

    @router.get("/runs/{run}/graph", response_model=rest.RunGraph, responses=TAGGED)
    async def graph(request: Request, run: str, caller: Reader) -> Response:
        """All jobs and what they wait for; of thousands at once, so ask with the ETag."""
        await own(run, caller)
        found = await queries.definition(run)
        async with turns.of(caller.tenant):
            return await asyncio.to_thread(lambda: tagged(request, graph_of(run, found.workflow, found.graph)))

    @router.get("/runs/{run}/states", response_model=rest.JobStates, responses=TAGGED)
    async def states(request: Request, run: str, caller: Reader) -> Response:
        """The states of all jobs, in the order of the graph."""
        await own(run, caller)
        found, order = await jobs.states(run)
        async with turns.of(caller.tenant):
            return await asyncio.to_thread(lambda: tagged(request, rest.JobStates(run=run, states=found, version=version_of(order))))

    return router


def graph_of(run: str, workflow: Workflow, graph: Graph) -> rest.RunGraph:
    at = {job: place for place, job in enumerate(graph.order)}
    depth: dict[str, int] = {}
    for job in graph.order:
        depth[job] = 1 + max((depth[parent] for parent in graph.parents[job]), default=-1)
    standing = standing_jobs(workflow.scatters)
    jobs = [
        rest.GraphJob(
            job=job,
            job_type=workflow.jobs[job].job_type,
            depth=depth[job],
            parents=sorted(at[up] for up in graph.parents[job]),
            assumed=job in standing,
        )
        for job in graph.order
    ]
    return rest.RunGraph(run=run, jobs=jobs, version=version_of(graph.order))


def version_of(order: Sequence[str]) -> str:
    """By its jobs: who draws them has to draw others."""
    return f"{crc32(chr(0).join(order).encode()):08x}"
