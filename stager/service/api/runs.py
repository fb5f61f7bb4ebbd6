"""Runs: submit, list, resume, drain, stop, cancel, wait. One rule: an answer that something was taken comes after the journal holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from stager import wire
from stager.model.errors import InvalidInput
from stager.scheduler import events as ev
from stager.service import commands, queries
from stager.service.app import Scheduler
from stager.service.commands import taken
from stager.service.run_service import check_whole

T = TypeVar("T")
# As SQLite says it.
NO_LIMIT = -1


def runs_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter()

    @router.post("/runs")
    async def submit(request: Request) -> wire.SubmitResponse:
        body = await request.body()
        wanted = await asyncio.to_thread(understood, body)
        await scheduler.ready.wait()
        return wire.SubmitResponse(run=await taken(scheduler, lambda done: scheduler.run_service.submit(wanted, scheduler.clock(), done)))

    @router.get("/runs")
    async def runs(parts: bool = True) -> wire.RunList:
        return await scheduler.ask(lambda: run_list(scheduler, parts))

    @router.get("/runs/{run}/needs")
    async def needs(run: str) -> wire.RunNeeds:
        return await scheduler.ask(lambda: scheduler.run_service.needs(run))

    @router.post("/runs/{run}/resume")
    async def resume(run: str, request: Request) -> wire.Resumed:
        body = await request.body()
        wanted = await asyncio.to_thread(understood_resume, body)
        await scheduler.ready.wait()
        return wire.Resumed(notes=await taken(scheduler, lambda told: scheduler.run_service.resume(run, wanted, told)))

    @router.post("/runs/{run}/drain")
    async def drain(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.run_service.end(run, ev.RunDrained, told))

    @router.post("/runs/{run}/stop")
    async def stop(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.run_service.end(run, ev.RunStopped, told))

    @router.post("/runs/{run}/cancel")
    async def cancel(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.run_service.end(run, ev.RunCancelled, told))

    @router.get("/runs/{run}/wait")
    async def wait(run: str, timeout_s: float = 20.0, lfn: str | None = None) -> wire.WaitResponse:
        return await queries.ended_or(scheduler, run, lfn, timeout_s)

    return router


def understood(body: bytes) -> wire.SubmitRequest:
    """Raises InvalidInput."""
    wanted = decoded(wire.decode_submit, body, "submit")
    check_whole(wanted.workflow, wanted.plan)
    return wanted


def understood_resume(body: bytes) -> wire.ResumeRequest:
    """Raises InvalidInput."""
    wanted = decoded(wire.decode_resume, body, "resume")
    if wanted.workflow is not None and wanted.plan is not None:
        check_whole(wanted.workflow, wanted.plan)
    return wanted


def decoded(decode: Callable[[bytes], T], body: bytes, what: str) -> T:
    """The message of a decoder may quote a value, and values may be secret, so only the place is told."""
    try:
        return decode(body)
    except ValueError as problem:
        place = str(problem).partition(" - at ")[2] or "the body"
        text = f"the {what} request is not understood ({place}); use a client of the same version"
        raise InvalidInput(text, code="bad_request") from None


async def done(scheduler: Scheduler, ask: Callable[[Callable[[], None]], None]) -> Response:
    await commands.done(scheduler, ask)
    return Response(b"{}", media_type="application/json")


def run_list(scheduler: Scheduler, parts: bool) -> wire.RunList:
    """The oldest first. `parts`: each run by itself."""
    records = scheduler.records.page(None, None, NO_LIMIT, in_lines=not parts)
    return wire.RunList(runs=queries.run_infos(scheduler, reversed(records), in_lines=not parts))
