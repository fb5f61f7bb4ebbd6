"""Runs: submit, list, read, wait, cancel, drain, stop, resume. One rule: a change is answered once the journal holds it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from msgspec import structs

from stager import rest, wire
from stager.model.errors import NOT_READY_CODE, Denied, Transient
from stager.scheduler import events as ev
from stager.service.commands import RunCommands
from stager.service.following import WAIT_S_MAX, Following
from stager.service.lifetime import Lifetime
from stager.service.queries import RunQueries
from stager.service.reading import Reading
from stager.service.rest.callers import Caller, Own, Reader, Submitter
from stager.service.rest.limits import Limiter, Waits
from stager.service.rest.openapi import body_of
from stager.service.rest.pages import TAGGED, Contains, Cursor, Limit, cursor_of, parts_of, tagged
from stager.service.run_lists import RunLists
from stager.service.run_service import Sender
from stager.service.sent_contents import SentStores
from stager.service.sent_directories import SentDirectories
from stager.service.status import StatusQueries
from stager.service.submissions import understood

READY_S = 60.0
Read = Callable[[bytes, str], wire.SubmitRequest]
Key = Annotated[str | None, Header(alias="Idempotency-Key", pattern=rest.KEY_PATTERN, description="the same again is the same run")]
NewKey = Annotated[str, Header(alias="Idempotency-Key", pattern=rest.KEY_PATTERN, description="one that has made no other run")]
Made = Annotated[str | None, Query(pattern=rest.KEY_PATTERN, description="an Idempotency-Key of yours")]
By = Annotated[
    str, Query(pattern=rest.BY_PATTERN, description="the name of the caller. Those who wait for the run are told it (`interrupted_by`)")
]
PartOf = Annotated[
    str, Query(max_length=rest.PART_OF_MAX, pattern=rest.PART_OF_PATTERN, description="only the runs that are part of this, each by itself")
]
Created: dict[int | str, dict[str, Any]] = {200: {"model": rest.Submitted, "description": "This key has made the run before"}}


class Intake:
    """Where a workflow goes that was sent as text."""

    def __init__(self, commands: RunCommands, lifetime: Lifetime, limiter: Limiter, contents: SentStores) -> None:
        self.commands, self.lifetime, self.limiter, self.contents = commands, lifetime, limiter, contents

    async def submitted(self, read: Read, request: Request, response: Response, caller: Caller, key: str) -> rest.Submitted:
        """`read`: by its rules the text is read. The same key and body again is the same run."""
        body = await request.body()
        digest = await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest()) if key else ""
        sender = Sender(caller.tenant, digest)
        made = await self.commands.taken_before(key, sender) if key else None
        if made is None:
            wanted = await self.limiter.run(caller.tenant, read, body, caller.tenant)
            await ready(self.lifetime)
            known = structs.replace(wanted, submit_id=key)
            run = await self.commands.submit(known, sender)
            answer = taken(run, known)
        else:
            answer = rest.Submitted(run=made.run, workflow=made.workflow, jobs=made.jobs_total, repeated=True)
            response.status_code = 200
        # Of what the run was made of: the same may have been sent twice at once, or before whoever took it was killed.
        workflow = await self.commands.workflow_of(answer.run)
        if workflow is not None:
            await asyncio.to_thread(SentDirectories(self.contents.of(caller.tenant)).note_of, answer.run, workflow)
        response.headers["Location"] = f"{rest.API_PREFIX}/runs/{answer.run}"
        return answer


def taken(run: str, known: wire.SubmitRequest) -> rest.Submitted:
    workflow = known.workflow
    return rest.Submitted(
        run=run,
        workflow=workflow.name,
        jobs=len(workflow.jobs),
        notes=list(workflow.notes),
        jobs_reused=len(known.reused),
        reuse=list(known.told),
    )


def submit_router(intake: Intake, reading: Reading) -> APIRouter:
    router = APIRouter(tags=["runs"])

    @router.post("/runs", status_code=201, responses=Created, openapi_extra=body_of(rest.Submission))
    async def submit(request: Request, response: Response, caller: Submitter, idempotency_key: Key = None) -> rest.Submitted:
        """Takes a workflow; its run begins. With an Idempotency-Key it is safe to ask again when the answer was lost."""
        return await intake.submitted(reading.submission, request, response, caller, idempotency_key or "")

    return router


def queries_router(
    own: Own, lists: RunLists, queries: RunQueries, statuses: StatusQueries, following: Following, waits: Waits
) -> APIRouter:
    router = APIRouter(tags=["runs"])

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
            return tagged(request, rest.RunPage(runs=await lists.made_by(key, caller.tenant)))
        chosen = {"text": contains, "state": state or "", "part_of": part_of, "in_lines": not (parts or part_of)}
        start = (float(before[0]), str(before[1])) if before is not None else None
        shown, more = await lists.page(caller.only, start, limit, chosen)
        return tagged(request, rest.RunPage(runs=shown, next_cursor=cursor_of(*more) if more is not None else None))

    @router.get("/runs/{run}", response_model=wire.RunStatus, responses=TAGGED)
    async def status(request: Request, run: str, caller: Reader) -> Response:
        """How far it is: jobs, transfers, and every produced byte that is not durable yet."""
        await own(run, caller)
        return tagged(request, await statuses.status(run))

    @router.get("/runs/{run}/summary")
    async def summary(run: str, caller: Reader) -> wire.RunSummary:
        """The summary of the run; 409 until it has finished."""
        await own(run, caller)
        return await queries.summary(run)

    @router.get("/runs/{run}/losses")
    async def losses(run: str, caller: Reader) -> wire.Losses:
        """The bytes that a cancel would lose."""
        await own(run, caller)
        return await queries.losses(run)

    @router.get("/runs/{run}/wait")
    async def wait(
        run: str,
        caller: Reader,
        timeout_s: Annotated[float, Query(ge=0, le=WAIT_S_MAX)] = 20.0,
        lfn: Annotated[str | None, Query(max_length=4000)] = None,
    ) -> wire.WaitResponse:
        """Answers when it has finished, when that final is durable, or after the timeout."""
        await own(run, caller)
        with waits.one(caller.tenant):
            return await following.ended_or(run, lfn, timeout_s)

    return router


class Resumption:
    """Goes on with a run by the rights that its tenant has now."""

    def __init__(self, queries: RunQueries, commands: RunCommands, lifetime: Lifetime, reading: Reading, limiter: Limiter) -> None:
        self.queries, self.commands, self.lifetime, self.reading, self.limiter = queries, commands, lifetime, reading, limiter

    async def resume(self, run: str, body: bytes, caller: Caller, tenant: str) -> None:
        workflow = (await self.queries.definition(run)).workflow
        credentials = await self.limiter.run(caller.tenant, self.reading.resumption, body, workflow, tenant)
        await ready(self.lifetime)
        await self.commands.resume(run, wire.ResumeRequest(credentials, budget=understood(body or b"{}", rest.Resumption).budget))


def controls_router(own: Own, commands: RunCommands, following: Following, resumption: Resumption) -> APIRouter:
    router = APIRouter(tags=["runs"])

    async def end(run: str, caller: Caller, event: type, by: str = "") -> wire.WaitResponse:
        await own(run, caller)
        await commands.end(run, event, by)
        return await following.ended_or(run, None, 0)

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
        await commands.add_key(idempotency_key, run, caller.tenant)
        return await following.ended_or(run, None, 0)

    @router.post("/runs/{run}/resume", openapi_extra=body_of(rest.Resumption, required=False))
    async def resume(request: Request, run: str, caller: Submitter) -> wire.WaitResponse:
        """Goes on after an interruption or a failure whose cause was mended. Finished jobs do not run again."""
        record = await own(run, caller)
        if not record.tenant:
            text = f"run {run} was submitted over the owner's socket, and its credentials are in the owner's environment"
            raise Denied(f"{text}; resume it there (stager resume {run})", code="owners_run", subject=run)
        await resumption.resume(run, await request.body(), caller, record.tenant)
        return await following.ended_or(run, None, 0)

    return router


async def ready(lifetime: Lifetime) -> None:
    try:
        async with asyncio.timeout(READY_S):
            await lifetime.ready.wait()
    except TimeoutError:
        raise Transient("the I/O node of the service does not answer; ask again in a moment", code=NOT_READY_CODE) from None
