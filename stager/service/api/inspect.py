"""Reading a run: status, summary, ledger, jobs, logs, progress, timeline. One rule: reading changes nothing."""

from __future__ import annotations

import asyncio

from stager import wire
from stager.service.api.routing import Asked, Router
from stager.service.following import WAIT_S_MAX, Following
from stager.service.job_logs import JobLogs, LogChoice
from stager.service.journal_queries import JournalQueries
from stager.service.lifetime import Lifetime
from stager.service.queries import JobChoice, JobQueries, RunQueries
from stager.service.sandboxes import Sandboxes
from stager.service.status import StatusQueries
from stager.service.timeline import progress_event


def inspect_router(queries: RunQueries, statuses: StatusQueries) -> Router:
    router = Router()

    @router.get("/runs/{run}")
    async def status(asked: Asked) -> wire.RunStatus:
        return await statuses.status(asked.run)

    @router.get("/runs/{run}/summary")
    async def summary(asked: Asked) -> wire.RunSummary:
        return await queries.summary(asked.run)

    @router.get("/runs/{run}/workflow")
    async def workflow(asked: Asked) -> bytes:
        value = (await queries.definition(asked.run)).workflow
        return await asyncio.to_thread(wire.encode, value)

    @router.get("/runs/{run}/plan")
    async def plan(asked: Asked) -> bytes:
        value = (await queries.definition(asked.run)).plan
        return await asyncio.to_thread(wire.encode, value)

    return router


def parts_router(queries: RunQueries, jobs: JobQueries) -> Router:
    router = Router()

    @router.get("/runs/{run}/losses")
    async def lost(asked: Asked) -> wire.Losses:
        return await queries.losses(asked.run)

    @router.get("/runs/{run}/ledger")
    async def ledger(asked: Asked) -> wire.Ledger:
        return wire.Ledger(run=asked.run, files=await queries.ledger(asked.run, asked.text("lfn")))

    @router.get("/runs/{run}/jobs")
    async def jobs_of(asked: Asked) -> wire.JobList:
        chosen = JobChoice(asked.text("state"), job=asked.text("job"))
        found, _total = await jobs.views(asked.run, 0, asked.number("limit", 1000), chosen)
        return wire.JobList(run=asked.run, jobs=found)

    return router


def timelines_router(printed: JobLogs, journal: JournalQueries, following: Following) -> Router:
    router = Router()

    @router.get("/runs/{run}/logs")
    async def logs(asked: Asked) -> wire.JobLogs:
        after = asked.number_or_none("after")
        chosen = LogChoice(
            asked.number("tail_bytes", 65_536),
            asked.text("attempt") or "",
            asked.text("stream") or "",
            max(0, after) if after is not None else None,
        )
        return await printed.of(asked.run, asked.required("job"), chosen)

    @router.get("/runs/{run}/explain")
    async def explain(asked: Asked) -> wire.Explanation:
        return await journal.explained(asked.run, asked.text("lfn"), asked.text("job"))

    @router.get("/runs/{run}/history")
    async def history(asked: Asked) -> wire.RunHistory:
        return await journal.history(asked.run)

    @router.get("/runs/{run}/events")
    async def events(asked: Asked) -> wire.ProgressPage:
        wait_s = min(max(0.0, asked.number("wait_s", 20.0)), WAIT_S_MAX)
        steps, gap, next_seq = await following.steps_after(asked.run, asked.number("after", 0), wait_s)
        return wire.ProgressPage(events=[progress_event(step) for step in steps], next_seq=next_seq, gap=gap)

    return router


def sandbox_router(sandboxes: Sandboxes, lifetime: Lifetime) -> Router:
    router = Router()

    @router.get("/runs/{run}/sandbox")
    async def sandbox(asked: Asked) -> wire.Sandbox:
        await lifetime.ready.wait()
        return await sandboxes.of(asked.run, asked.required("job"))

    return router
