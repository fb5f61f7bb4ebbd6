"""Runs: submit, list, resume, drain, stop, cancel, wait. One rule: an answer that something was taken comes after the journal holds it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.scheduler import events as ev
from stager.scheduler.states import RunState
from stager.service.app import Scheduler
from stager.service.desk import check_whole
from stager.service.views import is_durable, run_info, state_of

# Between two looks of one waiter, however much happens.
LOOK_AGAIN_S = 0.05
WAIT_S_MAX = 60.0


def runs_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter()

    @router.post("/runs")
    async def submit(request: Request) -> wire.SubmitResponse:
        body = await request.body()
        wanted = await asyncio.to_thread(understood, body)
        await scheduler.ready.wait()
        return wire.SubmitResponse(run=await taken(scheduler, lambda done: scheduler.desk.submit(wanted, time.time(), done)))

    @router.get("/runs")
    async def runs() -> wire.RunList:
        return await scheduler.ask(lambda: run_list(scheduler))

    @router.get("/runs/{run}/needs")
    async def needs(run: str) -> wire.RunNeeds:
        return await scheduler.ask(lambda: scheduler.desk.needs(run))

    @router.post("/runs/{run}/resume")
    async def resume(run: str, request: Request) -> Response:
        wanted = wire.decode_resume(await request.body())
        await scheduler.ready.wait()
        return await done(scheduler, lambda told: scheduler.desk.resume(run, wanted.credentials, told))

    @router.post("/runs/{run}/drain")
    async def drain(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.desk.end(run, ev.RunDrained, told))

    @router.post("/runs/{run}/stop")
    async def stop(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.desk.end(run, ev.RunStopped, told))

    @router.post("/runs/{run}/cancel")
    async def cancel(run: str) -> Response:
        return await done(scheduler, lambda told: scheduler.desk.end(run, ev.RunCancelled, told))

    @router.get("/runs/{run}/wait")
    async def wait(run: str, timeout_s: float = 20.0, lfn: str | None = None) -> wire.WaitResponse:
        end = time.monotonic() + min(max(0.0, timeout_s), WAIT_S_MAX)
        while True:
            since = scheduler.changed
            answer = await scheduler.ask(lambda: looked(scheduler, run, lfn))
            left_s = end - time.monotonic()
            if answer.finished or answer.durable or left_s <= 0 or scheduler.ended.is_set():
                return answer
            await asyncio.sleep(min(LOOK_AGAIN_S, left_s))
            await scheduler.happening(since, max(0.0, end - time.monotonic()))

    return router


def understood(body: bytes) -> wire.SubmitRequest:
    """Raises InvalidInput; the message of a decoder may quote a value, and values may be secret, so only the place is told."""
    try:
        wanted = wire.decode_submit(body)
    except ValueError as problem:
        place = str(problem).partition(" - at ")[2] or "the body"
        text = f"the submit request is not understood ({place}); use a client of the same version"
        raise InvalidInput(text, code="bad_request") from None
    check_whole(wanted.workflow, wanted.plan)
    return wanted


async def taken(scheduler: Scheduler, ask: Callable[[Callable[[], None]], str]) -> str:
    """Asks the desk, and answers once the journal holds what follows."""
    durable: asyncio.Future[None] = scheduler.loop.create_future()

    def told() -> None:
        scheduler.loop.call_soon_threadsafe(lambda: None if durable.done() else durable.set_result(None))

    answer = await scheduler.ask(lambda: ask(told))
    waiting = asyncio.create_task(scheduler.ended.wait())
    await asyncio.wait([durable, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not durable.done():
        raise Refused("the scheduler ended before it took this; start it again and ask again", code="draining")
    return answer


async def done(scheduler: Scheduler, ask: Callable[[Callable[[], None]], None]) -> Response:
    def asked(told: Callable[[], None]) -> str:
        ask(told)
        return ""

    await taken(scheduler, asked)
    return Response(b"{}", media_type="application/json")


def run_list(scheduler: Scheduler) -> wire.RunList:
    known = scheduler.machine.state.runs
    return wire.RunList(runs=[run_info(record, known.get(record.run)) for record in scheduler.records.all() if not record.removed])


def looked(scheduler: Scheduler, run: str, lfn: str | None) -> wire.WaitResponse:
    if scheduler.desk.is_folded(run):
        return scheduler.desk.archive.wait(run, lfn)
    entry = scheduler.desk.known(run)
    durable = None
    if lfn is not None:
        file = entry.workflow.files.get(lfn)
        if file is None or file.destination is None:
            raise InvalidInput(
                f"{lfn!r} is no final of run {run}; `stager ledger {run}` lists what it makes", code="not_final", subject=lfn
            )
        durable = is_durable(scheduler.machine.state.files[entry.file_ids[lfn]])
    return wire.WaitResponse(
        run=run,
        finished=entry.state is RunState.FINISHED,
        state=state_of(entry),
        fault=wire.ErrorBody.of(entry.fault) if entry.fault is not None else None,
        durable=durable,
    )
