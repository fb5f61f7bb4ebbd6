"""Runs: submit, list, look, wait, cancel, drain, stop, resume. One rule: a change is answered once the journal holds it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from stager import rest, wire
from stager.model.errors import NOT_READY_CODE, Denied, Transient
from stager.scheduler import events as ev
from stager.service import commands, queries
from stager.service.app import Scheduler
from stager.service.reading import Reading
from stager.service.rest.callers import Caller, Reader, Submitter, run_of
from stager.service.rest.limits import Limiter, Waits
from stager.service.rest.openapi import body_of
from stager.service.rest.pages import TAGGED, Contains, Cursor, Limit, cursor_of, parts_of, tagged
from stager.service.run_service import Sender
from stager.service.views import run_info

READY_S = 60.0
Read = Callable[[bytes, str], wire.SubmitRequest]
Key = Annotated[str | None, Header(alias="Idempotency-Key", pattern=rest.KEY_PATTERN, description="the same again is the same run")]
NewKey = Annotated[str, Header(alias="Idempotency-Key", pattern=rest.KEY_PATTERN, description="one that has made no other run")]
Made = Annotated[str | None, Query(pattern=rest.KEY_PATTERN, description="an Idempotency-Key of yours")]
By = Annotated[str, Query(pattern=rest.BY_PATTERN, description="who asks, as those are told who wait for the run (`interrupted_by`)")]
PartOf = Annotated[
    str, Query(max_length=rest.PART_OF_MAX, pattern=rest.PART_OF_PATTERN, description="only the runs that are part of this, each by itself")
]
Created: dict[int | str, dict[str, Any]] = {200: {"model": rest.Submitted, "description": "This key has made the run before"}}


@dataclass(frozen=True, slots=True)
class Intended:
    """Where a workflow goes, and by which rules its text is read."""

    scheduler: Scheduler
    limiter: Limiter
    read: Read


def runs_router(scheduler: Scheduler, reading: Reading, limiter: Limiter, waits: Waits) -> APIRouter:
    router = APIRouter(tags=["runs"])
    add_submit(router, scheduler, reading, limiter)
    add_looks(router, scheduler, waits)
    add_controls(router, scheduler, reading, limiter)
    return router


def add_submit(router: APIRouter, scheduler: Scheduler, reading: Reading, limiter: Limiter) -> None:
    @router.post("/runs", status_code=201, responses=Created, openapi_extra=body_of(rest.Submission))
    async def submit(request: Request, response: Response, caller: Submitter, idempotency_key: Key = None) -> rest.Submitted:
        """Takes a workflow; its run begins. With an Idempotency-Key it is safe to ask again when the answer was lost."""
        return await submitted(Intended(scheduler, limiter, reading.submission), request, response, caller, idempotency_key or "")


def add_looks(router: APIRouter, scheduler: Scheduler, waits: Waits) -> None:
    own = run_of(scheduler)

    @router.get("/runs", response_model=rest.RunPage, responses=TAGGED)
    async def runs(
        request: Request,
        caller: Reader,
        cursor: Cursor = None,
        limit: Limit = 100,
        key: Made = None,
        contains: Contains = "",
        state: rest.RunStanding | None = None,
        parts: Annotated[bool, Query(description="each run in a line of its own")] = False,
        part_of: PartOf = "",
    ) -> Response:
        """Your runs, the newest first; with `key` the one that your submit with that Idempotency-Key made, if it made one. `contains`: in
        the name of the run, of its workflow, or of what it is part of. `state`: `active` are all that go on, also those that are just
        ending. An engine's runs that are part of one thing are told in one line, unless `parts` or `part_of` ask for each.
        """
        before = parts_of(cursor, float, str) if cursor is not None else None
        if key is not None:
            return tagged(request, await scheduler.ask(lambda: run_of_key(scheduler, caller, key)))
        chosen = {"text": contains, "state": state or "", "part_of": part_of, "in_lines": not (parts or part_of)}
        return tagged(request, await scheduler.ask(lambda: run_page(scheduler, caller, before, limit, chosen)))

    @router.get("/runs/{run}", response_model=wire.RunStatus, responses=TAGGED)
    async def status(request: Request, run: str, caller: Reader) -> Response:
        """How far it is: jobs, transfers, and every produced byte that is not durable yet."""
        await own(run, caller)
        return tagged(request, await queries.status_of(scheduler, run))

    @router.get("/runs/{run}/summary")
    async def summary(run: str, caller: Reader) -> wire.RunSummary:
        """What it came to; 409 until it has finished."""
        await own(run, caller)
        return await queries.summary_of(scheduler, run)

    @router.get("/runs/{run}/losses")
    async def losses(run: str, caller: Reader) -> wire.Losses:
        """What a cancel would lose."""
        await own(run, caller)
        return await queries.losses_of(scheduler, run)

    @router.get("/runs/{run}/wait")
    async def wait(
        run: str,
        caller: Reader,
        timeout_s: Annotated[float, Query(ge=0, le=queries.WAIT_S_MAX)] = 20.0,
        lfn: Annotated[str | None, Query(max_length=4000)] = None,
    ) -> wire.WaitResponse:
        """Answers when it has finished, when that final is durable, or after the timeout."""
        await own(run, caller)
        with waits.one(caller.tenant):
            return await queries.ended_or(scheduler, run, lfn, timeout_s)


def add_controls(router: APIRouter, scheduler: Scheduler, reading: Reading, limiter: Limiter) -> None:
    own = run_of(scheduler)

    async def end(run: str, caller: Caller, event: type, by: str = "") -> wire.WaitResponse:
        await own(run, caller)
        await commands.done(scheduler, lambda told: scheduler.run_service.end(run, event, told, by))
        return await queries.ended_or(scheduler, run, None, 0)

    @router.post("/runs/{run}/cancel")
    async def cancel(run: str, caller: Submitter) -> wire.WaitResponse:
        """Ends it for good; what is not durable is dropped. Ask with `losses` first."""
        return await end(run, caller, ev.RunCancelled)

    @router.post("/runs/{run}/drain")
    async def drain(run: str, caller: Submitter, by: By = ev.BY_REQUEST) -> wire.WaitResponse:
        """Starts no more of its jobs; interrupted and resumable once running jobs and uploads have ended."""
        return await end(run, caller, ev.RunDrained, by)

    @router.post("/runs/{run}/stop")
    async def stop(run: str, caller: Submitter, by: By = ev.BY_REQUEST) -> wire.WaitResponse:
        """Interrupted at once, and resumable."""
        return await end(run, caller, ev.RunStopped, by)

    @router.post("/runs/{run}/keys")
    async def add_key(run: str, caller: Submitter, idempotency_key: NewKey) -> wire.WaitResponse:
        """From now on the run is found, and not made again, under this Idempotency-Key too."""
        await own(run, caller)
        await scheduler.ask(lambda: scheduler.run_service.add_key(idempotency_key, run, caller.tenant))
        return await queries.ended_or(scheduler, run, None, 0)

    @router.post("/runs/{run}/resume", openapi_extra=body_of(rest.Resumption, required=False))
    async def resume(request: Request, run: str, caller: Submitter) -> wire.WaitResponse:
        """Goes on after an interruption or a failure whose cause was mended. Finished jobs do not run again."""
        record = await own(run, caller)
        if not record.tenant:
            text = f"run {run} was submitted over the owner's socket, and its credentials are in the owner's environment"
            raise Denied(f"{text}; resume it there (stager resume {run})", code="owners_run", subject=run)
        body = await request.body()
        workflow = await scheduler.ask(lambda: scheduler.run_service.known(run).workflow)
        credentials = await limiter.run(caller.tenant, reading.resumption, body, workflow, record.tenant)
        await ready(scheduler)
        await commands.done(scheduler, lambda told: scheduler.run_service.resume(run, wire.ResumeRequest(credentials), told))
        return await queries.ended_or(scheduler, run, None, 0)


async def submitted(intended: Intended, request: Request, response: Response, caller: Caller, key: str) -> rest.Submitted:
    """The same key and body again is the same run."""
    scheduler, body = intended.scheduler, await request.body()
    digest = await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest()) if key else ""
    sender = Sender(caller.tenant, digest)
    made = await scheduler.ask(lambda: scheduler.run_service.taken_before(key, sender)) if key else None
    if made is None:
        wanted = await intended.limiter.run(caller.tenant, intended.read, body, caller.tenant)
        await ready(scheduler)
        known = wire.SubmitRequest(wanted.workflow, wanted.plan, wanted.credentials, key, wanted.part_of)
        run = await commands.taken(scheduler, lambda told: scheduler.run_service.submit(known, scheduler.clock(), told, sender))
        answer = rest.Submitted(run=run, workflow=known.workflow.name, jobs=len(known.workflow.jobs), notes=list(known.workflow.notes))
    else:
        answer = rest.Submitted(run=made.run, workflow=made.workflow, jobs=made.jobs_total, repeated=True)
        response.status_code = 200
    response.headers["Location"] = f"{rest.API_PREFIX}/runs/{answer.run}"
    return answer


async def ready(scheduler: Scheduler) -> None:
    try:
        async with asyncio.timeout(READY_S):
            await scheduler.ready.wait()
    except TimeoutError:
        raise Transient("the I/O node of the service does not answer; ask again in a moment", code=NOT_READY_CODE) from None


def run_of_key(scheduler: Scheduler, caller: Caller, key: str) -> rest.RunPage:
    made = scheduler.run_service.made_by(key, caller.tenant)
    known = scheduler.machine.state.runs
    return rest.RunPage(runs=[] if made is None or made.removed else [run_info(made, known.get(made.run), scheduler.clock())])


def run_page(scheduler: Scheduler, caller: Caller, before: list[str | float] | None, limit: int, chosen: dict[str, Any]) -> rest.RunPage:
    start = (float(before[0]), str(before[1])) if before is not None else None
    records = scheduler.records.page(caller.only, start, limit + 1, **chosen)
    shown = records[:limit]
    more = cursor_of(float(shown[-1].submitted_at), shown[-1].run) if len(records) > limit else None
    return rest.RunPage(runs=queries.run_infos(scheduler, shown, in_lines=chosen["in_lines"]), next_cursor=more)
