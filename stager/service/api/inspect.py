"""Reading a run: status, summary, ledger, jobs, logs, progress, timeline. One rule: reading changes nothing."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from stager import wire
from stager.service.following import WAIT_S_MAX, Following
from stager.service.job_logs import JobLogs, LogChoice
from stager.service.journal_queries import JournalQueries
from stager.service.lifetime import Lifetime
from stager.service.queries import JobChoice, JobQueries, RunQueries
from stager.service.sandboxes import Sandboxes
from stager.service.status import StatusQueries
from stager.service.timeline import progress_event


def inspect_router(queries: RunQueries, statuses: StatusQueries) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}")
    async def status(run: str) -> wire.RunStatus:
        return await statuses.status(run)

    @router.get("/runs/{run}/summary")
    async def summary(run: str) -> wire.RunSummary:
        return await queries.summary(run)

    @router.get("/runs/{run}/workflow")
    async def workflow(run: str) -> Response:
        value = (await queries.definition(run)).workflow
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")

    @router.get("/runs/{run}/plan")
    async def plan(run: str) -> Response:
        value = (await queries.definition(run)).plan
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")

    return router


def parts_router(queries: RunQueries, jobs: JobQueries) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}/losses")
    async def lost(run: str) -> wire.Losses:
        return await queries.losses(run)

    @router.get("/runs/{run}/ledger")
    async def ledger(run: str, lfn: str | None = None) -> wire.Ledger:
        return wire.Ledger(run=run, files=await queries.ledger(run, lfn))

    @router.get("/runs/{run}/jobs")
    async def jobs_of(run: str, state: str | None = None, job: str | None = None, limit: int = 1000) -> wire.JobList:
        found, _total = await jobs.views(run, 0, limit, JobChoice(state, job=job))
        return wire.JobList(run=run, jobs=found)

    return router


def timelines_router(printed: JobLogs, journal: JournalQueries, following: Following) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}/logs")
    async def logs(
        run: str, job: str, tail_bytes: int = 65_536, attempt: str = "", stream: str = "", after: int | None = None
    ) -> wire.JobLogs:
        chosen = LogChoice(tail_bytes, attempt, stream, max(0, after) if after is not None else None)
        return await printed.of(run, job, chosen)

    @router.get("/runs/{run}/explain")
    async def explain(run: str, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        return await journal.explained(run, lfn, job)

    @router.get("/runs/{run}/history")
    async def history(run: str) -> wire.RunHistory:
        return await journal.history(run)

    @router.get("/runs/{run}/events")
    async def events(run: str, after: int = 0, wait_s: float = 20.0) -> wire.ProgressPage:
        steps, gap, next_seq = await following.steps_after(run, after, min(max(0.0, wait_s), WAIT_S_MAX))
        return wire.ProgressPage(events=[progress_event(step) for step in steps], next_seq=next_seq, gap=gap)

    return router


def sandbox_router(sandboxes: Sandboxes, lifetime: Lifetime) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}/sandbox")
    async def sandbox(run: str, job: str) -> wire.Sandbox:
        await lifetime.ready.wait()
        return await sandboxes.of(run, job)

    return router
