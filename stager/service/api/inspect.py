"""Looking at a run: status, summary, ledger, jobs, logs, progress, timeline. One rule: looking changes nothing."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from stager import wire
from stager.model.errors import Refused
from stager.scheduler.states import RunState
from stager.service import queries
from stager.service.app import Scheduler
from stager.service.history import history_of
from stager.service.sandboxes import sandbox_of
from stager.service.timeline import progress_event


def inspect_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}")
    async def status(run: str) -> wire.RunStatus:
        return await queries.status_of(scheduler, run)

    @router.get("/runs/{run}/summary")
    async def summary(run: str) -> wire.RunSummary:
        return await queries.summary_of(scheduler, run)

    add_values(router, scheduler)
    add_parts(router, scheduler)
    add_stories(router, scheduler)
    add_sandbox(router, scheduler)
    return router


def add_values(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/workflow")
    async def workflow(run: str) -> Response:
        value = await scheduler.ask(lambda: scheduler.run_service.known(run).workflow)
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")

    @router.get("/runs/{run}/plan")
    async def plan(run: str) -> Response:
        value = await scheduler.ask(lambda: scheduler.run_service.known(run).plan)
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")


def add_parts(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/losses")
    async def lost(run: str) -> wire.Losses:
        return await queries.losses_of(scheduler, run)

    @router.get("/runs/{run}/ledger")
    async def ledger(run: str, lfn: str | None = None) -> wire.Ledger:
        return wire.Ledger(run=run, files=await queries.ledger_entries(scheduler, run, lfn))

    @router.get("/runs/{run}/jobs")
    async def jobs(run: str, state: str | None = None, job: str | None = None, limit: int = 1000) -> wire.JobList:
        found, _total = await queries.job_views(scheduler, run, 0, limit, queries.JobChoice(state, job=job))
        return wire.JobList(run=run, jobs=found)


def add_sandbox(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/sandbox")
    async def sandbox(run: str, job: str) -> wire.Sandbox:
        await scheduler.ready.wait()
        return await sandbox_of(scheduler, run, job)


def add_stories(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/logs")
    async def logs(
        run: str, job: str, tail_bytes: int = 65_536, attempt: str = "", stream: str = "", after: int | None = None
    ) -> wire.JobLogs:
        chosen = queries.LogChoice(tail_bytes, attempt, stream, max(0, after) if after is not None else None)
        return await queries.logs_of(scheduler, run, job, chosen)

    @router.get("/runs/{run}/explain")
    async def explain(run: str, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        return await queries.explained(scheduler, run, lfn, job)

    @router.get("/runs/{run}/history")
    async def history(run: str) -> wire.RunHistory:
        entry = await scheduler.ask(lambda: scheduler.run_service.known(run))
        if entry.state is not RunState.FINISHED:
            raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
        return await asyncio.to_thread(lambda: history_of(scheduler.journal.read_beside(), run))

    @router.get("/runs/{run}/events")
    async def events(run: str, after: int = 0, wait_s: float = 20.0) -> wire.ProgressPage:
        steps, gap, next_seq = await queries.steps_after(scheduler, run, after, min(max(0.0, wait_s), queries.WAIT_S_MAX))
        return wire.ProgressPage(events=[progress_event(step) for step in steps], next_seq=next_seq, gap=gap)
