"""Runs: submit, list, resume, drain, stop, cancel, wait. One rule: an answer that something was taken comes after the journal holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from stager import wire
from stager.model.errors import InvalidInput
from stager.scheduler import events as ev
from stager.service.api.routing import Asked, Router
from stager.service.commands import RunCommands
from stager.service.following import Following
from stager.service.lifetime import Lifetime
from stager.service.queries import RunQueries
from stager.service.run_lists import RunLists
from stager.service.run_service import check_guessed, check_reused, check_whole

T = TypeVar("T")


def runs_router(commands: RunCommands, lists: RunLists, queries: RunQueries, following: Following, lifetime: Lifetime) -> Router:
    router = Router()

    @router.post("/runs")
    async def submit(asked: Asked) -> wire.SubmitResponse:
        body = await asked.body()
        wanted = await asyncio.to_thread(understood, body)
        await lifetime.ready.wait()
        return wire.SubmitResponse(run=await commands.submit(wanted))

    @router.get("/runs")
    async def runs(asked: Asked) -> wire.RunList:
        return wire.RunList(runs=await lists.whole(in_lines=not asked.flag("parts", default=True)))

    @router.get("/runs/{run}/needs")
    async def needs(asked: Asked) -> wire.RunNeeds:
        return await queries.needs(asked.run)

    @router.post("/runs/{run}/resume")
    async def resume(asked: Asked) -> wire.Resumed:
        body = await asked.body()
        wanted = await asyncio.to_thread(understood_resume, body)
        await lifetime.ready.wait()
        return wire.Resumed(notes=await commands.resume(asked.run, wanted))

    @router.post("/runs/{run}/drain")
    async def drain(asked: Asked) -> None:
        await commands.end(asked.run, ev.RunDrained)

    @router.post("/runs/{run}/stop")
    async def stop(asked: Asked) -> None:
        await commands.end(asked.run, ev.RunStopped)

    @router.post("/runs/{run}/cancel")
    async def cancel(asked: Asked) -> None:
        await commands.end(asked.run, ev.RunCancelled)

    @router.get("/runs/{run}/wait")
    async def wait(asked: Asked) -> wire.WaitResponse:
        return await following.ended_or(asked.run, asked.text("lfn"), asked.number("timeout_s", 20.0))

    return router


def understood(body: bytes) -> wire.SubmitRequest:
    """Raises InvalidInput."""
    wanted = decoded(wire.decode_submit, body, "submit")
    check_whole(wanted.workflow, wanted.plan)
    check_reused(wanted.workflow, wanted.reused)
    check_guessed(wanted.workflow, wanted.sharing)
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
